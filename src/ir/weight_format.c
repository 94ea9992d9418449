/* Sizes of sections, and what codes stand for. */
#include "ir/weight_format.h"

#include "ir/tensor.h"

static const struct {
    const char *name;
    int64_t block;
} formats[] = {
#define WEIGHT_FORMAT_ROW(name, text, block) [WEIGHT_##name] = {text, block},
    WEIGHT_FORMAT_LIST(WEIGHT_FORMAT_ROW)};

const char *weight_format_name(enum weight_format format) { return formats[format].name; }

enum weight_format weight_format_find(const char *name) {
    enum weight_format format = 0;
    while (format < WEIGHT_FORMAT_COUNT && strcmp(name, weight_format_name(format)) != 0)
        format++;
    return format;
}

bool weight_format_has_groups(enum weight_format format) { return format >= WEIGHT_W4A16; }

/* -1: of the whole matrix. */
static int64_t block_of(enum weight_format format, int64_t block, int64_t columns) {
    if (block == 0) block = formats[format].block;
    return block ? block : columns;
}

bool weight_format_fits(enum weight_format format, int64_t block, int64_t columns) {
    bool in_rows = format == WEIGHT_MXFP4 || weight_format_has_groups(format);
    int64_t length = block_of(format, block, columns);
    return !in_rows || length == WEIGHT_BLOCK_WHOLE || columns % length == 0;
}

static int64_t divided_up(int64_t value, int64_t by) { return (value + by - 1) / by; }
static int64_t section(int64_t at) { return divided_up(at, WEIGHT_SECTION_BYTES) * WEIGHT_SECTION_BYTES; }

static int64_t codes_per_byte(enum weight_format format) {
    return format == WEIGHT_INT8 || format == WEIGHT_W8A16 || format == WEIGHT_W8A16_ASYM ? 1 : 2;
}

struct weight_layout weight_layout_of(enum weight_format format, int64_t block, int64_t rows, int64_t columns) {
    int64_t numbers = rows * columns, length = block_of(format, block, columns);
    BUG_IF(format == WEIGHT_PLAIN || !weight_format_fits(format, block, columns), "%lld columns as %s",
           (long long)columns, weight_format_name(format));
    if (length == WEIGHT_BLOCK_WHOLE) length = numbers;
    struct weight_layout layout = {
        .format = format,
        .rows = rows,
        .columns = columns,
        .block = length,
        .codes_bytes = divided_up(numbers, codes_per_byte(format)),
        .scales = divided_up(numbers, length),
        .scale_bytes = format == WEIGHT_NF4 || format == WEIGHT_MXFP4 ? 1 : (int64_t)sizeof(float),
    };
    layout.scales_at = section(layout.codes_bytes);
    layout.bytes = layout.scales_at + layout.scales * layout.scale_bytes;
    if (format == WEIGHT_W4A16_ASYM || format == WEIGHT_W8A16_ASYM) {
        layout.zeros_at = section(layout.bytes);
        layout.bytes = layout.zeros_at + layout.scales;
    }
    if (format != WEIGHT_NF4) return layout;
    layout.groups = divided_up(layout.scales, WEIGHT_GROUP_BLOCKS);
    layout.groups_at = section(layout.bytes);
    layout.offset_at = layout.groups_at + layout.groups * (int64_t)sizeof(float);
    layout.bytes = layout.offset_at + (int64_t)sizeof(float);
    return layout;
}

/* Quantiles of the normal distribution (QLoRA, arXiv 2305.14314, appendix E). */
const float weight_nf4_values[WEIGHT_CODES] = {
    -1.0f,         -0.696192801f, -0.525073051f, -0.394917488f, -0.284441382f, -0.18477343f, -0.0910500363f, 0.0f,
    0.0795802996f, 0.160930201f,  0.246112302f,  0.337915242f,  0.440709829f,  0.562617004f, 0.722956836f,   1.0f};

