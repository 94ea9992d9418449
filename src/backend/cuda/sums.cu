/* Sums over rows: the gradients of biases and of norms. */
#include "backend/cuda/device.cuh"

constexpr int SUM_COLUMNS = 32, SUM_LANES = 8;
constexpr int64_t SUM_ROWS_LEAST = 64, SUM_BLOCKS_MOST = 256;

int64_t cuda_sum_block_rows(int64_t rows) {
    int64_t share = divide_up(divide_up(rows, SUM_BLOCKS_MOST), SUM_LANES) * SUM_LANES;
    return share > SUM_ROWS_LEAST ? share : SUM_ROWS_LEAST;
}

int64_t cuda_sum_blocks(int64_t rows) { return divide_up(rows, cuda_sum_block_rows(rows)); }

int64_t cuda_sum_workspace(int64_t rows, int64_t columns) {
    return workspace_align(cuda_sum_blocks(rows) * columns * (int64_t)sizeof(float));
}

/* Block (c, b) of the grid sums rows [b * block_rows, …) of SUM_COLUMNS columns: each of SUM_LANES lanes every
 * SUM_LANES-th row, then the lanes in order. Row b of `out` is overwritten, or added to. */
template <typename T>
__global__ void sum_kernel(const T *data, int64_t row_stride, int64_t rows, int64_t columns, int64_t block_rows,
                           float *out, bool adds) {
    __shared__ float sums[SUM_LANES][SUM_COLUMNS];
    int64_t column = (int64_t)blockIdx.x * SUM_COLUMNS + threadIdx.x, begin = blockIdx.y * block_rows;
    int64_t end = begin + block_rows < rows ? begin + block_rows : rows;
    float sum = 0;
    if (column < columns)
        for (int64_t row = begin + threadIdx.y; row < end; row += SUM_LANES)
            sum += widen(data[row * row_stride + column]);
    sums[threadIdx.y][threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.y > 0 || column >= columns) return;
    for (int lane = 1; lane < SUM_LANES; lane++)
        sum += sums[lane][threadIdx.x];
    float *to = out + blockIdx.y * columns + column;
    *to = adds ? *to + sum : sum;
}

template <typename T>
static void sum(cudaStream_t stream, const void *data, int64_t row_stride, int64_t rows, int64_t columns,
                int64_t block_rows, float *out, bool adds) {
    dim3 grid(grid_size(divide_up(columns, SUM_COLUMNS)), (unsigned)divide_up(rows, block_rows));
    launch(sum_kernel<T>, grid, dim3(SUM_COLUMNS, SUM_LANES), 0, stream, (const T *)data, row_stride, rows, columns,
           block_rows, out, adds);
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
