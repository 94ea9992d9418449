#include "train/loop.h"

#include <limits.h>
#include <math.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/terminal.h"
#include "base/text.h"
#include "generate/chat.h"
#include "session/machine_costs.h"
#include "session/model_tokenizer.h"
#include "train/evaluate.h"

static int64_t schedule_steps(const struct train_options *options) {
    return SETTINGS_HAVE(options, schedule_steps) ? options->schedule_steps : options->steps;
}

int64_t lr_warmup_steps(const struct train_options *options) {
    enum { WARMUP_MAX = 100 };
    int64_t tenth = schedule_steps(options) / 10;
    return SETTINGS_HAVE(options, warmup_steps) ? options->warmup_steps : tenth < WARMUP_MAX ? tenth : WARMUP_MAX;
}

static double wsd_fraction(const struct train_options *options, double step) {
    double steps = (double)schedule_steps(options), decay = round(steps * options->wsd_decay_fraction);
    double into = step - (steps - decay);
    return into <= 0 ? 1 : 1 - (1 - options->min_lr_fraction) * into / decay;
}

double lr_at_step(const struct train_options *options, int64_t step) {
    const double pi = 3.14159265358979323846;
    int64_t steps = schedule_steps(options), warmup = lr_warmup_steps(options);
    if (step < warmup) return options->learning_rate * ((double)(step + 1) / (double)warmup);
    if (step > steps) step = steps;
    double decay_steps = (double)(steps - warmup), m = options->min_lr_fraction, fraction = 1;
    double progress = decay_steps > 0 ? (double)(step - warmup) / decay_steps : 1;
    switch (options->schedule) {
    case LR_SCHEDULE_COSINE: fraction = m + (1 - m) * 0.5 * (1 + cos(pi * progress)); break;
    case LR_SCHEDULE_LINEAR: fraction = 1 - (1 - m) * progress; break;
    case LR_SCHEDULE_WSD: fraction = wsd_fraction(options, (double)step); break;
    case LR_SCHEDULE_CONSTANT:
    case LR_SCHEDULE_COUNT: break;
    }
    return options->learning_rate * fraction;
}

static enum status count_steps(const struct recipe *recipe, int64_t rows, struct train_options *options) {
    /* 0.7 of 10 rows are 7, though the product is a little more. */
    const double slack = 1e-12;
    const struct setting *limits = &setting_table[SETTING_steps];
    double steps = ceil(options->epochs * (double)rows / (double)recipe->batch * (1 - slack));
    if (steps > (double)limits->max)
        return status_set(STATUS_BAD_INPUT, "epochs: %g of %" PRId64 " sequences take more than %" PRId64 " steps",
                          options->epochs, rows, limits->max);
    options->steps = steps < 1 ? 1 : (int64_t)steps;
    return STATUS_OK;
}

static enum status settle_steps(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                                struct train_options *options) {
    if (dataset_is_mixed(dataset))
        return status_set(STATUS_BAD_INPUT, "epochs: the data have weights, so that each source has "
                                            "epochs of its own" HINT "give --steps, or leave the weights out");
    TRY(dataset_settle(dataset, DATASET_TRAIN));
    TRY(count_steps(recipe, dataset_split_sequences(dataset, DATASET_TRAIN), options));
    if (options->steps < done)
        return status_set(STATUS_BAD_INPUT,
                          "epochs: %g are %" PRId64 " steps, fewer than the %" PRId64 " that are done", options->epochs,
                          options->steps, done);
    log_note("%g epoch%s of %" PRId64 " sequences: %" PRId64 " step%s", options->epochs,
             options->epochs > 1 || options->epochs < 1 ? "s" : "", dataset_split_sequences(dataset, DATASET_TRAIN),
             options->steps, options->steps > 1 ? "s" : "");
    return STATUS_OK;
}

/* Packed examples may have fewer rows than a batch. */
static void report_repeats(const struct dataset *dataset, const struct recipe *recipe) {
    int64_t rows = dataset_split_sequences(dataset, DATASET_TRAIN);
    if (dataset_is_mixed(dataset) || rows < 0 || rows >= recipe->batch) return;
    log_note("each step of %" PRId64 " sequences repeats the %" PRId64
             " training sequence%s %.1f times; --batch %" PRId64 " repeats none",
             recipe->batch, rows, rows > 1 ? "s" : "", (double)recipe->batch / (double)rows, rows);
}

