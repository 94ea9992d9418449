#include "report/console/stages_table.h"

#include <string.h>

#include "base/size.h"
#include "plan/layout/pipeline.h"

enum { BLOCKS_BYTES = 160 };

static const char *block_name(const struct graph *graph, int32_t block) { return graph->blocks.items[block]; }

/* "embedding to layer 3", and where it is interleaved all spans; returns `text`. */
static const char *span_text(const struct graph *graph, const struct stage_spans *spans, int stage,
                             char text[BLOCKS_BYTES]) {
    size_t used = 0;
    text[0] = 0;
    for (int32_t span = stage; span < spans->count; span += spans->stages) {
        int32_t first = spans->first[span], last = spans->first[span + 1] - 1;
        int written =
            snprintf(text + used, BLOCKS_BYTES - used, "%s%s%s%s", used > 0 ? ", " : "", block_name(graph, first),
                     last > first ? " to " : "", last > first ? block_name(graph, last) : "");
        if (written < 0 || (size_t)written >= BLOCKS_BYTES - used) {
            strcpy(text + BLOCKS_BYTES - 4, "...");
            break;
        }
        used += (size_t)written;
    }
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

void stages_table_print(FILE *out, const struct session_plan *plan) {
    struct stage_spans spans;
    if (plan->stages.count < 2) return;
    if (stage_spans_create(programs_main(&plan->programs)->graph, plan->chosen.policy.spans, plan->stages.count,
                           &spans) == STATUS_OK) {
        fprintf(out, "\npipeline stages (one rank of each, simulated together)\n");
        for (int stage = 0; stage < plan->stages.count; stage++)
            print_stage(out, plan, &spans, stage);
        fprintf(out, "  %-20s %8.1f%% of the time\n", "bubble", 100 * plan->stages.bubble);
    }
    stage_spans_free(&spans);
}
