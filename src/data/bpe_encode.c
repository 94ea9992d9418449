#include "data/bpe_model.h"
#include "data/byte_alphabet.h"

static const uint32_t NONE = UINT32_MAX;

/* A word is a list of symbols, at first its bytes. A merge makes the left one the pair and drops the right one. */
struct bpe_symbol {
    uint32_t id;
    uint32_t previous, next; /* places, NONE at the ends */
    uint32_t rank;           /* of the pair that it forms with the next one */
};

/* The queue is a binary heap of (rank, place): of pairs that have the lowest rank the leftmost is merged first. Entries
 * are never taken out early: one is out of date when its symbol has another rank by now. */
static uint64_t queue_entry(uint32_t rank, uint32_t place) { return (uint64_t)rank << 32 | place; }

static void queue_sink(uint64_t *queue, size_t count, size_t place) {
    uint64_t entry = queue[place];
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && queue[child + 1] < queue[child]) child++;
        if (entry <= queue[child]) break;
        queue[place] = queue[child];
    }
    queue[place] = entry;
}

static enum status queue_push(struct bpe_workspace *workspace, uint64_t entry) {
    TRY(vec_push(&workspace->queue, entry));
    uint64_t *queue = workspace->queue.items;
    size_t place = workspace->queue.count - 1;
    for (size_t parent; place > 0 && entry < queue[parent = (place - 1) / 2]; place = parent)
        queue[place] = queue[parent];
    queue[place] = entry;
    return STATUS_OK;
}

static uint64_t queue_pop(struct bpe_workspace *workspace) {
    uint64_t *queue = workspace->queue.items, entry = queue[0];
    queue[0] = queue[--workspace->queue.count];
    queue_sink(queue, workspace->queue.count, 0);
    return entry;
}

static enum status symbols_fill(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                                size_t bytes) {
    workspace->symbols.count = 0;
    TRY(vec_reserve(&workspace->symbols, bytes));
    struct bpe_symbol *symbols = workspace->symbols.items;
    bool unknown_before = false;
    uint32_t count = 0;
    for (size_t i = 0; i < bytes; i++) {
        int64_t id = model->byte_ids[(unsigned char)word[i]];
        bool unknown = id == BPE_NO_ID;
        if (unknown) id = unknown_before && model->fuse_unknown ? BPE_NO_ID : model->unknown_id;
        unknown_before = unknown;
        if (id == BPE_NO_ID) continue;
        symbols[count] = (struct bpe_symbol){(uint32_t)id, count - 1, count + 1, BPE_NO_RANK};
        count++;
    }
    workspace->symbols.count = count;
    if (count > 0) symbols[0].previous = symbols[count - 1].next = NONE;
    return STATUS_OK;
}

static enum status queue_fill(const struct bpe_model *model, struct bpe_workspace *workspace) {
    struct bpe_symbol *symbols = workspace->symbols.items;
    size_t count = workspace->symbols.count;
    workspace->queue.count = 0;
    TRY(vec_reserve(&workspace->queue, count));
    uint64_t *queue = workspace->queue.items;
    size_t filled = 0;
    for (size_t i = 0; i + 1 < count; i++) {
        symbols[i].rank = bpe_model_rank(model, symbols[i].id, symbols[i + 1].id);
        if (symbols[i].rank != BPE_NO_RANK) queue[filled++] = queue_entry(symbols[i].rank, (uint32_t)i);
    }
    workspace->queue.count = filled;
    for (size_t i = filled / 2; i-- > 0;)
        queue_sink(queue, filled, i);
    return STATUS_OK;
}

/* Ranks the pair that begins at `place` anew. */
static enum status pair_renew(const struct bpe_model *model, struct bpe_workspace *workspace, uint32_t place) {
    struct bpe_symbol *symbol = &workspace->symbols.items[place];
    symbol->rank = BPE_NO_RANK;
    if (symbol->next == NONE) return STATUS_OK;
    symbol->rank = bpe_model_rank(model, symbol->id, workspace->symbols.items[symbol->next].id);
    return symbol->rank == BPE_NO_RANK ? STATUS_OK : queue_push(workspace, queue_entry(symbol->rank, place));
}

static enum status pairs_merge(const struct bpe_model *model, struct bpe_workspace *workspace) {
    struct bpe_symbol *symbols = workspace->symbols.items;
    while (workspace->queue.count > 0) {
        uint64_t entry = queue_pop(workspace);
        uint32_t place = (uint32_t)entry, rank = (uint32_t)(entry >> 32);
        struct bpe_symbol *left = &symbols[place];
        if (left->rank != rank) continue;
        struct bpe_symbol *right = &symbols[left->next];
        left->id = model->results.items[rank];
        left->next = right->next;
        right->rank = BPE_NO_RANK;
        if (left->next != NONE) symbols[left->next].previous = place;
        if (left->previous != NONE) TRY(pair_renew(model, workspace, left->previous));
        TRY(pair_renew(model, workspace, place));
    }
    return STATUS_OK;
}

/* The id of the whole word, where words that are tokens are not taken apart. */
static enum status word_find(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, int64_t *id) {
    uint32_t found;
    *id = BPE_NO_ID;
    if (!model->ignore_merges || bytes > model->longest_token_bytes) return STATUS_OK;
    workspace->text.count = 0;
    TRY(byte_alphabet_write(&workspace->text, word, bytes));
    if (string_table_find(&model->vocabulary, workspace->text.items, workspace->text.count, &found)) *id = found;
    return STATUS_OK;
}

enum status bpe_model_encode(const struct bpe_model *model, struct bpe_workspace *workspace, const char *word,
                             size_t bytes, struct token_ids *out) {
    if (bytes >= NONE) return status_set(STATUS_BAD_INPUT, "a word of %zu bytes: the tokenizer never splits it", bytes);
    int64_t id;
    TRY(word_find(model, workspace, word, bytes, &id));
    if (id != BPE_NO_ID) return vec_push(out, (uint32_t)id);
    TRY(symbols_fill(model, workspace, word, bytes));
    if (workspace->symbols.count == 0) return STATUS_OK;
    TRY(queue_fill(model, workspace));
    TRY(pairs_merge(model, workspace));
    const struct bpe_symbol *symbols = workspace->symbols.items;
    for (uint32_t place = 0; place != NONE; place = symbols[place].next)
        TRY(vec_push(out, symbols[place].id));
    return STATUS_OK;
}

void bpe_workspace_free(struct bpe_workspace *workspace) {
    vec_free(&workspace->symbols);
    vec_free(&workspace->queue);
    vec_free(&workspace->text);
}
