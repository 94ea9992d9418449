#include "train/train.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/terminal.h"
#include "data/source.h"
#include "model/model.h"
#include "session/checkpoint/joint_folder.h"
#include "session/checkpoint/run_folder.h"
#include "session/machine_costs.h"
#include "session/plan.h"
#include "train/data.h"
#include "train/loop.h"
#include "train/run_origin.h"
#include "train/run_state.h"

static const struct train_events no_events;

/* Every rank may receive stop requests. */
static struct train_events events_of_rank(const struct train_events *events, const struct comm *comm) {
    if (!events) return no_events;
    return !comm || comm->rank == 0 ? *events : (struct train_events){.stop = events->stop, .payload = events->payload};
}

static struct train_run *create_run(const char *folder, const struct train_events *events, const struct comm *comm) {
    struct train_run *run = mem_array(1, sizeof *run);
    if (!run) return NULL;
    *run = (struct train_run){.rank_events = events_of_rank(events, comm), .saved_step = -1, .lock = -1};
    run->metrics.descriptor = run->events_file.descriptor = run->samples.file.descriptor = -1;
    run->events = &run->rank_events;
    run->options = &run->settings.options;
    run->folder = run->given_folder = mem_string(folder);
    if (run->folder) return run;
    mem_free(run);
    return NULL;
}

static void free_run(struct train_run *run) {
    metrics_close(&run->metrics);
    metrics_close(&run->events_file);
    samples_close(&run->samples);
    engine_close(&run->engine);
    train_data_close(&run->data);
    reference_free(&run->reference);
    session_plan_free(&run->plan);
    session_close(&run->session);
    mem_free(run->newest);
    run_folder_unlock(run->lock);
    mem_free(run->rescued);
    mem_free(run->given_folder);
    run_settings_free(&run->settings);
    mem_free(run);
}

static enum status require_training_data(const struct train_run *run) {
    if (dataset_has(run->data.dataset, DATASET_TRAIN)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "the data have no training sequence of %" PRId64 " tokens",
                      run->plan.chosen.recipe.sequence_length);
}

/* Finds the predicted time of a step. Costs are known if the policy was searched for, or the model was planned or
 * profiled before. They are measured now if the run watches for faster policies. Otherwise the run's plan file may have
 * a prediction. */
static enum status predict_step(struct train_run *run) {
    bool learns = plan_watch_wanted(run) && !policy_is_plain(&run->plan.chosen.policy);
    TRY(learns ? session_plan_measure(&run->plan) : session_plan_find_costs(&run->plan));
    if (run->plan.costs.kernels) return session_plan_predict(&run->plan, &run->prediction);
    if (!run->plan_path) return STATUS_OK;
    enum status status = plan_document_read_prediction(run->plan_path, &run->plan.chosen, &run->prediction);
    if (status != STATUS_BAD_INPUT) return status;
    log_note("without the plan's predicted time: %s", status_message());
    status_clear();
    return STATUS_OK;
}

/* The plan in the run's directory. */
static enum status find_plan(struct train_run *run, struct run_settings *settings) {
    const char *path = scratch_format(&settings->memory, "%s/plan.json", run->folder);
    if (!path) return STATUS_FAILED;
    if (file_exists(path)) run->plan_path = path;
    return STATUS_OK;
}

static void report_info(const struct train_run *run) {
    const struct dataset *dataset = run->data.dataset;
    const struct train_info info = {.plan = &run->plan,
                                    .done = run->state.step,
                                    .steps = run->options->steps,
                                    .warmup_steps = run->options->warmup_steps,
                                    .validation = dataset_has(dataset, DATASET_VALID),
                                    .held_out = dataset_holds_out(dataset),
                                    .examples = dataset_has_examples(dataset),
                                    .options = run->options};
    if (run->events->opened) run->events->opened(run->events->opened_payload, &info);
}

static enum status open_data(struct train_run *run, struct train_options *options) {
    TRY(train_data_open(run->session.comm, run->session.model, &run->plan.chosen.recipe, run->options, true,
                        &run->data));
    TRY(require_training_data(run));
    if (dataset_takes_template(run->data.dataset)) TRY(turn_end_set(run->session.model, run->options->chat_time_s));
    TRY(run_length_settle(run->data.dataset, &run->plan.chosen.recipe, run->state.step, options));
    TRY(samples_prepare(run->session.model, run->options, &run->samples));
    dataset_report_cuts(run->data.dataset);
    return STATUS_OK;
}

