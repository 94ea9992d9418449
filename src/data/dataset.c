#include "data/dataset.h"

#include <omp.h>
#include <xxhash.h>

#include "base/terminal.h"
#include "data/component.h"
#include "data/corpus.h"
#include "data/rows.h"
#include "data/source.h"
#include "data/tokenize.h"

/* Validation rows in order: rows first .. first+count-1 of a component. */
struct row_range {
    const struct component *component;
    int64_t first, count;
};

struct dataset {
    struct components components; /* of training data, then of validation data */
    size_t train_count;
    struct mixture mixture;           /* of training data */
    VEC(struct row_range) row_ranges; /* of validation data, held out or not; set once settled */
    int64_t rows[DATASET_SPLITS];     /* -1: not settled */
    struct dataset_options options;   /* its paths are valid only while the dataset is being opened */
    struct tokenize_effort effort;    /* of threads that wait for tokens */
    struct tokenize_thread *thread;   /* NULL: none */
    int64_t sequences;                /* of examples */
    const double *references;         /* borrowed; by sequence */
    bool takes_template;              /* dataset_takes_template */
};

/* Limits while the training arenas are allocated: see dataset_tokenize_beside. */
enum { THREADS_BESIDE = 4, CHUNKS_BESIDE = 8 };

static enum status check_options(const struct dataset_options *options) {
    if (options->sequence_tokens < 1)
        return status_set(STATUS_BAD_INPUT, "sequence length %lld: must be at least 1",
                          (long long)options->sequence_tokens);
    if (!(options->valid_fraction >= 0 && options->valid_fraction < 1))
        return status_set(STATUS_BAD_INPUT, "validation fraction %g: must be at least 0 and below 1",
                          options->valid_fraction);
    if (options->path_count == 0 && options->valid_path_count == 0)
        return status_set(STATUS_BAD_INPUT, "no data files are given");
    if (options->documents_apart && options->eos_token < 0)
        return status_set(STATUS_BAD_INPUT, "document-attention: within needs to know where documents end, and the "
                                            "model's config.json has no eos_token_id" HINT
                                            "add it, or leave attention to go across documents");
    BUG_IF(options->vocab_size < 1, "vocabulary of %lld", (long long)options->vocab_size);
    return STATUS_OK;
}

/* Reads the columns too. */
static enum status list_sources(struct dataset_options *options, struct sources sources[DATASET_SPLITS]) {
    TRY(jsonl_columns_parse(options->columns ? options->columns : "", &options->keys));
    for (size_t i = 0; i < options->path_count; i++)
        TRY(sources_add_train(options->paths[i], &options->keys, &sources[DATASET_TRAIN], &sources[DATASET_VALID]));
    for (size_t i = 0; i < options->valid_path_count; i++)
        TRY(sources_add_valid(options->valid_paths[i], &options->keys, &sources[DATASET_VALID]));
    return STATUS_OK;
}

/* Pairs need DPO, and DPO needs pairs. */
static enum status check_pairs(bool pairs, const struct sources *sources) {
    for (size_t i = 0; i < sources->count; i++) {
        const struct source *source = &sources->items[i];
        if (source_is_of_pairs(source->kind) == pairs) continue;
        if (pairs)
            return status_hint(status_set(STATUS_BAD_INPUT, "%s: holds no preferences", source->path),
                               "--loss dpo is for .jsonl lines {\"prompt\": ..., \"chosen\": ..., \"rejected\": "
                               "...}; --columns names other keys");
        return status_hint(
            status_set(STATUS_BAD_INPUT, "%s: holds preferences, chosen and rejected answers", source->path),
            "--loss dpo is for them");
    }
    return STATUS_OK;
}

/* The split's own components; none for validation if it is held out. */
static struct components own_components(const struct dataset *dataset, enum dataset_split split) {
    size_t first = split == DATASET_TRAIN ? 0 : dataset->train_count;
    size_t end = split == DATASET_TRAIN ? dataset->train_count : dataset->components.count;
    return (struct components){.items = dataset->components.items + first, .count = end - first};
}

bool dataset_holds_out(const struct dataset *dataset) {
    bool has_train = dataset->train_count > 0, has_valid = dataset->components.count > dataset->train_count;
    return has_train && !has_valid && dataset->options.valid_fraction > 0;
}

