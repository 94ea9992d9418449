#include "tokenizer/bpe_model.h"

#include "base/hash.h"

static struct bpe_pair *pair_find(const struct bpe_model *model, uint32_t left, uint32_t right) {
    size_t mask = model->pair_slots - 1, place = hash_mix((uint64_t)left << 32 | right) & mask;
    for (;; place = (place + 1) & mask) {
        struct bpe_pair *pair = &model->pairs[place];
        if ((pair->left == left && pair->right == right) || pair->rank == BPE_NO_RANK) return pair;
    }
}

uint32_t bpe_model_rank(const struct bpe_model *model, uint32_t left, uint32_t right) {
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
