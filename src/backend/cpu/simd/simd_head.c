/* Rows of logits: the loss's log of the sum of exponentials, and its gradient. */
#include "backend/cpu/simd/simd.h"

/* Elements that are summed in fp32 before their sum goes on in double. */
enum { SUM_RUN = 1024 };

static float row_largest(int64_t n, const float *x) {
    vf largest = vf_set(-__builtin_inff());
    for (int64_t i = 0; i < n; i += LANES) {
        vf value = load(x, i, n - i, false);
        if (n - i < LANES) value = vf_select(vi_iota() < (int32_t)(n - i), value, largest);
        largest = vf_max(value, largest);
    }
    return vf_largest(largest);
}

struct logits_sum SIMD_NAME(simd_sum_exp)(int64_t n, const float *logits) {
    float largest = row_largest(n, logits);
    double total = 0;
    for (int64_t start = 0; start < n; start += SUM_RUN) {
        int64_t end = start + SUM_RUN < n ? start + SUM_RUN : n;
        vf sum = {0};
        for (int64_t i = start; i < end; i += LANES)
            sum += keep(vf_exp(load(logits, i, end - i, false) - largest), end - i);
        total += (double)vf_sum(sum);
    }
    return (struct logits_sum){largest, total};
}

INLINE void softmax_row(bool bf16, bool has_cap, int64_t n, const float *logits, float lse, float scale, float softcap,
                        void *out) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf logit = load(logits, i, n - i, false), value = vf_exp(logit - lse) * scale, bent = logit / softcap;
        store(out, i, n - i, bf16, has_cap ? value * vf_fma(-bent, bent, vf_set(1.0f)) : value);
    }
}

void SIMD_NAME(simd_softmax)(enum dtype dtype, int64_t n, const float *logits, float lse, float scale, float softcap,
                             void *out) {
    if (dtype == DTYPE_BF16 && softcap > 0)
        softmax_row(true, true, n, logits, lse, scale, softcap, out);
    else if (dtype == DTYPE_BF16)
        softmax_row(true, false, n, logits, lse, scale, softcap, out);
    else if (softcap > 0)
        softmax_row(false, true, n, logits, lse, scale, softcap, out);
    else
        softmax_row(false, false, n, logits, lse, scale, softcap, out);
}

void SIMD_NAME(simd_soft_cap)(int64_t n, float softcap, float *logits) {
    for (int64_t i = 0; i < n; i += LANES)
        store(logits, i, n - i, false, vf_tanh(load(logits, i, n - i, false) / softcap) * softcap);
}
