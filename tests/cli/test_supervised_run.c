/* Fine-tuning with the program: examples are packed, mixed and masked, and a stopped run resumes bit for bit. */
/* ctest: PROCESSORS 2 */
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "support/run_program.h"
#include "support/temp_folder.h"
#include "support/tiny_run.h"
#include "support/unit.h"

#define EXPECT(folder, status, texts, ...)                                                                             \
    program_expect(folder, status, texts, (const char *const[]){__VA_ARGS__, NULL})
#define TEXTS(...) ((const char *const[]){__VA_ARGS__, NULL})
#define SETTINGS                                                                                                       \
    "--batch", "3", "--seq", "24", "--micro-batch", "2", "--schedule-steps", "8", "--warmup-steps", "2", "--lr",       \
        "1e-2", "--dtype", "fp32", "--quiet"

static void write_keys(const char *path, const char *first, const char *second, const char *ending) {
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    for (int i = 0; i < 40; i++)
        fprintf(file, "{\"%s\": \"%d and %d\", \"%s\": \" is %d%s\"}\n", first, i, i % 7, second, i + i % 7, ending);
    assert_int_equal(fclose(file), 0);
}

static void write_examples(const char *path, const char *ending) { write_keys(path, "prompt", "completion", ending); }

static int set_up(void **state) {
    if (temp_folder_make(state) != 0) return -1;
    make_text(temp_path(*state, "text.txt"), 3000);
    make_tiny_model(*state, temp_path(*state, "model"), temp_path(*state, "text.txt"));
    write_examples(temp_path(*state, "a.jsonl"), "");
    write_examples(temp_path(*state, "b.jsonl"), ", says the river");
    return 0;
}

static void resumed_runs_are_the_same(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model");
    char text[4096], a[4096], whole[4096], cut[4096];
    snprintf(text, sizeof text, "%s:0.2", temp_path(folder, "text.txt"));
    snprintf(a, sizeof a, "%s:0.8", temp_path(folder, "a.jsonl"));
    snprintf(whole, sizeof whole, "%s", temp_path(folder, "whole"));
    snprintf(cut, sizeof cut, "%s", temp_path(folder, "cut"));
    EXPECT(folder, 0, NULL, "train", model, text, a, "--valid", temp_path(folder, "b.jsonl"), "-o", whole, "--steps",
           "8", SETTINGS);
    EXPECT(folder, 0, NULL, "train", model, text, a, "--valid", temp_path(folder, "b.jsonl"), "-o", cut, "--steps", "3",
           SETTINGS);
    EXPECT(folder, 0, NULL, "resume", cut, "--steps", "8", "--quiet");
    assert_true(files_equal(temp_path(whole, "model/model.safetensors"), temp_path(cut, "model/model.safetensors")));
    /* Less the validation at the end of the first half. */
    char *metrics = tiny_run_metrics(whole), *resumed = tiny_run_metrics(cut);
    for (char *line = strtok(metrics, "\n"); line; line = strtok(NULL, "\n"))
        assert_non_null(strstr(resumed, line));
    mem_free(metrics);
    mem_free(resumed);
}

/* Columns change how lines are read and nothing else, and a resumed run has those that it began with. */
static void runs_keep_columns(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *named = temp_path(folder, "named.jsonl");
    char own[4096], other[4096];
    snprintf(own, sizeof own, "%s", temp_path(folder, "own"));
    snprintf(other, sizeof other, "%s", temp_path(folder, "other"));
    write_keys(named, "question", "answer", "");
    EXPECT(folder, 0, NULL, "train", model, temp_path(folder, "a.jsonl"), "-o", own, "--steps", "6", SETTINGS);
    EXPECT(folder, 0, NULL, "train", model, named, "--columns", "prompt=question,completion=answer", "-o", other,
           "--steps", "3", SETTINGS);
    EXPECT(folder, 0, NULL, "resume", other, "--steps", "6", "--quiet");
    assert_true(files_equal(temp_path(own, "model/model.safetensors"), temp_path(other, "model/model.safetensors")));
    EXPECT(folder, 0, NULL, "eval", model, named, "--columns", "text=question", "--seq", "24", "--quiet");
    EXPECT(folder, 2, TEXTS("line 1: text: missing: the keys are question, answer", "--columns prompt=question"),
           "eval", model, named, "--seq", "24");
    EXPECT(folder, 2, TEXTS("line 1: answers: missing: the keys are question, answer"), "eval", model, named,
           "--columns", "prompt=question,completion=answers", "--seq", "24");
    EXPECT(folder, 2, TEXTS("--columns: 'question' does not say"), "train", model, named, "--columns", "question", "-o",
           temp_path(folder, "bad"), SETTINGS);
}

