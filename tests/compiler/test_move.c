/* Copies between tiers: random policies give legal and tight programs, which move no more than necessary. */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "plan/chunks.h"
#include "support/compile_proved.h"
#include "support/fault_sweep.h"
#include "support/random_policy.h"
#include "support/small_graph.h"
#include "support/unit.h"

static uint64_t draw(uint64_t seed, uint64_t index, uint64_t below) {
    return random_u64(seed, RANDOM_TEST, 11, index) % below;
}

static struct graph *random_graph(uint64_t seed) {
    return small_graph_build(&(struct small_graph_options){
        .layers = 1 + (int)draw(seed, 0, 4),
        .tied = draw(seed, 1, 2),
        .packed_qkv = draw(seed, 2, 2),
        .packed_rotary = draw(seed, 3, 2),
        .dtype = draw(seed, 4, 2) ? DTYPE_F32 : DTYPE_BF16,
        .micro_batch_sequences = 1 + (int64_t)draw(seed, 5, 3),
        .sequence_length = 1 + (int64_t)draw(seed, 6, 9),
    });
}

static const struct buffer *root_of(const struct program *program, int32_t buffer) {
    const struct buffer *items = program->buffers.items;
    return &items[items[buffer].original < 0 ? buffer : items[buffer].original];
}

static bool is_fetch(const struct program *program, const struct instruction *instruction) {
    return instruction->opcode == OPCODE_COPY &&
           program->buffers.items[instruction->operands[OP_INPUTS_MAX].buffer].original ==
               instruction->operands[0].buffer;
}

/* ---- properties of every program ---- */

static const char *check_arenas(const struct program *program, const struct policy *policy) {
    (void)policy;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        if (program->tier_bytes[tier] * 100 > program->live_bytes[tier] * 110) {
            print_message("%s arena %lld, live %lld\n", tier_name(tier), (long long)program->tier_bytes[tier],
                          (long long)program->live_bytes[tier]);
            return "an arena above 1.10 times its live sum";
        }
    return NULL;
}

/* Whether a deferred instruction uses the buffer. */
static bool is_deferred(const struct program *program, int32_t buffer) {
    for (size_t i = 0; i < program->instructions.count; i++)
        for (int k = 0; k < OPERANDS_MAX; k++)
            if (program->instructions.items[i].operands[k].buffer == buffer)
                return program->instructions.items[i].deferred;
    return false;
}

/* Besides those that deferred updates use, never more chunks on the device than the policy has buffers for. */
static const char *check_buffers(const struct program *program, const struct policy *policy) {
    int32_t *alive = mem_array(program->instructions.count, sizeof *alive);
    assert_non_null(alive);
    int32_t max = 0;
    for (size_t b = 0; b < program->buffers.count; b++) {
        const struct buffer *buffer = &program->buffers.items[b];
        bool counted = buffer->kind == BUFFER_PARAMETERS && buffer->original >= 0 && buffer->tier == TIER_DEVICE;
        if (!counted || is_deferred(program, buffer->id)) continue;
        for (int32_t i = buffer->first; i <= buffer->last; i++)
            if (++alive[i] > max) max = alive[i];
    }
    mem_free(alive);
    return max > policy->buffers ? "more parameters on the device than buffers for them" : NULL;
}

/* What a kernel makes, if it is activations alone, somebody reads. */
static const char *check_useful(const struct program *program, const struct policy *policy) {
    (void)policy;
    int32_t *last_read = mem_array(program->buffers.count, sizeof *last_read);
    assert_non_null(last_read);
    const char *fault = NULL;
    for (int32_t i = (int32_t)program->instructions.count - 1; i >= 0; i--) {
        const struct instruction *instruction = &program->instructions.items[i];
        const struct node *node = instruction->node;
        bool useful = !node || node->op->updates != 0;
        for (int k = 0; node && k < OP_OUTPUTS_MAX; k++) {
            if (!node->out[k]) continue;
            const struct tensor *out = tensor_storage(node->out[k]);
            int32_t buffer = root_of(program, instruction->operands[OP_INPUTS_MAX + k].buffer)->id;
            useful |= out->kind != TENSOR_ACTIVATION || out->kept || last_read[buffer] > i;
        }
        if (!useful) fault = "a kernel whose results nobody reads";
        for (int k = 0; k < OPERANDS_MAX; k++) {
            const struct operand *operand = &instruction->operands[k];
            if (operand->buffer < 0 || operand->access == ACCESS_WRITE || instruction->opcode == OPCODE_COPY) continue;
            int32_t *last = &last_read[root_of(program, operand->buffer)->id];
            if (*last == 0) *last = i;
        }
    }
    mem_free(last_read);
    return fault;
}

