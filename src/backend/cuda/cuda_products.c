#include "backend/cuda/cuda_products.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

void cuda_product_name(const struct cuda_matmul_spec *spec, char out[CUDA_PRODUCT_BYTES]) {
    const struct matmul_spec *of = &spec->product;
    snprintf(out, CUDA_PRODUCT_BYTES,
             "%s>%s:%" PRId64 "x%" PRId64 "x%" PRId64 ":a%" PRId64 ",%" PRId64 ":b%" PRId64 ",%" PRId64 ":c%" PRId64
             ":d%" PRId64 "%s:@%" PRId64 ",%" PRId64 ",%" PRId64 ",%" PRId64,
             dtype_name(of->dtype), dtype_name(of->out_dtype), of->m, of->n, of->k, of->a_row, of->a_k, of->b_k,
             of->b_column, of->c_row, of->addend_row, of->bias ? ":bias" : "", spec->a_alignment, spec->b_alignment,
             spec->c_alignment, of->addend_row ? spec->addend_alignment : 0);
}

bool cuda_product_find(const char *lines, const char *product, unsigned char *algorithm, size_t bytes) {
    size_t length = strlen(product);
    while (*lines && (strncmp(lines, product, length) != 0 || lines[length] != ' ')) {
        lines += strcspn(lines, "\n");
        lines += *lines == '\n';
    }
    if (!*lines) return false;
    memset(algorithm, 0, bytes);
    const char *digits = lines + length + 1;
    for (size_t i = 0; i < bytes && sscanf(digits + 2 * i, "%2hhx", &algorithm[i]) == 1; i++)
        if (digits[2 * i + 1] == '\n' || digits[2 * i + 2] == '\n') break;
    return true;
}

size_t cuda_product_print(const struct cuda_matmul_spec *spec, const unsigned char *algorithm, size_t algorithm_bytes,
                          char *line) {
    BUG_IF(algorithm_bytes > CUDA_ALGORITHM_BYTES, "an algorithm of %zu bytes", algorithm_bytes);
    cuda_product_name(spec, line);
    char *to = line + strlen(line);
    *to++ = ' ';
    for (size_t i = 0; i < algorithm_bytes; i++)
        to += snprintf(to, 3, "%02x", algorithm[i]);
    memcpy(to, "\n", 2);
    return (size_t)(to + 1 - line);
}
