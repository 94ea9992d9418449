#include "report/console/partition_table.h"

#include <math.h>

#include "base/text.h"
#include "machine/kernel_cost.h"
#include "session/plan.h"

static void print_mesh(FILE *out, const struct plan_strategies *strategies) {
    const struct device_mesh *mesh = &strategies->question.mesh;
    fprintf(out, "\nstrategies of operators: the cheapest sharding of each, which --layout solver chooses from\n"
                 "  mesh ");
    for (int axis = 0; axis < mesh->axes; axis++)
        fprintf(out, "%s%lld", axis > 0 ? " x " : "", (long long)mesh->sizes[axis]);
    fprintf(out, ", axes 0 to %d; S1: sharded along axis 1, R: replicated\n", mesh->axes - 1);
}

static void print_sum(FILE *out, const struct plan_strategies *strategies) {
    const struct joint_solution *solution = &strategies->solution;
    char size[SIZE_TEXT];
    int again = 0;
    if (!strategies->fits) {
        fprintf(out, "  none fits a rank, even with all blocks recomputed\n");
        return;
    }
    for (size_t block = 0; block < strategies->graph->blocks.count; block++)
        again += plan_strategies_repeats(strategies, (int)block);
    fprintf(out, "  in total: %.4g s per micro-batch of each rank, %s per rank, %d of %d blocks recomputed\n",
            solution->seconds, size_print(solution->peak_bytes, size), again, (int)strategies->graph->blocks.count);
}

static void print_node(FILE *out, const struct plan_strategies *strategies, const struct node *node) {
    const struct strategies *made = &strategies->program.strategies[node->id];
    char text[STRATEGY_TEXT], operand[LAYOUT_TEXT];
    fprintf(out, "  %-28s", node->name);
    if (strategies->fits) {
        const struct strategy *one =
            shard_program_strategy(&strategies->program, node->id, strategies->solution.strategies.choice[node->id]);
        for (int i = 0; i < OP_INPUTS_MAX; i++)
            if (node->in[i]) fprintf(out, " %s", layout_print(&one->operand[i], node->in[i]->shape.rank, operand));
        fprintf(out, " -> %s  compute %.3g ms, communication %.3g ms",
                layout_print(&one->operand[OP_INPUTS_MAX], node->out[0]->shape.rank, operand), 1e3 * one->compute_s,
                1e3 * (one->forward_s + one->backward_s));
    }
    fputc('\n', out);
    for (size_t i = 0; i < made->dropped.count; i++)
        fprintf(out, "      dropped: %s\n", strategy_print_dropped(node, &made->dropped.items[i], text));
}

void strategies_table_print(FILE *out, const struct plan_strategies *strategies) {
    print_mesh(out, strategies);
    print_sum(out, strategies);
    for (size_t i = 0; i < strategies->graph->nodes.count; i++)
        if (strategies->program.block_like[i] == (int)i) print_node(out, strategies, strategies->graph->nodes.items[i]);
}

static bool is_chosen(const struct session_plan *plan, const struct rank_shape *shape) {
    return shape->outcome == SHAPE_PLANNED && rank_shape_is_of(shape, &plan->chosen);
}

enum { CUT_BYTES = 32 };
/* How tensors are partitioned, if not in Megatron-LM's way. */
static const char *cut_of(const struct rank_shape *shape, char text[CUT_BYTES]) {
    const struct recipe *recipe = &shape->plan->recipe;
    if (recipe_tensor_parallel(recipe) == 1) return "";
    if (recipe->layout != TENSOR_LAYOUT_SOLVER) return recipe->sequence_parallel ? "sequence" : "";
    snprintf(text, CUT_BYTES, "solver");
    if (isinf(shape->solver_memory)) snprintf(text, CUT_BYTES, "solver, any memory");
    if (isfinite(shape->solver_memory) && shape->solver_memory != 1)
        snprintf(text, CUT_BYTES, "solver, %.3g memories", shape->solver_memory);
    return text;
}