/* Completions are less than all tokens, and packing changes nothing of a file's loss. */
static void eval_counts_the_requested_tokens(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *data = temp_path(folder, "a.jsonl");
    double loss[3];
    int64_t tokens[3];
    const char *const packing[] = {"off", "on", "on"}, *const on[] = {"completions", "completions", "all"};
    for (int i = 0; i < 3; i++) {
        struct program_run run = PROGRAM(folder, "eval", model, data, "--seq", "24", "--dtype", "fp32", "--json",
                                         "--packing", packing[i], "--loss-on", on[i]);
        assert_int_equal(run.status, 0);
        json_t *object = json_loads(run.out, 0, NULL);
        const json_t *total = json_object_get(object, "total");
        loss[i] = json_real_value(json_object_get(total, "loss"));
        tokens[i] = json_integer_value(json_object_get(total, "tokens"));
        json_decref(object);
        program_run_free(&run);
    }
    assert_int_equal(tokens[0], tokens[1]);
    assert_true(tokens[2] > tokens[1]);
    assert_true(loss[0] / loss[1] - 1 < 1e-5 && loss[1] / loss[0] - 1 < 1e-5);
}

/* A number of a run's last line of metrics. */
static double last_metric(const char *run, const char *name) {
    char *metrics = tiny_run_metrics(run), *at = NULL;
    for (char *next = strstr(metrics, name); next; next = strstr(next + 1, name))
        at = next;
    assert_non_null(at);
    double value = atof(strchr(at, ':') + 1);
    mem_free(metrics);
    return value;
}

/* Training packs where it is not told otherwise. The held-out examples are the same either way, and so is their loss.
 */
static void packing_is_the_default_and_reported(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *data = temp_path(folder, "a.jsonl");
    char packed[4096], apart[4096];
    snprintf(packed, sizeof packed, "%s", temp_path(folder, "packed"));
    snprintf(apart, sizeof apart, "%s", temp_path(folder, "apart"));
#define ONE_STEP "--seq", "32", "--steps", "1", "--lr", "1e-12", "--valid-fraction", "0.3", "--dtype", "fp32"
    EXPECT(folder, 0, TEXTS("a.jsonl: 40 examples in 20 rows, 79% full\n"), "train", model, data, "-o", packed,
           ONE_STEP);
    EXPECT(folder, 0, TEXTS("a.jsonl: 40 examples in 40 rows, 39% full; packed they need 20 rows"), "train", model,
           data, "-o", apart, "--packing", "off", ONE_STEP);
    double ratio = last_metric(packed, "val_loss") / last_metric(apart, "val_loss");
    assert_true(ratio - 1 < 1e-6 && 1 - ratio < 1e-6);
    EXPECT(folder, 0,
           TEXTS("40 of 40 examples are longer than a sequence of 8 tokens and are cut: the 95th percentile "
                 "is 13 tokens, the longest 13; --seq 13 cuts none"),
           "eval", model, data, "--seq", "8", "--loss-on", "all");
    FILE *file = fopen(temp_path(folder, "long.jsonl"), "w");
    assert_non_null(file);
    fprintf(file, "{\"prompt\": \"a\", \"completion\": \"%0100d\"}\n", 0);
    assert_int_equal(fclose(file), 0);
    EXPECT(folder, 0, TEXTS("1 of 1 examples are longer", "; the model's context is 32\n"), "eval", model,
           temp_path(folder, "long.jsonl"), "--seq", "8");
    EXPECT(folder, 2, TEXTS("packing: on differs from the off"), "resume", apart, "--packing", "on");
    EXPECT(folder, 0, TEXTS("--packing has no effect: the data are plain text"), "eval", model,
           temp_path(folder, "text.txt"), "--packing", "off", "--seq", "24");
}

