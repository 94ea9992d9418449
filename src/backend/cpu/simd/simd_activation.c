/* Activation functions with their derivatives. */
#include "backend/cpu/simd/simd.h"

INLINE vf relu(vf x, vf *slope) {
    *slope = (vf)((vi)vf_set(1.0f) & (x > 0.0f));
    return vf_max((vf){0}, x); /* this order keeps NaN */
}

INLINE vf gelu_erf(vf x, vf *slope) {
    vf bell, below = vf_normal(x, &bell);
    *slope = vf_fma(x * bell, vf_set(0.39894228f), below);
    return x * below;
}

/* x sigmoid(s), of an s with this slope. */
INLINE vf sigmoid_unit(vf x, vf s, vf s_slope, vf *slope) {
    vf gate = vf_sigmoid(s);
    vf value = x * gate;
    *slope = vf_fma(value * (1.0f - gate), s_slope, gate);
    return value;
}

/* x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): 1 + tanh(u) = 2 sigmoid(2u), without the cancellation. */
INLINE vf gelu_tanh(vf x, vf *slope) {
    vf square = x * x;
    vf doubled = x * vf_fma(square, vf_set(0.07135481627f), vf_set(1.59576912161f));
    return sigmoid_unit(x, doubled, vf_fma(square, vf_set(0.2140644488f), vf_set(1.59576912161f)), slope);
}

/* f(x), and its derivative. The compiler names what is missing here. */
INLINE vf activate(enum activation function, vf x, vf *slope) {
    switch (function) {
    case ACTIVATION_GELU_TANH: return gelu_tanh(x, slope);
    case ACTIVATION_GELU_ERF: return gelu_erf(x, slope);
    case ACTIVATION_RELU: return relu(x, slope);
    case ACTIVATION_SILU: return sigmoid_unit(x, x, vf_set(1.0f), slope);
    }
    __builtin_unreachable();
}

INLINE void activation_row(enum activation function, bool bf16, int64_t n, const void *x, void *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope;
        store(y, i, n - i, bf16, activate(function, load(x, i, n - i, bf16), &slope));
    }
}

INLINE void activation_grad_row(enum activation function, bool bf16, int64_t n, const void *dy, const void *x,
                                void *dx) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope;
        activate(function, load(x, i, n - i, bf16), &slope);
        store(dx, i, n - i, bf16, load(dy, i, n - i, bf16) * slope);
    }
}

INLINE void gated_row(enum activation function, bool bf16, int64_t n, const void *gate, const void *up, void *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope, value = activate(function, load(gate, i, n - i, bf16), &slope);
        store(y, i, n - i, bf16, value * load(up, i, n - i, bf16));
    }
}

INLINE void gated_grad_row(enum activation function, bool bf16, int64_t n, const void *dy, const void *gate,
                           const void *up, void *dgate, void *dup) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope, value = activate(function, load(gate, i, n - i, bf16), &slope);
        vf gradient = load(dy, i, n - i, bf16), factor = load(up, i, n - i, bf16);
        store(dgate, i, n - i, bf16, gradient * factor * slope);
        store(dup, i, n - i, bf16, gradient * value);
    }
}

/* Calls ROW with the function and the dtype as constants, so that each pair has its own code. */
#define FUNCTION_CASE(name, ...)                                                                                       \
    case ACTIVATION_##name:                                                                                            \
        if (dtype == DTYPE_BF16)                                                                                       \
            ROW(ACTIVATION_##name, true);                                                                              \
        else                                                                                                           \
            ROW(ACTIVATION_##name, false);                                                                             \
        break;
#define FOR_FUNCTION                                                                                                   \
    switch (function) { ACTIVATION_LIST(FUNCTION_CASE) }

void SIMD_NAME(simd_activation)(enum dtype dtype, enum activation function, int64_t n, const void *x, void *y) {
#define ROW(constant, bf16) activation_row(constant, bf16, n, x, y)
    FOR_FUNCTION
#undef ROW
}

void SIMD_NAME(simd_activation_grad)(enum dtype dtype, enum activation function, int64_t n, const void *dy,
                                     const void *x, void *dx) {
#define ROW(constant, bf16) activation_grad_row(constant, bf16, n, dy, x, dx)
    FOR_FUNCTION
#undef ROW
}

void SIMD_NAME(simd_gated)(enum dtype dtype, enum activation function, int64_t n, const void *gate, const void *up,
                           void *y) {
#define ROW(constant, bf16) gated_row(constant, bf16, n, gate, up, y)
    FOR_FUNCTION
#undef ROW
}

void SIMD_NAME(simd_gated_grad)(enum dtype dtype, enum activation function, int64_t n, const void *dy, const void *gate,
                                const void *up, void *dgate, void *dup) {
#define ROW(constant, bf16) gated_grad_row(constant, bf16, n, dy, gate, up, dgate, dup)
    FOR_FUNCTION
#undef ROW
}
