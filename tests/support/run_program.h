/* Runs the built program `ballast` as a user would. */
#pragma once

#include <sys/types.h>

struct program_run {
    int status;      /* exit status; 128 + signal when a signal ended it */
    char *out, *err; /* what it wrote; free with program_run_free */
};

/* Runs BALLAST_PROGRAM with these arguments (ending with NULL) and waits. `folder` is for its output, and is otherwise
 * not used. Fails the test where the program cannot be started. */
struct program_run program_run(const char *folder, const char *const *arguments);
/* PROGRAM(directory, "plan", "model", "--json") */
#define PROGRAM(folder, ...) program_run(folder, (const char *const[]){__VA_ARGS__, NULL})
/* The same with the file `input` as standard input. */
struct program_run program_run_input(const char *folder, const char *input, const char *const *arguments);
void program_run_free(struct program_run *run);

/* The same in two halves, so that the test can act in between. */
pid_t program_start(const char *folder, const char *const *arguments);
/* The same of a shell's command, in place of the program. */
pid_t program_start_shell(const char *folder, const char *command);
struct program_run program_finish(const char *folder, pid_t process);
/* Ends the test where the process has ended: for loops that wait for what it does, however long a busy machine takes.
 */
void program_expect_running(const char *folder, pid_t process);

/* Runs and expects this exit status and, on stderr, each of the texts (a list that ends with NULL). */
void program_expect(const char *folder, int status, const char *const *texts, const char *const *arguments);

/* A text file with about `word_count` words of a small language, and a tiny Llama with a tokenizer trained on it, made
 * by `ballast init`: vocabulary 300, context 32, 2 layers of 24. */
struct program_place {
    char folder[512], model[600], text[600]; /* `folder` also has the cache */
    char here[540], run[600];                /* for what is made: `folder`, or one case's own; there is no run yet */
};
/* A fresh directory with such a text and model; 0, as cmocka's set-ups return. */
int program_place_make(struct program_place *out, int word_count);
int program_place_drop(const struct program_place *place);
/* For test cases that share a place, so that the model is made and the machine measured once: a fresh directory for
 * what one case makes, with its `run`. Each returns 0, as cmocka's set-ups do. */
int program_case_begin(struct program_place *place);
int program_case_end(const struct program_place *place);
void make_text(const char *path, int word_count);
void make_tiny_model(const char *folder, const char *model, const char *text);