static enum status predict(struct train_run *run) {
    TRY(predict_step(run));
    TRY(machine_matrix_rate(&run->session.machine, &run->plan.programs, &run->plan.chosen.recipe,
                            &(struct measuring){0}, &run->matrix_flops_per_s));
    run->matrix_flops_per_s *= session_ranks(&run->session);
    return STATUS_OK;
}

/* Prepares data, memory and the machine's matrix rate: everything that can reject a run before its arena is
 * allocated. */
static enum status prepare_run(struct train_run *run, struct train_options *options) {
    TRY(run_agree(run, open_data(run, options)));
    TRY(run_agree(run, session_plan_check_memory(&run->plan)));
    report_info(run);
    run->state.plan = run->plan.chosen;
    return run_agree(run, run_leads(run) ? predict(run) : STATUS_OK);
}

/* `valid_every`: its value up to the run's step. */
static enum status open_metrics(struct train_run *run, int64_t valid_every) {
    char path[RUN_PATH_BYTES];
    const struct metrics_cut cut = {run->state.step, valid_every, true};
    TRY(run_path(run->folder, "metrics.jsonl", path));
    TRY(metrics_open(path, &cut, &run->metrics, &run->validated));
    TRY(event_file_open(run->folder, run->state.step, &run->events_file));
    return samples_open(run->folder, run->state.step, &run->samples);
}

/* Hints at the checkpoint from which a failed run can resume. */
static enum status hint_checkpoint(const struct train_run *run, enum status status) {
    if (run->newest) return status_hint(status, "the last good checkpoint is %s", run->newest);
    const char *hint = status_hint_text();
    return status_hint(status, "no checkpoint was written yet%s%s", hint[0] ? "; " : "", hint);
}

static enum status begin_steps(struct train_run *run) {
    const struct train_events *events = run->events;
    run->begun = true;
    if (events->begin)
        events->begin(events->payload, &run->plan, run->folder, run->state.step, run->options->steps,
                      dataset_tokens(run->data.dataset));
    if (run_leads(run)) TRY(run_end_clear(run->folder));
    return train_loop_begin(run);
}

static enum status write_result(struct train_run *run) {
    TRY(engine_settle(&run->engine));
    return checkpoint_write_model(run->folder, &run->engine);
}

/* A rank that failed between steps reports it when the others agree to continue, or have ended themselves. Not a rank
 * that failed within a step: the others wait for it there and end with it. */
static enum status agree_on_end(struct train_run *run, enum status status) {
    bool known = status_is_stop(status) || run->session.comm->agreed_failure;
    return known || run->engine.partially_updated ? status : step_collectives_agree(&run->engine.collectives, status);
}

static enum status end_steps(struct train_run *run, enum status status) {
    const struct train_events *events = run->events;
    status = agree_on_end(run, status);
    status = train_loop_end(run, status);
    if (status == STATUS_OK) status = write_result(run);
    if (run_leads(run)) status = run_end_write(run->folder, status, run->state.step);
    if (status == STATUS_FAILED || status == STATUS_BAD_INPUT) status = hint_checkpoint(run, status);
    if (events->end) events->end(events->payload, status);
    run->begun = false;
    return status;
}

enum status train_turn(struct train_run *run, bool *complete) {
    *complete = !run->begun;
    if (*complete) return STATUS_OK;
    enum status status = train_loop_turn(run, complete);
    return status != STATUS_OK || *complete ? end_steps(run, status) : STATUS_OK;
}

enum status train_save(struct train_run *run) { return run->begun ? train_loop_save(run) : STATUS_OK; }

enum status train_hash(struct train_run *run, uint64_t *hash) {
    TRY(engine_settle(&run->engine));
    return engine_hash(&run->engine, hash);
}

void train_take_thread(const struct train_run *run) {
    run->session.machine.backend->set_threads(run->plan.chosen.threads);
}

enum status train_close(struct train_run *run) {
    enum status status = STATUS_OK;
    if (!run) return STATUS_OK;
    if (run->begun) status = end_steps(run, train_loop_stop(run, STATUS_INTERRUPTED));
    free_run(run);
    return status_is_stop(status) ? STATUS_OK : status;
}

