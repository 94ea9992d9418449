/* The format of compressed-tensors: quantization_config, and integers in groups (w4a16, w8a16). A weight NAME.weight is
 * stored in these tensors:
 *
 * - NAME.weight_packed, I32 [rows, words]: codes of 4 or 8 bits plus 8 or 128, the first one in the lowest bits. A row
 *   begins with a word.
 * - NAME.weight_shape, I64: rows, columns.
 * - NAME.weight, I8 [rows, columns], instead of these two: unpacked codes of 8 bits, in int-quantized models.
 * - NAME.weight_scale, F32, BF16 or F16 [rows, groups]; for one scale per tensor [1].
 * - NAME.weight_zero_point, if asymmetric: codes packed along the rows [words, groups]. For one zero per tensor, and
 *   for unpacked codes: I8 in the shape of the scales.
 *
 * The numbers are those of compressed-tensors' dequantize, (code - zero) * scale, before it rounds them to the scale's
 * dtype. A GEMM rounds them to its own dtype. */
#include "model/stored_format.h"

/* A place in config.json, for messages. */
struct place {
    const char *file, *group;
};

static enum status refuse(const struct place *place, const char *key, const char *why) {
    return status_set(STATUS_BAD_INPUT, "%s: quantization_config: %.60s%s%.60s: %s", place->file, place->group,
                      *place->group && *key ? "." : "", key, why);
}

/* Whether a key is missing or empty: null, false, or an empty list, object or text. */
static bool is_unset(const json_t *object, const char *key) {
    const json_t *value = json_object_get(object, key);
    return !value || json_is_null(value) || json_is_false(value) ||
           (json_is_object(value) && json_object_size(value) == 0) ||
           (json_is_array(value) && json_array_size(value) == 0) ||
           (json_is_string(value) && json_string_length(value) == 0);
}

static enum status require_nothing(const struct place *place, const json_t *object, const char *key, const char *why) {
    return is_unset(object, key) ? STATUS_OK : refuse(place, key, why);
}

static enum status read_strategy(const struct place *place, const json_t *weights, int64_t *block) {
    enum { GROUP_MAX = 1 << 24 };
    const json_t *size = json_object_get(weights, "group_size");
    int64_t length = json_is_integer(size) ? json_integer_value(size) : 0;
    if (stored_format_is(weights, "strategy", "channel"))
        *block = 0;
    else if (stored_format_is(weights, "strategy", "tensor"))
        *block = WEIGHT_BLOCK_WHOLE;
    else if (!stored_format_is(weights, "strategy", "group"))
        return refuse(place, "weights.strategy", "is none of group, channel and tensor, which are read");
    else if (length < 1 || length > GROUP_MAX)
        return refuse(place, "weights.group_size", "must be a number of weights");
    else
        *block = length;
    return STATUS_OK;
}

static enum status read_integers(const struct place *place, const json_t *group, bool packed,
                                 struct stored_format *out) {
    const json_t *weights = json_object_get(group, "weights"), *symmetric = json_object_get(weights, "symmetric");
    const json_t *bits = json_object_get(weights, "num_bits");
    int64_t count = json_is_integer(bits) ? json_integer_value(bits) : 0;
    bool asymmetric = json_is_false(symmetric);
    if (!json_is_object(weights)) return refuse(place, "weights", "must be an object");
    if (!stored_format_is(weights, "type", "int"))
        return refuse(place, "weights.type", "is not int, which is read in this format");
    if (packed && count != 4 && count != 8)
        return refuse(place, "weights.num_bits", "is neither 4 nor 8, which are read");
    if (count < 1 || count > 8) return refuse(place, "weights.num_bits", "must be from 1 to 8");
    if (!is_unset(weights, "dynamic")) return refuse(place, "weights.dynamic", "the scales are not stored");
    /* GPTQ's order of columns: "weight" (or "static") affects the choice of codes, not their storage. */
    if (!is_unset(weights, "actorder") && !stored_format_is(weights, "actorder", "weight") &&
        !stored_format_is(weights, "actorder", "static"))
        return refuse(place, "weights.actorder", "columns in another order are not read");
    if (packed && count == 4)
        out->format = asymmetric ? WEIGHT_W4A16_ASYM : WEIGHT_W4A16;
    else
        out->format = asymmetric ? WEIGHT_W8A16_ASYM : WEIGHT_W8A16;
    return read_strategy(place, weights, &out->block);
}

