#include "data/component.h"

#include <stdbool.h>
#include <stdio.h>

/* Sequences of T tokens, each of which takes one more and shares it with the next. */
static enum status count_sequences(const struct sources *sources, int64_t sequence_tokens,
                                   struct component *component) {
    int64_t tokens = component->corpus.tokens;
    if (tokens > sequence_tokens) {
        component->rows = (tokens - 1) / sequence_tokens;
        return STATUS_OK;
    }
    char others[64] = "";
    if (sources->count > 1) snprintf(others, sizeof others, " and %zu more", sources->count - 1);
    (void)status_set(STATUS_BAD_INPUT, "%s%s: %lld tokens are fewer than one sequence takes (%lld and one more)",
                     component->name, others, (long long)tokens, (long long)sequence_tokens);
    if (tokens < 2) return status_hint(STATUS_BAD_INPUT, "give more data");
    return status_hint(STATUS_BAD_INPUT, "give more data, or a sequence length (--seq) of at most %lld",
                       (long long)tokens - 1);
}

static enum status open_component(const struct sources *sources, const struct component_options *options,
                                  struct components *out) {
    struct component component = {.name = sources->items[0].path, .weight = sources->items[0].weight};
    TRY(corpus_open(sources, &options->cache, options->vocab_size, &component.corpus));
    enum status status = count_sequences(sources, options->sequence_tokens, &component);
    if (status == STATUS_OK) status = vec_push(out, component);
    if (status != STATUS_OK) corpus_close(&component.corpus);
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

static bool same_component(const struct source *a, const struct source *b) {
    return a->weight == 0 || a->argument == b->argument;
}

static enum status open_all(const struct sources *sources, const struct component_options *options,
                            struct components *out) {
    for (size_t first = 0, next; first < sources->count; first = next) {
        next = first + 1;
        while (next < sources->count && same_component(&sources->items[first], &sources->items[next]))
            next++;
        struct sources part = {.items = sources->items + first, .count = next - first};
        TRY(open_component(&part, options, out));
    }
    return STATUS_OK;
}

enum status components_open(const struct sources *sources, const struct component_options *options,
                            struct components *out) {
    struct components components = {0};
    enum status status = check_weights(sources);
    if (status == STATUS_OK) status = open_all(sources, options, &components);
    if (status == STATUS_OK)
        *out = components;
    else
        components_close(&components);
    return status;
}

void components_close(struct components *components) {
    for (size_t i = 0; i < components->count; i++)
        corpus_close(&components->items[i].corpus);
    vec_free(components);
}
