#include "session/engine.h"

#include <math.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/text.h"
#include "ir/tensor.h"
#include "profile/operator_bench.h"

enum { ALIGNMENT = 256 };

static int64_t align(int64_t bytes) { return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT; }

/* Offsets of a node's operands in its call block: scalars, then workspace, then each storage. */
struct call_places {
    struct operands operands;
    int64_t workspace, storage[OPERAND_COUNT], bytes;
};

static struct call_places find_places(const struct executable *executable, const struct node *node) {
    struct call_places places;
    operands_find(executable->graph, node, &places.operands);
    places.workspace = align(SCALAR_COUNT * sizeof(double));
    places.bytes = places.workspace + align(executable->kernels[node->id]->workspace_bytes);
    for (int i = 0; i < places.operands.storage_count; i++) {
        places.storage[i] = places.bytes;
        places.bytes += align(shape_bytes(&places.operands.storages[i].tensor->shape));
    }
    return places;
}

static void *operand_at(const struct call_places *places, int operand, char *block) {
    int storage = places->operands.storage[operand];
    if (storage < 0) return NULL;
    const struct tensor *tensor = operand_tensor(places->operands.node, operand);
    return block + places->storage[storage] + tensor_storage_offset(tensor);
}

static enum status call_node(const struct executable *executable, const struct node *node, char *block, void *stream) {
    const struct kernel *kernel = executable->kernels[node->id];
    const struct call_places places = find_places(executable, node);
    struct kernel_call call = {.workspace = block + places.workspace, .scalars = (double *)block, .stream = stream};
    double scalars[SCALAR_COUNT];
    operator_values_scalars(node, scalars);
    TRY(executable->backend->memory->write(block, scalars, sizeof scalars));
    for (int i = 0; i < OP_INPUTS_MAX; i++)
        call.in[i] = operand_at(&places, i, block);
    for (int i = 0; i < OP_OUTPUTS_MAX; i++)
        call.out[i] = operand_at(&places, OP_INPUTS_MAX + i, block);
    executable->backend->zero(block + places.workspace, places.bytes - places.workspace, stream);
    TRY(kernel->run(kernel, &call));
    return executable->backend->streams->finish(stream);
}

static int64_t max_bytes(const struct executable *executable) {
    int64_t max = 0;
    for (size_t i = 0; i < executable->graph->nodes.count; i++) {
        const struct node *node = executable->graph->nodes.items[i];
        if (!executable->kernels[node->id]) continue;
        const struct call_places places = find_places(executable, node);
        max = places.bytes > max ? places.bytes : max;
    }
    return max;
}

static enum status call_all(const struct executable *executable, char *block) {
    const struct backend_streams *streams = executable->backend->streams;
    void *stream;
    TRY(streams->create(&stream));
    enum status status = STATUS_OK;
    for (size_t i = 0; i < executable->graph->nodes.count && status == STATUS_OK; i++)
        if (executable->kernels[i]) status = call_node(executable, executable->graph->nodes.items[i], block, stream);
    (void)streams->finish(stream);
    streams->free(stream);
    return status;
}

static enum status warm_program(const struct executable *executable) {
    const struct backend *backend = executable->backend;
    int64_t bytes = max_bytes(executable);
    void *block;
    if (bytes == 0) return STATUS_OK;
    backend->set_threads(executable->threads);
    TRY(backend->streams->enter());
    TRY(backend->memory->take(TIER_DEVICE, bytes, &block));
    enum status status = call_all(executable, block);
    backend->memory->give_back(TIER_DEVICE, block);
    return status;
}