bool dataset_has(const struct dataset *dataset, enum dataset_split split) {
    return own_components(dataset, split).count > 0 || (split == DATASET_VALID && dataset_holds_out(dataset));
}

enum status dataset_settle(struct dataset *dataset, enum dataset_split split) {
    struct component_rows rows;
    bool held = split == DATASET_VALID && dataset_holds_out(dataset);
    struct components components = own_components(dataset, held ? DATASET_TRAIN : split);
    int64_t rows_there = 0;
    if (dataset->rows[split] >= 0) return STATUS_OK;
    if (split == DATASET_VALID) dataset->row_ranges.count = 0;
    for (size_t i = 0; i < components.count; i++) {
        const struct component *component = &components.items[i];
        TRY(component_require(component, &dataset->options, INT64_MAX, dataset->effort, &rows));
        struct row_range range = {component, held ? rows.train : 0, held ? rows.held : rows.train};
        if (split == DATASET_VALID && range.count > 0) TRY(vec_push(&dataset->row_ranges, range));
        rows_there += range.count;
    }
    dataset->rows[split] = rows_there;
    return STATUS_OK;
}

/* Makes the first rows before anything is computed, to find bad data early: the first shuffle buffer of training rows,
 * and one row of the others. */
static enum status require_first_rows(const struct dataset *dataset) {
    struct component_rows rows;
    for (size_t i = 0; i < dataset->components.count; i++) {
        int64_t wanted = i < dataset->train_count ? row_order_shuffle_buffer_end(0) : 1;
        TRY(component_require(&dataset->components.items[i], &dataset->options, wanted, dataset->effort, &rows));
    }
    return STATUS_OK;
}

/* Without weights, components are weighted by size, so that an epoch contains every row once. */
static enum status mix_train(struct dataset *dataset) {
    size_t count = dataset->train_count;
    if (count == 0) return STATUS_OK;
    AUTO_FREE int64_t *weights = mem_array(count, sizeof *weights);
    if (!weights) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++) {
        const struct component *component = &dataset->components.items[i];
        struct component_rows rows = {.train = 1}; /* a single one may have any weight */
        if (component->weight == 0 && count > 1)
            TRY(component_require(component, &dataset->options, INT64_MAX, dataset->effort, &rows));
        weights[i] = component->weight > 0 ? component->weight : rows.train;
    }
    return mixture_create(weights, count, dataset->options.seed, &dataset->mixture);
}

static bool is_whole(struct components components) {
    for (size_t i = 0; i < components.count; i++)
        if (!corpus_extent(components.items[i].corpus).whole) return false;
    return true;
}

/* Settles every split for which no tokens must be made. */
static enum status settle_whole(struct dataset *dataset) {
    struct components train = own_components(dataset, DATASET_TRAIN), valid = own_components(dataset, DATASET_VALID);
    if (is_whole(train)) TRY(dataset_settle(dataset, DATASET_TRAIN));
    return is_whole(valid.count > 0 ? valid : train) ? dataset_settle(dataset, DATASET_VALID) : STATUS_OK;
}

static enum status open_all(struct dataset *dataset, const struct sources sources[DATASET_SPLITS]) {
    struct components *components = &dataset->components;
    double held = sources[DATASET_VALID].count > 0 ? 0 : dataset->options.valid_fraction;
    TRY(components_open(&sources[DATASET_TRAIN], &dataset->options, held, dataset->effort, components));
    dataset->train_count = components->count;
    TRY(components_open(&sources[DATASET_VALID], &dataset->options, 0, dataset->effort, components));
    for (size_t i = 0; i < components->count; i++) {
        components->items[i].first_sequence = dataset->sequences;
        dataset->sequences += components->items[i].packing.rows;
    }
    TRY(require_first_rows(dataset));
    TRY(mix_train(dataset));
    return settle_whole(dataset);
}

static bool take_template(const struct sources *sources) {
    for (size_t i = 0; i < sources->count; i++)
        if (source_takes_template(sources->items[i].kind)) return true;
    return false;
}

