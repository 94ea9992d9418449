#include "text/tokenizer/bpe.h"

#include "base/hash.h"

static const uint32_t BPE_NO_RANK = UINT32_MAX, BPE_NO_PLACE = UINT32_MAX, BPE_NOT_LISTED = UINT32_MAX - 1;

/* Below this the heap alone is faster: its few entries lie side by side. */
enum { LISTED_SYMBOLS_MIN = 96 };

struct bpe_list {
    uint32_t first, last; /* places */
};

/* --- the heap --- */

static void heap_sink(uint64_t *heap, size_t count) {
    uint64_t entry = heap[0];
    size_t place = 0;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && heap[child + 1] < heap[child]) child++;
        if (entry <= heap[child]) break;
        heap[place] = heap[child];
    }
    heap[place] = entry;
}

static enum status heap_add(struct bpe_queue *queue, uint64_t entry) {
    TRY(vec_push(&queue->heap, entry));
    uint64_t *heap = queue->heap.items;
    size_t place = queue->heap.count - 1;
    for (size_t parent; place > 0 && entry < heap[parent = (place - 1) / 2]; place = parent)
        heap[place] = heap[parent];
    heap[place] = entry;
    return STATUS_OK;
}

static void heap_drop_first(struct bpe_queue *queue) {
    uint64_t *heap = queue->heap.items;
    heap[0] = heap[--queue->heap.count];
    if (queue->heap.count > 1) heap_sink(heap, queue->heap.count);
}

/* The first entry that is not out of date. */
static bool heap_first(struct bpe_queue *queue, const struct bpe_symbol *symbols, uint64_t *entry) {
    while (queue->heap.count > 0) {
        *entry = queue->heap.items[0];
        if (symbols[(uint32_t)*entry].rank == *entry >> 32) return true;
        heap_drop_first(queue);
    }
    return false;
}

/* --- the lists --- */

/* Makes the (empty) queue ready for a word of `count` symbols and a model of `ranks` merges. */
static enum status bpe_queue_open(struct bpe_queue *queue, size_t count, size_t ranks) {
    queue->uses_lists = count >= LISTED_SYMBOLS_MIN;
    if (!queue->uses_lists || queue->lists || ranks == 0) return STATUS_OK;
    TRY(rank_set_create(&queue->listed, ranks));
    queue->lists = mem_array(ranks, sizeof *queue->lists);
    if (!queue->lists) return rank_set_free(&queue->listed), STATUS_FAILED;
    return STATUS_OK;
}

/* Adds the pair of a symbol, whose rank is set. */
static enum status bpe_queue_add(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place) {
    struct bpe_symbol *symbol = &symbols[place];
    uint64_t entry = (uint64_t)symbol->rank << 32 | place;
    symbol->before = BPE_NOT_LISTED;
    if (!queue->uses_lists) return heap_add(queue, entry);
    struct bpe_list *list = &queue->lists[symbol->rank];
    bool listed = rank_set_has(&queue->listed, symbol->rank);
    if (listed && list->last > place) return heap_add(queue, entry);
    symbol->before = listed ? list->last : BPE_NO_PLACE;
    symbol->after = BPE_NO_PLACE;
    if (listed) {
        symbols[list->last].after = place;
    } else {
        list->first = place;
        rank_set_add(&queue->listed, symbol->rank);
    }
    list->last = place;
    return STATUS_OK;
}

/* Removes a symbol's pair, before its rank changes. */
static void bpe_queue_remove(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t place) {
    struct bpe_symbol *symbol = &symbols[place];
    if (symbol->rank == BPE_NO_RANK || symbol->before == BPE_NOT_LISTED) return;
    struct bpe_list *list = &queue->lists[symbol->rank];
    if (symbol->before == BPE_NO_PLACE)
        list->first = symbol->after;
    else
        symbols[symbol->before].after = symbol->after;
    if (symbol->after == BPE_NO_PLACE)
        list->last = symbol->before;
    else
        symbols[symbol->after].before = symbol->before;
    symbol->before = BPE_NOT_LISTED;
    if (list->first == BPE_NO_PLACE) rank_set_remove(&queue->listed, symbol->rank);
}

/* Takes the first pair; false when there is none. */
static bool bpe_queue_take(struct bpe_queue *queue, struct bpe_symbol *symbols, uint32_t *place) {
    uint32_t rank;
    uint64_t entry = 0;
    bool heaped = heap_first(queue, symbols, &entry);
    if (queue->uses_lists && rank_set_min(&queue->listed, &rank)) {
        uint64_t listed = (uint64_t)rank << 32 | queue->lists[rank].first;
        if (!heaped || listed < entry) {
            *place = (uint32_t)listed;
            return bpe_queue_remove(queue, symbols, *place), true;
        }
    }
    if (!heaped) return false;
    *place = (uint32_t)entry;
    bpe_queue_remove(queue, symbols, *place); /* it may have come to the list as well */
    return heap_drop_first(queue), true;
}