enum status warm_up(const struct session_plan *plan) {
    const struct backend *backend = plan->session->machine.backend;
    int64_t needed = plan->programs.tier_bytes[TIER_DEVICE], left;
    char need[SIZE_TEXT], there[SIZE_TEXT], option[SIZE_TEXT];
    if (!backend->left_bytes) return STATUS_OK;
    for (int use = 0; use < PROGRAM_USES; use++)
        if (plan->programs.of[use]) TRY(warm_program(plan->programs.of[use]));
    TRY(backend->left_bytes(&left));
    if (needed <= left) return STATUS_OK;
    status_set(STATUS_NO_FIT, "the plan needs %s of the device, which has %s left next to the code of all kernels",
               size_print(needed, need), size_print(left, there));
    return status_hint(STATUS_NO_FIT, "plan with --device-memory %s", size_print_option(left, option));
}

/* Ranks read each other's arenas in place during collectives, if the plan says so. */
static enum status open_arenas(struct engine *engine) {
    const struct machine *machine = &engine->plan->session->machine;
    const struct rank_place *place = &engine->plan->chosen.place;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++) {
        struct arena_settings settings = {.memory = machine->backend->memory,
                                          .folder = machine->limits.disk_folder,
                                          .channels = RUNNER_CHANNELS,
                                          .engine = machine->disk_engine,
                                          .buffered = machine->disk_buffered};
        if (place->in_place && tier == place->tier) settings.shared_by = engine->plan->session->comm;
        TRY(arena_open(tier, engine->plan->programs.tier_bytes[tier], &settings, &engine->arenas[tier]));
    }
    return STATUS_OK;
}

static enum status find_micro_batches(struct engine *engine) {
    const struct plan *plan = &engine->plan->chosen;
    AUTO(lane_shares_free) struct lane_shares shares = {0};
    TRY(lane_shares_create(&plan->recipe, &plan->place, &shares));
    engine->micro_batches = (struct micro_batch_range){shares.first_micro_batch, shares.micro_batches};
    for (size_t i = 0; i < shares.list.count; i++)
        engine->shares += shares.list.items[i].micro_batches > 0;
    return STATUS_OK;
}

static enum status read_state(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    return runner_read(payload, key, offset, bytes, to);
}

static enum status write_state(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from) {
    return runner_write(payload, key, offset, bytes, from);
}

/* Each tensor-parallel rank may have summed only the losses of its own tokens. */
static struct group_axis parts_of_loss(const struct engine *engine, enum program_use use) {
    return graph_find(engine->plan->programs.of[use]->graph, "loss")->result_parts;
}

static int loss_figures(const struct graph *graph) { return (int)shape_elements(&graph_find(graph, "loss")->shape); }

enum status engine_open(const struct session_plan *plan, struct engine *out) {
    const struct programs *programs = &plan->programs;
    *out = (struct engine){.plan = plan};
    bool steps = programs->of[PROGRAM_STEP] != NULL;
    int figures = steps ? loss_figures(programs->of[PROGRAM_STEP]->graph) : 0;
    struct comm *comm = plan->session->comm;
    if (steps) TRY(comm_agree(comm, find_micro_batches(out)));
    TRY(comm_agree(comm, step_collectives_open(comm, &plan->chosen, figures, &out->collectives)));
    if (steps) out->collectives.loss_parts = parts_of_loss(out, PROGRAM_STEP);
    TRY(comm_agree(comm, warm_up(plan)));
    TRY(comm_agree(comm, open_arenas(out)));
    for (int use = 0; use < PROGRAM_USES; use++)
        if (programs->of[use]) TRY(runner_create(programs->of[use], out->arenas, comm, &out->runners[use]));
    out->main = out->runners[programs_main_use(programs)];
    if (steps) TRY(comm_agree(comm, expert_counts_open(programs->of[PROGRAM_STEP]->graph, comm, &out->expert_counts)));
    TRY(comm_agree(comm, stage_spans_create(engine_graph(out), plan->chosen.policy.spans,
                                            rank_place_pipeline_parallel(&plan->chosen.place), &out->spans)));
    out->state_store = (struct byte_store){read_state, write_state, out->main};
    return STATUS_OK;
}

