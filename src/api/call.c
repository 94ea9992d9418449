/* Common to all public calls: exclusion, process state, the last error, log, progress, ranks, and conversion of
 * options. */
#include <fenv.h>
#include <float.h>
#include <omp.h>
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "api/library.h"
#include "base/terminal.h"
#include "comm/comm.h"
#include "session/session.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "a public number is the internal one")
SAME(BALLAST_OK, STATUS_OK);
SAME(BALLAST_FAILED, STATUS_FAILED);
SAME(BALLAST_BAD_INPUT, STATUS_BAD_INPUT);
SAME(BALLAST_NO_FIT, STATUS_NO_FIT);
SAME(BALLAST_STOPPED, STATUS_INTERRUPTED);

volatile sig_atomic_t library_stopped;

static atomic_bool busy;
static atomic_int first_process; /* pid of the first call; 0: none yet */

const char *ballast_version(void) { return BALLAST_VERSION; }

const char *ballast_status_name(enum ballast_status status) {
    switch (status) {
    case BALLAST_OK: return "OK";
    case BALLAST_FAILED: return "FAILED";
    case BALLAST_BAD_INPUT: return "BAD_INPUT";
    case BALLAST_NO_FIT: return "NO_FIT";
    case BALLAST_STOPPED: return "STOPPED";
    }
    return "unknown";
}

const char *ballast_error_message(void) { return status_message(); }
const char *ballast_error_hint(void) { return status_hint_text(); }
void ballast_stop(void) { library_stopped = 1; }

static struct {
    pthread_mutex_t lock;
    ballast_log_callback *callback;
    void *payload;
} log_target = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void pass_line(bool warning, const char *text) {
    pthread_mutex_lock(&log_target.lock);
    if (log_target.callback)
        log_target.callback(warning ? BALLAST_LOG_WARNING : BALLAST_LOG_NOTE, text, log_target.payload);
    pthread_mutex_unlock(&log_target.lock);
}

void ballast_set_log(ballast_log_callback *callback, void *payload) {
    pthread_mutex_lock(&log_target.lock);
    log_target.callback = callback;
    log_target.payload = payload;
    pthread_mutex_unlock(&log_target.lock);
}

/* ballast_set_progress writes it before it sets the listener, which takes a lock. */
static struct {
    ballast_progress_callback *callback;
    void *payload;
} progress_target;

static void pass_progress(void *payload, enum progress_moment moment, const struct progress *progress) {
    (void)payload;
    int64_t done = moment == PROGRESS_ENDS ? progress->total : progress->done;
    progress_target.callback(progress->what, done, progress->total, progress_target.payload);
}

void ballast_set_progress(ballast_progress_callback *callback, void *payload) {
    progress_listen(NULL, NULL);
    progress_target.callback = callback;
    progress_target.payload = payload;
    if (callback) progress_listen(pass_progress, NULL);
}

/* Whether the processor flushes subnormal numbers to zero. */
static bool flushes_to_zero(void) {
    volatile float min = FLT_MIN;
    volatile float below = min / 4;
    return !(below > 0);
}

static enum status check_process(const char *name) {
    int process = (int)getpid(), first = 0;
    if (!atomic_compare_exchange_strong(&first_process, &first, process) && first != process)
        return status_set(STATUS_BAD_INPUT,
                          "%s: this process was forked from one that has used Ballast, whose threads it lacks", name);
    if (omp_in_parallel()) return status_set(STATUS_BAD_INPUT, "%s: is called in an OpenMP parallel region", name);
    if (fegetround() != FE_TONEAREST || flushes_to_zero())
        return status_set(STATUS_BAD_INPUT,
                          "%s: the calling thread's floating-point mode is not C's: results would depend on it", name);
    return STATUS_OK;
}

/* Sets the C locale for this thread only. */
static enum status enter_locale(locale_t *before) {
    static _Atomic(locale_t) plain;
    if (!atomic_load(&plain)) {
        locale_t made = newlocale(LC_ALL_MASK, "C", (locale_t)0), none = (locale_t)0;
        if (!made) return status_set(STATUS_FAILED, "the C locale cannot be made");
        if (!atomic_compare_exchange_strong(&plain, &none, made)) freelocale(made);
    }
    *before = uselocale(atomic_load(&plain));
    return STATUS_OK;
}

static enum status enter(const char *name, struct library_call *out) {
    status_clear();
    log_listen(pass_line);
    TRY(check_process(name));
    TRY(enter_locale(&out->locale));
    out->threads = omp_get_max_threads();
    return STATUS_OK;
}