/* Empties it. */
static void bpe_queue_clear(struct bpe_queue *queue) {
    uint32_t rank;
    queue->heap.count = 0;
    while (rank_set_min(&queue->listed, &rank))
        rank_set_remove(&queue->listed, rank);
}

static void bpe_queue_free(struct bpe_queue *queue) {
    vec_free(&queue->heap);
    mem_free(queue->lists);
    rank_set_free(&queue->listed);
    *queue = (struct bpe_queue){0};
}

/* The merges of a vocabulary, and words to ids by them. */

static struct bpe_pair *pair_find(const struct bpe_model *model, uint32_t left, uint32_t right) {
    size_t mask = model->pair_slots - 1, place = hash_mix((uint64_t)left << 32 | right) & mask;
    for (;; place = (place + 1) & mask) {
        struct bpe_pair *pair = &model->pairs[place];
        if ((pair->left == left && pair->right == right) || pair->rank == BPE_NO_RANK) return pair;
    }
}

/* Rank of a pair, BPE_NO_RANK when it is not merged. */
static uint32_t bpe_model_rank(const struct bpe_model *model, uint32_t left, uint32_t right) {
    return model->pair_count > 0 ? pair_find(model, left, right)->rank : BPE_NO_RANK;
}

static enum status pairs_grow(struct bpe_model *model) {
    struct bpe_model grown = {.pair_slots = model->pair_slots ? 2 * model->pair_slots : 64};
    grown.pairs = mem_array(grown.pair_slots, sizeof *grown.pairs);
    if (!grown.pairs) return STATUS_FAILED;
    for (size_t i = 0; i < grown.pair_slots; i++)
        grown.pairs[i].rank = BPE_NO_RANK;
    for (size_t i = 0; i < model->pair_slots; i++) {
        const struct bpe_pair *pair = &model->pairs[i];
        if (pair->rank != BPE_NO_RANK) *pair_find(&grown, pair->left, pair->right) = *pair;
    }
    mem_free(model->pairs);
    model->pairs = grown.pairs;
    model->pair_slots = grown.pair_slots;
    return STATUS_OK;
}

enum status bpe_model_add_merge(struct bpe_model *model, uint32_t left, uint32_t right, uint32_t result) {
    if (2 * (model->pair_count + 1) > model->pair_slots) TRY(pairs_grow(model));
    struct bpe_pair *pair = pair_find(model, left, right);
    model->pair_count += pair->rank == BPE_NO_RANK;
    *pair = (struct bpe_pair){left, right, (uint32_t)model->results.count};
    return vec_push(&model->results, result);
}

enum status bpe_model_add_token(struct bpe_model *model, const char *text, uint32_t bytes, uint32_t id) {
    if (bytes > model->longest_token_bytes) model->longest_token_bytes = bytes;
    return string_table_add(&model->vocabulary, text, bytes, id);
}

void bpe_model_free(struct bpe_model *model) {
    string_table_free(&model->vocabulary);
    mem_free(model->pairs);
    vec_free(&model->results);
    bpe_alphabet_free(&model->alphabet);
    *model = (struct bpe_model){0};
}

struct word_start {
    const struct bpe_alphabet *alphabet;
    struct bpe_workspace *workspace;
    bool unknown; /* an unknown token has still to be added */
};

static enum status symbol_add(struct bpe_workspace *workspace, uint32_t id) {
    uint32_t place = (uint32_t)workspace->symbols.count;
    return vec_push(
        &workspace->symbols,
        (struct bpe_symbol){
            .id = id, .previous = place - 1, .next = place + 1, .rank = BPE_NO_RANK, .before = BPE_NOT_LISTED});
}

static enum status unknown_flush(struct word_start *start) {
    if (!start->unknown) return STATUS_OK;
    start->unknown = false;
    return symbol_add(start->workspace, (uint32_t)start->alphabet->unknown_id);
}

/* The `tokenizers` library adds an unknown token only at the next unknown character, the next known one, or the end. So
 * the byte tokens of characters in between come before it. */
static enum status character_start(struct word_start *start, uint32_t code) {
    const struct bpe_alphabet *alphabet = start->alphabet;
    const struct bpe_character *character = bpe_alphabet_find(alphabet, code);
    uint32_t ids[BPE_START_IDS_MAX];
    if (character) {
        TRY(unknown_flush(start));
        return symbol_add(start->workspace, character->id);
    }
    size_t count = bpe_alphabet_fall_back(alphabet, code, ids);
    for (size_t i = 0; i < count; i++)
        TRY(symbol_add(start->workspace, ids[i]));
    if (count > 0 || alphabet->unknown_id == BPE_NO_ID) return STATUS_OK;
    if (!alphabet->fuse_unknown) TRY(unknown_flush(start));
    start->unknown = true;
    return STATUS_OK;
}