void engine_close(struct engine *engine) {
    for (int use = PROGRAM_USES - 1; use >= 0; use--)
        runner_free(engine->runners[use]);
    step_collectives_close(&engine->collectives);
    expert_counts_close(&engine->expert_counts);
    stage_spans_free(&engine->spans);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&engine->arenas[tier]);
    *engine = (struct engine){.plan = NULL};
}

void *engine_data(const struct engine *engine, enum program_use use, const char *name) {
    const struct graph *graph = engine->plan->programs.of[use]->graph;
    const struct tensor *tensor = graph_find(graph, name);
    for (size_t i = 0; i < graph->tensors.count && !tensor; i++) {
        const struct tensor *other = graph->tensors.items[i];
        if (other->kept && strcmp(other->name, name) == 0) tensor = other;
    }
    void *data = tensor ? runner_data(engine->runners[use], tensor) : NULL;
    BUG_IF(!data, "the program has no %s", name);
    return data;
}

/* An input that some programs lack; NULL if this one does. */
static void *optional_input(const struct engine *engine, enum program_use use, const char *name) {
    const struct tensor *tensor = graph_find(engine->plan->programs.of[use]->graph, name);
    return tensor ? runner_data(engine->runners[use], tensor) : NULL;
}

static void fill_positions(int32_t *positions, int64_t sequences, int64_t length) {
    for (int64_t s = 0; s < sequences && positions; s++)
        for (int64_t t = 0; t < length; t++)
            *positions++ = (int32_t)t;
}

/* The micro-batches of a batch that the program's inputs hold: this rank's in a step, else all. */
static struct micro_batch_range micro_batches_of(const struct engine *engine, enum program_use use) {
    if (use == PROGRAM_STEP) return engine->micro_batches;
    return (struct micro_batch_range){0, recipe_micro_batches(&engine->plan->chosen.recipe)};
}

static struct dataset_rows rows_of(const struct recipe *recipe, const struct micro_batch_range *micro_batches,
                                   int64_t step) {
    int64_t first = micro_batches->first * recipe->micro_batch_sequences,
            end = first + micro_batches->count * recipe->micro_batch_sequences;
    if (first > recipe->batch) first = recipe->batch;
    if (end > recipe->batch) end = recipe->batch;
    return (struct dataset_rows){.step = step, .batch = recipe->batch, .first = first, .count = end - first};
}

static struct dataset_batch inputs_of(const struct engine *engine, enum program_use use) {
    return (struct dataset_batch){.tokens = engine_data(engine, use, "tokens"),
                                  .targets = engine_data(engine, use, "targets"),
                                  .positions = optional_input(engine, use, "positions"),
                                  .segments = optional_input(engine, use, "segments"),
                                  .references = optional_input(engine, use, "reference")};
}

/* Fills sequences [first, end) with padding. */
static void fill_blank(const struct dataset_batch *batch, int64_t length, int64_t first, int64_t end) {
    for (int64_t i = first * length; i < end * length; i++) {
        batch->tokens[i] = 0;
        batch->targets[i] = TARGET_PADDING;
        if (batch->segments) batch->segments[i] = 0;
    }
    for (int64_t i = first; i < end && batch->references; i++)
        batch->references[i] = 0;
}

/* Fills rows of a batch directly into the program's inputs. Sequences that pad the last micro-batch have no targets. */
static enum status fill_batch(const struct engine *engine, enum program_use use, const struct dataset *dataset,
                              enum dataset_split split, int64_t step, int64_t *targets) {
    const struct recipe *recipe = &engine->plan->chosen.recipe;
    struct micro_batch_range micro_batches = micro_batches_of(engine, use);
    struct dataset_rows rows = rows_of(recipe, &micro_batches, step);
    int64_t sequences = micro_batches.count * recipe->micro_batch_sequences, length = recipe->sequence_length;
    *targets = 0;
    if (sequences == 0) return STATUS_OK;
    struct dataset_batch batch = inputs_of(engine, use);
    fill_blank(&batch, length, rows.count, sequences);
    fill_positions(batch.positions, sequences, length);
    return dataset_fill_rows(dataset, split, &rows, &batch, targets);
}