/* Checks the keys next to the groups. Names and versions have no effect; plain_layers reads `ignore`. */
static enum status check_compressed(const char *file, const json_t *object) {
    static const char *const read[] = {
        "config_groups",       "format",  "global_compression_ratio", "ignore",     "quant_method",
        "quantization_status", "version", "run_compressed",           "dequantize", "use_optimized_inference",
        "sparsity_config"};
    const struct place top = {file, ""};
    const char *name;
    json_t *value;
    TRY(require_nothing(&top, object, "kv_cache_scheme", "keys and values are rounded too"));
    const json_t *sparsity = json_object_get(object, "sparsity_config");
    if (!is_unset(object, "sparsity_config") && !stored_format_is(sparsity, "format", "dense"))
        return refuse(&top, "sparsity_config", "sparse weights are not read");
    json_object_foreach((json_t *)(uintptr_t)object, name, value) {
        bool known = false;
        for (size_t i = 0; i < sizeof read / sizeof *read && !known; i++)
            known = strcmp(name, read[i]) == 0;
        if (!known) TRY(require_nothing(&top, object, name, "is not known, and may change what the weights are"));
    }
    return STATUS_OK;
}

static enum status read_group(const struct place *place, const json_t *object, const json_t *group,
                              struct stored_format *out) {
    const char *all = json_string_value(json_object_get(object, "format"));
    if (!json_is_object(group)) return refuse(place, "", "must be an object");
    /* Fields that would change the values or the computation. */
    TRY(require_nothing(place, group, "input_activations", "activations are rounded too"));
    TRY(require_nothing(place, group, "output_activations", "activations are rounded too"));
    if (!is_unset(group, "format") && !stored_format_is(group, "format", all))
        return refuse(place, "format", "differs from that of all, and weights of one format are read");
    if (strcmp(all, "mxfp4-pack-quantized") != 0)
        return read_integers(place, group, strcmp(all, "pack-quantized") == 0, out);
    *out = (struct stored_format){WEIGHT_MXFP4, 0};
    return STATUS_OK;
}

enum status compressed_read_config(const char *file, const json_t *object, struct stored_format *out) {
    static const char *const formats[] = {"mxfp4-pack-quantized", "pack-quantized", "int-quantized", "naive-quantized"};
    const json_t *groups = json_object_get(object, "config_groups");
    bool known = false, first = true;
    const char *name;
    json_t *group;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        known = known || stored_format_is(object, "format", formats[i]);
    if (!known)
        return status_set(
            STATUS_BAD_INPUT,
            "%s: quantization_config: of compressed-tensors' formats mxfp4-pack-quantized, pack-quantized "
            "and int-quantized are read",
            file);
    TRY(check_compressed(file, object));
    if (json_object_size(groups) == 0)
        return status_set(STATUS_BAD_INPUT,
                          "%s: quantization_config: config_groups: must be an object that is not empty", file);
    json_object_foreach((json_t *)(uintptr_t)groups, name, group) {
        const struct place place = {file, name};
        struct stored_format found = {WEIGHT_PLAIN, 0};
        TRY(read_group(&place, object, group, &found));
        if (!first && (found.format != out->format || found.block != out->block))
            return refuse(&place, "weights",
                          "differ from those of the group before, and weights of one format are read");
        *out = found;
        first = false;
    }
    return STATUS_OK;
}

/* ---- the tensors of a weight ---- */

enum { NAME_BYTES = 512, WORD_BYTES = 4, SIGN = 0x80 };

/* The storage of a weight; `zeros` NULL: it is symmetric. */
struct stored_integers {
    const struct safetensors_tensor *codes, *scales, *zeros, *shape;
    bool packed; /* codes and zeros in words */
    struct weight_layout layout;
    int64_t across; /* blocks of a row; 0: one block for the whole tensor */
};

