#include "session/engine.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "session/warm_up.h"

/* Operations between ranks read each other's arenas in place where the plan says so. */
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
    struct lane_shares shares;
    enum status status = lane_shares_create(&plan->recipe, &plan->place, &shares);
    engine->micro_batches = (struct micro_batch_range){shares.first_micro_batch, shares.micro_batches};
    for (size_t i = 0; i < shares.list.count; i++)
        engine->shares += shares.list.items[i].micro_batches > 0;
    lane_shares_free(&shares);
    return status;
}

static enum status read_state(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    return runner_read(payload, key, offset, bytes, to);
}

static enum status write_state(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from) {
    return runner_write(payload, key, offset, bytes, from);
}

/* Of ranks that share tensors, each may have summed the losses of its own tokens alone. */
static struct group_axis parts_of_loss(const struct engine *engine, enum program_use use) {
    return graph_find(engine->plan->programs.of[use]->graph, "loss")->result_parts;
}

static int loss_figures(const struct graph *graph) { return (int)shape_elements(&graph_find(graph, "loss")->shape); }

static int engine_loss_figures(const struct engine *engine, enum program_use use) {
    return loss_figures(engine->plan->programs.of[use]->graph);
}

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

/* An input that not every program has; NULL without. */
static void *optional_input(const struct engine *engine, enum program_use use, const char *name) {
    const struct tensor *tensor = graph_find(engine->plan->programs.of[use]->graph, name);
    return tensor ? runner_data(engine->runners[use], tensor) : NULL;
}

static void fill_positions(int32_t *positions, int64_t sequences, int64_t length) {
    for (int64_t s = 0; s < sequences && positions; s++)
        for (int64_t t = 0; t < length; t++)
            *positions++ = (int32_t)t;
}

/* Of a batch, those that the program's inputs hold: in a step this rank's, else all. */
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

/* Sequences [first, end) are padding. */
static void fill_blank(const struct dataset_batch *batch, int64_t length, int64_t first, int64_t end) {
    for (int64_t i = first * length; i < end * length; i++) {
        batch->tokens[i] = 0;
        batch->targets[i] = TARGET_PADDING;
        if (batch->segments) batch->segments[i] = 0;
    }
    for (int64_t i = first; i < end && batch->references; i++)
        batch->references[i] = 0;
}

/* Fills rows of a batch straight into the program's inputs; sequences that fill up the last micro-batch have no
 * targets. */
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

enum status engine_agree(struct engine *engine, enum status mine) {
    return step_collectives_agree(&engine->collectives, mine);
}

enum status engine_agree_min(struct engine *engine, enum status mine, int64_t value, int64_t *min) {
    return step_collectives_min(&engine->collectives, mine, value, min);
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

/* Of ranks that share tensors or are stages of one pipeline, one counts. */
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
    for (int i = 0; i < engine_loss_figures(engine, PROGRAM_LOSS) && adds; i++)
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
    /* A device's memory is there in full for as long as the arena is. */
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
