/* Activation functions, for one element. */
#pragma once

#include "backend/cuda/kernels/device.cuh"

static_assert(ACTIVATION_COUNT == 4,
              "add the new function to activate(), which computes silu for the rest; then raise this");
/* f(x), and its derivative. gelu_tanh is x sigmoid(2u), since 1 + tanh(u) = 2 sigmoid(2u), without the cancellation. */
__device__ inline float activate(enum activation function, float x, float *slope) {
    if (function == ACTIVATION_RELU) {
        *slope = x > 0 ? 1.0f : 0.0f;
        return 0.0f > x ? 0.0f : x; /* keeps NaN */
    }
    if (function == ACTIVATION_GELU_ERF) {
        float below = normcdff(x);
        *slope = fmaf(x * expf(x * x * -0.5f), 0.39894228f, below);
        return x * below;
    }
    float doubled = x, doubled_slope = 1;
    if (function == ACTIVATION_GELU_TANH) {
        float square = x * x; /* 2u = 2 sqrt(2/pi) (x + 0.044715 x^3) */
        doubled = x * fmaf(square, 0.07135481627f, 1.59576912161f);
        doubled_slope = fmaf(square, 0.2140644488f, 1.59576912161f);
    }
    float gate = 1.0f / (1.0f + expf(-doubled)), value = x * gate;
    *slope = fmaf(value * (1.0f - gate), doubled_slope, gate);
    return value;
}
