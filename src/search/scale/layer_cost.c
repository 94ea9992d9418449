#include "search/scale/layer_cost.h"

#include <math.h>

enum { WEIGHT_BYTES = 2 };

/* Data-parallel ranks, including context ranks, which hold the same weights. */
static int64_t data_ranks(const struct training *job) { return job->layout.data * job->layout.context; }

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static int64_t data_in_node(const struct training *job) {
    int64_t in_node = job->cluster.network.devices / job->layout.tensor;
    return smaller(in_node > 0 ? in_node : 1, data_ranks(job));
}

/* A group of so many neighbors, which fill a node first. */
static struct rank_group near_group(const struct training *job, int64_t ranks) {
    int64_t in_node = smaller(ranks, data_in_node(job));
    return (struct rank_group){in_node, (ranks + in_node - 1) / in_node};
}

/* A group of so many ranks, one from each group of `apart` neighbors. */
static struct rank_group far_group(const struct training *job, int64_t ranks, int64_t apart) {
    int64_t in_node = data_in_node(job) / smaller(apart, data_in_node(job));
    in_node = smaller(in_node > 0 ? in_node : 1, ranks);
    return (struct rank_group){in_node, (ranks + in_node - 1) / in_node};
}

/* Data-parallel ranks that share experts: neighbors, which fill a node first. */
static struct rank_group expert_group(const struct training *job) {
    return near_group(job, layout_expert_ranks(&job->layout));
}

/* In `calls` equal parts, one after the other. */
static struct collective_load collective_load_of(const struct fabric *fabric, enum comm_kind kind, double bytes,
                                                 int64_t calls, struct rank_group group) {
    double parts = (double)calls, seconds = parts * collective_s(fabric, kind, bytes / parts, group);
    double moved = (kind == COMM_ALL_REDUCE ? 2 : 1) * bytes;
    double busy = seconds > 0 ? moved / seconds / fabric->link_bytes_per_s : 0;
    return (struct collective_load){seconds, fmin(1, busy)};
}

/* A collective among `ranks` that hold shards of parameters, with so many calls for the piece of each. */
static struct collective_load shard_collective(const struct job_costs *costs, enum comm_kind kind, double bytes,
                                               int64_t ranks, int64_t calls) {
    const struct training *job = costs->job;
    struct collective_load out =
        collective_load_of(&costs->fabric, kind, bytes, job->system.gathers, near_group(job, ranks));
    double piece_s = (double)calls * costs->gpu.calibration->kernel_s;
    if (ranks > 1) out.seconds += (double)(job->system.gathers * ranks) * piece_s;
    return out;
}

static struct collective_load gather_among(const struct job_costs *costs, double parameters, int64_t ranks) {
    return shard_collective(costs, COMM_ALL_GATHER, WEIGHT_BYTES * parameters, ranks, costs->job->system.gather_calls);
}

struct collective_load partition_gather(const struct job_costs *costs, double parameters) {
    return gather_among(costs, parameters, costs->job->layout.partition.parameters);
}

struct collective_load partition_gather_again(const struct job_costs *costs, double parameters) {
    int64_t second = costs->job->layout.second_parameters;
    return gather_among(costs, parameters, second > 0 ? second : costs->job->layout.partition.parameters);
}

/* Ballast reduce-scatters over all ranks; then ranks with the same shard gather it (search/policy_bound.h). */
static struct collective_load own_scatter(const struct job_costs *costs, double bytes) {
    const struct training *job = costs->job;
    int64_t cut = job->layout.partition.gradients, ranks = data_ranks(job);
    struct collective_load out =
        collective_load_of(&costs->fabric, COMM_REDUCE_SCATTER, bytes, 1, near_group(job, ranks));
    if (cut == ranks) return out;
    struct collective_load gather =
        collective_load_of(&costs->fabric, COMM_ALL_GATHER, bytes / (double)cut, 1, far_group(job, ranks / cut, cut));
    return (struct collective_load){out.seconds + gather.seconds, fmax(out.link_part, gather.link_part)};
}

struct collective_load partition_scatter(const struct job_costs *costs, double parameters) {
    const struct training *job = costs->job;
    double bytes = (double)job->system.gradient_bytes * parameters;
    if (system_has(&job->system, OWN_KERNELS)) return own_scatter(costs, bytes);
    return shard_collective(costs, COMM_REDUCE_SCATTER, bytes, job->layout.partition.parameters,
                            job->system.scatter_calls);
}

