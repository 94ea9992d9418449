#include "model/quantized_weights.h"

#include "base/mem.h"
#include "ir/weight_part.h"
#include "model/stored_format.h"

struct tensor quantized_weight_whole(const struct tensor *tensor) {
    struct tensor whole = *tensor;
    if (!tensor->part) return whole;
    whole.part = NULL;
    whole.code = weight_part_whole(tensor);
    whole.code.values.dtype = tensor->code.values.dtype;
    whole.shape = shape_make(DTYPE_U8, 1, weight_code_layout(&whole.code).bytes, 1, 1);
    return whole;
}

static enum status store_pieces(const struct weight_target *target, const struct weight_source *source,
                                unsigned char *buffer) {
    int64_t end = target->first + target->elements;
    for (int64_t at = target->first; at < end; at += BYTE_STORE_PIECE) {
        int64_t bytes = end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE;
        TRY(source->read(source->payload, &(struct weight_piece){at, bytes, buffer}));
        TRY(target->store->write(target->store->payload, target->stored_as, at, bytes, buffer));
    }
    return STATUS_OK;
}

static enum status fill(const struct weight_target *target, const struct weight_source *source) {
    if (target->data)
        return source->read(source->payload, &(struct weight_piece){target->first, target->elements, target->data});
    int64_t bytes = target->elements < BYTE_STORE_PIECE ? target->elements : BYTE_STORE_PIECE;
    unsigned char *buffer = mem_array((size_t)bytes, 1);
    enum status status = buffer ? store_pieces(target, source, buffer) : STATUS_FAILED;
    mem_free(buffer);
    return status;
}

/* `whole` is a source of what quantized_weight_whole says. */
static enum status fill_own(const struct weight_target *target, const struct weight_source *whole) {
    struct weight_part_reader *reader;
    if (!target->tensor->part) return fill(target, whole);
    TRY(weight_part_open(target->tensor, *whole, &reader));
    const struct weight_source part = weight_part_source(reader);
    enum status status = fill(target, &part);
    weight_part_close(reader);
    return status;
}

enum status quantized_weight_quantise(const struct weight_target *target, const struct number_source *numbers) {
    const struct tensor whole = quantized_weight_whole(target->tensor);
    struct quantiser *quantiser;
    TRY(quantiser_open(&whole.code, numbers, &quantiser));
    const struct weight_source source = quantiser_source(quantiser);
    enum status status = fill_own(target, &source);
    quantiser_close(quantiser);
    return status;
}

/* A weight, and the files that have it. */
struct stored_weight {
    const struct safetensors *set;
    struct tensor whole;
};

static enum status read_stored(void *payload, const struct weight_piece *piece) {
    const struct stored_weight *stored = payload;
    return stored_weight_read(stored->set, &stored->whole, piece);
}

enum status quantized_weight_read(const struct weight_target *target, const struct safetensors *set) {
    struct stored_weight stored = {set, quantized_weight_whole(target->tensor)};
    return fill_own(target, &(struct weight_source){read_stored, &stored});
}