static enum status symbols_fill(const struct bpe_alphabet *alphabet, struct bpe_workspace *workspace, const char *word,
                                size_t bytes) {
    struct word_start start = {alphabet, workspace, false};
    workspace->symbols.count = 0;
    TRY(vec_reserve(&workspace->symbols, bytes));
    for (size_t place = 0; place < bytes;) {
        uint32_t code;
        place += bpe_alphabet_next(alphabet, word + place, &code);
        TRY(character_start(&start, code));
    }
    TRY(unknown_flush(&start));
    size_t count = workspace->symbols.count;
    if (count > 0) workspace->symbols.items[0].previous = workspace->symbols.items[count - 1].next = BPE_NO_PLACE;
    return STATUS_OK;
}

/* Ranks the pair that begins at `place` anew. */
static enum status pair_renew(const struct bpe_model *model, struct bpe_workspace *workspace, uint32_t place) {
    struct bpe_symbol *symbols = workspace->symbols.items, *symbol = &symbols[place];
    bpe_queue_remove(&workspace->queue, symbols, place);
    symbol->rank = BPE_NO_RANK;
    if (symbol->next == BPE_NO_PLACE) return STATUS_OK;
    symbol->rank = bpe_model_rank(model, symbol->id, symbols[symbol->next].id);
    return symbol->rank == BPE_NO_RANK ? STATUS_OK : bpe_queue_add(&workspace->queue, symbols, place);
}

static enum status pair_merge(const struct bpe_model *model, struct bpe_workspace *workspace, uint32_t place) {
    struct bpe_symbol *symbols = workspace->symbols.items, *left = &symbols[place], *right = &symbols[left->next];
    bpe_queue_remove(&workspace->queue, symbols, left->next);
    left->id = model->results.items[left->rank];
    left->next = right->next;
    right->rank = BPE_NO_RANK;
    if (left->next != BPE_NO_PLACE) symbols[left->next].previous = place;
    if (left->previous != BPE_NO_PLACE) TRY(pair_renew(model, workspace, left->previous));
    return pair_renew(model, workspace, place);
}

static enum status pairs_merge(const struct bpe_model *model, struct bpe_workspace *workspace) {
    uint32_t place;
    TRY(bpe_queue_open(&workspace->queue, workspace->symbols.count, model->results.count));
    for (uint32_t i = 0; i < workspace->symbols.count; i++)
        TRY(pair_renew(model, workspace, i));
    while (bpe_queue_take(&workspace->queue, workspace->symbols.items, &place))
        TRY(pair_merge(model, workspace, place));
    return STATUS_OK;
}

/* The id of the whole word, where words that are tokens are not taken apart. */
static enum status word_find(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, int64_t *id) {
    uint32_t found;
    *id = BPE_NO_ID;
    if (!model->ignore_merges || bytes > model->longest_token_bytes) return STATUS_OK;
    if (model->alphabet.bytes) {
        workspace->text.count = 0;
        TRY(byte_alphabet_write(&workspace->text, word, bytes));
        word = workspace->text.items;
        bytes = workspace->text.count;
    }
    if (string_table_find(&model->vocabulary, word, bytes, &found)) *id = found;
    return STATUS_OK;
}

enum status bpe_model_encode(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, struct token_ids *out) {
    if (bytes >= BPE_NOT_LISTED)
        return status_set(STATUS_BAD_INPUT, "a word of %zu bytes: the tokenizer never splits it", bytes);
    int64_t id;
    TRY(word_find(model, workspace, word, bytes, &id));
    if (id != BPE_NO_ID) return vec_push(out, (uint32_t)id);
    TRY(symbols_fill(&model->alphabet, workspace, word, bytes));
    if (workspace->symbols.count == 0) return STATUS_OK;
    enum status status = pairs_merge(model, workspace);
    if (status != STATUS_OK) return bpe_queue_clear(&workspace->queue), status;
    const struct bpe_symbol *symbols = workspace->symbols.items;
    for (uint32_t place = 0; place != BPE_NO_PLACE; place = symbols[place].next)
        TRY(vec_push(out, symbols[place].id));
    return STATUS_OK;
}

void bpe_workspace_free(struct bpe_workspace *workspace) {
    vec_free(&workspace->symbols);
    bpe_queue_free(&workspace->queue);
    vec_free(&workspace->text);
}

/* The step that turns words into ids, with a cache of words. */

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