/* Opens a run's steps after its first part, with status `status`: started, or closed. */
static enum status open_steps(struct train_run *run, enum status status, struct train_run **out) {
    if (status == STATUS_OK) status = begin_steps(run);
    if (status == STATUS_OK) {
        *out = run;
        return STATUS_OK;
    }
    if (run->begun) status = end_steps(run, status);
    free_run(run);
    return status;
}

/* Makes all turns. */
static enum status run_to_end(struct train_run *run) {
    enum status status = STATUS_OK;
    for (bool complete = false; status == STATUS_OK && !complete;)
        status = train_turn(run, &complete);
    free_run(run);
    return status;
}

/* Copies `PATH` or `PATH:WEIGHT` with an absolute path. */
static enum status copy_argument(const char *argument, struct scratch *memory, const char **out) {
    size_t path_bytes;
    int64_t weight;
    const char *absolute;
    TRY(source_split_argument(argument, &path_bytes, &weight));
    const char *path = scratch_format(memory, "%.*s", (int)path_bytes, argument);
    if (!path) return STATUS_FAILED;
    TRY(path_make_absolute(path, memory, &absolute));
    *out = scratch_format(memory, "%s%s", absolute, argument + path_bytes);
    return *out ? STATUS_OK : STATUS_FAILED;
}

static enum status copy_paths(const char *const *paths, size_t count, struct scratch *memory, const char *const **out) {
    const char **copies = scratch_alloc(memory, count, sizeof *copies);
    if (!copies) return STATUS_FAILED;
    for (size_t i = 0; i < count; i++)
        TRY(copy_argument(paths[i], memory, &copies[i]));
    *out = copies;
    return STATUS_OK;
}

/* Makes the disk tier's directory absolute, for later commands in other directories. */
static enum status set_limits(const struct memory_options *limits, struct run_settings *out) {
    const char *absolute;
    out->limits = *limits;
    if (!SETTINGS_HAVE(limits, disk_folder)) return STATUS_OK;
    TRY(path_make_absolute(limits->disk_folder, &out->memory, &absolute));
    memory_options_set_disk(&out->limits, absolute);
    return STATUS_OK;
}

static enum status find_model(const char *given, struct scratch *memory, const char **out) {
    AUTO_FREE char *folder = NULL;
    TRY(model_folder_find(given, &folder));
    return path_make_absolute(folder, memory, out);
}

enum status run_settings_make(const char *model_folder, const struct train_options *options, struct run_settings *out) {
    TRY(train_options_check(options));
    out->options = *options;
    if (!SETTINGS_HAVE(options, chat_time_s)) SETTINGS_GIVE(&out->options, chat_time_s, clock_today_s());
    TRY(find_model(model_folder, &out->memory, &out->model_folder));
    TRY(copy_paths(options->data_paths, options->data_path_count, &out->memory, &out->options.data_paths));
    TRY(copy_paths(options->valid_paths, options->valid_path_count, &out->memory, &out->options.valid_paths));
    out->options.sample_prompt = scratch_format(&out->memory, "%s", options->sample_prompt);
    out->options.columns = scratch_format(&out->memory, "%s", options->columns);
    return out->options.sample_prompt && out->options.columns ? STATUS_OK : STATUS_FAILED;
}

static enum status load_model(struct train_run *run) {
    TRY(engine_load_weights(&run->engine));
    return engine_require_finite(&run->engine, run->session.model->folder);
}

static enum status stop_requested(const void *payload) { return train_loop_check_stop(payload); }

/* Finds the reference log-probabilities: computes them before training, or reads them from the run's directory. */
static enum status find_reference(struct train_run *run, bool kept) {
    struct dataset *dataset = run->data.dataset;
    if (run->plan.chosen.recipe.loss != TRAINING_DPO) return STATUS_OK;
    if (kept)
        TRY(run_agree(run, reference_read(run->folder, dataset, &run->reference)));
    else
        TRY(reference_compute(&run->engine, dataset, stop_requested, run, &run->reference));
    dataset_set_references(dataset, run->reference.values);
    return STATUS_OK;
}

static enum status write_reference(const struct train_run *run) {
    if (!run->reference.values) return STATUS_OK;
    return reference_write(run->folder, run->data.dataset, &run->reference);
}

