#include "runtime/runner.h"

#include "base/clock.h"
#include "compiler/program.h"
#include "runtime/runner_state.h"

void *runner_address(const struct runner *runner, const struct operand *operand, int64_t repetition) {
    if (operand->buffer < 0) return NULL;
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    char *base = runner->arenas[buffer->tier].base;
    return base ? base + buffer->offset + operand->offset + repetition * operand->stride : NULL;
}

/* Collectives: created with the runner, started and waited for by the communication stream's worker. Other ranks are
 * told how long an instruction may take. */

static enum status make_operation(struct runner *runner, const struct instruction *instruction) {
    const struct program *program = runner->executable->program;
    const struct operand *data = &instruction->operands[OP_INPUTS_MAX], *mine = &instruction->operands[0];
    if (data->buffer < 0) data = mine; /* the root's of a broadcast */
    enum tier tier = program->buffers.items[data->buffer].tier;
    struct comm_spec spec;
    struct lane_tree tree;
    enum status status = collectives_spec(program, instruction->collective, &tree, &spec);
    BUG_IF(runner->arenas[tier].mapped == spec.on_device, "an operation between ranks on memory of another kind");
    spec.data = runner_address(runner, data, 0);
    if (spec.kind == COMM_ALL_TO_ALL) {
        spec.out = spec.data;
        spec.data = runner_address(runner, mine, 0);
    }
    if (spec.mine) spec.mine = mine->buffer >= 0 ? runner_address(runner, mine, 0) : spec.data; /* an empty block */
    spec.staging = runner_address(runner, &instruction->operands[OPERAND_WORKSPACE], 0);
    if (status == STATUS_OK) status = comm_create(runner->comm, &spec, &runner->operations[instruction->collective]);
    lane_tree_free(&tree);
    return status;
}

/* Operations between ranks (runner.c). Opening is collective. */
static enum status runner_operations_open(struct runner *runner) {
    const struct program *program = runner->executable->program;
    if (program->collectives.count == 0) return STATUS_OK;
    BUG_IF(!runner->comm || mesh_ranks(&runner->comm->mesh) != rank_place_ranks(&program->place),
           "a program for %d ranks", rank_place_ranks(&program->place));
    runner->operations = mem_array(program->collectives.count, sizeof *runner->operations);
    TRY(comm_agree(runner->comm, runner->operations ? STATUS_OK : STATUS_FAILED));
    for (size_t i = 0; i < program->instructions.count; i++)
        if (opcode_is_collective(program->instructions.items[i].opcode))
            TRY(make_operation(runner, &program->instructions.items[i]));
    return STATUS_OK;
}

static void runner_operations_close(struct runner *runner) {
    for (size_t i = 0; runner->operations && i < runner->executable->program->collectives.count; i++)
        comm_free(runner->operations[i]);
    mem_free(runner->operations);
}

/* Seconds of the longest instruction at rates that any machine surpasses by far: 1 GFLOP/s, 100 MB/s in memory, 10 MB/s
 * of a disk. */
static double runner_find_longest(const struct program *program) {
    static const double FLOPS_PER_S = 1e9, BYTES_PER_S = 1e8, DISK_BYTES_PER_S = 1e7;
    double longest_s = 0;
    for (size_t n = 0; n < program->instructions.count; n++) {
        const struct instruction *instruction = &program->instructions.items[n];
        struct op_cost cost = {.flops = 0};
        bool disk = false;
        if (instruction->node) op_cost(instruction->node, &cost);
        for (int i = 0; i < OPERANDS_MAX && !instruction->node; i++) {
            const struct operand *operand = &instruction->operands[i];
            if (operand->buffer < 0) continue;
            cost.bytes += (double)operand->bytes;
            disk |= program->buffers.items[operand->buffer].tier == TIER_DISK;
        }
        double seconds = cost.flops / FLOPS_PER_S + cost.bytes / (disk ? DISK_BYTES_PER_S : BYTES_PER_S);
        if (seconds > longest_s) longest_s = seconds;
    }
    return longest_s;
}

/* Copies are filled from their originals without changing them. */
bool runner_changes_state(const struct program *program, const struct instruction *instruction) {
    for (int i = 0; i < OPERANDS_MAX; i++) {
        const struct operand *operand = &instruction->operands[i];
        if (operand->buffer < 0 || operand->access == ACCESS_READ) continue;
        const struct buffer *buffer = &program->buffers.items[operand->buffer];
        bool state = buffer->kind == BUFFER_PARAMETERS || buffer->kind == BUFFER_OPTIMIZER;
        if (state && buffer->original < 0) return true;
    }
    return false;
}

