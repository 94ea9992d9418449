/* ballast_train, ballast_resume, ballast_trainer_… and ballast_evaluate. */
#include "api/library.h"
#include "session/engine.h"

static struct ballast_evaluation public_file(const struct eval_file *file) {
    return (struct ballast_evaluation){.version = BALLAST_EVALUATION_VERSION,
                                       .sequences = file->sequences,
                                       .tokens = file->tokens,
                                       .loss = file->loss,
                                       .perplexity = file->perplexity,
                                       .bits_per_byte = file->bits_per_byte,
                                       .reward_chosen = file->preference[PREFERENCE_CHOSEN],
                                       .reward_rejected = file->preference[PREFERENCE_REJECTED],
                                       .margin = preference_margin(file->preference),
                                       .accuracy = file->preference[PREFERENCE_RIGHT]};
}

static void report_files(const struct eval_result *result, ballast_file_callback *file, void *payload) {
    for (size_t i = 0; file && i < result->file_count; i++) {
        const struct ballast_evaluation evaluation = public_file(&result->files[i]);
        file(result->files[i].path, &evaluation, payload);
    }
}

static enum status evaluate(const char *model, const struct ballast_plan_options *plan,
                            const struct ballast_evaluate_options *options, struct ballast_evaluation *out,
                            ballast_file_callback *file, void *payload) {
    struct plan_options planning;
    struct eval_options evaluating;
    AUTO(eval_result_free) struct eval_result result = {0};
    TRY(library_require(out, "out"));
    TRY(library_require_version(out->version, BALLAST_EVALUATION_VERSION, "out"));
    TRY(library_require(model, "model"));
    TRY(library_read_evaluation(options, &evaluating));
    TRY(library_read_plan(plan, false, &planning));
    TRY(evaluate_files(model, &planning, &evaluating, &result));
    report_files(&result, file, payload);
    *out = public_file(&result.total);
    return STATUS_OK;
}

enum ballast_status ballast_evaluate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_evaluate_options *options, struct ballast_evaluation *out,
                                     ballast_file_callback *file, void *payload) {
    return LIBRARY_CALL(evaluate(model, plan, options, out, file, payload));
}

/* ballast_train and ballast_resume, and the trainer, which the caller drives step by step. */

/* The caller's callbacks, and the last step. */
struct watch {
    struct ballast_train_events events;
    struct ballast_step last;
    bool stepped; /* a step was done since the last turn began */
};

static struct ballast_step public_step(const struct train_step *step) {
    return (struct ballast_step){.step = step->step,
                                 .steps = step->steps,
                                 .epoch = step->epoch,
                                 .epochs = step->epochs,
                                 .loss = step->loss,
                                 .grad_norm = step->grad_norm,
                                 .learning_rate = step->learning_rate,
                                 .tokens = step->tokens,
                                 .tokens_per_s = step->tokens_per_s,
                                 .step_s = step->step_s,
                                 .mfu = step->mfu,
                                 .remaining_s = step->remaining_s,
                                 .predicted_step_s = step->predicted_step_s,
                                 .device_bytes = step->device_bytes,
                                 .reward_chosen = step->preference[PREFERENCE_CHOSEN],
                                 .reward_rejected = step->preference[PREFERENCE_REJECTED],
                                 .margin = preference_margin(step->preference),
                                 .accuracy = step->preference[PREFERENCE_RIGHT]};
}

static void on_step(void *payload, const struct train_step *step) {
    struct watch *watch = payload;
    watch->last = public_step(step);
    watch->stepped = true;
    if (watch->events.step && watch->events.step(&watch->last, watch->events.payload) != 0) ballast_stop();
}

static void on_validated(void *payload, const struct train_validation *validation) {
    const struct watch *watch = payload;
    if (watch->events.validated) watch->events.validated(validation->step, validation->loss, watch->events.payload);
}

static void on_sampled(void *payload, int64_t step, const char *prompt, const char *text) {
    const struct watch *watch = payload;
    if (watch->events.sampled) watch->events.sampled(step, prompt, text, watch->events.payload);
}

static void on_saved(void *payload, int64_t step, const char *folder) {
    const struct watch *watch = payload;
    if (watch->events.saved) watch->events.saved(step, folder, watch->events.payload);
}

static enum status stop_requested(void *payload, int64_t step, int64_t saved_step) {
    (void)payload, (void)step, (void)saved_step;
    return library_stopped ? STATUS_INTERRUPTED : STATUS_OK;
}

struct ballast_trainer {
    struct watch watch; /* which the open run's events point to */
    struct train_run *run;
    bool ended;
};

static enum status begin_watch(const struct ballast_train_events *events, struct ballast_trainer *trainer,
                               struct train_events *out) {
    trainer->watch = (struct watch){.events = BALLAST_TRAIN_EVENTS_INIT};
    if (events) {
        TRY(library_require_version(events->version, BALLAST_TRAIN_EVENTS_VERSION, "events"));
        trainer->watch.events = *events;
    }
    library_stopped = 0;
    *out = (struct train_events){.step = on_step,
                                 .validated = on_validated,
                                 .sampled = on_sampled,
                                 .saved = on_saved,
                                 .stop = stop_requested,
                                 .payload = &trainer->watch};
    return STATUS_OK;
}

