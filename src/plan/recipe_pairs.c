#include "plan/recipe_pairs.h"

#include <math.h>

#include "base/json.h"
#include "base/nearest.h"
#include "plan/settings.h"

static enum status refuse_odd(const char *field, int64_t value) {
    enum status status = status_set(
        STATUS_BAD_INPUT, "plan: recipe.%s: %lld is not legal: sequences are pairs, and a pair lies in one micro-batch",
        field, (long long)value);
    return status_hint(status, "the nearest legal value is %lld", (long long)(value > 1 ? value - 1 : 2));
}

enum status recipe_pairs_check(const struct recipe *recipe) {
    if (recipe_together(recipe) == 1) return STATUS_OK;
    if (recipe->batch % 2 != 0) return refuse_odd("batch", recipe->batch);
    if (recipe->micro_batch_sequences % 2 != 0) return refuse_odd("micro_batch", recipe->micro_batch_sequences);
    if (recipe->document_attention != DOCUMENT_ATTENTION_ACROSS)
        return status_hint(status_set(STATUS_BAD_INPUT, "plan: recipe.document_attention: within is for several "
                                                        "examples in a sequence, and those of pairs have one each"),
                           "leave out --document-attention");
    if (recipe->packing != EXAMPLE_PACKING_OFF)
        return status_hint(status_set(STATUS_BAD_INPUT, "plan: recipe.packing: preference pairs cannot be packed: "
                                                        "each answer has a row of its own"),
                           "leave out --packing");
    TRY(plan_check_float("recipe.dpo_beta", recipe->dpo_beta, setting_table[SETTING_dpo_beta].float_min,
                         setting_table[SETTING_dpo_beta].float_max, "what a log-probability counts"));
    TRY(plan_check_float("recipe.dpo_label_smoothing", recipe->dpo_label_smoothing, 0,
                         setting_table[SETTING_dpo_label_smoothing].float_max,
                         "the part of the pairs that is the other way round"));
    bool smooths = recipe->dpo_loss == PAIR_LOSS_SIGMOID || recipe->dpo_loss == PAIR_LOSS_ROBUST;
    if (smooths || recipe->dpo_label_smoothing <= 0) return STATUS_OK;
    return status_hint(status_set(STATUS_BAD_INPUT, "plan: recipe.dpo_label_smoothing: %g: the loss %s is not smoothed",
                                  recipe->dpo_label_smoothing, pair_loss_name(recipe->dpo_loss)),
                       "--dpo-loss sigmoid and robust are");
}

int recipe_pairs_to_json(const struct recipe *recipe, json_t *object) {
    int failed = json_object_set_new(object, "dpo_beta", json_real(recipe->dpo_beta));
    failed |= json_object_set_new(object, "dpo_loss", json_string(pair_loss_name(recipe->dpo_loss)));
    return failed | json_object_set_new(object, "dpo_label_smoothing", json_real(recipe->dpo_label_smoothing));
}

enum status recipe_pairs_from_json(const char *file, const json_t *object, struct recipe *out) {
    const char *names[PAIR_LOSS_COUNT], *name = pair_loss_name(PAIR_LOSS_SIGMOID);
    for (int i = 0; i < PAIR_LOSS_COUNT; i++)
        names[i] = pair_loss_name((enum pair_loss)i);
    TRY(json_require(file, object, "dpo_beta"));
    TRY(json_read_double(file, object, "dpo_beta", -HUGE_VAL, HUGE_VAL, &out->dpo_beta));
    TRY(json_read_double(file, object, "dpo_label_smoothing", -HUGE_VAL, HUGE_VAL, &out->dpo_label_smoothing));
    TRY(json_read_string(file, object, "dpo_loss", &name));
    out->dpo_loss = pair_loss_find(name);
    if (out->dpo_loss != PAIR_LOSS_COUNT) return STATUS_OK;
    return nearest_hint(status_set(STATUS_BAD_INPUT, "%s: dpo_loss: '%s' is not known", file, name), "value", name,
                        names, PAIR_LOSS_COUNT);
}

const char *recipe_pairs_differ(const struct recipe *a, const struct recipe *b) {
    if (a->dpo_beta < b->dpo_beta || a->dpo_beta > b->dpo_beta) return "dpo_beta";
    if (a->dpo_loss != b->dpo_loss) return "dpo_loss";
    bool smoothed_alike =
        !(a->dpo_label_smoothing < b->dpo_label_smoothing || a->dpo_label_smoothing > b->dpo_label_smoothing);
    return smoothed_alike ? NULL : "dpo_label_smoothing";
}