/* Whether the host's kernel works on the operands. */
static bool has_host_kernel(const struct executable *executable, const struct instruction *instruction) {
    return executable->host_kernels && instruction->tier == TIER_HOST;
}

/* The values that the kernel reads: those of the present step, or of the step that left the instruction. */
static const double *values_for(const struct runner *runner, const struct instruction *instruction) {
    if (!instruction->node->op->reads_scalars) return NULL;
    if (runner->values && !has_host_kernel(runner->executable, instruction))
        return runner->values + (instruction->deferred ? SCALAR_COUNT : 0);
    return instruction->deferred ? runner->left : runner->scalars;
}

static const struct kernel *make_call(const struct runner *runner, const struct instruction *instruction,
                                      int64_t repetition, void *stream, struct kernel_call *out) {
    struct kernel_call call = {.scalars = values_for(runner, instruction),
                               .stream = stream,
                               .first_element = instruction->first_element,
                               .elements = instruction->elements};
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = runner_address(runner, &instruction->operands[i], repetition);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = runner_address(runner, &instruction->operands[OP_INPUTS_MAX + i], repetition);
    call.workspace = runner_address(runner, &instruction->operands[OPERAND_WORKSPACE], repetition);
    const struct executable *executable = runner->executable;
    bool on_host = has_host_kernel(executable, instruction);
    *out = call;
    return (on_host ? executable->host_kernels : executable->kernels)[instruction->node->id];
}

/* Kernels of a batch do their work in one call. */
static enum status call_kernels(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream) {
    const struct program *program = runner->executable->program;
    const struct kernel *kernels[KERNELS_TOGETHER];
    struct kernel_call calls[KERNELS_TOGETHER];
    int count = 0;
    for (int32_t i = first; i <= last; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->stream != program->instructions.items[first].stream) continue;
        kernels[count] = make_call(runner, instruction, repetition, stream, &calls[count]);
        count++;
    }
    return first == last ? kernels[0]->run(kernels[0], calls) : kernels[0]->run_together(kernels, calls, count);
}

/* The backend that works on the instruction's tier. */
static const struct backend *backend_of(const struct runner *runner, const struct instruction *instruction) {
    const struct backend *backend = runner->executable->backend;
    return instruction->tier == TIER_HOST && backend->host ? backend->host : backend;
}

static struct tier_place place_of(const struct runner *runner, const struct operand *operand) {
    const struct buffer *buffer = &runner->executable->program->buffers.items[operand->buffer];
    return (struct tier_place){&runner->arenas[buffer->tier], buffer->offset};
}

/* Copies a whole buffer, in whole blocks from and to the disk. */
static enum status copy_buffer(struct runner *runner, const struct instruction *instruction, void *stream) {
    const struct program *program = runner->executable->program;
    int64_t bytes = program_moved_bytes(program, program->buffers.items[instruction->operands[0].buffer].bytes);
    return tier_copy(runner->executable->backend, &runner->stagings[instruction->stream],
                     place_of(runner, &instruction->operands[0]),
                     place_of(runner, &instruction->operands[OP_INPUTS_MAX]), bytes, instruction->stream, stream);
}

enum status runner_enqueue(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream) {
    const struct instruction *instruction = &runner->executable->program->instructions.items[first];
    const struct backend *backend = backend_of(runner, instruction);
    const struct operand *target = &instruction->operands[OP_INPUTS_MAX];
    void *from = runner_address(runner, &instruction->operands[0], repetition),
         *to = runner_address(runner, target, repetition);
    switch (instruction->opcode) {
    case OPCODE_KERNEL: return call_kernels(runner, first, last, repetition, stream);
    case OPCODE_ZERO: backend->zero(to, target->bytes, stream); break;
    case OPCODE_COPY: return copy_buffer(runner, instruction, stream);
    case OPCODE_TAKE: backend->copy(to, from, target->bytes, stream); break;
    case OPCODE_ADD: backend->add(to, from, target->bytes / (int64_t)sizeof(float), false, stream); break;
    case OPCODE_ADD_BF16: backend->add(to, from, target->bytes / (int64_t)sizeof(float), true, stream); break;
    case OPCODE_ALL_REDUCE:
    case OPCODE_REDUCE_SCATTER:
    case OPCODE_ALL_GATHER:
    case OPCODE_ALL_TO_ALL:
    case OPCODE_BROADCAST:
        comm_start(runner->operations[instruction->collective]);
        return comm_wait(runner->operations[instruction->collective]);
    case OPCODE_ELSEWHERE: BUG("an instruction of other ranks");
    }
    return STATUS_OK;
}

