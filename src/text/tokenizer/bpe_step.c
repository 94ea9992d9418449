/* The step that turns words into ids, with a cache of words. */
#include <string.h>

#include "base/hash.h"
#include "text/tokenizer/bpe_model.h"

/* The cache is a table in which each word has one place; a newer word takes it from an older one. So its size is
 * bounded and a lookup is one comparison. It begins small, for texts of a few words, and starts over larger as it
 * fills. Long words, and those of many tokens, do not come back often enough to be kept. */
enum { CACHE_FIRST_ENTRIES = 1 << 7, CACHE_ENTRIES_MAX = 1 << 15, CACHED_WORD_BYTES = 46, CACHED_IDS = 20 };

struct cache_entry {
    uint8_t bytes, id_count; /* bytes 0: free */
    char word[CACHED_WORD_BYTES];
    uint32_t ids[CACHED_IDS];
};

struct bpe_step_state {
    struct bpe_workspace workspace;
    struct token_ids ids;
    struct cache_entry *cache;
    size_t cache_entries, stored; /* a power of two; words stored since it has this size */
    size_t scanned_bytes;         /* at the beginning of the view: no cut in them */
};

static enum status cache_make(struct bpe_step_state *own, size_t entries) {
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

static enum status cache_store(struct bpe_step_state *own, uint64_t hash, const char *word, size_t bytes) {
    const struct token_ids *ids = &own->ids;
    if (bytes > CACHED_WORD_BYTES || ids->count > CACHED_IDS) return STATUS_OK;
    if (own->stored++ == own->cache_entries && own->cache_entries < CACHE_ENTRIES_MAX)
        TRY(cache_make(own, 4 * own->cache_entries));
    struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
    entry->bytes = (uint8_t)bytes;
    entry->id_count = (uint8_t)ids->count;
    memcpy(entry->word, word, bytes);
    if (ids->count > 0) memcpy(entry->ids, ids->items, ids->count * sizeof *ids->items);
    return STATUS_OK;
}

static enum status word_encode(const struct bpe_model *model, struct bpe_step_state *own, const char *word,
                               size_t bytes, const struct token_sink *sink) {
    uint64_t hash = 0;
    if (bytes <= CACHED_WORD_BYTES) {
        hash = hash_bytes(word, bytes);
        const struct cache_entry *entry = &own->cache[hash & (own->cache_entries - 1)];
        if (entry->bytes == bytes && memcmp(entry->word, word, bytes) == 0)
            return sink->write(sink->payload, entry->ids, entry->id_count);
    }
    own->ids.count = 0;
    TRY(bpe_model_encode(model, &own->workspace, word, bytes, &own->ids));
    TRY(cache_store(own, hash, word, bytes));
    return sink->write(sink->payload, own->ids.items, own->ids.count);
}

/* The words that a segment may be cut into, except the last, which begins at *rest. */
static enum status words_encode(const struct bpe_model *model, struct bpe_step_state *own, struct text_view view,
                                const struct token_sink *sink, size_t *rest) {
    const struct bpe_alphabet *alphabet = &model->alphabet;
    uint32_t left, right;
    size_t start = 0, place = own->scanned_bytes;
    if (place > 0)
        bpe_alphabet_last(alphabet, view.text, place, &left);
    else
        place = bpe_alphabet_next(alphabet, view.text, &left);
    for (size_t length; place < view.bytes; place += length, left = right) {
        length = bpe_alphabet_next(alphabet, view.text + place, &right);
        if (!bpe_alphabet_may_cut(alphabet, left, right)) continue;
        TRY(word_encode(model, own, view.text + start, place - start, sink));
        start = place;
    }
    own->scanned_bytes = view.bytes - start;
    *rest = start;
    return STATUS_OK;
}

/* A word that may be a token as a whole is not cut; nor is a short one, which gains nothing. */
static bool may_cut(const struct bpe_model *model, struct text_view view) {
    return !model->ignore_merges && !model->alphabet.uncut && !(view.end && view.bytes <= CACHED_WORD_BYTES);
}

static enum status bpe_apply(const void *settings, void *state, struct text_view view, const struct text_output *output,
                             size_t *consumed) {
    size_t rest = 0;
    *consumed = 0;
    if (view.bytes == 0) return STATUS_OK;
    if (may_cut(settings, view)) TRY(words_encode(settings, state, view, &output->ids, &rest));
    *consumed = view.end ? view.bytes : rest;
    if (!view.end) return STATUS_OK;
    return word_encode(settings, state, view.text + rest, view.bytes - rest, &output->ids);
}

static void bpe_reset(void *state) { ((struct bpe_step_state *)state)->scanned_bytes = 0; }

static void bpe_stop(void *state) {
    struct bpe_step_state *own = state;
    bpe_workspace_free(&own->workspace);
    vec_free(&own->ids);
    mem_free(own->cache);
}

const struct text_step_type text_bpe_step = {
    .name = "bpe",
    .state_bytes = sizeof(struct bpe_step_state),
    .start = bpe_start,
    .apply = bpe_apply,
    .reset = bpe_reset,
    .stop = bpe_stop,
};
