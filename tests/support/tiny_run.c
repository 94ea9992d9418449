#include "support/tiny_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/file.h"
#include "base/json.h"
#include "base/random.h"
#include "support/data_files.h"
#include "support/temp_folder.h"
#include "support/unit.h"

static void write_tokens(const char *path, uint64_t seed, size_t count) {
    uint32_t *ids = mem_array(count, sizeof *ids);
    assert_non_null(ids);
    for (size_t i = 0; i < count; i++)
        ids[i] = (uint32_t)((i * 7 + random_u64(seed, RANDOM_TEST, 0, i) % 5) % TINY_VOCAB);
    token_file_write(path, 2, ids, count);
    mem_free(ids);
}

void tiny_run_make(const char *folder, const char *name, struct tiny_run *out) {
    *out = (struct tiny_run){0};
    snprintf(out->model, sizeof out->model, "%s/models/%s", BALLAST_FIXTURES, name);
    snprintf(out->data, sizeof out->data, "%s/data.bin", folder);
    snprintf(out->valid, sizeof out->valid, "%s/valid.bin", folder);
    write_tokens(out->data, 1, 400);
    write_tokens(out->valid, 2, 5 * TINY_TOKENS + 1);
    out->data_paths[0] = out->data;
    out->valid_paths[0] = out->valid;
    plan_options_init(&out->plan);
    SETTINGS_GIVE(&out->plan, batch, TINY_BATCH);
    SETTINGS_GIVE(&out->plan, micro_batch_sequences, 2);
    SETTINGS_GIVE(&out->plan, sequence_length, TINY_TOKENS);
    SETTINGS_GIVE(&out->plan, threads, 2);
    SETTINGS_GIVE(&out->plan.memory, device_bytes, 256 << 20);
    train_options_init(&out->options);
    out->options.steps = 6;
    out->options.learning_rate = 1e-3;
    SETTINGS_GIVE(&out->options, warmup_steps, 2);
    out->options.save_every = 2;
    out->options.valid_every = 3;
    out->options.data_paths = out->data_paths;
    out->options.data_path_count = 1;
    out->options.valid_paths = out->valid_paths;
    out->options.valid_path_count = 1;
}

enum status tiny_run_begin(const struct tiny_run *run, const char *run_folder, const struct train_events *events) {
    return train_begin(run->model, run_folder, &run->plan, &run->options, events);
}

enum status tiny_run_resume(const char *run_folder, int64_t steps, const struct train_events *events) {
    struct plan_options plan;
    plan_options_init(&plan);
    SETTINGS_GIVE(&plan.memory, device_bytes, 256 << 20);
    return train_resume(run_folder, &plan, TINY_RESUME(steps), events);
}

char *tiny_run_metrics(const char *run_folder) {
    static const char *const unlike[] = {"tokens_per_s", "step_s",           "mfu",
                                         "device_bytes", "predicted_step_s", "predicted_device_bytes"};
    char *text, *all = mem_string("");
    size_t bytes;
    assert_int_equal(file_read(temp_path(run_folder, "metrics.jsonl"), 1 << 20, &text, &bytes), STATUS_OK);
    for (char *line = strtok(text, "\n"); line; line = strtok(NULL, "\n")) {
        json_t *object = json_loads(line, 0, NULL);
        if (!object) fail_msg("not JSON: %s", line);
        if (json_object_get(object, "replan")) {
            json_decref(object);
            continue;
        }
        for (size_t i = 0; i < sizeof unlike / sizeof *unlike; i++)
            json_object_del(object, unlike[i]);
        char *kept = json_dumps(object, JSON_SORT_KEYS), *longer = mem_format("%s%s\n", all, kept);
        assert_non_null(longer);
        mem_free(all);
        free(kept);
        json_decref(object);
        all = longer;
    }
    mem_free(text);
    return all;
}

bool files_equal(const char *a, const char *b) {
    char *x, *y;
    size_t x_bytes, y_bytes;
    assert_int_equal(file_read(a, 1 << 26, &x, &x_bytes), STATUS_OK);
    assert_int_equal(file_read(b, 1 << 26, &y, &y_bytes), STATUS_OK);
    bool equal = x_bytes == y_bytes && memcmp(x, y, x_bytes) == 0;
    mem_free(x);
    mem_free(y);
    return equal;
}

void expect_status(enum status status, enum status expected, const char *text) {
    if (status != expected) fail_msg("status %d, not %d: %s", (int)status, (int)expected, status_message());
    if (text && !strstr(status_message(), text)) fail_msg("'%s' is not in: %s", text, status_message());
}
