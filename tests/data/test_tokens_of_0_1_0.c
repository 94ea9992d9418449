/* The rule that finds texts for which Ballast 0.1.0 produced other tokens. */
#include <string.h>

#include "base/mem.h"
#include "data/tokenize.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/tokenizer_text.h"
#include "support/unit.h"

#define CASE(name) cmocka_unit_test_setup_teardown(name, temp_folder_make, temp_folder_drop)
#define TURNS(...) "{\"messages\": [" __VA_ARGS__ "]}"
#define USER "{\"role\": \"user\", \"content\": \"a\"}"
#define ANSWER "{\"role\": \"assistant\", \"content\": \"b\"}"
#define HUMAN "{\"from\": \"human\", \"value\": \"a\"}"
#define GPT "{\"from\": \"gpt\", \"value\": \"b\"}"

static void check(void **state, enum source_kind kind, bool chat, const char *content, const char *rule) {
    const char *path = temp_path(*state, "text");
    struct tokenizer *tokenizer = tokenizer_fixture("gpt2");
    uint32_t end;
    assert_true(tokenizer_find(tokenizer, "<|endoftext|>", &end));
    temp_write(path, content, strlen(content));
    struct dataset_options options = {.eos_token = end, .eos_token_of_0_1_0 = end};
    struct text_of_0_1_0 text = {&options, tokenizer, path, kind, chat};
    expect_status(tokens_of_0_1_0_check(&text), rule ? STATUS_BAD_INPUT : STATUS_OK, rule);
    tokenizer_free(tokenizer);
}

static void documents_change_by_their_end(void **state) {
    check(state, SOURCE_TEXT, false, "a<|endoftext|>b", NULL);
    check(state, SOURCE_TEXT, false, "ab<|endoftext|>", "it added a second end token");
    check(state, SOURCE_JSONL, false, "{\"text\": \"a\"}\n\n{\"text\": \"<|endoftext|>b\"}", NULL);
    check(state, SOURCE_JSONL, false, "{\"text\": \"a\"}\n{\"text\": \"b<|endoftext|>\"}",
          "line 2: Ballast 0.1.0 made other tokens of it: it added a second end token");
}

static void conversations_change_by_their_keys(void **state) {
    static const struct {
        const char *row, *rule;
    } rows[] = {
        {TURNS(USER "," ANSWER), NULL},
        {TURNS(USER "," ANSWER "," USER), "it left out what follows the assistant's last turn"},
        {TURNS(USER ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 1}"), NULL},
        {TURNS(USER ", {\"role\": \"assistant\", \"content\": \"b\", \"weight\": 0}"), "key of a turn: weight"},
        {"{\"tools\": [], \"id\": 1, \"messages\": [" USER "," ANSWER "]}", NULL},
        {"{\"system\": \"s\", \"messages\": [" USER "," ANSWER "]}", "key of a row: system"},
        {"{\"system\": \"\", \"messages\": [" USER "," ANSWER "]}", NULL},
        {"{\"chat_template_kwargs\": {\"a\": 1}, \"messages\": [" USER "," ANSWER "]}", "chat_template_kwargs"},
        {"{\"system\": \"s\", \"conversations\": [" HUMAN "," GPT "]}", NULL},
        {"{\"tools\": \"[]\", \"conversations\": [" HUMAN "," GPT "]}", "key of a row: tools"},
        {"{\"conversations\": [" HUMAN ", {\"from\": \"gpt\", \"value\": \"b\", \"tool_calls\": []}]}",
         "key of a turn: tool_calls"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        check(state, SOURCE_CHAT, true, rows[i].row, rows[i].rule);
    static const char pair[] = "{\"prompt\": [" USER "], \"chosen\": [" ANSWER "], \"rejected\": [" ANSWER "]}";
    check(state, SOURCE_PREFERENCE_CHATS, true, pair, NULL);
}

static void alpaca_changes_without_a_template(void **state) {
    static const char row[] = "{\"instruction\": \"a\", \"output\": \"b\", \"system\": \"s\"}";
    check(state, SOURCE_ALPACA, true, row, NULL);
    check(state, SOURCE_ALPACA, false, row, "key of a row: system");
    check(state, SOURCE_ALPACA, false, "{\"instruction\": \"a\", \"output\": \"b\"}", NULL);
}

/* Examples have always had the template's tokens. */
static void templates_change_documents_alone(void **state) {
    static const char *const rows[] = {"a", "{\"text\": \"a\"}", "{\"prompt\": \"a\", \"completion\": \"b\"}"};
    static const enum source_kind kinds[] = {SOURCE_TEXT, SOURCE_JSONL, SOURCE_PROMPTS};
    const char *path = temp_path(*state, "text");
    struct tokenizer *tokenizer = tokenizer_fixture("llama3");
    assert_true(tokenizer_before(tokenizer)->count > 0);
    for (int i = 0; i < 3; i++) {
        temp_write(path, rows[i], strlen(rows[i]));
        struct dataset_options options = {.eos_token = -1, .eos_token_of_0_1_0 = -1};
        struct text_of_0_1_0 text = {&options, tokenizer, path, kinds[i], false};
        bool same = kinds[i] == SOURCE_PROMPTS;
        expect_status(tokens_of_0_1_0_check(&text), same ? STATUS_OK : STATUS_BAD_INPUT,
                      same ? NULL : "it left out the tokens that the tokenizer's template adds");
    }
    tokenizer_free(tokenizer);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        CASE(documents_change_by_their_end),
        CASE(conversations_change_by_their_keys),
        CASE(alpaca_changes_without_a_template),
        CASE(templates_change_documents_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