/* Ballast 0.1.0 had no such key. It packed where attention was within documents, and held out rows. */
static void older_plans_keep_their_rows(void **state) {
    static const struct {
        const char *attention, *packing, *rows;
    } cases[] = {{"across", "off", "40 rows"}, {"within", "rows-held", "20 rows"}};
    const char *folder = *state, *model = temp_path(folder, "model"), *data = temp_path(folder, "a.jsonl");
    for (int i = 0; i < 2; i++) {
        char run[4096], plan[4096], path[4200];
        snprintf(run, sizeof run, "%s/older-%d", folder, i);
        snprintf(plan, sizeof plan, "%s/older-%d.json", folder, i);
        snprintf(path, sizeof path, "%s/run.json", run);
        EXPECT(folder, 0, NULL, "plan", model, "--seq", "32", "--document-attention", cases[i].attention, "-o", plan);
        json_t *object = json_load_file(plan, 0, NULL);
        assert_int_equal(json_object_del(json_object_get(object, "recipe"), "packing"), 0);
        assert_int_equal(json_dump_file(object, plan, 0), 0);
        json_decref(object);
        EXPECT(folder, 0, TEXTS(cases[i].rows), "train", model, data, "-o", run, "--plan", plan, "--steps", "1",
               "--valid-fraction", "0.3");
        object = json_load_file(path, 0, NULL);
        const json_t *recipe = json_object_get(json_object_get(object, "plan"), "recipe");
        assert_string_equal(json_string_value(json_object_get(recipe, "packing")), cases[i].packing);
        json_decref(object);
        EXPECT(folder, 0, TEXTS(cases[i].rows), "resume", run, "--steps", "2");
    }
}

static void expect_packing(const char *file, const char *plan_key, const char *expected) {
    json_t *object = json_load_file(file, 0, NULL), *plan = plan_key ? json_object_get(object, plan_key) : object;
    assert_string_equal(json_string_value(json_object_get(json_object_get(plan, "recipe"), "packing")), expected);
    json_decref(object);
}

/* A plan knows no data. */
static void the_data_decide_where_a_plan_leaves_packing_open(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model"), *data = temp_path(folder, "a.jsonl");
    char plan[4096], fixed[4096], run[4096], apart[4096];
    snprintf(plan, sizeof plan, "%s/open.json", folder);
    snprintf(fixed, sizeof fixed, "%s/fixed.json", folder);
    snprintf(run, sizeof run, "%s/open", folder);
    snprintf(apart, sizeof apart, "%s/open-apart", folder);
    EXPECT(folder, 0, NULL, "plan", model, "--seq", "32", "-o", plan);
    EXPECT(folder, 0, NULL, "plan", model, "--seq", "32", "--packing", "off", "-o", fixed);
    expect_packing(plan, NULL, "auto");
    expect_packing(fixed, NULL, "off");
    EXPECT(folder, 0, TEXTS("40 examples in 20 rows"), "train", model, data, "-o", run, "--plan", plan, "--steps", "1");
    expect_packing(temp_path(run, "run.json"), "plan", "on");
    expect_packing(temp_path(run, "plan.json"), NULL, "on");
    EXPECT(folder, 0, TEXTS("40 examples in 20 rows"), "train", model, data, "-o", run, "--plan", plan, "--steps", "2",
           "--continue");
    EXPECT(folder, 0, TEXTS("40 examples in 40 rows, 39% full; packed they need 20 rows"), "train", model, data, "-o",
           apart, "--plan", plan, "--packing", "off", "--steps", "1");
    expect_packing(temp_path(apart, "run.json"), "plan", "off");
    EXPECT(folder, 2, TEXTS("packing: on differs from the off"), "train", model, data, "-o",
           temp_path(folder, "refused"), "--plan", fixed, "--packing", "on", "--steps", "1");
    EXPECT(folder, 0, TEXTS("40 examples in 20 rows"), "eval", model, data, "--plan", plan);
}

