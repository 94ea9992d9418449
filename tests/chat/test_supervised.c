/* Datasets of supervised examples: prompt and completion in .jsonl files, alone and mixed with text. */
#include "support/unit.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/folder.h"
#include "base/mem.h"
#include "base/random.h"
#include "base/terminal.h"
#include "data/dataset.h"
#include "ir/ops/attributes.h"
#include "support/data_files.h"
#include "support/data_place.h"
#include "support/dataset_fill.h"
#include "support/fault_sweep.h"
#include "support/temp_folder.h"

enum { LENGTH = 24, EOS = 0, VOCAB = 300 };

struct place {
    struct data_place base;
    char data[4096];
};

static int make_place(void **state) {
    struct place *place = *state = data_place_make(sizeof *place, VOCAB, true);
    snprintf(place->data, sizeof place->data, "%s/data.jsonl", place->base.folder);
    place->base.paths[0] = place->data;
    place->base.options.sequence_tokens = LENGTH;
    return 0;
}

/* What an example's ids and masks must be: prompts end in a colon and completions begin with a blank, where the
 * tokenizer always splits. */
struct expected {
    uint32_t ids[256];
    int64_t count, prompt;
    int seen;
};

static void encode_into(const struct place *place, const char *text, size_t bytes, struct expected *out) {
    struct token_ids ids = {0};
    assert_int_equal(tokenizer_encode(place->base.tokenizer, text, bytes, false, &ids), STATUS_OK);
    assert_true(out->count + (int64_t)ids.count < 256);
    for (size_t i = 0; i < ids.count; i++)
        out->ids[out->count++] = ids.items[i];
    vec_free(&ids);
}

static struct expected *write_examples(const struct place *place, int count, int longest) {
    struct expected *all = mem_array((size_t)count, sizeof *all);
    FILE *file = fopen(place->data, "w");
    assert_non_null(file);
    for (int i = 0; i < count; i++) {
        char prompt[4096], completion[4096];
        size_t words = random_u64(7, RANDOM_TEST, 0, (uint64_t)i) % (uint64_t)longest, bytes;
        char *text = random_text((uint64_t)i + 100, words, &bytes);
        snprintf(prompt, sizeof prompt, "%d and%.*s:", i, (int)bytes, text);
        snprintf(completion, sizeof completion, " river%.*s %d", i % 3 ? (int)bytes : 0, text, i * i);
        json_t *object = json_pack("{s:s, s:i, s:s}", "completion", completion, "id", i, "prompt", prompt);
        char *json = json_dumps(object, 0);
        fprintf(file, "%s\n%s", json, i % 10 ? "" : "\n");
        free(json);
        json_decref(object);
        mem_free(text);
        encode_into(place, prompt, strlen(prompt), &all[i]);
        all[i].prompt = all[i].count;
        encode_into(place, completion, strlen(completion), &all[i]);
        all[i].ids[all[i].count++] = EOS;
    }
    assert_int_equal(fclose(file), 0);
    return all;
}

static struct dataset *open_place(const struct place *place) {
    struct dataset *dataset;
    if (dataset_open(&place->base.options, &dataset) != STATUS_OK) fail_msg("%s", status_message());
    return dataset;
}

static int64_t fill(const struct dataset *dataset, int64_t step, int64_t batch, struct dataset_batch out) {
    int64_t counted;
    if (dataset_fill(dataset, DATASET_TRAIN, step, batch, &out, &counted) != STATUS_OK)
        fail_msg("%s", status_message());
    return counted;
}

/* Finds the example at a place of a row, counts it as seen, checks ids, masks and positions; returns its places. */
static int64_t expect_example(struct expected *all, int count, const struct row *row, int64_t at, bool loss_on_all) {
    for (int e = 0; e < count; e++) {
        int64_t size = all[e].count - 1 < row->length - at ? all[e].count - 1 : row->length - at;
        int64_t same = 0;
        while (same < size && (uint32_t)row->tokens[at + same] == all[e].ids[same])
            same++;
        if (same < size || size == 0) continue;
        for (int64_t i = 0; i < size; i++) {
            bool trained = loss_on_all || i + 1 >= all[e].prompt;
            assert_int_equal(row->targets[at + i], trained ? (int)all[e].ids[i + 1] : TARGET_IGNORE);
            assert_int_equal(row->positions[at + i], i);
            assert_int_equal(row->segments[at + i], row->segments[at]);
        }
        all[e].seen++;
        return size;
    }
    fail_msg("no example at %lld", (long long)at);
    return 0;
}

