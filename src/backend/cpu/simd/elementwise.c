/* Rows whose elements are computed one by one, and the head's loss. */
#include "backend/cpu/simd/simd.h"

INLINE void add_row(bool bf16, int64_t n, const void *a, const void *b, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        store(out, i, n - i, bf16, load(a, i, n - i, bf16) + load(b, i, n - i, bf16));
}

void SIMD_NAME(simd_add)(enum dtype dtype, int64_t n, const void *a, const void *b, void *out) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, add_row(bf16, n, a, b, out));
}

INLINE void accumulate_row(bool bf16, int64_t n, const void *x, float *sum) {
    for (int64_t i = 0; i < n; i += LANES)
        store(sum, i, n - i, false, load(sum, i, n - i, false) + load(x, i, n - i, bf16));
}

void SIMD_NAME(simd_accumulate)(enum dtype dtype, int64_t n, const void *x, float *sum) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, accumulate_row(bf16, n, x, sum));
}

INLINE void scale_row(int64_t n, bool from_bf16, const void *a, float factor, bool to_bf16, void *out) {
    for (int64_t i = 0; i < n; i += LANES)
        store(out, i, n - i, to_bf16, load(a, i, n - i, from_bf16) * factor);
}

void SIMD_NAME(simd_scale)(int64_t n, enum dtype from, const void *a, float factor, enum dtype to, void *out) {
    WITH_CONSTANT(from_bf16, from == DTYPE_BF16,
                  WITH_CONSTANT(to_bf16, to == DTYPE_BF16, scale_row(n, from_bf16, a, factor, to_bf16, out)));
}

/* Activation functions with their derivatives. */

INLINE vf relu(vf x, vf *slope) {
    *slope = (vf)((vi)vf_set(1.0f) & (x > 0.0f));
    return vf_max((vf){0}, x); /* this order keeps NaN */
}

INLINE vf gelu_erf(vf x, vf *slope) {
    vf bell, below = vf_normal(x, &bell);
    *slope = vf_fma(x * bell, vf_set(0.39894228f), below);
    return x * below;
}

/* x gate, of a sigmoid of s with this slope. */
INLINE vf gated_unit(vf x, vf gate, vf s_slope, vf *slope) {
    vf value = x * gate;
    *slope = vf_fma(value * (1.0f - gate), s_slope, gate);
    return value;
}

/* x sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3): 1 + tanh(u) = 2 sigmoid(2u), without the cancellation. The power is
 * taken of 2, so -2u is in units of ln 2. */
INLINE vf gelu_tanh(vf x, vf *slope) {
    vf square = x * x;
    vf gate = vf_falling2(x * vf_fma(square, vf_set(-0.1029432395f), vf_set(-2.302208199f)));
    return gated_unit(x, gate, vf_fma(square, vf_set(0.2140644488f), vf_set(1.59576912161f)), slope);
}

/* f(x), and its derivative. The compiler names what is missing here. */
INLINE vf activate(enum activation function, vf x, vf *slope) {
    switch (function) {
    case ACTIVATION_GELU_TANH: return gelu_tanh(x, slope);
    case ACTIVATION_GELU_ERF: return gelu_erf(x, slope);
    case ACTIVATION_RELU: return relu(x, slope);
    case ACTIVATION_SILU: return gated_unit(x, vf_sigmoid(x), vf_set(1.0f), slope);
    }
    __builtin_unreachable();
}

INLINE void activation_row(enum activation function, bool bf16, int64_t n, const void *x, void *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope;
        prefetch_read(x, i, bf16), prefetch_write(y, i, bf16);
        store(y, i, n - i, bf16, activate(function, load(x, i, n - i, bf16), &slope));
    }
}

INLINE void activation_grad_row(enum activation function, bool bf16, int64_t n, const void *dy, const void *x,
                                void *dx) {
    for (int64_t i = 0; i < n; i += LANES) {
        vf slope;
        prefetch_read(x, i, bf16), prefetch_write(dx, i, bf16);
        if (dx != dy) prefetch_read(dy, i, bf16);
        activate(function, load(x, i, n - i, bf16), &slope);
        store(dx, i, n - i, bf16, load(dy, i, n - i, bf16) * slope);
    }
}

INLINE void gated_row(enum activation function, bool bf16, int64_t n, const void *gate, const void *up, void *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        prefetch_read(gate, i, bf16), prefetch_read(up, i, bf16), prefetch_write(y, i, bf16);
        vf slope, value = activate(function, load(gate, i, n - i, bf16), &slope);
        store(y, i, n - i, bf16, value * load(up, i, n - i, bf16));
    }
}

INLINE void gated_grad_row(enum activation function, bool bf16, int64_t n, const void *dy, const void *gate,
                           const void *up, void *dgate, void *dup) {
    for (int64_t i = 0; i < n; i += LANES) {
        prefetch_read(gate, i, bf16), prefetch_read(up, i, bf16);
        prefetch_write(dgate, i, bf16), prefetch_write(dup, i, bf16);
        if (dgate != dy) prefetch_read(dy, i, bf16);
        vf slope, value = activate(function, load(gate, i, n - i, bf16), &slope);
        vf gradient = load(dy, i, n - i, bf16), factor = load(up, i, n - i, bf16);
        store(dgate, i, n - i, bf16, gradient * factor * slope);
        store(dup, i, n - i, bf16, gradient * value);
    }
}