static enum status open_new(const char *model, const char *run, const struct ballast_plan_options *plan,
                            const struct ballast_train_options *options, const struct ballast_train_events *events,
                            struct ballast_trainer *out) {
    struct plan_options planning;
    struct train_options training;
    struct train_events own;
    TRY(begin_watch(events, out, &own));
    TRY(library_require(model, "model"));
    TRY(library_require(run, "run"));
    TRY(library_require(options, "options"));
    TRY(library_read_training(options, &training));
    TRY(library_read_plan(plan, false, &planning));
    return train_open(model, run, &planning, &training, &own, &out->run);
}

static enum status open_resumed(const char *run, const struct ballast_plan_options *plan,
                                const struct ballast_resume_options *options, const struct ballast_train_events *events,
                                struct ballast_trainer *out) {
    struct plan_options planning;
    struct train_options resuming;
    struct train_events own;
    TRY(begin_watch(events, out, &own));
    TRY(library_require(run, "run"));
    TRY(library_read_plan(plan, true, &planning));
    TRY(library_read_resume(options, &planning, &resuming));
    return train_open_resumed(run, &planning, &resuming, &own, &out->run);
}

/* All turns of a run that was `opened`, which is closed in any case. */
static enum status finish(enum status opened, const struct ballast_trainer *trainer) {
    struct train_run *run = trainer->run;
    TRY(opened);
    enum status status = STATUS_OK;
    for (bool complete = false; status == STATUS_OK && !complete;)
        status = train_turn(run, &complete);
    (void)train_close(run);
    return status;
}

enum ballast_status ballast_train(const char *model, const char *run, const struct ballast_plan_options *plan,
                                  const struct ballast_train_options *options,
                                  const struct ballast_train_events *events) {
    struct ballast_trainer trainer = {.run = NULL};
    return LIBRARY_CALL(finish(open_new(model, run, plan, options, events, &trainer), &trainer));
}

enum ballast_status ballast_resume(const char *run, const struct ballast_plan_options *plan,
                                   const struct ballast_resume_options *options,
                                   const struct ballast_train_events *events) {
    struct ballast_trainer trainer = {.run = NULL};
    return LIBRARY_CALL(finish(open_resumed(run, plan, options, events, &trainer), &trainer));
}

static enum status trainer_open(const char *model, const char *run, const struct ballast_plan_options *plan,
                                const struct ballast_train_options *options, const struct ballast_train_events *events,
                                struct ballast_trainer **out) {
    TRY(library_require(out, "out"));
    AUTO_FREE struct ballast_trainer *trainer = mem_array(1, sizeof *trainer);
    TRY(trainer ? open_new(model, run, plan, options, events, trainer) : STATUS_FAILED);
    *out = TAKE(trainer);
    return STATUS_OK;
}

enum ballast_status ballast_trainer_open(const char *model, const char *run, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *options,
                                         const struct ballast_train_events *events, struct ballast_trainer **out) {
    return LIBRARY_CALL(trainer_open(model, run, plan, options, events, out));
}

static enum status trainer_resume(const char *run, const struct ballast_plan_options *plan,
                                  const struct ballast_resume_options *options,
                                  const struct ballast_train_events *events, struct ballast_trainer **out) {
    TRY(library_require(out, "out"));
    AUTO_FREE struct ballast_trainer *trainer = mem_array(1, sizeof *trainer);
    TRY(trainer ? open_resumed(run, plan, options, events, trainer) : STATUS_FAILED);
    *out = TAKE(trainer);
    return STATUS_OK;
}

enum ballast_status ballast_trainer_resume(const char *run, const struct ballast_plan_options *plan,
                                           const struct ballast_resume_options *options,
                                           const struct ballast_train_events *events, struct ballast_trainer **out) {
    return LIBRARY_CALL(trainer_resume(run, plan, options, events, out));
}

static enum status require_open(const struct ballast_trainer *trainer) {
    TRY(library_require(trainer, "trainer"));
    if (trainer->ended) return status_set(STATUS_BAD_INPUT, "trainer: its run is at its end; it can only be closed");
    train_take_thread(trainer->run);
    return STATUS_OK;
}

/* OK without a step: the run is complete. */
static enum status take_step(struct ballast_trainer *trainer, const struct ballast_step **out) {
    bool complete;
    TRY(library_require(out, "out"));
    TRY(require_open(trainer));
    trainer->watch.stepped = false;
    enum status status = train_turn(trainer->run, &complete);
    trainer->ended = status != STATUS_OK || complete;
    if (status == STATUS_OK) *out = trainer->watch.stepped ? &trainer->watch.last : NULL;
    return status;
}

enum ballast_status ballast_trainer_step(struct ballast_trainer *trainer, const struct ballast_step **out) {
    return LIBRARY_CALL(take_step(trainer, out));
}

static enum status save(struct ballast_trainer *trainer) {
    TRY(require_open(trainer));
    return train_save(trainer->run);
}

enum ballast_status ballast_trainer_save(struct ballast_trainer *trainer) { return LIBRARY_CALL(save(trainer)); }

static enum status hash(struct ballast_trainer *trainer, uint64_t *out) {
    TRY(library_require(out, "out"));
    TRY(require_open(trainer));
    return train_hash(trainer->run, out);
}

enum ballast_status ballast_trainer_hash(struct ballast_trainer *trainer, uint64_t *out) {
    return LIBRARY_CALL(hash(trainer, out));
}

static enum status close_trainer(struct ballast_trainer *trainer) {
    train_take_thread(trainer->run);
    enum status status = train_close(trainer->run);
    mem_free(trainer);
    return status;
}

enum ballast_status ballast_trainer_close(struct ballast_trainer *trainer) {
    return trainer ? LIBRARY_CALL(close_trainer(trainer)) : BALLAST_OK;
}
