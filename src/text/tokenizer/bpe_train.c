/* Words with their counts, the vocabulary that grows, and the merges that are learned from them. */
#include "text/tokenizer/bpe_train.h"

#include <string.h>

#include "base/progress.h"
#include "base/utf8.h"
#include "text/tokenizer/bpe_pairs.h"
#include "text/tokenizer/byte_alphabet.h"

static enum status text_keep(struct scratch *memory, const char *text, size_t bytes, const char **out) {
    char *kept = scratch_alloc(memory, bytes + 1, 1);
    if (!kept) return STATUS_FAILED;
    if (bytes > 0) memcpy(kept, text, bytes);
    *out = kept;
    return STATUS_OK;
}

enum status bpe_words_add(struct bpe_words *words, const char *text, size_t bytes) {
    uint32_t index;
    if (string_table_find(&words->places, text, bytes, &index)) return words->items.items[index].count++, STATUS_OK;
    if (bytes >= UINT32_MAX || words->items.count >= UINT32_MAX)
        return status_set(STATUS_BAD_INPUT, "the text has words of over 4 GiB, or over 4 thousand million of them");
    struct bpe_word word = {.bytes = (uint32_t)bytes, .count = 1};
    TRY(text_keep(&words->memory, text, bytes, &word.text));
    TRY(vec_push(&words->items, word));
    return string_table_add(&words->places, word.text, word.bytes, (uint32_t)words->items.count - 1);
}

void bpe_words_free(struct bpe_words *words) {
    vec_free(&words->items);
    string_table_free(&words->places);
    scratch_free(&words->memory);
}

enum status bpe_vocabulary_add(struct bpe_vocabulary *vocabulary, const char *text, size_t bytes, uint32_t *id) {
    if (string_table_find(&vocabulary->ids, text, bytes, id)) return STATUS_OK;
    const char *kept;
    *id = (uint32_t)vocabulary->tokens.count;
    TRY(text_keep(&vocabulary->memory, text, bytes, &kept));
    TRY(vec_push(&vocabulary->tokens, kept));
    return string_table_add(&vocabulary->ids, kept, (uint32_t)bytes, *id);
}

enum status bpe_vocabulary_add_bytes(struct bpe_vocabulary *vocabulary, uint32_t ids[256]) {
    for (uint32_t code = 0; code < 0x200; code++) {
        int byte = byte_alphabet_byte(code);
        if (byte < 0) continue;
        char text[4];
        TRY(bpe_vocabulary_add(vocabulary, text, utf8_encode(code, text), &ids[byte]));
    }
    return STATUS_OK;
}

void bpe_vocabulary_free(struct bpe_vocabulary *vocabulary) {
    vec_free(&vocabulary->tokens);
    string_table_free(&vocabulary->ids);
    vec_free(&vocabulary->merges);
    scratch_free(&vocabulary->memory);
}

struct training_word {
    size_t start; /* in symbols */
    uint32_t count;
    int64_t times; /* how often the word occurs */
};

struct training {
    uint32_t *symbols; /* of all words, each of which shrinks in place */
    struct training_word *words;
    struct bpe_pairs pairs;
    struct bpe_vocabulary *vocabulary;
    struct text_buffer text;
};

static enum status symbols_fill(struct training *training, const struct bpe_words *words,
                                const uint32_t byte_ids[256]) {
    size_t total = 0, place = 0;
    for (size_t i = 0; i < words->items.count; i++)
        if (!mem_add(total, words->items.items[i].bytes, &total)) return status_no_memory(total, "the words");
    training->symbols = mem_array(total, sizeof *training->symbols);
    training->words = mem_array(words->items.count, sizeof *training->words);
    if (!training->symbols || !training->words) return STATUS_FAILED;
    for (size_t i = 0; i < words->items.count; i++) {
        const struct bpe_word *word = &words->items.items[i];
        training->words[i] = (struct training_word){place, word->bytes, word->count};
        for (size_t b = 0; b < word->bytes; b++)
            training->symbols[place++] = byte_ids[(unsigned char)word->text[b]];
    }
    return STATUS_OK;
}

