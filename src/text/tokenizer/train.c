/* Pairs of neighbouring symbols in the words of a text: how often each occurs, in which words, and which is the most
 * frequent. Used while merges are learned. */
#include <jansson.h>

#include "base/json.h"
#include "base/terminal.h"
#include "base/text.h"
#include "text/tokenizer/parts.h"
#include "text/tokenizer/pattern.h"
#include "text/tokenizer/steps.h"
#include "text/tokenizer/tables.h"

struct bpe_pair_count {
    uint32_t left, right;
    int64_t count;
    VEC(uint32_t) words; /* where it occurs or once occurred; ascending */
};

/* A pair and the count that it had when it was put in the queue; counts only fall after that. */
struct bpe_pair_entry {
    int64_t count;
    uint32_t left, right, pair;
};

/* Zero-initialise, use, bpe_pairs_free. */
struct bpe_pairs {
    VEC(struct bpe_pair_count) items;
    struct pair_table places;         /* index of items */
    VEC(struct bpe_pair_entry) queue; /* binary heap, the most frequent first, then the smallest ids */
};

/* Learning byte-pair merges from counted words. */

/* Distinct byte strings, numbered as they come: zero-initialise, names_add, names_free. */
struct bpe_name {
    const char *text; /* with a NUL behind it */
    uint32_t bytes;
    int64_t count; /* of words: how often it was added */
};
struct bpe_names {
    VEC(struct bpe_name) items;
    struct string_table places; /* -> index of items */
    struct scratch memory;
};

/* Tokens by id, in the byte alphabet, and the merges that make them. */
struct bpe_merge {
    uint32_t left, right; /* ids */
};
struct bpe_vocabulary {
    struct bpe_names tokens;
    VEC(struct bpe_merge) merges;
};

/* Adds `change` to the count of a pair in a word. Words must come in ascending order, except that a merge (all of
 * whose new pairs have not occurred before) begins again. */
static enum status bpe_pairs_count(struct bpe_pairs *pairs, uint32_t left, uint32_t right, uint32_t word,
                                   int64_t change) {
    uint32_t place = pair_table_find(&pairs->places, left, right);
    if (place == PAIR_NONE) {
        if (pairs->items.count >= PAIR_NONE) return status_no_memory(pairs->items.count, "pairs of tokens");
        place = (uint32_t)pairs->items.count;
        TRY(vec_push(&pairs->items, (struct bpe_pair_count){.left = left, .right = right}));
        TRY(pair_table_set(&pairs->places, left, right, place));
    }
    struct bpe_pair_count *pair = &pairs->items.items[place];
    pair->count += change;
    bool known = pair->words.count > 0 && pair->words.items[pair->words.count - 1] == word;
    return change < 0 || known ? STATUS_OK : vec_push(&pair->words, word);
}

static bool comes_before(const struct bpe_pair_entry *a, const struct bpe_pair_entry *b) {
    if (a->count != b->count) return a->count > b->count;
    return a->left != b->left ? a->left < b->left : a->right < b->right;
}

static void queue_sink(struct bpe_pairs *pairs) {
    struct bpe_pair_entry *queue = pairs->queue.items, entry = queue[0];
    size_t place = 0, count = pairs->queue.count;
    for (size_t child; (child = 2 * place + 1) < count; place = child) {
        if (child + 1 < count && comes_before(&queue[child + 1], &queue[child])) child++;
        if (!comes_before(&queue[child], &entry)) break;
        queue[place] = queue[child];
    }
    queue[place] = entry;
}

/* Queues the pairs from index `from` on whose count is not 0. */
static enum status bpe_pairs_queue(struct bpe_pairs *pairs, size_t from) {
    for (size_t i = from; i < pairs->items.count; i++) {
        const struct bpe_pair_count *pair = &pairs->items.items[i];
        if (pair->count <= 0) continue;
        struct bpe_pair_entry entry = {pair->count, pair->left, pair->right, (uint32_t)i};
        TRY(vec_push(&pairs->queue, entry));
        struct bpe_pair_entry *queue = pairs->queue.items;
        size_t place = pairs->queue.count - 1;
        for (size_t parent; place > 0 && comes_before(&entry, &queue[parent = (place - 1) / 2]); place = parent)
            queue[place] = queue[parent];
        queue[place] = entry;
    }
    return STATUS_OK;
}