static const char *name_of(const struct tensor *parameter, const char *suffix, char name[NAME_BYTES]) {
    size_t length = strlen(parameter->name);
    BUG_IF(length < strlen("weight"), "%s is no weight", parameter->name);
    snprintf(name, NAME_BYTES, "%.*s%s", (int)(length - strlen("weight")), parameter->name, suffix);
    return name;
}

static int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }

static int64_t code_bits(const struct weight_layout *layout) {
    return layout->format == WEIGHT_W4A16 || layout->format == WEIGHT_W4A16_ASYM ? 4 : 8;
}

/* The number of words for so many codes. */
static int64_t words_of(const struct weight_layout *layout, int64_t codes) {
    return divided_up(codes * code_bits(layout), 8 * WORD_BYTES);
}

static enum status find(const struct safetensors *set, const struct tensor *parameter, const char *suffix,
                        const struct safetensors_tensor **out) {
    char name[NAME_BYTES];
    *out = safetensors_find(set, name_of(parameter, suffix, name));
    if (*out) return STATUS_OK;
    status_set(STATUS_BAD_INPUT, "%s: missing, where config.json says that weights are in %s", name,
               weight_format_name(parameter->code.format));
    if (safetensors_find(set, parameter->name))
        return status_hint(STATUS_BAD_INPUT,
                           "%s is plain, but quantization_config's \"ignore\" does not name its layer",
                           parameter->name);
    return STATUS_BAD_INPUT;
}

static enum status find_all(const struct safetensors *set, const struct tensor *parameter,
                            struct stored_integers *out) {
    char name[NAME_BYTES];
    const struct weight_layout layout = weight_code_layout(&parameter->code);
    *out = (struct stored_integers){.layout = layout};
    out->packed = code_bits(&layout) == 4 || safetensors_find(set, name_of(parameter, "weight_packed", name));
    out->across = parameter->code.block == WEIGHT_BLOCK_WHOLE ? 0 : layout.columns / layout.block;
    TRY(find(set, parameter, out->packed ? "weight_packed" : "weight", &out->codes));
    TRY(find(set, parameter, "weight_scale", &out->scales));
    if (out->packed) TRY(find(set, parameter, "weight_shape", &out->shape));
    if (layout.zeros_at > 0) TRY(find(set, parameter, "weight_zero_point", &out->zeros));
    return STATUS_OK;
}

/* ROWS x COLUMNS, or a vector of COLUMNS if rows is 0. */
static enum status check_dims(const struct safetensors_tensor *found, int64_t rows, int64_t columns) {
    char dims[SHAPE_TEXT];
    bool good = rows > 0 ? found->rank == 2 && found->dims[0] == rows && found->dims[1] == columns
                         : found->rank <= 1 && found->elements == (size_t)columns;
    if (good) return STATUS_OK;
    SAFETENSORS_REFUSE(found, "is %s %s", found->dtype_name, safetensors_print_dims(found, dims));
    return rows > 0 ? status_hint(STATUS_BAD_INPUT, "config.json asks for [%" PRId64 ", %" PRId64 "]", rows, columns)
                    : status_hint(STATUS_BAD_INPUT, "config.json asks for [%" PRId64 "]", columns);
}

static enum status check_dtype(const struct safetensors_tensor *found, enum safetensors_dtype wanted,
                               const char *text) {
    if (found->dtype == wanted) return STATUS_OK;
    return SAFETENSORS_REFUSE(found, "is %s, not %s", found->dtype_name, text);
}

static enum status check_integers(const struct safetensors_tensor *found, bool packed, int64_t rows, int64_t columns) {
    TRY(check_dtype(found, packed ? SAFETENSORS_I32 : SAFETENSORS_I8, packed ? "I32" : "I8"));
    return check_dims(found, rows, columns);
}

