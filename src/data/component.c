#include "data/component.h"

#include "base/terminal.h"
#include "data/corpus.h"

static enum status refuse_tokens(const struct component *component, int64_t tokens, int64_t sequence_tokens) {
    (void)status_set(STATUS_BAD_INPUT, "%s: %lld tokens are fewer than one sequence takes (%lld and one more)",
                     component->name, (long long)tokens, (long long)sequence_tokens);
    if (tokens < 2) return status_hint(STATUS_BAD_INPUT, "give more data");
    return status_hint(STATUS_BAD_INPUT, "give more data, or a sequence length (--seq) of at most %lld",
                       (long long)tokens - 1);
}

/* Counts all tokens there are. */
static enum status check_rows(const struct component *component, const struct dataset_options *options, int64_t tokens,
                              int64_t rows) {
    if (rows == 0) return refuse_tokens(component, tokens, options->sequence_tokens);
    if (rows == 1 && component->held > 0)
        return status_set(STATUS_BAD_INPUT, "%s: one sequence of %lld tokens is all there is: none is left to hold out",
                          component->name, (long long)options->sequence_tokens);
    return STATUS_OK;
}

static int64_t tokens_of_rows(int64_t rows, int64_t sequence_tokens) {
    int64_t tokens;
    return __builtin_mul_overflow(rows, sequence_tokens, &tokens) || tokens == INT64_MAX ? INT64_MAX : tokens + 1;
}

enum status component_require(const struct component *component, const struct dataset_options *options, int64_t train,
                              struct tokenize_effort effort, struct component_rows *out) {
    struct corpus_extent extent = {.whole = component->supervised};
    for (int64_t want = train;; want += train - out->train) {
        int64_t length = options->sequence_tokens, rows = component->packing.rows / dataset_together(options);
        if (!component->supervised) {
            TRY(corpus_require(component->corpus, tokens_of_rows(want, length), effort, &extent));
            /* Each sequence takes one token more and shares it with the next. */
            rows = extent.tokens > 0 ? (extent.tokens - 1) / length : 0;
        }
        /* The last rows are for validation. More rows never leave fewer for training. */
        out->held = component->packing.held_rows ? component->packing.held_rows : packing_held(rows, component->held);
        out->train = rows - out->held;
        if (extent.whole) return check_rows(component, options, extent.tokens, rows);
        if (out->train >= train) return STATUS_OK;
    }
}

static enum status pack_examples(const struct dataset_options *options, struct tokenize_effort effort,
                                 struct component *component) {
    struct corpus_extent extent;
    TRY(corpus_require(component->corpus, INT64_MAX, effort, &extent));
    TRY(packing_create(component->corpus, options, options->hold_rows ? 0 : component->held, component->name,
                       &component->packing));
    if (component->packing.rows > 0) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "%s: none of %lld examples has anything to train on in its first %lld tokens",
                     component->name, (long long)component->packing.examples, (long long)options->sequence_tokens);
    return status_hint(STATUS_BAD_INPUT, "give a longer sequence (--seq), or other data");
}

static void close_component(struct component *component) {
    packing_free(&component->packing);
    corpus_close(component->corpus);
    mem_free(component->name);
}

static enum status open_component(const struct sources *sources, const struct dataset_options *options, double held,
                                  struct tokenize_effort effort, struct components *out) {
    const struct source *first = &sources->items[0];
    struct component component = {
        .weight = first->weight, .held = held, .supervised = source_is_supervised(first->kind)};
    component.name =
        sources->count > 1 ? mem_format("%s and %zu more", first->path, sources->count - 1) : mem_string(first->path);
    enum status status;
    TRY_GOTO(status, component.name ? STATUS_OK : STATUS_FAILED, failed);
    TRY_GOTO(status, corpus_open(sources, options, &component.corpus), failed);
    if (component.supervised) TRY_GOTO(status, pack_examples(options, effort, &component), failed);
    TRY_GOTO(status, vec_push(out, component), failed);
    return STATUS_OK;
failed:
    close_component(&component);
    return status;
}

static enum status check_weights(const struct sources *sources) {
    for (size_t i = 1; i < sources->count; i++) {
        bool first = sources->items[0].weight > 0, here = sources->items[i].weight > 0;
        if (first == here) continue;
        (void)status_set(STATUS_BAD_INPUT, "%s: has no weight, though other data have",
                         sources->items[first ? i : 0].path);
        return status_hint(STATUS_BAD_INPUT, "give all of the data a weight (PATH:0.5), or none");
    }
    return STATUS_OK;
}

