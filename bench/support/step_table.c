#include "support/step_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"

/* Times are of one step. */
struct line {
    const char *phase, *op;
    char weight[SHAPE_TEXT]; /* the matrix that it works with, "" for none */
    int64_t count;
    double seconds, limit, flops, bytes;
};

struct lines {
    VEC(struct line) all;
};

enum status step_table_open(const struct model_step *step, struct step_table *out) {
    *out =
        (struct step_table){.ns = mem_array(model_step_executable(step)->program->instructions.count, sizeof *out->ns)};
    return out->ns ? STATUS_OK : STATUS_FAILED;
}

void step_table_close(struct step_table *table) { mem_free(table->ns); }

static void watch(void *payload, const struct runner *runner, int32_t instruction, int64_t run) {
    (void)runner, (void)run;
    struct step_table *table = payload;
    int64_t now = clock_now_ns();
    table->ns[instruction] += now - table->last;
    table->last = now;
}

enum status step_table_run(struct step_table *table, struct model_step *step) {
    int64_t ns;
    runner_set_observer(step->engine.main, watch, table);
    table->last = clock_now_ns();
    enum status status = model_step_run(step, &ns);
    runner_set_observer(step->engine.main, NULL, NULL);
    table->steps++;
    return status;
}

static double seconds_of(const struct step_table *table, size_t instruction) {
    return (double)table->ns[instruction] * 1e-9 / (double)table->steps;
}

double step_table_seconds(const struct step_table *table, const struct model_step *step) {
    double seconds = 0;
    for (size_t i = 0; i < model_step_executable(step)->program->instructions.count; i++)
        seconds += seconds_of(table, i);
    return seconds;
}

static const struct tensor *find_matrix(const struct node *node) {
    for (int i = 0; i < OP_INPUTS_MAX + OP_OUTPUTS_MAX; i++) {
        const struct tensor *tensor = i < OP_INPUTS_MAX ? node->in[i] : node->out[i - OP_INPUTS_MAX];
        if (!tensor || tensor->shape.rank != 2) continue;
        if (tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_GRADIENT) return tensor;
    }
    return NULL;
}

/* The update goes over all weights alike, so there its operators are not told apart by shape. */
static void describe(const struct instruction *instruction, struct line *line) {
    static const char *const phases[] = {[PHASE_FORWARD] = "forward",
                                         [PHASE_BACKWARD] = "backward",
                                         [PHASE_FINISH] = "finish",
                                         [PHASE_UPDATE] = "update"};
    if (instruction->opcode == OPCODE_ZERO) {
        line->phase = "backward";
        line->op = "(zero)";
        line->bytes = (double)instruction->operands[OP_INPUTS_MAX].bytes;
        return;
    }
    const struct node *node = instruction->node;
    const struct tensor *matrix = node->phase >= PHASE_FINISH ? NULL : find_matrix(node);
    struct op_cost cost;
    op_cost(node, &cost);
    line->phase = phases[node->phase];
    line->op = node->op->name;
    line->flops = cost.flops;
    line->bytes = cost.bytes;
    if (matrix)
        snprintf(line->weight, sizeof line->weight, "%" PRId64 " x %" PRId64, matrix->shape.dims[0],
                 matrix->shape.dims[1]);
}

static enum status add_line(struct lines *lines, const struct line *line) {
    for (size_t i = 0; i < lines->all.count; i++) {
        struct line *other = &lines->all.items[i];
        if (strcmp(other->phase, line->phase) != 0 || strcmp(other->op, line->op) != 0 ||
            strcmp(other->weight, line->weight) != 0)
            continue;
        other->count += line->count;
        other->seconds += line->seconds;
        other->limit += line->limit;
        other->flops += line->flops;
        other->bytes += line->bytes;
        return STATUS_OK;
    }
    return vec_push(&lines->all, *line);
}

static enum status collect(const struct step_table *table, const struct program *program, double flops_per_s,
                           double bytes_per_s, struct lines *lines) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct line line = {.count = program->sections.items[program->instructions.items[i].section].repeat};
        describe(&program->instructions.items[i], &line);
        double repeat = (double)line.count, arithmetic = line.flops / flops_per_s, memory = line.bytes / bytes_per_s;
        line.limit = repeat * (arithmetic > memory ? arithmetic : memory);
        line.flops *= repeat;
        line.bytes *= repeat;
        line.seconds = seconds_of(table, i);
        TRY(add_line(lines, &line));
    }
    return STATUS_OK;
}

static int slower_first(const void *left, const void *right) {
    double a = ((const struct line *)left)->seconds, b = ((const struct line *)right)->seconds;
    return (a < b) - (a > b);
}

static void print_line(const struct line *line, double whole, FILE *out) {
    fprintf(out, "%-9s %-22s %-13s %6" PRId64 " %9.1f %6.1f%% %9.1f %7.1f %9.1f %5.0f%% %9.1f\n", line->phase, line->op,
            line->weight, line->count, line->seconds * 1e3, 100 * line->seconds / whole,
            line->flops / line->seconds * 1e-9, line->bytes / line->seconds * 1e-9, line->limit * 1e3,
            100 * line->limit / line->seconds, (line->seconds - line->limit) * 1e3);
}

enum status step_table_print(const struct step_table *table, const struct model_step *step, double flops_per_s,
                             double bytes_per_s, FILE *out) {
    struct lines lines = {0};
    double whole = step_table_seconds(table, step);
    enum status status = collect(table, model_step_executable(step)->program, flops_per_s, bytes_per_s, &lines);
    if (status == STATUS_OK) {
        struct line sum = {.phase = "all", .op = "", .seconds = 0};
        qsort(lines.all.items, lines.all.count, sizeof *lines.all.items, slower_first);
        fprintf(out, "%-9s %-22s %-13s %6s %9s %7s %9s %7s %9s %6s %9s\n", "phase", "operator", "matrix", "count", "ms",
                "share", "GFLOP/s", "GB/s", "limit ms", "of it", "over ms");
        for (size_t i = 0; i < lines.all.count; i++) {
            const struct line *line = &lines.all.items[i];
            print_line(line, whole, out);
            sum.count += line->count;
            sum.seconds += line->seconds;
            sum.limit += line->limit;
            sum.flops += line->flops;
            sum.bytes += line->bytes;
        }
        print_line(&sum, whole, out);
    }
    vec_free(&lines.all);
    return status;
}