static bool is_padding(const struct row *row, int64_t at) {
    for (int64_t i = at; i < row->length; i++)
        if (row->targets[i] != TARGET_PADDING || row->tokens[i] != 0) return false;
    return true;
}

/* One epoch: returns how many examples were met. */
static int read_epoch(const struct place *place, struct expected *all, int count, int64_t *padding) {
    struct dataset *dataset = open_place(place);
    int64_t rows = dataset_split_sequences(dataset, DATASET_TRAIN);
    int met = 0;
    *padding = 0;
    for (int64_t step = 0; step < rows; step++) {
        int32_t tokens[LENGTH], targets[LENGTH], positions[LENGTH], segments[LENGTH];
        struct row row = {LENGTH, tokens, targets, positions, segments};
        int64_t counted = fill(dataset, step, 1, (struct dataset_batch){tokens, targets, positions, segments, NULL});
        int64_t unmasked = 0, at = 0;
        for (int i = 0; i < LENGTH; i++)
            unmasked += targets[i] >= 0;
        assert_int_equal(counted, unmasked);
        for (int32_t segment = 0; at < LENGTH && !is_padding(&row, at); segment++, met++) {
            assert_int_equal(segments[at], segment);
            if (segment > 0) assert_true(place->base.options.pack_examples);
            at += expect_example(all, count, &row, at, place->base.options.loss_on_all);
        }
        *padding += LENGTH - at;
    }
    dataset_close(dataset);
    return met;
}

static void an_epoch_sees_each_example_once(void **state) {
    struct place *place = *state;
    enum { COUNT = 150 };
    struct expected *all = write_examples(place, COUNT, 5);
    int64_t fitting = 0, padding_alone = 0, padding_packed = 0;
    for (int i = 0; i < COUNT; i++)
        fitting += all[i].prompt <= LENGTH;
    assert_true(fitting > COUNT / 2);
    for (int together = 0; together < 2; together++)
        for (int on_all = 0; on_all < 2; on_all++) {
            place->base.options.pack_examples = together;
            place->base.options.loss_on_all = on_all;
            for (int i = 0; i < COUNT; i++)
                all[i].seen = 0;
            int met = read_epoch(place, all, COUNT, together ? &padding_packed : &padding_alone);
            assert_int_equal(met, on_all ? COUNT : fitting);
            for (int i = 0; i < COUNT; i++)
                assert_int_equal(all[i].seen, on_all || all[i].prompt <= LENGTH);
        }
    print_message("padding: %lld packed, %lld alone\n", (long long)padding_packed, (long long)padding_alone);
    assert_true(padding_packed * 3 < padding_alone * 2);
    mem_free(all);
}

static void order_depends_on_seed_and_step_only(void **state) {
    struct place *place = *state;
    enum { BATCH = 3, STEPS = 40, ROW = BATCH * LENGTH };
    mem_free(write_examples(place, 60, 5));
    place->base.options.pack_examples = true;
    static int32_t all[STEPS][2][ROW];
    struct dataset *dataset = open_place(place);
    for (int step = 0; step < STEPS; step++)
        fill(dataset, step, BATCH, (struct dataset_batch){.tokens = all[step][0], .targets = all[step][1]});
    uint64_t fingerprint = dataset_fingerprint(dataset);
    dataset_close(dataset);
    dataset = open_place(place);
    assert_true(dataset_fingerprint(dataset) == fingerprint);
    for (int step = STEPS - 1; step >= 0; step--) {
        int32_t tokens[ROW], targets[ROW];
        fill(dataset, step, BATCH, (struct dataset_batch){.tokens = tokens, .targets = targets});
        assert_memory_equal(tokens, all[step][0], sizeof tokens);
        assert_memory_equal(targets, all[step][1], sizeof targets);
    }
    dataset_close(dataset);
    mem_free(write_examples(place, 61, 5));
    dataset = open_place(place);
    assert_true(dataset_fingerprint(dataset) != fingerprint);
    dataset_close(dataset);
}

