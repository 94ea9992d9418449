/* ballast_plan, and the session, which plans without training. */
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
    struct step_summary prediction; /* step_s 0: not made yet */
    char *model;                    /* as it was given */
    char *json;                     /* the text returned last; NULL: none */
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

static void session_free(struct ballast_session *session) {
    if (!session) return;
    session_plan_free(&session->plan);
    session_close(&session->session);
    mem_free(session->model);
    mem_free(session->json);
    mem_free(session);
}

static enum status session_create(const char *model, const struct ballast_plan_options *plan,
                                  const struct ballast_train_options *training, struct ballast_session **out) {
    struct plan_options planning;
    struct train_options optimizer;
    TRY(read_options(model, plan, training, &planning, &optimizer));
    struct ballast_session *session = mem_array(1, sizeof *session);
    if (!session) return STATUS_FAILED;
    session->model = mem_string(model);
    enum status status;
    TRY_GOTO(status, session->model ? STATUS_OK : STATUS_FAILED, failed);
    TRY_GOTO(status, session_begin(model, PROGRAMS_TO_TRAIN, &planning, &optimizer, &session->session, &session->plan),
             failed);
    *out = session;
    return STATUS_OK;
failed:
    session_free(session);
    return status;
}

static enum status predict(struct ballast_session *session) {
    if (session->prediction.step_s > 0) return STATUS_OK;
    TRY(session_plan_measure(&session->plan));
    return session_plan_predict(&session->plan, &session->prediction);
}

enum ballast_status ballast_session_open(const char *model, const struct ballast_plan_options *plan,
                                         const struct ballast_train_options *training, struct ballast_session **out) {
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_session_open", &call), done);
    TRY_GOTO(status, library_require(out, "out"), done);
    TRY_GOTO(status, session_create(model, plan, training, out), done);
done:
    return library_end(&call, status);
}

void ballast_session_close(struct ballast_session *session) { session_free(session); }

enum ballast_status ballast_session_require_fit(struct ballast_session *session) {
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_session_require_fit", &call), done);
    TRY_GOTO(status, library_require(session, "session"), done);
    TRY_GOTO(status, session_plan_check_memory(&session->plan), done);
done:
    return library_end(&call, status);
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
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_session_memory", &call), done);
    TRY_GOTO(status, read_memory(session, tier, out), done);
done:
    return library_end(&call, status);
}

enum ballast_status ballast_session_predict(struct ballast_session *session, double *step_s) {
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_session_predict", &call), done);
    TRY_GOTO(status, library_require(session, "session"), done);
    TRY_GOTO(status, library_require(step_s, "step_s"), done);
    TRY_GOTO(status, predict(session), done);
    *step_s = session->prediction.step_s;
done:
    return library_end(&call, status);
}

enum status library_plan_document(const char *model, const struct session_plan *plan,
                                  const struct step_summary *prediction, json_t **out) {
    struct scratch memory = {0};
    const char *absolute;
    const struct model_preset *preset = plan->session->model->preset;
    char *folder = NULL;
    enum status status = STATUS_OK;
    if (preset)
        absolute = preset->name;
    else
        status = model_folder_find(model, &folder);
    if (folder) status = path_make_absolute(folder, &memory, &absolute);
    if (status == STATUS_OK) status = plan_document_make(plan, prediction, absolute, out);
    mem_free(folder);
    scratch_free(&memory);
    return status;
}

static enum status print_plan(struct ballast_session *session, const char **out) {
    json_t *document;
    TRY(library_require(session, "session"));
    TRY(library_require(out, "out"));
    TRY(predict(session));
    TRY(library_plan_document(session->model, &session->plan, &session->prediction, &document));
    char *text = json_text(document, JSON_INDENT(2) | JSON_REAL_PRECISION(17));
    json_decref(document);
    if (!text) return STATUS_FAILED;
    mem_free(session->json);
    *out = session->json = text;
    return STATUS_OK;
}

enum ballast_status ballast_session_plan_json(struct ballast_session *session, const char **out) {
    struct library_call call;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_session_plan_json", &call), done);
    TRY_GOTO(status, print_plan(session, out), done);
done:
    return library_end(&call, status);
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

enum ballast_status ballast_plan(const char *model, const struct ballast_plan_options *plan,
                                 const struct ballast_train_options *training, struct ballast_plan_result *out) {
    struct library_call call;
    struct ballast_session *session = NULL;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_plan", &call), done);
    TRY_GOTO(status, library_require(out, "out"), done);
    TRY_GOTO(status, library_require_version(out->version, BALLAST_PLAN_RESULT_VERSION, "out"), done);
    TRY_GOTO(status, session_create(model, plan, training, &session), done);
    TRY_GOTO(status, describe_plan(session, out), done);
done:
    session_free(session);
    return library_end(&call, status);
}
