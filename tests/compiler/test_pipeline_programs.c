/* Programs of pipelines: each stage's is proved, alone and with the others. One stage executes each node for each
 * micro-batch, and each parameter belongs to one stage. */
/* ctest: TIMEOUT 600 */
#include <string.h>

#include "base/random.h"
#include "collective/lane_tree.h"
#include "compiler/program.h"
#include "support/fault_sweep.h"
#include "support/random_policy.h"
#include "support/rank_programs.h"
#include "support/small_graph.h"
#include "support/unit.h"

static void describe(const struct plan *plan) {
    char lanes[LANE_SHAPE_BYTES];
    print_policy(&plan->policy, 0);
    print_error("%d stages of %d ranks, spans '%s', %lld micro-batches, %lld in a pass, lanes %s, rounds of %lld\n",
                rank_place_pipeline_parallel(&plan->place), rank_place_ranks(&plan->place), plan->policy.spans,
                (long long)recipe_micro_batches(&plan->recipe), (long long)plan->policy.micro_batches_per_wave,
                lane_shape_print(&plan->recipe.lanes, lanes), (long long)plan->recipe.round_micro_batches);
}

static void require_compiled(const struct graph *graph, const struct plan *plan, uint64_t seed,
                             struct rank_programs *out) {
    if (rank_programs_prove(graph, plan, out) == STATUS_OK) return;
    describe(plan);
    fail_msg("seed %llu: %s", (unsigned long long)seed, status_message());
}

static struct graph *draw_graph(int layers, uint64_t seed, bool forward_only) {
    return small_graph_build(&(struct small_graph_options){.layers = layers,
                                                           .tied = seed & 1,
                                                           .packed_qkv = seed >> 1 & 1,
                                                           .dtype = seed & 4 ? DTYPE_BF16 : DTYPE_F32,
                                                           .micro_batch_sequences = 2,
                                                           .sequence_length = 4,
                                                           .vocabulary = seed & 8 ? 1000 : 0,
                                                           .forward_only = forward_only});
}

static struct plan plan_of(const struct graph *graph, int stages, int64_t micro_batches,
                           int64_t micro_batches_per_wave) {
    struct plan plan = small_plan(graph, micro_batches, micro_batches_per_wave);
    plan.place.mesh = (struct mesh){1, stages};
    plan.place.pipeline_parallel = stages;
    plan.place.in_place = true;
    return plan;
}

/* How often all ranks together execute a node in a step. */
static int64_t count_executions(const struct rank_programs *ranks, const struct node *node) {
    int64_t count = 0;
    for (int r = 0; r < ranks->count; r++)
        for (size_t i = 0; i < ranks->programs[r]->instructions.count; i++) {
            const struct instruction *instruction = &ranks->programs[r]->instructions.items[i];
            count += instruction->node == node ? ranks->programs[r]->sections.items[instruction->section].repeat : 0;
        }
    return count;
}

/* Elements that ranks have between steps, all together. */
static int64_t count_held(const struct rank_programs *ranks, const struct tensor *tensor) {
    int64_t held = 0;
    for (int r = 0; r < ranks->count; r++) {
        struct tensor_run run;
        if (program_find_buffer(ranks->programs[r], tensor, &run)) held += run.elements;
    }
    return held;
}

static bool uses(const struct program *program, const struct tensor *tensor) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct node *node = program->instructions.items[i].node;
        bool waves = node && node->phase <= PHASE_BACKWARD;
        for (int k = 0; waves && k < node->op->inputs; k++)
            if (node->in[k] && tensor_storage(node->in[k]) == tensor) return true;
    }
    return false;
}

/* Stages that use a parameter, one that has its states. */
static int64_t count_users(const struct rank_programs *ranks, const struct tensor *tensor) {
    int64_t users = 0;
    int data = rank_place_data(&ranks->plan.place);
    if (tensor->kind == TENSOR_STATE) return 1;
    for (int first = 0; first < ranks->count; first += data) {
        bool any = false;
        for (int r = first; r < first + data; r++)
            any |= uses(ranks->programs[r], tensor);
        users += any;
    }
    return users;
}

