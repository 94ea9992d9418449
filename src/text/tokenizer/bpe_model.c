/* The merges of a vocabulary, and words to ids by them. */
#include "text/tokenizer/bpe_model.h"

#include "base/hash.h"
#include "text/tokenizer/byte_alphabet.h"

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