/* A copy is fetched at most once, unless it is written over in full: a residency begins with one fetch. And nothing is
 * stored that was not changed since it came. */
static const char *check_copies(const struct program *program, const struct policy *policy) {
    (void)policy;
    unsigned char *fetched = mem_array(program->buffers.count, 1), *changed = mem_array(program->buffers.count, 1);
    assert_true(fetched && changed);
    const char *fault = NULL;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (is_fetch(program, instruction)) {
            if (fetched[instruction->operands[OP_INPUTS_MAX].buffer]++) fault = "a copy that is fetched twice";
            continue;
        }
        if (instruction->opcode == OPCODE_COPY && !changed[instruction->operands[0].buffer])
            fault = "a copy that is stored unchanged";
        for (int k = 0; k < OPERANDS_MAX && instruction->opcode != OPCODE_COPY; k++)
            if (instruction->operands[k].buffer >= 0 && instruction->operands[k].access != ACCESS_READ)
                changed[instruction->operands[k].buffer] = 1;
    }
    mem_free(fetched);
    mem_free(changed);
    return fault;
}

/* The policy's word on where things are between steps. */
static const char *check_home_tiers(const struct program *program, const struct policy *policy) {
    struct chunk_list chunks;
    assert_int_equal(chunks_pack(program->graph, policy->chunk_bytes, &chunks), STATUS_OK);
    const char *fault = NULL;
    for (size_t i = 0; i < program->graph->tensors.count; i++) {
        const struct tensor *tensor = program->graph->tensors.items[i];
        bool parameter = tensor->kind == TENSOR_PARAMETER;
        if (!parameter && tensor->kind != TENSOR_STATE) continue;
        struct tensor_run run;
        const struct buffer *buffer = program_find_buffer(program, tensor, &run);
        int32_t chunk = chunks.chunk_of[parameter ? tensor->id : tensor->parameter->id];
        enum tier home_tier = policy_home_tier(policy, chunk, parameter ? policy->parameters : policy->optimizer);
        if (!buffer || !buffer->persistent || buffer->original >= 0 || buffer->tier != home_tier)
            fault = "weights or state elsewhere than the policy says";
    }
    chunks_free(&chunks);
    return fault;
}

typedef const char *property(const struct program *program, const struct policy *policy);
static property *const properties[] = {check_arenas, check_buffers, check_useful, check_copies, check_home_tiers};

static void random_policies_are_proved(void **state) {
    (void)state;
    int64_t copies = 0, streams[STREAM_ROLE_COUNT + 1] = {0};
    for (uint64_t seed = 1, last = unit_sweep(300, 6000); seed <= last; seed++) {
        struct graph *graph = random_graph(seed);
        int64_t micro_batches = 1 + (int64_t)draw(seed, 8, 7);
        struct policy policy = random_policy(graph, micro_batches, NULL, seed);
        struct program *program = small_program_under(graph, micro_batches, &policy);
        const char *fault = program_verify(program) == STATUS_OK ? NULL : status_message();
        for (size_t i = 0; i < sizeof properties / sizeof *properties && !fault; i++)
            fault = properties[i](program, &policy);
        if (fault) {
            print_policy(&policy, seed);
            fail_msg("seed %llu: %s", (unsigned long long)seed, fault);
        }
        streams[program->streams]++;
        for (size_t i = 0; i < program->instructions.count; i++)
            copies += program->instructions.items[i].opcode == OPCODE_COPY;
        program_free(program);
        graph_free(graph);
    }
    print_message("%lld copies; programs of 1 to %d streams:", (long long)copies, STREAM_ROLE_COUNT);
    for (int s = 1; s <= STREAM_ROLE_COUNT; s++)
        print_message(" %lld", (long long)streams[s]);
    print_message("\n");
    assert_true(streams[STREAM_COMM] > 0);
}

/* ---- fetches of parameters next to the fewest possible ---- */

enum { CHUNKS_MAX = 12, GROUPS_MAX = 64 };