static void set_scalars(struct engine *engine, int64_t step, double learning_rate, int64_t targets) {
    const struct recipe *recipe = &engine->plan->chosen.recipe;
    double t = (double)(step + 1), *scalars = engine->scalars;
    scalars[SCALAR_LOSS_SCALE] = 1 / (double)(targets > 0 ? targets : 1);
    scalars[SCALAR_LEARNING_RATE] = learning_rate;
    scalars[SCALAR_STEP] = t;
    scalars[SCALAR_BIAS_CORRECTION] = 1 / (1 - pow(recipe->beta1, t));
    scalars[SCALAR_BIAS_CORRECTION_SQ] = 1 / sqrt(1 - pow(recipe->beta2, t));
}

enum status engine_compute_step(struct engine *engine, int64_t step, double learning_rate, enum status filled,
                                int64_t targets, struct step_numbers *out) {
    int64_t all;
    double figures[LOSS_FIGURES_MAX] = {0};
    TRY(step_collectives_targets(&engine->collectives, filled, targets, &all));
    set_scalars(engine, step, learning_rate, all);
    engine->partially_updated = true;
    TRY(runner_step(engine->runners[PROGRAM_STEP], engine->scalars));
    TRY(step_collectives_loss(&engine->collectives, engine_data(engine, PROGRAM_STEP, "loss"), figures));
    engine->partially_updated = false;
    const double *clip = engine_data(engine, PROGRAM_STEP, "clip");
    double scale = engine->scalars[SCALAR_LOSS_SCALE];
    *out = (struct step_numbers){.loss = figures[0] * scale, .grad_norm = clip[0]};
    for (int i = 0; i < LOSS_FIGURES_MAX && engine->collectives.figures > 1; i++)
        out->preference[i] = figures[i] * scale;
    return STATUS_OK;
}

enum status engine_step(struct engine *engine, const struct dataset *dataset, int64_t step, double learning_rate,
                        struct step_numbers *out) {
    int64_t targets;
    enum status filled = fill_batch(engine, PROGRAM_STEP, dataset, DATASET_TRAIN, step, &targets);
    return engine_compute_step(engine, step, learning_rate, filled, targets, out);
}

enum status engine_settle(struct engine *engine) {
    bool partially_updated = engine->partially_updated;
    engine->partially_updated = true;
    TRY(runner_finish(engine->main));
    engine->partially_updated = partially_updated;
    return STATUS_OK;
}

enum status engine_repeat_step(struct engine *engine) { return runner_step(engine->main, engine->scalars); }

struct engine_turn engine_turn_of(const struct engine *engine) {
    const struct rank_place *place = &engine->plan->chosen.place;
    return (struct engine_turn){rank_place_data_rank(place), rank_place_data(place)};
}

/* True on one rank of each tensor-parallel group and each pipeline. */
static bool counts_once(const struct engine *engine) {
    const struct rank_place *place = &engine->plan->chosen.place;
    return rank_place_tensor_rank(place) == 0 && rank_place_stage(place) == 0;
}

/* Each part of a loss is added once. */
static bool adds_loss(const struct engine *engine) {
    const struct rank_place *place = &engine->plan->chosen.place;
    struct group_axis parts = parts_of_loss(engine, PROGRAM_LOSS);
    return counts_once(engine) || (parts.parts > 0 && group_axis_counts(parts, rank_place_tensor_rank(place)));
}

enum status engine_count_experts(struct engine *engine) {
    return expert_counts_collect(&engine->expert_counts, engine->runners[PROGRAM_STEP], engine->plan->session->comm,
                                 engine->shares, counts_once(engine));
}

