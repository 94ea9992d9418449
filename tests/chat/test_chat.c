/* Conversations as marked ids: every turn of the assistant is trained once, in the context that it answers. */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/mem.h"
#include "support/chat_fixture.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"

static struct tokenizer *tokenizer;
static json_t *families;

struct chat {
    struct chat_template *template;
    struct example_encoder *examples;
    struct chat_encoder *encoder;
};

static int set_up(void **state) { return chat_fixture_open(state, &families, &tokenizer); }

static int tear_down(void **state) { return chat_fixture_close(state, families, tokenizer); }

static enum status open_chat(const char *folder, struct chat *out) {
    *out = (struct chat){0};
    TRY(chat_template_open(folder, &out->template));
    TRY(example_encoder_create(tokenizer, &out->examples));
    return chat_encoder_create(out->template, out->examples, 0, &out->encoder);
}

static void close_chat(struct chat *chat) {
    chat_encoder_free(chat->encoder);
    example_encoder_free(chat->examples);
    chat_template_free(chat->template);
}

static struct chat open_text(const char *folder, const char *template) {
    struct chat chat;
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"bos_token\": \"<s>\", \"eos_token\": \"</s>\"}");
    temp_write_text(temp_path(folder, "chat_template.jinja"), template);
    if (open_chat(folder, &chat) != STATUS_OK) fail_msg("%s", status_message());
    return chat;
}

static struct chat open_family(const char *folder, const char *name) {
    size_t i;
    json_t *family;
    json_array_foreach(json_object_get(families, "families"), i, family) {
        if (strcmp(json_string_value(json_object_get(family, "name")), name) == 0)
            return open_text(folder, json_string_value(json_object_get(family, "template")));
    }
    fail_msg("no family %s", name);
    abort();
}

/* The text of the ids, trained ones between « and », masked ones between ~, "|" before each example's first. */
static char *describe(const struct token_ids *marked) {
    char *all = mem_string("");
    for (size_t from = 0, to; from < marked->count; from = to) {
        const uint32_t marks = EXAMPLE_TRAINED | EXAMPLE_MASKED, here = marked->items[from] & marks;
        bool trained = here == EXAMPLE_TRAINED, first = marked->items[from] & EXAMPLE_FIRST;
        struct token_ids ids = {0};
        char *text;
        for (to = from; to < marked->count; to++) {
            if ((marked->items[to] & marks) != here || (to > from && (marked->items[to] & EXAMPLE_FIRST))) break;
            assert_int_equal(vec_push(&ids, marked->items[to] & EXAMPLE_ID), STATUS_OK);
        }
        assert_int_equal(tokenizer_decode(tokenizer, ids.items, ids.count, false, &text, NULL), STATUS_OK);
        char *longer = mem_format("%s%s%s%s%s", all, first ? "|" : "",
                                  trained ? "«"
                                  : here  ? "~"
                                          : "",
                                  text,
                                  trained ? "»"
                                  : here  ? "~"
                                          : "");
        mem_free(all);
        mem_free(text);
        vec_free(&ids);
        all = longer;
    }
    return all;
}

static void expect_marked(const struct chat *chat, const char *json, const char *expected) {
    json_t *object = json_loads(json, 0, NULL);
    struct token_ids ids = {0};
    assert_non_null(object);
    if (chat_encode(chat->encoder, "data.jsonl", 1, object, 0, &ids) != STATUS_OK) fail_msg("%s", status_message());
    char *text = describe(&ids);
    assert_string_equal(text, expected);
    mem_free(text);
    vec_free(&ids);
    json_decref(object);
}

#define TWO_TURNS                                                                                                      \
    "{\"messages\": [{\"role\": \"user\", \"content\": \"u1\"}, {\"role\": \"assistant\", \"content\": \"a1\"},"       \
    " {\"role\": \"user\", \"content\": \"u2\"}, {\"role\": \"assistant\", \"content\": \"a2\"},"                      \
    " {\"role\": \"user\", \"content\": \"u3\"}]}"