static enum status hint_at_data(enum status status) {
    if (status != STATUS_BAD_INPUT) return status;
    return status_hint_else(status, "`ballast train --help-all` describes data files");
}

enum status dataset_open(const struct dataset_options *options, struct dataset **out) {
    TRY(check_options(options));
    struct sources sources[DATASET_SPLITS] = {0};
    struct dataset *dataset = mem_array(1, sizeof *dataset);
    if (!dataset) return STATUS_FAILED;
    dataset->options = *options;
    dataset->effort = (struct tokenize_effort){omp_get_max_threads(), TOKENIZE_CHUNKS_MAX};
    dataset->rows[DATASET_TRAIN] = dataset->rows[DATASET_VALID] = -1;
    enum status status;
    TRY_GOTO(status, list_sources(&dataset->options, sources), done);
    TRY_GOTO(status, check_pairs(options->pairs, &sources[DATASET_TRAIN]), done);
    TRY_GOTO(status, check_pairs(options->pairs, &sources[DATASET_VALID]), done);
    dataset->takes_template = take_template(&sources[DATASET_TRAIN]);
    TRY_GOTO(status, open_all(dataset, sources), done);
    *out = dataset;
    dataset = NULL; /* the caller owns it now */
done:
    sources_free(&sources[DATASET_TRAIN]);
    sources_free(&sources[DATASET_VALID]);
    dataset_close(dataset);
    return hint_at_data(status);
}

static bool have_examples(const struct sources *sources) {
    for (size_t i = 0; i < sources->count; i++) {
        enum source_kind kind = sources->items[i].kind;
        if (source_is_supervised(kind) && !source_is_of_pairs(kind)) return true;
    }
    return false;
}

enum status dataset_find_examples(const struct dataset_options *options, bool *out) {
    struct dataset_options own = *options;
    struct sources sources[DATASET_SPLITS] = {0};
    enum status status = list_sources(&own, sources);
    if (status == STATUS_OK) *out = have_examples(&sources[DATASET_TRAIN]) || have_examples(&sources[DATASET_VALID]);
    sources_free(&sources[DATASET_TRAIN]);
    sources_free(&sources[DATASET_VALID]);
    jsonl_columns_free(&own.keys);
    return hint_at_data(status);
}

void dataset_tokenize_beside(struct dataset *dataset) {
    size_t count = dataset->components.count;
    BUG_IF(dataset->thread, "two threads that tokenize");
    if (is_whole(dataset->components)) return;
    struct corpus **corpora = mem_array(count, sizeof *corpora);
    for (size_t i = 0; corpora && i < count; i++)
        corpora[i] = dataset->components.items[i].corpus;
    if (dataset->effort.threads > THREADS_BESIDE) dataset->effort.threads = THREADS_BESIDE;
    dataset->effort.chunks = CHUNKS_BESIDE;
    if (!corpora || tokenize_thread_start(corpora, count, &dataset->thread) != STATUS_OK)
        log_warning("%s: the text is tokenized where a step needs it, not during the steps", status_message());
    mem_free(corpora);
}

void dataset_close(struct dataset *dataset) {
    if (!dataset) return;
    bool beside = dataset->thread != NULL;
    tokenize_thread_stop(dataset->thread);
    for (size_t i = 0; beside && i < dataset->components.count; i++) {
        corpus_report(dataset->components.items[i].corpus);
        corpus_report_text(dataset->components.items[i].corpus, true);
    }
    components_close(&dataset->components);
    mixture_free(&dataset->mixture);
    vec_free(&dataset->row_ranges);
    jsonl_columns_free(&dataset->options.keys);
    mem_free(dataset);
}

bool dataset_has_examples(const struct dataset *dataset) {
    for (size_t i = 0; i < dataset->components.count; i++)
        if (dataset->components.items[i].supervised) return true;
    return false;
}

bool dataset_takes_template(const struct dataset *dataset) { return dataset->takes_template; }

bool dataset_is_mixed(const struct dataset *dataset) {
    return dataset->train_count > 1 && dataset->components.items[0].weight > 0;
}

static int64_t together(const struct dataset *dataset) { return dataset_together(&dataset->options); }