/* Takes an empty directory that all ranks see. A rejected run leaves no directory behind. */
static enum status take_folder(struct train_run *run) {
    bool made = run_leads(run) && !file_exists(run->folder);
    TRY(run_agree(run, run_leads(run) ? run_folder_take_new(run->folder, &run->lock) : STATUS_OK));
    enum status status = shared_folder_check(run->session.comm, run->folder);
    if (status != STATUS_OK && made) (void)rmdir(run->folder);
    return status;
}

/* One rank writes everything except checkpoints. */
static enum status write_folder(struct train_run *run) {
    const struct run_settings *settings = &run->settings;
    if (!run_leads(run)) return STATUS_OK;
    TRY(run_folder_write(run->folder, settings));
    TRY(write_reference(run));
    TRY(plan_document_write(run->folder, &run->plan, &run->prediction, settings->model_folder));
    return open_metrics(run, settings->options.valid_every);
}

static enum status write_first(struct train_run *run) {
    struct run_settings *settings = &run->settings;
    TRY(run_agree(run, engine_open(&run->plan, &run->engine)));
    TRY(checkpoint_verify_model(run->session.comm, settings->model_folder, run->session.model));
    TRY(run_agree(run, load_model(run)));
    TRY(same_weights_require(&run->engine));
    TRY(find_reference(run, false));
    settings->plan = run->plan.chosen;
    TRY(run_agree(run, set_limits(&run->session.machine.limits, settings)));
    TRY(take_folder(run));
    return run_agree(run, write_folder(run));
}

static enum status prepare_first(struct train_run *run, const char *model_folder, const struct plan_options *plan,
                                 const struct train_options *options) {
    struct run_settings *settings = &run->settings;
    struct plan_options chosen = *plan;
    TRY(comm_agree(plan->comm, run_settings_make(model_folder, options, settings)));
    TRY(comm_agree(plan->comm, train_data_choose_packing(&settings->options, true, &chosen)));
    if (SETTINGS_HAVE(plan, plan_path)) run->plan_path = plan->plan_path;
    if (run->plan_path && !SETTINGS_HAVE(options, replan)) settings->options.replan = false;
    TRY(session_begin(settings->model_folder, PROGRAMS_TO_TRAIN, &chosen, &settings->options, &run->session,
                      &run->plan));
    TRY(prepare_run(run, &settings->options));
    return write_first(run);
}

/* Creates a run in the directory if `status` is OK. All ranks succeed, or none. */
static enum status create_all(const char *folder, enum status status, const struct train_events *events,
                              struct comm *comm, struct train_run **out) {
    *out = status == STATUS_OK ? create_run(folder, events, comm) : NULL;
    if (status == STATUS_OK && !*out) status = STATUS_FAILED;
    return comm_agree(comm, status);
}

enum status train_open(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                       const struct train_options *options, const struct train_events *events, struct train_run **out) {
    struct train_run *run;
    TRY(create_all(run_folder, run_folder_check_new(run_folder), events, plan->comm, &run));
    return open_steps(run, prepare_first(run, model_folder, plan, options), out);
}

enum status train_begin(const char *model_folder, const char *run_folder, const struct plan_options *plan,
                        const struct train_options *options, const struct train_events *events) {
    struct train_run *run;
    TRY(train_open(model_folder, run_folder, plan, options, events, &run));
    return run_to_end(run);
}

/* The arenas must have the bits that they had when the checkpoint was written. */
static enum status check_bits(const struct train_run *run, const char *checkpoint) {
    uint64_t bits;
    bool comparable = engine_can_hash(&run->engine) && run->state.version >= CHECKPOINT_FIRST_ANY_GRAPH;
    if (!comparable) return STATUS_OK; /* the bytes read match the files' checksums */
    TRY(engine_hash(&run->engine, &bits));
    if (bits == run->state.bits) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: damaged: its weights or optimizer state are not those that were saved",
                      checkpoint);
}

static enum status read_checkpoint(struct train_run *run, const char *checkpoint) {
    char path[RUN_PATH_BYTES];
    TRY(engine_load_weights(&run->engine));
    TRY(run_path(checkpoint, "optimizer.safetensors", path));
    return engine_load_state(&run->engine, path);
}

static enum status load_state(struct train_run *run, const char *checkpoint) {
    if (!checkpoint) return run_agree(run, load_model(run));
    TRY(run_agree(run, read_checkpoint(run, checkpoint)));
    TRY(run_agree(run, check_bits(run, checkpoint)));
    return run_agree(run, engine_require_finite(&run->engine, checkpoint));
}