static enum status check_shape(const struct safetensors *set, const struct stored_integers *of) {
    int64_t dims[2] = {0, 0};
    if (!of->shape) return STATUS_OK;
    TRY(check_dtype(of->shape, SAFETENSORS_I64, "I64"));
    TRY(check_dims(of->shape, 0, 2));
    TRY(safetensors_read(set, of->shape, 0, sizeof dims, dims));
    if (dims[0] == of->layout.rows && dims[1] == of->layout.columns) return STATUS_OK;
    SAFETENSORS_REFUSE(of->shape, "says [%" PRId64 ", %" PRId64 "]", dims[0], dims[1]);
    return status_hint(STATUS_BAD_INPUT, "config.json asks for [%" PRId64 ", %" PRId64 "]", of->layout.rows,
                       of->layout.columns);
}

enum status compressed_check(const struct safetensors *set, const struct tensor *parameter, bool *used) {
    struct stored_integers of;
    TRY(find_all(set, parameter, &of));
    const struct safetensors_tensor *const all[] = {of.codes, of.scales, of.zeros, of.shape};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        if (all[i]) used[all[i] - set->tensors.items] = true;
    const struct weight_layout *layout = &of.layout;
    int64_t rows = of.across > 0 ? layout->rows : 0, across = of.across > 0 ? of.across : 1; /* of scales */
    bool packed = of.packed && of.across > 0; /* a single zero for the tensor is never packed */
    TRY(check_integers(of.codes, of.packed, layout->rows,
                       of.packed ? words_of(layout, layout->columns) : layout->columns));
    if (of.scales->dtype == SAFETENSORS_F64 || !safetensors_can_convert(of.scales->dtype, DTYPE_F32))
        return check_dtype(of.scales, SAFETENSORS_F32, "F32, BF16 or F16");
    TRY(check_dims(of.scales, rows, across));
    if (of.zeros) TRY(check_integers(of.zeros, packed, packed ? words_of(layout, rows) : rows, across));
    return check_shape(set, &of);
}

/* Code `index` of words of codes, without the offset that makes them unsigned. */
static int8_t packed_code(const unsigned char *words, int64_t bits, int64_t index) {
    if (bits == 8) return (int8_t)(words[index] ^ SIGN);
    return (int8_t)((index % 2 ? words[index / 2] >> 4 : words[index / 2] & 15) - 8);
}

/* Copies a piece's part of a row's codes. Rows follow each other without padding. */
static void put_row(const struct weight_layout *layout, const unsigned char *words, int64_t row,
                    const struct weight_piece *piece) {
    int64_t per = 8 / code_bits(layout), first = row * layout->columns, begin;
    int64_t bytes =
        weight_piece_overlap(piece, first / per, (first + layout->columns - 1) / per + 1 - first / per, &begin);
    unsigned char *out = bytes > 0 ? weight_piece_at(piece, first / per + begin) : NULL;
    for (int64_t column = begin > 0 ? begin * per - first % per : 0; column < layout->columns; column++) {
        int64_t index = first + column, byte = index / per - first / per - begin;
        if (byte >= bytes) break;
        if (per == 1)
            out[byte] = words[column] ^ SIGN;
        else
            out[byte] |= (unsigned char)((packed_code(words, 4, column) + 8) << (index % 2 ? 4 : 0));
    }
}

static enum status read_rows(const struct safetensors *set, const struct stored_integers *of,
                             const struct weight_piece *piece) {
    const struct weight_layout *layout = &of->layout;
    size_t row_bytes = (size_t)(words_of(layout, layout->columns) * WORD_BYTES);
    int64_t per = 8 / code_bits(layout), begin, bytes = weight_piece_overlap(piece, 0, layout->codes_bytes, &begin);
    int64_t last = ((begin + bytes) * per - 1) / layout->columns;
    if (bytes == 0) return STATUS_OK;
    AUTO_FREE unsigned char *words = mem_array(row_bytes, 1);
    if (!words) return STATUS_FAILED;
    for (int64_t row = begin * per / layout->columns; row <= last && row < layout->rows; row++) {
        TRY(safetensors_read(set, of->codes, (size_t)row * row_bytes, row_bytes, words));
        put_row(layout, words, row, piece);
    }
    return STATUS_OK;
}