/* Sign, two bits of exponent, one of fraction. */
const float weight_mxfp4_values[WEIGHT_CODES] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                                 -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/* The dynamic data type of 8 bits (Dettmers, arXiv 1511.04561), as bitsandbytes' create_dynamic_map computes it in
 * fp32: for each power of ten from 1e-6 to 1, twice as many numbers as for the one below. */
const float weight_scale_map[WEIGHT_SCALES] = {
    -0.992968738f,    -0.978906274f,    -0.96484375f,     -0.950781226f,
    -0.936718762f,    -0.922656238f,    -0.908593774f,    -0.89453125f,
    -0.880468726f,    -0.866406262f,    -0.852343738f,    -0.838281274f,
    -0.82421875f,     -0.810156226f,    -0.796093762f,    -0.782031238f,
    -0.767968774f,    -0.75390625f,     -0.739843726f,    -0.725781262f,
    -0.711718798f,    -0.697656274f,    -0.68359375f,     -0.669531226f,
    -0.655468762f,    -0.641406298f,    -0.627343774f,    -0.61328125f,
    -0.599218726f,    -0.585156262f,    -0.571093798f,    -0.557031274f,
    -0.54296875f,     -0.528906226f,    -0.514843702f,    -0.500781238f,
    -0.486718714f,    -0.47265625f,     -0.458593726f,    -0.444531262f,
    -0.430468738f,    -0.416406244f,    -0.40234375f,     -0.388281226f,
    -0.374218762f,    -0.360156238f,    -0.346093744f,    -0.33203125f,
    -0.317968726f,    -0.303906262f,    -0.289843738f,    -0.275781274f,
    -0.26171875f,     -0.247656241f,    -0.233593747f,    -0.219531253f,
    -0.205468744f,    -0.19140625f,     -0.177343756f,    -0.163281247f,
    -0.149218753f,    -0.135156244f,    -0.12109375f,     -0.107031256f,
    -0.0985937491f,   -0.0957812592f,   -0.0929687545f,   -0.0901562497f,
    -0.0873437524f,   -0.0845312476f,   -0.0817187577f,   -0.078906253f,
    -0.0760937482f,   -0.0732812509f,   -0.0704687461f,   -0.0676562563f,
    -0.0648437515f,   -0.0620312504f,   -0.0592187531f,   -0.0564062484f,
    -0.053593751f,    -0.05078125f,     -0.047968749f,    -0.0451562516f,
    -0.0423437469f,   -0.0395312496f,   -0.0367187522f,   -0.0339062512f,
    -0.0310937501f,   -0.028281251f,    -0.0254687499f,   -0.0226562507f,
    -0.0198437516f,   -0.0170312505f,   -0.0142187504f,   -0.0114062503f,
    -0.00971874967f,  -0.00915624946f,  -0.00859375019f,  -0.00803124998f,
    -0.00746874977f,  -0.00690625003f,  -0.00634374982f,  -0.00578125007f,
    -0.00521875033f,  -0.00465624966f,  -0.00409374991f,  -0.00353124971f,
    -0.00296874996f,  -0.00240624999f,  -0.00184375001f,  -0.00128124992f,
    -0.000943750085f, -0.000831249985f, -0.00071875006f,  -0.000606250076f,
    -0.000493750034f, -0.000381250022f, -0.000268750038f, -0.000156250011f,
    -8.87499991e-05f, -6.62500024e-05f, -4.37499984e-05f, -2.12499981e-05f,
    -7.7499999e-06f,  -3.25000019e-06f, -5.50000038e-07f, 0.0f,
    5.50000038e-07f,  3.25000019e-06f,  7.7499999e-06f,   2.12499981e-05f,
    4.37499984e-05f,  6.62500024e-05f,  8.87499991e-05f,  0.000156250011f,
    0.000268750038f,  0.000381250022f,  0.000493750034f,  0.000606250076f,
    0.00071875006f,   0.000831249985f,  0.000943750085f,  0.00128124992f,
    0.00184375001f,   0.00240624999f,   0.00296874996f,   0.00353124971f,
    0.00409374991f,   0.00465624966f,   0.00521875033f,   0.00578125007f,
    0.00634374982f,   0.00690625003f,   0.00746874977f,   0.00803124998f,
    0.00859375019f,   0.00915624946f,   0.00971874967f,   0.0114062503f,
    0.0142187504f,    0.0170312505f,    0.0198437516f,    0.0226562507f,
    0.0254687499f,    0.028281251f,     0.0310937501f,    0.0339062512f,
    0.0367187522f,    0.0395312496f,    0.0423437469f,    0.0451562516f,
    0.047968749f,     0.05078125f,      0.053593751f,     0.0564062484f,
    0.0592187531f,    0.0620312504f,    0.0648437515f,    0.0676562563f,
    0.0704687461f,    0.0732812509f,    0.0760937482f,    0.078906253f,
    0.0817187577f,    0.0845312476f,    0.0873437524f,    0.0901562497f,
    0.0929687545f,    0.0957812592f,    0.0985937491f,    0.107031256f,
    0.12109375f,      0.135156244f,     0.149218753f,     0.163281247f,
    0.177343756f,     0.19140625f,      0.205468744f,     0.219531253f,
    0.233593747f,     0.247656241f,     0.26171875f,      0.275781274f,
    0.289843738f,     0.303906262f,     0.317968726f,     0.33203125f,
    0.346093744f,     0.360156238f,     0.374218762f,     0.388281226f,
    0.40234375f,      0.416406244f,     0.430468738f,     0.444531262f,
    0.458593726f,     0.47265625f,      0.486718714f,     0.500781238f,
    0.514843702f,     0.528906226f,     0.54296875f,      0.557031274f,
    0.571093798f,     0.585156262f,     0.599218726f,     0.61328125f,
    0.627343774f,     0.641406298f,     0.655468762f,     0.669531226f,
    0.68359375f,      0.697656274f,     0.711718798f,     0.725781262f,
    0.739843726f,     0.75390625f,      0.767968774f,     0.782031238f,
    0.796093762f,     0.810156226f,     0.82421875f,      0.838281274f,
    0.852343738f,     0.866406262f,     0.880468726f,     0.89453125f,
    0.908593774f,     0.922656238f,     0.936718762f,     0.950781226f,
    0.96484375f,      0.978906274f,     0.992968738f,     1.0f,
};