/* Number of ranks that share an update cut `cut` times, among ranks that hold the same parameters. */
static int64_t owners_of(int64_t cut, int64_t apart) { return cut > apart ? cut / apart : 1; }

/* If every rank owns a part of the update and gets new weights from an all-gather, the sum is a reduce-scatter. */
struct collective_load partition_reduce(const struct job_costs *costs, double parameters, bool experts) {
    const struct training *job = costs->job;
    const struct partition_triple *cut = &job->layout.partition;
    bool own = system_has(&job->system, OWN_KERNELS);
    bool scatters =
        own ? cut->gradients > 1 : cut->optimizer == data_ranks(job) && !system_has(&job->system, BROADCASTS);
    if (own && cut->parameters > 1) return (struct collective_load){0, 0}; /* partition_scatter adds over all ranks */
    double bytes = (double)job->system.gradient_bytes * parameters / (double)cut->parameters;
    int64_t apart = experts ? layout_expert_ranks(&job->layout) : cut->parameters;
    struct rank_group group = far_group(job, data_ranks(job) / apart, apart);
    return collective_load_of(&costs->fabric, scatters ? COMM_REDUCE_SCATTER : COMM_ALL_REDUCE, bytes, 1, group);
}

struct collective_load partition_update(const struct job_costs *costs, double parameters, bool experts) {
    const struct training *job = costs->job;
    const struct partition_triple *cut = &job->layout.partition;
    int64_t apart = experts ? layout_expert_ranks(&job->layout) : cut->parameters;
    int64_t owners = owners_of(cut->optimizer, apart);
    double bytes = WEIGHT_BYTES * parameters / (double)cut->parameters;
    struct collective_load out =
        collective_load_of(&costs->fabric, COMM_ALL_GATHER, bytes, 1, far_group(job, owners, apart));
    if (owners > 1 && system_has(&job->system, BROADCASTS))
        out.seconds += (double)owners * costs->gpu.calibration->broadcast_s;
    return out;
}

enum { BYTES = 2 }; /* per element of activations and weights */

struct rank_group tensor_group(const struct training *job) {
    int64_t ranks = job->layout.tensor, node = job->cluster.network.devices;
    return ranks <= node ? (struct rank_group){ranks, 1} : (struct rank_group){node, (ranks + node - 1) / node};
}

static struct layer_share share_of(const struct job_costs *costs) {
    const struct training *job = costs->job;
    const struct transformer *model = &job->model;
    const struct layout *layout = &job->layout;
    return (struct layer_share){
        .job = job,
        .gpu = &costs->gpu,
        .fabric = &costs->fabric,
        .tokens = layout->micro_batch * layout->sequence_length / layout->context,
        .across = layout->tensor,
        .keys_out = transformer_query_width(model) + 2 * model->kv_heads * transformer_head_size(model),
        .ffn_in = (model->gated ? 2 : 1) * model->ffn,
    };
}

static int64_t one_or_more(int64_t value) { return value > 0 ? value : 1; }

static bool is_own(const struct layer_share *share) { return system_has(&share->job->system, OWN_KERNELS); }

double weight_s(const struct layer_share *share, int64_t count, int64_t tokens, int64_t out, int64_t in,
                bool backward) {
    const struct gpu *gpu = share->gpu;
    if (!backward) return product_s(gpu, count, tokens, out, in);
    double input = product_s(gpu, count, tokens, in, out);
    if (!training_sums_by_product(share->job)) return input + product_s(gpu, count, in, out, tokens);
    return input + product_sum_s(gpu, count, in, out, tokens, share->job->system.gradient_bytes);
}

static double attention_products_s(const struct layer_share *share, bool backward) {
    int64_t hidden = share->job->model.hidden, queries = transformer_query_width(&share->job->model);
    double inputs = 0;
    if (is_own(share) && share->job->model.gated) { /* one GEMM each, like the decoders' weights */
        int64_t keys = (share->keys_out - queries) / 2;
        inputs = weight_s(share, 1, share->tokens, one_or_more(queries / share->across), hidden, backward) +
                 2 * weight_s(share, 1, share->tokens, one_or_more(keys / share->across), hidden, backward);
    } else {
        inputs = weight_s(share, 1, share->tokens, one_or_more(share->keys_out / share->across), hidden, backward);
    }
    return inputs + weight_s(share, 1, share->tokens, hidden, one_or_more(queries / share->across), backward);
}

