#include "support/step_table.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "support/median.h"

/* Times are of one step. */
struct line {
    const char *phase, *op;
    char weight[SHAPE_TEXT]; /* the matrix that it works with, "" for none */
    int64_t count;
    double seconds, limit, use_limit, profiled, flops, bytes;
};

struct lines {
    VEC(struct line) all;
};

void step_table_close(struct step_table *table) { vec_free(&table->ns); }

static void watch(void *payload, const struct runner *runner, int32_t instruction, int64_t run) {
    (void)runner, (void)run;
    struct step_table *table = payload;
    int64_t now = clock_now_ns();
    table->now[instruction] += now - table->last;
    table->last = now;
}

static size_t count_instructions(const struct model_step *step) {
    return model_step_executable(step)->program->instructions.count;
}

enum status step_table_run(struct step_table *table, struct model_step *step) {
    int64_t ns;
    size_t count = count_instructions(step);
    TRY(vec_reserve(&table->ns, table->ns.count + count));
    table->now = &table->ns.items[table->ns.count];
    memset(table->now, 0, count * sizeof *table->now);
    table->ns.count += count;
    runner_set_observer(step->engine.main, watch, table);
    table->last = clock_now_ns();
    enum status status = model_step_run(step, &ns);
    runner_set_observer(step->engine.main, NULL, NULL);
    table->steps++;
    return status;
}

static double seconds_of(const struct step_table *table, size_t instruction, size_t instructions) {
    double seconds[STEP_TABLE_STEPS];
    for (int64_t i = 0; i < table->steps; i++)
        seconds[i] = (double)table->ns.items[(size_t)i * instructions + instruction] * 1e-9;
    return median(seconds, (int)table->steps);
}

double step_table_seconds(const struct step_table *table, const struct model_step *step) {
    double seconds = 0;
    for (size_t i = 0; i < count_instructions(step); i++)
        seconds += seconds_of(table, i, count_instructions(step));
    return seconds;
}

/* Whether what an output holds is read before it is written. */
static bool is_read(const struct instruction *instruction, int output) {
    const struct operand *to = &instruction->operands[OP_INPUTS_MAX + output];
    if (to->access == ACCESS_UPDATE) return true;
    for (int i = 0; i < OP_INPUTS_MAX; i++) {
        const struct operand *from = &instruction->operands[i];
        if (from->buffer == to->buffer && from->offset == to->offset) return true;
    }
    return false;
}

/* By most of its bytes: sums of rows and the like do not count. */
static enum memory_use memory_use_of(const struct instruction *instruction) {
    int64_t read = 0, changed = 0, overwritten = 0;
    if (instruction->opcode == OPCODE_ZERO) return MEMORY_FILLS;
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        if (instruction->operands[i].buffer >= 0) read += instruction->operands[i].bytes;
    for (int i = 0; i < OP_OUTPUTS_MAX; i++) {
        int64_t bytes = instruction->operands[OP_INPUTS_MAX + i].bytes;
        if (instruction->operands[OP_INPUTS_MAX + i].buffer < 0) continue;
        *(is_read(instruction, i) ? &changed : &overwritten) += bytes;
    }
    int64_t little = (read + changed + overwritten) / 10;
    if (overwritten > little) return read > little ? MEMORY_COPIES : MEMORY_FILLS;
    return changed > little ? MEMORY_ADDS : MEMORY_READS;
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
        other->use_limit += line->use_limit;
        other->profiled += line->profiled;
        other->flops += line->flops;
        other->bytes += line->bytes;
        return STATUS_OK;
    }
    return vec_push(&lines->all, *line);
}

static enum status collect(const struct step_table *table, const struct program *program, struct step_limits limits,
                           const struct costs *costs, struct lines *lines) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct line line = {.count = program->sections.items[program->instructions.items[i].section].repeat};
        describe(&program->instructions.items[i], &line);
        double repeat = (double)line.count, arithmetic = line.flops / limits.flops_per_s;
        double memory = line.bytes / limits.bytes_per_s[MEMORY_ADDS];
        double used = line.bytes / limits.bytes_per_s[memory_use_of(&program->instructions.items[i])];
        line.limit = repeat * (arithmetic > memory ? arithmetic : memory);
        line.use_limit = repeat * (arithmetic > used ? arithmetic : used);
        line.profiled = repeat * costs_of(costs, program, &program->instructions.items[i]).seconds;
        line.flops *= repeat;
        line.bytes *= repeat;
        line.seconds = seconds_of(table, i, program->instructions.count);
        TRY(add_line(lines, &line));
    }
    return STATUS_OK;
}

static int slower_first(const void *left, const void *right) {
    double a = ((const struct line *)left)->seconds, b = ((const struct line *)right)->seconds;
    return (a < b) - (a > b);
}

static void print_line(const struct line *line, double whole, FILE *out) {
    fprintf(out, "%-9s %-22s %-13s %6" PRId64 " %9.1f %6.1f%% %9.1f %7.1f %9.1f %5.0f%% %5.0f%% %9.1f %9.1f %6.2f\n",
            line->phase, line->op, line->weight, line->count, line->seconds * 1e3, 100 * line->seconds / whole,
            line->flops / line->seconds * 1e-9, line->bytes / line->seconds * 1e-9, line->limit * 1e3,
            100 * line->limit / line->seconds, 100 * line->use_limit / line->seconds,
            (line->seconds - line->limit) * 1e3, line->profiled * 1e3, line->seconds / line->profiled);
}

enum status step_table_print(const struct step_table *table, const struct model_step *step, struct step_limits limits,
                             const struct costs *costs, FILE *out) {
    struct lines lines = {0};
    double whole = step_table_seconds(table, step);
    enum status status = collect(table, model_step_executable(step)->program, limits, costs, &lines);
    if (status == STATUS_OK) {
        struct line sum = {.phase = "all", .op = "", .seconds = 0};
        qsort(lines.all.items, lines.all.count, sizeof *lines.all.items, slower_first);
        fprintf(out, "%-9s %-22s %-13s %6s %9s %7s %9s %7s %9s %6s %6s %9s %9s %6s\n", "phase", "operator", "matrix",
                "count", "ms", "share", "GFLOP/s", "GB/s", "limit ms", "of it", "of use", "over ms", "profiled",
                "of it");
        for (size_t i = 0; i < lines.all.count; i++) {
            const struct line *line = &lines.all.items[i];
            print_line(line, whole, out);
            sum.count += line->count;
            sum.seconds += line->seconds;
            sum.limit += line->limit;
            sum.use_limit += line->use_limit;
            sum.profiled += line->profiled;
            sum.flops += line->flops;
            sum.bytes += line->bytes;
        }
        print_line(&sum, whole, out);
    }
    vec_free(&lines.all);
    return status;
}
