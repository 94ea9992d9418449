#include "report/console/plan_table.h"

#include <math.h>

#include "base/text.h"
#include "plan/activations.h"
#include "plan/layout/pipeline.h"
#include "report/console/profile_table.h"
#include "session/programs.h"

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* The policy's traits as text; "" for those of the plain policy. */
enum trait {
    TRAIT_MICRO_BATCHES,
    TRAIT_HOST,
    TRAIT_DISK,
    TRAIT_STAY,
    TRAIT_UPDATE,
    TRAIT_SENT_HOST,
    TRAIT_SENT_DISK,
    TRAIT_AGAIN,
    TRAIT_TILES,
    TRAIT_LOOKAHEAD,
    TRAIT_SHARDS,
    TRAIT_FLAT,
    TRAIT_SELECTIVE_RECOMPUTE,
    TRAIT_COUNT
};
static const char *const default_texts[TRAIT_COUNT] = {
    [TRAIT_MICRO_BATCHES] = "",
    [TRAIT_HOST] = "no states on the host",
    [TRAIT_DISK] = "no states on the disk",
    [TRAIT_STAY] = "no chunk stays on the device",
    [TRAIT_UPDATE] = "updated on the device",
    [TRAIT_SENT_HOST] = "no activations on the host",
    [TRAIT_SENT_DISK] = "no activations on the disk",
    [TRAIT_AGAIN] = "no recomputed blocks",
    [TRAIT_TILES] = "MLPs on all tokens at once",
    [TRAIT_LOOKAHEAD] = "no prefetching",
    [TRAIT_SHARDS] = "all states on each rank",
    [TRAIT_FLAT] = "hierarchical collectives",
    [TRAIT_SELECTIVE_RECOMPUTE] = "keeps outputs of norms and activation functions",
};
enum { TRAIT_BYTES = 80 };
struct traits {
    char text[TRAIT_COUNT][TRAIT_BYTES];
};

#define ADD(trait, ...) text_add(out->text[trait], TRAIT_BYTES, __VA_ARGS__)

/* The states with this home tier: "gradients and optimizer state on the disk". */
static bool add_tier(struct traits *out, enum trait trait, const struct policy *policy, enum tier tier) {
    static const char *const names[] = {"parameters", "gradients", "optimizer state"};
    const enum tier home_tiers[] = {policy->parameters, policy->gradients, policy->optimizer};
    int count = 0, named = 0;
    for (int i = 0; i < 3; i++)
        count += home_tiers[i] == tier;
    if (count == 0) return false;
    for (int i = 0; i < 3; i++) {
        if (home_tiers[i] != tier) continue;
        ADD(trait, "%s%s", named == 0 ? "" : named == count - 1 ? " and " : ", ", names[i]);
        named++;
    }
    ADD(trait, " on the %s", tier_name(tier));
    return true;
}

static void describe_states(const struct policy *policy, struct traits *out) {
    bool moves = add_tier(out, TRAIT_HOST, policy, TIER_HOST);
    moves |= add_tier(out, TRAIT_DISK, policy, TIER_DISK);
    if (moves && policy->persistent_chunks == 1) ADD(TRAIT_STAY, "the first chunk stays on the device");
    if (moves && policy->persistent_chunks > 1)
        ADD(TRAIT_STAY, "the first %" PRId64 " chunks stay on the device", policy->persistent_chunks);
    if (policy->update == TIER_HOST) ADD(TRAIT_UPDATE, "updated on the host");
    if (moves && policy->lookahead > 0) ADD(TRAIT_LOOKAHEAD, "prefetches one block ahead");
    if (moves && policy->lookahead == 0 && policy->update_ahead > 0) ADD(TRAIT_LOOKAHEAD, "updates one block ahead");
}

static void describe_schedule(const struct policy *policy, int32_t blocks, struct traits *out) {
    static const enum trait sent[TIER_COUNT] = {[TIER_HOST] = TRAIT_SENT_HOST, [TIER_DISK] = TRAIT_SENT_DISK};
    AUTO(activation_steps_free) struct activation_steps steps = {0};
    int64_t moved[TIER_COUNT] = {0}, forwards = 0;
    enum status status = activations_parse(policy->schedule, blocks, &steps);
    for (size_t s = 0; s < steps.list.count && status == STATUS_OK; s++) {
        const struct activation_step *step = &steps.list.items[s];
        if (step->action == ACTIVATION_MOVE) moved[step->tier]++;
        forwards += step->action == ACTIVATION_FORWARD;
    }
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (moved[tier] > 0)
            ADD(sent[tier], "activations of %" PRId64 " of %" PRId32 " blocks on the %s", moved[tier], blocks,
                tier_name(tier));
    if (forwards > blocks)
        ADD(TRAIT_AGAIN, "recomputes %" PRId64 " block%s", forwards - blocks, plural(forwards - blocks));
}