enum status engine_join_loss(struct engine *engine) {
    const struct recipe *recipe = &engine->plan->chosen.recipe;
    double scalars[SCALAR_COUNT] = {0};
    if (!engine_is_cut(engine, TENSOR_PARAMETER)) return STATUS_OK;
    int64_t sequences = recipe_micro_batches(recipe) * recipe->micro_batch_sequences, length = recipe->sequence_length;
    struct dataset_batch batch = inputs_of(engine, PROGRAM_LOSS);
    fill_blank(&batch, length, 0, sequences);
    fill_positions(batch.positions, sequences, length);
    return runner_step(engine->runners[PROGRAM_LOSS], scalars);
}

enum status engine_add_loss(struct engine *engine, const struct dataset *dataset, int64_t batch,
                            double figures[LOSS_FIGURES_MAX], int64_t *targets) {
    double scalars[SCALAR_COUNT] = {0};
    int64_t counted;
    enum status filled = fill_batch(engine, PROGRAM_LOSS, dataset, DATASET_VALID, batch, &counted);
    if (filled != STATUS_OK) {
        (void)engine_join_loss(engine); /* the others wait for this rank's weights */
        return filled;
    }
    bool counts = counts_once(engine);
    *targets += counts ? counted : 0;
    TRY(runner_step(engine->runners[PROGRAM_LOSS], scalars));
    const double *made = engine_data(engine, PROGRAM_LOSS, "loss");
    bool adds = adds_loss(engine);
    for (int i = 0; i < loss_figures(engine->plan->programs.of[PROGRAM_LOSS]->graph) && adds; i++)
        figures[i] += made[i];
    return STATUS_OK;
}

enum status engine_log_probabilities(struct engine *engine, const struct dataset *dataset, int64_t micro_batch,
                                     double *sums) {
    const struct recipe *recipe = &engine->plan->chosen.recipe;
    int64_t sequences = recipe->micro_batch_sequences, length = recipe->sequence_length, count;
    double scalars[SCALAR_COUNT] = {0};
    struct dataset_batch batch = inputs_of(engine, PROGRAM_REFERENCE);
    enum status filled = dataset_fill_sequences(dataset, micro_batch * sequences, sequences, &batch, &count);
    fill_blank(&batch, length, filled == STATUS_OK ? count : 0, sequences);
    fill_positions(batch.positions, sequences, length);
    TRY(runner_step(engine->runners[PROGRAM_REFERENCE], scalars)); /* the others may wait for this rank's weights */
    const float *y = engine_data(engine, PROGRAM_REFERENCE, programs_reference_output);
    for (int64_t s = 0; s < sequences; s++) {
        sums[s] = 0;
        for (int64_t t = 0; t < length; t++)
            sums[s] += (double)y[s * length + t];
    }
    return filled;
}

int64_t engine_resident_bytes(const struct engine *engine) {
    enum { PAGES = 4096 };
    unsigned char present[PAGES];
    int64_t page = sysconf(_SC_PAGESIZE), resident = 0;
    /* A device's memory is fully allocated for as long as the arena is open. */
    if (!engine->arenas[TIER_DEVICE].mapped) return engine->arenas[TIER_DEVICE].bytes;
    for (int64_t at = 0; at < engine->arenas[TIER_DEVICE].bytes; at += PAGES * page) {
        int64_t bytes = engine->arenas[TIER_DEVICE].bytes - at < PAGES * page ? engine->arenas[TIER_DEVICE].bytes - at
                                                                              : PAGES * page;
        if (mincore((char *)engine->arenas[TIER_DEVICE].base + at, (size_t)bytes, present) != 0) return 0;
        for (int64_t p = 0; p * page < bytes; p++) {
            int64_t rest = bytes - p * page;
            if (present[p] & 1) resident += rest < page ? rest : page;
        }
    }
    return resident;
}

/* ---- where a value first stopped being finite ---- */

struct finite_search {
    const struct program *program;
    char *found;
};

