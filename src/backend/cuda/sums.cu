/* Sums over rows: the gradients of biases and of norms. */
#include "backend/cuda/device.cuh"

constexpr int SUM_LANES = THREADS / WARP;
constexpr int64_t SUM_ROWS_MIN = 64, SUM_BLOCKS_MAX = 256;

int64_t cuda_sum_block_rows(int64_t rows) {
    int64_t share = divide_up(divide_up(rows, SUM_BLOCKS_MAX), SUM_LANES) * SUM_LANES;
    return share > SUM_ROWS_MIN ? share : SUM_ROWS_MIN;
}

int64_t cuda_sum_blocks(int64_t rows) { return divide_up(rows, cuda_sum_block_rows(rows)); }

int64_t cuda_sum_workspace(int64_t rows, int64_t columns) {
    return workspace_align(cuda_sum_blocks(rows) * columns * (int64_t)sizeof(float));
}

/* Block (c, b) of the grid sums rows [b * block_rows, …) of WARP * W columns: each of SUM_LANES lanes every
 * SUM_LANES-th row, then the lanes in order. Row b of `out` is overwritten, or added to. */
template <typename T, int W>
__global__ void __launch_bounds__(THREADS) sum_kernel(const T *data, int64_t row_stride, int64_t rows, int64_t columns,
                                                      int64_t block_rows, float *out, bool adds) {
    int64_t first = (int64_t)blockIdx.x * WARP * W, column = first + threadIdx.x * W, begin = blockIdx.y * block_rows;
    int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
    float own[W] = {};
    for (int64_t row = begin + threadIdx.y; column < columns && row < end; row += SUM_LANES) {
        vector<T, W> values = load<T, W>(data, row * row_stride + column);
#pragma unroll
        for (int w = 0; w < W; w++)
            own[w] += widen(values.at[w]);
    }
    lanes_sum<W>(own, out + blockIdx.y * columns + first, columns - first, adds);
}

template <typename T>
static void sum(cudaStream_t stream, const void *data, int64_t row_stride, int64_t rows, int64_t columns,
                int64_t block_rows, float *out, bool adds) {
    constexpr int W = VECTOR<T>;
    bool vectors = (uintptr_t)data % 16 == 0 && row_stride % W == 0 && columns % W == 0;
    dim3 grid(grid_size(divide_up(columns, WARP * (vectors ? W : 1))), (unsigned)divide_up(rows, block_rows));
    launch(vectors ? known<sum_kernel<T, W>>() : known<sum_kernel<T, 1>>(), grid, dim3(WARP, SUM_LANES), 0, stream,
           (const T *)data, row_stride, rows, columns, block_rows, out, adds);
}

void cuda_sum_combine(cudaStream_t stream, int64_t blocks, int64_t columns, const float *partials, float *out) {
    sum<float>(stream, partials, columns, blocks, columns, blocks, out, true);
}

void cuda_sum_columns(cudaStream_t stream, enum dtype dtype, int64_t rows, int64_t columns, const void *data,
                      int64_t row_stride, void *workspace, float *out) {
    float *partials = (float *)workspace;
    FOR_ELEMENT(dtype, sum, stream, data, row_stride, rows, columns, cuda_sum_block_rows(rows), partials, false);
    cuda_sum_combine(stream, cuda_sum_blocks(rows), columns, partials, out);
}