enum status run_length_settle(struct dataset *dataset, const struct recipe *recipe, int64_t done,
                              struct train_options *options) {
    if (SETTINGS_HAVE(options, epochs)) TRY(settle_steps(dataset, recipe, done, options));
    report_repeats(dataset, recipe);
    SETTINGS_GIVE(options, warmup_steps, lr_warmup_steps(options));
    return STATUS_OK;
}

/* Epochs completed after `steps`; 0 if the run's length is not given in epochs. */
static double run_length_epoch(const struct dataset *dataset, const struct recipe *recipe,
                               const struct train_options *options, int64_t steps) {
    if (!SETTINGS_HAVE(options, epochs)) return 0;
    return (double)steps * (double)recipe->batch / (double)dataset_split_sequences(dataset, DATASET_TRAIN);
}

enum status train_loop_finish_save(struct train_run *run) {
    char *folder;
    TRY(checkpoint_writer_finish(&run->writer, &folder));
    if (!folder) return STATUS_OK;
    mem_free(run->newest);
    run->newest = folder;
    run->newest_step = run->writer.state.step;
    if (run->events->saved) run->events->saved(run->events->payload, run->writer.state.step, folder);
    return STATUS_OK;
}

static enum status refuse_nonfinite(struct train_run *run, int64_t step, const struct step_numbers *numbers) {
    bool weight;
    TRY(train_loop_finish_save(run)); /* the checkpoint's thread reads weights, and so will this one */
    AUTO_FREE char *place = engine_find_nonfinite(&run->engine, &weight);
    (void)status_set(STATUS_FAILED, "step %" PRId64 ": the %s is not finite; the first value that is not: %s", step,
                     isfinite(numbers->loss) ? "gradient norm" : "loss", place ? place : "unknown");
    bool unchanged = run->plan.chosen.recipe.clip_norm > 0; /* otherwise updates did not wait for the norm */
    return status_hint(STATUS_FAILED, weight && step == 1 && unchanged ? "it is so in the model's files"
                                                                       : "a lower --lr or a longer warm-up may help");
}

/* A step cannot be above the matrix rate: the rate was then measured while other programs computed. It is measured
 * again, once, and from then on is at least the rate that steps reach. Several ranks cannot measure apart. */
static void raise_matrix_rate(struct train_run *run, double reached_flops_per_s) {
    const double before = run->matrix_flops_per_s;
    double again = before;
    if (before <= 0 || reached_flops_per_s <= before) return;
    if (!run->matrix_rate_again && session_ranks(&run->session) == 1) {
        char rates[3][COUNT_TEXT];
        enum status status = machine_matrix_rate(&run->session.machine, &run->plan.programs, &run->plan.chosen.recipe,
                                                 &(struct measuring){.anew = true}, &again);
        if (status != STATUS_OK) status_clear();
        log_note("step %" PRId64 " reached %sFLOP/s, above the matrix rate of %sFLOP/s, which was measured while other "
                 "programs computed; measured again: %sFLOP/s",
                 run->state.step, amount_print(reached_flops_per_s, rates[0]), amount_print(before, rates[1]),
                 amount_print(again, rates[2]));
    }
    run->matrix_rate_again = true;
    run->matrix_flops_per_s = fmax(again, reached_flops_per_s);
}

