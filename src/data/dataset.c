#include "data/dataset.h"

#include <stdio.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/random.h"
#include "data/corpus.h"
#include "data/source.h"

struct dataset {
    struct corpus train, valid;
    const struct corpus *valid_corpus; /* &valid, or &train when a part of it is held out */
    int64_t valid_first;               /* first validation sequence of valid_corpus */
    int64_t train_sequences, valid_sequences;
    int64_t sequence_tokens;
    uint64_t seed;
};

static enum status check_options(const struct dataset_options *options) {
    if (options->sequence_tokens < 1)
        return status_set(STATUS_BAD_INPUT, "sequence length %lld: must be at least 1",
                          (long long)options->sequence_tokens);
    if (!(options->valid_fraction >= 0 && options->valid_fraction < 1))
        return status_set(STATUS_BAD_INPUT, "validation fraction %g: must be at least 0 and below 1",
                          options->valid_fraction);
    if (options->path_count == 0 && options->valid_path_count == 0)
        return status_set(STATUS_BAD_INPUT, "no data files are given");
    BUG_IF(options->vocab_size < 1, "vocabulary of %lld", (long long)options->vocab_size);
    return STATUS_OK;
}

static enum status list_sources(const struct dataset_options *options, struct sources *train, struct sources *valid) {
    for (size_t i = 0; i < options->path_count; i++)
        TRY(sources_add_train(options->paths[i], train, valid));
    for (size_t i = 0; i < options->valid_path_count; i++)
        TRY(sources_add_valid(options->valid_paths[i], valid));
    return STATUS_OK;
}

/* Sequences in a corpus that was opened from these files; BAD_INPUT when it is shorter than one. */
static enum status count_sequences(const struct corpus *corpus, const struct sources *sources, int64_t sequence_tokens,
                                   int64_t *out) {
    *out = 0;
    if (sources->count == 0) return STATUS_OK;
    if (corpus->tokens > sequence_tokens) {
        *out = (corpus->tokens - 1) / sequence_tokens;
        return STATUS_OK;
    }
    char others[64] = "";
    if (sources->count > 1) snprintf(others, sizeof others, " and %zu more", sources->count - 1);
    (void)status_set(STATUS_BAD_INPUT, "%s%s: %lld tokens are fewer than one sequence takes (%lld and one more)",
                     sources->items[0].path, others, (long long)corpus->tokens, (long long)sequence_tokens);
    if (corpus->tokens < 2) return status_hint(STATUS_BAD_INPUT, "give more data");
    return status_hint(STATUS_BAD_INPUT, "give more data, or a sequence length (--seq) of at most %lld",
                       (long long)corpus->tokens - 1);
}

/* Takes the last part of the training sequences for validation. */
static enum status hold_out(struct dataset *dataset, double fraction, const char *first_path) {
    if (dataset->train_sequences < 2)
        return status_set(STATUS_BAD_INPUT, "%s: one sequence of %lld tokens is all there is: none is left to hold out",
                          first_path, (long long)dataset->sequence_tokens);
    int64_t held = (int64_t)((double)dataset->train_sequences * fraction);
    if (held < 1) held = 1;
    if (held >= dataset->train_sequences) held = dataset->train_sequences - 1;
    dataset->train_sequences -= held;
    dataset->valid_sequences = held;
    dataset->valid_first = dataset->train_sequences;
    dataset->valid_corpus = &dataset->train;
    return STATUS_OK;
}

static enum status open_all(struct dataset *dataset, const struct dataset_options *options, const struct sources *train,
                            const struct sources *valid) {
    struct token_cache_options cache = {.folder = options->cache_folder,
                                        .tokenizer = options->tokenizer,
                                        .tokenizer_path = options->tokenizer_path,
                                        .eos_token = options->eos_token};
    int64_t length = options->sequence_tokens;
    TRY(corpus_open(train, &cache, options->vocab_size, &dataset->train));
    TRY(count_sequences(&dataset->train, train, length, &dataset->train_sequences));
    TRY(corpus_open(valid, &cache, options->vocab_size, &dataset->valid));
    TRY(count_sequences(&dataset->valid, valid, length, &dataset->valid_sequences));
    if (valid->count == 0 && options->valid_fraction > 0)
        return hold_out(dataset, options->valid_fraction, train->items[0].path);
    return STATUS_OK;
}