static void find_traits(const struct policy *policy, int32_t blocks, struct traits *out) {
    const struct partition *cut = &policy->partition;
    *out = (struct traits){0};
    ADD(TRAIT_MICRO_BATCHES, "%" PRId64 " micro-batch%s per wave", policy->micro_batches_per_wave,
        policy->micro_batches_per_wave == 1 ? "" : "es");
    if (policy->tile_tokens > 0) ADD(TRAIT_TILES, "MLPs in tiles of %" PRId64 " tokens", policy->tile_tokens);
    if (policy->selective_recompute) ADD(TRAIT_SELECTIVE_RECOMPUTE, "recomputes norms and activation functions");
    describe_states(policy, out);
    describe_schedule(policy, blocks, out);
    if (partition_cuts(cut))
        ADD(TRAIT_SHARDS, "%d|%d|%d shards of parameters, gradients and optimizer state",
            partition_width(cut->parameters), partition_width(cut->gradients), partition_width(cut->optimizer));
    if (policy->flat) ADD(TRAIT_FLAT, "flat collectives");
}

char *policy_text(const struct policy *policy, int32_t blocks, char text[POLICY_TEXT_BYTES]) {
    struct traits traits;
    int parts = 0;
    find_traits(policy, blocks, &traits);
    text[0] = '\0';
    for (int i = 0; i < TRAIT_COUNT; i++) {
        if (i == TRAIT_SELECTIVE_RECOMPUTE && parts == 1) text_add(text, POLICY_TEXT_BYTES, "; all on the device");
        if (traits.text[i][0]) text_add(text, POLICY_TEXT_BYTES, "%s%s", parts++ > 0 ? "; " : "", traits.text[i]);
    }
    return text;
}

char *policy_difference_text(const struct policy *policy, const struct policy *chosen, int32_t blocks,
                             char text[POLICY_TEXT_BYTES]) {
    struct traits mine, theirs;
    find_traits(policy, blocks, &mine);
    find_traits(chosen, blocks, &theirs);
    text[0] = '\0';
    for (int i = 0; i < TRAIT_COUNT; i++)
        if (strcmp(mine.text[i], theirs.text[i]) != 0)
            text_add(text, POLICY_TEXT_BYTES, "%s%s", text[0] ? "; " : "",
                     mine.text[i][0] ? mine.text[i] : default_texts[i]);
    if (!text[0])
        text_add(text, POLICY_TEXT_BYTES, "%s",
                 strcmp(policy->schedule, chosen->schedule) != 0 ? "the same number of other blocks"
                                                                 : "chunks of another size");
    return text;
}

static void print_gain(FILE *out, const struct layout_report *report) {
    fprintf(out, "\nlayout: chosen by the solver, %.4g s per micro-batch in its cost model", report->seconds);
    if (!report->megatron.nodes)
        fprintf(out, "; Megatron-LM's layout is not divisible by the ranks\n");
    else if (isnan(report->megatron_s))
        fprintf(out, "; Megatron-LM's layout is not among its strategies\n");
    else
        fprintf(out, ", %.1f%% less than the %.4g s of Megatron-LM's layout\n",
                100 * (1 - report->seconds / report->megatron_s), report->megatron_s);
}

void layout_table_print(FILE *out, const struct layout_report *report) {
    char own[LAYOUT_REPORT_TEXT], other[LAYOUT_REPORT_TEXT];
    print_gain(out, report);
    for (size_t n = 0; n < report->graph->nodes.count; n++) {
        const struct node *node = report->graph->nodes.items[n];
        if (layout_report_differs(report, node))
            fprintf(out, "  %-28s %s; Megatron-LM: %s\n", node->name, layout_report_print(node, &report->chosen, own),
                    layout_report_print(node, &report->megatron, other));
    }
}

