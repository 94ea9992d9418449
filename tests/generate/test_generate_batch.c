/* Many texts at a time: each equals the text generated alone, whatever the others are. Also reads prompts from
 * files. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/text.h"
#include "generate/batch.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

enum { TOKENS = 270, VOCAB = 300, POSITIONS = 40, MAX = 14 };

static const char prompt_lines[] =
    "the river\nran\nthe sea, to the sea by the mill, the old\nby\r\nx\nq\nmill the mill\n"
    "on to the sea\nand\nthe\nold mill, old river, old sea";

static const char template[] = "{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}"
                               "{% if add_generation_prompt %}[assistant]{% endif %}";

static const char *model_folder(const char *folder) {
    const char *path = temp_path(folder, "model");
    if (file_exists(path)) return path;
    text_model_make(path, text, TOKENS, VOCAB, false);
    char file[600];
    snprintf(file, sizeof file, "%s/chat_template.jinja", path);
    temp_write_text(file, template);
    /* Some texts end early. */
    snprintf(file, sizeof file, "%s/generation_config.json", path);
    temp_write_text(file,
                    "{\"eos_token_id\": [3, 30, 60, 100, 101, 102, 103, 104, 105, 106, 107, 108, 200, 260, 263]}");
    return path;
}

struct batch_options {
    const char *path;
    int64_t batch;
    const char *only; /* this prompt alone, as the first of all */
    bool chat;
};

static enum status write_line(void *payload, const struct batch_text *written) {
    struct text_buffer *all = payload;
    char line[4096];
    int bytes = snprintf(line, sizeof line, "%.*s|%lld %lld %s\n", (int)written->bytes, written->text,
                         (long long)written->result->prompt_tokens, (long long)written->result->tokens,
                         generate_finish_name(written->result->finish));
    return text_append(all, line, (size_t)bytes);
}

static enum status write_prompts(struct prompt_encoder *encoder, const struct batch_options *options,
                                 struct prompts *prompts, struct writer *writer, struct text_buffer *all) {
    static const char *const stops[] = {"xyz", "e"};
    struct writer_model *model = encoder->model;
    struct generate_options generate;
    struct generate_result total;
    generate_options_init(&generate);
    generate.tokens = MAX;
    generate.stops = stops;
    generate.stop_count = 1;
    TRY(options->only ? prompts_add_text(encoder, options->only, prompts)
                      : prompts_read(encoder, options->path, prompts));
    TRY(writer_model_load(model));
    TRY(writer_create(&model->engine, model->tokenizer, &model->config, &generate, writer));
    TRY(generate_batch(writer, prompts, write_line, all, &total));
    return text_append(all, "", 1);
}

/* Lines "TEXT|PROMPT_TOKENS TOKENS FINISH" of all prompts as one string; vec_free. */
static enum status write_batch(const char *folder, const struct batch_options *options, struct text_buffer *all) {
    struct plan_options plan = text_writer_plan(POSITIONS);
    struct writer_model model = {0};
    struct writer writer = {0};
    struct prompts prompts = {0};
    struct prompt_encoder encoder = {.model = &model, .chat = options->chat};
    if (options->batch > 0) SETTINGS_GIVE(&plan, batch, options->batch);
    enum status status = writer_model_open(folder, &plan, &model);
    if (status == STATUS_OK) status = write_prompts(&encoder, options, &prompts, &writer, all);
    writer_free(&writer);
    prompts_free(&prompts);
    prompt_encoder_close(&encoder);
    writer_model_close(&model);
    return status;
}

static int count(const char *all, const char *what) {
    int found = 0;
    for (const char *at = all; (at = strstr(at, what)); at++)
        found++;
    return found;
}

static void any_batch_is_the_same(void **state) {
    static const int64_t sizes[] = {1, 2, 3, 8, 10, 17};
    const char *folder = model_folder(*state), *path = temp_path(*state, "prompts.txt");
    struct text_buffer first = {0};
    temp_write_text(path, prompt_lines);
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        struct batch_options options = {.path = path, .batch = sizes[i]};
        struct text_buffer all = {0};
        expect_status(write_batch(folder, &options, &all), STATUS_OK, NULL);
        if (i == 0) first = all;
        assert_string_equal(all.items, first.items);
        if (i > 0) vec_free(&all);
    }
    int full = count(first.items, " length\n"), ended = count(first.items, " end\n");
    assert_int_equal(full + ended, 11);
    assert_true(full > 0 && ended > 0);
    vec_free(&first);
}