/* Which chunks each group of a section uses, from the program without copies. */
struct requests {
    unsigned of_group[GROUPS_MAX];
    int groups;
    int fetches; /* of the program with copies */
};

/* The first section that uses parameters, as scheduled. */
static void collect_requests(const struct program *program, struct requests *out) {
    *out = (struct requests){0};
    int32_t group = -1;
    for (int32_t i = 0; i < program->sections.items[0].count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (instruction->group != group) out->groups++;
        assert_true(out->groups <= GROUPS_MAX);
        group = instruction->group;
        for (int k = 0; k < OP_INPUTS_MAX && !instruction->deferred; k++) {
            int32_t buffer = instruction->operands[k].buffer; /* parameters come first, by chunk */
            if (buffer < 0 || program->buffers.items[buffer].kind != BUFFER_PARAMETERS) continue;
            assert_true(buffer < CHUNKS_MAX);
            if (program->buffers.items[buffer].tier != TIER_DEVICE) out->of_group[out->groups - 1] |= 1u << buffer;
        }
    }
}

static void count_fetches(const struct program *program, struct requests *out) {
    for (int32_t i = 0; i < program->sections.items[0].count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        if (!is_fetch(program, instruction) || instruction->deferred) continue;
        out->fetches += program->buffers.items[instruction->operands[0].buffer].kind == BUFFER_PARAMETERS;
    }
}

/* Every set of chunks that fits is tried after every group. */
static int fewest_fetches(const struct requests *requests, int64_t buffers) {
    enum { SETS = 1 << CHUNKS_MAX, NEVER = 1 << 20 };
    static int min[SETS], next[SETS];
    for (unsigned set = 0; set < SETS; set++)
        min[set] = set == 0 ? 0 : NEVER;
    for (int group = 0; group < requests->groups; group++) {
        unsigned wanted = requests->of_group[group];
        for (unsigned set = 0; set < SETS; set++)
            next[set] = NEVER;
        for (unsigned set = 0; set < SETS; set++) {
            if (min[set] == NEVER) continue;
            int cost = min[set] + __builtin_popcount(wanted & ~set);
            for (unsigned kept = set;; kept = (kept - 1) & set) {
                unsigned held = kept | wanted;
                if (__builtin_popcount(held) <= buffers && cost < next[held]) next[held] = cost;
                if (kept == 0) break;
            }
        }
        memcpy(min, next, sizeof min);
    }
    int fewest = NEVER;
    for (unsigned set = 0; set < SETS; set++)
        if (min[set] < fewest) fewest = min[set];
    return fewest;
}

static struct program *schedule_only(const struct graph *graph, int64_t micro_batches, const struct policy *policy) {
    struct plan plan = small_plan(graph, micro_batches, policy->micro_batches_per_wave);
    plan.policy = *policy;
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct program *program;
    assert_int_equal(program_schedule(graph, &plan, &table, &program), STATUS_OK);
    mem_free(bytes);
    return program;
}

static bool is_tiny(const struct program *program) {
    int chunks = 0;
    for (size_t b = 0; b < program->buffers.count; b++)
        chunks += program->buffers.items[b].kind == BUFFER_PARAMETERS;
    int32_t end = program->sections.items[0].count - 1;
    return chunks <= CHUNKS_MAX && program->instructions.items[end].group < GROUPS_MAX;
}

static void fetches_are_the_fewest(void **state) {
    (void)state;
    int compared = 0, fetches = 0, evicting = 0;
    for (uint64_t seed = 1, last = unit_sweep(150, 2000); seed <= last; seed++) {
        struct graph *graph = random_graph(seed);
        struct policy policy = random_policy(graph, 2, NULL, seed);
        if (policy.parameters == TIER_DEVICE) policy.parameters = TIER_HOST;
        struct program *plain = schedule_only(graph, 2, &policy);
        if (is_tiny(plain)) {
            struct requests requests;
            collect_requests(plain, &requests);
            struct program *program = small_program_under(graph, 2, &policy);
            count_fetches(program, &requests);
            int fewest = fewest_fetches(&requests, policy.buffers);
            if (requests.fetches != fewest) {
                print_policy(&policy, seed);
                fail_msg("seed %llu: %d fetches, %d are enough", (unsigned long long)seed, requests.fetches, fewest);
            }
            unsigned used = 0;
            for (int g = 0; g < requests.groups; g++)
                used |= requests.of_group[g];
            evicting += fewest > __builtin_popcount(used);
            fetches += fewest;
            compared++;
            program_free(program);
        }
        program_free(plain);
        graph_free(graph);
    }
    print_message("%d programs, %d fetches; %d have too few buffers for one fetch a chunk\n", compared, fetches,
                  evicting);
    assert_true(compared > 50 && evicting > 20);
}