static void print_mesh(FILE *out, const struct rank_place *place) {
    const struct mesh *mesh = &place->mesh;
    fprintf(out, "\nranks     %d: %d node%s of %d", mesh_ranks(mesh), mesh->nodes, mesh->nodes == 1 ? "" : "s",
            mesh->per_node);
    if (rank_place_tensor_parallel(place) > 1) fprintf(out, "; tensor-parallel %d", rank_place_tensor_parallel(place));
    if (rank_place_pipeline_parallel(place) > 1)
        fprintf(out, "; %d pipeline stages (the first is shown)", rank_place_pipeline_parallel(place));
    fprintf(out, "\n");
}

static void print_bytes(FILE *out, const struct comm_traffic *traffic) {
    char within[SIZE_TEXT], across[SIZE_TEXT], read[SIZE_TEXT];
    fprintf(out, "  %-20s %s within its node, %s to other nodes; reads %s in shared memory\n", "one rank sends",
            size_print(traffic->sent[MESH_IN_NODE], within), size_print(traffic->sent[MESH_ACROSS], across),
            size_print(traffic->read, read));
}

static void print_proof(FILE *out, const struct rank_place *place) {
    fprintf(out, "  %-20s ", "verified");
    if (rank_proof_is_made(place))
        fprintf(out, "the programs of all ranks together\n");
    else
        fprintf(out, "the program of each rank by itself (all together: at most %d ranks)\n", RANK_PROOF_MAX);
}

static void print_certainty(FILE *out, const struct mesh *mesh, const struct cluster_links *links) {
    const struct mesh *measured = &links->mesh;
    if (measured->nodes == 0)
        fprintf(out, "  the times exclude communication, since no link rates are known: measure them there\n"
                     "  (mpirun -n N ballast profile -o FILE) and plan with --cluster FILE\n");
    else if (measured->nodes != mesh->nodes || measured->per_node != mesh->per_node)
        fprintf(out, "  extrapolated from link rates measured on %d node%s of %d\n", measured->nodes,
                measured->nodes == 1 ? "" : "s", measured->per_node);
}

void ranks_table_print(FILE *out, const struct rank_place *place, const struct step_summary *step,
                       const struct cluster_links *links) {
    if (rank_place_ranks(place) == 1) return;
    print_mesh(out, place);
    print_bytes(out, &step->traffic);
    print_proof(out, place);
    if (links->mesh.nodes > 0 && step->communication_s > 0)
        fprintf(out, "  %-20s %9.4f s, %.0f%% of it overlapped with compute\n", "communication", step->communication_s,
                100 * step->hidden_s / step->communication_s);
    print_certainty(out, &place->mesh, links);
}

/* The stages of a planned pipeline, for people. */

enum { BLOCKS_BYTES = 160 };

static const char *block_name(const struct graph *graph, int32_t block) { return graph->blocks.items[block]; }

/* "embedding to layer 3", or all spans if it is interleaved; returns `text`. */
static const char *span_text(const struct graph *graph, const struct stage_spans *spans, int stage,
                             char text[BLOCKS_BYTES]) {
    text[0] = '\0';
    for (int32_t span = stage; span < spans->count; span += spans->stages) {
        int32_t first = spans->first[span], last = spans->first[span + 1] - 1;
        text_add(text, BLOCKS_BYTES, "%s%s%s%s", text[0] ? ", " : "", block_name(graph, first),
                 last > first ? " to " : "", last > first ? block_name(graph, last) : "");
    }
    if (strlen(text) == BLOCKS_BYTES - 1) strcpy(text + BLOCKS_BYTES - 4, "...");
    return text;
}

static void print_stage(FILE *out, const struct session_plan *plan, const struct stage_spans *spans, int stage) {
    const struct stage_step *step = &plan->stages.list[stage];
    char text[BLOCKS_BYTES], size[SIZE_TEXT], below[SIZE_TEXT];
    fprintf(out, "  %-20d %9.4f s busy, %9.4f s idle; %s", stage + 1, step->compute_s,
            plan->stages.step_s - step->compute_s, size_print(step->tier_bytes[TIER_DEVICE], size));
    int64_t rest = step->tier_bytes[TIER_HOST] + step->tier_bytes[TIER_DISK];
    if (rest > 0) fprintf(out, ", %s offloaded", size_print(rest, below));
    fprintf(out, "; %s\n", span_text(programs_main(&plan->programs)->graph, spans, stage, text));
}