static enum status check_data(const struct train_run *run, const struct checkpoint_state *state) {
    uint64_t found = dataset_fingerprint(run->data.dataset);
    if (found == 0) return status_set(STATUS_BAD_INPUT, "data: a text cannot be read");
    if (state->data == 0)
        log_warning("data: some could not be read when the checkpoint was written; whether they are the same is not "
                    "known");
    if (state->data == 0 || state->data == found) return STATUS_OK;
    if (state->data == dataset_fingerprint_of_0_1_0(run->data.dataset))
        return train_data_check_0_1_0(run->session.model, &run->data);
    enum status status = status_set(STATUS_BAD_INPUT, "data: they are not those of the run");
    return status_hint(status, "a resumed run needs the same files; train anew on others with %s/model", run->folder);
}

static enum status change_options(struct run_settings *settings, const struct train_options *changes, int64_t done) {
    struct train_options *options = &settings->options;
    train_options_change(options, changes);
    if (SETTINGS_HAVE(changes, sample_prompt)) {
        const char *prompt = scratch_format(&settings->memory, "%s", changes->sample_prompt);
        if (!prompt) return STATUS_FAILED;
        options->sample_prompt = prompt;
    }
    if (options->save_every == 0)
        return status_set(STATUS_BAD_INPUT, "--save-every: 0: a resumed run needs checkpoints");
    if (options->steps >= done || SETTINGS_HAVE(options, epochs)) return STATUS_OK;
    (void)status_set(STATUS_BAD_INPUT, "steps: %" PRId64 " is less than the %" PRId64 " steps already done",
                     options->steps, done);
    return status_hint(STATUS_BAD_INPUT, "--steps is the length of the whole run, not the number of steps left");
}

/* Writes the directory of a resumed run. */
static enum status write_folder_again(struct train_run *run, const struct run_origin *origin) {
    struct run_settings *settings = &run->settings;
    if (!run_leads(run)) return STATUS_OK;
    TRY(run_origin_record_options(origin, settings));
    TRY(run_folder_write(run->folder, settings));
    TRY(plan_document_write(run->folder, &run->plan, &run->prediction, settings->model_folder));
    return open_metrics(run, origin->valid_every);
}

/* Handles adapters whose base model has moved. Checksums verify the base, as for one that has not moved. */
static enum status move_base(const struct run_origin *origin, struct run_settings *settings,
                             struct plan_options *options) {
    const char *base;
    if (!options->base_folder) return STATUS_OK;
    if (settings->plan.recipe.lora[0] == '\0')
        return status_set(STATUS_BAD_INPUT, "--base: is for runs that train adapters (--lora)");
    TRY(find_model(options->base_folder, &settings->memory, &base));
    bool began_with_adapter = folder_holds(settings->model_folder, "adapter_config.json");
    if (!began_with_adapter) settings->model_folder = base;
    options->base_folder = origin->checkpoint || began_with_adapter ? base : NULL;
    return STATUS_OK;
}

static enum status open_origin(struct train_run *run, struct run_settings *settings, const struct plan_options *plan,
                               struct run_origin *origin) {
    struct plan resolved;
    struct plan_options given = *plan;
    SETTINGS_DROP(&given, plan_path);
    memory_options_keep_disk(&settings->limits, &given.memory);
    TRY(comm_agree(plan->comm, move_base(origin, settings, &given)));
    TRY(comm_agree(plan->comm, run_origin_resolve(origin, run->folder, &given, settings, &resolved)));
    const char *model = origin->checkpoint ? origin->checkpoint : settings->model_folder;
    TRY(session_begin_decided(model, &resolved, &given, &settings->options, &run->session, &run->plan));
    TRY(checkpoint_verify_model(run->session.comm, origin->checkpoint ? NULL : model, run->session.model));
    return run_agree(run, checkpoint_verify_base(&origin->state, run->session.model));
}

/* A run without a checkpoint has its initial weights, and may compute the reference again. */
static enum status resume_reference(struct train_run *run) {
    enum status status = find_reference(run, true);
    if (status != STATUS_BAD_INPUT) return status;
    if (run->newest)
        return status_hint(status, "the weights that the run began with are needed to make it again: train anew");
    status_clear();
    TRY(find_reference(run, false));
    return run_agree(run, run_leads(run) ? write_reference(run) : STATUS_OK);
}

