/* Any safetensors file is refused, or every tensor in it can be read completely. */
#include <stdlib.h>

#include "model/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void read_tensor(const struct safetensors *set, const struct safetensors_tensor *tensor) {
    static const enum dtype dtypes[] = {DTYPE_F64, DTYPE_F32, DTYPE_BF16, DTYPE_I32};
    unsigned char last;
    if (tensor->bytes > 0 && safetensors_read(set, tensor, tensor->bytes - 1, 1, &last) != STATUS_OK) abort();
    for (size_t i = 0; i < sizeof dtypes / sizeof *dtypes; i++) {
        if (!safetensors_can_convert(tensor->dtype, dtypes[i])) continue;
        void *values = malloc(tensor->elements * (size_t)dtype_bytes(dtypes[i]) + 1);
        if (values && safetensors_convert(set, tensor, 0, tensor->elements, dtypes[i], values) != STATUS_OK) abort();
        free(values);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    struct safetensors *set;
    char dims[SHAPE_TEXT];
    enum status status = safetensors_open_memory("fuzz", data, bytes, &set);
    if (status == STATUS_BAD_INPUT) return 0;
    BUG_IF(status != STATUS_OK, "%s", status_message());
    size_t total = 0;
    for (size_t i = 0; i < set->tensors.count; i++) {
        const struct safetensors_tensor *tensor = &set->tensors.items[i];
        BUG_IF(safetensors_find(set, tensor->name) != tensor, "%s is not found", tensor->name);
        read_tensor(set, tensor);
        safetensors_print_dims(tensor, dims);
        total += tensor->bytes;
    }
    BUG_IF(total > bytes, "more data than the file holds");
    safetensors_close(set);
    return 0;
}
