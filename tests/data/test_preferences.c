/* Preference pairs: the two sequences of a pair are adjacent in every batch, and stay together in held-out and
 * skipped rows. Errors in a line are named. */
#include "support/unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "data/dataset.h"
#include "data/source.h"
#include "support/data_place.h"
#include "support/dataset_fill.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"

enum { LENGTH = 24, VOCAB = 300, PAIRS = 9, BATCH = 6 };

struct place {
    struct data_place base;
    char data[4096];
};

static int make_place(void **state) {
    struct place *place = *state = data_place_make(sizeof *place, VOCAB, true);
    snprintf(place->data, sizeof place->data, "%s/pairs.jsonl", place->base.folder);
    place->base.paths[0] = place->data;
    place->base.options.sequence_tokens = LENGTH;
    place->base.options.pairs = true;
    return 0;
}

static void write_lines(const struct place *place, const char *lines) { temp_write(place->data, lines, strlen(lines)); }

/* Pair i says "i", then 'y's or 'n's; the prompt of the fourth is longer than a sequence. */
static void write_pairs(const struct place *place) {
    FILE *file = fopen(place->data, "w");
    assert_non_null(file);
    for (int i = 0; i < PAIRS; i++)
        fprintf(file, "{\"prompt\": \"%d%s:\", \"chosen\": \" yyy\", \"rejected\": \" nnnn\", \"id\": %d}\n", i,
                i == 3 ? " 1234567890 1234567890 1234567890 1234567890 1234567890" : "", i);
    assert_int_equal(fclose(file), 0);
}

static struct dataset *open_place(const struct place *place) {
    struct dataset *dataset;
    if (dataset_open(&place->base.options, &dataset) != STATUS_OK) fail_msg("%s", status_message());
    return dataset;
}

static char *text_of(const struct place *place, const int32_t *tokens) {
    uint32_t ids[LENGTH];
    char *text;
    size_t count = LENGTH;
    for (int i = 0; i < LENGTH; i++)
        ids[i] = (uint32_t)tokens[i];
    while (count > 0 && ids[count - 1] == 0)
        count--;
    assert_int_equal(tokenizer_decode(place->base.tokenizer, ids, count, false, &text, NULL), STATUS_OK);
    return text;
}

/* The pair's number. */
static int expect_pair(const struct place *place, const int32_t *chosen, const int32_t *rejected, int *seen) {
    char *yes = text_of(place, chosen), *no = text_of(place, rejected);
    if (!strstr(yes, ": yyy") || !strstr(no, ": nnnn") || atoi(yes) != atoi(no)) fail_msg("'%s' and '%s'", yes, no);
    int number = atoi(yes);
    seen[number]++;
    mem_free(yes);
    mem_free(no);
    return number;
}

static void pairs_follow_each_other(void **state) {
    const struct place *place = *state;
    static int32_t tokens[BATCH * LENGTH], targets[BATCH * LENGTH];
    double references[2 * PAIRS], found[BATCH];
    int seen[PAIRS] = {0};
    write_pairs(place);
    struct dataset *dataset = open_place(place);
    assert_int_equal(dataset_sequences(dataset), 2 * (PAIRS - 1));
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 2 * (PAIRS - 1));
    for (int i = 0; i < 2 * PAIRS; i++)
        references[i] = 100 + i;
    dataset_set_references(dataset, references);
    struct dataset_batch batch = {.tokens = tokens, .targets = targets, .references = found};
    for (int step = 0; step < PAIRS - 1; step++) { /* three epochs */
        int64_t counted;
        assert_int_equal(dataset_fill(dataset, DATASET_TRAIN, step, BATCH, &batch, &counted), STATUS_OK);
        assert_int_equal(counted, BATCH / 2);
        for (int s = 0; s < BATCH; s += 2) {
            int number = expect_pair(place, tokens + s * LENGTH, tokens + (s + 1) * LENGTH, seen);
            int sequence = 2 * (number - (number > 3)); /* without the pair that is left out */
            assert_true(found[s] == references[sequence] && found[s + 1] == references[sequence + 1]);
        }
    }
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(seen[i], i == 3 ? 0 : 3);
    dataset_close(dataset);
}

