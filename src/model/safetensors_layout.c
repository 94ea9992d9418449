/* Where everything lies in a safetensors file that is to be written. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "ir/finite.h"
#include "model/safetensors_layout.h"

enum { LENGTH_BYTES = 8, HEADER_ALIGNMENT = 8 };

static const char *file_dtype(enum dtype dtype) {
    switch (dtype) {
    case DTYPE_F64: return "F64";
    case DTYPE_F32: return "F32";
    case DTYPE_BF16: return "BF16";
    case DTYPE_I32: return "I32";
    case DTYPE_I8: return "I8";
    case DTYPE_U8: return "U8";
    case DTYPE_U16: return "U16";
    case DTYPE_NONE: break;
    }
    BUG("no safetensors dtype for %s", dtype_name(dtype));
}

int64_t item_bytes(const struct safetensors_item *item) {
    return item->carried ? (int64_t)item->carried->bytes : shape_bytes(&item->shape);
}

/* Of one element. */
static int64_t item_bits(const struct safetensors_item *item) {
    return item->carried ? (int64_t)safetensors_dtype_bits(item->carried->dtype) : 8 * dtype_bytes(item->shape.dtype);
}

/* Of the tensor in the file. */
static const char *written_name(const struct safetensors_item *item) {
    return item->stack.name ? item->stack.name : item->name;
}

static int compare_groups(const char *x, const char *y) {
    if (x && y) return strcmp(x, y);
    return x ? -1 : y ? 1 : 0;
}

static int compare_items(const void *a, const void *b) {
    const struct safetensors_item *x = *(const struct safetensors_item *const *)a;
    const struct safetensors_item *y = *(const struct safetensors_item *const *)b;
    int groups = compare_groups(x->group, y->group);
    if (groups != 0) return groups;
    int64_t x_bits = item_bits(x), y_bits = item_bits(y);
    if (x_bits != y_bits) return x_bits > y_bits ? -1 : 1;
    int names = strcmp(written_name(x), written_name(y));
    return names != 0 || !x->stack.name ? names : (x->stack.index > y->stack.index) - (x->stack.index < y->stack.index);
}

/* Parts of a stack are all there, in their order. */
static void check_stacks(const struct layout *layout) {
    for (size_t i = 0; i < layout->count; i++) {
        const struct tensor_stack *stack = &layout->sorted[i]->stack;
        int64_t last = stack->count - 1 - stack->index;
        BUG_IF(stack->name && (last < 0 || (int64_t)(layout->count - 1 - i) < last), "%s: a part of %s",
               layout->sorted[i]->name, stack->name);
        const struct tensor_stack *next = stack->name && last > 0 ? &layout->sorted[i + 1]->stack : NULL;
        BUG_IF(next && (!next->name || strcmp(next->name, stack->name) != 0 || next->index != stack->index + 1),
               "%s: parts are missing", stack->name);
    }
}

static void check_groups(const struct layout *layout) {
    int64_t bytes = 0;
    for (size_t i = 0; i < layout->count && layout->sorted[i]->group; i++) {
        const char *group = layout->sorted[i]->group,
                   *next = i + 1 < layout->count ? layout->sorted[i + 1]->group : NULL;
        bytes += item_bytes(layout->sorted[i]);
        BUG_IF(compare_groups(group, next) != 0 && bytes % SAFETENSORS_GROUP_BYTES != 0, "%s: %" PRId64 " bytes", group,
               bytes);
    }
}

static json_t *item_info(const struct safetensors_item *item, int64_t begin) {
    const struct safetensors_tensor *carried = item->carried;
    const char *dtype = carried ? carried->dtype_name : file_dtype(item->shape.dtype);
    int64_t parts = item->stack.name ? item->stack.count : 1;
    json_t *dims = json_array();
    if (dims && item->stack.name && json_array_append_new(dims, json_integer(parts)) != 0) {
        json_decref(dims);
        return NULL;
    }
    for (int i = 0; dims && i < (carried ? carried->rank : item->shape.rank); i++) {
        if (json_array_append_new(dims, json_integer(carried ? carried->dims[i] : item->shape.dims[i])) == 0) continue;
        json_decref(dims);
        return NULL;
    }
    /* "o" takes over `dims`, also on failure */
    return json_pack("{s:s, s:o, s:[I, I]}", "dtype", dtype, "shape", dims, "data_offsets", (json_int_t)begin,
                     (json_int_t)(begin + parts * item_bytes(item)));
}