static enum status pairs_fill(struct training *training, size_t word_count) {
    for (size_t i = 0; i < word_count; i++) {
        const struct training_word *word = &training->words[i];
        const uint32_t *symbols = training->symbols + word->start;
        for (size_t s = 0; s + 1 < word->count; s++)
            TRY(bpe_pairs_count(&training->pairs, symbols[s], symbols[s + 1], (uint32_t)i, word->times));
    }
    return bpe_pairs_queue(&training->pairs, 0);
}

/* Replaces the pair by `made` in one word, and updates the counts of its neighbouring pairs. */
static enum status word_merge(struct training *training, uint32_t index, struct bpe_merge pair, uint32_t made) {
    struct training_word *word = &training->words[index];
    uint32_t *symbols = training->symbols + word->start, written = 0;
    for (uint32_t read = 0; read < word->count; read++) {
        if (symbols[read] != pair.left || read + 1 == word->count || symbols[read + 1] != pair.right) {
            symbols[written++] = symbols[read];
            continue;
        }
        if (written > 0) {
            uint32_t before = symbols[written - 1];
            TRY(bpe_pairs_count(&training->pairs, before, pair.left, index, -word->times));
            TRY(bpe_pairs_count(&training->pairs, before, made, index, word->times));
        }
        symbols[written++] = made;
        read++;
        if (read + 1 < word->count) {
            TRY(bpe_pairs_count(&training->pairs, pair.right, symbols[read + 1], index, -word->times));
            TRY(bpe_pairs_count(&training->pairs, made, symbols[read + 1], index, word->times));
        }
    }
    word->count = written;
    return STATUS_OK;
}

static enum status token_make(struct training *training, struct bpe_merge pair, uint32_t *id) {
    struct bpe_vocabulary *vocabulary = training->vocabulary;
    const uint32_t parts[2] = {pair.left, pair.right};
    training->text.count = 0;
    for (size_t i = 0; i < 2; i++) {
        const char *text = vocabulary->tokens.items[parts[i]];
        TRY(text_append(&training->text, text, strlen(text)));
    }
    TRY(bpe_vocabulary_add(vocabulary, training->text.items, training->text.count, id));
    return vec_push(&vocabulary->merges, pair);
}

static enum status pair_merge(struct training *training, struct bpe_pair_count *best) {
    struct bpe_merge pair = {best->left, best->right};
    size_t before = training->pairs.items.count, count = best->words.count;
    uint32_t made, *words = best->words.items;
    best->words.items = NULL;
    best->words.count = best->words.capacity = 0;
    enum status status = token_make(training, pair, &made);
    for (size_t i = 0; status == STATUS_OK && i < count; i++)
        status = word_merge(training, words[i], pair, made);
    mem_free(words);
    return status == STATUS_OK ? bpe_pairs_queue(&training->pairs, before) : status;
}

static enum status merges_learn(struct training *training, size_t size, int64_t min_count) {
    enum status status = STATUS_OK;
    progress_begin(PROGRESS_COUNT, (int64_t)(size - training->vocabulary->tokens.count), "tokenizer: learning tokens");
    while (training->vocabulary->tokens.count < size && status == STATUS_OK) {
        struct bpe_pair_count *best = bpe_pairs_take(&training->pairs);
        if (!best || best->count < min_count) break;
        status = pair_merge(training, best);
        progress_add(1);
    }
    progress_end();
    return status;
}

enum status bpe_train(const struct bpe_words *words, const uint32_t byte_ids[256], size_t size, int64_t min_count,
                      struct bpe_vocabulary *vocabulary) {
    struct training training = {.vocabulary = vocabulary};
    enum status status;
    TRY_GOTO(status, symbols_fill(&training, words, byte_ids), done);
    TRY_GOTO(status, pairs_fill(&training, words->items.count), done);
    TRY_GOTO(status, merges_learn(&training, size, min_count), done);
done:
    mem_free(training.symbols);
    mem_free(training.words);
    bpe_pairs_free(&training.pairs);
    vec_free(&training.text);
    return status;
}
