/* The public calls (include/ballast.h) over the modules below: each maps the public structs to internal ones, holds to
 * what the header promises around a call, and does the work by session, generate and train, as the subcommands do.
 *
 * Files, in the order to read them:
 *   call      around every call: one at a time, the process's state, the last error; log, stop; ballast_ranks_…;
 *             option structs: initialisers, and their fields to internal options
 *   train     ballast_train, ballast_resume, the trainer, ballast_evaluate
 *   plan      ballast_plan, and the session
 *   text      ballast_generate, and the writer */
#pragma once

#include <locale.h>
#include <signal.h>

#define BALLAST_EXPERIMENTAL
#include "ballast.h"
#include "base/base.h"
#include "generate/generate.h"
#include "session/options.h"
#include "train/evaluate.h"
#include "train/train.h"

/* A public call is `return LIBRARY_CALL(STATUS);`, whose expression of enum status is evaluated between library_begin,
 * where that lets it, and library_end. */
#define LIBRARY_CALL(...)                                                                                              \
    __extension__({                                                                                                    \
        struct library_call call_;                                                                                     \
        enum status status_ = library_begin(__func__, &call_);                                                         \
        library_end(&call_, status_ == STATUS_OK ? (__VA_ARGS__) : status_);                                           \
    })
struct library_call {
    bool begun;
    locale_t locale; /* the thread's, to be put back: numbers are written and read as in C meanwhile */
    int threads;     /* likewise OpenMP's */
};
/* BAD_INPUT where another call is under way, or the process is not as the header asks. */
enum status library_begin(const char *name, struct library_call *out);
/* What the caller returns; the message is cleared where that is BALLAST_OK. */
enum ballast_status library_end(const struct library_call *call, enum status status);

/* 1 after ballast_stop(), until a run or a text begins. */
extern volatile sig_atomic_t library_stopped;

/* BAD_INPUT "NAME: is NULL". */
enum status library_require(const void *pointer, const char *name);
/* BAD_INPUT "NAME.version: …" where it is another than this library's. */
enum status library_require_version(int version, int known, const char *name);

/* From public to internal options, over the defaults. NULL: nothing is given. Texts and lists stay borrowed. BAD_INPUT
 * naming the field. `decided`: a run says what is left open. */
enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out);
enum status library_read_training(const struct ballast_train_options *given, struct train_options *out);
enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct train_options *out);
enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out);
/* But for chat, system and chat_time_s, which are about the prompt. */
enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out);
/* plan.json of a plan whose model was given as `model`: a directory, a run's, or a preset's name (plan_document_make).
 */
enum status library_plan_document(const char *model, const struct session_plan *plan,
                                  const struct step_summary *prediction, json_t **out);
/* 0 where it is not given. */
enum status library_read_time(const char *name, int64_t given, int64_t *out);