void runner_keep_failure(struct runner *runner) {
    pthread_mutex_lock(&runner->lock);
    if (!runner->failed) status_save(STATUS_FAILED, &runner->failure);
    runner->failed = true;
    pthread_mutex_unlock(&runner->lock);
}

enum status runner_status(struct runner *runner) {
    return runner->failed ? status_restore(&runner->failure) : STATUS_OK;
}

enum status runner_name_failure(const struct instruction *instruction, enum status status) {
    if (status == STATUS_OK || !instruction->node) return status;
    return status_prefix(status, "%s (%s)", instruction->node->name, instruction->node->op->name);
}

static bool leaves_out(const struct runner *runner, const struct instruction *instruction) {
    return !(runner->parts & (instruction->deferred ? PART_DEFERRED : PART_STEP));
}

void runner_pass_gate(struct runner *runner) {
    if (!runner->gate) return;
    if (runner->comm) step_watch_hold(&runner->comm->watch);
    runner->gate(runner->gate_payload);
    if (runner->comm) step_watch_release(&runner->comm->watch);
}

void runner_execute(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream) {
    const struct program *program = runner->executable->program;
    const struct instruction *instruction = &program->instructions.items[first];
    if (leaves_out(runner, instruction) || runner->failed) return;
    if (runner_changes_state(program, instruction)) runner_pass_gate(runner);
    const struct backend_streams *streams = runner->executable->backend->streams;
    enum status status;
    if (streams && runner_on_host(program, instruction)) TRY_GOTO(status, streams->finish(stream), named);
    TRY_GOTO(status, runner_enqueue(runner, first, last, repetition, stream), named);
    if (streams) status = streams->check();
named:
    if (runner_name_failure(instruction, status) != STATUS_OK) runner_keep_failure(runner);
}

/* Recording waits for the stream before and after the instruction, which is then single. Each issue has an event of its
 * own, which no other thread touches. */
static void execute_issue(struct runner *runner, int32_t first, int32_t last, int64_t repetition, void *stream) {
    if (!runner->recorder || !(runner->parts & PART_STEP)) {
        runner_execute(runner, first, last, repetition, stream);
        return;
    }
    runner_finish_stream(runner, stream);
    int64_t start_ns = clock_now_ns();
    runner_execute(runner, first, last, repetition, stream);
    runner_finish_stream(runner, stream);
    bool left_out = leaves_out(runner, &runner->executable->program->instructions.items[first]);
    int64_t end_ns = left_out ? start_ns : clock_now_ns();
    struct timeline_event *event = timeline_find(runner->recorder, first, repetition);
    event->start_s = (double)(start_ns - runner->began_ns) * 1e-9;
    event->end_s = (double)(end_ns - runner->began_ns) * 1e-9;
}

int32_t runner_execute_from(struct runner *runner, int32_t index, int64_t repetition, void *stream) {
    const struct graph_segment *graph_segment = runner_graph_segment_at(runner, index);
    int32_t last = runner->recorder || runner->observer ? index : runner->batches[index];
    if (graph_segment)
        runner_launch(runner, graph_segment, stream);
    else
        execute_issue(runner, index, last, repetition, stream);
    if (runner->comm) step_watch_note(&runner->comm->watch);
    return graph_segment ? graph_segment->last : last;
}

/* Executes all streams' instructions in the caller's thread. */
static void run_in_order(struct runner *runner) {
    const struct program *program = runner->executable->program;
    void *stream = runner->streams[0];
    for (size_t s = 0; s < program->sections.count; s++) {
        const struct section *section = &program->sections.items[s];
        for (int64_t repetition = 0; repetition < section->repeat; repetition++)
            for (int32_t i = section->first; i < section->first + section->count; i++) {
                i = runner_execute_from(runner, i, repetition, stream);
                if (!runner->observer) continue;
                runner_finish_stream(runner, stream);
                runner->observer(runner->observer_payload, runner, i, repetition);
            }
    }
    runner_finish_stream(runner, stream);
}

