#include "report/console/partition_table.h"

#include <inttypes.h>
#include <stdlib.h>

#include "base/mem.h"
#include "base/size.h"

static bool was_tried(const struct partition_outcome *outcome) { return outcome->best.step_s > 0; }

/* Those that were tried by their time, then the others by their bounds, last those that cannot fit. */
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
    const struct partition_outcome **list = mem_array(count, sizeof *list);
    if (!list) return; /* the plan is printed without it */
    for (size_t i = 0; i < count; i++)
        list[i] = &search->partitions.items[i];
    qsort(list, count, sizeof *list, by_time);
    fprintf(out,
            "\npartitions (shards of parameters|gradients|optimizer states): step time, device memory (* "
            "Pareto-optimal)%s\n",
            explain ? "" : "; --explain lists all");
    print_all(out, plan, list, count, explain);
    mem_free(list);
}