/* Prints nothing for a plan without a pipeline, or without a prediction. */
static void stages_table_print(FILE *out, const struct session_plan *plan) {
    AUTO(stage_spans_free) struct stage_spans spans = {0};
    const struct graph *graph = programs_main(&plan->programs)->graph;
    if (plan->stages.count < 2) return;
    if (stage_spans_create(graph, plan->chosen.policy.spans, plan->stages.count, &spans) != STATUS_OK) return;
    fprintf(out, "\npipeline stages (one rank of each, simulated together)\n");
    for (int stage = 0; stage < plan->stages.count; stage++)
        print_stage(out, plan, &spans, stage);
    fprintf(out, "  %-20s %8.1f%% of the time\n", "bubble", 100 * plan->stages.bubble);
}

static const char *kind_of_masters(const struct recipe *recipe) {
    if (recipe->dtype != DTYPE_BF16 || recipe->master_weights == MASTER_WEIGHTS_FP32) return "";
    if (recipe->master_weights == MASTER_WEIGHTS_SPLIT)
        return recipe->optimizer_dtype != STATE_FP32 ? " and split masters" : " with split masters";
    return recipe->optimizer_dtype != STATE_FP32 ? " and no masters" : " without masters";
}

/* Prints the tensor parallelism, which changes sums. Prints nothing without it. */
static void print_tensor(FILE *out, const struct recipe *recipe) {
    if (recipe_tensor_parallel(recipe) == 1) return;
    fprintf(out, ", tensor-parallel %d%s%s", recipe_tensor_parallel(recipe),
            recipe->sequence_parallel ? " with sequence-parallel" : "",
            recipe->layout == TENSOR_LAYOUT_SOLVER ? " (layout by the solver)" : "");
}

/* "3 micro-batches of up to 3 sequences (last one padded)" if the batch is not a multiple. */
static void print_micro_batches(FILE *out, const struct recipe *recipe) {
    int64_t count = recipe_micro_batches(recipe), sequences = recipe->micro_batch_sequences;
    bool padded = recipe->batch % sequences != 0;
    fprintf(out, "%" PRId64 " micro-batch%s of %s%" PRId64 " sequence%s%s", count, count == 1 ? "" : "es",
            padded ? "up to " : "", sequences, plural(sequences), padded ? " (last one padded)" : "");
}

/* ", dpo", with settings that differ from their defaults. */
static void print_pairs(const struct recipe *recipe, char *text, size_t bytes) {
    char smoothed[24] = "";
    const char *kind = recipe->dpo_loss == PAIR_LOSS_SIGMOID ? "" : pair_loss_name(recipe->dpo_loss);
    if (recipe->dpo_label_smoothing > 0)
        snprintf(smoothed, sizeof smoothed, " smoothed %g", recipe->dpo_label_smoothing);
    snprintf(text, bytes, ", dpo%s%s%s beta %g", *kind ? " " : "", kind, smoothed, recipe->dpo_beta);
}

static void print_recipe(FILE *out, const struct recipe *recipe) {
    char lanes[64] = "", shape[LANE_SHAPE_BYTES];
    if (lane_shape_lanes(&recipe->lanes) > 1)
        snprintf(lanes, sizeof lanes, " in %s lanes", lane_shape_print(&recipe->lanes, shape));
    static const char *const moments[] = {
        [STATE_FP32] = "", [STATE_BF16] = " with bf16 moments", [STATE_INT8] = " with int8 moments"};
    char loss[48] = "";
    if (recipe->loss == TRAINING_DPO) print_pairs(recipe, loss, sizeof loss);
    const char *optimizer = recipe->optimizer == UPDATE_ADAMW ? "" : update_rule_name(recipe->optimizer);
    fprintf(out, "recipe    %s%s%s%s%s%s, batch %" PRId64 " x %" PRId64 " tokens, ", dtype_name(recipe->dtype),
            moments[recipe->optimizer_dtype], kind_of_masters(recipe), loss, *optimizer ? ", " : "", optimizer,
            recipe->batch, recipe->sequence_length);
    print_micro_batches(out, recipe);
    fputs(lanes, out);
    print_tensor(out, recipe);
    fprintf(out, ", %s, seed %" PRIu64 "\n", recipe->isa, recipe->seed);
}

static void print_texts(FILE *out, const struct session_plan *plan) {
    const struct recipe *recipe = &plan->chosen.recipe;
    fprintf(out, "recipe    %s, %" PRId64 " text%s at a time, caches of %" PRId64 " tokens, %s, seed %" PRIu64 "\n",
            dtype_name(recipe->dtype), plan->request.set.texts, plural(plan->request.set.texts),
            recipe->sequence_length, recipe->isa, recipe->seed);
}

