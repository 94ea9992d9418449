#include "data/dataset.h"

#include <stdbool.h>
#include <xxhash.h>

#include "base/mem.h"
#include "base/random.h"
#include "data/component.h"
#include "data/mixture.h"
#include "data/row.h"
#include "data/source.h"

/* Validation rows in order: rows first .. first+count-1 of a component. */
struct span {
    const struct component *component;
    int64_t first, count;
};

struct dataset {
    struct components train, valid; /* rows of train: without those held out */
    struct mixture mixture;         /* of train */
    VEC(struct span) spans;         /* of valid, or of train where rows are held out */
    int64_t train_sequences, valid_sequences;
    struct component_options options; /* `cache` is not valid any more once all is open */
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
    if (options->documents_apart && options->eos_token < 0) {
        (void)status_set(STATUS_BAD_INPUT, "document-attention: within needs to know where documents end, and the "
                                           "model's config.json has no eos_token_id");
        return status_hint(STATUS_BAD_INPUT, "add it, or leave attention to go across documents");
    }
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

static enum status add_span(struct dataset *dataset, const struct component *component, int64_t first, int64_t count) {
    dataset->valid_sequences += count;
    return vec_push(&dataset->spans, (struct span){component, first, count});
}

/* Takes the last part of a component's rows for validation. */
static enum status hold_out(struct dataset *dataset, double fraction, struct component *component) {
    if (component->rows < 2)
        return status_set(STATUS_BAD_INPUT, "%s: one sequence of %lld tokens is all there is: none is left to hold out",
                          component->name, (long long)dataset->options.sequence_tokens);
    int64_t held = (int64_t)((double)component->rows * fraction);
    if (held < 1) held = 1;
    if (held >= component->rows) held = component->rows - 1;
    component->rows -= held;
    return add_span(dataset, component, component->rows, held);
}

static enum status list_valid(struct dataset *dataset, double fraction) {
    for (size_t i = 0; i < dataset->valid.count; i++)
        TRY(add_span(dataset, &dataset->valid.items[i], 0, dataset->valid.items[i].rows));
    for (size_t i = 0; i < dataset->train.count && dataset->valid.count == 0 && fraction > 0; i++)
        TRY(hold_out(dataset, fraction, &dataset->train.items[i]));
    return STATUS_OK;
}

/* Without weights each component weighs what it holds, so that an epoch sees every row once. */
static enum status mix_train(struct dataset *dataset) {
    size_t count = dataset->train.count;
    if (count == 0) return STATUS_OK;
    int64_t *weights = mem_array(count, sizeof *weights);
    if (!weights) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        const struct component *component = &dataset->train.items[i];
        weights[i] = component->weight > 0 ? component->weight : component->rows;
        dataset->train_sequences += component->rows;
    }
    enum status status = mixture_create(weights, count, dataset->seed, &dataset->mixture);
    mem_free(weights);
    return status;
}

static struct component_options component_options_of(const struct dataset_options *options) {
    return (struct component_options){.cache = {.folder = options->cache_folder,
                                                .tokenizer = options->tokenizer,
                                                .tokenizer_path = options->tokenizer_path,
                                                .eos_token = options->eos_token,
                                                .chat_folder = options->chat_folder,
                                                .chat_time_s = options->chat_time_s},
                                      .vocab_size = options->vocab_size,
                                      .sequence_tokens = options->sequence_tokens,
                                      .border = options->documents_apart ? options->eos_token : -1,
                                      .pack_examples = options->documents_apart,
                                      .loss_on_all = options->loss_on_all};
}

static enum status open_all(struct dataset *dataset, const struct dataset_options *options, const struct sources *train,
                            const struct sources *valid) {
    TRY(components_open(train, &dataset->options, &dataset->train));
    TRY(components_open(valid, &dataset->options, &dataset->valid));
    TRY(list_valid(dataset, options->valid_fraction));
    return mix_train(dataset);
}

