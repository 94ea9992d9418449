#include "compiler/program.h"

const char *buffer_kind_name(enum buffer_kind kind) {
    static const char *const names[] = {
#define BUFFER_KIND_ROW(name, text) [BUFFER_##name] = text,
        BUFFER_KIND_LIST(BUFFER_KIND_ROW)};
    return names[kind];
}

const char *opcode_name(enum opcode opcode) {
    static const char *const names[] = {[OPCODE_KERNEL] = "kernel",
                                        [OPCODE_ZERO] = "zero",
                                        [OPCODE_COPY] = "copy",
                                        [OPCODE_TAKE] = "take",
                                        [OPCODE_ADD] = "add to",
                                        [OPCODE_ADD_BF16] = "add in bf16 to",
                                        [OPCODE_ALL_REDUCE] = "all-reduce",
                                        [OPCODE_REDUCE_SCATTER] = "reduce-scatter",
                                        [OPCODE_ALL_GATHER] = "all-gather",
                                        [OPCODE_ALL_TO_ALL] = "all-to-all",
                                        [OPCODE_BROADCAST] = "broadcast",
                                        [OPCODE_ELSEWHERE] = "elsewhere"};
    return names[opcode];
}

const char *stream_role_name(enum stream_role role) {
    static const char *const names[] = {
        [STREAM_COMPUTE] = "compute",   [STREAM_UPDATE] = "update",   [STREAM_COPY_IN] = "copy in",
        [STREAM_COPY_OUT] = "copy out", [STREAM_DISK_IN] = "disk in", [STREAM_DISK_OUT] = "disk out",
        [STREAM_COMM] = "communication"};
    return names[role];
}

enum stream_role stream_role_of_copy(enum tier from, enum tier to) {
    if (from == TIER_DISK) return STREAM_DISK_IN;
    if (to == TIER_DISK) return STREAM_DISK_OUT;
    return to == TIER_DEVICE ? STREAM_COPY_IN : STREAM_COPY_OUT;
}

static void reserve_persistent(struct program *program, const struct program *resident) {
    memcpy(program->reserved_bytes, resident->reserved_bytes, sizeof program->reserved_bytes);
    for (size_t i = 0; i < resident->buffers.count; i++) {
        const struct buffer *buffer = &resident->buffers.items[i];
        int64_t end = buffer->offset + buffer->bytes, *reserved = &program->reserved_bytes[buffer->tier];
        if (buffer->persistent && end > *reserved) *reserved = end;
    }
}

static size_t count_kind(const struct program *program, enum buffer_kind kind) {
    size_t count = 0;
    for (size_t i = 0; i < program->buffers.count; i++)
        count += program->buffers.items[i].kind == kind && program->buffers.items[i].original < 0;
    return count;
}

/* Both programs have them first and in the order of the model, so this fails only for graphs of different models. */
static void share_persistent(struct program *program, const struct program *resident) {
    size_t parameters = count_kind(program, BUFFER_PARAMETERS), caches = count_kind(resident, BUFFER_CACHE);
    BUG_IF(count_kind(resident, BUFFER_PARAMETERS) != parameters, "programs with different parameters");
    BUG_IF(caches > 0 && count_kind(program, BUFFER_CACHE) != caches, "programs with different caches");
    for (size_t i = 0; i < parameters + caches; i++) {
        struct buffer *mine = &program->buffers.items[i];
        const struct buffer *theirs = &resident->buffers.items[i];
        BUG_IF(mine->kind != theirs->kind || mine->tier != theirs->tier || mine->bytes != theirs->bytes ||
                   strcmp(mine->name, theirs->name) != 0,
               "%s is another than %s of the resident program", mine->name, theirs->name);
        mine->offset = theirs->offset;
        mine->shared = true;
    }
}