static int32_t count_blocks(const struct session_plan *plan) {
    return graph_count_blocks(programs_main(&plan->programs)->graph);
}

static void print_policy(FILE *out, const struct session_plan *plan) {
    const struct policy *policy = &plan->chosen.policy;
    char text[POLICY_TEXT_BYTES];
    fprintf(out, "policy    %s; %d thread%s\n", policy_text(policy, count_blocks(plan), text), plan->chosen.threads,
            plural(plan->chosen.threads));
    if (policy->schedule[0]) fprintf(out, "schedule  %s\n", policy->schedule);
}

static void print_prediction(FILE *out, const struct session_plan *plan, const struct step_summary *prediction) {
    const struct recipe *recipe = &plan->chosen.recipe;
    char text[BOUND_TEXT_BYTES];
    bool range = prediction->slowest_s > 0;
    double tokens = (double)(recipe->batch * recipe->sequence_length);
    char rates[3][COUNT_TEXT];
    fprintf(out, "\nstep, predicted%s\n  %-20s %9.4f s, %s tokens/s\n", range ? ", not measured" : "", "time",
            prediction->step_s, count_print((int64_t)(tokens / prediction->step_s), rates[0]));
    if (range)
        fprintf(out, "  %-20s %9.4f s to %.4f s, %s to %s tokens/s\n", "range", prediction->fastest_s,
                prediction->slowest_s, count_print((int64_t)(tokens / prediction->fastest_s), rates[1]),
                count_print((int64_t)(tokens / prediction->slowest_s), rates[2]));
    for (int s = 0; s < prediction->stream_count; s++)
        fprintf(out, "  %-20s %9.4f s busy, %9.4f s idle\n", stream_role_name(prediction->streams[s].role),
                prediction->streams[s].busy_s, prediction->streams[s].waiting_s);
    for (int i = 0; i < prediction->bound_count; i++)
        fprintf(out, "  %-20s %9.4f s of %s\n", i == 0 ? "bottleneck" : "", prediction->bounds[i].seconds,
                bound_text(&prediction->bounds[i], text));
    profile_table_print_parts(out, "  ", &plan->costs);
    ranks_table_print(out, &plan->chosen.place, prediction, &plan->costs.rates.links);
    stages_table_print(out, plan);
}

/* Trials as printed. On the Pareto front: needs less device memory than any faster one. */
struct listed {
    const struct trial *trial;
    bool on_pareto_front;
};

static int by_time(const void *left, const void *right) {
    const struct trial *a = ((const struct listed *)left)->trial, *b = ((const struct listed *)right)->trial;
    if (a->step_s < b->step_s || a->step_s > b->step_s) return a->step_s < b->step_s ? -1 : 1;
    return (a->tier_bytes[TIER_DEVICE] > b->tier_bytes[TIER_DEVICE]) -
           (a->tier_bytes[TIER_DEVICE] < b->tier_bytes[TIER_DEVICE]);
}

/* The Pareto front without the winner, and the runners-up outside of it; returns their number. */
static size_t list_others(const struct search_result *search, struct listed *out) {
    size_t count = 0, pareto_front_count = 0;
    for (size_t i = 1; i < search->pareto_front.count; i++)
        out[count++] = (struct listed){&search->pareto_front.items[i], true};
    pareto_front_count = count;
    for (size_t i = 0; i < search->runners_up.count; i++) {
        const struct trial *trial = &search->runners_up.items[i];
        bool known = false;
        for (size_t k = 0; k < pareto_front_count && !known; k++)
            known = memcmp(&out[k].trial->policy, &trial->policy, sizeof trial->policy) == 0;
        if (!known) out[count++] = (struct listed){trial, false};
    }
    qsort(out, count, sizeof *out, by_time);
    return count;
}

static void print_others(FILE *out, const struct session_plan *plan) {
    const struct search_result *search = &plan->search;
    AUTO_FREE struct listed *others =
        mem_array(search->pareto_front.count + search->runners_up.count + 1, sizeof *others);
    size_t count = others ? list_others(search, others) : 0; /* out of memory: the table is printed without them */
    if (count > 0)
        fprintf(out, "alternatives: step time, device memory (* Pareto-optimal), difference from this plan\n");
    for (size_t i = 0; i < count; i++) {
        const struct trial *trial = others[i].trial;
        char size[SIZE_TEXT], text[POLICY_TEXT_BYTES];
        fprintf(out, "  %9.4f s  %10s%s  %s\n", trial->step_s, size_print(trial->tier_bytes[TIER_DEVICE], size),
                others[i].on_pareto_front ? "*" : " ",
                policy_difference_text(&trial->policy, &plan->chosen.policy, count_blocks(plan), text));
    }
}