/* Takes the most frequent pair from the queue; NULL when there is none. Valid until the next bpe_pairs_count. */
static struct bpe_pair_count *bpe_pairs_take(struct bpe_pairs *pairs) {
    while (pairs->queue.count > 0) {
        struct bpe_pair_entry *first = &pairs->queue.items[0];
        struct bpe_pair_count *pair = &pairs->items.items[first->pair];
        if (first->count == pair->count) {
            *first = pairs->queue.items[--pairs->queue.count];
            if (pairs->queue.count > 0) queue_sink(pairs);
            return pair;
        }
        first->count = pair->count; /* its count fell: put it back in order */
        queue_sink(pairs);
    }
    return NULL;
}

static void bpe_pairs_free(struct bpe_pairs *pairs) {
    for (size_t i = 0; i < pairs->items.count; i++)
        vec_free(&pairs->items.items[i].words);
    vec_free(&pairs->items);
    pair_table_free(&pairs->places);
    vec_free(&pairs->queue);
}

/* The number of a string, any bytes, which is added if it was missing. */
static enum status bpe_names_add(struct bpe_names *names, const char *text, size_t bytes, uint32_t *index) {
    if (string_table_find(&names->places, text, bytes, index)) return STATUS_OK;
    if (bytes >= UINT32_MAX || names->items.count >= UINT32_MAX)
        return status_set(STATUS_BAD_INPUT, "the text has words of over 4 GiB, or over 4 thousand million of them");
    char *kept = scratch_alloc(&names->memory, bytes + 1, 1);
    if (!kept) return STATUS_FAILED;
    if (bytes > 0) memcpy(kept, text, bytes);
    *index = (uint32_t)names->items.count;
    TRY(vec_push(&names->items, (struct bpe_name){.text = kept, .bytes = (uint32_t)bytes}));
    return string_table_add(&names->places, kept, (uint32_t)bytes, *index);
}

static void bpe_names_free(struct bpe_names *names) {
    vec_free(&names->items);
    string_table_free(&names->places);
    scratch_free(&names->memory);
}

/* Adds the 256 bytes in the order of their characters. */
static enum status bytes_add(struct bpe_vocabulary *vocabulary, uint32_t ids[256]) {
    for (uint32_t code = 0; code < 0x200; code++) {
        int byte = byte_alphabet_byte(code);
        if (byte < 0) continue;
        char text[4];
        TRY(bpe_names_add(&vocabulary->tokens, text, utf8_encode(code, text), &ids[byte]));
    }
    return STATUS_OK;
}

struct training_word {
    size_t start; /* in symbols */
    uint32_t count;
    int64_t times; /* how often the word occurs */
};

struct training {
    uint32_t *symbols; /* of all words; each word shrinks in place */
    struct training_word *words;
    struct bpe_pairs pairs;
    struct bpe_vocabulary *vocabulary;
    struct text_buffer text;
};

static enum status symbols_fill(struct training *training, const struct bpe_names *words,
                                const uint32_t byte_ids[256]) {
    size_t total = 0, place = 0;
    for (size_t i = 0; i < words->items.count; i++)
        if (!mem_add(total, words->items.items[i].bytes, &total)) return status_no_memory(total, "the words");
    training->symbols = mem_array(total, sizeof *training->symbols);
    training->words = mem_array(words->items.count, sizeof *training->words);
    if (!training->symbols || !training->words) return STATUS_FAILED;
    for (size_t i = 0; i < words->items.count; i++) {
        const struct bpe_name *word = &words->items.items[i];
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
        const struct bpe_name *token = &vocabulary->tokens.items.items[parts[i]];
        TRY(text_append(&training->text, token->text, token->bytes));
    }
    TRY(bpe_names_add(&vocabulary->tokens, training->text.items, training->text.count, id));
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
    progress_begin(PROGRESS_COUNT, (int64_t)(size - training->vocabulary->tokens.items.count),
                   "tokenizer: learning tokens");
    while (training->vocabulary->tokens.items.count < size && status == STATUS_OK) {
        struct bpe_pair_count *best = bpe_pairs_take(&training->pairs);
        if (!best || best->count < min_count) break;
        status = pair_merge(training, best);
        progress_add(1);
    }
    progress_end();
    return status;
}

