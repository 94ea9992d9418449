#include <string.h>

#include "data/bpe_model.h"
#include "data/hash.h"

/* The cache is a table in which each word has one place; a newer word takes it from an older one. So its size is
 * bounded and a lookup is one comparison. It begins small, for texts of a few words, and starts over larger as it
 * fills. Long words, and those of many tokens, do not come back often enough to be kept. */
enum { CACHE_FIRST_ENTRIES = 1 << 7, CACHE_MOST_ENTRIES = 1 << 15, CACHED_WORD_BYTES = 46, CACHED_IDS = 20 };

struct cache_entry {
    uint8_t bytes, id_count; /* bytes 0: free */
    char word[CACHED_WORD_BYTES];
    uint32_t ids[CACHED_IDS];
};

struct bpe_stage_state {
    struct bpe_workspace workspace;
    struct token_ids ids;
    struct cache_entry *cache;
    size_t cache_entries, stored; /* a power of two; words stored since it has this size */
};

static enum status cache_make(struct bpe_stage_state *own, size_t entries) {
    struct cache_entry *cache = mem_array(entries, sizeof *cache);
    if (!cache) return STATUS_FAILED;
    mem_free(own->cache);
    own->cache = cache;
    own->cache_entries = entries;
    own->stored = 0;
    return STATUS_OK;
}

static enum status bpe_start(const void *settings, void *state) {
    (void)settings;
    return cache_make(state, CACHE_FIRST_ENTRIES);
}

static enum status cache_store(struct bpe_stage_state *own, uint64_t hash, const char *word, size_t bytes) {
    const struct token_ids *ids = &own->ids;
    if (bytes > CACHED_WORD_BYTES || ids->count > CACHED_IDS) return STATUS_OK;
    if (own->stored++ == own->cache_entries && own->cache_entries < CACHE_MOST_ENTRIES)
        TRY(cache_make(own, 4 * own->cache_entries));
    struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
    entry->bytes = (uint8_t)bytes;
    entry->id_count = (uint8_t)ids->count;
    memcpy(entry->word, word, bytes);
    if (ids->count > 0) memcpy(entry->ids, ids->items, ids->count * sizeof *ids->items);
    return STATUS_OK;
}

static enum status bpe_run(const void *settings, void *state, struct text_view view, const struct text_output *output,
                           size_t *consumed) {
    struct bpe_stage_state *own = state;
    const struct token_sink *sink = &output->ids;
    *consumed = view.end ? view.bytes : 0;
    if (!view.end || view.bytes == 0) return STATUS_OK;
    uint64_t hash = 0;
    if (view.bytes <= CACHED_WORD_BYTES) {
        hash = hash_bytes(view.text, view.bytes);
        const struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
        if (entry->bytes == view.bytes && memcmp(entry->word, view.text, view.bytes) == 0)
            return sink->write(sink->payload, entry->ids, entry->id_count);
    }
    own->ids.count = 0;
    TRY(bpe_model_encode(settings, &own->workspace, view.text, view.bytes, &own->ids));
    TRY(cache_store(own, hash, view.text, view.bytes));
    return sink->write(sink->payload, own->ids.items, own->ids.count);
}

static void bpe_stop(void *state) {
    struct bpe_stage_state *own = state;
    bpe_workspace_free(&own->workspace);
    vec_free(&own->ids);
    mem_free(own->cache);
}

const struct text_stage_type text_bpe_stage = {
    .name = "bpe",
    .state_bytes = sizeof(struct bpe_stage_state),
    .start = bpe_start,
    .run = bpe_run,
    .stop = bpe_stop,
};
