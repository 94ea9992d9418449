#include "model/stored_format.h"

#include <math.h>

#include "base/json.h"
#include "model/config.h"
#include "model/families/builder.h"

enum part_kind {
    PART_CODES,
    PART_SCALES,
    PART_GROUPS,
    PART_VALUES, /* values of nf4's codes */
    PART_MAP,    /* values of its scale bytes */
    PART_STATE,  /* JSON */
    PART_TAG     /* a byte: 0 for row-major codes */
};
enum { PARTS_MAX = 6, MX_BLOCK = 32, STATE_BYTES_MAX = 1 << 16, STATE_TEXT = 320, BLOCK_MIN = 32, BLOCK_MAX = 4096 };

/* Replaces "weight" at the end of a parameter's name, or adds `added` to other names. */
struct part {
    const char *suffix;
    enum part_kind kind;
    enum safetensors_dtype dtype; /* UNKNOWN: any dtype of that size */
    const char *added;
};
static const struct part parts[WEIGHT_FORMAT_COUNT][PARTS_MAX] = {
    [WEIGHT_NF4] = {{"weight", PART_CODES, SAFETENSORS_UNKNOWN},
                    {"weight.absmax", PART_SCALES, SAFETENSORS_U8},
                    {"weight.nested_absmax", PART_GROUPS, SAFETENSORS_F32},
                    {"weight.quant_map", PART_VALUES, SAFETENSORS_F32},
                    {"weight.nested_quant_map", PART_MAP, SAFETENSORS_F32},
                    {"weight.quant_state.bitsandbytes__nf4", PART_STATE, SAFETENSORS_U8}},
    [WEIGHT_NF4_WIDE] = {{"weight", PART_CODES, SAFETENSORS_UNKNOWN},
                         {"weight.absmax", PART_SCALES, SAFETENSORS_F32},
                         {"weight.quant_map", PART_VALUES, SAFETENSORS_F32},
                         {"weight.quant_state.bitsandbytes__nf4", PART_STATE, SAFETENSORS_U8}},
    [WEIGHT_INT8] = {{"weight", PART_CODES, SAFETENSORS_I8},
                     {"SCB", PART_SCALES, SAFETENSORS_F32},
                     {"weight_format", PART_TAG, SAFETENSORS_U8}},
    [WEIGHT_MXFP4] = {{"weight_packed", PART_CODES, SAFETENSORS_U8, "_blocks"},
                      {"weight_scale", PART_SCALES, SAFETENSORS_UNKNOWN, "_scales"}},
};

static const struct part *part_at(enum weight_format format, int number) {
    return number < PARTS_MAX && parts[format][number].suffix ? &parts[format][number] : NULL;
}

/* ---- config.json ---- */

static bool is_true(const json_t *object, const char *key) { return json_is_true(json_object_get(object, key)); }

bool stored_format_is(const json_t *object, const char *key, const char *value) {
    const char *text = json_string_value(json_object_get(object, key));
    return text && strcmp(text, value) == 0;
}

static enum status read_bitsandbytes(const char *file, const json_t *object, struct stored_format *out) {
    if (is_true(object, "load_in_8bit") && is_true(object, "load_in_4bit"))
        return status_set(STATUS_BAD_INPUT,
                          "%s: quantization_config: load_in_4bit and load_in_8bit: only one may be "
                          "true",
                          file);
    if (is_true(object, "load_in_8bit")) {
        out->format = WEIGHT_INT8;
        return STATUS_OK;
    }
    if (!is_true(object, "load_in_4bit") || !stored_format_is(object, "bnb_4bit_quant_type", "nf4"))
        return status_set(STATUS_BAD_INPUT,
                          "%s: quantization_config: of bitsandbytes' formats nf4 and int8 are read (load_in_4bit with "
                          "bnb_4bit_quant_type nf4, or load_in_8bit)",
                          file);
    out->format = is_true(object, "bnb_4bit_use_double_quant") ? WEIGHT_NF4 : WEIGHT_NF4_WIDE;
    return STATUS_OK;
}

enum status stored_format_read_config(const char *file, const json_t *object, struct stored_format *out) {
    const char *method = json_string_value(json_object_get(object, "quant_method"));
    enum status status = STATUS_BAD_INPUT;
    *out = (struct stored_format){WEIGHT_PLAIN, 0};
    if (method && strcmp(method, "bitsandbytes") == 0)
        status = read_bitsandbytes(file, object, out);
    else if (method && strcmp(method, "compressed-tensors") == 0)
        status = compressed_read_config(file, object, out);
    else
        status_set(STATUS_BAD_INPUT, "%s: quantization_config: the weights are quantised%s%.40s%s", file,
                   method ? " (" : "", method ? method : "", method ? ")" : "");
    return status == STATUS_OK ? STATUS_OK : config_hint_quantised(status);
}