/* Makes the sections of a tensor with `part` and `code` from those of the whole weight; weight_part_fits holds. Buffers
 * at most WEIGHT_PART_CAPACITY bytes of the whole weight. Numbers outside the whole are 0. The tensor and the source of
 * `whole` outlive it. FAILED if out of memory, or as `whole` fails. */
enum { WEIGHT_PART_CAPACITY = (1 << 20) + 3 * (1 << 16) };

int64_t weight_piece_overlap(const struct weight_piece *piece, int64_t at, int64_t bytes, int64_t *begin) {
    int64_t end = piece->first + piece->bytes - at;
    *begin = piece->first > at ? piece->first - at : 0;
    if (end > bytes) end = bytes;
    return end > *begin ? end - *begin : 0;
}

void weight_piece_put(const struct weight_piece *piece, int64_t at, int64_t bytes, const void *from) {
    int64_t begin, count = weight_piece_overlap(piece, at, bytes, &begin);
    if (count > 0) memcpy(weight_piece_at(piece, at + begin), (const unsigned char *)from + begin, (size_t)count);
}

enum { NF4_ZERO = 0x77, INTEGERS_ZERO = 0x88 };

enum weight_format weight_part_format(enum weight_format whole) {
    return whole == WEIGHT_NF4 ? WEIGHT_NF4_WIDE : whole;
}

struct weight_code weight_part_whole(const struct tensor *tensor) {
    return (struct weight_code){tensor->part->whole_format, tensor->part->whole, tensor->code.block};
}

