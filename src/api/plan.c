/* ballast_plan, and ballast_session_…, which plans without training. */
#include <jansson.h>
#include <math.h>

#include "api/library.h"
#include "base/json.h"
#include "model/model.h"
#include "session/checkpoint/run_folder.h"
#include "session/plan.h"

#define SAME(a, b) _Static_assert((int)(a) == (int)(b), "a public number is the internal one")
SAME(BALLAST_TIER_DEVICE, TIER_DEVICE);
SAME(BALLAST_TIER_HOST, TIER_HOST);
SAME(BALLAST_TIER_DISK, TIER_DISK);

struct ballast_session {
    struct session session;
    struct session_plan plan;
    struct step_summary prediction; /* step_s 0: not predicted yet */
    char *model;                    /* the caller's `model` */
    char *json;                     /* the string returned last; NULL: none */
};

static enum status read_options(const char *model, const struct ballast_plan_options *plan,
                                const struct ballast_train_options *training, struct plan_options *planning,
                                struct train_options *optimizer) {
    TRY(library_require(model, "model"));
    TRY(library_read_training(training, optimizer));
    TRY(library_read_plan(plan, false, planning));
    planning->outline = true;
    return STATUS_OK;
}

static enum status session_create(const char *model, const struct ballast_plan_options *plan,
                                  const struct ballast_train_options *training, struct ballast_session **out) {
    struct plan_options planning;
    struct train_options optimizer;
    TRY(library_require(out, "out"));
    TRY(read_options(model, plan, training, &planning, &optimizer));
    struct ballast_session *session = mem_array(1, sizeof *session);
    if (!session) return STATUS_FAILED;
    session->model = mem_string(model);
    enum status status = session->model ? session_begin(model, PROGRAMS_TO_TRAIN, &planning, &optimizer,
                                                        &session->session, &session->plan)
                                        : STATUS_FAILED;
    if (status == STATUS_OK)
        *out = session;
    else
        ballast_session_close(session);
    return status;
}

static enum status predict(struct ballast_session *session) {
    if (session->prediction.step_s > 0) return STATUS_OK;
    TRY(session_plan_measure(&session->plan));
    return session_plan_predict(&session->plan, &session->prediction);
}

enum ballast_status ballast_session_open(const char *model, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *training, struct ballast_session **out) {
    return LIBRARY_CALL(session_create(model, plan, training, out));
}

void ballast_session_close(struct ballast_session *session) {
    if (!session) return;
    session_plan_free(&session->plan);
    session_close(&session->session);
    mem_free(session->model);
    mem_free(session->json);
    mem_free(session);
}

static enum status require_fit(const struct ballast_session *session) {
    TRY(library_require(session, "session"));
    return session_plan_check_memory(&session->plan);
}

enum ballast_status ballast_session_require_fit(struct ballast_session *session) {
    return LIBRARY_CALL(require_fit(session));
}

static enum status read_memory(const struct ballast_session *session, enum ballast_tier tier,
                               struct ballast_tier_memory *out) {
    TRY(library_require(session, "session"));
    TRY(library_require(out, "out"));
    TRY(library_require_version(out->version, BALLAST_TIER_MEMORY_VERSION, "out"));
    if ((int)tier < 0 || (int)tier >= TIER_COUNT) return status_set(STATUS_BAD_INPUT, "tier: %d is none", (int)tier);
    const struct memory_report *memory = &session->plan.memory[tier];
    const int64_t *kinds = memory->by_kind;
    *out = (struct ballast_tier_memory){.version = BALLAST_TIER_MEMORY_VERSION,
                                        .arena_bytes = memory->total,
                                        .capacity_bytes = session->session.machine.capacity_bytes[tier],
                                        .parameter_bytes = kinds[BUFFER_PARAMETERS],
                                        .gradient_bytes = kinds[BUFFER_GRADIENTS],
                                        .unreduced_bytes = kinds[BUFFER_UNREDUCED],
                                        .optimizer_bytes = kinds[BUFFER_OPTIMIZER],
                                        .activation_bytes = kinds[BUFFER_ACTIVATIONS],
                                        .input_bytes = kinds[BUFFER_INPUTS],
                                        .result_bytes = kinds[BUFFER_RESULTS],
                                        .workspace_bytes = kinds[BUFFER_WORKSPACE],
                                        .cache_bytes = kinds[BUFFER_CACHE],
                                        .unused_bytes = memory->unused};
    return STATUS_OK;
}

