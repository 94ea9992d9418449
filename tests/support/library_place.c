#include "support/library_place.h"

#include <stdio.h>
#include <string.h>

#include "base/file.h"
#include "base/mem.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

const char library_text[] = "the river ran by the old mill and the river ran on to the sea, to the sea by the mill";

void library_place_make(const char *folder, struct library_place *out) {
    static char longer[40 * sizeof library_text];
    snprintf(out->model, sizeof out->model, "%s/text-model", folder);
    snprintf(out->data, sizeof out->data, "%s/text.txt", folder);
    snprintf(out->run, sizeof out->run, "%s/run", folder);
    text_model_make(out->model, library_text, 270, 300, false);
    for (size_t i = 0; i < sizeof longer - 1; i++)
        longer[i] = library_text[i % (sizeof library_text - 1)];
    temp_write_text(out->data, longer);
    out->data_paths[0] = out->data;
    ballast_plan_options_init(&out->plan);
    ballast_train_options_init(&out->train);
    ballast_train_events_init(&out->events);
    out->plan.batch = 3, out->plan.micro_batch_sequences = 2, out->plan.sequence_length = 16;
    out->plan.threads = 2, out->plan.device_memory_bytes = 256 << 20;
    out->train.data_paths = out->data_paths, out->train.data_path_count = 1;
    out->train.steps = 6, out->train.learning_rate = 1e-3, out->train.warmup_steps = 2;
    out->train.save_every = 4, out->train.valid_every = 3, out->train.valid_fraction = 0.2;
    out->train.sample_every = 3, out->train.sample_tokens = 5, out->train.sample_prompt = "the river";
}

void expect_public(enum ballast_status status, enum ballast_status expected, const char *message) {
    if (status != expected)
        fail_msg("%s, expected %s: %s", ballast_status_name(status), ballast_status_name(expected),
                 ballast_error_message());
    if (message && !strstr(ballast_error_message(), message))
        fail_msg("'%s' does not say '%s'", ballast_error_message(), message);
    if (status == BALLAST_OK) assert_string_equal(ballast_error_message(), "");
}

enum ballast_status library_train(const struct library_place *place, const char *run) {
    return ballast_train(place->model, run, &place->plan, &place->train, &place->events);
}

char *name_in(const char *folder, const char *name, char out[700]) {
    if (snprintf(out, 700, "%s/%s", folder, name) >= 700) fail_msg("%s is too long a path", folder);
    return out;
}

void expect_same_runs(const char *a, const char *b) {
    char first[700], second[700], *left = tiny_run_metrics(a), *right = tiny_run_metrics(b);
    assert_string_equal(left, right);
    assert_non_null(strstr(left, "val_loss"));
    mem_free(left);
    mem_free(right);
    assert_true(
        files_equal(name_in(a, "model/model.safetensors", first), name_in(b, "model/model.safetensors", second)));
}

int library_keep_text(const char *bytes, size_t count, void *payload) {
    struct library_text_kept *kept = payload;
    assert_true(kept->used + count < sizeof kept->bytes);
    memcpy(kept->bytes + kept->used, bytes, count);
    kept->bytes[kept->used += count] = '\0';
    if (kept->stop) ballast_stop();
    return ++kept->calls == kept->end_after;
}
