#include "report/console/described_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "machine/roofline.h"

/* Equal kernels of one operator: calls in a step. */
struct described_row {
    const struct node *node; /* the first of them */
    struct roofline cost;
    int64_t calls;
};

static double row_seconds(const struct described_row *row) { return row->cost.seconds * (double)row->calls; }

static bool is_equal(const struct described_row *row, const struct node *node, const struct roofline *cost) {
    return row->node->op == node->op && memcmp(&row->cost, cost, sizeof *cost) == 0;
}

/* `rows` has space for every node. Returns how many are used. */
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
    struct described_row *rows = mem_array(programs_main(&plan->programs)->program->instructions.count, sizeof *rows);
    if (!rows) return STATUS_FAILED;
    size_t count = collect(plan, rows);
    qsort(rows, count, sizeof *rows, longest_first);
    fprintf(out,
            "\nestimated operators on %s: data-sheet rates times the efficiency that published\n"
            "measurements of comparable kernels reach (sources: src/profile/roofline.c)\n",
            device->name);
    print_rows(out, rows, count);
    mem_free(rows);
    double flops = plan->figures.flops_per_token * (double)(recipe->batch * recipe->sequence_length);
    double limit = recipe->dtype == DTYPE_BF16 ? device->limits.bf16_flops_per_s : device->limits.fp32_flops_per_s;
    int ranks = rank_place_ranks(&plan->chosen.place);
    fprintf(out, "estimated MFU %.1f%% of the data sheet's %.0f TFLOP/s\n", 100 * flops / (step_s * limit * ranks),
            limit * 1e-12);
    fputs("memory capacity is the cluster file's; a run reserves 384 MiB of a GPU for CUDA graphs and libraries\n",
          out);
    return STATUS_OK;
}
