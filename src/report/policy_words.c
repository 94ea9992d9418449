#include "report/policy_words.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "plan/activations.h"

struct words {
    char *text;
    size_t bytes, used;
};

static void __attribute__((format(printf, 2, 3))) add(struct words *words, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(words->text + words->used, words->bytes - words->used, format, arguments);
    va_end(arguments);
    if (wrote > 0) words->used += (size_t)wrote;
    if (words->used >= words->bytes) words->used = words->bytes - 1;
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* What has its home in the tier: "gradients and optimizer on the disk". */
static bool add_tier(struct words *words, const struct policy *policy, enum tier tier) {
    static const char *const names[] = {"parameters", "gradients", "optimizer"};
    const enum tier homes[] = {policy->parameters, policy->gradients, policy->optimizer};
    int count = 0, named = 0;
    for (int i = 0; i < 3; i++)
        count += homes[i] == tier;
    if (count == 0) return false;
    for (int i = 0; i < 3; i++) {
        if (homes[i] != tier) continue;
        add(words, "%s%s", named == 0 ? "; " : named == count - 1 ? " and " : ", ", names[i]);
        named++;
    }
    add(words, " on the %s", tier_name(tier));
    return true;
}

static void add_states(struct words *words, const struct policy *policy) {
    bool host = add_tier(words, policy, TIER_HOST), disk = add_tier(words, policy, TIER_DISK);
    if ((host || disk) && policy->persistent_chunks > 0)
        add(words, " but for %" PRId64 " chunk%s", policy->persistent_chunks, plural(policy->persistent_chunks));
    if (policy->update == TIER_HOST) add(words, "; updated on the host");
}

static void add_schedule(struct words *words, const struct policy *policy, int32_t blocks) {
    struct stage_list stages;
    int64_t moved[TIER_COUNT] = {0}, forwards = 0;
    enum status status = activations_parse(policy->schedule, blocks, &stages);
    for (size_t s = 0; s < stages.list.count && status == STATUS_OK; s++) {
        const struct stage *stage = &stages.list.items[s];
        if (stage->action == STAGE_MOVE) moved[stage->tier]++;
        forwards += stage->action == STAGE_FORWARD;
    }
    stage_list_free(&stages);
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        if (moved[tier] > 0)
            add(words, "; activations of %" PRId64 " of %" PRId32 " blocks on the %s", moved[tier], blocks,
                tier_name(tier));
    if (forwards > blocks)
        add(words, "; %" PRId64 " block%s computed again", forwards - blocks, plural(forwards - blocks));
}

char *policy_words(const struct policy *policy, int32_t blocks, char text[POLICY_WORDS_BYTES]) {
    struct words words = {text, POLICY_WORDS_BYTES, 0};
    add(&words, "%" PRId64 " grain%s a pass", policy->grains_per_pass, plural(policy->grains_per_pass));
    size_t grains = words.used;
    add_states(&words, policy);
    add_schedule(&words, policy, blocks);
    if (words.used == grains) add(&words, "; all on the device");
    return text;
}