static void describe_step(struct train_run *run, const struct step_numbers *numbers, double learning_rate,
                          int64_t elapsed_ns, struct train_step *out) {
    const struct recipe *recipe = &run->plan.chosen.recipe;
    double seconds = (double)elapsed_ns * 1e-9, tokens = (double)(recipe->batch * recipe->sequence_length);
    double flops_per_s = run->plan.figures.flops_per_token * tokens / seconds;
    raise_matrix_rate(run, flops_per_s);
    run->smooth_step_s = run->smooth_step_s > 0 ? 0.9 * run->smooth_step_s + 0.1 * seconds : seconds;
    *out = (struct train_step){
        .step = run->state.step,
        .settled = run->state.step - 1 == run->record.settled,
        .steps = run->options->steps,
        .epoch = run_length_epoch(run->data.dataset, recipe, run->options, run->state.step),
        .epochs = run->options->epochs,
        .loss = numbers->loss,
        .grad_norm = numbers->grad_norm,
        .learning_rate = learning_rate,
        .tokens = run->state.tokens,
        .tokens_per_s = tokens / seconds,
        .step_s = seconds,
        .mfu = run->matrix_flops_per_s > 0 ? flops_per_s / run->matrix_flops_per_s : NAN,
        .device_bytes = engine_resident_bytes(&run->engine),
        .predicted_step_s = run->prediction.step_s,
        .predicted_device_bytes = run->plan.programs.tier_bytes[TIER_DEVICE],
        .pairs = recipe->loss == TRAINING_DPO,
        .remaining_s = run->smooth_step_s * (double)(run->options->steps - run->state.step),
    };
}

static enum status record_step(struct train_run *run, const struct train_step *step) {
    const double *preference = step->preference;
    const struct event_scalar scalars[] = {{"loss", step->loss},
                                           {"grad_norm", step->grad_norm},
                                           {"lr", step->learning_rate},
                                           {"tokens_per_s", step->tokens_per_s}},
                              of_pairs[] = {{"reward_chosen", preference[PREFERENCE_CHOSEN]},
                                            {"reward_rejected", preference[PREFERENCE_REJECTED]},
                                            {"margin", preference_margin(preference)},
                                            {"accuracy", preference[PREFERENCE_RIGHT]}};
    TRY(metrics_write_step(&run->metrics, step));
    TRY(event_file_write(&run->events_file, step->step, scalars, sizeof scalars / sizeof *scalars));
    if (!step->pairs) return STATUS_OK;
    return event_file_write(&run->events_file, step->step, of_pairs, sizeof of_pairs / sizeof *of_pairs);
}

/* Expert slots are recorded after the first step and every tenth. */
enum { EXPERTS_EVERY = 10 };

static enum status record_experts(struct train_run *run) {
    const struct expert_counts *counts = &run->engine.expert_counts;
    int64_t step = run->state.step;
    if (counts->layers == 0 || (step != 1 && step % EXPERTS_EVERY != 0)) return STATUS_OK;
    TRY(engine_count_experts(&run->engine));
    struct expert_spread spread = expert_counts_spread(counts);
    const struct event_scalar scalars[] = {{"expert_min", spread.min}, {"expert_max", spread.max}};
    TRY(metrics_write_experts(&run->metrics, step, counts));
    return event_file_write(&run->events_file, step, scalars, sizeof scalars / sizeof *scalars);
}

/* `figures`: means of the loss's (engine.h). */
static enum status record_validation(struct train_run *run, const double figures[LOSS_FIGURES_MAX]) {
    bool pairs = run->plan.chosen.recipe.loss == TRAINING_DPO;
    const struct event_scalar scalars[] = {{"val_loss", figures[0]},
                                           {"val_margin", preference_margin(figures)},
                                           {"val_accuracy", figures[PREFERENCE_RIGHT]}};
    TRY(metrics_write_validation(&run->metrics, run->state.step, figures, pairs));
    return event_file_write(&run->events_file, run->state.step, scalars, pairs ? sizeof scalars / sizeof *scalars : 1);
}

/* Ignores one or two slow steps: other processes may have slowed them. */
enum { OFF_STEPS = 10 };
static const double OFF_PART = 0.2;

/* Whether to record steps, so that a wrong prediction can be explained. */
static bool is_doubtful(const struct train_run *run) { return run->off_steps > 0 && run->off_steps < OFF_STEPS; }

static void report_misprediction(const struct train_run *run, const struct train_step *step) {
    struct misprediction misprediction = {
        .step = step->step, .steps = OFF_STEPS, .part = OFF_PART, .step_s = step->step_s, .predicted = run->prediction};
    const struct timeline *recorded = &run->record.timeline;
    bool known = run->plan.costs.kernels && recorded->events.count > 0; /* the activity of each instruction */
    if (known) step_summarise(recorded, &run->plan.costs, &misprediction.measured);
    if (run->events->mispredicted) run->events->mispredicted(run->events->payload, &misprediction);
}