enum status library_begin(const char *name, struct library_call *out) {
    *out = (struct library_call){.begun = false};
    if (atomic_exchange(&busy, true))
        return status_set(STATUS_BAD_INPUT, "%s: another call is under way; calls come one after the other", name);
    enum status status = enter(name, out);
    out->begun = status == STATUS_OK;
    if (!out->begun) atomic_store(&busy, false);
    return status;
}

enum ballast_status library_end(const struct library_call *call, enum status status) {
    if (call->begun) {
        omp_set_num_threads(call->threads);
        uselocale(call->locale);
        atomic_store(&busy, false);
    }
    if (status == STATUS_OK) status_clear();
    return status_is_stop(status) ? BALLAST_STOPPED : (enum ballast_status)status;
}

enum status library_require(const void *pointer, const char *name) {
    return pointer ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: is NULL", name);
}

enum status library_require_version(int version, int known, const char *name) {
    if (version == known) return STATUS_OK;
    enum status status =
        status_set(STATUS_BAD_INPUT, "%s.version: is %d, and this library's is %d", name, version, known);
    return status_hint(status, "set it by the struct's initialiser, from the ballast.h of ballast %s", BALLAST_VERSION);
}

/* ballast_ranks_…: this process as a rank of a job. */

/* A process can initialize MPI only once. */
static struct comm *opened;
static int core_sharers;

/* Adds the ranks of ballast_ranks_open, if any, to the options of a call that they execute together. */
static void give_ranks(struct plan_options *out) {
    out->comm = opened;
    out->core_sharers = core_sharers;
}

static enum status read_ranks(const struct ballast_ranks_options *given, struct comm_settings *out) {
    *out = (struct comm_settings){.nodes = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RANKS_OPTIONS_VERSION, "options"));
    if (given->nodes == 0 || given->nodes > INT32_MAX)
        return status_set(STATUS_BAD_INPUT, "options.nodes: must be from 1 on");
    if (given->nodes > 0) out->nodes = (int)given->nodes;
    if (given->timeout_s >= 0 && !(given->timeout_s >= 1 && given->timeout_s <= 86400))
        return status_set(STATUS_BAD_INPUT, "options.timeout_s: must be from 1 to 86400");
    if (given->timeout_s >= 0) out->rank_timeout_s = given->timeout_s;
    return STATUS_OK;
}

static enum status open_ranks(const struct ballast_ranks_options *options, int *rank, int *ranks) {
    struct comm_settings settings;
    TRY(library_require(rank, "rank"));
    TRY(library_require(ranks, "ranks"));
    TRY(read_ranks(options, &settings));
    if (opened) return status_set(STATUS_BAD_INPUT, "ballast_ranks_open: the ranks are open already");
    TRY(comm_open(&settings, &opened));
    TRY(rank_cores_count_sharers(opened, &core_sharers));
    *rank = opened->rank;
    *ranks = mesh_ranks(&opened->mesh);
    return STATUS_OK;
}

enum ballast_status ballast_ranks_open(const struct ballast_ranks_options *options, int *rank, int *ranks) {
    return LIBRARY_CALL(open_ranks(options, rank, ranks));
}

int ballast_ranks_should_report(void) { return comm_speaks(opened); }

/* Ends the other ranks after a failure, if there are any. */
static enum status close_ranks(enum status status) {
    bool failed = status != STATUS_OK && !status_is_stop(status);
    if (failed && opened && mesh_ranks(&opened->mesh) > 1) comm_abort(opened, (int)status);
    TRY(comm_close(opened));
    opened = NULL;
    core_sharers = 0;
    return STATUS_OK;
}

enum ballast_status ballast_ranks_close(enum ballast_status status) {
    enum ballast_status closed = LIBRARY_CALL(close_ranks((enum status)status));
    return closed == BALLAST_OK ? status : closed;
}

/* The public option structs: initializers, and conversion to internal options. */

#define INITIALISER(name, MACRO)                                                                                       \
    void ballast_##name##_init(struct ballast_##name *out) { *out = (struct ballast_##name)BALLAST_##MACRO##_INIT; }

INITIALISER(plan_options, PLAN_OPTIONS)
INITIALISER(train_options, TRAIN_OPTIONS)
INITIALISER(train_events, TRAIN_EVENTS)
INITIALISER(plan_result, PLAN_RESULT)
INITIALISER(resume_options, RESUME_OPTIONS)
INITIALISER(evaluate_options, EVALUATE_OPTIONS)
INITIALISER(evaluation, EVALUATION)
INITIALISER(generate_options, GENERATE_OPTIONS)
INITIALISER(text, TEXT)
INITIALISER(ranks_options, RANKS_OPTIONS)
INITIALISER(tier_memory, TIER_MEMORY)