/* Two rows of three are examples, one is text. */
static void examples_mix_with_text(void **state) {
    struct place *place = *state;
    char text_path[4096], weighted[2][4200];
    snprintf(text_path, sizeof text_path, "%s/text.txt", place->base.folder);
    snprintf(weighted[0], sizeof weighted[0], "%s:2", place->data);
    snprintf(weighted[1], sizeof weighted[1], "%s:1", text_path);
    random_text_write(text_path, 3, 500);
    mem_free(write_examples(place, 20, 3));
    const char *paths[] = {weighted[0], weighted[1]};
    place->base.options.paths = paths;
    place->base.options.path_count = 2;
    struct dataset *dataset = open_place(place);
    int examples = 0;
    for (int64_t step = 0; step < 60; step++) {
        int32_t tokens[LENGTH], targets[LENGTH];
        int64_t counted = fill(dataset, step, 1, (struct dataset_batch){.tokens = tokens, .targets = targets});
        examples += counted < LENGTH; /* every prompt has masked tokens */
    }
    assert_int_equal(examples, 40);
    dataset_close(dataset);
}

static uint64_t fingerprint_of(const struct place *place) {
    struct dataset *dataset = open_place(place);
    uint64_t fingerprint = dataset_fingerprint(dataset);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 1);
    dataset_close(dataset);
    return fingerprint;
}

/* The cache knows what conversations were rendered with. */
static void templates_and_dates_are_in_the_key(void **state) {
    struct place *place = *state;
    const char *template = temp_path(place->base.folder, "chat_template.jinja");
    place->base.options.chat_folder = place->base.folder;
    temp_write_text(place->data, "{\"messages\": [{\"role\": \"user\", \"content\": \"river\"}, {\"role\": "
                                 "\"assistant\", \"content\": \"bridge\"}]}\n");
    temp_write_text(template, "{% for m in messages %}{{ m.content }}{% endfor %}");
    uint64_t first = fingerprint_of(place);
    place->base.options.chat_time_s = 86400;
    assert_true(fingerprint_of(place) == first);
    temp_write_text(template, "{% for m in messages %}{{ m.content }} {% endfor %}");
    uint64_t second = fingerprint_of(place);
    assert_true(second != first);
    temp_write_text(template, "{% for m in messages %}{{ m.content }} {{ strftime_now('%d') }}{% endfor %}");
    uint64_t third = fingerprint_of(place);
    place->base.options.chat_time_s = 2 * 86400;
    assert_true(third != second && fingerprint_of(place) != third);
}

enum { ROW_VALUES = 3 * LENGTH };

/* The only row of the data file, with its targets. */
static void read_row(const struct place *place, const char *content, int32_t out[ROW_VALUES]) {
    memset(out, 0, ROW_VALUES * sizeof *out);
    temp_write_text(place->data, content);
    struct dataset *dataset = open_place(place);
    assert_int_equal(dataset_split_sequences(dataset, DATASET_TRAIN), 1);
    fill(dataset, 0, 1, (struct dataset_batch){.tokens = out, .targets = out + LENGTH});
    dataset_close(dataset);
}

static void expect_same_row(const struct place *place, const char *content, const int32_t expected[ROW_VALUES]) {
    int32_t row[ROW_VALUES];
    read_row(place, content, row);
    if (memcmp(row, expected, sizeof row) != 0) fail_msg("%s gives other tokens", content);
}

/* Keys of any name, ShareGPT's and Alpaca's lines give the tokens that ours give. */
static void other_forms_give_the_same_examples(void **state) {
    struct place *place = *state;
    int32_t prompts[ROW_VALUES], chat[ROW_VALUES];
    read_row(place,
             "{\"prompt\": \"a river:\", \"completion\": \" a bridge\", \"question\": \"a river:\", \"answer\": \" a "
             "bridge\"}",
             prompts);
    uint64_t own = fingerprint_of(place);
    place->base.options.columns = "prompt=question,completion=answer";
    assert_true(fingerprint_of(place) != own);
    expect_same_row(place, "{\"question\": \"a river:\", \"answer\": \" a bridge\", \"prompt\": \"x\"}", prompts);
    place->base.options.columns = NULL;
    place->base.options.chat_folder = place->base.folder;
    temp_write_text(
        temp_path(place->base.folder, "chat_template.jinja"),
        "{% for m in messages %}{{ m.role[0] }}:{{ m.content }}\n{% endfor %}{% if add_generation_prompt %}a:"
        "{% endif %}");
    read_row(place,
             "{\"messages\": [{\"role\": \"user\", \"content\": \"add\\n\\n1\"}, {\"role\": \"assistant\", "
             "\"content\": \"2\"}]}",
             chat);
    expect_same_row(place,
                    "{\"conversations\": [{\"from\": \"human\", \"value\": \"add\\n\\n1\"}, {\"from\": \"gpt\", "
                    "\"value\": \"2\"}]}",
                    chat);
    expect_same_row(place, "{\"instruction\": \"add\", \"input\": \"1\", \"output\": \"2\"}", chat);
    place->base.options.columns = "messages=talk";
    expect_same_row(place,
                    "{\"talk\": [{\"role\": \"user\", \"content\": \"add\\n\\n1\"}, {\"role\": \"assistant\", "
                    "\"content\": \"2\"}]}",
                    chat);
    place->base.options.columns = "instruction=q,output=a,input=i";
    expect_same_row(place, "{\"q\": \"add\", \"i\": \"1\", \"a\": \"2\"}", chat);
}

