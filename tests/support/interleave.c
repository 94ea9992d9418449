/* Executes one step with the streams' issues in random order. An issue may start by the rule of the workers, who
 * count ended issues. The rule is independent of the vector clocks with which the compiler adds waits. */
#include "support/interleave.h"

#include <string.h>

#include "base/random.h"
#include "compiler/order.h"
#include "runtime/runner_state.h"

struct cursor {
    size_t section;
    int64_t repetition;
    int32_t instruction; /* next to be issued; the section's end: the next repetition follows */
};

struct mixer {
    struct runner *runner;
    const struct program *program;
    struct cursor cursors[STREAMS_MAX];
    int64_t *ended; /* by instruction, in this step */
    struct segments segments;
    struct reach *reaches; /* by buffer: the segments that its operands touch */
    int64_t *pieces; /* by buffer: index of its first piece, that of the reach's first segment; one more at the end */
    int64_t *uses_left; /* by piece: accesses still to come in this step */
    uint64_t seed, draws;
};

/* Moves to the stream's next issue; false at the end of the step. */
static bool settle(const struct mixer *mixer, int stream, struct cursor *cursor) {
    const struct program *program = mixer->program;
    while (cursor->section < program->sections.count) {
        const struct section *section = &program->sections.items[cursor->section];
        int32_t end = section->first + section->count;
        if (cursor->instruction < section->first) cursor->instruction = section->first;
        while (cursor->instruction < end && program->instructions.items[cursor->instruction].stream != stream)
            cursor->instruction++;
        if (cursor->instruction < end) return true;
        cursor->instruction = section->first;
        if (++cursor->repetition < section->repeat) continue;
        cursor->repetition = 0;
        cursor->section++;
    }
    return false;
}

static bool ready(const struct mixer *mixer, const struct cursor *cursor) {
    const struct instruction *instruction = &mixer->program->instructions.items[cursor->instruction];
    for (int32_t w = 0; w < instruction->wait_count; w++) {
        int32_t waited = instruction->waits[w];
        if (mixer->ended[waited] <
            program_issues_required(mixer->program, waited, cursor->instruction, 0, cursor->repetition))
            return false;
    }
    return true;
}

/* Parts of a buffer die one by one, and other buffers may take their bytes: each segment is a piece. What no operand
 * touches may be another buffer's at any time. A device may not have done the last use yet: the CPU waits for it. */
static void poison(const struct mixer *mixer, const struct buffer *buffer, int32_t segment) {
    const struct arena *arena = &mixer->runner->arenas[buffer->tier];
    int64_t begin = segments_begin(&mixer->segments, segment), end = segments_begin(&mixer->segments, segment + 1);
    if (!arena->mapped) return;
    runner_finish_stream(mixer->runner, mixer->runner->streams[0]);
    memset((char *)arena->base + begin, 0xff, (size_t)(end - begin));
}

/* Adds `change` to the uses left of every piece that an operand touches, and poisons pieces with none left. */
static void count_use(struct mixer *mixer, const struct buffer *buffer, struct reach reach, int64_t change) {
    bool kept = buffer->persistent || buffer_is_kept(buffer);
    for (int32_t segment = reach.first; segment < reach.end; segment++) {
        int64_t *left = &mixer->uses_left[mixer->pieces[buffer->id] + segment - mixer->reaches[buffer->id].first];
        *left += change;
        if (*left == 0 && !kept) poison(mixer, buffer, segment);
    }
}

static void count_uses_of(struct mixer *mixer, int32_t instruction, int64_t change) {
    const struct program *program = mixer->program;
    const struct reach *reach = segments_of(&mixer->segments, instruction);
    for (int k = 0; k < OPERANDS_MAX; k++) {
        int32_t buffer = program->instructions.items[instruction].operands[k].buffer;
        if (buffer >= 0) count_use(mixer, &program->buffers.items[buffer], *reach++, change);
    }
}