static enum status read_codes(const struct safetensors *set, const struct stored_integers *of,
                              const struct weight_piece *piece) {
    const struct weight_layout *layout = &of->layout;
    bool whole_words = layout->columns * code_bits(layout) % (8 * WORD_BYTES) == 0;
    if (of->packed && !whole_words) return read_rows(set, of, piece);
    int64_t begin, bytes = weight_piece_overlap(piece, 0, layout->codes_bytes, &begin);
    if (bytes == 0) return STATUS_OK;
    unsigned char *out = weight_piece_at(piece, begin);
    TRY(safetensors_read(set, of->codes, (size_t)begin, (size_t)bytes, out));
    for (int64_t i = 0; of->packed && code_bits(layout) == 8 && i < bytes; i++)
        out[i] ^= SIGN;
    return STATUS_OK;
}

enum { SCALES_CAPACITY = 4096 }; /* read at a time */

static enum status read_scales(const struct safetensors *set, const struct stored_integers *of,
                               const struct weight_piece *piece) {
    const struct weight_layout *layout = &of->layout;
    const int64_t element = sizeof(float);
    int64_t begin, bytes = weight_piece_overlap(piece, layout->scales_at, layout->scales * element, &begin), here;
    int64_t end = (begin + bytes + element - 1) / element;
    float scales[SCALES_CAPACITY];
    if (bytes == 0) return STATUS_OK;
    for (int64_t at = begin / element; at < end; at += here) {
        here = end - at < SCALES_CAPACITY ? end - at : SCALES_CAPACITY;
        TRY(safetensors_convert(set, of->scales, (size_t)at, (size_t)here, DTYPE_F32, scales));
        weight_piece_put(piece, layout->scales_at + at * element, here * element, scales);
    }
    return STATUS_OK;
}

/* Packed along the rows: a word has the zeros of consecutive rows in one column. `words` begins with word row
 * `first_word`. */
static void put_zeros(const struct stored_integers *of, const unsigned char *words, int64_t first_word, int64_t begin,
                      int64_t end, int8_t *out) {
    int64_t bits = code_bits(&of->layout), per_word = 8 * WORD_BYTES / bits;
    for (int64_t i = begin; i < end; i++) {
        int64_t row = i / of->across, word = (row / per_word - first_word) * of->across + i % of->across;
        out[i - begin] = packed_code(words + word * WORD_BYTES, bits, row % per_word);
    }
}

static enum status read_zeros(const struct safetensors *set, const struct stored_integers *of,
                              const struct weight_piece *piece) {
    const struct weight_layout *layout = &of->layout;
    int64_t begin, count = weight_piece_overlap(piece, layout->zeros_at, layout->scales, &begin);
    if (!of->zeros || count == 0) return STATUS_OK;
    int8_t *out = (int8_t *)weight_piece_at(piece, layout->zeros_at + begin);
    if (!of->packed || of->across == 0) return safetensors_read(set, of->zeros, (size_t)begin, (size_t)count, out);
    int64_t per_word = 8 * WORD_BYTES / code_bits(layout), row_bytes = of->across * WORD_BYTES;
    int64_t first = begin / of->across / per_word, last = (begin + count - 1) / of->across / per_word;
    size_t bytes = (size_t)((last - first + 1) * row_bytes);
    AUTO_FREE unsigned char *words = mem_array(bytes, 1);
    TRY(words ? safetensors_read(set, of->zeros, (size_t)(first * row_bytes), bytes, words) : STATUS_FAILED);
    put_zeros(of, words, first, begin, begin + count, out);
    return STATUS_OK;
}

enum status compressed_read(const struct safetensors *set, const struct tensor *parameter,
                            const struct weight_piece *piece) {
    struct stored_integers of;
    TRY(find_all(set, parameter, &of));
    TRY(read_codes(set, &of, piece));
    TRY(read_scales(set, &of, piece));
    return read_zeros(set, &of, piece);
}
