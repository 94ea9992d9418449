/* Any file of cases is refused with a message, or read; what is read is solved within its budget, or has no solution.
 */
#include "base/json.h"
#include "base/mem.h"
#include "plan/rotor.h"
#include "support/rotor_cases.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes);

static void solve(const struct rotor_case *one) {
    enum { MOST_SLOTS = 1000, MOST_STAGES = 12 }; /* more of the same */
    struct recompute_schedule schedule;
    struct recompute_cost cost;
    if (one->slots > MOST_SLOTS || one->chain.count > MOST_STAGES) return;
    enum status status = rotor_solve(&one->chain, one->slots, &schedule, &cost);
    if (status == STATUS_NO_FIT) return;
    BUG_IF(status != STATUS_OK, "%s", status_message());
    BUG_IF(cost.peak > one->slots, "a peak above the budget");
    vec_free(&schedule);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes) {
    json_t *object;
    struct rotor_cases cases;
    status_clear();
    if (json_parse_object("fuzz", (const char *)data, bytes, &object) != STATUS_OK) return 0;
    enum status status = rotor_cases_from_json(object, &cases);
    BUG_IF(status != STATUS_OK && (status != STATUS_BAD_INPUT || status_message()[0] == '\0'), "no message");
    if (status == STATUS_OK) {
        for (size_t i = 0; i < cases.count; i++)
            solve(&cases.items[i]);
        rotor_cases_free(&cases);
    }
    json_decref(object);
    return 0;
}