/* The smallest that has both; one without segments is none. */
static struct reach join_reaches(struct reach a, struct reach b) {
    if (a.first == a.end) return b;
    return (struct reach){a.first < b.first ? a.first : b.first, a.end > b.end ? a.end : b.end};
}

static enum status find_pieces(struct mixer *mixer) {
    const struct program *program = mixer->program;
    TRY(segments_create(program, &mixer->segments));
    mixer->reaches = mem_array(program->buffers.count + 1, sizeof *mixer->reaches);
    mixer->pieces = mem_array(program->buffers.count + 1, sizeof *mixer->pieces);
    if (!mixer->reaches || !mixer->pieces) return STATUS_FAILED;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++) {
        const struct reach *reach = segments_of(&mixer->segments, i);
        for (int k = 0; k < OPERANDS_MAX; k++) {
            int32_t buffer = program->instructions.items[i].operands[k].buffer;
            if (buffer >= 0) mixer->reaches[buffer] = join_reaches(mixer->reaches[buffer], *reach++);
        }
    }
    for (size_t b = 0; b < program->buffers.count; b++)
        mixer->pieces[b + 1] = mixer->pieces[b] + mixer->reaches[b].end - mixer->reaches[b].first;
    return STATUS_OK;
}

static enum status count_uses(struct mixer *mixer) {
    const struct program *program = mixer->program;
    TRY(find_pieces(mixer));
    mixer->uses_left = mem_array((size_t)mixer->pieces[program->buffers.count], sizeof *mixer->uses_left);
    if (!mixer->uses_left) return STATUS_FAILED;
    for (int32_t i = 0; i < (int32_t)program->instructions.count; i++)
        count_uses_of(mixer, i, program->sections.items[program->instructions.items[i].section].repeat);
    return STATUS_OK;
}

static enum status mix(struct mixer *mixer) {
    for (;;) {
        int runnable[STREAMS_MAX], count = 0, waiting = 0;
        for (int s = 0; s < mixer->program->streams; s++) {
            if (!settle(mixer, s, &mixer->cursors[s])) continue;
            waiting++;
            if (ready(mixer, &mixer->cursors[s])) runnable[count++] = s;
        }
        if (waiting == 0) return STATUS_OK;
        if (count == 0) return status_set(STATUS_FAILED, "program: every stream waits for another");
        uint64_t draw = random_u64(mixer->seed, RANDOM_TEST, 0, mixer->draws++);
        struct cursor *cursor = &mixer->cursors[runnable[draw % (uint64_t)count]];
        runner_execute(mixer->runner, cursor->instruction, cursor->instruction, cursor->repetition,
                       mixer->runner->streams[0]);
        mixer->ended[cursor->instruction]++;
        count_uses_of(mixer, cursor->instruction, -1);
        cursor->instruction++;
    }
}

static enum status step(struct mixer *mixer, const double *scalars) {
    struct runner *runner = mixer->runner;
    enum status status;
    runner_begin(runner, PART_STEP, scalars);
    TRY_GOTO(status, runner_mirrors_send(runner), ended);
    TRY_GOTO(status, mix(mixer), ended);
ended:
    runner_finish_stream(runner, runner->streams[0]);
    runner_end(runner);
    TRY(status);
    TRY(runner_status(runner));
    return runner_mirrors_fetch(runner);
}

enum status runner_step_interleaved(struct runner *runner, const double *scalars, uint64_t seed) {
    const struct program *program = runner->executable->program;
    struct mixer mixer = {.runner = runner, .program = program, .seed = seed};
    mixer.ended = mem_array(program->instructions.count, sizeof *mixer.ended);
    enum status status;
    TRY_GOTO(status, mixer.ended ? count_uses(&mixer) : STATUS_FAILED, done);
    TRY_GOTO(status, step(&mixer, scalars), done);
done:
    mem_free(mixer.ended);
    segments_free(&mixer.segments);
    mem_free(mixer.reaches);
    mem_free(mixer.pieces);
    mem_free(mixer.uses_left);
    return status;
}