/* Up to the offsets. */
static enum status place(const struct graph *graph, const struct plan *plan, const struct workspace_table *workspace,
                         const struct program *resident, struct program **out) {
    TRY(plan_check(plan));
    struct program *program;
    TRY(program_schedule(graph, plan, workspace, &program));
    enum status status;
    TRY_GOTO(status, program_gather(program, &plan->policy), failed);
    TRY_GOTO(status, program_move(program, &plan->policy), failed);
    if (resident) {
        reserve_persistent(program, resident);
        share_persistent(program, resident);
    }
    TRY_GOTO(status, program_place(program), failed);
    *out = program;
    return STATUS_OK;
failed:
    program_free(program);
    return status;
}

enum status program_compile(const struct graph *graph, const struct plan *plan, const struct workspace_table *workspace,
                            const struct program *resident, struct program **out) {
    struct program *program;
    TRY(place(graph, plan, workspace, resident, &program));
    enum status status = program_synchronise(program);
    if (status == STATUS_OK)
        *out = program;
    else
        program_free(program);
    return status;
}

enum status program_compile_placed(const struct graph *graph, const struct plan *plan,
                                   const struct workspace_table *workspace, struct program **out) {
    return place(graph, plan, workspace, NULL, out);
}

void program_free(struct program *program) {
    if (!program) return;
    for (size_t i = 0; i < program->instructions.count; i++)
        mem_free(program->instructions.items[i].waits);
    vec_free(&program->sections);
    vec_free(&program->instructions);
    vec_free(&program->buffers);
    vec_free(&program->collectives);
    scratch_free(&program->memory);
    mem_free(program);
}

bool buffer_find(const struct buffer *buffer, const struct tensor *tensor, struct tensor_run *out) {
    if (buffer->tensor == tensor) {
        *out = (struct tensor_run){.elements = shape_elements(&tensor->shape)};
        return true;
    }
    for (int32_t i = 0; buffer->pack && i < buffer->pack->count; i++) {
        const struct pack_member *member = &buffer->pack->members[i];
        if (member->tensor != tensor) continue;
        *out = (struct tensor_run){member->offset, member->first, member->elements};
        return true;
    }
    return false;
}

const struct buffer *program_find_buffer(const struct program *program, const struct tensor *tensor,
                                         struct tensor_run *out) {
    for (size_t i = 0; i < program->buffers.count; i++)
        if (buffer_find(&program->buffers.items[i], tensor, out)) return &program->buffers.items[i];
    return NULL;
}

enum status program_report_memory(const struct program *program, enum tier tier, struct memory_report *out) {
    size_t positions = program->instructions.count;
    int64_t *changes = mem_array(positions + 1, sizeof *changes);
    if (!changes) return STATUS_FAILED;
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier) continue;
        changes[buffer->first] += buffer->bytes;
        changes[buffer->last + 1] -= buffer->bytes;
    }
    int64_t live = 0, peak = -1;
    int32_t at = 0;
    for (size_t i = 0; i < positions; i++) {
        live += changes[i];
        if (live <= peak) continue;
        peak = live;
        at = (int32_t)i;
    }
    mem_free(changes);
    struct memory_report report = {.total = program->tier_bytes[tier], .unused = program->tier_bytes[tier]};
    for (size_t i = 0; i < program->buffers.count; i++) {
        const struct buffer *buffer = &program->buffers.items[i];
        if (buffer->tier != tier || buffer->first > at || buffer->last < at) continue;
        report.by_kind[buffer->kind] += buffer->bytes;
        report.unused -= buffer->bytes;
    }
    *out = report;
    return STATUS_OK;
}

int64_t program_issues_required(const struct program *program, int32_t waited, int32_t instruction, int64_t step,
                                int64_t repetition) {
    int section = program->instructions.items[instruction].section;
    int their_section = program->instructions.items[waited].section;
    const struct section *theirs = &program->sections.items[their_section];
    int64_t this_step = their_section < section ? theirs->repeat : 0;
    if (their_section == section) this_step = repetition + (waited < instruction);
    return step * theirs->repeat + this_step;
}
