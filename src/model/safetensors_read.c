/* Reads tensors, or runs of their elements, converted to another dtype, into memory or a store, with all threads. */

#include "base/base.h"
#include "base/folder.h"
#include "base/half.h"
#include "base/terminal.h"
#include "model/safetensors.h"

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian and used in place");

static const struct {
    const char *name;
    size_t bits;
} dtypes[] = {[SAFETENSORS_UNKNOWN] = {"", 0},
#define DTYPE_ROW(name, bits) [SAFETENSORS_##name] = {#name, bits},
              SAFETENSORS_DTYPE_LIST(DTYPE_ROW)};

enum safetensors_dtype safetensors_dtype_find(const char *name) {
    for (size_t i = 1; i < sizeof dtypes / sizeof *dtypes; i++)
        if (strcmp(dtypes[i].name, name) == 0) return (enum safetensors_dtype)i;
    return SAFETENSORS_UNKNOWN;
}

size_t safetensors_dtype_bits(enum safetensors_dtype dtype) { return dtypes[dtype].bits; }

/* One loop for each pair of dtypes. Loads and stores go through memcpy, since data in a file is not aligned. Without
 * `omp simd` -O2 would leave the loops scalar. */
#define CONVERSION(name, from_type, to_type, converted)                                                                \
    WIDE_VECTORS static void name(const unsigned char *restrict in, size_t count, unsigned char *restrict out) {       \
        _Pragma("omp simd") for (size_t i = 0; i < count; i++) {                                                       \
            from_type value;                                                                                           \
            memcpy(&value, in + i * sizeof value, sizeof value);                                                       \
            to_type result = converted;                                                                                \
            memcpy(out + i * sizeof result, &result, sizeof result);                                                   \
        }                                                                                                              \
    }

CONVERSION(f32_to_bf16, float, uint16_t, bf16_from_float(value))
CONVERSION(bf16_to_f32, uint16_t, float, bf16_to_float(value))
CONVERSION(f16_to_f32, uint16_t, float, f16_to_float(value))
CONVERSION(f16_to_bf16, uint16_t, uint16_t, bf16_from_float(f16_to_float(value)))
CONVERSION(f64_to_f32, double, float, (float)value)
CONVERSION(f64_to_bf16, double, uint16_t, bf16_from_float((float)value))

static const struct conversion {
    enum safetensors_dtype from;
    enum dtype to;
    void (*run)(const unsigned char *in, size_t count, unsigned char *out); /* NULL: copies the bytes */
} conversions[] = {
    {SAFETENSORS_F32, DTYPE_F32, NULL},         {SAFETENSORS_F32, DTYPE_BF16, f32_to_bf16},
    {SAFETENSORS_BF16, DTYPE_F32, bf16_to_f32}, {SAFETENSORS_BF16, DTYPE_BF16, NULL},
    {SAFETENSORS_F16, DTYPE_F32, f16_to_f32},   {SAFETENSORS_F16, DTYPE_BF16, f16_to_bf16},
    {SAFETENSORS_F64, DTYPE_F32, f64_to_f32},   {SAFETENSORS_F64, DTYPE_BF16, f64_to_bf16},
    {SAFETENSORS_F64, DTYPE_F64, NULL},         {SAFETENSORS_I32, DTYPE_I32, NULL},
    {SAFETENSORS_U8, DTYPE_U8, NULL},           {SAFETENSORS_U16, DTYPE_U16, NULL},
};

static const struct conversion *find_conversion(enum safetensors_dtype from, enum dtype to) {
    for (size_t i = 0; i < sizeof conversions / sizeof *conversions; i++)
        if (conversions[i].from == from && conversions[i].to == to) return &conversions[i];
    return NULL;
}

bool safetensors_can_convert(enum safetensors_dtype from, enum dtype to) { return find_conversion(from, to) != NULL; }

enum status safetensors_read(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t offset,
                             size_t bytes, void *out) {
    BUG_IF(offset > tensor->bytes || bytes > tensor->bytes - offset, "%s: beyond its end", tensor->name);
    return file_input_read(&set->inputs.items[tensor->input], tensor->offset + offset, bytes, out);
}

