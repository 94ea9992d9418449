#include <string.h>

#include "base/random.h"
#include "run/runner_state.h"

/* One step with the streams' issues mixed at random. What is legal is decided as the workers decide it, by counting
 * ended issues, and so independently of the vector clocks that placed the waits. */

struct cursor {
    size_t section;
    int64_t run;
    int32_t instruction; /* next to look at; the section's end: next run */
};

struct mixer {
    struct runner *runner;
    const struct program *program;
    struct cursor cursors[STREAMS_MAX];
    int64_t *ended;     /* by instruction, in this step */
    int64_t *uses_left; /* by buffer: accesses still to come in this step */
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
        if (++cursor->run < section->repeat) continue;
        cursor->run = 0;
        cursor->section++;
    }
    return false;
}

static bool ready(const struct mixer *mixer, const struct cursor *cursor) {
    const struct instruction *instruction = &mixer->program->instructions.items[cursor->instruction];
    for (int32_t w = 0; w < instruction->wait_count; w++) {
        int32_t waited = instruction->waits[w];
        if (mixer->ended[waited] < runner_required(mixer->program, waited, cursor->instruction, 0, cursor->run))
            return false;
    }
    return true;
}

static void poison_dead(struct mixer *mixer, const struct instruction *instruction) {
    for (int k = 0; k < OPERANDS_MAX; k++) {
        int32_t id = instruction->operands[k].buffer;
        if (id < 0 || --mixer->uses_left[id] > 0) continue;
        const struct buffer *buffer = &mixer->program->buffers.items[id];
        bool kept = buffer->persistent || buffer->kind == BUFFER_RESULTS || (buffer->tensor && buffer->tensor->kept);
        if (!kept) memset((char *)mixer->runner->arena->base + buffer->offset, 0xff, (size_t)buffer->bytes);
    }
}

static void count_uses(struct mixer *mixer) {
    const struct program *program = mixer->program;
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int32_t i = section->first; i < section->first + section->count; i++)
            for (int k = 0; k < OPERANDS_MAX; k++) {
                int32_t id = program->instructions.items[i].operands[k].buffer;
                if (id >= 0) mixer->uses_left[id] += section->repeat;
            }
    }
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
        runner_run_instruction(mixer->runner, instruction, cursor->run);
        mixer->ended[cursor->instruction]++;
        poison_dead(mixer, instruction);
        cursor->instruction++;
    }
}

enum status runner_step_interleaved(struct runner *runner, const double *scalars, uint64_t seed) {
    const struct program *program = runner->executable->program;
    struct mixer mixer = {.runner = runner, .program = program, .seed = seed};
    mixer.ended = mem_array(program->instructions.count, sizeof *mixer.ended);
    mixer.uses_left = mem_array(program->buffers.count, sizeof *mixer.uses_left);
    enum status status = mixer.ended && mixer.uses_left ? STATUS_OK : STATUS_FAILED;
    runner->scalars = scalars;
    if (status == STATUS_OK) {
        count_uses(&mixer);
        status = mix(&mixer);
    }
    mem_free(mixer.ended);
    mem_free(mixer.uses_left);
    return status;
}
