/* Operations between ranks: made with the runner, started and waited for by the communication stream's worker; and what
 * other ranks are told of how long an instruction may take. */
#include "compiler/collectives.h"
#include "runtime/runner_state.h"

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

enum status runner_operations_open(struct runner *runner) {
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

void runner_operations_close(struct runner *runner) {
    for (size_t i = 0; runner->operations && i < runner->executable->program->collectives.count; i++)
        comm_free(runner->operations[i]);
    mem_free(runner->operations);
}

enum status runner_collective(struct runner *runner, const struct instruction *instruction) {
    struct comm_operation *operation = runner->operations[instruction->collective];
    comm_start(operation);
    return comm_wait(operation);
}

static double longest_of(const struct program *program, const struct instruction *instruction) {
    static const double FLOPS_PER_S = 1e9, BYTES_PER_S = 1e8, DISK_BYTES_PER_S = 1e7;
    struct op_cost cost = {.flops = 0};
    bool disk = false;
    if (instruction->node) op_cost(instruction->node, &cost);
    for (int i = 0; i < OPERANDS_MAX && !instruction->node; i++) {
        const struct operand *operand = &instruction->operands[i];
        if (operand->buffer < 0) continue;
        cost.bytes += (double)operand->bytes;
        disk |= program->buffers.items[operand->buffer].tier == TIER_DISK;
    }
    return cost.flops / FLOPS_PER_S + cost.bytes / (disk ? DISK_BYTES_PER_S : BYTES_PER_S);
}

double runner_find_longest(const struct program *program) {
    double longest_s = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        double seconds = longest_of(program, &program->instructions.items[i]);
        if (seconds > longest_s) longest_s = seconds;
    }
    return longest_s;
}