/* The part as if it held its numbers, for tensor_part_find. */
static struct tensor numbers_of(const struct tensor *tensor) {
    struct tensor numbers = *tensor;
    numbers.shape = tensor->code.values;
    return numbers;
}

/* Blocks are rows or all: any part has whole ones, of the columns that it has. */
static bool has_rows(const struct weight_code *code) {
    return code->format == WEIGHT_INT8 || (weight_format_has_groups(code->format) && code->block <= 0);
}

static bool cuts_columns(const struct tensor_part *part) {
    for (int c = 0; c < part->count; c++)
        if (part->cuts[c].dimension == 1) return true;
    return false;
}

bool weight_part_fits(const struct tensor *tensor) {
    const struct weight_code whole = weight_part_whole(tensor);
    if (has_rows(&whole)) return true;
    if (!weight_format_fits(tensor->code.format, tensor->code.block, tensor->code.values.dims[1])) return false;
    struct tensor numbers = numbers_of(tensor);
    int64_t block = weight_code_layout(&whole).block, columns = tensor->code.values.dims[1], run;
    bool by_columns = cuts_columns(tensor->part);
    if (by_columns && (columns % block != 0 || whole.values.dims[1] % block != 0)) return false;
    /* Each row is as the first one. */
    int64_t end = by_columns ? columns : shape_elements(&tensor->code.values);
    for (int64_t at = 0; at < end; at += run) {
        int64_t from = tensor_part_find(&numbers, at, &run);
        if (at % block != 0 || (from != TENSOR_NOWHERE && from % block != 0)) return false;
    }
    return true;
}

static bool first_is_high(const struct weight_layout *layout) {
    return layout->format == WEIGHT_NF4 || layout->format == WEIGHT_NF4_WIDE;
}

/* Bytes of one section of the whole weight, the latest that were asked for. */
struct read_buffer {
    int64_t begin, end; /* the section, in bytes of the weight */
    int64_t at, bytes;  /* what `data` has of it */
    int64_t capacity;
    unsigned char *data;
};

enum { CODES_CAPACITY = 1 << 20, SCALES_CAPACITY = 1 << 16 };
_Static_assert(CODES_CAPACITY + 3 * SCALES_CAPACITY == WEIGHT_PART_CAPACITY, "what windows hold");

struct weight_part_reader {
    struct weight_source whole;
    struct tensor numbers; /* the part as if it held its numbers */
    struct weight_layout from, to;
    struct read_buffer codes, scales, groups, zeros;
    bool has_offset; /* nf4: `offset` was read; after the codes, since a source makes it from all of them */
    float offset;
};

/* Byte `at` of the whole weight, in the read buffer's section; *left: how many are there from it on. */
static enum status look(const struct weight_part_reader *reader, struct read_buffer *read_buffer, int64_t at,
                        const unsigned char **out, int64_t *left) {
    if (at < read_buffer->at || at >= read_buffer->at + read_buffer->bytes) {
        int64_t bytes = read_buffer->end - at < read_buffer->capacity ? read_buffer->end - at : read_buffer->capacity;
        BUG_IF(at < read_buffer->begin || bytes <= 0, "%s: byte %lld of a section", reader->numbers.name,
               (long long)at);
        read_buffer->bytes = 0;
        TRY(reader->whole.read(reader->whole.payload, &(struct weight_piece){at, bytes, read_buffer->data}));
        read_buffer->at = at;
        read_buffer->bytes = bytes;
    }
    *out = read_buffer->data + (at - read_buffer->at);
    *left = read_buffer->at + read_buffer->bytes - at;
    return STATUS_OK;
}

static void put_code(const struct weight_layout *layout, unsigned char *out, int64_t index, int code) {
    int shift = (index % 2 == 0) == first_is_high(layout) ? 4 : 0;
    out[index / 2] = (unsigned char)((out[index / 2] & ~(15 << shift)) | code << shift);
}

