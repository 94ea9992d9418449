/* Conversations rendered with templates of known families, compared with transformers' apply_chat_template. */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"
#include "support/chat_fixture.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "text/chat/chat.h"
#include "text/chat/template.h"
#include "text/tokenizer/tokenizer.h"

static json_t *families;
static struct tokenizer *tokenizer;

static int set_up(void **state) { return chat_fixture_open(state, &families, &tokenizer); }

static int tear_down(void **state) { return chat_fixture_close(state, families, tokenizer); }

static void write_config(const char *folder, json_t *config) {
    if (json_write(temp_path(folder, "tokenizer_config.json"), config) != STATUS_OK) fail_msg("%s", status_message());
    json_decref(config);
}

/* A directory with the template and the special tokens of the fixtures. */
static struct chat_template *open_template(const char *folder, const json_t *template) {
    struct chat_template *chat;
    json_t *config = json_deep_copy(json_object_get(families, "special"));
    json_object_set(config, "chat_template", (json_t *)(uintptr_t) template);
    write_config(folder, config);
    if (chat_template_open(folder, &chat) != STATUS_OK) fail_msg("%s", status_message());
    return chat;
}

static enum status render_case(const struct chat_template *chat, const json_t *test, struct jinja_output *out) {
    const json_t *conversation = json_array_get(json_object_get(families, "conversations"),
                                                (size_t)json_integer_value(json_object_get(test, "conversation")));
    json_t *variables = json_object(), *thinking = json_object_get(test, "enable_thinking");
    json_t *messages = chat_normalize_messages(json_object_get(conversation, "messages"));
    if (thinking) json_object_set(variables, "enable_thinking", thinking);
    struct chat_input input = {.messages = messages,
                               .tools = json_object_get(conversation, "tools"),
                               .variables = variables,
                               .add_generation_prompt = json_is_true(json_object_get(test, "add_generation_prompt")),
                               .now_s = json_integer_value(json_object_get(families, "now"))};
    enum status status = chat_template_render(chat, &input, out);
    json_decref(messages);
    json_decref(variables);
    return status;
}

/* The tokens within the ranges of generation blocks are those that transformers masks. */
static void expect_mask(const char *name, const struct jinja_output *output, const struct token_ids *ids,
                        const json_t *mask) {
    int64_t trained = 0, expected = 0;
    for (size_t i = 0; i < json_array_size(mask); i++)
        expected += json_integer_value(json_array_get(mask, i));
    for (size_t i = 0; i < output->generations.count; i++) {
        const struct text_range *range = &output->generations.items[i];
        struct token_ids part = {0};
        assert_int_equal(
            tokenizer_encode(tokenizer, output->text.items + range->from, range->to - range->from, false, &part),
            STATUS_OK);
        trained += (int64_t)part.count;
        vec_free(&part);
    }
    if (trained != expected)
        fail_msg("%s: %lld tokens of %zu, not %lld", name, (long long)trained, ids->count, (long long)expected);
}

static void expect_case(const char *name, const struct chat_template *chat, const json_t *test) {
    const json_t *expected = json_object_get(test, "output"), *expected_ids = json_object_get(test, "ids");
    struct jinja_output output = {0};
    struct token_ids ids = {0};
    enum status status = render_case(chat, test, &output);
    if (!expected) {
        const char *error = json_string_value(json_object_get(test, "error"));
        if (status != STATUS_BAD_INPUT) fail_msg("%s: is rendered, which fails with \"%s\"", name, error);
        if (strncmp(error, "TemplateError: ", 15) == 0) assert_non_null(strstr(status_message(), error + 15));
    } else {
        if (status != STATUS_OK) fail_msg("%s: %s", name, status_message());
        if (output.text.count != json_string_length(expected) ||
            memcmp(output.text.items, json_string_value(expected), output.text.count) != 0)
            fail_msg("%s: \"%.*s\", not \"%s\"", name, (int)output.text.count, output.text.items,
                     json_string_value(expected));
        assert_int_equal(tokenizer_encode(tokenizer, output.text.items, output.text.count, false, &ids), STATUS_OK);
        assert_int_equal(ids.count, json_array_size(expected_ids));
        for (size_t i = 0; i < ids.count; i++)
            assert_int_equal(ids.items[i], json_integer_value(json_array_get(expected_ids, i)));
        if (json_object_get(test, "mask")) expect_mask(name, &output, &ids, json_object_get(test, "mask"));
    }
    vec_free(&ids);
    jinja_output_free(&output);
}

static void families_are_rendered_as_by_transformers(void **state) {
    size_t i, k;
    json_t *family, *test;
    int cases = 0;
    json_array_foreach(json_object_get(families, "families"), i, family) {
        char name[128];
        struct chat_template *chat = open_template(*state, json_object_get(family, "template"));
        json_array_foreach(json_object_get(family, "cases"), k, test) {
            snprintf(name, sizeof name, "%s, case %zu", json_string_value(json_object_get(family, "name")), k);
            expect_case(name, chat, test);
            cases++;
        }
        chat_template_free(chat);
    }
    print_message("%d cases of %zu families\n", cases, i);
    assert_true(i >= 10);
}

static json_t *user_message(void) { return json_pack("[{s:s, s:s}]", "role", "user", "content", "hi"); }

static void expect_text(const struct chat_template *chat, const json_t *tools, const char *expected) {
    struct jinja_output output = {0};
    json_t *messages = user_message();
    struct chat_input input = {.messages = messages, .tools = tools};
    if (chat_template_render(chat, &input, &output) != STATUS_OK) fail_msg("%s", status_message());
    assert_int_equal(vec_push(&output.text, '\0'), STATUS_OK);
    assert_string_equal(output.text.items, expected);
    json_decref(messages);
    jinja_output_free(&output);
}

