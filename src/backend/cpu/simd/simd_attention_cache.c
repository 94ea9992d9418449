/* Attention of a single query: a dot product for each key, a softmax, a weighted sum. For generating text, where tiles
 * of queries would be nearly empty. */
#include <math.h>

#include "backend/cpu/simd/simd.h"

/* Keys that are worked on side by side, so that their chains of additions overlap. */
enum { KEYS = 4 };

INLINE void query_scores(bool bf16, const struct attention_query *query, float *scores) {
    int64_t dim = query->head_dim, stride = query->k_stride;
    for (int64_t key = 0; key < query->keys; key += KEYS) {
        vf sums[KEYS] = {{0}};
        for (int64_t i = 0; i < dim; i += LANES) {
            vf q = load(query->q, i, dim - i, bf16);
            for (int64_t n = 0; n < KEYS; n++) {
                int64_t row = key + n < query->keys ? key + n : key;
                sums[n] = vf_fma(q, load(query->k, row * stride + i, dim - i, bf16), sums[n]);
            }
        }
        for (int64_t n = 0; n < KEYS && key + n < query->keys; n++)
            scores[key + n] = vf_sum(sums[n]) * query->scale;
    }
}

static void query_cap(int64_t keys, float softcap, float *scores) {
    for (int64_t key = 0; key < keys; key += LANES)
        store(scores, key, keys - key, false, vf_tanh(load(scores, key, keys - key, false) / softcap) * softcap);
}

/* Scores become exponentials; returns their sum and the sink's. */
static float query_exponentials(int64_t keys, float sink, float *scores) {
    float largest = sink;
    for (int64_t key = 0; key < keys; key++)
        largest = scores[key] > largest ? scores[key] : largest;
    vf total = {0};
    for (int64_t key = 0; key < keys; key += LANES) {
        vf value = keep(vf_exp(load(scores, key, keys - key, false) - largest), keys - key);
        store(scores, key, keys - key, false, value);
        total += value;
    }
    return vf_sum(total) + expf(sink - largest);
}

static void query_round(int64_t keys, float *weights) {
    for (int64_t key = 0; key < keys; key += LANES)
        store(weights, key, keys - key, false, bf16_widen(bf16_round(load(weights, key, keys - key, false))));
}

INLINE void query_mix(bool bf16, const struct attention_query *query, const float *weights, float factor) {
    int64_t dim = query->head_dim;
    for (int64_t i = 0; i < dim; i += LANES) {
        vf sums[KEYS] = {{0}};
        for (int64_t key = 0; key < query->keys; key += KEYS)
            for (int64_t n = 0; n < KEYS && key + n < query->keys; n++)
                sums[n] = vf_fma(vf_set(weights[key + n]),
                                 load(query->v, (key + n) * query->v_stride + i, dim - i, bf16), sums[n]);
        store(query->y, i, dim - i, bf16, (sums[0] + sums[1] + (sums[2] + sums[3])) * factor);
    }
}

void SIMD_NAME(simd_attention_query)(const struct attention_query *query, float *scores) {
    bool bf16 = query->dtype == DTYPE_BF16;
    if (bf16)
        query_scores(true, query, scores);
    else
        query_scores(false, query, scores);
    if (query->softcap > 0) query_cap(query->keys, query->softcap, scores);
    float factor = 1.0f / query_exponentials(query->keys, query->sink, scores);
    if (query->rounds) query_round(query->keys, scores);
    if (bf16)
        query_mix(true, query, scores, factor);
    else
        query_mix(false, query, scores, factor);
}
