#include "scale/layer_cost.h"

#include <math.h>

enum { BYTES = 2 }; /* of an element of activations and weights */

/* One rank's share of a layer for a micro-batch. */
struct share {
    const struct training *job;
    const struct card *card;
    int64_t tokens;   /* of the rank's part of the sequences */
    int64_t across;   /* tensor ranks */
    int64_t keys_out; /* width of queries, keys and values together */
    int64_t ffn_in;   /* width of the MLP's first product */
};

struct rank_group tensor_group(const struct training *job) {
    int64_t ranks = job->layout.tensor, node = job->cluster.network.devices;
    return ranks <= node ? (struct rank_group){ranks, 1} : (struct rank_group){node, (ranks + node - 1) / node};
}

static struct share share_of(const struct training *job, const struct card *card) {
    const struct transformer *model = &job->model;
    const struct layout *layout = &job->layout;
    int64_t head = model->hidden / model->heads;
    return (struct share){
        .job = job,
        .card = card,
        .tokens = layout->micro_batch * layout->sequence_length / layout->context,
        .across = layout->tensor,
        .keys_out = model->hidden + 2 * model->kv_heads * head,
        .ffn_in = (model->gated ? 2 : 1) * model->ffn,
    };
}

static int64_t at_least_one(int64_t value) { return value > 0 ? value : 1; }

/* A weight's product forward; backward those for its input and for itself. */
static double weight_s(const struct share *share, int64_t tokens, int64_t out, int64_t in, bool backward) {
    const struct card *card = share->card;
    if (!backward) return product_s(card, 1, tokens, out, in);
    return product_s(card, 1, tokens, in, out) + product_s(card, 1, in, out, tokens);
}

static double attention_products_s(const struct share *share, bool backward) {
    int64_t hidden = share->job->model.hidden;
    return weight_s(share, share->tokens, at_least_one(share->keys_out / share->across), hidden, backward) +
           weight_s(share, share->tokens, hidden, at_least_one(hidden / share->across), backward);
}

/* A token visits so many experts; their products are as those of as many tokens. */
static double mlp_products_s(const struct share *share, bool backward) {
    const struct transformer *model = &share->job->model;
    int64_t tokens = share->tokens * (model->experts > 0 ? model->experts_a_token : 1);
    return weight_s(share, tokens, at_least_one(share->ffn_in / share->across), model->hidden, backward) +
           weight_s(share, tokens, model->hidden, at_least_one(model->ffn / share->across), backward);
}

static double attention_kernel_s(const struct share *share, bool gradient) {
    const struct layout *layout = &share->job->layout;
    const struct transformer *model = &share->job->model;
    struct attention_shape shape = {.sequences = layout->micro_batch,
                                    .heads = at_least_one(model->heads / share->across),
                                    .queries = layout->sequence_length / layout->context,
                                    .keys = layout->sequence_length,
                                    .head_size = model->hidden / model->heads,
                                    .kind = share->job->system.attention};
    return attention_s(share->card, &shape, gradient);
}

/* Passes over a row, in elements of 16 bits, by elementwise kernels of a layer. Joined: norms read and write a row,
 * additions read two and write one, twice each; queries, keys and values are turned and copied; the activation reads
 * its inputs and writes its result. One by one, RMSNorm is seven kernels in fp32, rotary positions turn fp32 pairs, and
 * SiLU is apart from its product; LayerNorm and GELU are single kernels in either case. */
struct passes {
    double residual, keys, activation; /* over hidden, keys_out, and ffn_in + ffn */
    double kernels;
};
static const struct passes joined = {10, 2, 1, 6}, apart = {10, 2, 1, 12}, apart_gated = {40, 12, 1.7, 40};

static const struct passes *passes_of(const struct training *job) {
    if (job->system.fused) return &joined;
    return job->model.gated ? &apart_gated : &apart;
}

static double elementwise_s(const struct share *share, bool backward) {
    const struct transformer *model = &share->job->model;
    const struct passes *passes = passes_of(share->job);
    double across = (double)share->across, cut = share->job->layout.sequence ? across : 1;
    double active = model->experts > 0 ? (double)model->experts_a_token : 1;
    double elements = passes->residual * (double)model->hidden / cut + passes->keys * (double)share->keys_out / across +
                      passes->activation * active * (double)(share->ffn_in + model->ffn) / across;
    double traffic = (backward ? 1.5 : 1) * share->card->calibration->elementwise_traffic;
    double bytes = traffic * BYTES * (double)share->tokens * elements;
    return streaming_s(share->card, bytes) + (passes->kernels - 1) * share->card->calibration->kernel_s;
}

/* Two all-reduces of the layer's result each way, or as many pairs of gather and scatter. Experts' tokens are exchanged
 * within the data-parallel group in addition: not counted here. */