static void check_prediction(struct train_run *run, const struct train_step *step) {
    if (step->predicted_step_s <= 0 || run->off_steps >= OFF_STEPS) return;
    bool off = fabs(step->step_s / step->predicted_step_s - 1) > OFF_PART;
    run->off_steps = off ? run->off_steps + 1 : 0;
    if (run->off_steps == OFF_STEPS) report_misprediction(run, step);
}

static enum status one_step(struct train_run *run) {
    const struct recipe *recipe = &run->plan.chosen.recipe;
    double learning_rate = lr_at_step(run->options, run->state.step);
    struct step_numbers numbers;
    bool watched = plan_watch_records(&run->watch, run->state.step);
    step_record_begin(&run->record, run->engine.main, run->state.step, watched || is_doubtful(run));
    int64_t start = clock_now_ns();
    enum status stepped = engine_step(&run->engine, run->data.dataset, run->state.step, learning_rate, &numbers);
    run->whole = stepped != STATUS_OK && !run->engine.partially_updated; /* a step that could not begin has changed
                                                                          * nothing */
    TRY(stepped);
    int64_t elapsed = clock_now_ns() - start;
    enum status recorded =
        step_record_end(&run->record, run->engine.main, run->state.step, (double)elapsed * 1e-9, run->folder);
    if (!isfinite(numbers.loss) || !isfinite(numbers.grad_norm))
        return refuse_nonfinite(run, run->state.step + 1, &numbers);
    if (watched) plan_watch_take(&run->watch, &run->record.timeline);
    run->state.step++;
    run->state.tokens += recipe->batch * recipe->sequence_length;
    run->state.loss = numbers.loss;
    run->validated = false;
    struct train_step step;
    describe_step(run, &numbers, learning_rate, elapsed > 0 ? elapsed : 1, &step);
    memcpy(step.preference, numbers.preference, sizeof step.preference);
    TRY(record_step(run, &step));
    TRY(record_experts(run));
    run->whole = true;
    TRY(recorded);
    if (run->events->step) run->events->step(run->events->payload, &step);
    check_prediction(run, &step);
    return STATUS_OK;
}

static bool validation_due(const struct train_run *run) {
    int64_t every = run->options->valid_every, step = run->state.step;
    bool due = every > 0 && step > 0 && (step % every == 0 || step == run->options->steps);
    return due && !run->validated && dataset_has(run->data.dataset, DATASET_VALID);
}

enum status train_loop_check_stop(const struct train_run *run) {
    const struct train_events *events = run->events;
    int64_t saved = run->options->save_every > 0 ? run->newest_step : -1;
    return events->stop ? events->stop(events->payload, run->state.step + 1, saved) : STATUS_OK;
}

/* A stop ends it without a result. Resuming repeats the validation. */
static enum status validate(struct train_run *run) {
    struct dataset *dataset = run->data.dataset;
    TRY(run_agree(run, dataset_settle(dataset, DATASET_VALID)));
    TRY(engine_settle(&run->engine));
    int64_t batch = run->plan.chosen.recipe.batch, sequences = dataset_split_sequences(dataset, DATASET_VALID);
    int64_t batches = (sequences + batch - 1) / batch, max = run->options->valid_batches;
    if (max > 0 && batches > max) batches = max;
    struct loss_sum sum = {0};
    for (int64_t b = 0; b < batches; b += engine_turn_of(&run->engine).places) {
        TRY(loss_sum_add_turn(&run->engine, dataset, b, batches, train_loop_check_stop(run) != STATUS_OK, &sum));
        if (sum.stopped) return STATUS_OK;
    }
    double means[LOSS_FIGURES_MAX];
    loss_sum_means(&sum, means);
    if (!isfinite(means[0]))
        return status_set(STATUS_FAILED, "step %" PRId64 ": the validation loss is not finite", run->state.step);
    TRY(record_validation(run, means));
    run->validated = true;
    struct train_validation validation = {
        .step = run->state.step, .loss = means[0], .pairs = run->plan.chosen.recipe.loss == TRAINING_DPO};
    if (validation.pairs) memcpy(validation.preference, means, sizeof validation.preference);
    if (run->events->validated) run->events->validated(run->events->payload, &validation);
    return STATUS_OK;
}