enum status safetensors_convert(const struct safetensors *set, const struct safetensors_tensor *tensor, size_t first,
                                size_t count, enum dtype to, void *out) {
    const struct conversion *conversion = find_conversion(tensor->dtype, to);
    BUG_IF(!conversion || first > tensor->elements || count > tensor->elements - first, "%s: impossible conversion",
           tensor->name);
    /* Stays in the second-level cache between reading and converting. */
    unsigned char buffer[128 << 10];
    size_t from_bytes = safetensors_dtype_bits(tensor->dtype) / 8, to_bytes = (size_t)dtype_bytes(to);
    if (!conversion->run) return safetensors_read(set, tensor, first * from_bytes, count * from_bytes, out);
    for (size_t done = 0, here; done < count; done += here) {
        here = count - done < sizeof buffer / from_bytes ? count - done : sizeof buffer / from_bytes;
        TRY(safetensors_read(set, tensor, (first + done) * from_bytes, here * from_bytes, buffer));
        conversion->run(buffer, here, (unsigned char *)out + done * to_bytes);
    }
    return STATUS_OK;
}

enum status safetensors_equal(const struct safetensors *set, const struct safetensors_tensor *a,
                              const struct safetensors_tensor *b, bool *equal) {
    enum { HALF_BYTES = 1 << 18 };
    bool same = a->dtype == b->dtype && a->rank == b->rank && a->bytes == b->bytes;
    for (int i = 0; same && i < a->rank; i++)
        same = a->dims[i] == b->dims[i];
    unsigned char *buffer = mem_array(2 * HALF_BYTES, 1);
    enum status status = buffer ? STATUS_OK : STATUS_FAILED;
    for (size_t at = 0, here; same && at < a->bytes && status == STATUS_OK; at += here) {
        here = a->bytes - at < HALF_BYTES ? a->bytes - at : HALF_BYTES;
        status = safetensors_read(set, a, at, here, buffer);
        if (status == STATUS_OK) status = safetensors_read(set, b, at, here, buffer + HALF_BYTES);
        same = status == STATUS_OK && memcmp(buffer, buffer + HALF_BYTES, here) == 0;
    }
    mem_free(buffer);
    if (status == STATUS_OK) *equal = same;
    return status;
}

/* --- with all threads --- */

/* Threads process pieces of this many elements. Values do not depend on the pieces. */
enum { PIECE_ELEMENTS = BYTE_STORE_PIECE / 4 };
/* Pieces that the disk reads ahead of the conversion. Without it each thread would request little at a time and wait
 * for it. */
enum { AHEAD = 16 };

struct piece {
    const struct safetensors_load *load;
    size_t first, count; /* of the tensor's elements */
};

struct pieces {
    struct piece *items;
    size_t count, capacity;
};

static enum status add_pieces(const struct safetensors_load *load, struct pieces *out) {
    BUG_IF(load->first > load->tensor->elements || load->elements > load->tensor->elements - load->first,
           "%s: %zu elements from %zu on", load->tensor->name, load->elements, load->first);
    for (size_t done = 0; done < load->elements; done += PIECE_ELEMENTS) {
        size_t first = load->first + done, left = load->elements - done;
        TRY(vec_push(out, (struct piece){load, first, left < PIECE_ELEMENTS ? left : PIECE_ELEMENTS}));
    }
    return STATUS_OK;
}

static int compare_pieces(const void *a, const void *b) {
    const struct piece *x = a, *y = b;
    const struct safetensors_tensor *x_tensor = x->load->tensor, *y_tensor = y->load->tensor;
    uintptr_t x_set = (uintptr_t)x->load->set, y_set = (uintptr_t)y->load->set;
    if (x_set != y_set) return x_set < y_set ? -1 : 1;
    if (x_tensor->input != y_tensor->input) return x_tensor->input < y_tensor->input ? -1 : 1;
    if (x_tensor->offset != y_tensor->offset) return x_tensor->offset < y_tensor->offset ? -1 : 1;
    return (x->first > y->first) - (x->first < y->first);
}

static int64_t element_bytes(const struct safetensors_load *load) {
    return (int64_t)safetensors_dtype_bits(load->tensor->dtype) / 8;
}

/* Converts to its address, or through the buffer to its store. */
static enum status convert(const struct piece *piece, void *buffer) {
    const struct safetensors_load *load = piece->load;
    int64_t element = dtype_bytes(load->dtype), done = (int64_t)(piece->first - load->first);
    void *out = load->out ? (char *)load->out + done * element : buffer;
    TRY(safetensors_convert(load->set, load->tensor, piece->first, piece->count, load->dtype, out));
    progress_add((int64_t)piece->count * element_bytes(load));
    if (load->out) return STATUS_OK;
    return load->store->write(load->store->payload, load->key, ((int64_t)load->to + done) * element,
                              (int64_t)piece->count * element, buffer);
}