enum status stored_format_read_experts(const char *file, const json_t *object, struct stored_format *out) {
    *out = (struct stored_format){WEIGHT_PLAIN, 0};
    if (stored_format_is(object, "quant_method", "mxfp4")) {
        out->format = WEIGHT_MXFP4;
        return STATUS_OK;
    }
    return status_hint(
        status_set(STATUS_BAD_INPUT, "%s: quantization_config: only quant_method mxfp4 is supported", file),
        "get the published model, whose experts are in mxfp4, or one in F32, BF16 or F16");
}

json_t *stored_format_write_config(enum weight_format format, bool experts) {
    if (experts)
        return json_pack("{s:s, s:[s, s, s, s]}", "quant_method", "mxfp4", "modules_to_not_convert",
                         "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head");
    bool four = format == WEIGHT_NF4 || format == WEIGHT_NF4_WIDE;
    if (format == WEIGHT_MXFP4)
        return json_pack("{s:s, s:s, s:s, s:[s], s:{s:{s:[s], s:n, s:n, s:{s:i, s:s, s:i, s:s, s:b, s:b, s:s}}}}",
                         "quant_method", "compressed-tensors", "format", "mxfp4-pack-quantized", "quantization_status",
                         "compressed", "ignore", "lm_head", "config_groups", "group_0", "targets", "Linear",
                         "input_activations", "output_activations", "weights", "num_bits", 4, "type", "float",
                         "group_size", MX_BLOCK, "strategy", "group", "symmetric", 1, "dynamic", 0, "scale_dtype",
                         "torch.uint8");
    return json_pack("{s:s, s:b, s:b, s:s, s:b, s:s, s:s}", "quant_method", "bitsandbytes", "load_in_4bit", four,
                     "load_in_8bit", !four, "bnb_4bit_quant_type", "nf4", "bnb_4bit_use_double_quant",
                     format == WEIGHT_NF4, "bnb_4bit_compute_dtype", "bfloat16", "bnb_4bit_quant_storage", "uint8");
}

/* ---- the tensors of a weight ---- */

enum { NAME_BYTES = 512 };

/* Name of a tensor of a parameter or of a stack of them. */
static const char *named(const char *weight, const struct part *part, char name[NAME_BYTES]) {
    size_t length = strlen(weight), end = strlen("weight");
    bool ends = length >= end && strcmp(weight + length - end, "weight") == 0;
    BUG_IF(!ends && !part->added, "%s is no weight", weight);
    snprintf(name, NAME_BYTES, "%.*s%s", (int)(ends ? length - end : length), weight,
             ends ? part->suffix : part->added);
    return name;
}

enum status stored_weight_list_stacks(struct graph *graph, const struct tensor *parameter,
                                      struct safetensors_parts *out) {
    const struct part *part;
    if (parameter->code.format == WEIGHT_PLAIN)
        return vec_push(out, (struct safetensors_part){parameter->name, parameter->stack});
    for (int i = 0; (part = part_at(parameter->code.format, i)); i++) {
        char name[NAME_BYTES], stack[NAME_BYTES];
        struct safetensors_part added = {graph_format(graph, "%s", named(parameter->name, part, name)),
                                         parameter->stack};
        added.stack.name = graph_format(graph, "%s", named(parameter->stack.name, part, stack));
        if (!added.name || !added.stack.name) return graph_status(graph);
        TRY(vec_push(out, added));
    }
    return STATUS_OK;
}

/* Bytes of a part's tensor; -1: not fixed. */
static int64_t part_bytes(const struct weight_layout *layout, enum part_kind kind) {
    switch (kind) {
    case PART_CODES: return layout->codes_bytes;
    case PART_SCALES: return layout->scales * layout->scale_bytes;
    case PART_GROUPS: return layout->groups * (int64_t)sizeof(float);
    case PART_VALUES: return (int64_t)sizeof weight_nf4_values;
    case PART_MAP: return (int64_t)sizeof weight_scale_map;
    case PART_STATE: return -1;
    case PART_TAG: return 1;
    }
    BUG("part %d", (int)kind);
}

static enum status check_size(const struct safetensors_tensor *found, const struct part *part, int64_t bytes) {
    char dims[SHAPE_TEXT];
    bool dtype = part->dtype == SAFETENSORS_UNKNOWN || found->dtype == part->dtype;
    bool size = bytes < 0 ? found->bytes <= STATE_BYTES_MAX : found->bytes == (size_t)bytes;
    if (dtype && size) return STATUS_OK;
    SAFETENSORS_REFUSE(found, "is %s %s", found->dtype_name, safetensors_print_dims(found, dims));
    return status_hint(STATUS_BAD_INPUT, "config.json asks for a tensor of %" PRId64 " bytes there", bytes);
}

