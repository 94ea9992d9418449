#include "backend/cpu/parallel.h"

#include <omp.h>

/* A loop that needs no second thread does not enter a parallel region, which costs more than a small loop. */
void parallel_for(int64_t count, int64_t block, parallel_body *body, const void *context) {
    int64_t blocks = (count + block - 1) / block;
    if (blocks <= 1 || omp_get_max_threads() == 1) {
        for (int64_t i = 0; i < blocks; i++)
            body(context, i * block, (i + 1) * block < count ? (i + 1) * block : count);
        return;
    }
#pragma omp parallel for schedule(static)
    for (int64_t i = 0; i < blocks; i++)
        body(context, i * block, (i + 1) * block < count ? (i + 1) * block : count);
}

void parallel_tasks(int64_t count, int threads, parallel_task *body, const void *context) {
    if (count <= 1 || threads == 1) {
        for (int64_t i = count - 1; i >= 0; i--)
            body(context, i, 0);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = count - 1; i >= 0; i--)
        body(context, i, omp_get_thread_num());
}

int parallel_threads(void) { return omp_get_max_threads(); }

enum { BLOCK_ELEMENTS = 1 << 14 };

int64_t parallel_rows(int64_t columns) { return columns >= BLOCK_ELEMENTS ? 1 : BLOCK_ELEMENTS / columns; }

/* Wide, since memory is fast only for long pieces of a row (bias_grad of 3072 columns was 2.3 times as fast in halves
 * as in ranges of 256), but not so wide that the sums leave the first cache. */
enum { COLUMNS_LEAST = 64, COLUMNS_MOST = 4096 };

int64_t parallel_columns(int64_t columns) {
    int64_t pieces = (columns + COLUMNS_LEAST - 1) / COLUMNS_LEAST, threads = parallel_threads();
    int64_t share = (pieces + threads - 1) / threads * COLUMNS_LEAST;
    return share < COLUMNS_MOST ? share : COLUMNS_MOST;
}