static int code_at(const struct weight_layout *layout, const unsigned char *codes, int64_t index) {
    return codes[index / 2] >> ((index % 2 == 0) == first_is_high(layout) ? 4 : 0) & 15;
}

/* `count` codes from number `from` of `codes` on to number `at` of `out`. */
static void take_codes(const struct weight_layout *layout, const unsigned char *codes, int64_t from, int64_t at,
                       int64_t count, unsigned char *out) {
    if (codes_per_byte(layout->format) == 1) {
        memcpy(out + at, codes + from, (size_t)count);
        return;
    }
    int64_t done = 0;
    if (from % 2 == 0 && at % 2 == 0) {
        memcpy(out + at / 2, codes + from / 2, (size_t)(count / 2));
        done = count / 2 * 2;
    }
    for (; done < count; done++)
        put_code(layout, out, at + done, code_at(layout, codes, from + done));
}

/* The codes of `count` numbers from `from` of the whole on to number `at` of `out`. */
static enum status take_run(struct weight_part_reader *reader, int64_t from, int64_t at, int64_t count,
                            unsigned char *out) {
    int64_t per = codes_per_byte(reader->from.format), left, here;
    for (int64_t done = 0; done < count; done += here) {
        const unsigned char *codes;
        int64_t first = (from + done) % per;
        TRY(look(reader, &reader->codes, (from + done) / per, &codes, &left));
        here = left * per - first < count - done ? left * per - first : count - done;
        take_codes(&reader->to, codes, first, at + done, here, out);
    }
    return STATUS_OK;
}

static unsigned char code_of_zero(const struct weight_layout *layout) {
    if (first_is_high(layout)) return NF4_ZERO;
    bool pairs = layout->format == WEIGHT_W4A16 || layout->format == WEIGHT_W4A16_ASYM;
    return pairs ? INTEGERS_ZERO : 0;
}

static enum status read_codes(struct weight_part_reader *reader, const struct weight_piece *piece) {
    int64_t begin, bytes = weight_piece_overlap(piece, 0, reader->to.codes_bytes, &begin), run;
    int64_t per = codes_per_byte(reader->to.format), all = reader->to.rows * reader->to.columns;
    if (bytes == 0) return STATUS_OK;
    unsigned char *out = weight_piece_at(piece, begin);
    int64_t first = begin * per, end = (begin + bytes) * per < all ? (begin + bytes) * per : all;
    memset(out, code_of_zero(&reader->to), (size_t)bytes);
    for (int64_t at = first; at < end; at += run) {
        int64_t from = tensor_part_find(&reader->numbers, at, &run);
        if (run > end - at) run = end - at;
        if (from != TENSOR_NOWHERE) TRY(take_run(reader, from, at - first, run, out));
    }
    return STATUS_OK;
}

static enum status nf4_scale(struct weight_part_reader *reader, int64_t block, unsigned char code, float *out) {
    int64_t at = reader->from.groups_at + block / WEIGHT_GROUP_BLOCKS * (int64_t)sizeof *out, left;
    const struct weight_piece piece = {reader->from.offset_at, sizeof reader->offset, (unsigned char *)&reader->offset};
    const unsigned char *bytes;
    float group;
    if (!reader->has_offset) TRY(reader->whole.read(reader->whole.payload, &piece));
    reader->has_offset = true;
    TRY(look(reader, &reader->groups, at, &bytes, &left));
    memcpy(&group, bytes, sizeof group);
    float scale = weight_scale_map[code] * group;
    *out = scale + reader->offset;
    return STATUS_OK;
}

/* Copies the part's scale for a block of the whole from the read buffer's section. */
static enum status take_scale(struct weight_part_reader *reader, struct read_buffer *read_buffer, int64_t block,
                              int64_t element_bytes, unsigned char *out) {
    const unsigned char *bytes;
    int64_t left;
    TRY(look(reader, read_buffer, read_buffer->begin + block * element_bytes, &bytes, &left));
    if (reader->from.format != WEIGHT_NF4) {
        memcpy(out, bytes, (size_t)element_bytes);
        return STATUS_OK;
    }
    float scale;
    TRY(nf4_scale(reader, block, *bytes, &scale));
    memcpy(out, &scale, sizeof scale);
    return STATUS_OK;
}

