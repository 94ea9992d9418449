#include "session/engine.h"

#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static enum status open_arenas(struct engine *engine) {
    const struct train_setup *setup = engine->setup;
    struct arena_settings settings = {
        .memory = setup->backend->memory, .folder = setup->limits.disk_folder, .channels = RUNNER_CHANNELS};
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        TRY(arena_open(tier, setup->program_bytes[tier], &settings, &engine->arenas[tier]));
    return STATUS_OK;
}

static enum status read_home(void *payload, const void *key, int64_t offset, int64_t bytes, void *to) {
    return runner_read(payload, key, offset, bytes, to);
}

static enum status write_home(void *payload, const void *key, int64_t offset, int64_t bytes, const void *from) {
    return runner_write(payload, key, offset, bytes, from);
}

enum status engine_open(const struct train_setup *setup, struct engine *out) {
    struct engine engine = {.setup = setup};
    *out = engine;
    TRY(open_arenas(out));
    TRY(runner_create(setup->main, out->arenas, &out->main));
    out->homes = (struct byte_store){read_home, write_home, out->main};
    if (setup->validation) TRY(runner_create(setup->validation, out->arenas, &out->validation));
    if (setup->prefill == setup->main)
        out->prefill = out->main;
    else if (setup->prefill)
        TRY(runner_create(setup->prefill, out->arenas, &out->prefill));
    return setup->decode ? runner_create(setup->decode, out->arenas, &out->decode) : STATUS_OK;
}

void engine_close(struct engine *engine) {
    runner_free(engine->decode);
    if (engine->prefill != engine->main) runner_free(engine->prefill);
    runner_free(engine->validation);
    runner_free(engine->main);
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        arena_close(&engine->arenas[tier]);
    *engine = (struct engine){0};
}

void *engine_data(const struct runner *runner, const struct executable *executable, const char *name) {
    const struct graph *graph = executable->graph;
    const struct tensor *tensor = graph_find(graph, name);
    for (size_t i = 0; i < graph->tensors.count && !tensor; i++) {
        const struct tensor *other = graph->tensors.items[i];
        if (other->kept && strcmp(other->name, name) == 0) tensor = other;
    }
    void *data = tensor ? runner_data(runner, tensor) : NULL;
    BUG_IF(!data, "the program has no %s", name);
    return data;
}

int32_t *engine_optional_input(const struct runner *runner, const struct executable *executable, const char *name) {
    const struct tensor *tensor = graph_find(executable->graph, name);
    return tensor ? runner_data(runner, tensor) : NULL;
}

static void fill_positions(const struct runner *runner, const struct executable *executable,
                           const struct recipe *recipe) {
    int32_t *positions = engine_optional_input(runner, executable, "positions");
    if (!positions) return;
    int64_t sequences = recipe_grains(recipe) * recipe->grain_sequences;
    for (int64_t s = 0; s < sequences; s++)
        for (int64_t t = 0; t < recipe->sequence_length; t++)
            *positions++ = (int32_t)t;
}

/* Fills a batch straight into the program's inputs; sequences that fill up the last grain have no targets. */
static enum status fill_batch(const struct engine *engine, const struct runner *runner,
                              const struct executable *executable, const struct dataset *dataset,
                              enum dataset_split split, int64_t step, int64_t *targets) {
    const struct recipe *recipe = &engine->setup->plan.recipe;
    struct dataset_batch batch = {.tokens = engine_data(runner, executable, "tokens"),
                                  .targets = engine_data(runner, executable, "targets"),
                                  .positions = engine_optional_input(runner, executable, "positions"),
                                  .segments = engine_optional_input(runner, executable, "segments")};
    int64_t used = recipe->batch * recipe->sequence_length;
    int64_t all = recipe_grains(recipe) * recipe->grain_sequences * recipe->sequence_length;
    for (int64_t i = used; i < all; i++) {
        batch.tokens[i] = 0;
        batch.targets[i] = DATASET_IGNORE;
        if (batch.segments) batch.segments[i] = 0;
    }
    fill_positions(runner, executable, recipe);
    return dataset_fill(dataset, split, step, recipe->batch, &batch, targets);
}

enum status engine_step(struct engine *engine, const struct dataset *dataset, int64_t step, double learning_rate,
                        struct step_numbers *out) {
    const struct recipe *recipe = &engine->setup->plan.recipe;
    const struct executable *executable = engine->setup->main;
    int64_t targets;
    TRY(fill_batch(engine, engine->main, executable, dataset, DATASET_TRAIN, step, &targets));
    double scale = 1 / (double)(targets > 0 ? targets : 1), t = (double)(step + 1);
    double *scalars = engine->scalars;
    scalars[SCALAR_LOSS_SCALE] = scale;
    scalars[SCALAR_LEARNING_RATE] = learning_rate;
    scalars[SCALAR_BIAS_CORRECTION] = 1 / (1 - pow(recipe->beta1, t));
    scalars[SCALAR_BIAS_CORRECTION_SQ] = 1 / sqrt(1 - pow(recipe->beta2, t));
    engine->torn = true;
    TRY(runner_step(engine->main, scalars));
    engine->torn = false;
    const double *loss = engine_data(engine->main, executable, "loss");
    const double *clip = engine_data(engine->main, executable, "clip");
    *out = (struct step_numbers){.loss = *loss * scale, .grad_norm = clip[0]};
    return STATUS_OK;
}

enum status engine_settle(struct engine *engine) {
    bool torn = engine->torn;
    engine->torn = true;
    TRY(runner_finish(engine->main));
    engine->torn = torn;
    return STATUS_OK;
}

enum status engine_repeat_step(struct engine *engine) { return runner_step(engine->main, engine->scalars); }

enum status engine_add_loss(struct engine *engine, struct runner *runner, const struct dataset *dataset, int64_t batch,
                            double *loss, int64_t *targets) {
    const struct train_setup *setup = engine->setup;
    const struct executable *executable = runner == engine->validation ? setup->validation : setup->main;
    double scalars[SCALAR_COUNT] = {0};
    TRY(engine_settle(engine));
    int64_t counted;
    TRY(fill_batch(engine, runner, executable, dataset, DATASET_VALID, batch, &counted));
    *targets += counted;
    TRY(runner_step(runner, scalars));
    *loss += *(const double *)engine_data(runner, executable, "loss");
    return STATUS_OK;
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