static json_t *make_header(const struct safetensors_item *const *sorted, size_t count) {
    json_t *header = json_pack("{s:{s:s}}", "__metadata__", "format", "pt");
    int64_t begin = 0;
    for (size_t i = 0; header && i < count; i++) {
        bool first = !sorted[i]->stack.name || sorted[i]->stack.index == 0; /* it stands for its stack */
        if (first && json_object_set_new(header, written_name(sorted[i]), item_info(sorted[i], begin)) != 0) {
            json_decref(header);
            return NULL;
        }
        begin += item_bytes(sorted[i]);
    }
    return header;
}

static enum status set_head(struct layout *layout, const char *text) {
    size_t length = strlen(text), padding = (HEADER_ALIGNMENT - length % HEADER_ALIGNMENT) % HEADER_ALIGNMENT;
    layout->head_bytes = LENGTH_BYTES + length + padding;
    layout->head = mem_array(layout->head_bytes, 1);
    if (!layout->head) return STATUS_FAILED;
    for (int i = 0; i < LENGTH_BYTES; i++)
        layout->head[i] = (char)(unsigned char)((length + padding) >> (8 * i));
    memcpy(layout->head + LENGTH_BYTES, text, length);
    memset(layout->head + LENGTH_BYTES + length, ' ', padding);
    layout->bytes = layout->head_bytes;
    for (size_t i = 0; i < layout->count; i++)
        layout->bytes += (uint64_t)item_bytes(layout->sorted[i]);
    return STATUS_OK;
}

void layout_free(struct layout *layout) {
    mem_free(layout->sorted);
    mem_free(layout->head);
}

enum status layout_make(const struct safetensors_item *items, size_t count, struct layout *out) {
    struct layout layout = {.sorted = mem_array(count, sizeof(const struct safetensors_item *)), .count = count};
    if (!layout.sorted) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        layout.sorted[i] = &items[i];
    if (count > 0) qsort(layout.sorted, count, sizeof *layout.sorted, compare_items);
    check_groups(&layout);
    check_stacks(&layout);
    json_t *header = make_header(layout.sorted, count);
    char *text = header ? json_text(header, JSON_COMPACT) : NULL;
    json_decref(header);
    enum status status = text ? set_head(&layout, text) : status_no_memory(0, "the header of a safetensors file");
    mem_free(text);
    if (status == STATUS_OK)
        *out = layout;
    else
        layout_free(&layout);
    return status;
}

enum status item_check_finite(const struct safetensors_item *item, const char *data, int64_t offset, size_t bytes) {
    if (item->carried) return STATUS_OK;
    int64_t element = dtype_bytes(item->shape.dtype);
    int64_t found = values_find_nonfinite(item->shape.dtype, data, (int64_t)bytes / element);
    if (found < 0) return STATUS_OK;
    return status_set(STATUS_FAILED, "%s: value %" PRId64 " is not finite", item->name, offset / element + found);
}

enum status item_read(const struct safetensors_item *item, int64_t offset, int64_t bytes, void *out) {
    if (!item->carried) return item->store->read(item->store->payload, item->key, offset, bytes, out);
    return safetensors_read(item->carried_from, item->carried, (size_t)offset, (size_t)bytes, out);
}

enum status safetensors_measure(const struct safetensors_item *items, size_t count, uint64_t *bytes) {
    struct layout layout;
    TRY(layout_make(items, count, &layout));
    *bytes = layout.bytes;
    layout_free(&layout);
    return STATUS_OK;
}