/* A token visits so many experts. Each of a rank's experts has as many tokens as the others, in one batched GEMM. */
static double mlp_products_s(const struct layer_share *share, bool backward) {
    const struct transformer *model = &share->job->model;
    int64_t mine = one_or_more(model->experts / layout_expert_ranks(&share->job->layout));
    int64_t experts_per_token = model->experts > 0 ? model->experts_a_token : 1,
            tokens = one_or_more(share->tokens * experts_per_token / mine);
    int64_t in = one_or_more(share->ffn_in / share->across), out = one_or_more(model->ffn / share->across);
    double router = model->experts > 0 ? weight_s(share, 1, share->tokens, model->experts, model->hidden, backward) : 0;
    int64_t parts = is_own(share) && model->gated ? 2 : 1;
    return router + (double)parts * weight_s(share, mine, tokens, in / parts, model->hidden, backward) +
           weight_s(share, mine, tokens, model->hidden, out, backward);
}

struct attention_shape share_attention(const struct layer_share *share) {
    const struct layout *layout = &share->job->layout;
    const struct transformer *model = &share->job->model;
    return (struct attention_shape){.sequences = layout->micro_batch,
                                    .heads = one_or_more(model->heads / share->across),
                                    .queries = layout->sequence_length / layout->context,
                                    .keys = layout->sequence_length,
                                    .head_size = transformer_head_size(model)};
}

/* ---- Ballast's operators ---- */

/* `count` kernels, each of so many elements of 16 bits of each token. */
static double own_s(const struct layer_share *share, enum op_work work, int64_t count, double elements) {
    return (double)count * class_streaming_s(share->gpu, work, BYTES * (double)share->tokens * elements);
}

/* A norm reads and writes its row; an activation reads its inputs and writes its result. */
static double own_norms_s(const struct layer_share *share, double cut) {
    const struct transformer *model = &share->job->model;
    double activation = (double)(share->ffn_in + model->ffn) / (double)share->across;
    return own_s(share, OP_WORK_NORM, 2, 2 * (double)model->hidden / cut) + own_s(share, OP_WORK_STREAM, 1, activation);
}

/* Next to the tensor group's collectives, which add in fp32: activations are converted before and after. All-reduced:
 * residuals are added by kernels of their own, and the input of the group's weights is copied. Cut along the sequence:
 * positions are put in the order of the parts and back, and a rank takes its part of a sum. */
static double own_tensor_s(const struct layer_share *share, bool backward) {
    double hidden = (double)share->job->model.hidden, part = hidden / (double)share->across;
    const struct transfer_rate *zero = &share->job->cluster.rates.zero;
    if (share->across == 1) return 0;
    if (!share->job->layout.sequence) {
        double converts = own_s(share, OP_WORK_STREAM, 4, 3 * hidden);
        if (backward) return converts;
        return converts + own_s(share, OP_WORK_STREAM, 2, 3 * hidden) + own_s(share, OP_WORK_STREAM, 2, 2 * hidden);
    }
    double taken = 2 * (zero->latency_s + share->gpu->kernel_s + 8 * (double)share->tokens * part / zero->bytes_per_s);
    double order = own_s(share, OP_WORK_STREAM, backward ? 4 : 2, 2 * hidden);
    double sums = backward ? 0 : own_s(share, OP_WORK_STREAM, 2, 3 * part);
    return own_s(share, OP_WORK_STREAM, 2, 3 * hidden) + own_s(share, OP_WORK_STREAM, 2, 3 * part) + order + sums +
           taken;
}

/* Norms, rotary positions, activations, and residual sums that no GEMM has. */
static double own_elementwise_s(const struct layer_share *share, bool backward) {
    const struct transformer *model = &share->job->model;
    double across = (double)share->across, cut = share->job->layout.sequence ? across : 1;
    double queries = (double)transformer_query_width(model), keys = ((double)share->keys_out - queries) / 2;
    double seconds = own_tensor_s(share, backward);
    if (model->gated)
        seconds +=
            own_s(share, OP_WORK_STREAM, 1, 2 * queries / across) + own_s(share, OP_WORK_STREAM, 1, 2 * keys / across);
    if (!backward) return seconds + own_norms_s(share, cut);
    /* A norm reads its gradient and its row, and adds to the residual's gradient. */
    double norm_bytes = 4 * BYTES * (double)share->tokens * (double)model->hidden / cut;
    return seconds + 2 * norm_gradient_s(share->gpu, model->hidden, norm_bytes) +
           own_s(share, OP_WORK_STREAM, 1, (double)(2 * share->ffn_in + model->ffn) / across);
}