/* Merges the most frequent pair repeatedly, until there are `size` tokens or no pair occurs `min_count` times. Among
 * equally frequent pairs the one with the smaller ids comes first. The vocabulary must hold the bytes as byte_ids. */
static enum status bpe_train(const struct bpe_names *words, const uint32_t byte_ids[256], size_t size,
                             int64_t min_count, struct bpe_vocabulary *vocabulary) {
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

/* --- words of a text in, a tokenizer.json out --- */

enum { PART_BYTES = 1 << 17, PAIR_COUNT_MIN = 2, BYTES = 256 };

static enum status word_take(void *payload, const char *text, size_t bytes, bool end) {
    struct bpe_names *words = payload;
    uint32_t index;
    BUG_IF(!end && bytes > 0, "a split handed on a part of a word");
    if (bytes == 0) return STATUS_OK;
    TRY(bpe_names_add(words, text, bytes, &index));
    words->items.items[index].count++;
    return STATUS_OK;
}

static enum status words_count_by(const struct file_input *text, char *buffer, struct bpe_names *words) {
    struct split_pattern *pattern = NULL;
    struct text_chain *chain = NULL;
    TRY(split_pattern_compile("ByteLevel", tokenizer_gpt2_pattern, strlen(tokenizer_gpt2_pattern), false, &pattern));
    const struct text_split split = {.pattern = pattern, .behavior = SPLIT_ISOLATED};
    const struct text_step_spec steps[] = {{&text_fix_step, NULL}, {&text_split_step, &split}};
    enum status status =
        text_chain_create(steps, 2, (struct text_sink){word_take, words}, (struct token_sink){0}, &chain);
    progress_begin(PROGRESS_BYTES, (int64_t)text->bytes, "tokenizer: counting words");
    for (size_t at = 0, part; status == STATUS_OK && at < text->bytes; at += part) {
        part = text->bytes - at < PART_BYTES ? text->bytes - at : PART_BYTES;
        status = file_input_read(text, at, part, buffer);
        if (status == STATUS_OK) status = text_chain_write(chain, buffer, part, at + part == text->bytes);
        progress_add((int64_t)part);
    }
    progress_end();
    text_chain_free(chain);
    split_pattern_free(pattern);
    return status;
}

static enum status words_count(const struct file_input *text, struct bpe_names *words) {
    AUTO_FREE char *buffer = mem_array(PART_BYTES, 1);
    return buffer ? words_count_by(text, buffer, words) : STATUS_FAILED;
}

static enum status specials_add(struct bpe_vocabulary *vocabulary, const char *const *specials, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t bytes = strlen(specials[i]);
        uint32_t id;
        if (bytes == 0 || utf8_valid_bytes(specials[i], bytes) != bytes)
            return status_set(STATUS_BAD_INPUT, "special token %zu: is empty or not UTF-8", i);
        TRY(bpe_names_add(&vocabulary->tokens, specials[i], bytes, &id));
        if (id != i) return status_set(STATUS_BAD_INPUT, "special token %s: is there twice", specials[i]);
    }
    return STATUS_OK;
}

static json_t *added_json(const struct bpe_vocabulary *vocabulary, size_t special_count) {
    json_t *list = json_array();
    for (size_t i = 0; i < special_count; i++)
        json_array_append_new(list, json_pack("{s:I, s:s, s:b, s:b, s:b, s:b, s:b}", "id", (json_int_t)i, "content",
                                              vocabulary->tokens.items.items[i].text, "single_word", 0, "lstrip", 0,
                                              "rstrip", 0, "normalized", 0, "special", 1));
    return list;
}

