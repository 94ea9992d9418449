/* Order of the work on a backend's streams, by events. */
#include "runtime/runner_state.h"

static const struct backend_streams *streams_of(const struct runner *runner) {
    return runner->executable->backend->streams;
}

bool runner_on_host(const struct program *program, const struct instruction *instruction) {
    if (opcode_is_collective(instruction->opcode)) return true; /* what others wait for is begun when it can be */
    if (instruction->opcode != OPCODE_COPY) return instruction->tier == TIER_HOST;
    return program->buffers.items[instruction->operands[0].buffer].tier == TIER_DISK ||
           program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer].tier == TIER_DISK;
}

static enum status create_events(struct runner *runner) {
    const struct program *program = runner->executable->program;
    runner->events = mem_array(program->instructions.count, sizeof *runner->events);
    if (!runner->events) return STATUS_FAILED;
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int32_t w = 0; w < program->instructions.items[i].wait_count; w++) {
            void **event = &runner->events[program->instructions.items[i].waits[w]];
            if (!*event) TRY(streams_of(runner)->create_event(event));
        }
    return STATUS_OK;
}

/* Whether the copy goes through a staging buffer. */
static bool needs_staging(const struct runner *runner, const struct instruction *instruction) {
    const struct program *program = runner->executable->program;
    if (instruction->opcode != OPCODE_COPY || !runner_on_host(program, instruction)) return false;
    enum tier from = program->buffers.items[instruction->operands[0].buffer].tier;
    enum tier to = program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer].tier;
    return !runner->arenas[from == TIER_DISK ? to : from].mapped;
}

enum status runner_streams_open(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    const struct program *program = runner->executable->program;
    if (!streams) return STATUS_OK;
    TRY(streams->enter());
    for (int s = 0; s < program->streams; s++)
        TRY(streams->create(&runner->streams[s]));
    TRY(create_events(runner));
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        struct copy_staging *staging = &runner->stagings[instruction->stream];
        if (needs_staging(runner, instruction) && !staging->place[0])
            TRY(copy_staging_open(runner->executable->backend, staging));
    }
    return STATUS_OK;
}

void runner_streams_close(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams) return;
    for (int s = 0; s < STREAMS_MAX; s++) {
        copy_staging_close(runner->executable->backend, &runner->stagings[s]);
        if (runner->streams[s]) streams->free(runner->streams[s]);
    }
    for (size_t i = 0; runner->events && i < runner->executable->program->instructions.count; i++)
        if (runner->events[i]) streams->free_event(runner->events[i]);
    mem_free(runner->events);
}

/* The event may have been recorded again since, for a later issue: that cannot wait for this instruction, so there is
 * no deadlock. */
void runner_order(struct runner *runner, int32_t index) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams || runner->failed) return;
    const struct program *program = runner->executable->program;
    const struct instruction *instruction = &program->instructions.items[index];
    bool on_host = runner_on_host(program, instruction);
    enum status status = STATUS_OK;
    for (int32_t w = 0; w < instruction->wait_count && status == STATUS_OK; w++) {
        void *event = runner->events[instruction->waits[w]];
        status = on_host ? streams->await(event) : streams->wait(runner->streams[instruction->stream], event);
    }
    if (status != STATUS_OK) runner_keep_failure(runner);
}

void runner_record(struct runner *runner, int32_t index) {
    const struct backend_streams *streams = streams_of(runner);
    if (!streams || runner->failed || !runner->events[index]) return;
    int stream = runner->executable->program->instructions.items[index].stream;
    if (streams->record(runner->events[index], runner->streams[stream]) != STATUS_OK) runner_keep_failure(runner);
}

/* Also after a failure: no work may be left on the streams when the caller goes on. */
void runner_finish_stream(struct runner *runner, void *stream) {
    const struct backend_streams *streams = streams_of(runner);
    if (streams && streams->finish(stream) != STATUS_OK) runner_keep_failure(runner);
}

void runner_enter(struct runner *runner) {
    const struct backend_streams *streams = streams_of(runner);
    if (streams && streams->enter() != STATUS_OK) runner_keep_failure(runner);
}
