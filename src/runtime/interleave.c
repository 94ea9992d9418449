/* One step with the streams' issues in random order. Whether an issue may start is decided as workers decide it, by
 * counting ended issues, and so independently of the vector clocks by which waits were added. */
#include <string.h>

#include "base/random.h"
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
    int64_t *ended;     /* by instruction, in this step */
    int32_t *pieces;    /* by buffer: index of its first piece; one more at the end */
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

/* A pack's tensors die one by one, and other buffers may take their bytes: each is a piece; any other buffer is one. */
static int32_t piece_count(const struct buffer *buffer) { return buffer->pack ? buffer->pack->count : 1; }

static void piece_range(const struct buffer *buffer, int32_t piece, int64_t *begin, int64_t *end) {
    *begin = buffer->pack ? buffer->pack->members[piece].offset : 0;
    bool last = piece + 1 == piece_count(buffer);
    *end = last ? buffer->bytes : buffer->pack->members[piece + 1].offset;
}

/* Adds `change` to the uses left of every piece that an operand touches, and poisons pieces with none left. */
static void count_use(struct mixer *mixer, const struct operand *operand, int64_t change) {
    const struct buffer *buffer = &mixer->program->buffers.items[operand->buffer];
    bool kept = buffer->persistent || buffer_is_kept(buffer);
    const struct arena *arena = &mixer->runner->arenas[buffer->tier];
    char *base = arena->mapped ? arena->base : NULL;
    for (int32_t i = 0; i < piece_count(buffer); i++) {
        int64_t begin, end;
        piece_range(buffer, i, &begin, &end);
        bool touched = !buffer->pack || (operand->offset < end && begin < operand->offset + operand->bytes);
        if (!touched) continue;
        int64_t *left = &mixer->uses_left[mixer->pieces[buffer->id] + i];
        *left += change;
        if (*left == 0 && !kept && base) memset(base + buffer->offset + begin, 0xff, (size_t)(end - begin));
    }
}

static void end_uses(struct mixer *mixer, const struct instruction *instruction) {
    for (int k = 0; k < OPERANDS_MAX; k++)
        if (instruction->operands[k].buffer >= 0) count_use(mixer, &instruction->operands[k], -1);
}

static enum status count_uses(struct mixer *mixer) {
    const struct program *program = mixer->program;
    mixer->pieces = mem_array(program->buffers.count + 1, sizeof *mixer->pieces);
    if (!mixer->pieces) return STATUS_FAILED;
    for (size_t b = 0; b < program->buffers.count; b++)
        mixer->pieces[b + 1] = mixer->pieces[b] + piece_count(&program->buffers.items[b]);
    mixer->uses_left = mem_array((size_t)mixer->pieces[program->buffers.count], sizeof *mixer->uses_left);
    if (!mixer->uses_left) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct instruction *instruction = &program->instructions.items[i];
            int64_t repeat = program->sections.items[instruction->section].repeat;
            if (instruction->operands[k].buffer >= 0) count_use(mixer, &instruction->operands[k], repeat);
        }
    return STATUS_OK;
}

static enum status mix(struct mixer *mixer) {
    for (;;) {
        int candidates[STREAMS_MAX], count = 0, waiting = 0;
        for (int s = 0; s < mixer->program->streams; s++) {
            if (!settle(mixer, s, &mixer->cursors[s])) continue;
            waiting++;
            if (ready(mixer, &mixer->cursors[s])) candidates[count++] = s;
        }
        if (waiting == 0) return STATUS_OK;
        if (count == 0) return status_set(STATUS_FAILED, "program: every stream waits for another");
        uint64_t draw = random_u64(mixer->seed, RANDOM_TEST, 0, mixer->draws++);
        struct cursor *cursor = &mixer->cursors[candidates[draw % (uint64_t)count]];
        const struct instruction *instruction = &mixer->program->instructions.items[cursor->instruction];
        runner_execute_instruction(mixer->runner, instruction, cursor->repetition, mixer->runner->streams[0]);
        mixer->ended[cursor->instruction]++;
        end_uses(mixer, instruction);
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
    mem_free(mixer.pieces);
    mem_free(mixer.uses_left);
    return status;
}