/* ---- what policies are for ---- */

static struct graph *deep_graph(void) {
    return small_graph_build(&(struct small_graph_options){
        .layers = 6, .dtype = DTYPE_BF16, .micro_batch_sequences = 2, .sequence_length = 32});
}

static int64_t device_live(const struct graph *graph, struct policy policy) {
    struct program *program = small_program_under(graph, 2, &policy);
    assert_int_equal(program_verify(program), STATUS_OK);
    int64_t live = program->live_bytes[TIER_DEVICE];
    program_free(program);
    return live;
}

static void policies_save_memory(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    struct policy plain = {.micro_batches_per_wave = 2, .chunk_bytes = 8192};
    int64_t max = device_live(graph, plain);
    static const char *const schedules[] = {"f0-7 h1-6 b7-0", "f0-7 d1-6 b7-0",
                                            "f0-7 b7 f6 b6 f5 b5 f4 b4 f3 b3 f2 b2 f1 b1-0",
                                            "f0-7 h1-3 b7 f6 b6 f5 b5 f4 b4-0"};
    for (size_t i = 0; i < sizeof schedules / sizeof *schedules; i++) {
        struct policy policy = plain;
        strcpy(policy.schedule, schedules[i]);
        int64_t live = device_live(graph, policy);
        print_message("%s: %lld of %lld bytes\n", schedules[i], (long long)live, (long long)max);
        assert_true(live < max);
    }
    struct policy moved = plain;
    moved.optimizer = TIER_HOST; /* the disk's alignment is as large as these tensors */
    int64_t without_state = device_live(graph, moved);
    assert_true(without_state < max);
    moved.gradients = TIER_HOST;
    int64_t without_gradients = device_live(graph, moved);
    assert_true(without_gradients < without_state);
    moved.parameters = TIER_HOST;
    moved.buffers = 2;
    assert_true(device_live(graph, moved) < without_gradients);
    graph_free(graph);
}

/* Between the last use of block `block`'s results in forward and their first in backward no copy of them is live on
 * the device. `forward` and `backward` are the groups next to the gap. */
static void swapped_activations_are_away(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    struct policy policy = {.micro_batches_per_wave = 2, .chunk_bytes = 8192, .schedule = "f0-7 h2 d3 b7-0"};
    struct program *program = small_program_under(graph, 2, &policy);
    int moved = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *fetch = &program->instructions.items[i];
        if (!is_fetch(program, fetch)) continue;
        const struct buffer *original = &program->buffers.items[fetch->operands[0].buffer];
        if (original->kind != BUFFER_ACTIVATIONS) continue;
        assert_int_equal(original->tier, original->tensor->block == 2 ? TIER_HOST : TIER_DISK);
        for (size_t b = 0; b < program->buffers.count; b++) {
            const struct buffer *copy = &program->buffers.items[b];
            if (copy->original != original->id || copy->id == fetch->operands[OP_INPUTS_MAX].buffer) continue;
            /* From the store after the next block's forward to the fetch, six groups later and more. */
            assert_true(copy->last < (int32_t)i);
            int32_t stored = program->instructions.items[copy->last].group;
            assert_true(fetch->group - stored >= 2);
            moved++;
        }
    }
    assert_true(moved >= 20);
    program_free(program);
    graph_free(graph);
}

/* Copies of parameters in which updates write, and those of them that are fetched. */
static void count_updated(const struct program *program, int *updated, int *fetched) {
    unsigned char *seen = mem_array(program->buffers.count, 1);
    assert_non_null(seen);
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct instruction *instruction = &program->instructions.items[i];
        int32_t written = instruction->operands[OP_INPUTS_MAX].buffer;
        bool updates = instruction->opcode == OPCODE_KERNEL && instruction->node->phase == PHASE_UPDATE;
        if (is_fetch(program, instruction)) seen[written] = 1;
        if (!updates || program->buffers.items[written].original < 0) continue;
        bool parameters = program->buffers.items[written].kind == BUFFER_PARAMETERS;
        *updated += parameters;
        *fetched += parameters && seen[written] == 1;
    }
    mem_free(seen);
}

