#include "train/reference.h"

#include <math.h>
#include <xxhash.h>

#include "base/folder.h"
#include "base/terminal.h"
#include "model/safetensors.h"
#include "session/checkpoint/run_folder.h"

static const char reference_file_name[] = "reference.safetensors";

void reference_free(struct reference *reference) {
    mem_free(reference->values);
    *reference = (struct reference){0};
}

/* ---- computing ---- */

/* The sums of one micro-batch of each data rank. */
struct turn {
    double *mine, *all;      /* by rank; ranks of one model replica have the same micro-batch */
    int64_t sequences;       /* of a micro-batch */
    struct engine_turn data; /* this rank's index among them */
};

static void take_turn(const struct turn *turn, const struct rank_place *place, int64_t first, struct reference *out) {
    struct rank_place of = *place;
    for (of.rank = 0; of.rank < rank_place_ranks(place); of.rank++) {
        int64_t begin = (first + rank_place_data_rank(&of)) * turn->sequences;
        for (int64_t i = 0; i < turn->sequences && begin + i < out->count; i++)
            out->values[begin + i] = turn->all[of.rank * turn->sequences + i];
    }
}

static enum status check_finite(const struct reference *reference) {
    for (int64_t i = 0; i < reference->count; i++)
        if (!isfinite(reference->values[i]))
            return status_set(STATUS_FAILED, "the log-probability of %s answer %lld is not finite before any training",
                              i % 2 == 0 ? "chosen" : "rejected", (long long)(i / 2 + 1));
    return STATUS_OK;
}

static enum status one_turn(struct engine *engine, const struct dataset *dataset, int64_t first,
                            const struct turn *turn) {
    struct comm *comm = engine->plan->session->comm;
    struct comm_group all = comm_group_all(comm);
    enum status status = engine_log_probabilities(engine, dataset, first + turn->data.place, turn->mine);
    TRY(comm_agree(comm, status));
    return comm_all_gather(comm, &all, turn->mine, (size_t)turn->sequences * sizeof *turn->mine, turn->all);
}

static enum status all_turns(struct engine *engine, const struct dataset *dataset,
                             enum status (*check_stop)(const void *payload), const void *payload,
                             const struct turn *turn, struct reference *out) {
    int64_t micro_batches = (out->count + turn->sequences - 1) / turn->sequences;
    int64_t places = turn->data.places;
    enum status status = STATUS_OK;
    progress_begin(PROGRESS_COUNT, micro_batches, "micro-batches of preferences before training");
    for (int64_t first = 0; first < micro_batches && status == STATUS_OK; first += places) {
        status = step_collectives_agree(&engine->collectives, check_stop ? check_stop(payload) : STATUS_OK);
        if (status_is_stop(status)) status = status_set(status, "stopped before the first step");
        if (status == STATUS_OK) status = one_turn(engine, dataset, first, turn);
        if (status == STATUS_OK) take_turn(turn, &engine->plan->chosen.place, first, out);
        progress_add(micro_batches - first < places ? micro_batches - first : places);
    }
    progress_end();
    return status;
}

enum status reference_compute(struct engine *engine, const struct dataset *dataset,
                              enum status (*check_stop)(const void *payload), const void *payload,
                              struct reference *out) {
    struct comm *comm = engine->plan->session->comm;
    int64_t sequences = engine->plan->chosen.recipe.micro_batch_sequences, ranks = mesh_ranks(&comm->mesh);
    AUTO(reference_free) struct reference made = {.count = dataset_sequences(dataset)};
    AUTO_FREE double *buffer = mem_array((size_t)((ranks + 1) * sequences), sizeof *buffer);
    made.values = mem_array((size_t)made.count, sizeof *made.values);
    TRY(comm_agree(comm, buffer && made.values ? STATUS_OK : STATUS_FAILED));
    const struct turn turn = {
        .mine = buffer + ranks * sequences, .all = buffer, .sequences = sequences, .data = engine_turn_of(engine)};
    TRY(all_turns(engine, dataset, check_stop, payload, &turn, &made));
    TRY(check_finite(&made));
    *out = TAKE(made);
    return STATUS_OK;
}