static bool sample_due(const struct train_run *run) {
    int64_t every = run->options->sample_every, step = run->state.step;
    return every > 0 && step > 0 && (step % every == 0 || step == run->options->steps);
}

static enum status sample(struct train_run *run) {
    AUTO_FREE char *text = NULL;
    TRY(engine_settle(&run->engine));
    TRY(samples_take(&run->samples, &run->engine, run->options, run->state.step, &text));
    if (run->events->sampled)
        run->events->sampled(run->events->payload, run->state.step, run->options->sample_prompt, text);
    return STATUS_OK;
}

/* Cheap compared with a step, but a request on a network file system. */
enum { LOOKS_AFTER_STEPS = 100 };

/* Handles a run whose directory was renamed or removed while it trained. Rank 0, which holds it open, finds or makes
 * another one for all ranks. */

/* Whether the run's name still leads to the directory that it holds open. */
static bool run_is_in_place(const struct train_run *run) { return folder_is_at(run->folder, run->lock); }

/* The path of the open directory. NULL if it has none, or none that this process sees. */
static char *find_path(int folder) {
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", folder);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length <= 0) return NULL;
    path[length] = '\0';
    return folder_is_at(path, folder) ? mem_string(path) : NULL;
}

/* A name for the remains of the run, next to its old one. */
static char *choose_name(const char *folder) {
    size_t length = strlen(folder);
    while (length > 1 && folder[length - 1] == '/')
        length--;
    AUTO_FREE char *name = mem_format("%.*s.rescued", (int)length, folder);
    if (!name || !file_exists(name)) return TAKE(name);
    AUTO_FREE char *prefix = mem_format("%s-", path_name(name));
    return prefix ? path_beside(name, prefix) : NULL;
}

/* The new directory's lock replaces the old one's. */
static enum status begin_beside(struct train_run *run, const char *path) {
    char metrics[RUN_PATH_BYTES];
    int lock;
    TRY(run_folder_create(path, &run->settings, &lock));
    run_folder_unlock(run->lock);
    run->lock = lock;
    TRY(run_path(path, "metrics.jsonl", metrics));
    TRY(metrics_copy(&run->metrics, metrics));
    return run->reference.values ? reference_write(path, run->data.dataset, &run->reference) : STATUS_OK;
}

/* Checkpoints copy the tokenizer's files from the newest earlier one. If that is gone, they copy from the initial
 * model. */
static enum status move_model_folder(struct train_run *run, bool renamed) {
    struct model *model = run->session.model;
    char **moved = model->config.adapter.rank > 0 ? &model->adapter_folder : &model->folder;
    char *path = renamed && run->newest ? mem_format("%s/checkpoints/%s", run->folder, path_name(run->newest))
                                        : mem_string(run->settings.model_folder);
    if (!path) return STATUS_FAILED;
    mem_free(*moved);
    *moved = path;
    return STATUS_OK;
}

/* Runs on the rank that holds the directory's lock. */
static enum status find_place(struct train_run *run, bool *renamed, char **path) {
    *path = find_path(run->lock);
    *renamed = *path != NULL;
    if (!*renamed) *path = choose_name(run->folder);
    if (!*path) return STATUS_FAILED;
    return *renamed ? STATUS_OK : begin_beside(run, *path);
}

/* Broadcasts rank 0's result as text: whether the directory was renamed, and the path. */
static enum status share_place(struct train_run *run, bool *renamed, char **path) {
    struct comm *comm = run->session.comm;
    if (session_ranks(&run->session) == 1) return STATUS_OK;
    AUTO_FREE char *text = run_leads(run) ? mem_format("%d%s", *renamed, *path) : NULL;
    TRY(run_agree(run, text || !run_leads(run) ? STATUS_OK : STATUS_FAILED));
    enum status status = comm_share_text(comm, &text);
    if (status == STATUS_OK && !run_leads(run)) {
        *renamed = text[0] == '1';
        *path = mem_string(text + 1);
        status = *path ? STATUS_OK : STATUS_FAILED;
    }
    return run_agree(run, status);
}