static void print_planned(FILE *out, const struct rank_shape *shape, bool chosen) {
    char device[SIZE_TEXT], host[SIZE_TEXT];
    fprintf(out, "%9.4f s  %10s", shape->step_s, size_print(shape->tier_bytes[TIER_DEVICE], device));
    if (shape->tier_bytes[TIER_HOST] > 0) fprintf(out, "  host %s", size_print(shape->tier_bytes[TIER_HOST], host));
    if (shape->larger_micro_batch)
        fprintf(out, "  micro-batches of %lld sequences: smaller ones need too many sends and collectives",
                (long long)shape->plan->recipe.micro_batch_sequences);
    if (chosen) fprintf(out, "  in the plan");
}

static void print_shape(FILE *out, const struct session_plan *plan, const struct rank_shape *shape) {
    const struct rank_place *place = &shape->plan->place;
    char size[SIZE_TEXT], cut[CUT_BYTES];
    int tensor = recipe_tensor_parallel(&shape->plan->recipe), stages = rank_place_pipeline_parallel(place);
    fprintf(out, "  %4d x %4d x %4d  %-8s  ", tensor, stages, rank_place_ranks(&plan->chosen.place) / (tensor * stages),
            cut_of(shape, cut));
    if (shape->outcome != SHAPE_PLANNED && shape->outcome != SHAPE_OPEN) fprintf(out, "%11s  %10s  ", "", "");
    switch (shape->outcome) {
    case SHAPE_PLANNED: print_planned(out, shape, is_chosen(plan, shape)); break;
    case SHAPE_BOUNDED: fprintf(out, "lower bound %.4f s: slower than the plan", shape->bound_s); break;
    case SHAPE_UNTRIED:
        fprintf(out, "not tried: expected %.4f s, lower bound %.4f s", shape->expected_s, shape->bound_s);
        break;
    case SHAPE_NO_FIT:
        fputs("does not fit", out);
        if (shape->min_bytes > 0)
            fprintf(out, ": the smallest tried needs %s of device memory", size_print(shape->min_bytes, size));
        break;
    case SHAPE_SAME: fputs("the same as above", out); break;
    case SHAPE_REFUSED: fprintf(out, "%s%s", shape->unjudged ? "not judged: " : "", shape->reason); break;
    case SHAPE_OPEN: break;
    }
    fputc('\n', out);
}

static void print_gains(FILE *out, const struct session_plan *plan) {
    static const char *const without[PART_COUNT] = {
        [PART_TENSOR] = "tensor parallelism",           [PART_CUT] = "sequence parallelism or the solver's layout",
        [PART_STAGES] = "pipeline parallelism",         [PART_PARTITION] = "sharding of model states",
        [PART_MEMORY] = "offloading and recomputation",
    };
    struct plan_gain gains[PART_COUNT];
    plan_gains_find(plan, gains);
    fprintf(out, "\ngain of each part: how much slower the best plan without it is, or is expected to be\n");
    for (int part = 0; part < PART_COUNT; part++) {
        const struct plan_gain *gain = &gains[part];
        fprintf(out, "  %-40s", without[part]);
        if (!gain->used)
            fprintf(out, "not used\n");
        else if (!gain->possible)
            fprintf(out, "no plan that was tried fits without it\n");
        else
            fprintf(out, "%s%.4f s\n", gain->exact ? "" : "at least ", gain->seconds);
    }
}

/* Prints an upper bound on the gain of plans that were not simulated. */
static void print_gap(FILE *out, const struct session_plan *plan) {
    const struct rank_shapes *shapes = &plan->shapes;
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        if (!is_chosen(plan, shape)) continue;
        if (shapes->min_s >= shape->step_s)
            fprintf(out, "  none of the others is faster than the plan\n");
        else
            fprintf(out, "  lower bound of all shapes: %.4f s, %.1f%% less than the plan\n", shapes->min_s,
                    100 * (1 - shapes->min_s / shape->step_s));
    }
}

void shapes_table_print(FILE *out, const struct session_plan *plan, bool explain) {
    const struct rank_shapes *shapes = &plan->shapes;
    size_t hidden = 0;
    if (shapes->list.count == 0) return;
    fprintf(out, "\nshapes (tensor x pipeline x data parallelism, layout): step time, device memory\n");
    for (size_t i = 0; i < shapes->list.count; i++) {
        const struct rank_shape *shape = &shapes->list.items[i];
        bool shown = explain || shape->outcome == SHAPE_PLANNED || shape->unjudged;
        hidden += !shown;
        if (shown) print_shape(out, plan, shape);
    }
    if (hidden > 0) fprintf(out, "  %zu more; --explain gives the reasons\n", hidden);
    if (explain) print_gap(out, plan);
    print_gains(out, plan);
}