int64_t dataset_split_sequences(const struct dataset *dataset, enum dataset_split split) {
    int64_t rows = dataset->rows[split];
    return rows < 0 ? rows : rows * together(dataset);
}

int64_t dataset_tokens(const struct dataset *dataset) {
    int64_t tokens = 0;
    for (size_t i = 0; i < dataset->components.count; i++) {
        struct corpus_extent extent = corpus_extent(dataset->components.items[i].corpus);
        if (!extent.whole) return -1;
        tokens += extent.tokens;
    }
    return tokens;
}

void dataset_report_cuts(const struct dataset *dataset) {
    for (size_t i = 0; i < dataset->components.count; i++)
        component_report_cuts(&dataset->components.items[i], &dataset->options);
}

static uint64_t make_fingerprint(const struct dataset *dataset, bool of_0_1_0) {
    const struct dataset_options *options = &dataset->options;
    int64_t border = of_0_1_0 ? options->eos_token_of_0_1_0 : options->eos_token;
    bool packs = options->pack_examples && !options->pairs;
    uint64_t packing = !packs ? 0 : options->hold_rows ? 1 : 2; /* 1: rows as in Ballast 0.1.0 */
    uint64_t settings[5] = {(uint64_t)options->sequence_tokens, (uint64_t)(options->documents_apart ? border : -1),
                            packing, options->loss_on_all};
    memcpy(&settings[4], &options->valid_fraction, sizeof settings[4]);
    uint64_t hash = XXH3_64bits(settings, sizeof settings);
    for (int split = 0; split < DATASET_SPLITS; split++) {
        struct components components = own_components(dataset, (enum dataset_split)split);
        for (size_t i = 0; i < components.count; i++) {
            const struct component *component = &components.items[i];
            uint64_t own[3] = {(uint64_t)component->weight, component->supervised,
                               corpus_identity(component->corpus, of_0_1_0)};
            if (own[2] == 0) return 0;
            hash = XXH3_64bits_withSeed(own, sizeof own, hash);
        }
        hash = XXH3_64bits_withSeed("/", 1, hash);
    }
    return hash;
}

uint64_t dataset_fingerprint(const struct dataset *dataset) { return make_fingerprint(dataset, false); }

uint64_t dataset_fingerprint_of_0_1_0(const struct dataset *dataset) { return make_fingerprint(dataset, true); }

enum status dataset_check_0_1_0(const struct dataset *dataset, const struct tokenizer *tokenizer) {
    const struct dataset_options *options = &dataset->options;
    if (options->documents_apart)
        TRY(tokens_of_0_1_0_check_end("data", options->eos_token, options->eos_token_of_0_1_0));
    for (size_t i = 0; i < dataset->components.count; i++)
        TRY(corpus_check_0_1_0(dataset->components.items[i].corpus, tokenizer));
    return STATUS_OK;
}

enum status dataset_check_same(const struct dataset *dataset, struct comm *comm) {
    const size_t components[2] = {dataset->train_count, dataset->components.count};
    if (mesh_ranks(&comm->mesh) == 1) return STATUS_OK;
    TRY(comm_check_same(comm, "how many data files they have", components, sizeof components));
    for (size_t i = 0; i < dataset->components.count; i++)
        TRY(corpus_check_same(dataset->components.items[i].corpus, comm));
    return STATUS_OK;
}

/* Fills row `index` of a component; for pairs, the sequence of this position. */
static enum status fill_sequence(const struct dataset *dataset, const struct component *component, int64_t index,
                                 int64_t position, const struct row *row, double *reference, int64_t *counted) {
    int64_t sequence = index * together(dataset) + position % together(dataset);
    if (reference) *reference = dataset->references[component->first_sequence + sequence];
    return component_fill_row(component, &dataset->options, sequence, row, counted);
}

static enum status fill_train_row(const struct dataset *dataset, int64_t position, const struct row *row,
                                  double *reference, int64_t *counted) {
    struct mixture_draw draw = mixture_at(&dataset->mixture, position / together(dataset));
    const struct component *component = &dataset->components.items[draw.part];
    uint64_t seed = dataset->options.seed + 0x9E3779B97F4A7C15u * draw.part;
    struct component_rows rows;
    TRY(component_require(component, &dataset->options, row_order_shuffle_buffer_end(draw.ordinal), dataset->effort,
                          &rows));
    int64_t index = row_order_at(seed, draw.ordinal, rows.train);
    return fill_sequence(dataset, component, index, position, row, reference, counted);
}