/* Each stage that has a tensor has as many copies of it as the partition says. */
static void require_persistent(const struct rank_programs *ranks, const struct tensor *tensor) {
    const struct partition *partition = &ranks->plan.policy.partition;
    int width = partition_width(tensor->kind == TENSOR_STATE ? partition->optimizer : partition->parameters);
    int64_t copies = rank_place_data(&ranks->plan.place) / width * count_users(ranks, tensor);
    if (count_held(ranks, tensor) == copies * shape_elements(&tensor->shape)) return;
    describe(&ranks->plan);
    fail_msg("ranks have %lld elements of %s, not %lld times all", (long long)count_held(ranks, tensor), tensor->name,
             (long long)copies);
}

/* The same nodes as often as on one rank; data ranks share what is updated, and each clips. What is recomputed depends
 * on what a stage has from another. */
static void require_executions(const struct rank_programs *ranks, const struct rank_programs *one,
                               const struct node *node) {
    bool everybodys = strcmp(node->op->name, "clip_factor") == 0;
    int64_t times = count_executions(ranks, node), expected = count_executions(one, node);
    bool recomputed = node->phase == PHASE_FORWARD && ranks->plan.policy.schedule[0];
    bool shared = rank_place_data(&ranks->plan.place) > 1 && node->phase > PHASE_BACKWARD;
    if (recomputed || shared ? (times > 0) == (expected > 0) : times == expected * (everybodys ? ranks->count : 1))
        return;
    describe(&ranks->plan);
    fail_msg("%s is executed %lld times, not %lld", node->name, (long long)times, (long long)expected);
}

static void require_shared_out(const struct rank_programs *ranks) {
    const struct graph *graph = ranks->programs[0]->graph;
    struct plan plan = ranks->plan;
    struct rank_programs one;
    plan.place = (struct rank_place){.rank = 0};
    plan.policy.spans[0] = 0;
    plan.policy.partition = (struct partition){0};
    require_compiled(graph, &plan, 0, &one);
    for (size_t n = 0; n < graph->nodes.count; n++)
        require_executions(ranks, &one, graph->nodes.items[n]);
    for (size_t t = 0; t < graph->tensors.count; t++) {
        const struct tensor *tensor = graph->tensors.items[t];
        if (tensor->kind == TENSOR_PARAMETER || tensor->kind == TENSOR_STATE) require_persistent(ranks, tensor);
    }
    rank_programs_drop(&one);
}

static void stages_share_out_a_step(void **state) {
    (void)state;
    for (int stages = 2; stages <= 8; stages *= 2)
        for (int64_t waves = 1; waves <= 9; waves++)
            for (int64_t micro_batches_per_wave = 1; micro_batches_per_wave <= 2; micro_batches_per_wave++) {
                struct graph *graph = draw_graph(7, (uint64_t)waves, false);
                struct plan plan = plan_of(graph, stages, waves * micro_batches_per_wave, micro_batches_per_wave);
                struct rank_programs ranks;
                require_compiled(graph, &plan, 0, &ranks);
                require_shared_out(&ranks);
                rank_programs_drop(&ranks);
                graph_free(graph);
            }
}

/* A stage holds the activations of as many waves as stages follow it, and of one more that it receives. */
static void memory_does_not_grow_with_waves(void **state) {
    (void)state;
    struct graph *graph = draw_graph(6, 0, false);
    struct plan few = plan_of(graph, 4, 6, 1), many = plan_of(graph, 4, 24, 1);
    struct rank_programs a, b;
    require_compiled(graph, &few, 0, &a);
    require_compiled(graph, &many, 0, &b);
    for (int r = 0; r < 4; r++) {
        struct memory_report with_few, with_many;
        assert_int_equal(program_report_memory(a.programs[r], TIER_DEVICE, &with_few), STATUS_OK);
        assert_int_equal(program_report_memory(b.programs[r], TIER_DEVICE, &with_many), STATUS_OK);
        assert_int_equal(with_few.by_kind[BUFFER_ACTIVATIONS], with_many.by_kind[BUFFER_ACTIVATIONS]);
    }
    rank_programs_drop(&a);
    rank_programs_drop(&b);
    graph_free(graph);
}