/* A constant that must equal the format's. */
static enum status check_constant(const struct safetensors *set, const struct safetensors_tensor *found,
                                  enum part_kind kind) {
    unsigned char bytes[sizeof weight_scale_map];
    const void *wanted = kind == PART_VALUES ? (const void *)weight_nf4_values : (const void *)weight_scale_map;
    static const unsigned char zero = 0;
    if (kind == PART_TAG) wanted = &zero;
    TRY(safetensors_read(set, found, 0, found->bytes, bytes));
    if (memcmp(bytes, wanted, found->bytes) == 0) return STATUS_OK;
    return SAFETENSORS_REFUSE(found, "is not what bitsandbytes' nf4 and int8 have there");
}

enum status stored_state_parse(const char *name, const char *text, size_t bytes, const struct weight_code *code,
                               float *offset) {
    json_t *object;
    const char *type = "";
    int64_t block = 0, nested = 0, rows, columns;
    double mean = 0;
    TRY(json_parse_object(name, text, bytes, &object));
    const json_t *shape = json_object_get(object, "shape");
    enum status status = json_read_string(name, object, "quant_type", &type);
    if (status == STATUS_OK) status = json_read_int(name, object, "blocksize", 1, 1 << 20, &block);
    if (status == STATUS_OK) status = json_read_int(name, object, "nested_blocksize", 1, 1 << 20, &nested);
    if (status == STATUS_OK) status = json_read_double(name, object, "nested_offset", -HUGE_VAL, HUGE_VAL, &mean);
    rows = json_integer_value(json_array_get(shape, 0)), columns = json_integer_value(json_array_get(shape, 1));
    bool good = strcmp(type, "nf4") == 0 && block == weight_code_layout(code).block && json_array_size(shape) == 2 &&
                rows == code->values.dims[0] && columns == code->values.dims[1] &&
                nested == (code->format == WEIGHT_NF4 ? WEIGHT_GROUP_BLOCKS : 0) && isfinite((float)mean);
    json_decref(object);
    TRY(status);
    *offset = (float)mean;
    if (good) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "%s: is not nf4 in blocks of %" PRId64 " of the shape that config.json asks for, as the "
                      "other weights are",
                      name, weight_code_layout(code).block);
}

/* The JSON that bitsandbytes stores next to a weight, for the caller to free, and its name for messages. NULL if it
 * cannot be read. */
static char *read_state_text(const struct safetensors *set, const struct safetensors_tensor *found,
                             char name[2 * NAME_BYTES]) {
    char *text = mem_array(found->bytes + 1, 1);
    snprintf(name, 2 * NAME_BYTES, "%s: %s", found->file, found->name);
    if (text && safetensors_read(set, found, 0, found->bytes, text) == STATUS_OK) return text;
    mem_free(text);
    return NULL;
}

static enum status read_state(const struct safetensors *set, const struct safetensors_tensor *found,
                              const struct weight_code *code, float *offset) {
    char name[2 * NAME_BYTES];
    AUTO_FREE char *text = read_state_text(set, found, name);
    return text ? stored_state_parse(name, text, found->bytes, code, offset) : STATUS_FAILED;
}

/* bitsandbytes' blocks have a power of two of numbers. */
static enum status parse_block(const char *name, const char *text, size_t bytes, int64_t *out) {
    json_t *object;
    TRY(json_parse_object(name, text, bytes, &object));
    enum status status = json_read_int(name, object, "blocksize", BLOCK_MIN, BLOCK_MAX, out);
    json_decref(object);
    if (status != STATUS_OK || (*out & (*out - 1)) == 0) return status;
    return status_set(STATUS_BAD_INPUT, "%s: blocksize: %" PRId64 " is not a power of two", name, *out);
}

enum status stored_format_read_block(const struct safetensors *set, int64_t *block) {
    const struct safetensors_tensor *found = NULL;
    char name[2 * NAME_BYTES];
    for (size_t i = 0; i < set->tensors.count && !found; i++)
        if (name_ends(set->tensors.items[i].name, ".quant_state.bitsandbytes__nf4")) found = &set->tensors.items[i];
    if (!found || found->bytes > STATE_BYTES_MAX) return STATUS_OK; /* stored_weight_check names it */
    AUTO_FREE char *text = read_state_text(set, found, name);
    return text ? parse_block(name, text, found->bytes, block) : STATUS_FAILED;
}