enum ballast_status ballast_session_memory(const struct ballast_session *session, enum ballast_tier tier,
                                           struct ballast_tier_memory *out) {
    return LIBRARY_CALL(read_memory(session, tier, out));
}

static enum status read_step(struct ballast_session *session, double *step_s) {
    TRY(library_require(session, "session"));
    TRY(library_require(step_s, "step_s"));
    TRY(predict(session));
    *step_s = session->prediction.step_s;
    return STATUS_OK;
}

enum ballast_status ballast_session_predict(struct ballast_session *session, double *step_s) {
    return LIBRARY_CALL(read_step(session, step_s));
}

enum status library_plan_document(const char *model, const struct session_plan *plan,
                                  const struct step_summary *prediction, json_t **out) {
    AUTO(scratch_free) struct scratch memory = {0};
    AUTO_FREE char *folder = NULL;
    const struct model_preset *preset = plan->session->model->preset;
    if (preset) return plan_document_make(plan, prediction, preset->name, out);
    const char *absolute;
    TRY(model_folder_find(model, &folder));
    TRY(path_make_absolute(folder, &memory, &absolute));
    return plan_document_make(plan, prediction, absolute, out);
}

static enum status print_plan(struct ballast_session *session, const char **out) {
    json_auto_t *document = NULL;
    TRY(library_require(session, "session"));
    TRY(library_require(out, "out"));
    TRY(predict(session));
    TRY(library_plan_document(session->model, &session->plan, &session->prediction, &document));
    char *text = json_text(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    if (!text) return STATUS_FAILED;
    mem_free(session->json);
    *out = session->json = text;
    return STATUS_OK;
}

enum ballast_status ballast_session_plan_json(struct ballast_session *session, const char **out) {
    return LIBRARY_CALL(print_plan(session, out));
}

static enum status describe_plan(struct ballast_session *session, struct ballast_plan_result *out) {
    TRY(session_plan_check_memory(&session->plan));
    TRY(predict(session));
    const int64_t *bytes = session->plan.programs.tier_bytes, *capacity = session->session.machine.capacity_bytes;
    const struct model_figures *figures = &session->plan.figures;
    *out = (struct ballast_plan_result){.version = BALLAST_PLAN_RESULT_VERSION,
                                        .device_bytes = bytes[TIER_DEVICE],
                                        .host_bytes = bytes[TIER_HOST],
                                        .disk_bytes = bytes[TIER_DISK],
                                        .device_capacity_bytes = capacity[TIER_DEVICE],
                                        .host_capacity_bytes = capacity[TIER_HOST],
                                        .disk_capacity_bytes = capacity[TIER_DISK],
                                        .step_s = session->prediction.step_s,
                                        .parameters = figures->parameters,
                                        .trained_parameters = figures->trained_parameters,
                                        .flops_per_token = figures->flops_per_token};
    return STATUS_OK;
}

static enum status make_plan(const char *model, const struct ballast_plan_options *plan,
                             const struct ballast_train_options *training, struct ballast_plan_result *out) {
    struct ballast_session *session;
    TRY(library_require(out, "out"));
    TRY(library_require_version(out->version, BALLAST_PLAN_RESULT_VERSION, "out"));
    TRY(session_create(model, plan, training, &session));
    enum status status = describe_plan(session, out);
    ballast_session_close(session);
    return status;
}

enum ballast_status ballast_plan(const char *model, const struct ballast_plan_options *plan,
                                 const struct ballast_train_options *training, struct ballast_plan_result *out) {
    return LIBRARY_CALL(make_plan(model, plan, training, out));
}