static void turns_are_marked(void **state) {
    struct chat chat = open_family(*state, "chatml");
    expect_marked(
        &chat, TWO_TURNS,
        "|<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\n«a1<|im_end|>\n»<|im_start|>user\nu2<|im_end|>"
        "\n<|im_start|>assistant\n«a2<|im_end|>\n»<|im_start|>user\nu3<|im_end|>\n");
    close_chat(&chat);
    chat = open_family(*state, "llama2");
    expect_marked(&chat, TWO_TURNS,
                  "|<s>[INST] u1 [/INST]« a1 </s>»<s>[INST] u2 [/INST]« a2 </s>»<s>[INST] u3 [/INST]");
    close_chat(&chat);
    chat = open_family(*state, "llama3");
    expect_marked(
        &chat, TWO_TURNS,
        "|<s><|start_header_id|>user<|end_header_id|>\n\nu1<|eot_id|><|start_header_id|>assistant"
        "<|end_header_id|>\n\n«a1<|eot_id|>»<|start_header_id|>user<|end_header_id|>\n\nu2<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n«a2<|eot_id|>»<|start_header_id|>user<|end_header_id|>"
        "\n\nu3<|eot_id|>");
    close_chat(&chat);
    chat = open_family(*state, "mistral");
    expect_marked(&chat, TWO_TURNS, "|<s>[INST] u1[/INST]« a1</s>»[INST] u2[/INST]« a2</s>»[INST] u3[/INST]");
    close_chat(&chat);
}

/* A turn whose weight is 0 is no target, not even where all tokens are trained on. */
static void weights_of_turns_are_applied(void **state) {
    static const struct {
        const char *keys[2]; /* of the first and the second answer */
        const char *marked;
    } cases[] = {
        {{"\"weight\": 0", "\"weight\": 1"}, "m~a1e~m«a2e»"},
        {{"\"train\": false", "\"train\": true"}, "m~a1e~m«a2e»"},
        {{"\"loss\": true", "\"loss\": false"}, "m«a1e»m~a2e~"},
        {{"\"training\": null", "\"weight\": 0.0"}, "m«a1e»m~a2e~"},
    };
    static const char blocks[] = "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}e"
                                 "{% endgeneration %}{% else %}m{% endif %}{% endfor %}",
                      plain[] = "{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content }}e"
                                "{% else %}m{% endif %}{% endfor %}";
    for (int form = 0; form < 2; form++) {
        struct chat chat = open_text(*state, form ? blocks : plain);
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            char json[400], marked[64];
            snprintf(json, sizeof json,
                     "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": "
                     "\"a1\", %s}, {\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": "
                     "\"a2\", %s}]}",
                     cases[i].keys[0], cases[i].keys[1]);
            snprintf(marked, sizeof marked, "|%s", cases[i].marked);
            expect_marked(&chat, json, marked);
        }
        close_chat(&chat);
    }
}

/* Its blocks say what is trained on: the last user's message is rendered too, since nothing is cut off. */
static void generation_blocks_decide(void **state) {
    struct chat chat =
        open_text(*state, "{% for m in messages %}{{ m.role }}:{% if m.role == 'assistant' %}"
                          "{% generation %} {{ m.content }}</s>{% endgeneration %}{% else %} {{ m.content }}"
                          "{% endif %}{{ '\\n' }}{% endfor %}");
    expect_marked(&chat, TWO_TURNS, "|user: u1\nassistant:« a1</s>»\nuser: u2\nassistant:« a2</s>»\nuser: u3\n");
    close_chat(&chat);
}

/* A template that leaves thoughts out of earlier turns: these get examples of their own, in which they are the last. */
static void turns_that_change_get_their_own_example(void **state) {
    struct chat chat = open_family(*state, "qwen3");
    expect_marked(
        &chat,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"u1\"}, {\"role\": \"assistant\", \"content\": "
        "\"<think>\\nt1\\n</think>\\n\\na1\"}, {\"role\": \"user\", \"content\": \"u2\"}, {\"role\": "
        "\"assistant\", \"content\": \"a2\", \"reasoning\": \"t2\"}]}",
        "|<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\na1<|im_end|>\n<|im_start|>user\nu2<|im_end|>\n"
        "<|im_start|>assistant\n«<think>\nt2\n</think>\n\na2<|im_end|>\n»"
        "|<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\n«<think>\nt1\n</think>\n\na1<|im_end|>\n»");
    /* Tool calls after one question stay together: their thoughts are kept. */
    expect_marked(
        &chat,
        "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}, {\"role\": \"assistant\", \"content\": \"\", "
        "\"reasoning_content\": \"t1\", \"tool_calls\": [{\"function\": {\"name\": \"f\", \"arguments\": {\"x\": "
        "3}}}]}, {\"role\": \"tool\", \"content\": \"5\"}, {\"role\": \"assistant\", \"content\": \"a\", "
        "\"reasoning_content\": \"t2\"}]}",
        "|<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n«<think>\nt1\n</think>\n\n<tool_call>\n{\"name\": "
        "\"f\", \"arguments\": {\"x\": 3}}\n</tool_call><|im_end|>\n»<|im_start|>user\n<tool_response>\n5\n"
        "</tool_response><|im_end|>\n<|im_start|>assistant\n«<think>\nt2\n</think>\n\na<|im_end|>\n»");
    close_chat(&chat);
}