/* The fields of the public structs that are settings (plan/settings.h). A negative number or a NULL string means
 * "not given". */
#define PLAN_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_plan_options, field),
#define TRAIN_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_train_options, field),
#define RESUME_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_resume_options, field),
#define TEXT_PLACE(field, ...) [SETTING_##field] = SETTING_PLACE(struct ballast_generate_options, field),
static const struct settings_holder public_plan = {
    .places = {SETTING_LIST_RECIPE(PLAN_PLACE) SETTING_LIST_POLICY(PLAN_PLACE) PLAN_PLACE(lora)}};
static const struct settings_holder public_training = {
    .places = {SETTING_LIST_OPTIMIZER(TRAIN_PLACE) SETTING_LIST_RUN(TRAIN_PLACE) SETTING_LIST_DATA(TRAIN_PLACE)}};
static const struct settings_holder public_resume = {
    .places = {SETTING_LIST_RUN(RESUME_PLACE) RESUME_PLACE(sample_prompt)}};
static const struct settings_holder public_text = {.places = {SETTING_LIST_TEXT(TEXT_PLACE)}};

static enum status require_text(const struct setting *setting, const char *name, const char *text) {
    if (text[0] || setting->may_be_empty) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "%s: is empty", name);
}

/* Sets `given` if the field has a value, then checks the value and looks up a choice. */
static enum status read_field(enum setting_storage storage, const struct setting *setting, const char *name,
                              struct setting_value *value, bool *given) {
    *given = storage == STORED_INT64    ? value->int_value >= 0
             : storage == STORED_DOUBLE ? !(value->float_value < 0)
                                        : value->text != NULL;
    if (!*given) return STATUS_OK;
    if (storage == STORED_INT64) return setting_check_int(setting, name, value->int_value);
    if (storage == STORED_DOUBLE) return setting_check_float(setting, name, value->float_value);
    if (setting->type != SETTING_CHOICE) return require_text(setting, name, value->text);
    value->int_value = setting_choice_value(setting, value->text);
    return setting_check_choice(setting, name, value->text);
}

/* Copies the settings that are given from a public to an internal struct. Messages call the public struct `where`. */
static enum status take(const struct settings_holder *from, const void *public, const char *where,
                        const struct settings_holder *to, void *out) {
    for (enum setting_id id = 0; id < SETTING_COUNT; id++) {
        const struct setting *setting = &setting_table[id];
        struct setting_value value;
        bool given;
        char name[64];
        if (!settings_have(from, id)) continue;
        snprintf(name, sizeof name, "%s.%s", where, setting->field);
        settings_load(from, public, id, &value);
        TRY(read_field(from->places[id].storage, setting, name, &value, &given));
        if (given) TRY(settings_store(to, out, id, name, &value));
    }
    return STATUS_OK;
}

static enum status require_bytes(const char *name, int64_t bytes) {
    return bytes > 0 ? STATUS_OK : status_set(STATUS_BAD_INPUT, "%s: a size is at least 1", name);
}

static enum status read_flag(const char *name, int64_t given, bool *out) {
    if (given > 1) return status_set(STATUS_BAD_INPUT, "%s: %" PRId64 " is not 0 or 1", name, given);
    *out = given == 1;
    return STATUS_OK;
}

static enum status require_list(const char *name, const char *const *given, size_t count) {
    if (count > 0) TRY(library_require(given, name));
    for (size_t i = 0; i < count; i++)
        if (!given[i]) return status_set(STATUS_BAD_INPUT, "%s[%zu]: is NULL", name, i);
    return STATUS_OK;
}

static enum status read_loss_on(const char *given, bool *on_all) {
    if (!given) return STATUS_OK;
    *on_all = strcmp(given, "all") == 0;
    return setting_check_choice(&setting_table[SETTING_loss_on_all], "options.loss_on", given);
}

enum status library_read_time(const char *name, int64_t given, int64_t *out) {
    *out = 0;
    if (given < 0) return STATUS_OK;
    TRY(setting_check_int(&setting_table[SETTING_chat_time_s], name, given));
    *out = given;
    return STATUS_OK;
}

