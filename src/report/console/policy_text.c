#include "report/console/policy_text.h"

#include <stdarg.h>

#include "plan/activations.h"

struct phrase {
    char *text;
    size_t bytes, used;
};

static void __attribute__((format(printf, 2, 3))) add(struct phrase *phrase, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    int wrote = vsnprintf(phrase->text + phrase->used, phrase->bytes - phrase->used, format, arguments);
    va_end(arguments);
    if (wrote > 0) phrase->used += (size_t)wrote;
    if (phrase->used >= phrase->bytes) phrase->used = phrase->bytes - 1;
}

static const char *plural(int64_t count) { return count == 1 ? "" : "s"; }

/* The policy's traits in words; "" for those of the plain policy. */
enum trait {
    TRAIT_MICRO_BATCHES,
    TRAIT_HOST,
    TRAIT_DISK,
    TRAIT_STAY,
    TRAIT_UPDATE,
    TRAIT_SENT_HOST,
    TRAIT_SENT_DISK,
    TRAIT_AGAIN,
    TRAIT_TILES,
    TRAIT_LOOKAHEAD,
    TRAIT_SHARDS,
    TRAIT_FLAT,
    TRAIT_SELECTIVE_RECOMPUTE,
    TRAIT_COUNT
};
static const char *const default_texts[TRAIT_COUNT] = {
    [TRAIT_MICRO_BATCHES] = "",
    [TRAIT_HOST] = "no states on the host",
    [TRAIT_DISK] = "no states on the disk",
    [TRAIT_STAY] = "no chunk stays on the device",
    [TRAIT_UPDATE] = "updated on the device",
    [TRAIT_SENT_HOST] = "no activations on the host",
    [TRAIT_SENT_DISK] = "no activations on the disk",
    [TRAIT_AGAIN] = "no recomputed blocks",
    [TRAIT_TILES] = "MLPs on all tokens at once",
    [TRAIT_LOOKAHEAD] = "no prefetching",
    [TRAIT_SHARDS] = "all states on each rank",
    [TRAIT_FLAT] = "hierarchical collectives",
    [TRAIT_SELECTIVE_RECOMPUTE] = "keeps outputs of norms and activation functions",
};
enum { TRAIT_BYTES = 80 };
struct traits {
    char text[TRAIT_COUNT][TRAIT_BYTES];
};

static struct phrase phrase_of(struct traits *traits, enum trait trait) {
    return (struct phrase){traits->text[trait], TRAIT_BYTES, 0};
}

/* The states with this home tier: "gradients and optimizer state on the disk". */
static bool add_tier(struct phrase *phrase, const struct policy *policy, enum tier tier) {
    static const char *const names[] = {"parameters", "gradients", "optimizer state"};
    const enum tier home_tiers[] = {policy->parameters, policy->gradients, policy->optimizer};
    int count = 0, named = 0;
    for (int i = 0; i < 3; i++)
        count += home_tiers[i] == tier;
    if (count == 0) return false;
    for (int i = 0; i < 3; i++) {
        if (home_tiers[i] != tier) continue;
        add(phrase, "%s%s", named == 0 ? "" : named == count - 1 ? " and " : ", ", names[i]);
        named++;
    }
    add(phrase, " on the %s", tier_name(tier));
    return true;
}

static void describe_states(const struct policy *policy, struct traits *out) {
    struct phrase host = phrase_of(out, TRAIT_HOST), disk = phrase_of(out, TRAIT_DISK),
                  stay = phrase_of(out, TRAIT_STAY);
    struct phrase update = phrase_of(out, TRAIT_UPDATE), ahead = phrase_of(out, TRAIT_LOOKAHEAD);
    bool moves = add_tier(&host, policy, TIER_HOST);
    moves |= add_tier(&disk, policy, TIER_DISK);
    if (moves && policy->persistent_chunks == 1) add(&stay, "the first chunk stays on the device");
    if (moves && policy->persistent_chunks > 1)
        add(&stay, "the first %" PRId64 " chunks stay on the device", policy->persistent_chunks);
    if (policy->update == TIER_HOST) add(&update, "updated on the host");
    if (moves && policy->lookahead > 0) add(&ahead, "prefetches one block ahead");
    if (moves && policy->lookahead == 0 && policy->update_ahead > 0) add(&ahead, "updates one block ahead");
}

