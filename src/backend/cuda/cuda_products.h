/* GEMMs and their algorithms as text, as a recipe has them (plan/recipe_lines.h). */
#ifndef BALLAST_BACKEND_CUDA_CUDA_PRODUCTS_H
#define BALLAST_BACKEND_CUDA_CUDA_PRODUCTS_H

#include "backend/cuda/cuda_matmul.h"

/* Of a name, and of a line: the library's description of an algorithm is at most 64 bytes. */
enum {
    CUDA_PRODUCT_BYTES = 256,
    CUDA_ALGORITHM_BYTES = 64,
    CUDA_PRODUCT_LINE_BYTES = CUDA_PRODUCT_BYTES + 2 * CUDA_ALGORITHM_BYTES + 2
};

/* The parts of the spec that the choice of an algorithm depends on:
 * "bf16>fp32:512x768x768:a768,1:b1,768:c768:d0:@64,64,64".
 */
void cuda_product_name(const struct cuda_matmul_spec *spec, char out[CUDA_PRODUCT_BYTES]);
/* Whether the lines have the GEMM; copies its algorithm's bytes, followed by zeros. */
bool cuda_product_find(const char *lines, const char *product, unsigned char *algorithm, size_t bytes);
/* Writes the line of a spec, less than CUDA_PRODUCT_LINE_BYTES, and returns its length. */
size_t cuda_product_print(const struct cuda_matmul_spec *spec, const unsigned char *algorithm, size_t algorithm_bytes,
                          char *line);

#endif
