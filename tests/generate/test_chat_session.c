/* A conversation keeps what it can in the caches. Its answers equal those to the whole rendering as one prompt. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "generate/chat.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/text_writer.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static const char text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

enum { TOKENS = 270, VOCAB = 300, POSITIONS = 64, TURNS = 3, NEW = 2 };

/* One that keeps history, and one that shows only the last answer's end, so that earlier turns change. */
static const char plain[] = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}\n{% endfor %}"
                            "{% if add_generation_prompt %}[a]{% endif %}";
static const char changing[] =
    "{% for m in messages %}[{{ m.role[0] }}]{% if m.role == 'assistant' and not loop.last and loop.revindex > 3 %}..."
    "{% else %}{{ m.content }}{% endif %}\n{% endfor %}{% if add_generation_prompt %}[a]{% endif %}";

static const char *model_folder(const char *folder, const char *template) {
    char file[600];
    const char *path = temp_path(folder, "model");
    if (!file_exists(path)) text_model_make(path, text, TOKENS, VOCAB, false);
    snprintf(file, sizeof file, "%s/chat_template.jinja", path);
    temp_write_text(file, template);
    return path;
}

static enum status open_session(const char *folder, int64_t tokens, struct chat_session *out) {
    struct plan_options plan = text_writer_plan(POSITIONS);
    struct generate_options options;
    generate_options_init(&options);
    options.tokens = tokens;
    *out = (struct chat_session){0};
    return chat_session_open(folder, &plan, &options, 0, out);
}

static bool collect(void *payload, const char *bytes, size_t count) {
    return text_append(payload, bytes, count) == STATUS_OK;
}

/* The ids of an answer, as they are in the session after it. */
struct reply {
    struct text_buffer text;
    struct chat_answer answer;
};

static void send(struct chat_session *session, const char *line, struct reply *out) {
    *out = (struct reply){0};
    expect_status(chat_session_send(session, line, collect, &out->text, &out->answer), STATUS_OK, NULL);
    assert_int_equal(text_append(&out->text, "", 1), STATUS_OK);
}

/* The same prompt's ids by a model that knows nothing of the conversation: the answer's ids must be the same. */
static void check_from_scratch(const char *folder, const struct chat_session *session, const struct reply *reply) {
    struct chat_session scratch;
    struct token_ids ids = {0};
    struct generate_result result;
    struct text_buffer found = {0};
    int64_t prompt = reply->answer.result.prompt_tokens;
    expect_status(open_session(folder, 0, &scratch), STATUS_OK, NULL);
    for (int64_t i = 0; i < prompt; i++)
        assert_int_equal(vec_push(&ids, session->ids.items[i]), STATUS_OK);
    scratch.writer.options.tokens = session->writer.options.tokens;
    expect_status(generate_continue(&scratch.writer, 0, &ids, collect, &found, &result), STATUS_OK, NULL);
    assert_int_equal(result.tokens, reply->answer.result.tokens);
    assert_int_equal(ids.count, session->ids.count);
    assert_memory_equal(ids.items, session->ids.items, ids.count * sizeof *ids.items);
    vec_free(&ids);
    vec_free(&found);
    chat_session_close(&scratch);
}

static void check_conversation(const char *folder, bool kept) {
    static const char *const lines[TURNS] = {"the river", "ran", "mill"};
    struct chat_session session;
    struct reply reply;
    expect_status(open_session(folder, NEW, &session), STATUS_OK, NULL);
    expect_status(chat_session_set_system(&session, "sea"), STATUS_OK, NULL);
    for (int i = 0; i < TURNS; i++) {
        int64_t before = (int64_t)session.ids.count;
        send(&session, lines[i], &reply);
        assert_int_equal(reply.answer.dropped, 0);
        /* At most the last answer and what is new: what came before is there. */
        if (i > 0 && kept)
            assert_true(reply.answer.read_tokens <= reply.answer.result.prompt_tokens - before + NEW &&
                        reply.answer.read_tokens < reply.answer.result.prompt_tokens);
        check_from_scratch(folder, &session, &reply);
        vec_free(&reply.text);
    }
    assert_int_equal(json_array_size(session.messages), 2 * TURNS);
    expect_status(chat_session_reset(&session), STATUS_OK, NULL);
    send(&session, lines[0], &reply);
    check_from_scratch(folder, &session, &reply);
    vec_free(&reply.text);
    chat_session_close(&session);
}

static void answers_are_those_from_scratch(void **state) {
    check_conversation(model_folder(*state, plain), true);
    check_conversation(model_folder(*state, changing), false);
}