/* A section of the part that begins at `section` and has elements of `to_bytes` for its blocks. */
static enum status read_scales(struct weight_part_reader *reader, const struct weight_piece *piece, int64_t section,
                               int64_t to_bytes, struct read_buffer *read_buffer, int64_t from_bytes) {
    int64_t begin, bytes = weight_piece_overlap(piece, section, reader->to.scales * to_bytes, &begin), run;
    if (bytes == 0) return STATUS_OK;
    for (int64_t block = begin / to_bytes; block * to_bytes < begin + bytes; block++) {
        unsigned char scale[sizeof(float)] = {0};
        int64_t from = tensor_part_find(&reader->numbers, block * reader->to.block, &run);
        if (from != TENSOR_NOWHERE) TRY(take_scale(reader, read_buffer, from / reader->from.block, from_bytes, scale));
        weight_piece_put(piece, section + block * to_bytes, to_bytes, scale);
    }
    return STATUS_OK;
}

static enum status read_part(void *payload, const struct weight_piece *piece) {
    struct weight_part_reader *reader = payload;
    const struct weight_layout *from = &reader->from, *to = &reader->to;
    memset(piece->out, 0, (size_t)piece->bytes);
    TRY(read_codes(reader, piece));
    TRY(read_scales(reader, piece, to->scales_at, to->scale_bytes, &reader->scales, from->scale_bytes));
    if (to->zeros_at == 0) return STATUS_OK;
    return read_scales(reader, piece, to->zeros_at, 1, &reader->zeros, 1);
}

/* Without memory its data is NULL. */
static struct read_buffer open_read_buffer(int64_t begin, int64_t bytes, int64_t capacity) {
    if (capacity > bytes) capacity = bytes;
    return (struct read_buffer){
        .begin = begin, .end = begin + bytes, .capacity = capacity, .data = mem_array((size_t)capacity, 1)};
}

enum status weight_part_open(const struct tensor *tensor, struct weight_source whole, struct weight_part_reader **out) {
    BUG_IF(!weight_part_fits(tensor), "a part of %s cuts blocks", tensor->name);
    const struct weight_code code = weight_part_whole(tensor);
    struct weight_part_reader *reader = mem_array(1, sizeof *reader);
    if (!reader) return STATUS_FAILED;
    const struct weight_layout from = weight_code_layout(&code);
    *reader = (struct weight_part_reader){
        .whole = whole,
        .numbers = numbers_of(tensor),
        .from = from,
        .to = weight_code_layout(&tensor->code),
        .codes = open_read_buffer(0, from.codes_bytes, CODES_CAPACITY),
        .scales = open_read_buffer(from.scales_at, from.scales * from.scale_bytes, SCALES_CAPACITY),
        .groups = open_read_buffer(from.groups_at, from.groups * (int64_t)sizeof(float), SCALES_CAPACITY),
        .zeros = open_read_buffer(from.zeros_at, from.zeros_at > 0 ? from.scales : 0, SCALES_CAPACITY),
    };
    if (reader->codes.data && reader->scales.data && reader->groups.data && reader->zeros.data) {
        *out = reader;
        return STATUS_OK;
    }
    weight_part_close(reader);
    return STATUS_FAILED;
}

void weight_part_close(struct weight_part_reader *reader) {
    if (!reader) return;
    mem_free(reader->codes.data);
    mem_free(reader->scales.data);
    mem_free(reader->groups.data);
    mem_free(reader->zeros.data);
    mem_free(reader);
}

struct weight_source weight_part_source(struct weight_part_reader *reader) {
    return (struct weight_source){read_part, reader};
}
