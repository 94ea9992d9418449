#include "data/corpus.h"

#include "base/mem.h"

static enum status open_token_file(const struct source *source, int64_t vocab_size, struct corpus_part *out) {
    TRY(file_map_open(source->path, &out->map));
    enum status status = token_file_parse(source->path, out->map.data, out->map.bytes, &out->view);
    if (status == STATUS_OK) status = token_view_examine(source->path, &out->view, vocab_size, &out->hash);
    if (status != STATUS_OK) file_map_close(&out->map);
    return status;
}

static enum status open_text_file(const struct source *source, const struct token_cache_options *options,
                                  int64_t vocab_size, struct corpus_part *out) {
    struct token_cache cache;
    TRY(token_cache_open(options, source, &cache));
    enum status status = STATUS_OK;
    if (cache.view.id_limit > vocab_size && !source_is_supervised(source->kind))
        status = token_view_examine(source->path, &cache.view, vocab_size, &cache.hash);
    if (status != STATUS_OK) {
        token_cache_close(&cache);
        return status;
    }
    *out = (struct corpus_part){.map = cache.map, .view = cache.view, .hash = cache.hash};
    return STATUS_OK;
}

static enum status open_part(const struct source *source, const struct token_cache_options *options, int64_t vocab_size,
                             struct corpus_part *out) {
    struct corpus_part part = {0};
    TRY(source->kind == SOURCE_TOKENS ? open_token_file(source, vocab_size, &part)
                                      : open_text_file(source, options, vocab_size, &part));
    if (part.view.count == 0) {
        file_map_close(&part.map);
        return status_set(STATUS_BAD_INPUT, "%s: holds no tokens", source->path);
    }
    *out = part;
    return STATUS_OK;
}

enum status corpus_open(const struct sources *sources, const struct token_cache_options *cache, int64_t vocab_size,
                        struct corpus *out) {
    struct corpus corpus = {.parts = mem_array(sources->count, sizeof *corpus.parts)};
    if (!corpus.parts) return STATUS_FAILED;
    for (size_t i = 0; i < sources->count; i++) {
        struct corpus_part *part = &corpus.parts[i];
        enum status status = open_part(&sources->items[i], cache, vocab_size, part);
        if (status != STATUS_OK) {
            corpus_close(&corpus);
            return status;
        }
        corpus.part_count++;
        part->first = corpus.tokens;
        corpus.tokens += part->view.count;
    }
    *out = corpus;
    return STATUS_OK;
}

void corpus_close(struct corpus *corpus) {
    for (size_t i = 0; i < corpus->part_count; i++)
        file_map_close(&corpus->parts[i].map);
    mem_free(corpus->parts);
    *corpus = (struct corpus){0};
}

/* The part that holds a token, by bisection. */
static size_t find_part(const struct corpus *corpus, int64_t token) {
    size_t low = 0, high = corpus->part_count;
    while (high - low > 1) {
        size_t middle = low + (high - low) / 2;
        if (corpus->parts[middle].first <= token)
            low = middle;
        else
            high = middle;
    }
    return low;
}

void corpus_read(const struct corpus *corpus, int64_t first, int64_t count, int32_t *out) {
    BUG_IF(first < 0 || count < 0 || first > corpus->tokens - count, "tokens %lld..+%lld of %lld", (long long)first,
           (long long)count, (long long)corpus->tokens);
    for (size_t i = find_part(corpus, first); count > 0; i++) {
        const struct corpus_part *part = &corpus->parts[i];
        int64_t from = first - part->first, here = part->view.count - from;
        if (here > count) here = count;
        token_view_read(&part->view, from, here, out);
        first += here;
        out += here;
        count -= here;
    }
}