/* All of them in the files' order; those held out at the end. */
static void sequences_have_numbers(void **state) {
    struct place *place = *state;
    static int32_t tokens[4 * LENGTH], targets[4 * LENGTH];
    struct dataset_batch batch = {.tokens = tokens, .targets = targets};
    int seen[PAIRS] = {0};
    int64_t count, at = 0;
    write_pairs(place);
    place->base.options.valid_fraction = 0.3;
    struct dataset *dataset = open_place(place);
    assert_int_equal(dataset_settle(dataset, DATASET_VALID), STATUS_OK);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 12);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_VALID), 4);
    do {
        assert_int_equal(dataset_fill_sequences(dataset, at, 4, &batch, &count), STATUS_OK);
        for (int64_t s = 0; s < count; s += 2)
            expect_pair(place, tokens + s * LENGTH, tokens + (s + 1) * LENGTH, seen);
        at += count;
    } while (count == 4);
    assert_int_equal(at, 2 * (PAIRS - 1));
    for (int i = 0; i < PAIRS; i++)
        assert_int_equal(seen[i], i != 3);
    dataset_close(dataset);
}

static void expect_refused(const struct place *place, const char *lines, const char *message) {
    struct dataset *dataset;
    write_lines(place, lines);
    assert_int_equal(dataset_open(&place->base.options, &dataset), STATUS_BAD_INPUT);
    if (!strstr(status_message(), message)) fail_msg("%s\nnot: %s", status_message(), message);
}

#define GOOD "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": \"c\"}\n"

static void what_is_wrong_with_a_line_is_named(void **state) {
    struct place *place = *state;
    expect_refused(place, GOOD "{\"prompt\": \"a\", \"chosen\": \"b\"}\n",
                   "pairs.jsonl: line 2: rejected: missing: the keys are prompt, chosen");
    expect_refused(place, GOOD "{\"chosen\": \"b\", \"rejected\": \"c\"}\n", "line 2: prompt: missing");
    expect_refused(place, GOOD "\n{\"prompt\": 3, \"chosen\": \"b\", \"rejected\": \"c\"}\n",
                   "line 3: prompt: must be a string");
    expect_refused(place, GOOD "{\"prompt\": \"a\", \"chosen\": {}, \"rejected\": \"c\"}\n",
                   "line 2: chosen: must be a string or a list of messages");
    expect_refused(place, GOOD "{\"prompt\": \"a\", \"chosen\": \"b\", \"rejected\": []}\n",
                   "line 2: rejected: must be of the type of the chosen answer");
    expect_refused(place,
                   GOOD "{\"prompt\": [], \"chosen\": [{\"role\": \"assistant\", \"content\": \"b\"}], \"rejected\": "
                        "[{\"role\": \"assistant\", \"content\": \"c\"}]}\n",
                   "line 2: chosen: is a list of messages, and those of the first line are texts");
    expect_refused(place, "{\"text\": \"a\"}\n", "pairs.jsonl: holds no preferences");
    place->base.options.pairs = false;
    expect_refused(place, GOOD, "pairs.jsonl: holds preferences");
}

/* ---- forms ---- */

static json_t *form(const char *line, enum jsonl_field field, size_t *first) {
    json_t *object = json_loads(line, 0, NULL), *out = NULL;
    assert_non_null(object);
    if (jsonl_form_preference(&(struct jsonl_row){NULL, "lines", 1, object}, field, &out, first) != STATUS_OK)
        fail_msg("%s", status_message());
    json_decref(object);
    return out;
}

static void expect_form(const char *line, enum jsonl_field field, const char *expected, size_t first) {
    size_t found;
    json_t *formed = form(line, field, &found), *wanted = json_loads(expected, 0, NULL);
    assert_non_null(wanted);
    char *text = json_dumps(formed, 0);
    if (!json_equal(formed, wanted)) fail_msg("%s, not %s", text, expected);
    assert_int_equal(found, first);
    free(text);
    json_decref(formed);
    json_decref(wanted);
}

#define MESSAGE_OF(role, content) "{\"role\": \"" role "\", \"content\": \"" content "\"}"