static enum status resume_from(struct train_run *run, struct run_settings *settings, const struct plan_options *plan,
                               struct run_origin *origin) {
    TRY(open_origin(run, settings, plan, origin));
    run->state = origin->state;
    run->saved_step = origin->checkpoint ? origin->state.step : -1;
    run->newest = origin->checkpoint;
    origin->checkpoint = NULL;
    TRY(run_agree(run, find_plan(run, settings)));
    TRY(prepare_run(run, &settings->options));
    if (run->newest) TRY(run_agree(run, check_data(run, &origin->state)));
    TRY(run_agree(run, engine_open(&run->plan, &run->engine)));
    enum status status = load_state(run, run->newest);
    if (status == STATUS_BAD_INPUT && run->newest) return checkpoint_hint_older(status, run->folder, run->newest);
    TRY(status);
    if (!run->newest) TRY(same_weights_require(&run->engine));
    TRY(resume_reference(run));
    TRY(run_agree(run, set_limits(&run->session.machine.limits, settings)));
    settings->plan = run->plan.chosen;
    TRY(run_agree(run, write_folder_again(run, origin)));
    TRY(comm_share(run->session.comm, &run->validated, sizeof run->validated)); /* validation state of rank 0's
                                                                                 * metrics */
    return shared_folder_check(run->session.comm, run->folder);
}

static enum status require_checkpoints(const char *run_folder, const struct train_options *options) {
    if (options->save_every > 0) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT,
                      "%s: cannot be resumed: its --save-every is 0, so it has no "
                      "checkpoints" HINT "train anew from %s/model, or from the start",
                      run_folder, run_folder);
}

static enum status check_options(const char *run_folder, const struct train_options *options) {
    enum status status = train_options_check(options);
    return status == STATUS_OK ? status : status_prefix(status, "%s/run.json", run_folder);
}

static enum status clear_leftovers(const char *run_folder) {
    char checkpoints[RUN_PATH_BYTES];
    TRY(run_path(run_folder, "checkpoints", checkpoints));
    TRY(run_folder_clear(run_folder));
    return run_folder_clear(checkpoints);
}

/* One rank locks the directory for all. */
static enum status read_run(struct train_run *run, bool leads) {
    struct run_settings *settings = &run->settings;
    if (leads) TRY(run_folder_lock(run->folder, &run->lock));
    TRY(run_folder_read(run->folder, settings));
    TRY(check_options(run->folder, &settings->options));
    TRY(require_checkpoints(run->folder, &settings->options));
    return leads ? clear_leftovers(run->folder) : STATUS_OK;
}

static enum status prepare_resumed(struct train_run *run, const struct plan_options *plan,
                                   const struct train_options *changes, struct run_origin *origin) {
    struct run_settings *settings = &run->settings;
    bool leads = !plan->comm || plan->comm->rank == 0;
    TRY(comm_agree(plan->comm, read_run(run, leads)));
    TRY(run_origin_find(plan->comm, run->folder, settings, origin));
    enum status status = change_options(settings, changes, origin->state.step);
    TRY(comm_agree(plan->comm, status));
    TRY(resume_from(run, settings, plan, origin));
    /* Only now, since a rejected resume keeps all checkpoints. */
    return run_agree(run, run_leads(run) ? checkpoint_remove_old(run->folder, settings->options.keep) : STATUS_OK);
}

enum status train_open_resumed(const char *run_folder, const struct plan_options *plan,
                               const struct train_options *changes, const struct train_events *events,
                               struct train_run **out) {
    AUTO(run_origin_free) struct run_origin origin = {0};
    struct train_run *run;
    enum status status =
        file_is_folder(run_folder)
            ? STATUS_OK
            : status_set(STATUS_BAD_INPUT,
                         "%s: is not a directory" HINT "name the directory that `ballast train -o` made", run_folder);
    TRY(create_all(run_folder, status, events, plan->comm, &run));
    return open_steps(run, prepare_resumed(run, plan, changes, &origin), out);
}

enum status train_resume(const char *run_folder, const struct plan_options *plan, const struct train_options *changes,
                         const struct train_events *events) {
    struct train_run *run;
    TRY(train_open_resumed(run_folder, plan, changes, events, &run));
    return run_to_end(run);
}