double collective_start_s(const struct training *job) {
    const struct cluster_rates *rates = &job->cluster.rates;
    return system_has(&job->system, OWN_KERNELS) ? rates->issue_s + 2 * rates->wake_s : 0;
}

/* A collective of the layer's activations, for which kernels wait. */
static double own_collective_s(const struct layer_share *share, enum comm_kind kind) {
    const struct training *job = share->job;
    double bytes = (double)share->tokens * (double)job->model.hidden * BYTES;
    return collective_s(share->fabric, kind, bytes, tensor_group(job)) + collective_start_s(job);
}

/* Attention and the MLP each all-reduce their result in forward and their input's gradient in backward. Sequence
 * parallelism (arXiv 2205.05198, section 4.2.2) gathers before and scatters after, in both directions. */
static double own_tensor_communication_s(const struct layer_share *share, bool backward) {
    (void)backward;
    if (share->across == 1) return 0;
    if (!share->job->layout.sequence) return 2 * own_collective_s(share, COMM_ALL_REDUCE);
    return 2 * (own_collective_s(share, COMM_ALL_GATHER) + own_collective_s(share, COMM_REDUCE_SCATTER));
}

/* Tokens go to the ranks of the experts that they visit, and their results back; backward the same with gradients. All
 * ranks send as much; nothing is computed meanwhile. */
static double expert_all_to_all_s(const struct layer_share *share) {
    const struct training *job = share->job;
    double cut = job->layout.sequence ? (double)share->across : 1;
    double bytes = BYTES * (double)share->tokens / cut * (double)job->model.experts_a_token * (double)job->model.hidden;
    if (layout_expert_ranks(&job->layout) == 1) return 0;
    return 2 * collective_s(share->fabric, COMM_ALL_TO_ALL, bytes, expert_group(job));
}

/* Keys and values go around the context group; the part that attention does not hide is not counted. */
static double recomputed_s(const struct layer_share *share, double forward_s) {
    switch (share->job->layout.recomputation) {
    case RECOMPUTE_FULL: return forward_s;
    case RECOMPUTE_HALF: return forward_s / 2;
    case RECOMPUTE_ATTENTION: return share->job->system.ways->attention_s(share, false);
    case RECOMPUTE_NORMS:
        return is_own(share) ? own_norms_s(share, share->job->layout.sequence ? (double)share->across : 1) : 0;
    default: return 0;
    }
}

static double layer_pass_s(const struct layer_share *share, bool backward) {
    const struct system_ways *ways = share->job->system.ways;
    double seconds = attention_products_s(share, backward) + mlp_products_s(share, backward) +
                     ways->attention_s(share, backward) + ways->elementwise_s(share, backward) +
                     ways->tensor_s(share, backward) + expert_all_to_all_s(share);
    return ways->launches_s ? seconds + ways->launches_s(share, backward) : seconds;
}

void layer_costs_find(struct job_costs *costs) {
    struct layer_share share = share_of(costs);
    double forward = layer_pass_s(&share, false);
    costs->layers.layer = (struct pass_cost){forward, recomputed_s(&share, forward), layer_pass_s(&share, true)};
    costs->job->system.ways->find_ends(&share, &costs->layers);
}

/* A tensor group sums the embedding, whose rows are split over its ranks, and the head's input gradient. */
static double own_sum_s(const struct layer_share *share) {
    if (share->across == 1) return 0;
    return own_collective_s(share, COMM_ALL_REDUCE) +
           own_s(share, OP_WORK_STREAM, 2, 3 * (double)share->job->model.hidden);
}

/* The backward multiplies anew for its logits, and again for both gradients, and has the loss between them; a tensor
 * group joins what its parts of the vocabulary say of it before. Behind a last norm. */
static struct pass_cost own_head_cost(const struct layer_share *share) {
    const struct transformer *model = &share->job->model;
    int64_t vocab = (model->vocab + share->across - 1) / share->across;
    double logits = (double)share->tokens * (double)vocab, row = (double)model->hidden;
    double bytes = BYTES * (double)share->tokens * row;
    struct pass_cost cost = {.forward_s = own_s(share, OP_WORK_NORM, 1, 2 * row)};
    if (share->across > 1)
        cost.forward_s += head_products_s(share->gpu, 1, share->tokens, vocab, model->hidden) +
                          class_streaming_s(share->gpu, OP_WORK_LOSS, 4 * logits);
    cost.backward_s = head_products_s(share->gpu, 3, share->tokens, vocab, model->hidden) +
                      class_streaming_s(share->gpu, OP_WORK_LOSS_GRAD, 6 * logits) +
                      norm_gradient_s(share->gpu, model->hidden, 3 * bytes) + own_sum_s(share);
    return cost;
}

