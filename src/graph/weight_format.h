/* Frozen weights in fewer bits than their numbers have: codes, and scales of blocks of them.
 *
 * Such a weight is a parameter of plain bytes; this says what they stand for. Sections follow each other, each at a
 * multiple of WEIGHT_SECTION_BYTES:
 *     nf4        codes, two a byte, the first one in the high bits; a byte for each block of 64 numbers; an fp32
 *                number for each group of 256 blocks; one more, the offset. A block's scale is
 *                weight_scale_map[byte] * group + offset (double quantisation; Dettmers et al., arXiv 2305.14314)
 *     nf4-fp32   codes as nf4's; an fp32 number for each block of 64, its scale
 *     int8       codes, one a byte; an fp32 number for each row, 127 times its scale
 *     mxfp4      codes, two a byte, the first one in the low bits; for each block of 32 numbers the exponent e of
 *                its scale 2^(e - 127) (OCP Microscaling Formats 1.0)
 * Blocks are runs of the numbers in their order in the tensor; a row of mxfp4 is whole blocks. */
#ifndef BALLAST_GRAPH_WEIGHT_FORMAT_H
#define BALLAST_GRAPH_WEIGHT_FORMAT_H

#include <stdbool.h>
#include <stdint.h>

/* name, text, numbers of a block (0: a row) */
#define WEIGHT_FORMAT_LIST(X)                                                                                          \
    X(PLAIN, "none", 0)                                                                                                \
    X(NF4, "nf4", 64)                                                                                                  \
    X(NF4_WIDE, "nf4-fp32", 64)                                                                                        \
    X(INT8, "int8", 0)                                                                                                 \
    X(MXFP4, "mxfp4", 32)
enum weight_format {
#define WEIGHT_FORMAT_ENUM(name, text, block) WEIGHT_##name,
    WEIGHT_FORMAT_LIST(WEIGHT_FORMAT_ENUM) WEIGHT_FORMAT_COUNT
#undef WEIGHT_FORMAT_ENUM
};
const char *weight_format_name(enum weight_format format);
/* WEIGHT_FORMAT_COUNT when there is none of that name. */
enum weight_format weight_format_find(const char *name);

enum { WEIGHT_SECTION_BYTES = 64, WEIGHT_GROUP_BLOCKS = 256, WEIGHT_CODES = 16, WEIGHT_SCALES = 256 };

/* A matrix of numbers, and where its sections begin; `scales`, `groups` and `offsets` count elements. */
struct weight_layout {
    enum weight_format format;
    int64_t rows, columns;
    int64_t block;                          /* numbers */
    int64_t codes_bytes;                    /* from byte 0 on */
    int64_t scales, scales_at, scale_bytes; /* how many, their first byte, bytes of one */
    int64_t groups, groups_at;              /* nf4; else 0 */
    int64_t offset_at;                      /* nf4 */
    int64_t bytes;                          /* of all */
};
/* Of one of the formats, not plain. */
struct weight_layout weight_layout_of(enum weight_format format, int64_t rows, int64_t columns);
/* Whether the format can have such a matrix: rows of mxfp4 are whole blocks. */
bool weight_format_fits(enum weight_format format, int64_t columns);

/* What the codes of nf4 and mxfp4 stand for, times their scale; what the bytes of nf4's scales stand for, ascending. */
extern const float weight_nf4_values[WEIGHT_CODES], weight_mxfp4_values[WEIGHT_CODES];
extern const float weight_scale_map[WEIGHT_SCALES];
/* int8: a number is code * row * this, rounded after each product. */
#define WEIGHT_INT8_STEP 7.874015718698502e-3f

#endif