static enum status check_kinds(const struct sources *sources) {
    for (size_t i = 1; i < sources->count; i++) {
        const struct source *before = &sources->items[i - 1], *source = &sources->items[i];
        bool same_kind = source_is_supervised(before->kind) == source_is_supervised(source->kind);
        if (source->weight == 0 || source->argument != before->argument || same_kind) continue;
        (void)status_set(STATUS_BAD_INPUT,
                         "%s: has supervised examples and %s has not, though both are under one weight",
                         source_is_supervised(source->kind) ? source->path : before->path,
                         source_is_supervised(source->kind) ? before->path : source->path);
        return status_hint(STATUS_BAD_INPUT, "give each file a weight of its own");
    }
    return STATUS_OK;
}

static bool same_component(const struct source *a, const struct source *b) {
    if (source_is_supervised(a->kind) != source_is_supervised(b->kind)) return false;
    return a->weight == 0 || a->argument == b->argument;
}

enum status components_open(const struct sources *sources, const struct dataset_options *options, double held,
                            struct tokenize_effort effort, struct components *components) {
    TRY(check_weights(sources));
    TRY(check_kinds(sources));
    for (size_t first = 0, next; first < sources->count; first = next) {
        next = first + 1;
        while (next < sources->count && same_component(&sources->items[first], &sources->items[next]))
            next++;
        struct sources part = {.items = sources->items + first, .count = next - first};
        TRY(open_component(&part, options, held, effort, components));
    }
    return STATUS_OK;
}

void components_close(struct components *components) {
    for (size_t i = 0; i < components->count; i++)
        close_component(&components->items[i]);
    vec_free(components);
}

enum status component_fill_row(const struct component *component, const struct dataset_options *options, int64_t index,
                               const struct row *row, int64_t *counted) {
    if (component->supervised)
        return packing_fill_row(&component->packing, component->corpus, index, options->loss_on_all, row, counted);
    int64_t border = options->documents_apart ? options->eos_token : -1;
    return row_fill_tokens(row, component->corpus, index * row->length, border, counted);
}

/* The noun for examples in messages. */
static const char *things(const struct dataset_options *options) { return options->pairs ? "pairs" : "examples"; }

/* The percentage of row positions that hold an example's token. */
static void report_rows(const struct component *component, const struct dataset_options *options) {
    const struct packing *packing = &component->packing;
    double full = 100.0 * (double)packing->places / ((double)packing->rows * (double)options->sequence_tokens);
    int64_t kept = packing->examples / dataset_together(options) - packing->left_out;
    bool saves = packing->packed_rows < packing->rows;
    char advice[96] = "";
    if (saves) snprintf(advice, sizeof advice, "; packed they need %lld rows", (long long)packing->packed_rows);
    log_note("%s: %lld %s in %lld row%s, %.0f%% full%s", component->name, (long long)kept, things(options),
             (long long)packing->rows, packing->rows == 1 ? "" : "s", full, advice);
}

static void report_lengths(const struct component *component, const struct dataset_options *options) {
    const struct packing *packing = &component->packing;
    int64_t context = options->context_tokens;
    bool reaches = context > 0 && context < packing->longest;
    if (packing->cut == 0) return;
    log_note("%s: %lld of %lld examples are longer than a sequence of %lld tokens and are cut: the 95th percentile is "
             "%lld tokens, the longest %lld; %s %lld%s",
             component->name, (long long)packing->cut, (long long)packing->examples,
             (long long)options->sequence_tokens, (long long)packing->percentile_95, (long long)packing->longest,
             reaches ? "the model's context is" : "--seq", (long long)(reaches ? context : packing->longest),
             reaches ? "" : " cuts none");
}

void component_report_cuts(const struct component *component, const struct dataset_options *options) {
    const struct packing *packing = &component->packing;
    corpus_report_text(component->corpus, false);
    if (component->supervised) report_rows(component, options);
    report_lengths(component, options);
    if (packing->left_out > 0)
        log_warning("%s: %lld of %lld %s are left out: nothing to train on in the part that fits a sequence",
                    component->name, (long long)packing->left_out,
                    (long long)(packing->examples / dataset_together(options)), things(options));
}