static double tensor_exchange_s(const struct share *share, const struct fabric *fabric, bool backward) {
    const struct training *job = share->job;
    double bytes = (double)share->tokens * (double)job->model.hidden * BYTES;
    const struct training_system *system = &job->system;
    bool overlaps = backward ? system->overlaps_tensor_backward : system->overlaps_tensor_forward;
    double shown = overlaps ? 1 - share->card->calibration->tensor_hidden : 1;
    if (share->across == 1) return 0;
    if (!job->layout.sequence) return shown * 2 * collective_s(fabric, COLLECTIVE_ALL_REDUCE, bytes, tensor_group(job));
    return shown * 2 *
           (collective_s(fabric, COLLECTIVE_ALL_GATHER, bytes, tensor_group(job)) +
            collective_s(fabric, COLLECTIVE_REDUCE_SCATTER, bytes, tensor_group(job)));
}

/* Kernels of a layer's pass: products, attention, elementwise, collectives. A product's gradient is two. */
static double pass_kernels(const struct share *share, bool backward) {
    const struct passes *passes = passes_of(share->job);
    double attention = share->job->system.attention == ATTENTION_SCORES ? 5 : 1,
           collectives = share->across > 1 ? 2 : 0;
    return passes->kernels + (backward ? 2 : 1) * (4 + attention) + collectives;
}

/* Ranks of a tensor group wait for the slowest of them: the mean of the largest of n times that are spread
 * exponentially is theirs times 1 + 1/2 + ... + 1/n. */
static double slowest_of(int64_t ranks) {
    double sum = 0;
    for (int64_t i = 1; i <= ranks; i++)
        sum += 1 / (double)i;
    return sum;
}

static double launches_s(const struct share *share, bool backward) {
    if (!share->job->system.blocks_launches) return 0;
    return pass_kernels(share, backward) * share->card->calibration->launch_s * slowest_of(share->across);
}

/* Keys and values go around the context group; the part that attention does not hide is not counted. */
static double recomputed_s(const struct share *share, double forward_s) {
    switch (share->job->layout.recomputation) {
    case RECOMPUTE_FULL: return forward_s;
    case RECOMPUTE_HALF: return forward_s / 2;
    case RECOMPUTE_ATTENTION: return attention_kernel_s(share, false);
    default: return 0;
    }
}

static struct pass_cost layer_cost(const struct share *share, const struct fabric *fabric) {
    double forward = attention_products_s(share, false) + mlp_products_s(share, false) +
                     attention_kernel_s(share, false) + elementwise_s(share, false) +
                     tensor_exchange_s(share, fabric, false) + launches_s(share, false);
    double backward = attention_products_s(share, true) + mlp_products_s(share, true) +
                      attention_kernel_s(share, true) + elementwise_s(share, true) +
                      tensor_exchange_s(share, fabric, true) + launches_s(share, true);
    return (struct pass_cost){forward, recomputed_s(share, forward), backward};
}

/* Systems pad the vocabulary's rows, so that products with them are aligned. */
static int64_t padded(int64_t rows) { return (rows + 127) / 128 * 128; }

/* Logits are written, read for the loss and its gradient, and turned to fp32 where the system does that. */
static struct pass_cost head_cost(const struct share *share) {
    const struct transformer *model = &share->job->model;
    int64_t vocab = padded(model->vocab / share->across);
    double logits = (double)share->tokens * (double)vocab;
    double bytes = share->job->system.fp32_loss ? 14 : 4;
    return (struct pass_cost){
        .forward_s =
            weight_s(share, share->tokens, vocab, model->hidden, false) + streaming_s(share->card, bytes * logits),
        .backward_s =
            weight_s(share, share->tokens, vocab, model->hidden, true) + streaming_s(share->card, bytes * logits),
    };
}

static struct pass_cost embedding_cost(const struct share *share) {
    double bytes = 2 * BYTES * (double)share->tokens * (double)share->job->model.hidden;
    return (struct pass_cost){.forward_s = streaming_s(share->card, bytes),
                              .backward_s = streaming_s(share->card, 2 * bytes)};
}

void layer_costs_find(const struct training *job, const struct card *card, const struct fabric *fabric,
                      struct layer_costs *out) {
    struct share share = share_of(job, card);
    /* AdamW reads and writes two moments and the master weight in fp32, reads a gradient, writes a weight; the norm and
     * its clipping read and write gradients before. */
    double adam = 6 * 4 + (double)job->system.gradient_bytes + 2, norm = 3 * (double)job->system.gradient_bytes;
    *out = (struct layer_costs){.layer = layer_cost(&share, fabric),
                                .embedding = embedding_cost(&share),
                                .head = head_cost(&share),
                                .parameter_s = (adam + norm) / card->bytes_per_s};
}
