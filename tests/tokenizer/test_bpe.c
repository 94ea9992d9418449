/* BPE merges: on random vocabularies, ranks and words, the ids are those of the plain definition (repeatedly merge
 * the leftmost pair of the lowest rank), however the word is divided meanwhile. */
#include <stdio.h>
#include <string.h>

#include "base/random.h"
#include "base/text.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"
#include "text/tokenizer/bpe.h"
#include "text/tokenizer/tables.h"
#include "text/tokenizer/tokenizer.h"

enum { SEED = 41, MODELS = 200, WORDS = 10, TOKENS_MAX = 120, LETTERS = 5, LONGEST_WORD = 900 };

struct drawn_model {
    char tokens[TOKENS_MAX][64];
    uint32_t count;
    struct {
        uint32_t left, right, result;
    } merges[TOKENS_MAX];
    uint32_t merge_count;
};

static uint64_t seed, drawn;
static uint32_t draw(uint32_t bound) { return (uint32_t)(random_u64(seed, RANDOM_TEST, 0, drawn++) % bound); }

static uint32_t token_find(const struct drawn_model *model, const char *text) {
    uint32_t id = 0;
    while (id < model->count && strcmp(model->tokens[id], text) != 0)
        id++;
    return id;
}

/* Letters, then merges of any two tokens; some tokens come from several merges. Ranks are not in the order of making.
 */
static void model_draw(struct drawn_model *model) {
    *model = (struct drawn_model){0};
    for (; model->count < LETTERS; model->count++)
        model->tokens[model->count][0] = (char)('a' + model->count);
    uint32_t wanted = 4 + draw(TOKENS_MAX - 4);
    while (model->merge_count < wanted && model->count < TOKENS_MAX) {
        uint32_t left = draw(model->count), right = draw(model->count);
        char text[128];
        snprintf(text, sizeof text, "%s%s", model->tokens[left], model->tokens[right]);
        bool known = strlen(text) >= sizeof model->tokens[0];
        for (uint32_t i = 0; i < model->merge_count; i++)
            known |= model->merges[i].left == left && model->merges[i].right == right;
        if (known) continue;
        uint32_t id = token_find(model, text);
        if (id == model->count) strcpy(model->tokens[model->count++], text);
        model->merges[model->merge_count].left = left;
        model->merges[model->merge_count].right = right;
        model->merges[model->merge_count++].result = id;
    }
    bool shuffled = draw(3) > 0;
    for (uint32_t i = model->merge_count; shuffled && i > 1; i--) {
        uint32_t other = draw(i);
        __typeof__(model->merges[0]) merge = model->merges[i - 1];
        model->merges[i - 1] = model->merges[other];
        model->merges[other] = merge;
    }
}

static size_t word_draw(char word[LONGEST_WORD]) {
    size_t bytes = 1 + draw(draw(2) == 0 ? LONGEST_WORD : 40), kind = draw(4);
    for (size_t i = 0; i < bytes; i++)
        word[i] = (char)('a' + (kind == 0 ? draw(LETTERS) : kind == 1 ? draw(2) : kind == 2 ? draw(8) == 0 : draw(3)));
    return bytes;
}

/* By the definition. */
static size_t word_merge(const struct drawn_model *model, const char *word, size_t bytes, uint32_t ids[LONGEST_WORD]) {
    size_t count = bytes;
    for (size_t i = 0; i < bytes; i++)
        ids[i] = (uint32_t)(word[i] - 'a');
    for (;;) {
        uint32_t best = model->merge_count;
        size_t place = 0;
        for (size_t i = 0; i + 1 < count; i++)
            for (uint32_t rank = 0; rank < best; rank++)
                if (model->merges[rank].left == ids[i] && model->merges[rank].right == ids[i + 1])
                    best = rank, place = i;
        if (best == model->merge_count) return count;
        ids[place] = model->merges[best].result;
        memmove(ids + place + 1, ids + place + 2, (count - place - 2) * sizeof *ids);
        count--;
    }
}

