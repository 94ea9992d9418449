/* Weights in fewer bits: their numbers (matmul.h). A thread has 16 bytes of these, or one number. */
#include "backend/cuda/kernels/device.cuh"
#include "backend/cuda/matmul.h"

struct unpacking {
    const uint8_t *codes, *scales;
    const float *groups, *offset;
    const int8_t *zeros; /* NULL: all 0 */
    struct cuda_weight_tile tile;
    int64_t row_length; /* of the weight */
    int64_t block;      /* numbers that share a scale, where the format does not say */
    int shift;          /* nf4: its logarithm */
    void *to;
};
/* Values of codes and scales. */
struct code_tables {
    float values[WEIGHT_CODES], scales[WEIGHT_SCALES];
};

/* Integers, with zeros and without. */
enum { QUANTIZED_INTEGERS_4 = WEIGHT_W4A16, QUANTIZED_INTEGERS_8 = WEIGHT_W8A16 };

template <int FORMAT> constexpr bool IS_NF4 = FORMAT == WEIGHT_NF4 || FORMAT == WEIGHT_NF4_WIDE;

/* Common to the numbers of a block. */
struct block_scale {
    float scale, zero;
    int64_t left; /* numbers, from the one that it was read for */
};

template <int FORMAT>
__device__ inline float scale_of(const struct unpacking &own, const struct code_tables &tables, int64_t block) {
    if constexpr (FORMAT == WEIGHT_MXFP4) {
        /* 2^-127, which byte 0 stands for, is below the smallest normal number. */
        unsigned exponent = own.scales[block];
        return __uint_as_float(exponent > 0 ? exponent << 23 : 1u << 22);
    }
    if constexpr (FORMAT == WEIGHT_NF4)
        return __fadd_rn(__fmul_rn(tables.scales[own.scales[block]], own.groups[block / WEIGHT_GROUP_BLOCKS]),
                         *own.offset);
    return ((const float *)own.scales)[block];
}

template <int FORMAT>
__device__ inline struct block_scale block_of(const struct unpacking &own, const struct code_tables &tables,
                                              int64_t index) {
    int64_t length = FORMAT == WEIGHT_MXFP4 ? 32 : own.block;
    int64_t block = IS_NF4<FORMAT> ? index >> own.shift : index / length;
    struct block_scale scale = {scale_of<FORMAT>(own, tables, block), 0, length - (index - block * length)};
    if constexpr (FORMAT == QUANTIZED_INTEGERS_4 || FORMAT == QUANTIZED_INTEGERS_8)
        scale.zero = own.zeros ? (float)own.zeros[block] : 0;
    return scale;
}

/* The number at `index` of a weight. */
template <int FORMAT>
__device__ inline float number_at(const struct unpacking &own, const struct code_tables &tables, int64_t index,
                                  const struct block_scale &block) {
    if constexpr (FORMAT == WEIGHT_INT8)
        return __fmul_rn(__fmul_rn((float)((const int8_t *)own.codes)[index], block.scale), WEIGHT_INT8_STEP);
    if constexpr (FORMAT == QUANTIZED_INTEGERS_8)
        return __fmul_rn((float)((const int8_t *)own.codes)[index] - block.zero, block.scale);
    uint8_t pair = own.codes[index / 2];
    bool high = (index % 2 == 0) == IS_NF4<FORMAT>;
    int code = high ? pair >> 4 : pair & 15;
    if constexpr (FORMAT == QUANTIZED_INTEGERS_4) return __fmul_rn((float)(code - 8) - block.zero, block.scale);
    return __fmul_rn(tables.values[code], block.scale);
}

__device__ inline void share_tables(const struct code_tables &from, struct code_tables *to) {
    for (int i = (int)threadIdx.x; i < WEIGHT_SCALES; i += THREADS)
        to->scales[i] = from.scales[i];
    if (threadIdx.x < WEIGHT_CODES) to->values[threadIdx.x] = from.values[threadIdx.x];
    __syncthreads();
}

template <typename T, int FORMAT, int W>
__global__ void __launch_bounds__(THREADS) unpack_weight_kernel(struct unpacking own, struct code_tables given) {
    __shared__ struct code_tables tables;
    share_tables(given, &tables);
    int64_t pieces = own.tile.columns / W, piece = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (piece >= own.tile.rows * pieces) return;
    int64_t row = own.tile.row + piece / pieces, index = row * own.row_length + own.tile.column + piece % pieces * W;
    vector<T, W> out;
    struct block_scale block = block_of<FORMAT>(own, tables, index);
#pragma unroll
    for (int w = 0; w < W; w++) {
        if (w > 0 && w == block.left) {
            int64_t before = block.left;
            block = block_of<FORMAT>(own, tables, index + w);
            block.left += before;
        }
        out.at[w] = narrow<T>(number_at<FORMAT>(own, tables, index + w, block));
    }
    store<T, W>(own.to, piece * W, out);
}

template <typename T, int FORMAT> static void unpack_format(cudaStream_t stream, const struct unpacking &own) {
    struct code_tables tables;
    memcpy(tables.values, FORMAT == WEIGHT_MXFP4 ? weight_mxfp4_values : weight_nf4_values, sizeof tables.values);
    memcpy(tables.scales, weight_scale_map, sizeof tables.scales);
    constexpr int W = VECTOR<T>;
    bool vectors = own.tile.columns % W == 0;
    int64_t threads = own.tile.rows * own.tile.columns / (vectors ? W : 1);
    launch(vectors ? known<unpack_weight_kernel<T, FORMAT, W>>() : known<unpack_weight_kernel<T, FORMAT, 1>>(),
           grid_size(divide_up(threads, THREADS)), THREADS, 0, stream, own, tables);
}

template <typename T>
static void unpack_weight(enum weight_format format, cudaStream_t stream, const struct unpacking &own) {
    switch (format) {
    case WEIGHT_NF4: unpack_format<T, WEIGHT_NF4>(stream, own); return;
    case WEIGHT_NF4_WIDE: unpack_format<T, WEIGHT_NF4_WIDE>(stream, own); return;
    case WEIGHT_INT8: unpack_format<T, WEIGHT_INT8>(stream, own); return;
    case WEIGHT_MXFP4: unpack_format<T, WEIGHT_MXFP4>(stream, own); return;
    case WEIGHT_W4A16:
    case WEIGHT_W4A16_ASYM: unpack_format<T, QUANTIZED_INTEGERS_4>(stream, own); return;
    case WEIGHT_W8A16:
    case WEIGHT_W8A16_ASYM: unpack_format<T, QUANTIZED_INTEGERS_8>(stream, own); return;
    default: BUG("unpacking %s", weight_format_name(format));
    }
}

void cuda_unpack_weight(cudaStream_t stream, const struct weight_layout *layout, const void *weight,
                        const struct cuda_weight_tile *tile, enum dtype dtype, void *out) {
    struct unpacking own = {};
    own.codes = (const uint8_t *)weight;
    own.scales = own.codes + layout->scales_at;
    own.groups = (const float *)(own.codes + layout->groups_at);
    own.offset = (const float *)(own.codes + layout->offset_at);
    own.zeros = layout->zeros_at > 0 ? (const int8_t *)own.codes + layout->zeros_at : NULL;
    own.tile = *tile;
    own.row_length = layout->columns;
    own.block = layout->block;
    while ((int64_t)1 << own.shift < own.block)
        own.shift++;
    own.to = out;
    FOR_ELEMENT(dtype, unpack_weight, layout->format, stream, own);
}