/* Whether the directory has moved, and the ranks' state is worth a checkpoint. The functions from here on are
 * collective. */
static bool run_wants_rescue(const struct train_run *run) {
    struct claim {
        bool displaced, sound;
    } mine = {run_leads(run) && !run_is_in_place(run), run->whole && !run->engine.partially_updated},
      wanted = {.sound = true};
    enum status status = STATUS_OK;
    AUTO_FREE struct claim *theirs = ranks_gather(run->session.comm, &mine, sizeof mine, &status);
    for (int rank = 0; theirs && rank < session_ranks(&run->session); rank++) {
        wanted.displaced |= theirs[rank].displaced;
        wanted.sound &= theirs[rank].sound;
    }
    return status == STATUS_OK && wanted.displaced && wanted.sound;
}

/* Moves the run to its directory's new path, with its settings and metrics. If there is none, makes a new directory
 * next to the old name (RUN.rescued). The run then also has the tokenizer files that it may copy. No checkpoint is
 * being written. `*how` is "renamed" or "removed", for a message. FAILED if nothing can be written there. */
static enum status run_rescue(struct train_run *run, const char **how) {
    bool renamed = false;
    AUTO_FREE char *path = NULL;
    enum status status = run_agree(run, run_leads(run) ? find_place(run, &renamed, &path) : STATUS_OK);
    if (status == STATUS_OK) status = share_place(run, &renamed, &path);
    if (status != STATUS_OK) return STATUS_FAILED;
    *how = renamed ? "renamed" : "removed";
    mem_free(run->rescued);
    run->folder = run->rescued = TAKE(path);
    run->writer.source.run_folder = run->folder;
    return run_agree(run, move_model_folder(run, renamed));
}

static enum status require_place(const struct train_run *run) {
    return run_is_in_place(run) ? STATUS_OK
                                : status_set(STATUS_FAILED, "%s: is not the run's directory any more", run->folder);
}

static enum status begin_save(struct train_run *run) {
    if (run->saved_step == run->state.step) return STATUS_OK;
    TRY(run_agree(run, run_leads(run) ? require_place(run) : STATUS_OK));
    TRY(train_loop_finish_save(run));
    TRY(engine_settle(&run->engine));
    run->saved_step = run->state.step;
    TRY(checkpoint_writer_begin(&run->writer, &run->state));
    if (run->events->saving) run->events->saving(run->events->payload, run->state.step);
    return STATUS_OK;
}

enum status train_loop_save(struct train_run *run) {
    TRY(begin_save(run));
    return train_loop_finish_save(run);
}

static bool save_due(const struct train_run *run, bool ends) {
    int64_t every = run->options->save_every, step = run->state.step;
    return every > 0 && step > 0 && (ends || step % every == 0);
}

enum status train_loop_stop(struct train_run *run, enum status how) {
    if (save_due(run, true)) TRY(train_loop_save(run));
    (void)status_set(how, "stopped after step %" PRId64 " of %" PRId64, run->state.step, run->options->steps);
    if (run->options->save_every == 0) return status_hint(how, "nothing was saved: --save-every is 0");
    char argument[PATH_SHELL_BYTES];
    return status_hint(how, "go on with: ballast resume %s", path_for_shell(run->folder, argument));
}

/* Whether the run can continue, agreed among all ranks: the directory exists, and no rank received a stop request. */
static enum status agree_to_go_on(struct train_run *run) {
    bool looks = run_leads(run) && run->state.step % LOOKS_AFTER_STEPS == 0;
    enum status mine = looks ? require_place(run) : STATUS_OK;
    int64_t min;
    if (mine == STATUS_OK) mine = train_loop_check_stop(run);
    TRY(step_collectives_min(&run->engine.collectives, mine, plan_watch_look(run), &min));
    plan_watch_hear(run, min);
    return STATUS_OK;
}

