/* Formats of frozen quantized weights: codes, and scales of blocks of codes.
 *
 * Such a weight is a parameter of plain bytes, which this header defines. Sections follow each other, each at a
 * multiple of WEIGHT_SECTION_BYTES:
 *   - nf4        codes, two a byte, the first one in the high bits; a byte for each block of 64 numbers; an fp32
 *                number for each group of 256 blocks; one more, the offset. A block's scale is
 *                weight_scale_map[byte] * group + offset (double quantisation; Dettmers et al., arXiv 2305.14314)
 *   - nf4-fp32   codes as nf4's; an fp32 number for each block of 64, its scale
 *   - int8       codes, one a byte; an fp32 number for each row, 127 times its scale
 *   - mxfp4      codes, two a byte, the first one in the low bits; for each block of 32 numbers the exponent e of
 *                its scale 2^(e - 127) (OCP Microscaling Formats 1.0)
 *   - w4a16      codes, two a byte, the first one in the low bits; an fp32 number for each block, its scale: a number
 *                is (code - 8) * scale; w4a16-asym: a signed byte more for each block, and (code - 8 - byte) * scale
 *   - w8a16      codes, signed bytes; scales as w4a16's: a number is code * scale; w8a16-asym likewise
 *                (code - byte) * scale
 *
 * Blocks are runs of the numbers in their order in the tensor; a row is whole blocks of mxfp4 and of the integers. How
 * long a block of integers is differs by model: it is given next to the format. */
#pragma once

#include "base/base.h"

struct tensor;
struct weight_code;

/* name, text, numbers of a block (0: a row) */
#define WEIGHT_FORMAT_LIST(X)                                                                                          \
    X(PLAIN, "none", 0)                                                                                                \
    X(NF4, "nf4", 64)                                                                                                  \
    X(NF4_WIDE, "nf4-fp32", 64)                                                                                        \
    X(INT8, "int8", 0)                                                                                                 \
    X(MXFP4, "mxfp4", 32)                                                                                              \
    X(W4A16, "w4a16", 0)                                                                                               \
    X(W4A16_ASYM, "w4a16-asym", 0)                                                                                     \
    X(W8A16, "w8a16", 0)                                                                                               \
    X(W8A16_ASYM, "w8a16-asym", 0)
enum weight_format {
#define WEIGHT_FORMAT_ENUM(name, text, block) WEIGHT_##name,
    WEIGHT_FORMAT_LIST(WEIGHT_FORMAT_ENUM) WEIGHT_FORMAT_COUNT
#undef WEIGHT_FORMAT_ENUM
};
const char *weight_format_name(enum weight_format format);
/* WEIGHT_FORMAT_COUNT when there is none of that name. */
enum weight_format weight_format_find(const char *name);
/* Whether blocks have the length that is given: compressed-tensors' integers, which are read but never made. */
bool weight_format_has_groups(enum weight_format format);

enum { WEIGHT_SECTION_BYTES = 64, WEIGHT_GROUP_BLOCKS = 256, WEIGHT_CODES = 16, WEIGHT_SCALES = 256 };
/* The length of a block, where it is given, for one that is the whole matrix. */
enum { WEIGHT_BLOCK_WHOLE = -1 };

/* A matrix of numbers, and where its sections begin; `scales` and `groups` count elements. */
struct weight_layout {
    enum weight_format format;
    int64_t rows, columns;
    int64_t block;                          /* numbers */
    int64_t codes_bytes;                    /* from byte 0 on */
    int64_t scales, scales_at, scale_bytes; /* how many, their first byte, bytes of one */
    int64_t groups, groups_at;              /* nf4; else 0 */
    int64_t offset_at;                      /* nf4 */
    int64_t zeros_at;                       /* -asym: a byte for each scale; else 0 */
    int64_t bytes;                          /* of all */
};
/* The layout of a quantized format. `block`: numbers of a block of nf4, a power of two, or of integers, or
 * WEIGHT_BLOCK_WHOLE; 0: the format's own length, of integers a row. */
struct weight_layout weight_layout_of(enum weight_format format, int64_t block, int64_t rows, int64_t columns);
/* Whether the format can have such a matrix: rows of mxfp4 and of integers are whole blocks. */
bool weight_format_fits(enum weight_format format, int64_t block, int64_t columns);

/* Values of the codes of nf4 and mxfp4, before scaling; values of the bytes of nf4's scales, ascending. */
extern const float weight_nf4_values[WEIGHT_CODES], weight_mxfp4_values[WEIGHT_CODES];
extern const float weight_scale_map[WEIGHT_SCALES];
/* int8: a number is code * row * this, rounded after each product. */
#define WEIGHT_INT8_STEP 7.874015718698502e-3f

/* A rank's part of a frozen weight in fewer bits, which ranks share: a weight of its own, with the codes and scales
 * that the whole weight has for these numbers. Blocks are those of the whole weight; a part whose numbers would not be
 * whole blocks of it is none. Rows of int8 and of integers, where a row is a block, and the one block of all may be
 * cut: each part has the scale.
 *
 * nf4 becomes nf4-fp32, since the groups of its scales are not those of a part's: the scales are the same numbers. */

/* The sections of a weight in fewer bits (weight_format.h), a piece at a time: what reads a file, quantises, or takes a
 * rank's part is a source of them, so that nobody holds a weight as a whole. */

/* Bytes [first, first + bytes) of all that a weight has, and where they go. */
struct weight_piece {
    int64_t first, bytes;
    unsigned char *out;
};

/* Fills any piece of one weight, one call at a time; bytes between sections are 0. Reading from the first byte to the
 * last is cheapest. After a failure the piece is undefined. */
struct weight_source {
    enum status (*read)(void *payload, const struct weight_piece *piece);
    void *payload;
};

/* The piece's part of bytes [at, at + bytes) of the weight: [*begin, *begin + the result), counted from `at`. */
int64_t weight_piece_overlap(const struct weight_piece *piece, int64_t at, int64_t bytes, int64_t *begin);
/* The address in the piece of byte `at` of the weight, which lies in the piece. */
static inline unsigned char *weight_piece_at(const struct weight_piece *piece, int64_t at) {
    return piece->out + (at - piece->first);
}

/* Copies what the piece has of bytes [at, at + bytes) of the weight, which are at `from`. */
void weight_piece_put(const struct weight_piece *piece, int64_t at, int64_t bytes, const void *from);

/* The format of a part of a weight in format `whole`. */
enum weight_format weight_part_format(enum weight_format whole);
/* The encoding of the whole, for a tensor with `part` and `code`. */
struct weight_code weight_part_whole(const struct tensor *tensor);
/* Whether a tensor's numbers are whole blocks of the whole weight. */
bool weight_part_fits(const struct tensor *tensor);
struct weight_part_reader;
enum status weight_part_open(const struct tensor *tensor, struct weight_source whole, struct weight_part_reader **out);
/* Closes NULL too. */
void weight_part_close(struct weight_part_reader *reader);
/* The reader must outlive it. */
struct weight_source weight_part_source(struct weight_part_reader *reader);