static enum status check_part(const struct safetensors *set, const struct tensor *parameter, const struct part *part,
                              bool *used) {
    char name[NAME_BYTES];
    struct weight_layout layout = weight_code_layout(&parameter->code);
    const struct safetensors_tensor *found = safetensors_find(set, named(parameter->name, part, name));
    float offset;
    if (!found)
        return status_set(STATUS_BAD_INPUT, "%s: missing, where config.json says that weights are in %s", name,
                          weight_format_name(parameter->code.format));
    used[found - set->tensors.items] = true;
    TRY(check_size(found, part, part_bytes(&layout, part->kind)));
    if (part->kind == PART_VALUES || part->kind == PART_MAP || part->kind == PART_TAG)
        return check_constant(set, found, part->kind);
    return part->kind == PART_STATE ? read_state(set, found, &parameter->code, &offset) : STATUS_OK;
}

enum status stored_weight_check(const struct safetensors *set, const struct tensor *parameter, bool *used) {
    const struct part *part;
    if (weight_format_has_groups(parameter->code.format)) return compressed_check(set, parameter, used);
    for (int i = 0; (part = part_at(parameter->code.format, i)); i++)
        TRY(check_part(set, parameter, part, used));
    return STATUS_OK;
}

/* Reads a piece's part of a tensor whose first byte is byte `at` of the weight. */
static enum status read_bytes(const struct safetensors *set, const struct safetensors_tensor *found, int64_t at,
                              const struct weight_piece *piece) {
    int64_t begin, bytes = weight_piece_overlap(piece, at, (int64_t)found->bytes, &begin);
    if (bytes == 0) return STATUS_OK;
    return safetensors_read(set, found, (size_t)begin, (size_t)bytes, weight_piece_at(piece, at + begin));
}

static enum status read_offset(const struct safetensors *set, const struct safetensors_tensor *found,
                               const struct weight_code *code, const struct weight_piece *piece) {
    const struct weight_layout layout = weight_code_layout(code);
    float offset;
    int64_t begin;
    if (layout.groups == 0 || weight_piece_overlap(piece, layout.offset_at, sizeof offset, &begin) == 0)
        return STATUS_OK;
    TRY(read_state(set, found, code, &offset));
    weight_piece_put(piece, layout.offset_at, sizeof offset, &offset);
    return STATUS_OK;
}

enum status stored_weight_read(const struct safetensors *set, const struct tensor *parameter,
                               const struct weight_piece *piece) {
    struct weight_layout layout = weight_code_layout(&parameter->code);
    char name[NAME_BYTES];
    const struct part *part;
    memset(piece->out, 0, (size_t)piece->bytes);
    if (weight_format_has_groups(layout.format)) return compressed_read(set, parameter, piece);
    for (int i = 0; (part = part_at(layout.format, i)); i++) {
        const struct safetensors_tensor *found = safetensors_find(set, named(parameter->name, part, name));
        BUG_IF(!found, "%s was not checked", name);
        switch (part->kind) {
        case PART_CODES: TRY(read_bytes(set, found, 0, piece)); break;
        case PART_SCALES: TRY(read_bytes(set, found, layout.scales_at, piece)); break;
        case PART_GROUPS: TRY(read_bytes(set, found, layout.groups_at, piece)); break;
        case PART_STATE: TRY(read_offset(set, found, &parameter->code, piece)); break;
        default: break;
        }
    }
    return STATUS_OK;
}

/* ---- writing ---- */

static int64_t multiple_above(int64_t value, int64_t of) { return (value + of - 1) / of * of; }

/* Each number has the same width, since a file's header precedes the numbers. Spaces pad the weight's tensors to the
 * bytes of a group. */
static int64_t state_text(const struct weight_code *code, float offset, char text[STATE_TEXT]) {
    const struct weight_layout layout = weight_code_layout(code);
    int64_t others = layout.codes_bytes + layout.scales * layout.scale_bytes + layout.groups * (int64_t)sizeof(float);
    char nested[STATE_TEXT / 2] = "";
    if (code->format == WEIGHT_NF4)
        snprintf(nested, sizeof nested,
                 ", \"nested_blocksize\": %d, \"nested_dtype\": \"float32\", \"nested_offset\": %.16e",
                 WEIGHT_GROUP_BLOCKS, fabs((double)offset));
    int64_t bytes =
        snprintf(text, STATE_TEXT,
                 "{\"quant_type\": \"nf4\", \"blocksize\": 64, \"dtype\": \"bfloat16\", \"shape\": [%" PRId64
                 ", %" PRId64 "]%s}",
                 code->values.dims[0], code->values.dims[1], nested);
    int64_t padded = multiple_above(others + bytes, SAFETENSORS_GROUP_BYTES) - others;
    memset(text + bytes, ' ', (size_t)(padded - bytes));
    return padded;
}