static bool values_are_finite(enum dtype dtype, const char *values, int64_t count) {
    enum { BLOCK = 1 << 20 };
    int64_t bytes = dtype_bytes(dtype);
    bool finite = true;
#pragma omp parallel for schedule(static) reduction(&& : finite) if (count > BLOCK)
    for (int64_t at = 0; at < count; at += BLOCK)
        finite =
            finite && values_find_nonfinite(dtype, values + at * bytes, count - at < BLOCK ? count - at : BLOCK) < 0;
    return finite;
}

/* Examines this rank's part of a weight or state tensor, on any tier. */
static enum status examine_tensor(const struct engine *engine, const struct tensor *tensor, void *buffer,
                                  bool *finite) {
    int64_t first, elements, element = dtype_bytes(tensor->shape.dtype);
    const void *there = runner_local_shard(engine->main, tensor, &first, &elements);
    int64_t end = (first + elements) * element;
    *finite = !there || values_are_finite(tensor->shape.dtype, there, elements);
    for (int64_t at = first * element; !there && at < end && *finite; at += BYTE_STORE_PIECE) {
        int64_t count = end - at < BYTE_STORE_PIECE ? end - at : BYTE_STORE_PIECE;
        TRY(runner_read(engine->main, tensor, at, count, buffer));
        *finite = values_are_finite(tensor->shape.dtype, buffer, count / element);
    }
    return STATUS_OK;
}

/* Checks the bytes that the operand uses, which may be a run of the tensor's elements. */
static bool operand_is_finite(enum dtype dtype, const struct operand *operand, const char *data) {
    int64_t row = operand->row_bytes > 0 ? operand->row_bytes : operand->bytes;
    for (int64_t at = 0; at<operand->bytes; at += operand->row_bytes> 0 ? operand->row_stride : row)
        if (values_find_nonfinite(dtype, data + at, row / dtype_bytes(dtype)) >= 0) return false;
    return true;
}

/* Checks the instruction's output. Checks the copy if the CPU has no address for the output. */
static bool output_is_finite(const struct runner *runner, enum dtype dtype, const struct operand *operand,
                             int64_t run) {
    const void *there = runner_operand(runner, operand, run);
    if (there) return operand_is_finite(dtype, operand, there);
    AUTO_FREE void *copy = mem_array((size_t)operand->bytes, 1);
    bool known = copy && runner_read_operand(runner, operand, run, copy) == STATUS_OK;
    return !known || operand_is_finite(dtype, operand, copy);
}

static void examine_outputs(void *payload, const struct runner *runner, int32_t index, int64_t run) {
    struct finite_search *search = payload;
    const struct instruction *instruction = &search->program->instructions.items[index];
    if (search->found || instruction->opcode != OPCODE_KERNEL) return;
    const struct section *section = &search->program->sections.items[instruction->section];
    for (int i = 0; i < instruction->node->op->outputs; i++) {
        const struct tensor *tensor = instruction->node->out[i];
        const struct operand *operand = &instruction->operands[OP_INPUTS_MAX + i];
        if (!tensor || operand->buffer < 0) continue;
        if (output_is_finite(runner, tensor->shape.dtype, operand, run)) continue;
        int64_t micro_batch = section->first_micro_batch + run * section->micro_batches + instruction->micro_batch;
        search->found = section->first_micro_batch < 0
                            ? mem_format("%s (in the update)", tensor->name)
                            : mem_format("%s (block %s, micro-batch %" PRId64 ")", tensor->name,
                                         search->program->graph->blocks.items[instruction->node->block], micro_batch);
        return;
    }
}

/* Whether checkpoints hold the tensor. With adapters they omit the base model's weights. */
static bool is_written(const struct engine *engine, const struct tensor *tensor) {
    bool adapter = engine_model(engine)->config.adapter.rank > 0;
    return tensor->kind == TENSOR_STATE || (tensor->kind == TENSOR_PARAMETER && (tensor->trainable || !adapter));
}