static struct tokenizer *tokenizer_make(const struct drawn_model *model) {
    struct text_buffer text = {0};
    char piece[256];
    struct tokenizer *tokenizer;
    const char *separator = "{\"model\":{\"vocab\":{";
    for (uint32_t i = 0; i < model->count; i++, separator = ",") {
        int bytes = snprintf(piece, sizeof piece, "%s\"%s\":%u", separator, model->tokens[i], i);
        assert_int_equal(text_append(&text, piece, (size_t)bytes), STATUS_OK);
    }
    separator = "},\"merges\":[";
    for (uint32_t i = 0; i < model->merge_count; i++, separator = ",") {
        int bytes = snprintf(piece, sizeof piece, "%s[\"%s\",\"%s\"]", separator, model->tokens[model->merges[i].left],
                             model->tokens[model->merges[i].right]);
        assert_int_equal(text_append(&text, piece, (size_t)bytes), STATUS_OK);
    }
    assert_int_equal(text_append(&text, "]}}", 3), STATUS_OK);
    if (tokenizer_parse("drawn", text.items, text.count, &tokenizer) != STATUS_OK) fail_msg("%s", status_message());
    vec_free(&text);
    return tokenizer;
}

static void ids_check(const struct token_ids *ids, const uint32_t *want, size_t count, const char *how) {
    if (ids->count == count && memcmp(ids->items, want, count * sizeof *want) == 0) return;
    fail_msg("seed %d, model %llu: other ids when %s", SEED, (unsigned long long)(seed - SEED), how);
}

static void words_have_the_ids_of_the_definition(void **state) {
    (void)state;
    print_message("seed %d\n", SEED);
    for (seed = SEED; seed < SEED + MODELS; seed++) {
        struct drawn_model model;
        drawn = 0;
        model_draw(&model);
        struct tokenizer *tokenizer = tokenizer_make(&model);
        for (size_t i = 0; i < WORDS; i++) {
            char word[LONGEST_WORD];
            uint32_t want[LONGEST_WORD];
            struct token_ids ids = {0};
            size_t bytes = word_draw(word), count = word_merge(&model, word, bytes, want);
            assert_int_equal(tokenizer_encode(tokenizer, word, bytes, false, &ids), STATUS_OK);
            ids_check(&ids, want, count, "a text is encoded");
            vec_free(&ids);
        }
        tokenizer_free(tokenizer);
    }
}

/* The same below the steps: one word, not cut. */
static void merging_needs_no_cuts(void **state) {
    (void)state;
    for (seed = SEED; seed < SEED + MODELS; seed++) {
        struct drawn_model drawn_model;
        struct bpe_model model = {0};
        struct bpe_workspace workspace = {0};
        drawn = 0;
        model_draw(&drawn_model);
        model.alphabet.unknown_id = BPE_NO_ID;
        for (uint32_t i = 0; i < drawn_model.count; i++)
            assert_int_equal(
                bpe_model_add_token(&model, drawn_model.tokens[i], (uint32_t)strlen(drawn_model.tokens[i]), i),
                STATUS_OK);
        assert_int_equal(bpe_alphabet_read(&model.alphabet, &model.vocabulary), STATUS_OK);
        for (uint32_t i = 0; i < drawn_model.merge_count; i++)
            assert_int_equal(bpe_model_add_merge(&model, drawn_model.merges[i].left, drawn_model.merges[i].right,
                                                 drawn_model.merges[i].result),
                             STATUS_OK);
        for (size_t i = 0; i < WORDS; i++) {
            char word[LONGEST_WORD];
            uint32_t want[LONGEST_WORD];
            struct token_ids ids = {0};
            size_t bytes = word_draw(word), count = word_merge(&drawn_model, word, bytes, want);
            assert_int_equal(bpe_model_encode(&model, &workspace, word, bytes, &ids), STATUS_OK);
            ids_check(&ids, want, count, "a word is merged");
            vec_free(&ids);
        }
        bpe_workspace_free(&workspace);
        bpe_model_free(&model);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_have_the_ids_of_the_definition),
        cmocka_unit_test(merging_needs_no_cuts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