static void describe_schedule(const struct policy *policy, int32_t blocks, struct traits *out) {
    static const enum trait sent[TIER_COUNT] = {[TIER_HOST] = TRAIT_SENT_HOST, [TIER_DISK] = TRAIT_SENT_DISK};
    struct activation_steps steps;
    struct phrase again = phrase_of(out, TRAIT_AGAIN);
    int64_t moved[TIER_COUNT] = {0}, forwards = 0;
    enum status status = activations_parse(policy->schedule, blocks, &steps);
    for (size_t s = 0; s < steps.list.count && status == STATUS_OK; s++) {
        const struct activation_step *step = &steps.list.items[s];
        if (step->action == ACTIVATION_MOVE) moved[step->tier]++;
        forwards += step->action == ACTIVATION_FORWARD;
    }
    activation_steps_free(&steps);
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++) {
        struct phrase phrase = phrase_of(out, sent[tier]);
        if (moved[tier] > 0)
            add(&phrase, "activations of %" PRId64 " of %" PRId32 " blocks on the %s", moved[tier], blocks,
                tier_name(tier));
    }
    if (forwards > blocks) add(&again, "recomputes %" PRId64 " block%s", forwards - blocks, plural(forwards - blocks));
}

static void describe_partition(const struct policy *policy, struct traits *out) {
    struct phrase shards = phrase_of(out, TRAIT_SHARDS), flat = phrase_of(out, TRAIT_FLAT);
    const struct partition *cut = &policy->partition;
    if (partition_cuts(cut))
        add(&shards, "%d|%d|%d shards of parameters, gradients and optimizer state", partition_width(cut->parameters),
            partition_width(cut->gradients), partition_width(cut->optimizer));
    if (policy->flat) add(&flat, "flat collectives");
}

static void find_traits(const struct policy *policy, int32_t blocks, struct traits *out) {
    *out = (struct traits){0};
    struct phrase micro_batches = phrase_of(out, TRAIT_MICRO_BATCHES);
    add(&micro_batches, "%" PRId64 " micro-batch%s per wave", policy->micro_batches_per_wave,
        policy->micro_batches_per_wave == 1 ? "" : "es");
    struct phrase tiles = phrase_of(out, TRAIT_TILES);
    if (policy->tile_tokens > 0) add(&tiles, "MLPs in tiles of %" PRId64 " tokens", policy->tile_tokens);
    struct phrase selective_recompute = phrase_of(out, TRAIT_SELECTIVE_RECOMPUTE);
    if (policy->selective_recompute) add(&selective_recompute, "recomputes norms and activation functions");
    describe_states(policy, out);
    describe_schedule(policy, blocks, out);
    describe_partition(policy, out);
}

char *policy_text(const struct policy *policy, int32_t blocks, char text[POLICY_TEXT_BYTES]) {
    struct phrase phrase = {text, POLICY_TEXT_BYTES, 0};
    struct traits traits;
    int parts = 0;
    find_traits(policy, blocks, &traits);
    for (int i = 0; i < TRAIT_COUNT; i++) {
        if (i == TRAIT_SELECTIVE_RECOMPUTE && parts == 1) add(&phrase, "; all on the device");
        if (traits.text[i][0]) add(&phrase, "%s%s", parts++ > 0 ? "; " : "", traits.text[i]);
    }
    return text;
}

char *policy_difference_text(const struct policy *policy, const struct policy *chosen, int32_t blocks,
                             char text[POLICY_TEXT_BYTES]) {
    struct phrase phrase = {text, POLICY_TEXT_BYTES, 0};
    struct traits mine, theirs;
    int parts = 0;
    find_traits(policy, blocks, &mine);
    find_traits(chosen, blocks, &theirs);
    for (int i = 0; i < TRAIT_COUNT; i++)
        if (strcmp(mine.text[i], theirs.text[i]) != 0)
            add(&phrase, "%s%s", parts++ > 0 ? "; " : "", mine.text[i][0] ? mine.text[i] : default_texts[i]);
    if (parts == 0)
        add(&phrase, "%s",
            strcmp(policy->schedule, chosen->schedule) != 0 ? "the same number of other blocks"
                                                            : "chunks of another size");
    return text;
}
