/* ballast_evaluate. */
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
                            const struct ballast_evaluate_options *options, struct eval_result *out) {
    struct plan_options planning;
    struct eval_options evaluating;
    TRY(library_require(model, "model"));
    TRY(library_read_evaluation(options, &evaluating));
    TRY(library_read_plan(plan, false, &planning));
    return evaluate_files(model, &planning, &evaluating, out);
}

static enum status require_out(const struct ballast_evaluation *out) {
    TRY(library_require(out, "out"));
    return library_require_version(out->version, BALLAST_EVALUATION_VERSION, "out");
}

enum ballast_status ballast_evaluate(const char *model, const struct ballast_plan_options *plan,
                                     const struct ballast_evaluate_options *options, struct ballast_evaluation *out,
                                     ballast_file_callback *file, void *payload) {
    struct library_call call;
    struct eval_result result;
    enum status status;
    TRY_GOTO(status, library_begin("ballast_evaluate", &call), done);
    TRY_GOTO(status, require_out(out), done);
    TRY_GOTO(status, evaluate(model, plan, options, &result), done);
    report_files(&result, file, payload);
    *out = public_file(&result.total);
    eval_result_free(&result);
done:
    return library_end(&call, status);
}