static void print_search(FILE *out, const struct session_plan *plan) {
    const struct search_result *search = &plan->search;
    char all[COUNT_TEXT], compiled[COUNT_TEXT];
    if (search->enumerated == 0) return;
    fprintf(out, "\nsearched %s policies, compiled %s; %s\n", count_print(search->enumerated, all),
            count_print(search->compiled, compiled),
            search->proved ? "none of the others is faster" : "a faster one is not ruled out");
    print_others(out, plan);
}

/* Prints the bytes of quantized weights, and their unquantized size. */
static void print_base(FILE *out, const struct session_plan *plan) {
    const struct graph *graph = programs_main(&plan->programs)->graph;
    int64_t stored = 0, plain = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->code.format == WEIGHT_PLAIN) continue;
        stored += shape_bytes(&tensor->shape);
        plain += shape_bytes(&tensor->code.values);
    }
    char stored_text[SIZE_TEXT], plain_text[SIZE_TEXT];
    if (stored == 0) return;
    fprintf(out, "          base weights take %s in %s, %s would take %s\n", size_print(stored, stored_text),
            weight_format_name(plan->chosen.recipe.quantize_base), dtype_name(plan->chosen.recipe.dtype),
            size_print(plain, plain_text));
}

static void print_model(FILE *out, const struct session_plan *plan) {
    const struct model_config *config = &plan->session->model->config;
    fprintf(out,
            "model     %s, %" PRId64 " layers, hidden %" PRId64 ", %" PRId64 " heads (%" PRId64
            " key-value), vocabulary %" PRId64 "\n",
            config->family->name, config->layers, config->hidden, config->heads, config->kv_heads, config->vocab_size);
    char text[COUNT_TEXT];
    fprintf(out, "          %s parameters", amount_print((double)plan->figures.parameters, text));
    if (plan->figures.trained_parameters < plan->figures.parameters)
        fprintf(out, " (%s trained)", amount_print((double)plan->figures.trained_parameters, text));
    fprintf(out, ", %s model FLOPs per token\n", amount_print(plan->figures.flops_per_token, text));
    print_base(out, plan);
}

static void print_row(FILE *out, const char *name, int64_t bytes) {
    char text[SIZE_TEXT], count[COUNT_TEXT];
    fprintf(out, "  %-14s %18s B  %10s\n", name, count_print(bytes, count), size_print(bytes, text));
}

static void print_tier(FILE *out, const struct session_plan *plan, enum tier tier) {
    const struct memory_report *memory = &plan->memory[tier];
    int64_t program = plan->programs.tier_bytes[tier], capacity = plan->session->machine.capacity_bytes[tier];
    fprintf(out, "\n%s tier, at the peak of a step\n", tier_name(tier));
    for (enum buffer_kind kind = 0; kind < BUFFER_KIND_COUNT; kind++)
        if (memory->by_kind[kind] > 0) print_row(out, buffer_kind_name(kind), memory->by_kind[kind]);
    print_row(out, "unused", memory->unused);
    if (program > memory->total) print_row(out, "validation", program - memory->total);
    print_row(out, "arena", program);
    char needs[SIZE_TEXT], has[SIZE_TEXT];
    fprintf(out, "projected %s of %s available (%.1f%%)%s\n", size_print(program, needs), size_print(capacity, has),
            capacity > 0 ? 100.0 * (double)program / (double)capacity : 100.0,
            program > capacity ? ": does not fit" : "");
}

void plan_table_print(FILE *out, const struct session_plan *plan, const struct step_summary *prediction) {
    print_model(out, plan);
    if (program_set_only_writes(&plan->request.set))
        print_texts(out, plan);
    else
        print_recipe(out, &plan->chosen.recipe);
    print_policy(out, plan);
    if (prediction && prediction->step_s > 0) print_prediction(out, plan, prediction);
    print_search(out, plan);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (plan->programs.tier_bytes[tier] > 0) print_tier(out, plan, tier);
}