enum status dataset_open(const struct dataset_options *options, struct dataset **out) {
    TRY(check_options(options));
    struct sources train = {0}, valid = {0};
    struct dataset *dataset = mem_array(1, sizeof *dataset);
    enum status status = dataset ? list_sources(options, &train, &valid) : STATUS_FAILED;
    if (status == STATUS_OK) {
        dataset->options = component_options_of(options);
        dataset->seed = options->seed;
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
    components_close(&dataset->train);
    components_close(&dataset->valid);
    mixture_free(&dataset->mixture);
    vec_free(&dataset->spans);
    mem_free(dataset);
}

int64_t dataset_train_sequences(const struct dataset *dataset) { return dataset->train_sequences; }

int64_t dataset_valid_sequences(const struct dataset *dataset) { return dataset->valid_sequences; }

static int64_t count_tokens(const struct components *components) {
    int64_t tokens = 0;
    for (size_t i = 0; i < components->count; i++)
        tokens += components->items[i].corpus.tokens;
    return tokens;
}

int64_t dataset_tokens(const struct dataset *dataset) {
    return count_tokens(&dataset->train) + count_tokens(&dataset->valid);
}

static uint64_t mix_components(const struct components *components, uint64_t hash) {
    for (size_t i = 0; i < components->count; i++) {
        const struct component *component = &components->items[i];
        int64_t own[2] = {component->weight, component->rows};
        hash = XXH3_64bits_withSeed(own, sizeof own, hash);
        for (size_t j = 0; j < component->corpus.part_count; j++) {
            const struct corpus_part *part = &component->corpus.parts[j];
            uint64_t fields[3] = {part->hash, (uint64_t)part->view.count, (uint64_t)part->view.token_bytes};
            hash = XXH3_64bits_withSeed(fields, sizeof fields, hash);
        }
    }
    return hash;
}

void dataset_tell_cuts(const struct dataset *dataset) {
    for (size_t i = 0; i < dataset->train.count; i++)
        component_tell_cuts(&dataset->train.items[i]);
    for (size_t i = 0; i < dataset->valid.count; i++)
        component_tell_cuts(&dataset->valid.items[i]);
}

uint64_t dataset_fingerprint(const struct dataset *dataset) {
    int64_t counts[3] = {dataset->train_sequences, dataset->valid_sequences, dataset->options.sequence_tokens};
    uint64_t hash = XXH3_64bits(counts, sizeof counts);
    return mix_components(&dataset->valid, mix_components(&dataset->train, hash));
}

/* The row that a draw of a component means: epochs follow each other, each a permutation. */
static int64_t shuffled_row(const struct dataset *dataset, const struct mixture_draw *draw) {
    int64_t count = dataset->train.items[draw->part].rows, epoch = draw->ordinal / count;
    uint64_t seed = dataset->seed + 0x9E3779B97F4A7C15u * draw->part;
    return (int64_t)random_permute(seed, (uint32_t)epoch, (uint64_t)(draw->ordinal % count), (uint64_t)count);
}

static int64_t fill_train_row(const struct dataset *dataset, int64_t position, const struct row *row) {
    struct mixture_draw draw = mixture_at(&dataset->mixture, position);
    return component_fill_row(&dataset->train.items[draw.part], &dataset->options, shuffled_row(dataset, &draw), row);
}

static int64_t fill_valid_row(const struct dataset *dataset, int64_t position, const struct row *row) {
    for (size_t i = 0; i < dataset->spans.count; i++) {
        const struct span *span = &dataset->spans.items[i];
        if (position < span->count)
            return component_fill_row(span->component, &dataset->options, span->first + position, row);
        position -= span->count;
    }
    row_fill_padding(row, 0, 0);
    return 0;
}

int64_t dataset_fill(const struct dataset *dataset, enum dataset_split split, int64_t step, int64_t batch,
                     const struct dataset_batch *out) {
    int64_t length = dataset->options.sequence_tokens, first, counted = 0;
    int64_t sequences = split == DATASET_TRAIN ? dataset->train_sequences : dataset->valid_sequences;
    BUG_IF(step < 0 || batch < 1 || sequences < 1 || __builtin_mul_overflow(step, batch, &first) ||
               first > INT64_MAX - batch,
           "step %lld of %lld sequences of %lld", (long long)step, (long long)batch, (long long)sequences);
    for (int64_t i = 0; i < batch; i++) {
        int64_t at = i * length;
        struct row row = {.length = length,
                          .tokens = out->tokens + at,
                          .targets = out->targets + at,
                          .positions = out->positions ? out->positions + at : NULL,
                          .segments = out->segments ? out->segments + at : NULL};
        counted += split == DATASET_TRAIN ? fill_train_row(dataset, first + i, &row)
                                          : fill_valid_row(dataset, first + i, &row);
    }
    return counted;
}