static bool was_tried(const struct partition_outcome *outcome) { return outcome->best.step_s > 0; }

/* Orders tried layouts by time, then the others by bound, and last those that cannot fit. */
static int by_time(const void *left, const void *right) {
    const struct partition_outcome *a = *(const struct partition_outcome *const *)left;
    const struct partition_outcome *b = *(const struct partition_outcome *const *)right;
    int class_a = was_tried(a) ? 0 : a->may_fit ? 1 : 2, class_b = was_tried(b) ? 0 : b->may_fit ? 1 : 2;
    if (class_a != class_b) return class_a - class_b;
    double x = class_a == 0 ? a->best.step_s : a->bound_s, y = class_a == 0 ? b->best.step_s : b->bound_s;
    if (x < y || x > y) return x < y ? -1 : 1;
    return (a > b) - (a < b);
}

static void print_time(FILE *out, const struct session_plan *plan, const struct partition_outcome *outcome,
                       bool on_pareto_front) {
    char name[PARTITION_BYTES], size[SIZE_TEXT];
    const struct trial *best = &outcome->best;
    fprintf(out, "  %9.4f s  %10s%s  %-24s%s", best->step_s, size_print(best->tier_bytes[TIER_DEVICE], size),
            on_pareto_front ? "*" : " ", partition_print(&outcome->partition, &plan->chosen.place.mesh, name),
            best->policy.flat ? " flat" : "");
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (best->tier_bytes[tier] > 0)
            fprintf(out, "  %s %s", tier_name(tier), size_print(best->tier_bytes[tier], size));
}

static void print_reason(FILE *out, const struct session_plan *plan, const struct partition_outcome *outcome) {
    const struct search_result *search = &plan->search;
    double best_s = search->pareto_front.count > 0 ? search->pareto_front.items[0].step_s : 0;
    char name[PARTITION_BYTES];
    if (was_tried(outcome)) {
        if (partition_equal(&outcome->partition, &plan->chosen.policy.partition))
            fprintf(out, "  in the plan");
        else if (best_s > 0)
            fprintf(out, "  %.1f%% slower", 100 * (outcome->best.step_s / best_s - 1));
        return;
    }
    fprintf(out, "  %11s  %10s   %-24s", "", "", partition_print(&outcome->partition, &plan->chosen.place.mesh, name));
    if (!outcome->may_fit)
        fprintf(out, "  does not fit");
    else if (outcome->tried > 0)
        fprintf(out, "  none of %" PRId64 " programs fits", outcome->tried);
    else if (best_s > 0 && outcome->bound_s >= best_s)
        fprintf(out, "  lower bound %.4f s: slower than the plan", outcome->bound_s);
    else
        fprintf(out, "  not tried: lower bound %.4f s, but expected to be slower than the plan", outcome->bound_s);
}

static void print_all(FILE *out, const struct session_plan *plan, const struct partition_outcome **list, size_t count,
                      bool explain) {
    int64_t min = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        bool tried = was_tried(list[i]), on_pareto_front = tried && list[i]->best.tier_bytes[TIER_DEVICE] < min;
        if (on_pareto_front) min = list[i]->best.tier_bytes[TIER_DEVICE];
        if (!on_pareto_front && !explain) continue;
        if (tried) print_time(out, plan, list[i], on_pareto_front);
        print_reason(out, plan, list[i]);
        fputc('\n', out);
    }
}

void partition_table_print(FILE *out, const struct session_plan *plan, bool explain) {
    const struct search_result *search = &plan->search;
    size_t count = search->partitions.count;
    if (count == 0) return;
    AUTO_FREE const struct partition_outcome **list = mem_array(count, sizeof *list);
    if (!list) return; /* the plan is printed without it */
    for (size_t i = 0; i < count; i++)
        list[i] = &search->partitions.items[i];
    qsort(list, count, sizeof *list, by_time);
    fprintf(out,
            "\npartitions (shards of parameters|gradients|optimizer states): step time, device memory (* "
            "Pareto-optimal)%s\n",
            explain ? "" : "; --explain lists all");
    print_all(out, plan, list, count, explain);
}