static void without_an_answer_nothing_is_marked(void **state) {
    struct chat chat = open_family(*state, "chatml");
    expect_marked(&chat, "{\"messages\": [{\"role\": \"user\", \"content\": \"u\"}], \"tools\": null}",
                  "|<|im_start|>user\nu<|im_end|>\n");
    close_chat(&chat);
}

static void bad_conversations_are_named_by_line(void **state) {
    static const struct {
        const char *json, *message;
    } cases[] = {
        {"{}", "data.jsonl: line 7: messages: missing"},
        {"{\"messages\": []}", "line 7: messages: must be a list of at least one"},
        {"{\"messages\": {\"role\": \"user\"}}", "line 7: messages: must be a list"},
        {"{\"messages\": [{\"content\": \"x\"}]}", "line 7: messages[0]: must be an object with a \"role\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, 3]}", "line 7: messages[1]: must be"},
        {"{\"messages\": [{\"role\": 3}]}", "line 7: messages[0]"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"assistant\", \"content\": \"y\", "
         "\"weight\": 0.5}]}",
         "line 7: messages[1].weight: must be 0, 1, true or false"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\", \"train\": true}, {\"role\": \"assistant\", "
         "\"content\": \"y\"}]}",
         "line 7: messages[0].train: only the assistant's turns"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}], \"tools\": 3}", "line 7: tools: must be a list"},
        {"{\"messages\": [{\"role\": \"assistant\", \"content\": \"x\"}]}",
         "line 7: messages: begin with the assistant"},
        {"{\"messages\": [{\"role\": \"user\", \"content\": 3}, {\"role\": \"assistant\", \"content\": \"x\"}]}",
         "line 7: "},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"x\"}, {\"role\": \"user\", \"content\": \"x\"}, "
         "{\"role\": "
         "\"assistant\", \"content\": \"x\"}]}",
         "chat_template.jinja: line 1: the template says: user and assistant must take turns"},
    };
    struct chat chat = open_family(*state, "llama2");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        json_t *object = json_loads(cases[i].json, 0, NULL);
        struct token_ids ids = {0};
        assert_non_null(object);
        status_clear();
        enum status status = chat_encode(chat.encoder, "data.jsonl", 7, object, 0, &ids);
        if (status != STATUS_BAD_INPUT || !strstr(status_message(), cases[i].message))
            fail_msg("%s: \"%s\" does not say \"%s\"", cases[i].json, status_message(), cases[i].message);
        vec_free(&ids);
        json_decref(object);
    }
    close_chat(&chat);
}

/* Quadratic work is bounded. */
static void too_many_turns_are_refused(void **state) {
    enum { TURNS = 3000 };
    struct chat chat = open_family(*state, "chatml");
    json_t *messages = json_array(), *object = json_pack("{s:o}", "messages", messages);
    for (int i = 0; i < TURNS; i++)
        json_array_append_new(messages, json_pack("{s:s, s:s}", "role", i % 2 ? "assistant" : "user", "content",
                                                  "some words that are said again and again"));
    struct token_ids ids = {0};
    assert_int_equal(chat_encode(chat.encoder, "data.jsonl", 1, object, 0, &ids), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "too many"));
    vec_free(&ids);
    json_decref(object);
    close_chat(&chat);
}

static enum status encode_once(void *payload) {
    struct chat chat;
    struct token_ids ids = {0};
    json_t *object = json_loads(TWO_TURNS, 0, NULL);
    enum status status = object ? open_chat(payload, &chat) : STATUS_FAILED;
    if (status == STATUS_OK) status = chat_encode(chat.encoder, "data.jsonl", 1, object, 0, &ids);
    if (object) close_chat(&chat);
    vec_free(&ids);
    json_decref(object);
    return status;
}

static void faults_are_reported(void **state) {
    struct chat chat = open_family(*state, "qwen3");
    close_chat(&chat);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, encode_once, *state) >= 20);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        IN_FOLDER(turns_are_marked),
        IN_FOLDER(weights_of_turns_are_applied),
        IN_FOLDER(generation_blocks_decide),
        IN_FOLDER(turns_that_change_get_their_own_example),
        IN_FOLDER(without_an_answer_nothing_is_marked),
        IN_FOLDER(bad_conversations_are_named_by_line),
        IN_FOLDER(too_many_turns_are_refused),
        IN_FOLDER(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
