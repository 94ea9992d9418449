/* Policies: their limits, and policies as JSON. */

#include "base/json.h"
#include "base/text.h"
#include "plan/plan.h"

enum status plan_check_range(const char *field, int64_t value, int64_t min, int64_t max, const char *rule) {
    if (value >= min && value <= max) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "plan: %s: %" PRId64 " is not legal: %s", field, value, rule);
    return status_hint(status, "the nearest legal value is %" PRId64, value < min ? min : max);
}

enum status plan_check_float(const char *field, double value, double min, double max, const char *rule) {
    if (value >= min && value <= max) return STATUS_OK;
    enum status status = status_set(STATUS_BAD_INPUT, "plan: %s: %g is not legal: %s", field, value, rule);
    return status_hint(status, "the nearest legal value is %.15g", value > max ? max : min);
}

/* One list of the policy's numbers and tiers, with their keys in files, serves reading and writing. */
#define POLICY_INTEGERS(X)                                                                                             \
    X(micro_batches_per_wave, "micro_batches_per_wave")                                                                \
    X(chunk_bytes, "chunk_bytes")                                                                                      \
    X(persistent_chunks, "persistent_chunks")                                                                          \
    X(buffers, "buffers")                                                                                              \
    X(lookahead, "lookahead")                                                                                          \
    X(update_ahead, "update_ahead")                                                                                    \
    X(tile_tokens, "tile_tokens")
#define POLICY_TIERS(X)                                                                                                \
    X(parameters, "parameters")                                                                                        \
    X(gradients, "gradients")                                                                                          \
    X(optimizer, "optimizer")                                                                                          \
    X(update, "update")

enum { BUFFERS_MAX = 1 << 20, LOOKAHEAD_MAX = 64 };

enum status policy_check(const struct policy *policy, int64_t micro_batches) {
    TRY(plan_check_range("policy.micro_batches_per_wave", policy->micro_batches_per_wave, 1, micro_batches,
                         "a wave holds at least one micro-batch and at most those that a lane adds up at once"));
    TRY(plan_check_range("policy.chunk_bytes", policy->chunk_bytes, 0, INT64_MAX, "a chunk has a size"));
    TRY(plan_check_range("policy.persistent_chunks", policy->persistent_chunks, 0, INT64_MAX, "a count of chunks"));
    if (policy->tile_tokens % OP_ROWS_APART != 0)
        return status_set(STATUS_BAD_INPUT,
                          "plan: policy.tile_tokens: %" PRId64 " is not legal: a tile has "
                          "whole runs of %d tokens" HINT "the nearest legal value is %" PRId64,
                          policy->tile_tokens, OP_ROWS_APART,
                          policy->tile_tokens > 0 ? (policy->tile_tokens / OP_ROWS_APART + 1) * OP_ROWS_APART : 0);
    TRY(plan_check_range("policy.tile_tokens", policy->tile_tokens, 0, INT64_MAX / 2, "a count of tokens"));
    bool moves = policy->parameters != TIER_DEVICE;
    TRY(plan_check_range("policy.buffers", policy->buffers, moves, BUFFERS_MAX,
                         moves ? "parameters that are elsewhere pass through buffers" : "a count of buffers"));
    TRY(plan_check_range("policy.lookahead", policy->lookahead, 0, LOOKAHEAD_MAX, "a count of groups"));
    TRY(plan_check_range("policy.update_ahead", policy->update_ahead, 0, LOOKAHEAD_MAX, "a count of blocks"));
    if (policy->update == TIER_DISK)
        return status_hint(status_set(STATUS_BAD_INPUT, "plan: policy.update: nothing is computed on the disk"),
                           "the nearest legal value is %s",
                           tier_name(policy->optimizer == TIER_DEVICE ? TIER_DEVICE : TIER_HOST));
    if (policy->update == TIER_HOST && policy->optimizer == TIER_DEVICE)
        return status_set(STATUS_BAD_INPUT, "plan: policy.update: optimizer state that is on the device "
                                            "is updated there" HINT "the nearest legal value is device");
    return STATUS_OK;
}

bool policy_stays(const struct policy *policy) {
    bool stays = !policy->schedule[0] && policy->tile_tokens == 0;
#define STAYS(field, key) stays &= policy->field == TIER_DEVICE;
    POLICY_TIERS(STAYS)
    return stays;
}