static int roll(uint64_t seed, uint64_t *next, int sides) {
    return (int)(random_u64(seed, RANDOM_TEST, 18, (*next)++) % (uint64_t)sides);
}

/* Ascending blocks, as many as so many spans have. */
static void draw_spans(int32_t blocks, int spans, uint64_t seed, uint64_t *next, char text[POLICY_SPANS_BYTES]) {
    size_t used = 0;
    int left = spans - 1;
    text[0] = 0;
    for (int32_t block = 1; block < blocks && left > 0; block++) {
        if (roll(seed, next, blocks - block) >= left) continue;
        used += (size_t)snprintf(text + used, POLICY_SPANS_BYTES - used, "%s%d", used > 0 ? " " : "", block);
        left--;
    }
}

/* Data ranks of each stage, as many as the lanes can be shared out to. */
static int draw_data(const struct lane_shape *lanes, int stages, uint64_t seed, uint64_t *next) {
    struct lane_tree tree;
    assert_int_equal(lane_tree_of_shape(lanes, &tree), STATUS_OK);
    int max = RANK_PROGRAMS_MAX / stages < tree.lanes ? RANK_PROGRAMS_MAX / stages : tree.lanes,
        data = 1 + roll(seed, next, max);
    while (!lane_tree_holds(&tree, data))
        data--;
    lane_tree_free(&tree);
    return data;
}

static struct mesh draw_mesh(int ranks, uint64_t seed, uint64_t *next) {
    int nodes = 1 + roll(seed, next, 4);
    return ranks % nodes == 0 ? (struct mesh){nodes, ranks / nodes} : (struct mesh){1, ranks};
}

/* Random cuts, interleaved or not, under random policies with random partitions on random lanes and rounds, which data
 * ranks share unequally. */
static struct plan draw_plan(const struct graph *graph, uint64_t seed) {
    static const struct lane_shape shapes[] = {{1, 1}, {1, 2}, {1, 3}, {2, 2}, {1, 4}, {3, 2}};
    uint64_t next = 0;
    struct plan plan = small_plan(graph, 1 + roll(seed, &next, 12), 1);
    int32_t blocks = graph_count_blocks(graph);
    plan.recipe.lanes = shapes[roll(seed, &next, 6)];
    plan.recipe.round_micro_batches = roll(seed, &next, 3);
    int stages = 2 + roll(seed, &next, 3), max = blocks / stages;
    int data = draw_data(&plan.recipe.lanes, stages, seed, &next);
    int spans = stages * (1 + roll(seed, &next, max < 3 ? max : 3));
    plan.place.mesh = draw_mesh(stages * data, seed, &next);
    plan.place.pipeline_parallel = stages;
    plan.place.in_place = roll(seed, &next, 2);
    plan.place.message_bytes = roll(seed, &next, 2) ? 64 : 0;
    plan.place.tier = roll(seed, &next, 3) == 0 ? TIER_HOST : TIER_DEVICE;
    const struct mesh shared = rank_place_data_mesh(&plan.place);
    plan.policy = random_policy(graph, recipe_share_micro_batches(&plan.recipe), &shared, seed);
    if (spans > stages || roll(seed, &next, 2)) draw_spans(blocks, spans, seed, &next, plan.policy.spans);
    return plan;
}

static void random_plans_are_proved(void **state) {
    (void)state;
    int64_t cut = 0;
    for (uint64_t seed = 1; seed <= unit_sweep(60, 2000); seed++) {
        struct graph *graph = draw_graph(2 + (int)(seed % 5), seed, false);
        struct plan plan = draw_plan(graph, seed);
        struct rank_programs ranks;
        require_compiled(graph, &plan, seed, &ranks);
        require_shared_out(&ranks);
        cut += partition_cuts(&plan.policy.partition);
        rank_programs_drop(&ranks);
        graph_free(graph);
    }
    print_message("%lld of the plans have partitions\n", (long long)cut);
    assert_true(cut > 10);
}

static void evaluation_goes_through_the_stages(void **state) {
    (void)state;
    for (int stages = 2; stages <= 5; stages++) {
        struct graph *graph = draw_graph(4, (uint64_t)stages, true); /* every other one is tied */
        struct plan plan = plan_of(graph, stages, 5, 1);
        if (stages > 3) plan.policy.optimizer = plan.policy.parameters = TIER_HOST, plan.policy.buffers = 4;
        struct rank_programs ranks;
        require_compiled(graph, &plan, 0, &ranks);
        require_shared_out(&ranks);
        rank_programs_drop(&ranks);
        graph_free(graph);
    }
}