/* In any row, also where an earlier run made the tokens. Keys that hold null are left out. */
static void unread_keys_are_named(void **state) {
    static const struct {
        const char *rows, *names;
    } cases[] = {
        {"{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"completion\": \"b\", \"id\": 1, \"prompt\": \"a\", \"no\": "
         "null}\n"
         "{\"prompt\": \"a\", \"completion\": \"b\", \"text\": \"\", \"id\": 2, \"label\": true}\n",
         "not read: id, text, label\n"},
        {"{\"prompt\": \"a\", \"completion\": \"b\", \"aaaaaaaaaabbbbbbbbbbccccccccccddddddddd\u00e9\": 1}\n",
         "not read: aaaaaaaaaabbbbbbbbbbccccccccccddddddddd\n"},
        {"{\"text\": \"a river is long\"}\n{\"text\": \"and green\", \"label\": false, \"tools\": []}\n",
         "not read: label, tools\n"},
        {"{\"instruction\": \"a\", \"output\": \"b\", \"system\": \"c\", \"topic\": 1}\n", "not read: topic\n"},
    };
    const char *folder = *state, *model = temp_path(folder, "model"), *data = temp_path(folder, "keys.jsonl");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int again = 0; again < 2; again++) {
            temp_write_text(data, cases[i].rows);
            EXPECT(folder, 0, TEXTS(cases[i].names), "eval", model, data, "--seq", "4", "--loss-on", "all");
        }
    temp_write_text(data, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"
                          "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"score\": 2}\n");
    EXPECT(folder, 0, TEXTS("not read: score\n"), "eval", model, data, "--seq", "4", "--loss", "dpo", "--reference",
           model);
    temp_write_text(data, "{\"prompt\": \"a\", \"completion\": \"b\", \"label\": false}\n");
    EXPECT(folder, 2, TEXTS("line 1: label: cannot be applied"), "eval", model, data, "--seq", "4");
    temp_write_text(data, "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\", \"documents\": [{}]}\n");
    EXPECT(folder, 2, TEXTS("line 1: documents: cannot be applied"), "eval", model, data, "--seq", "4", "--loss", "dpo",
           "--reference", model);
}

static void bad_data_exit_with_2(void **state) {
    const char *folder = *state, *model = temp_path(folder, "model");
    temp_write_text(temp_path(folder, "bad.jsonl"), "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": 1}\n");
    EXPECT(folder, 2, TEXTS("bad.jsonl: line 2: prompt: must be a string"), "train", model,
           temp_path(folder, "bad.jsonl"), "-o", temp_path(folder, "bad"), SETTINGS);
    temp_write_text(temp_path(folder, "chat.jsonl"), "{\"messages\": [{\"role\": \"user\", \"content\": \"a\"}]}\n");
    EXPECT(folder, 2, TEXTS("need a chat template"), "train", model, temp_path(folder, "chat.jsonl"), "-o",
           temp_path(folder, "bad"), SETTINGS);
    EXPECT(folder, 2, TEXTS("--chat-date: '2024-13-01' is not a date"), "train", model, temp_path(folder, "a.jsonl"),
           "-o", temp_path(folder, "bad"), "--chat-date", "2024-13-01", SETTINGS);
    EXPECT(folder, 2, TEXTS("a.jsonl:0: weight"), "train", model, temp_path(folder, "a.jsonl:0"), "-o",
           temp_path(folder, "bad"), SETTINGS);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(resumed_runs_are_the_same),
        cmocka_unit_test(runs_keep_columns),
        cmocka_unit_test(eval_counts_the_requested_tokens),
        cmocka_unit_test(packing_is_the_default_and_reported),
        cmocka_unit_test(older_plans_keep_their_rows),
        cmocka_unit_test(unread_keys_are_named),
        cmocka_unit_test(the_data_decide_where_a_plan_leaves_packing_open),
        cmocka_unit_test(bad_data_exit_with_2),
    };
    return cmocka_run_group_tests(tests, set_up, temp_folder_drop);
}
