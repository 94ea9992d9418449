#include "profile/operator_values.h"

#include "base/half.h"

/* A prime number of values, so that rows of a matrix differ. */
enum { PATTERN = 8191 };

static void write_value(void *to, enum dtype dtype, int64_t index, double value) {
    switch (dtype) {
    case DTYPE_F64: ((double *)to)[index] = value; return;
    case DTYPE_F32: ((float *)to)[index] = (float)value; return;
    case DTYPE_BF16: ((uint16_t *)to)[index] = bf16_from_float((float)value); return;
    case DTYPE_I32: ((int32_t *)to)[index] = (int32_t)value; return;
    case DTYPE_U8: ((uint8_t *)to)[index] = (uint8_t)value; return;
    case DTYPE_U16: ((uint16_t *)to)[index] = (uint16_t)value; return;
    default: BUG("no values of %s", dtype_name(dtype));
    }
}

/* Any codes will do; scales are to be of the size that a weight's are. */
static void fill_quantized(const struct tensor *tensor, unsigned char *to) {
    enum { EXPONENT = 124, MIDDLE = WEIGHT_SCALES / 2 };
    struct weight_layout layout = weight_code_layout(&tensor->code);
    const float scale = 0.125f;
    for (int64_t i = 0; i < layout.scales_at; i++)
        to[i] = (unsigned char)(i % PATTERN * 151 % 256);
    memset(to + layout.scales_at, layout.groups > 0 ? MIDDLE : EXPONENT, (size_t)(layout.bytes - layout.scales_at));
    int64_t floats = layout.groups > 0 ? layout.groups_at : layout.scales_at;
    int64_t end = layout.zeros_at > 0 ? layout.scales_at + layout.scales * layout.scale_bytes : layout.bytes;
    for (int64_t at = floats; layout.format != WEIGHT_MXFP4 && at < end; at += (int64_t)sizeof scale)
        memcpy(to + at, &scale, sizeof scale);
}

/* Computes the first values one by one and copies them to the rest; integers are all computed. */
void operator_values_fill(const struct node *node, const struct tensor *tensor, void *to) {
    enum dtype dtype = tensor->shape.dtype;
    if (tensor->code.format != WEIGHT_PLAIN) return fill_quantized(tensor, to);
    int64_t count = shape_elements(&tensor->shape), bytes = dtype_bytes(dtype);
    int64_t first = dtype == DTYPE_I32 || count < PATTERN ? count : PATTERN;
    for (int64_t i = 0; i < first; i++)
        write_value(to, dtype, i, op_example(node, tensor, i));
    for (int64_t i = first; i < count; i += first) {
        int64_t here = count - i < first ? count - i : first;
        memcpy((char *)to + i * bytes, to, (size_t)(here * bytes));
    }
}

void operator_values_scalars(const struct node *node, double scalars[SCALAR_COUNT]) {
    int64_t tokens = node->in[0] && node->in[0]->shape.rank == 3 ? node->in[0]->shape.dims[1] : 1;
    memset(scalars, 0, SCALAR_COUNT * sizeof *scalars);
    scalars[SCALAR_LOSS_SCALE] = 1.0 / 4096;
    scalars[SCALAR_LEARNING_RATE] = 1e-4;
    scalars[SCALAR_BIAS_CORRECTION] = 5;
    scalars[SCALAR_STEP] = 2;
    scalars[SCALAR_BIAS_CORRECTION_SQ] = 10;
    scalars[SCALAR_NEW_TOKENS] = (double)tokens;
}
