/* Loss masks of conversations, with templates like published ones. Compared with the masks of transformers for the
 * same templates with generation blocks (tests/reference/make_chat_mask_fixtures.py). */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/packed_json.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"

static struct tokenizer *tokenizer;
static json_t *masks;

static int set_up(void **state) {
    masks = packed_json_read("chat/masks.json.gz");
    enum status status = tokenizer_open(BALLAST_FIXTURES "/chat/tokenizer.json", &tokenizer);
    if (status != STATUS_OK) print_error("%s\n", status_message());
    return status == STATUS_OK ? temp_folder_make(state) : -1;
}

static int tear_down(void **state) {
    json_decref(masks);
    tokenizer_free(tokenizer);
    return temp_folder_drop(state);
}

struct chat {
    struct chat_template *template;
    struct example_encoder *examples;
    struct chat_encoder *encoder;
};

static struct chat open_chat(const char *folder, const char *template) {
    struct chat chat;
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    temp_write_text(temp_path(folder, "chat_template.jinja"), template);
    if (chat_template_open(folder, &chat.template) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(example_encoder_create(tokenizer, &chat.examples), STATUS_OK);
    assert_int_equal(chat_encoder_create(chat.template, chat.examples, 0, &chat.encoder), STATUS_OK);
    return chat;
}

static void close_chat(struct chat *chat) {
    chat_encoder_free(chat->encoder);
    example_encoder_free(chat->examples);
    chat_template_free(chat->template);
}

static void print_trained(const char *what, const uint32_t *ids, const char *mask, size_t count) {
    struct token_ids part = {0};
    char *text;
    print_error("  %s: ", what);
    for (size_t from = 0, to; from < count; from = to) {
        for (part.count = 0, to = from; to < count && mask[to] == mask[from]; to++)
            assert_int_equal(vec_push(&part, ids[to]), STATUS_OK);
        assert_int_equal(tokenizer_decode(tokenizer, part.items, part.count, false, &text, NULL), STATUS_OK);
        print_error(mask[from] == '1' ? "«%s»" : "%s", text);
        mem_free(text);
    }
    print_error("\n");
    vec_free(&part);
}

/* Whether the next ids are an example of the fixture. */
static bool is_example(const json_t *example, const struct token_ids *ids, size_t from, size_t to) {
    const json_t *wanted = json_object_get(example, "ids");
    const char *wanted_mask = json_string_value(json_object_get(example, "mask"));
    uint32_t plain[4096];
    char mask[4096] = "";
    bool same = json_array_size(wanted) == to - from;
    assert_true(to - from < sizeof mask);
    for (size_t i = 0; i < to - from; i++) {
        plain[i] = ids->items[from + i] & EXAMPLE_ID;
        mask[i] = ids->items[from + i] & EXAMPLE_TRAINED ? '1' : '0';
        same = same && plain[i] == json_integer_value(json_array_get(wanted, i));
    }
    same = same && strcmp(mask, wanted_mask) == 0;
    if (same) return true;
    print_trained("is    ", plain, mask, to - from);
    for (size_t i = 0; i < json_array_size(wanted); i++)
        plain[i] = (uint32_t)json_integer_value(json_array_get(wanted, i));
    print_trained("not as", plain, wanted_mask, json_array_size(wanted));
    return false;
}

static bool is_case(const struct chat *chat, const json_t *test) {
    const json_t *examples = json_object_get(test, "examples"),
                 *conversations = json_object_get(masks, "conversations");
    json_t *messages = json_array_get(conversations, (size_t)json_integer_value(json_object_get(test, "conversation")));
    json_t *object = json_pack("{s:O}", "messages", messages);
    struct token_ids ids = {0};
    enum status status = chat_encode(chat->encoder, "data.jsonl", 1, object, 0, &ids);
    json_decref(object);
    if (status != STATUS_OK) print_error("  %s\n", status_message());
    bool same = status == STATUS_OK;
    size_t count = 0;
    for (size_t from = 0, to; same && from < ids.count; from = to, count++) {
        for (to = from + 1; to < ids.count && !(ids.items[to] & EXAMPLE_FIRST);)
            to++;
        same = count < json_array_size(examples) && is_example(json_array_get(examples, count), &ids, from, to);
    }
    vec_free(&ids);
    return same && count == json_array_size(examples);
}

static void masks_are_those_of_generation_blocks(void **state) {
    json_t *form, *test;
    size_t i, k, cases = 0, wrong = 0;
    json_array_foreach(json_object_get(masks, "forms"), i, form) {
        struct chat chat = open_chat(*state, json_string_value(json_object_get(form, "template")));
        json_array_foreach(json_object_get(form, "cases"), k, test) {
            cases++;
            if (is_case(&chat, test)) continue;
            print_error("%s, case %zu\n", json_string_value(json_object_get(form, "name")), k);
            wrong++;
        }
        close_chat(&chat);
    }
    print_message("%zu conversations with %zu forms\n", cases, i);
    assert_true(i >= 12 && cases >= 150);
    assert_int_equal(wrong, 0);
}

static void expect_refused(const char *folder, const char *template, const char *message) {
    struct chat chat = open_chat(folder, template);
    struct token_ids ids = {0};
    json_t *object = json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}]}", "messages", "role", "system", "content", "s",
                               "role", "user", "content", "u", "role", "assistant", "content", "a");
    status_clear();
    enum status status = chat_encode(chat.encoder, "data.jsonl", 4, object, 0, &ids);
    if (status != STATUS_BAD_INPUT || !strstr(status_message(), message) ||
        !strstr(status_message(), "data.jsonl: line 4: messages[2]: ") ||
        !strstr(status_hint_text(), "{% generation %}"))
        fail_msg("%s: \"%s\" (%s) does not say \"%s\"", template, status_message(), status_hint_text(), message);
    vec_free(&ids);
    json_decref(object);
    close_chat(&chat);
}

/* Where a turn begins or ends cannot be told, which is said. */
static void ambiguous_turns_are_refused(void **state) {
    /* Nothing of the user's message is in the text, and the model is given something else. */
    expect_refused(*state,
                   "{% for m in messages %}{% if m.role == 'assistant' %}A{{ m.content }}{% endif %}{% endfor %}"
                   "{% if add_generation_prompt %}Q{% endif %}",
                   "begins");
    /* Words are changed beyond recognition, and the system prompt is only in what the model is given. */
    expect_refused(*state,
                   "{% if messages[-1].role == 'user' %}S{% endif %}{% for m in messages %}{{ m.role }}:"
                   "{{ m.content|length }};{% endfor %}",
                   "begins");
    /* What stands behind the user's words is another text once the answer is there. */
    expect_refused(*state,
                   "{% for m in messages %}{{ m.content }}{% if loop.last and m.role == 'user' %}?{% else %}!{% endif "
                   "%}{% endfor %}",
                   "begins");
    /* The mark of an answer is behind everything. */
    expect_refused(*state, "{% for m in messages %}<{{ m.role }}>{{ m.content }}</>\n{% endfor %}<assistant>", "ends");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(masks_are_those_of_generation_blocks),
        cmocka_unit_test(ambiguous_turns_are_refused),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