/* The first of many is what it is alone; the same prompt has another text at another place. */
static void a_text_alone_is_the_same(void **state) {
    const char *folder = model_folder(*state), *path = temp_path(*state, "same.txt");
    struct text_buffer many = {0}, alone = {0};
    temp_write_text(path, "the river\nthe river\nthe river\n");
    expect_status(write_batch(folder, &(struct batch_options){.path = path, .batch = 3}, &many), STATUS_OK, NULL);
    expect_status(write_batch(folder, &(struct batch_options){.only = "the river", .batch = 1}, &alone), STATUS_OK,
                  NULL);
    size_t line = strlen(alone.items);
    assert_memory_equal(many.items, alone.items, line);
    assert_int_not_equal(strncmp(many.items + line, alone.items, line), 0);
    vec_free(&many);
    vec_free(&alone);
}

/* The same conversation as a text with --chat, as messages, and as its rendering. */
static void prompts_have_several_forms(void **state) {
    const char *folder = model_folder(*state), *path = temp_path(*state, "prompts.jsonl");
    static const char *const lines[] = {
        "{\"messages\": [{\"role\": \"user\", \"content\": \"the river\"}], \"tools\": null}\n\n",
        "{\"prompt\": \"[user] the river\\n[assistant]\"}\r\n",
    };
    struct text_buffer chat = {0};
    expect_status(write_batch(folder, &(struct batch_options){.only = "the river", .batch = 1, .chat = true}, &chat),
                  STATUS_OK, NULL);
    for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
        struct text_buffer other = {0};
        temp_write_text(path, lines[i]);
        expect_status(write_batch(folder, &(struct batch_options){.path = path, .batch = 2}, &other), STATUS_OK, NULL);
        assert_string_equal(chat.items, other.items);
        vec_free(&other);
    }
    vec_free(&chat);
}

static void bad_prompts_are_refused(void **state) {
    static const char *const bad[][2] = {
        {"{\"prompt\": \"a\"}\n{\"prompt\": 3}\n", "prompts.jsonl: line 2: must have either"},
        {"{\"prompt\": \"a\", \"messages\": []}\n", "line 1: must have either"},
        {"{\"text\": \"a\"}\n", "line 1: must have either"},
        {"\n\n{\"prompt\": \"a\"\n", "line 3: not valid JSON"},
        {"[1]\n", "line 1: not a JSON object"},
        {"{\"messages\": []}\n", "line 1: messages: must be a list of at least one"},
        {"{\"messages\": [{\"content\": \"a\"}]}\n", "line 1: messages[0]: must be an object with a \"role\""},
        {"{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}], \"tools\": 1}\n", "line 1: tools: "},
        {"\n", "prompts.jsonl: holds no prompt"},
        {"", "prompts.jsonl: holds no prompt"},
    };
    const char *folder = model_folder(*state), *path = temp_path(*state, "prompts.jsonl");
    struct text_buffer all = {0};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        temp_write_text(path, bad[i][0]);
        expect_status(write_batch(folder, &(struct batch_options){.path = path}, &all), STATUS_BAD_INPUT, bad[i][1]);
    }
    temp_write(temp_path(*state, "zero.txt"), "a\nb\0c\n", 6);
    struct batch_options zero = {.path = temp_path(*state, "zero.txt")};
    expect_status(write_batch(folder, &zero, &all), STATUS_BAD_INPUT, "zero.txt: line 2: holds a zero byte");
    struct batch_options large = {.only = "a", .batch = 1 << 28};
    expect_status(write_batch(folder, &large, &all), STATUS_BAD_INPUT, "too many rows");
    struct batch_options many = {.only = "a", .batch = 1 << 20};
    expect_status(write_batch(folder, &many, &all), STATUS_NO_FIT, NULL);
    vec_free(&all);
}

static const char *swept_folder, *swept_path;

static enum status write_swept(void *payload) {
    struct text_buffer all = {0};
    (void)payload;
    enum status status = write_batch(swept_folder, &(struct batch_options){.path = swept_path, .batch = 2}, &all);
    vec_free(&all);
    return status;
}

static void faults_are_reported(void **state) {
    swept_folder = model_folder(*state);
    swept_path = temp_path(*state, "few.jsonl");
    temp_write_text(swept_path, "{\"prompt\": \"the\"}\n{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    assert_true(fault_sweep(FAULT_ALLOCATE, false, write_swept, NULL) > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_batch_is_the_same),      cmocka_unit_test(a_text_alone_is_the_same),
        cmocka_unit_test(prompts_have_several_forms), cmocka_unit_test(bad_prompts_are_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