/* Finds the first non-finite weight or state, among `written` ones or all; NULL if all are finite. */
static enum status find_in_tensors(const struct engine *engine, bool written, const struct tensor **found) {
    const struct graph *graph = engine_graph(engine);
    AUTO_FREE void *buffer = mem_array(BYTE_STORE_PIECE, 1);
    *found = NULL;
    if (!buffer) return STATUS_FAILED;
    for (size_t i = 0; i < graph->tensors.count && !*found; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        bool finite;
        if (written ? !is_written(engine, tensor) : !engine_keeps(tensor)) continue;
        TRY(examine_tensor(engine, tensor, buffer, &finite));
        if (!finite) *found = tensor;
    }
    return STATUS_OK;
}

static const char *describe_tensor(const struct tensor *tensor) {
    return tensor->kind == TENSOR_PARAMETER ? "a weight" : "optimizer state";
}

enum status engine_require_finite(const struct engine *engine, const char *origin) {
    const struct tensor *found;
    TRY(find_in_tensors(engine, true, &found));
    if (!found) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: %s (%s) holds a value that is not finite", origin, found->name,
                      describe_tensor(found));
}

/* ---- across ranks ---- */

/* Result of one rank. */
struct finding {
    enum status status;
    int32_t tensor; /* its id; -1: none */
    char text[240]; /* a place, or why it is not known */
};

/* The finding of the first tensor that any rank reports, else that of the first rank that reports anything. */
static struct finding first_finding(const struct finding *all, int ranks) {
    const struct finding *first = NULL;
    for (int rank = 0; rank < ranks; rank++) {
        const struct finding *found = &all[rank];
        if (found->text[0] == '\0') continue;
        if (!first || (found->tensor >= 0 && found->tensor < first->tensor)) first = found;
    }
    return first ? *first : (struct finding){.tensor = -1};
}

static enum status share_finding(struct comm *comm, struct finding *finding) {
    enum status status = STATUS_OK;
    AUTO_FREE struct finding *theirs = ranks_gather(comm, finding, sizeof *finding, &status);
    if (theirs) *finding = first_finding(theirs, mesh_ranks(&comm->mesh));
    return status;
}

static void examine_tensors(const struct engine *engine, struct finding *out) {
    const struct tensor *found;
    *out = (struct finding){.status = find_in_tensors(engine, false, &found), .tensor = -1};
    if (out->status != STATUS_OK) snprintf(out->text, sizeof out->text, "not known, since %s", status_message());
    if (out->status != STATUS_OK || !found) return;
    out->tensor = found->id;
    snprintf(out->text, sizeof out->text, "%s (%s)", found->name, describe_tensor(found));
}

/* The ranks repeat the step together. */
static enum status look_at_step(struct engine *engine, struct finding *out) {
    struct finite_search search = {.program = programs_main(&engine->plan->programs)->program};
    runner_set_observer(engine->main, examine_outputs, &search);
    enum status status = engine_repeat_step(engine);
    runner_set_observer(engine->main, NULL, NULL);
    *out = (struct finding){.tensor = -1};
    if (search.found) snprintf(out->text, sizeof out->text, "%s", search.found);
    mem_free(search.found);
    return status;
}

static enum status look(struct engine *engine, struct finding *out) {
    struct comm *comm = engine->plan->session->comm;
    examine_tensors(engine, out);
    TRY(share_finding(comm, out));
    if (out->text[0] != '\0') return STATUS_OK;
    TRY(look_at_step(engine, out));
    return share_finding(comm, out);
}

char *engine_find_nonfinite(struct engine *engine, bool *weight) {
    struct finding found;
    enum status status = look(engine, &found);
    *weight = found.tensor >= 0 && engine_graph(engine)->tensors.items[found.tensor]->kind == TENSOR_PARAMETER;
    if (found.text[0] != '\0') return mem_string(found.text);
    return status == STATUS_OK ? mem_string("no tensor when the step was repeated") : NULL;
}
