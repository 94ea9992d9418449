/* plan.json: any bytes give a plan or a refusal; a plan that is taken is legal and comes back equal. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "plan/plan.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct plan plan, back;
    if (json_parse_object("plan.json", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    if (plan_from_json("plan.json", object, &plan) == STATUS_OK) {
        if (plan_check(&plan) != STATUS_OK) abort();
        json_t *written = plan_to_json(&plan);
        if (!written || plan_from_json("written", written, &back) != STATUS_OK) abort();
        if (recipe_require_equal(&plan.recipe, &back.recipe) != STATUS_OK) abort();
        json_decref(written);
    }
    json_decref(object);
    return 0;
}