/* ---- planted faults ---- */

static struct instruction *find_message(struct program *program, enum tensor_kind kind, bool sends, int skip) {
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        if (instruction->opcode != OPCODE_BROADCAST) continue;
        const struct tensor *tensor = program->collectives.items[instruction->collective].tensor;
        bool sent = instruction->operands[0].buffer >= 0;
        if (tensor->kind == kind && sent == sends && skip-- == 0) return instruction;
    }
    fail_msg("the program has no such message");
    return NULL;
}

static struct program_collective *operation_of(struct program *program, const struct instruction *instruction) {
    return &program->collectives.items[instruction->collective];
}

/* Another micro-batch arrives where one is read. */
static void plant_other_micro_batch(struct rank_programs *ranks) {
    struct instruction *message = find_message(ranks->programs[1], TENSOR_ACTIVATION, false, 0);
    operation_of(ranks->programs[1], message)->micro_batch++;
    message->micro_batch++;
}

/* A stage receives in another order than the other sends. */
static void plant_other_order(struct rank_programs *ranks) {
    struct program *program = ranks->programs[1];
    struct instruction *a = find_message(program, TENSOR_ACTIVATION, false, 0);
    struct instruction *b = find_message(program, TENSOR_ACTIVATION, false, 1);
    const struct program_collective first = *operation_of(program, a);
    *operation_of(program, a) = *operation_of(program, b);
    *operation_of(program, b) = first;
}

/* Both stages believe that they are the one that sends. */
static void plant_other_root(struct rank_programs *ranks) {
    struct program *program = ranks->programs[1];
    struct instruction *message = find_message(program, TENSOR_ACTIVATION, false, 0);
    operation_of(program, message)->root = 1 - operation_of(program, message)->root;
}

/* A message is lost, and with it an operation that the other stage waits for. */
static void plant_lost_message(struct rank_programs *ranks) {
    struct program *program = ranks->programs[0];
    struct instruction *message = find_message(program, TENSOR_ACTIVATION, true, 0);
    message->opcode = OPCODE_ZERO;
    message->operands[OP_INPUTS_MAX] = message->operands[0];
    message->operands[OP_INPUTS_MAX].access = ACCESS_WRITE;
    message->operands[0].buffer = -1;
}

/* Nothing waits for what is received. */
static void plant_missing_waits(struct rank_programs *ranks) {
    struct program *program = ranks->programs[1];
    const struct instruction *message = find_message(program, TENSOR_ACTIVATION, false, 0);
    int32_t index = (int32_t)(message - program->instructions.items);
    for (size_t i = 0; i < program->instructions.count; i++) {
        struct instruction *instruction = &program->instructions.items[i];
        int32_t kept = 0;
        for (int32_t w = 0; w < instruction->wait_count; w++)
            if (instruction->waits[w] != index) instruction->waits[kept++] = instruction->waits[w];
        instruction->wait_count = kept;
    }
}

/* The other stage's copy of a parameter is sent to another one's place. */
static void plant_other_place(struct rank_programs *ranks) {
    struct instruction *message = find_message(ranks->programs[0], TENSOR_GRADIENT, false, 0);
    message->operands[OP_INPUTS_MAX].offset += 64;
}

/* The instruction does nothing: it adds no waits, and its operands are gone. */
static void plant_lost(struct program *program, size_t at) {
    struct instruction *instruction = &program->instructions.items[at];
    for (size_t i = 0; i < program->buffers.count; i++)
        if (program->buffers.items[i].tensor && strcmp(program->buffers.items[i].name, "squared_norms") == 0) {
            instruction->opcode = OPCODE_ZERO;
            for (int k = 0; k < OPERANDS_MAX; k++)
                instruction->operands[k].buffer = -1;
            instruction->operands[OP_INPUTS_MAX] = (struct operand){
                .buffer = (int32_t)i, .access = ACCESS_WRITE, .bytes = program->buffers.items[i].bytes};
            instruction->tier = program->buffers.items[i].tier;
            return;
        }
    fail_msg("no buffer to overwrite");
}