/* Starts reading a piece from the disk, for a conversion that follows soon. */
static void expect(const struct piece *piece) {
    const struct safetensors_tensor *tensor = piece->load->tensor;
    size_t element = (size_t)element_bytes(piece->load);
    file_input_expect(&piece->load->set->inputs.items[tensor->input], tensor->offset + piece->first * element,
                      piece->count * element);
}

/* A store receives one piece after the other. */
static enum status put_all(const struct pieces *pieces) {
    AUTO_FREE void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    TRY(buffer ? STATUS_OK : STATUS_FAILED);
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->items[i].load->out) continue;
        if (pieces->count - i > AHEAD) expect(&pieces->items[i + AHEAD]);
        TRY(convert(&pieces->items[i], buffer));
    }
    return STATUS_OK;
}

static void begin_progress(const struct safetensors_load *loads, size_t count) {
    int64_t bytes = 0;
    for (size_t i = 0; i < count; i++)
        bytes += (int64_t)loads[i].elements * element_bytes(&loads[i]);
    size_t files = count > 0 ? loads[0].set->inputs.count : 0;
    if (files > 1)
        progress_begin(PROGRESS_BYTES, bytes, "reading %zu files of weights", files);
    else if (count > 0)
        progress_begin(PROGRESS_BYTES, bytes, "reading %s", path_name(loads[0].tensor->file));
}

static enum status convert_all(const struct pieces *pieces) {
    struct status_copy failure = {.status = STATUS_OK}; /* of any thread */
    for (size_t i = 0; i < AHEAD && i < pieces->count; i++)
        expect(&pieces->items[i]);
#pragma omp parallel for schedule(dynamic, 1)
    for (size_t i = 0; i < pieces->count; i++) {
        if (pieces->count - i > AHEAD) expect(&pieces->items[i + AHEAD]);
        enum status status = pieces->items[i].load->out ? convert(&pieces->items[i], NULL) : STATUS_OK;
        if (status != STATUS_OK)
#pragma omp critical(load_failure)
            status_save(status, &failure);
    }
    return status_restore(&failure);
}

enum status safetensors_load(const struct safetensors_load *loads, size_t count) {
    AUTO_VEC struct pieces pieces = {0};
    for (size_t i = 0; i < count; i++)
        TRY(add_pieces(&loads[i], &pieces));
    if (pieces.count == 0) return STATUS_OK;
    qsort(pieces.items, pieces.count, sizeof *pieces.items, compare_pieces);
    begin_progress(loads, count);
    enum status status = convert_all(&pieces);
    if (status == STATUS_OK) status = put_all(&pieces);
    progress_end();
    return status;
}

/* Elements that are nowhere in the file are zero. */
static enum status fill_zeros(const struct safetensors_load *load, int64_t done, int64_t elements) {
    static const char zeros[4096];
    int64_t element = dtype_bytes(load->dtype), bytes = elements * element;
    if (load->out) {
        memset((char *)load->out + done * element, 0, (size_t)bytes);
        return STATUS_OK;
    }
    for (int64_t at = 0; at < bytes; at += (int64_t)sizeof zeros) {
        int64_t count = bytes - at < (int64_t)sizeof zeros ? bytes - at : (int64_t)sizeof zeros;
        TRY(load->store->write(load->store->payload, load->key, ((int64_t)load->first + done) * element + at, count,
                               zeros));
    }
    return STATUS_OK;
}

enum status safetensors_add_part(const struct safetensors_load *load, const struct tensor *part,
                                 struct safetensors_loads *out) {
    int64_t run, elements = (int64_t)load->elements;
    for (int64_t done = 0; done < elements; done += run) {
        int64_t at = (int64_t)load->first + done, whole = tensor_part_find(part, at, &run);
        if (run > elements - done) run = elements - done;
        if (whole == TENSOR_NOWHERE) {
            TRY(fill_zeros(load, done, run));
            continue;
        }
        struct safetensors_load one = *load;
        one.first = (size_t)whole, one.elements = (size_t)run, one.to = (size_t)at;
        if (load->out) one.out = (char *)load->out + done * dtype_bytes(load->dtype);
        TRY(vec_push(out, one));
    }
    return STATUS_OK;
}