/* The same again has only one token to compute. */
static void what_is_there_is_not_computed_again(void **state) {
    struct chat_session session;
    struct reply reply;
    expect_status(open_session(model_folder(*state, plain), 3, &session), STATUS_OK, NULL);
    send(&session, "the old mill", &reply);
    assert_int_equal(reply.answer.read_tokens, reply.answer.result.prompt_tokens);
    vec_free(&reply.text);
    expect_status(chat_session_reset(&session), STATUS_OK, NULL);
    send(&session, "the old mill", &reply);
    assert_int_equal(reply.answer.read_tokens, 1);
    vec_free(&reply.text);
    chat_session_close(&session);
}

static void full_caches_are_reported(void **state) {
    struct chat_session session;
    struct reply reply;
    const char *folder = model_folder(*state, plain);
    int64_t dropped = 0;
    expect_status(open_session(folder, 0, &session), STATUS_OK, NULL);
    session.max = 8;
    for (int i = 0; i < 6; i++) {
        send(&session, "the river ran", &reply);
        dropped += reply.answer.dropped;
        assert_true((int64_t)session.ids.count <= POSITIONS);
        check_from_scratch(folder, &session, &reply);
        vec_free(&reply.text);
    }
    assert_true(dropped >= 2);
    /* An answer ends where the caches do. */
    session.max = 0;
    send(&session, "the sea", &reply);
    assert_true(reply.answer.result.finish != GENERATE_FINISH_LENGTH || session.ids.count == POSITIONS);
    vec_free(&reply.text);
    size_t messages = json_array_size(session.messages);
    char much[400] = "";
    for (int i = 0; i < 60; i++)
        strcat(much, "qjz");
    struct chat_answer answer;
    struct text_buffer none = {0};
    expect_status(chat_session_send(&session, much, collect, &none, &answer), STATUS_BAD_INPUT, "the caches hold 64");
    assert_int_equal(json_array_size(session.messages), messages);
    chat_session_close(&session);
}

static volatile sig_atomic_t interrupted;

static bool interrupt(void *payload, const char *bytes, size_t count) {
    (void)payload, (void)bytes, (void)count;
    interrupted = 1;
    return true;
}

static void an_interrupted_answer_is_kept(void **state) {
    struct chat_session session;
    struct chat_answer answer;
    interrupted = 0;
    expect_status(open_session(model_folder(*state, plain), 20, &session), STATUS_OK, NULL);
    session.writer.options.interrupted = &interrupted;
    expect_status(chat_session_send(&session, "the river", interrupt, NULL, &answer), STATUS_OK, NULL);
    assert_int_equal(answer.result.finish, GENERATE_FINISH_INTERRUPTED);
    assert_int_equal(json_array_size(session.messages), 2);
    chat_session_close(&session);
}

/* What stands behind an assistant's text ends answers, if it is a special token. */
static void the_end_of_a_turn_is_found(void **state) {
    char path[600];
    json_t *object, *added = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", TOKENS, "content", "<end>",
                                       "single_word", 0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    const char *folder = temp_path(*state, "ended");
    text_model_make(folder, text, TOKENS, VOCAB, false);
    snprintf(path, sizeof path, "%s/tokenizer.json", folder);
    expect_status(json_read_object(path, 1 << 20, &object), STATUS_OK, NULL);
    json_array_append_new(json_object_get(object, "added_tokens"), added);
    expect_status(json_write(path, object), STATUS_OK, NULL);
    json_decref(object);
    snprintf(path, sizeof path, "%s/chat_template.jinja", folder);
    temp_write_text(path, "{% for m in messages %}{{ m.content }}<end>{% endfor %}");
    struct chat_session session;
    expect_status(open_session(folder, 3, &session), STATUS_OK, NULL);
    assert_true(generation_config_is_end(&session.model.config, TOKENS));
    assert_int_equal(session.model.config.ends_given, 0);
    chat_session_close(&session);
}

static const char *swept;

static bool pass_over(void *payload, const char *bytes, size_t count) {
    (void)payload, (void)bytes, (void)count;
    return true;
}

static enum status talk(void *payload) {
    struct chat_session session;
    struct chat_answer answer;
    (void)payload;
    enum status status = open_session(swept, 2, &session);
    if (status == STATUS_OK) status = chat_session_send(&session, "the", pass_over, NULL, &answer);
    if (status == STATUS_OK) status = chat_session_send(&session, "sea", pass_over, NULL, &answer);
    chat_session_close(&session);
    return status;
}

static void faults_are_reported(void **state) {
    swept = model_folder(*state, plain);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, talk, NULL) > 100);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_are_those_from_scratch), cmocka_unit_test(what_is_there_is_not_computed_again),
        cmocka_unit_test(full_caches_are_reported),       cmocka_unit_test(an_interrupted_answer_is_kept),
        cmocka_unit_test(the_end_of_a_turn_is_found),     cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