static void answers_are_put_behind_their_prompts(void **state) {
    (void)state;
    static const char texts[] = "{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}";
    expect_form(texts, JSONL_CHOSEN, "{\"prompt\": \"p\", \"completion\": \"c\"}", 0);
    expect_form(texts, JSONL_REJECTED, "{\"prompt\": \"p\", \"completion\": \"r\"}", 0);
    static const char chats[] =
        "{\"prompt\": [" MESSAGE_OF("system", "s") ", " MESSAGE_OF("user", "u") "], \"chosen\": [" MESSAGE_OF(
            "assistant", "c") "], \"rejected\": [" MESSAGE_OF("assistant", "r") "], \"tools\": [{}]}";
    expect_form(chats, JSONL_REJECTED,
                "{\"messages\": [" MESSAGE_OF("system", "s") ", " MESSAGE_OF("user", "u") ", " MESSAGE_OF(
                    "assistant", "r") "], "
                                      "\"tools\": [{}]}",
                2);
    /* The prompt is what both begin with; a text next to them says it again. */
    static const char whole[] = "{\"prompt\": \"u\", \"chosen\": [" MESSAGE_OF("user", "u") ", " MESSAGE_OF(
        "assistant", "c") "], \"rejected\": [" MESSAGE_OF("user", "u") ", " MESSAGE_OF("assistant", "r") "]}";
    expect_form(whole, JSONL_CHOSEN, "{\"messages\": [" MESSAGE_OF("user", "u") ", " MESSAGE_OF("assistant", "c") "]}",
                1);
    expect_form(whole, JSONL_REJECTED,
                "{\"messages\": [" MESSAGE_OF("user", "u") ", " MESSAGE_OF("assistant", "r") "]}", 1);
}

/* A text next to messages that do not say it again would be lost. */
static void a_prompt_that_is_left_out_is_refused(void **state) {
    (void)state;
    json_t *object = json_loads("{\"prompt\": \"u\", \"chosen\": [" MESSAGE_OF(
                                    "assistant", "c") "], \"rejected\": [" MESSAGE_OF("assistant", "r") "]}",
                                0, NULL);
    json_t *out = NULL;
    size_t first;
    assert_int_equal(jsonl_form_preference(&(struct jsonl_row){NULL, "lines", 4, object}, JSONL_CHOSEN, &out, &first),
                     STATUS_BAD_INPUT);
    if (!strstr(status_message(), "lines: line 4: prompt: is a text, and the answers' messages do not begin with it"))
        fail_msg("%s", status_message());
    json_object_set_new(object, "prompt", json_string(""));
    assert_int_equal(jsonl_form_preference(&(struct jsonl_row){NULL, "lines", 4, object}, JSONL_CHOSEN, &out, &first),
                     STATUS_OK);
    json_decref(out);
    json_decref(object);
}

static enum status form_both(void *payload) {
    for (int field = JSONL_CHOSEN; field <= JSONL_REJECTED; field++) {
        json_t *out = NULL;
        size_t first;
        TRY(jsonl_form_preference(&(struct jsonl_row){NULL, "lines", 1, payload}, (enum jsonl_field)field, &out,
                                  &first));
        json_decref(out);
    }
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    (void)state;
    json_t *texts = json_loads("{\"prompt\": \"p\", \"chosen\": \"c\", \"rejected\": \"r\"}", 0, NULL);
    json_t *chats = json_loads("{\"prompt\": [" MESSAGE_OF("user", "u") "], \"chosen\": [" MESSAGE_OF(
                                   "assistant", "c") "], \"rejected\": [" MESSAGE_OF("assistant", "r") "]}",
                               0, NULL);
    json_faults(true);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, form_both, texts) >= 4);
    assert_true(fault_sweep(FAULT_ALLOCATE, false, form_both, chats) >= 4);
    json_faults(false);
    json_decref(texts);
    json_decref(chats);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, make_place, data_place_drop)
    const struct CMUnitTest tests[] = {
        CASE(pairs_follow_each_other),
        CASE(sequences_have_numbers),
        CASE(what_is_wrong_with_a_line_is_named),
        cmocka_unit_test(answers_are_put_behind_their_prompts),
        cmocka_unit_test(a_prompt_that_is_left_out_is_refused),
        cmocka_unit_test(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