/* Evaluates the model between two steps, which may take long. An earlier stop request skips it. */
static enum status look_at_model(struct train_run *run) {
    bool validates = validation_due(run), samples = sample_due(run);
    if (validates) TRY(validate(run));
    if (samples && (!validates || agree_to_go_on(run) == STATUS_OK)) TRY(run_agree(run, sample(run)));
    return validates || samples ? agree_to_go_on(run) : STATUS_OK;
}

enum status train_loop_turn(struct train_run *run, bool *complete) {
    enum status agreed = agree_to_go_on(run);
    if (agreed != STATUS_OK && !status_is_stop(agreed)) return agreed;
    if (checkpoint_writer_ended(&run->writer)) TRY(train_loop_finish_save(run));
    if (agreed == STATUS_OK) agreed = look_at_model(run);
    if (agreed != STATUS_OK && !status_is_stop(agreed)) return agreed;
    *complete = run->state.step >= run->options->steps;
    if (save_due(run, *complete)) TRY(begin_save(run));
    if (*complete) return train_loop_finish_save(run);
    if (agreed != STATUS_OK) return train_loop_stop(run, agreed);
    TRY(plan_watch_turn(run));
    return one_step(run);
}

/* Saves a checkpoint of the last step to the current path of the run's directory. */
static enum status save_displaced(struct train_run *run) {
    const char *how, *name = run->folder;
    char argument[PATH_SHELL_BYTES];
    TRY(run_rescue(run, &how));
    run->saved_step = -1;
    TRY(begin_save(run));
    TRY(train_loop_finish_save(run));
    return status_set(STATUS_FAILED,
                      "%s: was %s while it was trained; stopped after step %" PRId64 ", go on with: ballast resume %s",
                      name, how, run->state.step, path_for_shell(run->folder, argument));
}

/* Saves as much as possible of a run that fails: finishes the checkpoint in progress, and saves one of the last step if
 * only later work failed. */
static void save_after(struct train_run *run) {
    bool tried = run->saved_step == run->state.step, written = train_loop_finish_save(run) == STATUS_OK;
    bool wanted = run->options->save_every > 0 && run->whole && !run->engine.partially_updated && run->state.step > 0;
    if (written && wanted && !tried && begin_save(run) == STATUS_OK) (void)train_loop_finish_save(run);
}

/* Reports the first error. */
static enum status finish_after(struct train_run *run, enum status status) {
    struct status_copy failure;
    status_save(status, &failure);
    save_after(run);
    return status_restore(&failure);
}

/* Ranks save together, so not after a failure that other ranks do not know of. */
static bool can_save(const struct train_run *run) {
    return session_ranks(&run->session) == 1 || run->session.comm->agreed_failure;
}

/* If the run's directory is gone, reports that as the cause of the failure. */
static enum status end_loop(struct train_run *run, enum status status) {
    if (!can_save(run)) return status;
    if (!run_wants_rescue(run)) return finish_after(run, status);
    (void)train_loop_finish_save(run);
    return save_displaced(run);
}

enum status train_loop_attach(struct train_run *run) {
    checkpoint_writer_open(run->folder, &run->engine, run->data.dataset, run->options, &run->metrics, &run->writer);
    run->record.step = run->record.settled = -1;
    if (!run_leads(run) && !plan_watch_wanted(run)) return STATUS_OK;
    TRY(step_record_open(programs_main(&run->plan.programs)->program, run->state.step, run->options->steps,
                         &run->record));
    if (!run_leads(run)) run->record.step = run->record.settled = -1; /* no file */
    return STATUS_OK;
}

void train_loop_detach(struct train_run *run) {
    step_record_close(&run->record);
    checkpoint_writer_close(&run->writer);
    engine_close(&run->engine);
}

enum status train_loop_begin(struct train_run *run) {
    dataset_tokenize_beside(run->data.dataset);
    run->whole = true;
    run->newest_step = run->newest ? run->state.step : 0;
    TRY(train_loop_attach(run));
    return plan_watch_open(run);
}

enum status train_loop_end(struct train_run *run, enum status status) {
    if (status != STATUS_OK) status = end_loop(run, status);
    step_record_close(&run->record);
    plan_watch_close(&run->watch);
    checkpoint_writer_close(&run->writer);
    return status;
}