static void expect_refused(const struct place *place, const char *content, const char *words) {
    struct dataset *dataset;
    temp_write_text(place->data, content);
    status_clear();
    enum status status = dataset_open(&place->base.options, &dataset);
    if (status != STATUS_BAD_INPUT || !strstr(status_message(), "data.jsonl") || !strstr(status_message(), words))
        fail_msg("\"%s\" does not say \"%s\"", status_message(), words);
}

static void bad_examples_are_named_by_line(void **state) {
    struct place *place = *state;
#define GOOD "{\"prompt\": \"a:\", \"completion\": \" b\"}\n"
    expect_refused(place, GOOD "\n{\"prompt\": \"a\"}\n", "line 3: completion: missing");
    expect_refused(place, GOOD "{\"prompt\": [], \"completion\": \"b\"}\n", "line 2: prompt: must be a string");
    expect_refused(place, GOOD "{\"text\": \"b\"}\n", "line 2: prompt: missing");
    expect_refused(place, "{\"text\": \"b\"}\n" GOOD, "line 2: text: missing");
    expect_refused(place, GOOD "[]\n", "line 2: not a JSON object");
    expect_refused(place, GOOD "{\"prompt\"\n", "line 2: not valid JSON");
    expect_refused(place,
                   "{\"prompt\": \"the river ran under a bridge of stone whose arches we'll see again the river "
                   "ran under a bridge of stone whose arches we'll see again\", \"completion\": \"b\"}\n",
                   "none of 1 examples has anything to train on in its first 24 tokens");
    char train[4096], other[4096], weighted[4200];
    snprintf(train, sizeof train, "%s/train.1.jsonl", place->base.folder);
    snprintf(other, sizeof other, "%s/train.2.jsonl", place->base.folder);
    temp_write_text(train, GOOD);
    temp_write_text(other, "{\"text\": \"b\"}\n");
    snprintf(weighted, sizeof weighted, "%s:1", place->base.folder);
    place->base.paths[0] = weighted;
    struct dataset *dataset;
    assert_int_equal(dataset_open(&place->base.options, &dataset), STATUS_BAD_INPUT);
    assert_non_null(strstr(status_message(), "train.1.jsonl: has supervised examples and"));
}

static enum status open_once(void *payload) {
    const struct place *place = payload;
    struct dataset *dataset;
    TRY(folder_remove(place->base.cache_folder));
    TRY(dataset_open(&place->base.options, &dataset));
    dataset_close(dataset);
    return STATUS_OK;
}

static void faults_are_reported(void **state) {
    struct place *place = *state;
    place->base.options.pack_examples = true;
    mem_free(write_examples(place, 10, 3));
    /* Without its cache a text is tokenized all the same. */
    const struct fault_subject subject = {.body = open_once, .payload = place};
    assert_true(fault_sweep_bearable(FAULT_ALLOCATE, false, FAULT_EVERY, &subject).reported >= 20);
    assert_true(fault_sweep_bearable(FAULT_OPEN, false, FAULT_EVERY, &subject).reported >= 2);
    assert_true(fault_sweep_bearable(FAULT_WRITE, false, FAULT_EVERY, &subject).hit >= 1);
}

int main(void) {
    log_set_quiet(true);
#define IN_PLACE(test) cmocka_unit_test_setup_teardown(test, make_place, data_place_drop)
    const struct CMUnitTest tests[] = {
        IN_PLACE(an_epoch_sees_each_example_once),
        IN_PLACE(order_depends_on_seed_and_step_only),
        IN_PLACE(examples_mix_with_text),
        IN_PLACE(bad_examples_are_named_by_line),
        IN_PLACE(templates_and_dates_are_in_the_key),
        IN_PLACE(other_forms_give_the_same_examples),
        IN_PLACE(faults_are_reported),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