/* Equal kernels of one operator: calls per step. */
struct described_row {
    const struct node *node; /* the first of them */
    struct roofline cost;
    int64_t calls;
};

static double row_seconds(const struct described_row *row) { return row->cost.seconds * (double)row->calls; }

static bool is_equal(const struct described_row *row, const struct node *node, const struct roofline *cost) {
    return row->node->op == node->op && memcmp(&row->cost, cost, sizeof *cost) == 0;
}

/* `rows` has space for every node. Returns the number used. */
static size_t collect(const struct session_plan *plan, struct described_row *rows) {
    const struct program *program = programs_main(&plan->programs)->program;
    size_t count = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_KERNEL || instruction->tier != TIER_DEVICE) continue;
        struct roofline cost =
            roofline_of(instruction->node, &plan->session->machine.cluster.device, ROOFLINE_EXPECTED);
        size_t at = 0;
        while (at < count && !is_equal(&rows[at], instruction->node, &cost))
            at++;
        if (at == count) rows[count++] = (struct described_row){instruction->node, cost, 0};
        rows[at].calls += program->sections.items[instruction->section].repeat;
    }
    return count;
}

static int longest_first(const void *left, const void *right) {
    const struct described_row *a = left, *b = right;
    double a_s = row_seconds(a), b_s = row_seconds(b);
    if (a_s > b_s || a_s < b_s) return a_s < b_s ? 1 : -1;
    return a->node->id - b->node->id;
}

static void print_rows(FILE *out, const struct described_row *rows, size_t count) {
    double all = 0, limits = 0;
    for (size_t i = 0; i < count; i++)
        all += row_seconds(&rows[i]);
    fprintf(out, "\n%-22s %-30s %6s %10s %10s %8s %7s  %s\n", "operator", "first of its kind", "calls", "us/call",
            "limit, us", "of limit", "share", "class");
    for (size_t i = 0; i < count; i++) {
        const struct described_row *row = &rows[i];
        limits += row->cost.limit_s * (double)row->calls;
        fprintf(out, "%-22s %-30.30s %6" PRId64 " %10.1f %10.1f %7.0f%% %6.1f%%  %s\n", row->node->op->name,
                row->node->name, row->calls, row->cost.seconds * 1e6, row->cost.limit_s * 1e6,
                row->cost.seconds > 0 ? 100 * row->cost.limit_s / row->cost.seconds : 100, 100 * row_seconds(row) / all,
                row->cost.class_name);
    }
    fprintf(out, "all operators of a step: %.2f ms; at data-sheet rates %.2f ms\n", all * 1e3, limits * 1e3);
}

enum status described_table_print(FILE *out, const struct session_plan *plan, double step_s) {
    const struct recipe *recipe = &plan->chosen.recipe;
    const struct cluster_device *device = &plan->session->machine.cluster.device;
    AUTO_FREE struct described_row *rows =
        mem_array(programs_main(&plan->programs)->program->instructions.count, sizeof *rows);
    if (!rows) return STATUS_FAILED;
    size_t count = collect(plan, rows);
    qsort(rows, count, sizeof *rows, longest_first);
    fprintf(out,
            "\nestimated operators on %s: data-sheet rates times the efficiency that published\n"
            "measurements of comparable kernels reach (sources: src/machine/kernel_cost.c)\n",
            device->name);
    print_rows(out, rows, count);
    double flops = plan->figures.flops_per_token * (double)(recipe->batch * recipe->sequence_length);
    double limit = recipe->dtype == DTYPE_BF16 ? device->limits.bf16_flops_per_s : device->limits.fp32_flops_per_s;
    int ranks = rank_place_ranks(&plan->chosen.place);
    fprintf(out, "estimated MFU %.1f%% of the data sheet's %.0f TFLOP/s\n", 100 * flops / (step_s * limit * ranks),
            limit * 1e-12);
    fputs("memory capacity is the cluster file's; a run reserves 384 MiB of a GPU for CUDA graphs and libraries\n",
          out);
    return STATUS_OK;
}