static enum status read_memory(const struct ballast_plan_options *given, struct memory_options *out) {
#define TAKE_BYTES(public, field)                                                                                      \
    if (given->public >= 0) {                                                                                          \
        TRY(require_bytes("plan." #public, given->public));                                                            \
        SETTINGS_GIVE(out, field, given->public);                                                                      \
    }
    TAKE_BYTES(device_memory_bytes, device_bytes)
    TAKE_BYTES(host_memory_bytes, host_bytes)
    TAKE_BYTES(disk_bytes, disk_bytes)
    if (!given->disk_folder && given->disk_bytes >= 0)
        return status_set(STATUS_BAD_INPUT, "plan.disk_bytes: is given without plan.disk_folder");
    if (!given->disk_folder) return STATUS_OK;
    TRY(require_text(&setting_table[SETTING_disk_folder], "plan.disk_folder", given->disk_folder));
    if (strlen(given->disk_folder) >= sizeof out->disk_folder)
        return status_set(STATUS_BAD_INPUT, "plan.disk_folder: is longer than %zu bytes", sizeof out->disk_folder - 1);
    memory_options_set_disk(out, given->disk_folder);
    return STATUS_OK;
}

enum status library_read_plan(const struct ballast_plan_options *given, bool decided, struct plan_options *out) {
    plan_options_init(out);
    give_ranks(out);
    if (!given) return plan_options_choose_device(NULL, decided, out);
    TRY(library_require_version(given->version, BALLAST_PLAN_OPTIONS_VERSION, "plan"));
    if (decided && given->plan_path)
        return status_set(STATUS_BAD_INPUT, "plan.plan_path: a run goes on with its own plan");
    TRY(take(&public_plan, given, "plan", &plan_settings, out));
    TRY(read_memory(given, &out->memory));
    if (given->freeze_count > 0) {
        TRY(require_list("plan.freeze", given->freeze, given->freeze_count));
        SETTINGS_GIVE(out, freeze, given->freeze);
        out->freeze_count = given->freeze_count;
    }
    return plan_options_choose_device(given->device, decided, out);
}

static enum status read_data(const struct ballast_train_options *given, struct train_options *out) {
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    TRY(require_list("options.valid_paths", given->valid_paths, given->valid_path_count));
    if (given->valid_path_count > 0) SETTINGS_GIVE(out, valid_paths, given->valid_paths);
    out->valid_path_count = given->valid_path_count;
    if (given->loss_on) SETTINGS_MARK(out, loss_on_all);
    return read_loss_on(given->loss_on, &out->loss_on_all);
}

static enum status require_one_length(const struct train_options *options) {
    if (!SETTINGS_HAVE(options, steps) || !SETTINGS_HAVE(options, epochs)) return STATUS_OK;
    return status_set(STATUS_BAD_INPUT, "options.epochs: is given together with options.steps; give one of them");
}

enum status library_read_training(const struct ballast_train_options *given, struct train_options *out) {
    train_options_init(out);
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_TRAIN_OPTIONS_VERSION, "options"));
    TRY(read_data(given, out));
    TRY(take(&public_training, given, "options", &train_settings, out));
    return require_one_length(out);
}

enum status library_read_resume(const struct ballast_resume_options *given, struct plan_options *plan,
                                struct train_options *out) {
    *out = (struct train_options){.steps = 0};
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_RESUME_OPTIONS_VERSION, "options"));
    TRY(take(&public_resume, given, "options", &train_settings, out));
    TRY(require_one_length(out));
    return read_flag("options.allow_recipe_change", given->allow_recipe_change, &plan->allow_recipe_change);
}

enum status library_read_evaluation(const struct ballast_evaluate_options *given, struct eval_options *out) {
    *out = (struct eval_options){.columns = NULL};
    TRY(library_require(given, "options"));
    TRY(library_require_version(given->version, BALLAST_EVALUATE_OPTIONS_VERSION, "options"));
    TRY(require_list("options.data_paths", given->data_paths, given->data_path_count));
    if (given->data_path_count == 0) return status_set(STATUS_BAD_INPUT, "options.data_paths: none is given");
    out->data_paths = given->data_paths;
    out->data_path_count = given->data_path_count;
    if (given->batches > 0) out->max_batches = given->batches;
    out->columns = given->columns;
    out->reference = given->reference;
    TRY(read_loss_on(given->loss_on, &out->loss_on_all));
    return library_read_time("options.chat_time_s", given->chat_time_s, &out->chat_time_s);
}

enum status library_read_text(const struct ballast_generate_options *given, struct generate_options *out) {
    generate_options_init(out);
    out->interrupted = &library_stopped;
    if (!given) return STATUS_OK;
    TRY(library_require_version(given->version, BALLAST_GENERATE_OPTIONS_VERSION, "options"));
    if (given->chat > 0) out->tokens = 0;
    TRY(take(&public_text, given, "options", &text_settings, out));
    TRY(read_flag("options.ignore_end", given->ignore_end, &out->ignore_end));
    TRY(require_list("options.stops", given->stops, given->stop_count));
    out->stops = given->stops;
    out->stop_count = given->stop_count;
    return STATUS_OK;
}
