/* Ranks with different models or data end with one message for all, before anything is written. */
/* ctest: PROCESSORS 2 TIMEOUT 300 LABELS long */
/* ctest-again: mpich slow BALLAST_TEST_MPI=mpich */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/folder.h"
#include "base/mem.h"
#include "support/data_files.h"
#include "support/mpi_job.h"
#include "support/temp_folder.h"
#include "support/text_model.h"
#include "support/tiny_run.h"
#include "support/unit.h"

static void call(const char *command) {
    if (system(command) != 0) fail_msg("%s", command);
}

/* A model of the rank's own, with a byte of the file that is another's. */
static void change(struct tiny_run *run, const char *folder, const char *what) {
    char command[2000];
    snprintf(command, sizeof command, "cp -r '%s' '%s/model'", run->model, folder);
    call(command);
    snprintf(run->model, sizeof run->model, "%s/model", folder);
    if (strncmp(what, "weights", strlen("weights")) == 0)
        snprintf(command, sizeof command,
                 "printf '\\177' | dd of='%s/model.safetensors' bs=1 seek=70000 conv=notrunc 2>/dev/null", run->model);
    else if (strcmp(what, "config") == 0)
        snprintf(command, sizeof command,
                 "sed -i 's/\"rms_norm_eps\": *[^,]*/\"rms_norm_eps\": 0.001/' '%s/config.json'", run->model);
    else if (strcmp(what, "data") == 0)
        snprintf(command, sizeof command, "printf '\\1\\0' | dd of='%s' bs=1 seek=1100 conv=notrunc 2>/dev/null",
                 run->data);
    else if (strcmp(what, "no data") == 0)
        snprintf(command, sizeof command, "rm '%s'", run->data);
    else
        return;
    call(command);
}

/* Text in place of tokens, of one length, whose only difference is a letter far from beginning and end. */
static void take_text(struct tiny_run *run, const char *folder, bool other) {
    enum { WORDS = 30000, TOKENS = 300, PLACE = 10001 };
    size_t bytes;
    char *text = random_text(1, WORDS, &bytes);
    assert_in_range(bytes, 10 * PLACE, 1 << 20); /* samples of 16 pages do not hold the place */
    snprintf(run->model, sizeof run->model, "%s/text-model", folder);
    snprintf(run->data, sizeof run->data, "%s/text.txt", folder);
    setenv("XDG_CACHE_HOME", folder, 1);
    text_model_make(run->model, text, TOKENS, TOKENS, true);
    if (other) text[PLACE] = text[PLACE] == 'e' ? 'a' : 'e';
    temp_write_text(run->data, text);
    mem_free(text);
}

/* `arguments`: what rank 1 has other than rank 0; the directories of both. */
static enum status rank_body(struct comm *comm, const char *const arguments[RANK_JOB_ARGUMENTS]) {
    const char *folder = arguments[1 + comm->rank];
    struct tiny_run run;
    tiny_run_make(folder, "llama", &run);
    if (strstr(arguments[0], "text"))
        take_text(&run, folder, comm->rank == 1 && strcmp(arguments[0], "a letter of text") == 0);
    if (comm->rank == 1) change(&run, folder, arguments[0]);
    run.plan.comm = comm;
    SETTINGS_GIVE(&run.plan, micro_batch_sequences, 1);
    SETTINGS_GIVE(&run.plan, threads, 1);
    if (strstr(arguments[0], "shards")) SETTINGS_GIVE(&run.plan, partition, "zero3");
    char *run_folder = mem_format("%s/run", arguments[1]);
    enum status status = tiny_run_begin(&run, run_folder, NULL);
    mem_free(run_folder);
    return status;
}

static enum status try_with(const char *folder, const char *what) {
    char zero[512], one[512];
    snprintf(zero, sizeof zero, "%s/%s 0", folder, what);
    snprintf(one, sizeof one, "%s/%s 1", folder, what);
    assert_int_equal(mkdir(zero, 0777), 0);
    assert_int_equal(mkdir(one, 0777), 0);
    enum status status = rank_job_run(&(struct rank_job){2, 1, false, {what, zero, one}});
    char *run_folder = mem_format("%s/run", zero);
    assert_int_equal(file_is_folder(run_folder), status == STATUS_OK);
    mem_free(run_folder);
    return status;
}

static void the_same_model_and_data_train(void **state) {
    expect_status(try_with(*state, "nothing"), STATUS_OK, "");
    expect_status(try_with(*state, "nothing, in shards"), STATUS_OK, "");
}

static void other_models_are_refused(void **state) {
    expect_status(try_with(*state, "weights"), STATUS_BAD_INPUT, "ranks differ in the model's weights: rank 1 on");
    expect_status(try_with(*state, "weights, in shards"), STATUS_BAD_INPUT,
                  "ranks differ in the model's weights: rank");
    expect_status(try_with(*state, "config"), STATUS_BAD_INPUT, "ranks differ in the model's config.json: rank 1 on");
}

static void other_data_are_refused(void **state) {
    expect_status(try_with(*state, "data"), STATUS_BAD_INPUT, "rank 1 on");
    expect_status(try_with(*state, "the same text"), STATUS_OK, "");
    expect_status(try_with(*state, "a letter of text"), STATUS_BAD_INPUT, "text.txt: rank 1 on");
    expect_status(try_with(*state, "no data"), STATUS_BAD_INPUT, "cannot open");
}

int main(int count, char **argument) {
    rank_job_enter(count, argument, rank_body);
    const struct CMUnitTest tests[] = {cmocka_unit_test(the_same_model_and_data_train),
                                       cmocka_unit_test(other_models_are_refused),
                                       cmocka_unit_test(other_data_are_refused)};
    return cmocka_run_group_tests(tests, temp_folder_make, temp_folder_drop);
}