/* An update with masters reads no weights, whole chunks of which it writes; one without reads what it changes. */
static void updated_weights_are_not_fetched(void **state) {
    (void)state;
    for (int bf16 = 0; bf16 < 2; bf16++) {
        struct graph *graph = small_graph_build(&(struct small_graph_options){
            .layers = 3, .dtype = bf16 ? DTYPE_BF16 : DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 4});
        struct policy policy = {.micro_batches_per_wave = 1,
                                .chunk_bytes = 8192,
                                .buffers = 8,
                                .parameters = TIER_HOST,
                                .optimizer = TIER_HOST};
        struct program *program = small_program_under(graph, 2, &policy);
        int updated = 0, fetched = 0;
        assert_int_equal(program_verify(program), STATUS_OK);
        count_updated(program, &updated, &fetched);
        assert_true(updated > 10);
        assert_int_equal(fetched, bf16 ? 0 : updated);
        program_free(program);
        graph_free(graph);
    }
}

/* The group of the next kernel after instruction i that is part of this step's own waves. */
static int32_t next_group(const struct program *program, size_t i) {
    const struct instruction *items = program->instructions.items;
    while (items[i].opcode != OPCODE_KERNEL || items[i].deferred)
        i++;
    return items[i].group;
}

/* A fetch stands `lookahead` groups before its group, a store as many behind the end of its own. */
static void copies_have_their_lookahead(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    for (int64_t lookahead = 0; lookahead <= 2; lookahead++) {
        struct policy policy = {
            .micro_batches_per_wave = 2, .chunk_bytes = 8192, .lookahead = lookahead, .schedule = "f0-2 d1 f3-7 b7-0"};
        struct program *program = small_program_under(graph, 2, &policy);
        int copies = 0;
        for (size_t i = 0; i < program->instructions.count; i++) {
            const struct instruction *copy = &program->instructions.items[i];
            if (copy->opcode != OPCODE_COPY) continue;
            int64_t expected = is_fetch(program, copy) ? copy->group - lookahead : copy->group + 1 + lookahead;
            assert_int_equal(next_group(program, i), expected);
            copies++;
        }
        assert_true(copies >= 20);
        program_free(program);
    }
    graph_free(graph);
}

/* A deferred update stands two lookaheads before the forward of the first block that uses its chunk. */
static void deferred_updates_come_early(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    struct chunk_list chunks;
    assert_int_equal(chunks_pack(graph, 8192, &chunks), STATUS_OK);
    for (int64_t lookahead = 0; lookahead <= 2; lookahead++) {
        struct policy policy = {
            .micro_batches_per_wave = 2, .chunk_bytes = 8192, .lookahead = lookahead, .optimizer = TIER_HOST};
        struct program *program = small_program_under(graph, 2, &policy);
        int updates = 0;
        for (size_t i = 0; i < program->instructions.count; i++) {
            const struct instruction *update = &program->instructions.items[i];
            if (update->opcode != OPCODE_KERNEL || !update->deferred) continue;
            int64_t block = chunks.chunks.items[chunks_updated_by(&chunks, update->node)].block;
            assert_int_equal(next_group(program, i), block > 2 * lookahead ? block - 2 * lookahead : 0);
            updates++;
        }
        assert_true(updates >= 20);
        program_free(program);
    }
    chunks_free(&chunks);
    graph_free(graph);
}

/* Backward of a layer does not ask for the layer's own output: recomputing it stops short of the product that makes
 * it. */
static void recomputation_stops_where_nothing_is_read(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    struct policy policy = {.micro_batches_per_wave = 2, .chunk_bytes = 8192, .schedule = "f0-7 b7-4 f3 b3-0"};
    struct program *program = small_program_under(graph, 2, &policy);
    int downs = 0, gates = 0;
    for (size_t i = 0; i < program->instructions.count; i++) {
        const struct node *node = program->instructions.items[i].node;
        if (!node || node->block != 3 || node->phase != PHASE_FORWARD) continue;
        downs += strcmp(node->name, "layer.2.down") == 0;
        gates += strcmp(node->name, "layer.2.gate") == 0;
    }
    assert_int_equal(gates, 4);
    assert_int_equal(downs, 2);
    program_free(program);
    graph_free(graph);
}

