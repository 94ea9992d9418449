/* What lies in the device tier when a step has most there, and how near the step comes to that elsewhere.
 *
 *     build/ballast plan MODEL_DIR -o PLAN.json ...
 *     build/bench/peak PLAN.json
 *
 * First each block's fullest moment, by phase; then the buffers of the fullest of all, those of like names together (#
 * stands for a number), but for gradients. Bytes are those of the program; gaps between buffers are `ballast plan`'s
 * "unused". */
#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/process.h"
#include "session/session_plan.h"

struct line {
    char name[96];
    const char *kind;
    int64_t bytes, count;
};

struct lines {
    VEC(struct line) list;
};

/* "layer.#.fc" of "layer.11.fc". */
static void name_pattern(const struct buffer *buffer, char *out, size_t size) {
    const char *from = buffer->name ? buffer->name : "";
    size_t to = 0;
    bool keeps = buffer->kind == BUFFER_GRADIENTS;
    while (*from && to + 1 < size) {
        bool digit = isdigit((unsigned char)*from) != 0;
        out[to++] = digit && !keeps ? '#' : *from;
        for (from++; digit && !keeps && isdigit((unsigned char)*from);)
            from++;
    }
    out[to] = '\0';
}

static enum status add_buffer(struct lines *lines, const struct buffer *buffer, int64_t bytes) {
    struct line line = {.kind = buffer_kind_name(buffer->kind), .bytes = bytes, .count = 1};
    name_pattern(buffer, line.name, sizeof line.name);
    for (size_t i = 0; i < lines->list.count; i++) {
        struct line *other = &lines->list.items[i];
        if (strcmp(other->name, line.name) != 0 || other->kind != line.kind) continue;
        other->bytes += bytes;
        other->count++;
        return STATUS_OK;
    }
    return vec_push(&lines->list, line);
}

static int by_bytes(const void *a, const void *b) {
    const struct line *x = a, *y = b;
    return (x->bytes < y->bytes) - (x->bytes > y->bytes);
}

static bool is_live(const struct buffer *buffer, int32_t at) {
    return buffer->tier == TIER_DEVICE && (buffer->persistent || (buffer->first <= at && at <= buffer->last));
}

static enum status print_buffers(const struct program *program, int32_t at) {
    struct lines lines = {0};
    enum status status = STATUS_OK;
    for (size_t i = 0; i < program->buffers.count && status == STATUS_OK; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (is_live(buffer, at)) status = add_buffer(&lines, buffer, program_moved_bytes(program, buffer->bytes));
    }
    if (lines.list.count > 0) qsort(lines.list.items, lines.list.count, sizeof *lines.list.items, by_bytes);
    for (size_t i = 0; i < lines.list.count; i++)
        printf("  %12" PRId64 "  %3" PRId64 "  %-12s %s\n", lines.list.items[i].bytes, lines.list.items[i].count,
               lines.list.items[i].kind, lines.list.items[i].name);
    vec_free(&lines.list);
    return status;
}

static int64_t live_bytes(const struct program *program, int32_t at) {
    int64_t bytes = 0;
    for (size_t i = 0; i < program->buffers.count; i++)
        if (is_live(&program->buffers.items[i], at))
            bytes += program_moved_bytes(program, program->buffers.items[i].bytes);
    return bytes;
}

static const struct node *node_of(const struct program *program, size_t at) {
    const struct instruction *instruction = &program->instructions.items[at];
    return instruction->opcode == OPCODE_KERNEL ? instruction->node : NULL;
}

/* Runs of kernels of one block and phase; returns the fullest moment. */
static int32_t print_moments(const struct program *program) {
    const struct node *fullest = NULL;
    int64_t most = -1, bytes = 0;
    int32_t found = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct node *node = node_of(program, i);
        if (!node) continue;
        int64_t live = live_bytes(program, (int32_t)i);
        if (live > most) most = live, found = (int32_t)i;
        bool other = fullest && (node->block != fullest->block || node->phase != fullest->phase);
        if (other) printf("  %12" PRId64 "  %s\n", bytes, fullest->name);
        if (!fullest || other || live > bytes) fullest = node, bytes = live;
    }
    if (fullest) printf("  %12" PRId64 "  %s\n", bytes, fullest->name);
    return found;
}

static enum status print_peak(const struct program *program) {
    printf("fullest moments of blocks\n");
    int32_t at = print_moments(program);
    printf("%" PRId64 " bytes live at %s, of an arena of %" PRId64 "\n", live_bytes(program, at),
           node_of(program, (size_t)at)->name, program->tier_bytes[TIER_DEVICE]);
    return print_buffers(program, at);
}

static enum status run(const char *path, struct scratch *memory) {
    struct plan decided;
    struct plan_options options;
    struct session session = {0};
    struct session_plan plan = {0};
    const char *model;
    TRY(plan_read(path, &decided));
    TRY(plan_read_model(path, memory, &model));
    if (!model) return status_set(STATUS_BAD_INPUT, "%s: model: the plan names none", path);
    plan_options_init(&options);
    options.outline = true;
    enum status status = session_begin_step(model, &decided, path, &options, &session, &plan);
    if (status == STATUS_OK) status = print_peak(programs_main(&plan.programs)->program);
    session_plan_free(&plan);
    session_close(&session);
    return status;
}

int main(int count, char **words) {
    struct scratch memory = {0};
    if (count != 2) {
        fprintf(stderr, "usage: peak PLAN.json\n");
        return STATUS_BAD_INPUT;
    }
    if (process_begin() != STATUS_OK) return STATUS_FAILED;
    enum status status = run(words[1], &memory);
    if (status != STATUS_OK) fprintf(stderr, "peak: %s\n", status_message());
    scratch_free(&memory);
    return status;
}