/* ---- its file ---- */

/* Hashes of the data and of the values, in 32-bit words. */
enum { HASH_WORDS = 4 };

static void make_hashes(const struct dataset *dataset, const struct reference *reference, int32_t words[HASH_WORDS]) {
    uint64_t hashes[2] = {dataset_fingerprint(dataset),
                          XXH3_64bits(reference->values, (size_t)reference->count * sizeof *reference->values)};
    memcpy(words, hashes, sizeof hashes);
}

enum status reference_write(const char *run_folder, const struct dataset *dataset, const struct reference *reference) {
    int32_t words[HASH_WORDS];
    char path[RUN_PATH_BYTES];
    TRY(run_path(run_folder, reference_file_name, path));
    make_hashes(dataset, reference, words);
    const struct safetensors_item items[] = {
        {.name = "hashes", .shape = shape_make(DTYPE_I32, 1, HASH_WORDS, 1, 1), .data = words},
        {.name = "log_probabilities",
         .shape = shape_make(DTYPE_F64, 1, reference->count, 1, 1),
         .data = reference->values}};
    return safetensors_write(path, items, sizeof items / sizeof *items, NULL);
}

static enum status read_values(const char *path, const struct safetensors *set, struct reference *out,
                               int32_t words[HASH_WORDS]) {
    const struct safetensors_tensor *hashes = safetensors_find(set, "hashes"),
                                    *values = safetensors_find(set, "log_probabilities");
    const struct shape expected = shape_make(DTYPE_I32, 1, HASH_WORDS, 1, 1),
                       shape = shape_make(DTYPE_F64, 1, out->count, 1, 1);
    if (!hashes || !values || hashes->dtype != SAFETENSORS_I32 || values->dtype != SAFETENSORS_F64 ||
        !safetensors_has_shape(hashes, &expected) || !safetensors_has_shape(values, &shape))
        return status_set(STATUS_BAD_INPUT, "%s: does not hold the log-probabilities of %lld answers", path,
                          (long long)out->count);
    TRY(safetensors_convert(set, hashes, 0, HASH_WORDS, DTYPE_I32, words));
    return safetensors_convert(set, values, 0, (size_t)out->count, DTYPE_F64, out->values);
}

static enum status check_hashes(const char *path, const struct dataset *dataset, const struct reference *reference,
                                const int32_t words[HASH_WORDS]) {
    int32_t expected[HASH_WORDS];
    make_hashes(dataset, reference, expected);
    if (memcmp(words + 2, expected + 2, sizeof expected / 2) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: damaged: its log-probabilities are not those that were written", path);
    uint64_t data = dataset_fingerprint_of_0_1_0(dataset); /* train.c has compared the tokens */
    if (memcmp(words, expected, sizeof expected / 2) != 0 && memcmp(words, &data, sizeof data) != 0)
        return status_set(STATUS_BAD_INPUT, "%s: is of other data", path);
    return STATUS_OK;
}

enum status reference_read(const char *run_folder, const struct dataset *dataset, struct reference *out) {
    AUTO(reference_free) struct reference read = {.count = dataset_sequences(dataset)};
    struct safetensors *set;
    int32_t words[HASH_WORDS];
    char path[RUN_PATH_BYTES];
    TRY(run_path(run_folder, reference_file_name, path));
    read.values = mem_array((size_t)read.count, sizeof *read.values);
    if (!read.values) return STATUS_FAILED;
    TRY(safetensors_open(path, &set));
    enum status status = read_values(path, set, &read, words);
    safetensors_close(set);
    TRY(status);
    TRY(check_hashes(path, dataset, &read, words));
    *out = TAKE(read);
    return STATUS_OK;
}