enum status dataset_open(const struct dataset_options *options, struct dataset **out) {
    TRY(check_options(options));
    struct sources train = {0}, valid = {0};
    struct dataset *dataset = mem_array(1, sizeof *dataset);
    enum status status = dataset ? list_sources(options, &train, &valid) : STATUS_FAILED;
    if (status == STATUS_OK) {
        dataset->sequence_tokens = options->sequence_tokens;
        dataset->seed = options->seed;
        dataset->valid_corpus = &dataset->valid;
        status = open_all(dataset, options, &train, &valid);
    }
    sources_free(&train);
    sources_free(&valid);
    if (status == STATUS_OK)
        *out = dataset;
    else
        dataset_close(dataset);
    return status;
}

void dataset_close(struct dataset *dataset) {
    if (!dataset) return;
    corpus_close(&dataset->train);
    corpus_close(&dataset->valid);
    mem_free(dataset);
}

int64_t dataset_train_sequences(const struct dataset *dataset) { return dataset->train_sequences; }

int64_t dataset_valid_sequences(const struct dataset *dataset) { return dataset->valid_sequences; }

int64_t dataset_tokens(const struct dataset *dataset) { return dataset->train.tokens + dataset->valid.tokens; }

static uint64_t mix_corpus(const struct corpus *corpus, uint64_t hash) {
    for (size_t i = 0; i < corpus->part_count; i++) {
        const struct corpus_part *part = &corpus->parts[i];
        uint64_t fields[3] = {part->hash, (uint64_t)part->view.count, (uint64_t)part->view.token_bytes};
        hash = XXH3_64bits_withSeed(fields, sizeof fields, hash);
    }
    return hash;
}

uint64_t dataset_fingerprint(const struct dataset *dataset) {
    int64_t counts[3] = {dataset->train_sequences, dataset->valid_sequences, dataset->sequence_tokens};
    uint64_t hash = XXH3_64bits(counts, sizeof counts);
    return mix_corpus(&dataset->valid, mix_corpus(&dataset->train, hash));
}

/* One row: targets are the inputs moved on by one, so the row is read once with one token more. */
static void fill_row(const struct corpus *corpus, int64_t sequence, int64_t length, int32_t *tokens, int32_t *targets) {
    corpus_read(corpus, sequence * length, length, tokens);
    for (int64_t i = 0; i + 1 < length; i++)
        targets[i] = tokens[i + 1];
    corpus_read(corpus, (sequence + 1) * length, 1, targets + length - 1);
}

static void fill_padding(int64_t length, int32_t *tokens, int32_t *targets) {
    for (int64_t i = 0; i < length; i++) {
        tokens[i] = 0;
        targets[i] = DATASET_IGNORE;
    }
}

static int64_t shuffled_sequence(const struct dataset *dataset, int64_t position) {
    int64_t count = dataset->train_sequences, epoch = position / count;
    return (int64_t)random_permute(dataset->seed, (uint32_t)epoch, (uint64_t)(position % count), (uint64_t)count);
}

int64_t dataset_fill(const struct dataset *dataset, enum dataset_split split, int64_t step, int64_t batch,
                     int32_t *tokens, int32_t *targets) {
    int64_t length = dataset->sequence_tokens, first, counted = 0;
    int64_t sequences = split == DATASET_TRAIN ? dataset->train_sequences : dataset->valid_sequences;
    BUG_IF(step < 0 || batch < 1 || sequences < 1 || __builtin_mul_overflow(step, batch, &first) ||
               first > INT64_MAX - batch,
           "step %lld of %lld sequences of %lld", (long long)step, (long long)batch, (long long)sequences);
    for (int64_t row = 0; row < batch; row++, tokens += length, targets += length) {
        int64_t position = first + row;
        if (split == DATASET_VALID && position >= sequences) {
            fill_padding(length, tokens, targets);
            continue;
        }
        if (split == DATASET_TRAIN)
            fill_row(&dataset->train, shuffled_sequence(dataset, position), length, tokens, targets);
        else
            fill_row(dataset->valid_corpus, dataset->valid_first + position, length, tokens, targets);
        counted += length;
    }
    return counted;
}