static void refuse(const struct graph *graph, struct policy policy, const char *rule, const char *hint) {
    struct plan plan = small_plan(graph, 2, 1);
    plan.policy = policy;
    plan.policy.micro_batches_per_wave = 1;
    int64_t *bytes = small_graph_workspace(graph);
    struct workspace_table table = {.bytes = bytes, .count = (int)graph->nodes.count};
    struct program *program;
    status_clear();
    assert_int_equal(program_compile_proved(graph, &plan, &table, &program), STATUS_BAD_INPUT);
    if (!strstr(status_message(), rule) || !strstr(status_hint_text(), hint))
        fail_msg("'%s', hint '%s'", status_message(), status_hint_text());
    mem_free(bytes);
}

/* What only the graph can tell. */
static void policies_that_cannot_be_are_refused(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    refuse(graph, (struct policy){.chunk_bytes = 1000, .buffers = 2, .parameters = TIER_HOST},
           "policy.buffers: 2 is not legal: one block uses 7 chunks", "the nearest legal value is 7");
    refuse(graph, (struct policy){.schedule = "f0-8 b8-0"}, "f8 is not legal: the model has 8 blocks", "f7");
    graph_free(graph);
}

/* All chunks may stay, one more may not; what only evaluates may have fewer than the plan was made for. */
static void persistent_chunks_stay(void **state) {
    (void)state;
    struct graph *graph = deep_graph();
    struct chunk_list chunks;
    assert_int_equal(chunks_pack(graph, 1000, &chunks), STATUS_OK);
    struct policy policy = {
        .micro_batches_per_wave = 1, .chunk_bytes = 1000, .persistent_chunks = (int64_t)chunks.chunks.count};
    chunks_free(&chunks);
    program_free(small_program_under(graph, 2, &policy));
    char nearest[64];
    snprintf(nearest, sizeof nearest, "the nearest legal value is %lld", (long long)policy.persistent_chunks++);
    refuse(graph, policy, "is not legal: at most all chunks stay on the device", nearest);
    graph_free(graph);
    graph = small_graph_build(&(struct small_graph_options){
        .layers = 1, .dtype = DTYPE_F32, .micro_batch_sequences = 1, .sequence_length = 3, .forward_only = true});
    program_free(small_program_under(graph, 2, &policy));
    graph_free(graph);
}

struct compilation {
    const struct graph *graph;
    struct plan plan;
    struct workspace_table table;
};

static enum status compile_once(void *payload) {
    const struct compilation *compilation = payload;
    struct program *program;
    TRY(program_compile_proved(compilation->graph, &compilation->plan, &compilation->table, &program));
    program_free(program);
    return STATUS_OK;
}

static void allocations_may_fail(void **state) {
    (void)state;
    for (uint64_t seed = 1, last = unit_sweep(2, 12); seed <= last; seed++) {
        struct graph *graph = small_graph_build(&(struct small_graph_options){
            .layers = 1, .dtype = DTYPE_BF16, .micro_batch_sequences = 1, .sequence_length = 3});
        int64_t *bytes = small_graph_workspace(graph);
        struct compilation compilation = {
            graph, small_plan(graph, 3, 2), {.bytes = bytes, .count = (int)graph->nodes.count}};
        compilation.plan.policy = random_policy(graph, 3, NULL, seed);
        compilation.plan.policy.parameters = TIER_DISK;
        assert_true(fault_sweep(FAULT_ALLOCATE, false, compile_once, &compilation) > 30);
        mem_free(bytes);
        graph_free(graph);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(random_policies_are_proved),
        cmocka_unit_test(fetches_are_the_fewest),
        cmocka_unit_test(policies_save_memory),
        cmocka_unit_test(swapped_activations_are_away),
        cmocka_unit_test(updated_weights_are_not_fetched),
        cmocka_unit_test(copies_have_their_lookahead),
        cmocka_unit_test(deferred_updates_come_early),
        cmocka_unit_test(recomputation_stops_where_nothing_is_read),
        cmocka_unit_test(policies_that_cannot_be_are_refused),
        cmocka_unit_test(persistent_chunks_stay),
        cmocka_unit_test(allocations_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