static enum status fill_valid_row(const struct dataset *dataset, int64_t position, const struct row *row,
                                  double *reference, int64_t *counted) {
    int64_t at = position / together(dataset);
    for (size_t i = 0; i < dataset->row_ranges.count; i++) {
        const struct row_range *row_range = &dataset->row_ranges.items[i];
        if (at < row_range->count)
            return fill_sequence(dataset, row_range->component, row_range->first + at, position, row, reference,
                                 counted);
        at -= row_range->count;
    }
    row_fill_padding(row, 0, 0);
    if (reference) *reference = 0;
    *counted = 0;
    return STATUS_OK;
}

/* Row i of the arrays. */
static struct row row_of(const struct dataset *dataset, const struct dataset_batch *out, int64_t i) {
    int64_t length = dataset->options.sequence_tokens, at = i * length;
    return (struct row){.length = length,
                        .tokens = out->tokens + at,
                        .targets = out->targets + at,
                        .positions = out->positions ? out->positions + at : NULL,
                        .segments = out->segments ? out->segments + at : NULL};
}

static void check_rows(const struct dataset *dataset, enum dataset_split split, const struct dataset_rows *rows) {
    int64_t first;
    bool there = split == DATASET_TRAIN ? dataset->train_count > 0 : dataset->rows[DATASET_VALID] > 0;
    BUG_IF(rows->step < 0 || rows->batch < 1 || !there || __builtin_mul_overflow(rows->step, rows->batch, &first) ||
               first > INT64_MAX - rows->batch,
           "step %lld of %lld sequences", (long long)rows->step, (long long)rows->batch);
    BUG_IF(rows->first < 0 || rows->count < 0 || rows->count > rows->batch - rows->first, "rows %lld..+%lld of %lld",
           (long long)rows->first, (long long)rows->count, (long long)rows->batch);
}

enum status dataset_fill_rows(const struct dataset *dataset, enum dataset_split split, const struct dataset_rows *rows,
                              const struct dataset_batch *out, int64_t *targets) {
    int64_t counted = 0;
    check_rows(dataset, split, rows);
    BUG_IF(out->references && !dataset->references, "references are not set");
    int64_t position = rows->step * rows->batch + rows->first;
    for (int64_t i = 0; i < rows->count; i++) {
        struct row row = row_of(dataset, out, i);
        double *reference = out->references ? out->references + i : NULL;
        int64_t here;
        TRY((split == DATASET_TRAIN ? fill_train_row : fill_valid_row)(dataset, position + i, &row, reference, &here));
        /* A pair counts at its first sequence. */
        counted += !dataset->options.pairs ? here : (position + i) % 2 == 0 && here > 0;
    }
    *targets = counted;
    return STATUS_OK;
}

int64_t dataset_sequences(const struct dataset *dataset) { return dataset->sequences; }

/* The component of a sequence, counted over all. */
static const struct component *find_component(const struct dataset *dataset, int64_t sequence) {
    for (size_t i = 0; i < dataset->components.count; i++) {
        const struct component *component = &dataset->components.items[i];
        int64_t end = component->first_sequence + component->packing.rows;
        if (sequence >= component->first_sequence && sequence < end) return component;
    }
    BUG("sequence %lld of %lld", (long long)sequence, (long long)dataset->sequences);
}

enum status dataset_fill_sequences(const struct dataset *dataset, int64_t first, int64_t max,
                                   const struct dataset_batch *out, int64_t *count) {
    for (*count = 0; *count < max && first + *count < dataset->sequences; ++*count) {
        const struct component *component = find_component(dataset, first + *count);
        int64_t counted, index = first + *count - component->first_sequence;
        struct row row = row_of(dataset, out, *count);
        TRY(component_fill_row(component, &dataset->options, index, &row, &counted));
    }
    return STATUS_OK;
}

void dataset_set_references(struct dataset *dataset, const double *references) { dataset->references = references; }