static void templates_are_found_where_models_have_them(void **state) {
    const char *folder = *state;
    struct chat_template *chat;
    json_t *tools = json_pack("[{}]");
    write_config(folder, json_pack("{s:[{s:s,s:s},{s:s,s:s},{s:s,s:s}], s:{s:s}, s:n}", "chat_template", "name",
                                   "tool_use", "template", "T{{ tools|length }}", "name", "default", "template",
                                   "D{{ bos_token }}{{ unk_token }}{{ pad_token }}", "name", "rag", "template",
                                   "{% unsupported %}", "bos_token", "content", "<b>", "pad_token"));
    temp_write_text(temp_path(folder, "special_tokens_map.json"), "{\"bos_token\": \"<x>\", \"unk_token\": \"<u>\"}");
    assert_int_equal(chat_template_open(folder, &chat), STATUS_OK);
    expect_text(chat, NULL, "D<b><u>");
    expect_text(chat, tools, "T1");
    uint64_t first[2], second[2];
    chat_template_hash(chat, 1, first);
    chat_template_hash(chat, 2, second);
    assert_memory_equal(first, second, sizeof first); /* neither tells the time */
    chat_template_free(chat);
    /* A file comes first. */
    temp_write_text(temp_path(folder, "chat_template.jinja"), "F{{ messages[0].content }}{{ strftime_now('%Y') }}\n");
    assert_int_equal(chat_template_open(folder, &chat), STATUS_OK);
    expect_text(chat, tools, "Fhi1970");
    chat_template_hash(chat, 1, second);
    assert_memory_not_equal(first, second, sizeof first);
    chat_template_hash(chat, 2, first);
    assert_memory_not_equal(first, second, sizeof first);
    chat_template_free(chat);
    json_decref(tools);
}

static void expect_refused(const char *folder, const char *message) {
    struct chat_template *chat;
    status_clear();
    enum status status = chat_template_open(folder, &chat);
    if (status != STATUS_BAD_INPUT || !strstr(status_message(), message))
        fail_msg("\"%s\" does not say \"%s\"", status_message(), message);
}

static void bad_folders_are_refused_by_name(void **state) {
    const char *folder = *state;
    expect_refused(folder, "need a chat template");
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"eos_token\": \"<e>\"}");
    expect_refused(folder, "need a chat template");
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"chat_template\": 3}");
    expect_refused(folder, "tokenizer_config.json: chat_template: must be");
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"chat_template\": [{\"name\": \"default\"}]}");
    expect_refused(folder, "tokenizer_config.json: chat_template: must be");
    temp_write_text(temp_path(folder, "tokenizer_config.json"),
                    "{\"chat_template\": [{\"name\": \"rag\", \"template\": \"x\"}]}");
    expect_refused(folder, "need a chat template");
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"chat_template\": \"a\\nb\\n{% include 'x' %}\"}");
    expect_refused(folder, "tokenizer_config.json: chat_template default: line 3: the statement 'include'");
    temp_write_text(temp_path(folder, "tokenizer_config.json"), "{\"chat_template\"");
    expect_refused(folder, "tokenizer_config.json: ");
    temp_write_text(temp_path(folder, "chat_template.jinja"), "{{ 1 + }}");
    expect_refused(folder, "chat_template.jinja: line 1: the tag ends");
    temp_write_text(temp_path(folder, "chat_template.jinja"), "\xff");
    expect_refused(folder, "chat_template.jinja: is not UTF-8");
}

static enum status open_once(void *folder) {
    struct chat_template *chat;
    TRY(chat_template_open(folder, &chat));
    json_t *messages = user_message();
    struct jinja_output output = {0};
    struct chat_input input = {.messages = messages};
    enum status status = chat_template_render(chat, &input, &output);
    jinja_output_free(&output);
    json_decref(messages);
    chat_template_free(chat);
    return status;
}

static void faults_are_reported(void **state) {
    write_config(*state, json_pack("{s:[{s:s,s:s}], s:s}", "chat_template", "name", "default", "template",
                                   "{{ messages[0].content }}{{ eos_token }}", "eos_token", "<e>"));
    assert_true(fault_sweep(FAULT_ALLOCATE, false, open_once, *state) >= 10);
    assert_true(fault_sweep(FAULT_OPEN, false, open_once, *state) >= 1);
}

static void the_document_is_as_generated(void **state) {
    (void)state;
    char *printed = NULL, *document;
    size_t bytes, document_bytes;
    FILE *out = open_memstream(&printed, &bytes);
    assert_non_null(out);
    chat_print_document(out);
    assert_int_equal(fclose(out), 0);
    assert_int_equal(file_read(BALLAST_SOURCE "/docs/chat.md", 1 << 20, &document, &document_bytes), STATUS_OK);
    if (strcmp(printed, document) != 0) fail_msg("docs/chat.md is old: ballast help templates > docs/chat.md");
    mem_free(document);
    free(printed);
}

int main(void) {
#define IN_FOLDER(test) cmocka_unit_test_setup_teardown(test, temp_folder_make, temp_folder_drop)
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_document_is_as_generated),
        cmocka_unit_test(families_are_rendered_as_by_transformers),
        IN_FOLDER(templates_are_found_where_models_have_them),
        IN_FOLDER(bad_folders_are_refused_by_name),
        IN_FOLDER(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