/* Calls ROW with the function and the dtype as constants, so that each pair has its own code. */
#define FUNCTION_CASE(name, ...)                                                                                       \
    case ACTIVATION_##name:                                                                                            \
        WITH_CONSTANT(bf16, dtype == DTYPE_BF16, ROW(ACTIVATION_##name, bf16));                                        \
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

/* Pairs of a row lie side by side, LANES of them in two vectors. */
struct pairs {
    vf gate, up;
};

INLINE struct pairs load_pairs(bool bf16, int64_t n, const void *z, int64_t at) {
    float both[2 * LANES] = {0}, gate[LANES], up[LANES];
    vf_store(both, load(z, 2 * at, 2 * (n - at), bf16));
    if (2 * (n - at) > LANES) vf_store(both + LANES, load(z, 2 * at + LANES, 2 * (n - at) - LANES, bf16));
    for (int i = 0; i < LANES; i++)
        gate[i] = both[2 * i], up[i] = both[2 * i + 1];
    return (struct pairs){vf_load(gate), vf_load(up)};
}

INLINE void store_pairs(bool bf16, int64_t n, struct pairs pairs, void *z, int64_t at) {
    float both[2 * LANES], gate[LANES], up[LANES];
    vf_store(gate, pairs.gate);
    vf_store(up, pairs.up);
    for (int i = 0; i < LANES; i++)
        both[2 * i] = gate[i], both[2 * i + 1] = up[i];
    store(z, 2 * at, 2 * (n - at), bf16, vf_load(both));
    if (2 * (n - at) > LANES) store(z, 2 * at + LANES, 2 * (n - at) - LANES, bf16, vf_load(both + LANES));
}

INLINE void glu_row(bool bf16, int64_t n, float alpha, float limit, const void *z, void *y) {
    for (int64_t i = 0; i < n; i += LANES) {
        struct pairs in = load_pairs(bf16, n, z, i);
        vf gate = vf_select(in.gate > limit, vf_set(limit), in.gate);
        vf up = vf_select(in.up > limit, vf_set(limit), in.up);
        up = vf_select(up < -limit, vf_set(-limit), up);
        store(y, i, n - i, bf16, (up + 1.0f) * (gate * vf_sigmoid(gate * alpha)));
    }
}

/* The gradient is 0 beyond a clamp's limit, but not at the limit itself, as in PyTorch. */
INLINE void glu_grad_row(bool bf16, int64_t n, float alpha, float limit, const void *dy, const void *z, void *dz) {
    for (int64_t i = 0; i < n; i += LANES) {
        struct pairs in = load_pairs(bf16, n, z, i), out;
        vf gradient = load(dy, i, n - i, bf16), zero = {0};
        vf gate = vf_select(in.gate > limit, vf_set(limit), in.gate);
        vf up = vf_select(in.up > limit, vf_set(limit), in.up);
        up = vf_select(up < -limit, vf_set(-limit), up);
        vf sigmoid = vf_sigmoid(gate * alpha), active = gate * sigmoid;
        vf slope = sigmoid + active * alpha * (1.0f - sigmoid);
        out.gate = vf_select(in.gate > limit, zero, gradient * (up + 1.0f) * slope);
        out.up = vf_select((in.up > limit) | (in.up < -limit), zero, gradient * active);
        store_pairs(bf16, n, out, dz, i);
    }
}

void SIMD_NAME(simd_glu)(enum dtype dtype, int64_t n, float alpha, float limit, const void *z, void *y) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, glu_row(bf16, n, alpha, limit, z, y));
}

void SIMD_NAME(simd_glu_grad)(enum dtype dtype, int64_t n, float alpha, float limit, const void *dy, const void *z,
                              void *dz) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, glu_grad_row(bf16, n, alpha, limit, dy, z, dz));
}

/* The rotation of a head by a row of the table of angles. */

/* Both halves are read before either is written, so that y may be x. */
INLINE void rope_row(bool bf16, int64_t half, float sign, const void *x, const float *table, void *y) {
    for (int64_t i = 0; i < half; i += LANES) {
        int64_t left = half - i;
        vf cosine = load(table, i, left, false), sine = load(table, half + i, left, false) * sign;
        vf low = load(x, i, left, bf16), high = load(x, half + i, left, bf16);
        store(y, i, left, bf16, low * cosine - high * sine);
        store(y, half + i, left, bf16, high * cosine + low * sine);
    }
}

void SIMD_NAME(simd_rope)(enum dtype dtype, int64_t half, float sign, const void *x, const float *table, void *y) {
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16, rope_row(bf16, half, sign, x, table, y));
}

/* ---- rows of logits: the loss's log of the sum of exponentials, and its gradient ---- */

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
    WITH_CONSTANT(bf16, dtype == DTYPE_BF16,
                  WITH_CONSTANT(has_cap, softcap > 0, softmax_row(bf16, has_cap, n, logits, lse, scale, softcap, out)));
}

void SIMD_NAME(simd_soft_cap)(int64_t n, float softcap, float *logits) {
    for (int64_t i = 0; i < n; i += LANES)
        store(logits, i, n - i, false, vf_tanh(load(logits, i, n - i, false) / softcap) * softcap);
}