/* Rows of 16 bits are read and written; of the gradient rows in fp32. */
static struct pass_cost own_embedding_cost(const struct layer_share *share) {
    double row = (double)share->job->model.hidden;
    return (struct pass_cost){.forward_s = own_s(share, OP_WORK_LOOKUP, 1, 2 * row) + own_sum_s(share),
                              .backward_s = own_s(share, OP_WORK_LOOKUP_GRAD, 1, 5 * row)};
}

/* The weight in 16 bits, its gradient, and master weight and two moments in fp32, all but the gradient written too. */
static const double ADAMW_BYTES = 30;

static void own_ends(const struct layer_share *share, struct layer_costs *out) {
    const struct gpu *gpu = share->gpu;
    out->embedding = own_embedding_cost(share);
    out->head = own_head_cost(share);
    out->parameter_s =
        ADAMW_BYTES / gpu->class_bytes_per_s[OP_WORK_OPTIMIZER] + 4 / gpu->class_bytes_per_s[OP_WORK_SQUARED_NORM];
    out->gradient_zero_s = 4 / share->job->cluster.rates.zero.bytes_per_s;
}

/* Each micro-batch's gradients start from zeros, and the shard of their sum is added to the others'. */
static double own_gradient_s(const struct job_costs *costs, double parameters) {
    const struct training *job = costs->job;
    if (job->layout.partition.parameters == 1) return 0;
    double moved = 4 + 12 / (double)job->layout.partition.gradients;
    return moved * parameters / job->cluster.rates.zero.bytes_per_s;
}

static struct gpu own_gpu(const struct training *job, const struct calibration *calibration) {
    struct gpu gpu = gpu_describe_own(&job->cluster.device, calibration, ROOFLINE_EXPECTED);
    gpu.kernel_s = job->cluster.rates.issue_s;
    return gpu;
}

static double own_attention_s(const struct layer_share *share, bool gradient) {
    struct attention_shape shape = share_attention(share);
    return attention_s(share->gpu, &shape, gradient);
}

/* Layers of the last part, next to the head, for which the fullest part takes least; the others have as many as each
 * other. Ballast cuts stages by what blocks take (plan/layout/pipeline.h). */
static int64_t own_last_layers(const struct job_costs *costs, int64_t parts) {
    double head = pass_s(&costs->layers.head) / pass_s(&costs->layers.layer);
    int64_t layers = costs->job->model.layers, max = layers - (parts - 1), best = 1;
    int64_t level = (int64_t)fmax(((double)layers + head) / (double)parts - head, 1);
    double best_max = INFINITY;
    for (int64_t count = level; count <= level + 1 && count <= max; count++) {
        double fullest = fmax((double)((layers - count + parts - 2) / (parts - 1)), (double)count + head);
        if (fullest < best_max) best_max = fullest, best = count;
    }
    return best;
}

static int64_t own_part_layers(const struct job_costs *costs, int64_t parts, int64_t part) {
    int64_t last = own_last_layers(costs, parts), others = costs->job->model.layers - last;
    if (part == parts - 1) return last;
    return others / (parts - 1) + (part >= parts - 1 - others % (parts - 1));
}

static const struct system_ways own_ways = {.gpu = own_gpu,
                                            .attention_s = own_attention_s,
                                            .elementwise_s = own_elementwise_s,
                                            .tensor_s = own_tensor_communication_s,
                                            .find_ends = own_ends,
                                            .gradient_s = own_gradient_s,
                                            .part_layers = own_part_layers};

/* Fused attention, everything that moves overlapped with compute, gradients in fp32. */
const struct training_system training_system_ballast = {.name = "Ballast",
                                                        .ways = &own_ways,
                                                        .gradient_bytes = 4,
                                                        .state_bytes = 18,
                                                        .traits = OWN_KERNELS | SUMS_BY_PRODUCT | OVERLAPS_PARAMETERS |
                                                                  OVERLAPS_GRADIENTS,
                                                        .gathers = 1};
