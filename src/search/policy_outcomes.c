#include "search/policy_outcomes.h"

#include <stdlib.h>

enum { RUNNERS_UP_MAX = 8 };

double outcome_seconds(const struct search_input *input, const struct trial *trial) {
    return input->objective == OBJECTIVE_SUM ? trial->sum_s : trial->step_s;
}

double outcome_min_s(const struct search_input *input, const struct policy_seconds *seconds) {
    bool sum = input->objective == OBJECTIVE_SUM;
    return (sum ? seconds->serial_s * (1 - 1e-9) : seconds->step_s) / rank_place_pipeline_parallel(&input->place);
}

struct ranked {
    double seconds;
    int64_t bytes;
    size_t index;
};

/* The faster; of equals the smaller, then the one that was found first. */
static int compare_ranked(const void *a, const void *b) {
    const struct ranked *x = a, *y = b;
    if (x->seconds < y->seconds || x->seconds > y->seconds) return x->seconds < y->seconds ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;
    return (x->index > y->index) - (x->index < y->index);
}

static bool same_kind(const struct outcomes *outcomes, size_t a, size_t b) {
    const struct policy_class *x = &outcomes->space->policy_classes.items[outcomes->policy_classes[a]];
    const struct policy_class *y = &outcomes->space->policy_classes.items[outcomes->policy_classes[b]];
    const struct schedule *p = space_schedule(outcomes->space, x), *q = space_schedule(outcomes->space, y);
    return p->kind == q->kind && p->tier == q->tier && x->at.parameters == y->at.parameters &&
           partition_equal(&outcomes->space->sharding_options.items[x->sharding_option].partition,
                           &outcomes->space->sharding_options.items[y->sharding_option].partition) &&
           x->at.gradients == y->at.gradients && x->at.optimizer == y->at.optimizer && x->at.update == y->at.update;
}

static enum status add_runner_up(const struct outcomes *outcomes, const struct ranked *ranks, size_t at) {
    for (size_t i = 0; i < at; i++)
        if (same_kind(outcomes, ranks[i].index, ranks[at].index)) return STATUS_OK;
    if (outcomes->result->runners_up.count == RUNNERS_UP_MAX) return STATUS_OK;
    return vec_push(&outcomes->result->runners_up, outcomes->result->tried.items[ranks[at].index]);
}

enum status outcomes_rank(const struct outcomes *outcomes) {
    size_t count = 0, tried = outcomes->result->tried.count;
    struct ranked *ranks = mem_array(tried + 1, sizeof *ranks);
    if (!ranks) return STATUS_FAILED;
    for (size_t i = 0; i < tried; i++) {
        const struct trial *trial = &outcomes->result->tried.items[i];
        if (trial->step_s > 0)
            ranks[count++] =
                (struct ranked){outcome_seconds(outcomes->input, trial), trial->tier_bytes[TIER_DEVICE], i};
    }
    if (count > 0) qsort(ranks, count, sizeof *ranks, compare_ranked);
    enum status status = STATUS_OK;
    int64_t min = INT64_MAX;
    for (size_t i = 0; i < count; i++) {
        if (ranks[i].bytes < min) {
            min = ranks[i].bytes;
            TRY_GOTO(status, vec_push(&outcomes->result->pareto_front, outcomes->result->tried.items[ranks[i].index]),
                     done);
        }
        if (i > 0) TRY_GOTO(status, add_runner_up(outcomes, ranks, i), done);
    }
done:
    mem_free(ranks);
    return status;
}

static void note_bounds(const struct outcomes *outcomes, int32_t sharding_option, struct partition_outcome *out) {
    for (size_t c = 0; c < outcomes->space->placements.count; c++) {
        const struct placement *placement = &outcomes->space->placements.items[c];
        double bound = outcome_min_s(outcomes->input, &placement->min);
        if (placement->sharding_option != sharding_option || !placement->may_fit) continue;
        if (!out->may_fit || bound < out->bound_s) out->bound_s = bound;
        out->may_fit = true;
    }
}

enum status outcomes_note_partitions(const struct outcomes *outcomes) {
    struct search_result *result = outcomes->result;
    for (int32_t d = 0; d < (int32_t)outcomes->space->sharding_options.count && outcomes->input->partition_count > 1;
         d++) {
        struct partition_outcome outcome = {.partition = outcomes->space->sharding_options.items[d].partition};
        note_bounds(outcomes, d, &outcome);
        for (size_t i = 0; i < result->tried.count; i++) {
            const struct trial *tried = &result->tried.items[i];
            if (!partition_equal(&tried->policy.partition, &outcome.partition)) continue;
            bool better = tried->step_s > 0 &&
                          (outcome.best.step_s <= 0 ||
                           outcome_seconds(outcomes->input, tried) < outcome_seconds(outcomes->input, &outcome.best));
            if (better) outcome.best = *tried;
            outcome.tried++;
        }
        TRY(vec_push(&result->partitions, outcome));
    }
    return STATUS_OK;
}
