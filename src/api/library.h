/* Implements the public calls (include/ballast.h) on top of the modules below. Each call converts the public structs to
 * internal ones, keeps the header's promises about the process, and works through session, generate and train, as the
 * subcommands do.
 *
 * Files, in the order to read them:
 *   call      common to all calls: exclusion, process state, the last error; log, stop; ballast_ranks_…; initializers
 *             and conversion of option structs
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
    locale_t locale; /* the thread's locale, to be restored; the call uses the C locale */
    int threads;     /* OpenMP's number of threads, to be restored */
};
/* Begins a public call. Returns BAD_INPUT if another call is in progress, or if the process does not meet the
 * header's requirements. */
enum status library_begin(const char *name, struct library_call *out);
/* Ends a public call. Returns the status for its caller, and clears the message if that is BALLAST_OK. */
enum ballast_status library_end(const struct library_call *call, enum status status);

/* 1 after ballast_stop(), until a run or a text begins. */
extern volatile sig_atomic_t library_stopped;

/* Returns BAD_INPUT "NAME: is NULL" for NULL. */
enum status library_require(const void *pointer, const char *name);
/* Returns BAD_INPUT "NAME.version: …" if the version is not this library's. */
enum status library_require_version(int version, int known, const char *name);

/* Convert public options to internal ones, over the defaults. NULL: no option is given. Strings and lists stay
 * borrowed. BAD_INPUT names the field. `decided`: a run gives the remaining values. */
enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out);
enum status library_read_training(const struct ballast_train_options *given, struct train_options *out);
enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct train_options *out);
enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out);
/* Converts all options but chat, system and chat_time_s, which concern the prompt. */
enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out);
/* Makes plan.json (plan_document_make). `model` is the caller's: a directory, a run's directory, or a preset's name. */
enum status library_plan_document(const char *model, const struct session_plan *plan,
                                  const struct step_summary *prediction, json_t **out);
/* Checks a time. Sets 0 if it is not given. */
enum status library_read_time(const char *name, int64_t given, int64_t *out);
