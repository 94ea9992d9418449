/* Any plan.json is refused or gives a legal plan, which is equal after writing and reading again. So is its
 * activation schedule, if a model has the blocks for it. */
#include <stdint.h>
#include <stdlib.h>

#include "base/json.h"
#include "plan/activations.h"
#include "plan/plan.h"
#include "plan/recipe.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static bool equal_steps(const struct activation_steps *a, const struct activation_steps *b) {
    bool equal = a->list.count == b->list.count;
    for (size_t i = 0; equal && i < a->list.count; i++) {
        const struct activation_step *x = &a->list.items[i], *y = &b->list.items[i];
        equal = x->action == y->action && x->block == y->block && (x->action != ACTIVATION_MOVE || x->tier == y->tier);
    }
    return equal;
}

static void check_schedule(const char *text, int32_t blocks) {
    static char printed[2 * POLICY_SCHEDULE_BYTES]; /* "f1 f2-0" comes back as "f1-2 f1-0" */
    struct activation_steps steps, back = {0};
    if (activations_parse(text, blocks, &steps) == STATUS_OK) {
        if (activations_print(&steps, printed, sizeof printed) != STATUS_OK) abort();
        if (activations_parse(printed, blocks, &back) != STATUS_OK || !equal_steps(&steps, &back)) abort();
    }
    activation_steps_free(&back);
    activation_steps_free(&steps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct plan plan, back;
    if (json_parse_object("plan.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    if (plan_from_json("plan.json", object, &plan) == STATUS_OK) {
        if (plan_check(&plan) != STATUS_OK) abort();
        json_t *written = plan_to_json(&plan);
        if (!written || plan_from_json("written", written, &back) != STATUS_OK) abort();
        if (recipe_require_equal(&plan.recipe, &back.recipe) != STATUS_OK) abort();
        json_t *again = plan_to_json(&back);
        if (!again || !json_equal(written, again)) abort();
        json_decref(again);
        for (int32_t blocks = 1; blocks <= 6; blocks++)
            check_schedule(plan.policy.schedule, blocks);
        json_decref(written);
    }
    json_decref(object);
    recipe_lines_forget();
    return 0;
}