bool policy_is_plain(const struct policy *policy) {
    const struct policy plain = {.micro_batches_per_wave = policy->micro_batches_per_wave};
    bool same = !policy->schedule[0];
#define SAME_FIELD(field, key) same &= policy->field == plain.field;
    POLICY_INTEGERS(SAME_FIELD)
    POLICY_TIERS(SAME_FIELD)
    return same;
}

json_t *partition_to_json(const struct partition *partition) {
    return json_pack("{s:i, s:i, s:i}", "parameters", partition_width(partition->parameters), "gradients",
                     partition_width(partition->gradients), "optimizer", partition_width(partition->optimizer));
}

json_t *policy_to_json(const struct policy *policy) {
    json_t *object = json_object();
    int failed = !object;
#define SET_INTEGER(field, key) failed |= json_object_set_new(object, key, json_integer((json_int_t)policy->field));
    POLICY_INTEGERS(SET_INTEGER)
#define SET_TIER(field, key) failed |= json_object_set_new(object, key, json_string(tier_name(policy->field)));
    POLICY_TIERS(SET_TIER)
    failed |= json_object_set_new(object, "partition", partition_to_json(&policy->partition));
    failed |= json_object_set_new(object, "selective_recompute", json_boolean(policy->selective_recompute));
    failed |= json_object_set_new(object, "flat", json_boolean(policy->flat));
    failed |= json_object_set_new(object, "stage_starts", json_string(policy->spans));
    failed |= json_object_set_new(object, "schedule", json_string(policy->schedule));
    return json_made(failed, object, "a policy's JSON");
}

static enum status read_tier(const char *file, const json_t *object, const char *field, enum tier *out) {
    const char *name = tier_name(*out), *names[TIER_COUNT];
    TRY(json_read_string(file, object, field, &name));
    *out = tier_find(name);
    if (*out != TIER_COUNT) return STATUS_OK;
    for (enum tier tier = 0; tier < TIER_COUNT; tier++)
        names[tier] = tier_name(tier);
    enum status status = status_set(STATUS_BAD_INPUT, "%s: policy.%s: '%s' is no tier", file, field, name);
    return nearest_hint(status, "value", name, names, TIER_COUNT);
}

/* Files of versions without partitions have none. Whether it is legal depends on the ranks (plan_check). */
static enum status read_partition(const char *file, const json_t *object, struct partition *out) {
    static const char *const known[] = {"parameters", "gradients", "optimizer"};
    const json_t *widths = json_object_get(object, "partition");
    int64_t width[] = {1, 1, 1};
    if (!widths) return STATUS_OK;
    if (!json_is_object(widths)) return status_set(STATUS_BAD_INPUT, "%s: policy.partition: must be an object", file);
    TRY(json_refuse_unknown(file, "policy.partition.", widths, known, 3));
    char where[1024];
    snprintf(where, sizeof where, "%s: policy.partition", file);
    for (int i = 0; i < 3; i++) {
        TRY(json_require(where, widths, known[i]));
        TRY(json_read_int(where, widths, known[i], 1, LANES_MAX, &width[i]));
    }
    *out = (struct partition){(int)width[0], (int)width[1], (int)width[2]};
    return STATUS_OK;
}

enum status policy_from_json(const char *file, const json_t *object, struct policy *out) {
    static const char *const known[] = {"schedule",
                                        "partition",
                                        "selective_recompute",
                                        "flat",
                                        "stage_starts",
                                        "ranks",
                                        "pipeline_parallel", /* a plan's, and no policy's by itself */
#define NAME_FIELD(field, key) key,
                                        POLICY_INTEGERS(NAME_FIELD) POLICY_TIERS(NAME_FIELD)};
    struct policy policy = {0};
    TRY(json_refuse_unknown(file, "policy.", object, known, sizeof known / sizeof *known));
    TRY(json_require(file, object, "micro_batches_per_wave"));
#define READ_INTEGER(field, key) TRY(json_read_int(file, object, key, INT64_MIN, INT64_MAX, &policy.field));
    POLICY_INTEGERS(READ_INTEGER)
#define READ_TIER(field, key) TRY(read_tier(file, object, key, &policy.field));
    POLICY_TIERS(READ_TIER)
    TRY(read_partition(file, object, &policy.partition));
    TRY(json_read_bool(file, object, "selective_recompute", &policy.selective_recompute));
    TRY(json_read_bool(file, object, "flat", &policy.flat));
    TRY(json_read_text(file, object, "stage_starts", sizeof policy.spans, policy.spans));
    TRY(json_read_text(file, object, "schedule", sizeof policy.schedule, policy.schedule));
    *out = policy;
    return STATUS_OK;
}