/* The shared parameter keeps its old value at the stage that does not update it. */
static void plant_stale_parameter(struct rank_programs *ranks) {
    for (int r = 0; r < ranks->count; r++) {
        struct program *program = ranks->programs[r];
        struct instruction *message = find_message(program, TENSOR_PARAMETER, r == 0, 0);
        size_t at = (size_t)(message - program->instructions.items), left = (size_t)message->collective;
        for (size_t i = at + 1; i < program->instructions.count; i++) {
            struct instruction *later = &program->instructions.items[i];
            if (opcode_is_collective(later->opcode)) later->collective--;
        }
        for (size_t c = left; c + 1 < program->collectives.count; c++)
            program->collectives.items[c] = program->collectives.items[c + 1];
        program->collectives.count--;
        plant_lost(program, at);
    }
}

static enum status verify(const struct rank_programs *ranks, bool together) {
    for (int r = 0; r < ranks->count && !together; r++)
        TRY(program_verify(ranks->programs[r]));
    return program_verify_ranks((const struct program *const *)ranks->programs, ranks->count, &ranks->plan.recipe);
}

static void planted_faults_are_found(void **state) {
    (void)state;
    static const struct {
        const char *name;
        void (*plant)(struct rank_programs *ranks);
        bool together; /* it is for the proof of all ranks to find */
    } faults[] = {{"other micro-batch", plant_other_micro_batch, false},
                  {"other order", plant_other_order, true},
                  {"other root", plant_other_root, true},
                  {"lost message", plant_lost_message, true},
                  {"missing waits", plant_missing_waits, false},
                  {"other place", plant_other_place, false},
                  {"stale parameter", plant_stale_parameter, true}};
    for (size_t f = 0; f < sizeof faults / sizeof *faults; f++) {
        struct graph *graph = draw_graph(2, 1, false); /* tied */
        struct plan plan = plan_of(graph, 2, 4, 1);
        struct rank_programs ranks;
        require_compiled(graph, &plan, 0, &ranks);
        faults[f].plant(&ranks);
        if (verify(&ranks, faults[f].together) != STATUS_FAILED) fail_msg("%s is not found", faults[f].name);
        print_message("%s: %s\n", faults[f].name, status_message());
        rank_programs_drop(&ranks);
        graph_free(graph);
    }
}

static void illegal_cuts_are_refused(void **state) {
    (void)state;
    struct graph *graph = draw_graph(2, 0, false); /* 4 blocks */
    static const char *const texts[] = {"0", "9", "2 1", "1 1", "x", "1 2", "1,", "4"};
    struct rank_programs ranks;
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        struct plan plan = plan_of(graph, 2, 4, 1);
        snprintf(plan.policy.spans, sizeof plan.policy.spans, "%s", texts[i]);
        assert_int_equal(rank_programs_prove(graph, &plan, &ranks), STATUS_BAD_INPUT);
        assert_non_null(strstr(status_message(), "policy.stage_starts"));
        rank_programs_drop(&ranks);
    }
    struct plan deep = plan_of(graph, 8, 4, 1);
    assert_int_equal(rank_programs_prove(graph, &deep, &ranks), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "policy.pipeline_parallel"));
    rank_programs_drop(&ranks);
    graph_free(graph);
}

static void allocations_may_fail(void **state) {
    (void)state;
    struct graph *graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3});
    int64_t *bytes = small_graph_workspace(graph);
    struct rank_subject subject = {graph, plan_of(graph, 2, 2, 1), bytes};
    assert_true(fault_sweep(FAULT_ALLOCATE, false, rank_programs_prove_subject, &subject) > 100);
    mem_free(bytes);
    graph_free(graph);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages_share_out_a_step),  cmocka_unit_test(memory_does_not_grow_with_waves),
        cmocka_unit_test(random_plans_are_proved),  cmocka_unit_test(evaluation_goes_through_the_stages),
        cmocka_unit_test(planted_faults_are_found), cmocka_unit_test(illegal_cuts_are_refused),
        cmocka_unit_test(allocations_may_fail)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