void runner_begin(struct runner *runner, int parts, const double *scalars) {
    runner->scalars = scalars;
    runner->parts = parts | (runner->pending ? PART_DEFERRED : 0);
    runner->began_ns = clock_now_ns();
}

void runner_end(struct runner *runner) {
    bool stepped = runner->parts & PART_STEP;
    runner->pending = stepped && runner->executable->program->defers;
    runner->warm = runner->warm || stepped;
    if (stepped) memcpy(runner->left, runner->scalars, sizeof runner->left);
    if (stepped && runner->recorder) timeline_end(runner->recorder);
}

static enum status run_whole(struct runner *runner, int parts, const double *scalars) {
    runner_enter(runner);
    runner_begin(runner, parts, scalars);
    TRY(runner_mirrors_send(runner));
    runner_graph_segments_begin(runner);
    if (runner->executable->program->streams == 1 || runner->observer)
        run_in_order(runner);
    else
        runner_workers_step(runner);
    runner_end(runner);
    TRY(runner_status(runner));
    return parts & PART_STEP ? runner_mirrors_fetch(runner) : STATUS_OK;
}

/* A backend's streams are far behind the workers, who say nothing of them: its steps are not watched. */
static enum status run_parts(struct runner *runner, int parts, const double *scalars) {
    struct step_watch *watch = runner->comm && !runner->executable->backend->streams ? &runner->comm->watch : NULL;
    if (watch) step_watch_begin(watch, runner->steps_made++ < COLD_STEPS ? runner->longest_s : 0);
    enum status status = run_whole(runner, parts, scalars);
    if (watch) step_watch_end(watch);
    return status;
}

enum status runner_step(struct runner *runner, const double *scalars) { return run_parts(runner, PART_STEP, scalars); }

enum status runner_finish(struct runner *runner) {
    return runner->pending ? run_parts(runner, 0, NULL) : runner_status(runner);
}

/* All that a rank makes by itself. */
static enum status make_parts(struct runner *runner) {
    const struct program *program = runner->executable->program;
    bool disk = program->tier_bytes[TIER_DISK] > 0;
    runner->ended = mem_array(program->instructions.count, sizeof *runner->ended);
    if (disk) runner->bounce_buffer = mem_aligned(DISK_ALIGNMENT, RUNNER_BOUNCE_BYTES);
    if (!runner->ended || (disk && !runner->bounce_buffer)) return STATUS_FAILED;
    TRY(runner_streams_open(runner));
    TRY(runner_graph_segments_open(runner));
    TRY(batches_find(runner->executable, &runner->batches));
    TRY(runner_mirrors_open(runner));
    return runner_workers_start(runner);
}

enum status runner_create(const struct executable *executable, const struct arena *arenas, struct comm *comm,
                          struct runner **out) {
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        BUG_IF(arenas[tier].bytes < executable->program->tier_bytes[tier], "an arena smaller than its program");
    BUG_IF(!executable->proved, "a program that was not proved");
    struct runner *runner = mem_array(1, sizeof *runner);
    TRY(comm_agree(comm, runner ? STATUS_OK : STATUS_FAILED));
    *runner = (struct runner){.executable = executable, .arenas = arenas, .comm = comm};
    runner_workers_open(runner);
    enum status status;
    TRY_GOTO(status, comm_agree(comm, make_parts(runner)), failed);
    TRY_GOTO(status, runner_operations_open(runner), failed);
    runner->longest_s = runner_find_longest(executable->program);
    *out = runner;
    return STATUS_OK;
failed:
    runner_free(runner);
    return status;
}

void runner_free(struct runner *runner) {
    if (!runner) return;
    runner_workers_close(runner);
    runner_operations_close(runner);
    runner_mirrors_close(runner);
    runner_graph_segments_close(runner);
    runner_streams_close(runner);
    mem_free(runner->batches);
    mem_free(runner->ended);
    mem_free(runner->bounce_buffer);
    mem_free(runner);
}

void runner_set_gate(struct runner *runner, runner_gate *gate, void *payload) {
    runner->gate = gate;
    runner->gate_payload = payload;
}

void runner_set_observer(struct runner *runner, runner_observer *observer, void *payload) {
    runner->observer = observer;
    runner->observer_payload = payload;
}

void runner_set_recorder(struct runner *runner, struct timeline *timeline) {
    runner->recorder = timeline;
    if (timeline) timeline->measured = true;
}