/* `stacked`: in gpt-oss's form. */
static struct shape part_shape(const struct weight_code *code, const struct part *part, bool stacked) {
    struct weight_layout layout = weight_code_layout(code);
    int64_t bytes = part_bytes(&layout, part->kind);
    char text[STATE_TEXT];
    bool mx = code->format == WEIGHT_MXFP4;
    int64_t blocks = mx ? layout.columns / layout.block : 0;
    switch (part->kind) {
    case PART_CODES:
        if (stacked) return shape_make(DTYPE_U8, 3, layout.rows, blocks, layout.block / 2);
        if (code->format == WEIGHT_INT8) return shape_make(DTYPE_I8, 2, layout.rows, layout.columns, 1);
        return mx ? shape_make(DTYPE_U8, 2, layout.rows, layout.columns / 2, 1) : shape_make(DTYPE_U8, 2, bytes, 1, 1);
    case PART_SCALES:
        if (mx) return shape_make(DTYPE_U8, 2, layout.rows, blocks, 1);
        return shape_make(layout.scale_bytes == 1 ? DTYPE_U8 : DTYPE_F32, 1, layout.scales, 1, 1);
    case PART_STATE: return shape_make(DTYPE_U8, 1, state_text(code, 0, text), 1, 1);
    case PART_TAG: return shape_make(DTYPE_U8, 0, 1, 1, 1);
    default: return shape_make(DTYPE_F32, 1, bytes / (int64_t)sizeof(float), 1, 1);
    }
}

enum status stored_writer_add(struct stored_writer *writer, struct graph *graph, const struct tensor *parameter) {
    char name[NAME_BYTES];
    const struct part *part;
    bool has_state = parameter->code.format == WEIGHT_NF4 || parameter->code.format == WEIGHT_NF4_WIDE;
    for (int i = 0; (part = part_at(parameter->code.format, i)); i++) {
        bool stacked = parameter->stack.name != NULL;
        struct tensor *tensor = graph_tensor(graph, TENSOR_RESULT, named(parameter->name, part, name),
                                             part_shape(&parameter->code, part, stacked));
        if (!tensor) return graph_status(graph);
        if (stacked)
            graph_stack(graph, tensor, named(parameter->stack.name, part, name), parameter->stack.index,
                        parameter->stack.count);
        if (writer->parts.count == 0) writer->first = tensor->id;
        TRY(vec_push(&writer->parts, (struct stored_part){tensor, parameter, i, has_state ? parameter->name : NULL}));
    }
    return STATUS_OK;
}

static enum status make_sections(struct stored_writer *writer, const struct tensor *parameter) {
    if (writer->made == parameter) return STATUS_OK;
    mem_free(writer->sections);
    writer->made = NULL;
    writer->sections = mem_array((size_t)shape_bytes(&parameter->shape), 1);
    if (!writer->sections) return STATUS_FAILED;
    TRY(writer->make(writer->payload, parameter, writer->sections));
    writer->made = parameter;
    return STATUS_OK;
}

static enum status read_part(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    struct stored_writer *writer = payload;
    const struct stored_part *stored = &writer->parts.items[((const struct tensor *)key)->id - writer->first];
    const struct weight_code *code = &stored->parameter->code;
    const struct weight_layout layout = weight_code_layout(code);
    char text[STATE_TEXT] = "";
    const void *from = text;
    float mean = 0;
    TRY(make_sections(writer, stored->parameter));
    if (layout.groups > 0) memcpy(&mean, writer->sections + layout.offset_at, sizeof mean);
    switch (part_at(code->format, stored->number)->kind) {
    case PART_CODES: from = writer->sections; break;
    case PART_SCALES: from = writer->sections + layout.scales_at; break;
    case PART_GROUPS: from = writer->sections + layout.groups_at; break;
    case PART_VALUES: from = weight_nf4_values; break;
    case PART_MAP: from = weight_scale_map; break;
    case PART_STATE: state_text(code, mean, text); break;
    case PART_TAG: break;
    }
    memcpy(to, (const char *)from + offset, (size_t)bytes);
    return STATUS_OK;
}

struct byte_store stored_writer_store(struct stored_writer *writer) {
    return (struct byte_store){.read = read_part, .payload = writer};
}

void stored_writer_close(struct stored_writer *writer) {
    vec_free(&writer->parts);
    mem_free(writer->sections);
    *writer = (struct stored_writer){0};
}