static json_t *vocabulary_json(const struct bpe_vocabulary *vocabulary) {
    json_t *object = json_object();
    for (size_t i = 0; i < vocabulary->tokens.items.count; i++)
        json_object_set_new(object, vocabulary->tokens.items.items[i].text, json_integer((json_int_t)i));
    return object;
}

static json_t *merges_json(const struct bpe_vocabulary *vocabulary) {
    json_t *list = json_array();
    for (size_t i = 0; i < vocabulary->merges.count; i++) {
        struct bpe_merge merge = vocabulary->merges.items[i];
        const struct bpe_name *tokens = vocabulary->tokens.items.items;
        json_array_append_new(list, json_pack("[s, s]", tokens[merge.left].text, tokens[merge.right].text));
    }
    return list;
}

static json_t *byte_level_json(void) {
    return json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets", 1, "use_regex",
                     1);
}

static enum status file_write(const struct bpe_vocabulary *vocabulary, size_t special_count, const char *path) {
    json_t *added = added_json(vocabulary, special_count), *tokens = vocabulary_json(vocabulary);
    json_t *merges = merges_json(vocabulary);
    bool whole = json_array_size(added) == special_count &&
                 json_object_size(tokens) == vocabulary->tokens.items.count &&
                 json_array_size(merges) == vocabulary->merges.count;
    json_auto_t *file =
        json_pack("{s:s, s:n, s:n, s:o, s:n, s:o, s:o, s:o, s:{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:o}}",
                  "version", "1.0", "truncation", "padding", "added_tokens", added, "normalizer", "pre_tokenizer",
                  byte_level_json(), "post_processor", byte_level_json(), "decoder", byte_level_json(), "model", "type",
                  "BPE", "dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                  "byte_fallback", 0, "ignore_merges", 0, "vocab", tokens, "merges", merges);
    return file && whole ? json_write(path, file) : status_no_memory(0, "a tokenizer's JSON");
}

static enum status train(const struct file_input *text, size_t vocab_size, const char *const *specials, size_t count,
                         struct bpe_names *words, struct bpe_vocabulary *vocabulary) {
    uint32_t byte_ids[BYTES];
    TRY(specials_add(vocabulary, specials, count));
    TRY(bytes_add(vocabulary, byte_ids));
    if (vocab_size < vocabulary->tokens.items.count)
        return status_set(STATUS_BAD_INPUT,
                          "a vocabulary of %zu tokens is too small: bytes and special tokens take %zu" HINT
                          "use a vocabulary of at least %zu",
                          vocab_size, vocabulary->tokens.items.count, vocabulary->tokens.items.count);
    TRY(words_count(text, words));
    TRY(bpe_train(words, byte_ids, vocab_size, PAIR_COUNT_MIN, vocabulary));
    if (vocabulary->tokens.items.count == vocab_size) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "the text is too small for a vocabulary of %zu tokens: it gives %zu", vocab_size,
                     vocabulary->tokens.items.count);
    return status_hint(STATUS_BAD_INPUT, "use a longer text, or a vocabulary of at most %zu",
                       vocabulary->tokens.items.count);
}

enum status tokenizer_train_file(const struct file_input *text, int64_t vocab_size, const char *const *special_tokens,
                                 size_t special_token_count, const char *out_tokenizer_json) {
    if (vocab_size < 0 || vocab_size > TOKENIZER_IDS_MAX)
        return status_set(STATUS_BAD_INPUT, "a vocabulary of %lld tokens: must be 0 to %d", (long long)vocab_size,
                          TOKENIZER_IDS_MAX);
    struct bpe_names words = {0};
    struct bpe_vocabulary vocabulary = {0};
    enum status status;
    TRY_GOTO(status, train(text, (size_t)vocab_size, special_tokens, special_token_count, &words, &vocabulary), done);
    TRY_GOTO(status, file_write(&vocabulary, special_token_count, out_tokenizer_json), done);
done:
    bpe_names_free(&words);
    bpe_names_free(&vocabulary.tokens);
    vec_free(&vocabulary.merges);
    return status;
}
