#include "search/policy_bound.h"

#include <math.h>

#include "plan/plan.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* ---- seconds ---- */

/* Seconds of work of a stream, by activity. */
struct load {
    double seconds[ACTIVITY_COUNT];
};

struct loads {
    const struct costs *costs;
    struct load streams[STREAM_ROLE_COUNT];
};

static void add_copies(struct loads *loads, enum tier from, enum tier to, double copies, double bytes) {
    if (from == to || copies <= 0) return;
    const struct cluster_rates *rates = &loads->costs->rates;
    const struct transfer_rate *rate = &rates->copy[from][to];
    loads->streams[stream_role_of_copy(from, to)].seconds[activity_of_copy(from, to)] +=
        copies * (rate->latency_s + rates->issue_s) + bytes / rate->bytes_per_s;
}

/* Whether updates of moving chunks are deferred to the next step. */
static bool defers(const struct policy_bound_input *input, const struct policy *policy) {
    return policy->optimizer != TIER_DEVICE && !input->early;
}

static bool gathers(const struct policy *policy) { return partition_width(policy->partition.parameters) > 1; }
static bool cuts_gradients(const struct policy *policy) { return partition_width(policy->partition.gradients) > 1; }

static double total(const struct load *load) {
    double sum = 0;
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        sum += load->seconds[activity];
    return sum;
}

/* Minimum time of two streams, one of which (`narrow`) has one activity. While both run for t seconds, activity a of
 * the wide stream completes t / s(a,n) of its work, and the narrow one t / s(n,a). That saves t (1 / s(a,n) + 1 /
 * s(n,a) - 1). As in a fractional knapsack, savings are taken first from the activity with the highest gain per second
 * of the narrow stream's work. */
static double pair_min(const struct cluster_rates *rates, const struct load *wide, enum activity narrow,
                       double narrow_s) {
    double left[ACTIVITY_COUNT], narrow_left = narrow_s, saved = 0;
    memcpy(left, wide->seconds, sizeof left);
    while (narrow_left > 0) {
        int best = -1;
        double max = 0;
        for (int a = 0; a < ACTIVITY_COUNT; a++) {
            double mine = rates->slowdown[a][narrow], its = rates->slowdown[narrow][a];
            double gain = its * (1 / mine + 1 / its - 1); /* per second of the narrow stream's work */
            if (left[a] > 0 && gain > max) max = gain, best = a;
        }
        if (best < 0) break;
        double mine = rates->slowdown[best][narrow], its = rates->slowdown[narrow][best];
        double together = fmin(left[best] * mine, narrow_left * its);
        saved += together * (1 / mine + 1 / its - 1);
        left[best] = together >= left[best] * mine ? 0 : left[best] - together / mine;
        narrow_left = together >= narrow_left * its ? 0 : narrow_left - together / its;
    }
    return total(wide) + narrow_s - saved;
}

/* The only activity of a stream; ACTIVITY_COUNT if it has several or none. */
static enum activity only_activity(const struct load *load) {
    enum activity found = ACTIVITY_COUNT;
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++) {
        if (load->seconds[activity] <= 0) continue;
        if (found != ACTIVITY_COUNT) return ACTIVITY_COUNT;
        found = (enum activity)activity;
    }
    return found;
}

/* A pair takes at most the sum of both, so few pairs can raise the bound. If both have one activity each, either may be
 * the narrow one. */
static double min_seconds(const struct loads *loads) {
    double totals[STREAM_ROLE_COUNT], max = 0;
    enum activity only[STREAM_ROLE_COUNT];
    for (int role = 0; role < STREAM_ROLE_COUNT; role++) {
        totals[role] = total(&loads->streams[role]);
        only[role] = only_activity(&loads->streams[role]);
        max = fmax(max, totals[role]);
    }
    for (int narrow = 0; narrow < STREAM_ROLE_COUNT; narrow++)
        for (int wide = 0; wide < STREAM_ROLE_COUNT && only[narrow] != ACTIVITY_COUNT; wide++) {
            bool done = wide == narrow || (wide < narrow && only[wide] != ACTIVITY_COUNT);
            if (done || totals[wide] + totals[narrow] <= max) continue;
            const struct cluster_rates *rates = &loads->costs->rates;
            max = fmax(max, pair_min(rates, &loads->streams[wide], only[narrow], totals[narrow]));
        }
    /* The order of summation differs from the simulator's, so last digits differ. */
    return max * (1 - 1e-9);
}

/* Moved chunks: of one policy, or of the one with the fewest among several policies. */
struct elsewhere {
    const struct chunk_sum *moves, *updates; /* chunks that move; those with deferred updates, if any */
    int64_t buffers, buffer_bytes;           /* maximum number, and size of the largest */
};

/* Complete parameters of the chunks that a phase reads. */
struct wholes {
    double packs, bytes;
};

static struct wholes wholes_of(const struct states *states, bool again) {
    struct wholes sum = {0, 0};
    for (int32_t c = 0; c < states_count(states); c++) {
        if (again && !states->read_again[c]) continue;
        sum.packs++;
        sum.bytes += (double)states_parameters(states, c);
    }
    return sum;
}

/* Sharded parameters are gathered as others are fetched: once for forward, and again for backward unless they are still
 * in a buffer. */
static void add_gathers(const struct policy_bound_input *input, const struct policy *policy, double waves,
                        double buffers, struct loads *loads) {
    const struct collective_seconds *collective_seconds = input->collective_seconds;
    enum tier tier = input->cut->place.tier;
    if (!gathers(policy)) return;
    double again_s = fmax(collective_seconds->gather_again_s - buffers * collective_seconds->largest_gather_s, 0);
    loads->streams[STREAM_COMM].seconds[ACTIVITY_MESSAGE] += waves * (collective_seconds->gather_s + again_s);
    if (tier == TIER_DEVICE) return;
    struct wholes first = wholes_of(input->states, false), again = wholes_of(input->states, true);
    double largest = (double)input->states->largest[0];
    add_copies(loads, tier, TIER_DEVICE, waves * (first.packs + fmax(again.packs - buffers, 0)),
               waves * (first.bytes + fmax(again.bytes - buffers * largest, 0)));
}

/* A shard from another tier is fetched for its gathers. It may stay between two gathers that are close together. */
static void add_shards(const struct policy_bound_input *input, const struct policy *policy, double waves,
                       const struct chunk_sum *away, struct loads *loads) {
    bool far = (int64_t)input->cost->groups.count > 2 * policy->lookahead + 2;
    double times = far ? waves : 1;
    add_copies(loads, policy->parameters, input->cut->place.tier, times * away->packs,
               times * (double)away->parameters);
}

/* Parameters from another tier are fetched once for forward. Backward fetches the ones it reads again, unless they are
 * still in a buffer. */
static void add_parameters(const struct policy_bound_input *input, const struct policy *policy, double waves,
                           const struct elsewhere *elsewhere, struct loads *loads) {
    const struct chunk_sum *away = elsewhere->moves;
    if (gathers(policy)) add_shards(input, policy, waves, away, loads);
    if (gathers(policy) || policy->parameters == TIER_DEVICE) return;
    double again = (double)larger(away->again_packs - elsewhere->buffers, 0);
    double bytes = (double)larger(away->again - elsewhere->buffers * elsewhere->buffer_bytes, 0);
    bool trains = input->cost->groups.count > 0 && away->gradient_packs > 0;
    add_copies(loads, policy->parameters, TIER_DEVICE, waves * away->packs, waves * (double)away->parameters);
    if (trains) add_copies(loads, policy->parameters, TIER_DEVICE, waves * again, waves * bytes);
}

/* Unreduced sums wait for the next wave of their share. Reduced ones wait for a deferred update. */
static void add_cut_gradients(const struct policy_bound_input *input, const struct policy *policy, double waves,
                              const struct chunk_sum *away, struct loads *loads) {
    double later = waves - (double)input->cut->computed;
    add_copies(loads, TIER_DEVICE, policy->gradients, later * away->summed_packs, later * (double)away->summed);
    add_copies(loads, policy->gradients, TIER_DEVICE, later * away->summed_packs, later * (double)away->summed);
    if (policy->optimizer == TIER_DEVICE) return;
    add_copies(loads, policy->gradients, policy->update, away->summed_packs, (double)away->shards);
}

/* Whether accumulators of other uses, which are not part of the sums, must be kept: for another wave, or for the next
 * step. If lanes or ranks are added, none is needed after its share. */
static bool other_uses_wait(const struct policy_bound_input *input, const struct policy *policy) {
    const struct step_cut *cut = input->cut;
    bool later = step_cut_waves(cut, policy->micro_batches_per_wave) > 1 || defers(input, policy);
    return cut->adds == 0 && rank_place_data(&cut->place) == 1 && later;
}

/* Sums are stored after each wave and fetched for the next wave of the share. Partial sums are fetched to be added to.
 * An update reads only the sum of a tied parameter. */
static void add_gradients(const struct policy_bound_input *input, const struct policy *policy, double waves,
                          const struct chunk_sum *away, struct loads *loads) {
    const struct step_cut *cut = input->cut;
    if (cuts_gradients(policy)) {
        add_cut_gradients(input, policy, waves, away, loads);
        return;
    }
    bool whole = other_uses_wait(input, policy);
    double packs = whole ? away->gradient_packs : away->summed_packs;
    double bytes = (double)(whole ? away->gradients : away->summed);
    double fetches = waves - (double)cut->computed + (double)cut->adds;
    bool taken = input->early && policy->update == TIER_DEVICE; /* by the update, on the tier where the last wave left
                                                                 * them */
    double stores = taken ? waves - (double)cut->computed : waves;
    add_copies(loads, TIER_DEVICE, policy->gradients, stores * packs, stores * bytes);
    add_copies(loads, policy->gradients, TIER_DEVICE, fetches * packs, fetches * bytes);
    if (!taken) add_copies(loads, policy->gradients, policy->update, away->summed_packs, (double)away->summed);
}

/* Gradient sums on the device are copied to the tier of the collectives; all-reduced ones are copied back. */
static void add_collective_traffic(const struct policy_bound_input *input, const struct policy *policy,
                                   const struct chunk_sum *away, struct loads *loads) {
    const struct chunk_sum *all = input->from;
    bool device = policy->gradients == TIER_DEVICE;
    double rounds = (double)input->cut->reductions, packs = all->summed_packs - (device ? 0 : away->summed_packs);
    double bytes = (double)(all->summed - (device ? 0 : away->summed));
    enum tier tier = input->cut->place.tier;
    add_copies(loads, TIER_DEVICE, tier, rounds * packs, rounds * bytes);
    if (!cuts_gradients(policy)) add_copies(loads, tier, TIER_DEVICE, rounds * packs, rounds * bytes);
}

/* Stream of a node that is not deferred. Collective operators send messages. */
static enum stream_role stream_of(int activity) { return activity == ACTIVITY_MESSAGE ? STREAM_COMM : STREAM_COMPUTE; }

/* The updates' kernels and their copies. */
static void add_updates(const struct policy_bound_input *input, const struct policy *policy,
                        const struct elsewhere *elsewhere, struct loads *loads) {
    const struct states *states = input->states;
    const struct chunk_sum *away = elsewhere->moves;
    const double *away_s = policy->update == TIER_HOST ? away->host_update_s : away->update_s;
    bool aside = policy->optimizer != TIER_DEVICE || (input->early && policy->parameters != TIER_DEVICE);
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++) {
        double aside_s = aside ? elsewhere->updates->update_s[activity] : 0;
        loads->streams[STREAM_UPDATE].seconds[activity] += aside ? away_s[activity] : 0;
        loads->streams[stream_of(activity)].seconds[activity] +=
            input->from[0].update_s[activity] - aside_s + states->once_s[activity] + input->from[0].finish_s[activity];
    }
    add_copies(loads, policy->optimizer, policy->update, away->optimizer_packs, (double)away->optimizer);
    add_copies(loads, policy->update, policy->optimizer, away->optimizer_packs, (double)away->optimizer);
    add_copies(loads, policy->update, policy->parameters, away->trained_packs, (double)away->trained);
}

/* Zeros before each share, lane sums, and reductions. */
static void add_sums(const struct policy_bound_input *input, struct loads *loads) {
    const struct cluster_rates *rates = &loads->costs->rates;
    const struct chunk_sum *all = input->from;
    double zeros_s = all->gradient_packs * (rates->zero.latency_s + rates->issue_s) +
                     (double)all->gradients / rates->zero.bytes_per_s;
    double add_s = all->summed_packs * (costs_add_s(rates, 0) + rates->issue_s) + costs_add_s(rates, all->summed) -
                   costs_add_s(rates, 0);
    loads->streams[STREAM_COMPUTE].seconds[ACTIVITY_STREAMING] +=
        (double)input->cut->computed * zeros_s + (double)input->cut->adds * add_s;
    loads->streams[STREAM_COMM].seconds[ACTIVITY_MESSAGE] +=
        input->collective_seconds->reduce_s + input->collective_seconds->once_s;
}

static struct policy_seconds bound_seconds(const struct policy_bound_input *input, const struct policy *policy,
                                           const struct elsewhere *elsewhere) {
    const struct schedule_cost *cost = input->cost;
    struct loads loads = {.costs = input->costs};
    double micro_batches = (double)input->cut->shares.micro_batches;
    double waves = (double)step_cut_waves(input->cut, policy->micro_batches_per_wave);
    for (int activity = 0; activity < ACTIVITY_COUNT; activity++)
        loads.streams[stream_of(activity)].seconds[activity] = micro_batches * cost->compute_s[activity];
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++) {
        add_copies(&loads, TIER_DEVICE, tier, micro_batches * (double)cost->out[tier].copies,
                   micro_batches * (double)cost->out[tier].bytes);
        add_copies(&loads, tier, TIER_DEVICE, micro_batches * (double)cost->in[tier].copies,
                   micro_batches * (double)cost->in[tier].bytes);
    }
    add_gathers(input, policy, waves, (double)elsewhere->buffers, &loads);
    add_parameters(input, policy, waves, elsewhere, &loads);
    add_gradients(input, policy, waves, elsewhere->moves, &loads);
    add_collective_traffic(input, policy, elsewhere->updates, &loads);
    add_updates(input, policy, elsewhere, &loads);
    add_sums(input, &loads);
    struct policy_seconds seconds = {min_seconds(&loads), 0};
    for (int role = 0; role < STREAM_ROLE_COUNT; role++)
        seconds.serial_s += total(&loads.streams[role]);
    return seconds;
}

/* Each stream gets the least work of any of the policies. Copies and deferred updates decrease as more chunks stay;
 * updates at the end of the step decrease as fewer stay. */
struct policy_seconds policy_bound_min_seconds(const struct policy_bound_input *input, const struct policy *policy,
                                               int64_t max_persistent) {
    const struct states *states = input->states;
    const struct elsewhere elsewhere = {&input->from[max_persistent], &input->from[0], policy->buffers,
                                        states->largest[0]};
    return bound_seconds(input, policy, &elsewhere);
}

/* ---- bytes ---- */

/* A wave. In the first wave of a share, gradients on the device become live only in its backward. */
struct wave {
    bool first;      /* first of the step */
    bool opens;      /* first of a share */
    bool continues;  /* another wave of the share follows */
    int64_t waiting; /* levels of partial sums */
    int64_t slots;   /* micro-batches */
};

struct walk {
    const struct policy_bound_input *input;
    const struct policy *policy;
    struct wave wave;
    int64_t groups;
    int64_t *changes; /* by group, and one more for the update after the wave */
};

/* Adds bytes that are live from the beginning of one group to the end of another. The update counts as a group. */
static void add_lifetime(const struct walk *walk, int64_t first, int64_t last, int64_t bytes) {
    if (first > last) return;
    walk->changes[larger(first, 0)] += bytes;
    walk->changes[smaller(last, walk->groups) + 1] -= bytes;
}

/* The last group, before the update, during which a buffer is off the device whose last use is in `group`. */
static int64_t last_group_away(const struct walk *walk, int64_t group) {
    return smaller(movement_store_group(group, walk->policy->lookahead), walk->groups) - 1;
}

/* A complete gradient is freed after its share's last backward has added to it and it is reduced. From earlier waves it
 * waits for that. */
static void add_cut_lifetimes(const struct walk *walk, const struct gradient_pack *pack, int64_t group) {
    const struct policy *policy = walk->policy;
    bool stays = pack->chunk < policy->persistent_chunks || policy->gradients == TIER_DEVICE;
    int64_t begin = stays ? 0 : movement_fetch_group(group, policy->lookahead);
    if (walk->wave.waiting > 0) return;
    if (!walk->wave.opens)
        add_lifetime(walk, begin, group, pack->summed);
    else if (walk->wave.continues && stays)
        add_lifetime(walk, group + 1, walk->groups, pack->summed);
}

/* Whether ranks add gradients off the device. A complete gradient whose home tier is also elsewhere then leaves the
 * device as soon as it is complete. */
static bool sums_leave(const struct walk *walk) {
    const struct rank_place *place = &walk->input->cut->place;
    return !walk->wave.continues && rank_place_data(place) > 1 && place->tier != TIER_DEVICE;
}

/* In a share's first wave a group's gradients are zeroed within the group, so they count from its end on. If they are
 * added to another level, that level counts. */
static void add_gradient_lifetimes(const struct walk *walk) {
    const struct policy *policy = walk->policy;
    const struct states *states = walk->input->states;
    for (size_t i = 0; i < states->gradients.count; i++) {
        const struct gradient_pack *pack = &states->gradients.items[i];
        bool stays = pack->chunk < policy->persistent_chunks, kept = !stays && defers(walk->input, policy);
        int64_t group = pack->block < states->blocks ? walk->input->cost->backward[pack->block] : -1;
        bool leaves = walk->input->early && !walk->wave.continues; /* leaves with its update; this may be the last
                                                                    * wave */
        if (group < 0) continue;
        if (cuts_gradients(policy)) {
            add_cut_lifetimes(walk, pack, group);
            continue;
        }
        if (stays || policy->gradients == TIER_DEVICE) {
            bool own = walk->wave.waiting == 0;
            add_lifetime(walk, 0, walk->groups, walk->wave.waiting * pack->summed);
            if (own && !leaves)
                add_lifetime(walk, kept || !walk->wave.opens ? 0 : group + 1, walk->groups, pack->bytes);
            if (own && leaves && !walk->wave.opens) add_lifetime(walk, 0, group, pack->bytes);
        } else if (walk->wave.waiting == 0 && !leaves)
            add_lifetime(walk, walk->wave.opens ? group + 1 : movement_fetch_group(group, policy->lookahead),
                         sums_leave(walk) ? group : last_group_away(walk, group), pack->bytes);
    }
}

/* Whether updated parameter shards leave the device at once, to be gathered from another tier. */
static bool updated_leave(const struct walk *walk) {
    const struct partition *partition = &walk->policy->partition;
    bool gathered = partition_width(partition->optimizer) > partition_width(partition->parameters);
    return gathered && walk->input->cut->place.tier != TIER_DEVICE;
}

/* Deferred updates (movement_update_block): state is fetched and stored. Gradients are fetched, and freed when the
 * block's forward begins. Parameters are stored, at the latest when they are used. */
static void add_update_lifetimes(const struct walk *walk) {
    const struct policy *policy = walk->policy;
    const struct states *states = walk->input->states;
    if (!defers(walk->input, policy) || policy->update != TIER_DEVICE || !walk->wave.first) return;
    for (int64_t c = policy->persistent_chunks; c < states_count(states); c++) {
        struct chunk_sum chunk = chunk_sum_of(walk->input->from, c);
        int64_t user = states->chunks.chunks.items[c].block, block = movement_update_block(user, policy);
        if (user >= states->blocks || chunk.trained == 0) continue;
        int64_t group = walk->input->cost->forward[block], used = walk->input->cost->forward[user];
        if (group < 0 || used < 0) continue;
        int64_t early = movement_fetch_group(group, policy->lookahead), late = last_group_away(walk, group);
        add_lifetime(walk, early, late, chunk.optimizer);
        if (policy->gradients != TIER_DEVICE)
            add_lifetime(walk, early, group - 1, cuts_gradients(policy) ? chunk.shards : chunk.gradients);
        if (policy->parameters != TIER_DEVICE && !updated_leave(walk))
            add_lifetime(walk, group, smaller(late, used - 1), chunk.trained);
    }
}

/* Bytes of the parameters from other tiers that a phase of a block uses. */
static int64_t used_bytes(const struct walk *walk, enum phase phase, int32_t block) {
    const struct states *states = walk->input->states;
    int32_t index = (int32_t)phase * states->blocks + block;
    int32_t first = states->users_first[index], end = states->users_first[index + 1];
    int64_t stay = gathers(walk->policy) ? 0 : walk->policy->persistent_chunks;
    while (first < end && states->users[first] < stay)
        first++;
    return states->users_bytes[first] - states->users_bytes[end];
}

/* The minimum bytes in the buffers when a group begins. Recomputation omits values that its backward does not read, so
 * it counts as nothing. */
static int64_t group_parameters(const struct walk *walk, int64_t index) {
    const struct schedule_cost *cost = walk->input->cost;
    int32_t block = cost->groups.items[index].block;
    int64_t bytes = 0;
    if ((walk->policy->parameters == TIER_DEVICE && !gathers(walk->policy)) || block < 0) return 0;
    if (cost->forward[block] == index) bytes = used_bytes(walk, PHASE_FORWARD, block);
    if (cost->backward[block] == index) bytes = larger(bytes, used_bytes(walk, PHASE_BACKWARD, block));
    return bytes;
}

static int64_t wave_bytes(const struct policy_bound_input *input, const struct policy *policy, struct wave wave) {
    const struct schedule_cost *cost = input->cost;
    struct walk walk = {input, policy, wave, (int64_t)cost->groups.count, input->scratch};
    memset(walk.changes, 0, policy_bound_scratch(cost) * sizeof *walk.changes);
    add_gradient_lifetimes(&walk);
    add_update_lifetimes(&walk);
    int64_t live = 0, max = 0;
    for (int64_t i = 0; i < walk.groups; i++) {
        const struct group_bytes *group = &cost->groups.items[i];
        live += walk.changes[i];
        int64_t others = (wave.slots - 1) * larger(group->before, group->after);
        int64_t beginning = wave.slots * group->before + group_parameters(&walk, i);
        max = larger(max, live + larger(group->peak + others, beginning));
    }
    return larger(max, live + walk.changes[walk.groups]);
}

/* Gradient shards that a deferred update leaves in a tier. Chunks that stay are updated at the step's end. */
static int64_t kept_shards(const struct policy_bound_input *input, const struct policy *policy,
                           const struct chunk_sum *away, enum tier tier) {
    return defers(input, policy) && policy->gradients == tier ? away->shards : 0;
}

/* Parameters and optimizer state that are always on the device. */
static int64_t constant_bytes(const struct policy_bound_input *input, const struct policy *policy) {
    const struct chunk_sum *all = input->from, *away = &all[policy->persistent_chunks];
    int64_t elsewhere = (policy->parameters != TIER_DEVICE ? away->parameters : 0) +
                        (policy->optimizer != TIER_DEVICE ? away->optimizer : 0);
    return input->fixed_bytes + all->parameters + all->optimizer - elsewhere +
           kept_shards(input, policy, away, TIER_DEVICE);
}

int64_t policy_bound_device_bytes(const struct policy_bound_input *input, const struct policy *policy) {
    struct cut_waves waves = step_cut_largest(input->cut, policy->micro_batches_per_wave);
    bool continues = waves.first > 0 && input->cut->shares.list.items[0].micro_batches > waves.first;
    const struct wave first = {.first = true, .opens = true, .continues = continues, .slots = waves.first};
    const struct wave deepest = {.opens = true, .waiting = step_cut_waiting(input->cut), .slots = waves.deepest};
    int64_t max = waves.first > 0 ? wave_bytes(input, policy, first) : 0;
    if (waves.deepest > 0) max = larger(max, wave_bytes(input, policy, deepest));
    if (waves.later > 0) max = larger(max, wave_bytes(input, policy, (struct wave){.slots = waves.later}));
    return constant_bytes(input, policy) + max;
}

/* Counts only those of the first wave, since later ones may repeat it. A pipeline's stages share them. */
int64_t policy_bound_operations(const struct policy_bound_input *input, int64_t micro_batches_per_wave) {
    int64_t slots = step_cut_largest(input->cut, micro_batches_per_wave).first;
    return slots * input->cost->collectives / rank_place_pipeline_parallel(&input->cut->place);
}

static int64_t activation_bytes(const struct schedule_cost *cost, int64_t slots) {
    return slots > 0 ? schedule_cost_min_bytes(cost, slots) : -1;
}

struct wave_activations policy_bound_activations(const struct schedule_cost *cost, const struct step_cut *cut,
                                                 int64_t micro_batches_per_wave) {
    struct cut_waves waves = step_cut_largest(cut, micro_batches_per_wave);
    return (struct wave_activations){activation_bytes(cost, waves.first), activation_bytes(cost, waves.deepest),
                                     activation_bytes(cost, waves.later)};
}

/* All gradients that stay are live throughout a later wave, and at the end of the first. Levels that wait are live
 * throughout the first wave of a share. */
int64_t policy_bound_quick_device_bytes(const struct policy_bound_input *input, const struct policy *policy,
                                        const struct wave_activations *activations) {
    const struct chunk_sum *all = input->from, *away = &all[policy->persistent_chunks];
    bool elsewhere = policy->gradients != TIER_DEVICE;
    if (cuts_gradients(policy)) {
        int64_t summed = activations->later >= 0 ? all->summed - (elsewhere ? away->summed : 0) : 0;
        return constant_bytes(input, policy) + larger(activations->first, summed);
    }
    int64_t gradients = all->gradients - (elsewhere ? away->gradients : 0);
    int64_t waiting = step_cut_waiting(input->cut) * (all->summed - (elsewhere ? away->summed : 0));
    if (input->early && activations->later < 0) gradients = 0; /* each is freed before the next is allocated */
    int64_t max = larger(activations->first, input->cut->computed > 0 ? gradients : 0);
    if (activations->later >= 0)
        max = larger(max, input->early ? larger(gradients, activations->later) : gradients + activations->later);
    if (activations->deepest >= 0) max = larger(max, waiting + activations->deepest);
    return constant_bytes(input, policy) + max;
}

/* Copies in the host tier for the update of one chunk. For a tied parameter only the sum of its gradients is copied. */
static int64_t host_update_bytes(const struct policy_bound_input *input, const struct policy *policy) {
    int64_t max = 0;
    if (policy->optimizer == TIER_DEVICE || policy->update != TIER_HOST) return 0;
    for (size_t g = 0; g < input->states->gradients.count; g++) {
        const struct gradient_pack *gradients = &input->states->gradients.items[g];
        struct chunk_sum chunk = chunk_sum_of(input->from, gradients->chunk);
        if (gradients->chunk < policy->persistent_chunks) continue;
        max = larger(max, (policy->optimizer != TIER_HOST ? chunk.optimizer : 0) +
                              (policy->gradients != TIER_HOST && !cuts_gradients(policy) ? gradients->bytes : 0) +
                              (policy->parameters != TIER_HOST ? chunk.trained : 0));
    }
    return max;
}

static int64_t lower_bytes(const struct policy_bound_input *input, const struct policy *policy, enum tier tier) {
    const struct chunk_sum *away = &input->from[policy->persistent_chunks];
    int64_t sums = other_uses_wait(input, policy) ? away->gradients : away->summed;
    bool cut = cuts_gradients(policy);
    int64_t kept = kept_shards(input, policy, away, tier), gradients = policy->gradients == tier && !cut ? sums : 0;
    if (policy->parameters == tier) kept += away->parameters;
    if (policy->optimizer == tier) kept += away->optimizer;
    struct cut_waves waves = step_cut_largest(input->cut, policy->micro_batches_per_wave);
    int64_t passing = waves.first * input->cost->away_bytes[tier];
    if (cut && policy->gradients == tier && waves.later > 0) passing = larger(passing, away->summed);
    if (tier == TIER_HOST) passing = larger(passing, host_update_bytes(input, policy));
    if (input->early && waves.later <= 0) gradients = 0;
    return kept + larger(gradients, passing + (defers(input, policy) ? gradients : 0));
}

/* Bytes of a pipeline's first stage beyond its part of the whole model's, counted for all stages. As many waves are in
 * flight in it as there are stages, and each stage has its own space for running operators. */
static int64_t pipeline_bytes(const struct policy_bound_input *input, const struct policy *policy) {
    const struct schedule_cost *cost = input->cost;
    int64_t stages = rank_place_pipeline_parallel(&input->cut->place), kept = 0, running = 0;
    int64_t flying = smaller(stages, step_cut_waves(input->cut, policy->micro_batches_per_wave));
    if (stages == 1) return 0;
    for (size_t i = 0; i < cost->groups.count; i++) {
        const struct group_bytes *group = &cost->groups.items[i];
        kept = larger(kept, larger(group->before, group->after));
        running = larger(running, group->peak - larger(group->before, group->after));
    }
    int64_t slots = step_cut_largest(input->cut, policy->micro_batches_per_wave).first;
    return (flying - 1) * slots * kept + (stages - 1) * running;
}

struct policy_bound policy_bound_of(const struct policy_bound_input *input, const struct policy *policy,
                                    int64_t device_bytes) {
    const struct chunk_sum *away = &input->from[policy->persistent_chunks];
    const struct elsewhere elsewhere = {away, away, policy->buffers, input->states->largest[policy->persistent_chunks]};
    struct policy_bound bound = {.seconds = bound_seconds(input, policy, &elsewhere)};
    bound.bytes[TIER_DEVICE] = bound.likely_bytes = device_bytes;
    for (enum tier tier = TIER_HOST; tier < TIER_COUNT; tier++)
        bound.bytes[tier] = lower_bytes(input, policy, tier);
    const struct chunk_sum *wholes = input->states->from;
    int64_t buffers = policy->buffers * rank_place_pipeline_parallel(&input->cut->place);
    bound.likely_bytes += pipeline_bytes(input, policy);
    if (gathers(policy) && wholes->packs > 0)
        bound.likely_bytes += buffers * (wholes->parameters / wholes->packs);
    else if (policy->parameters != TIER_DEVICE && away->packs > 0)
        bound.likely_bytes += buffers * (away->parameters / away->packs);
    return bound;
}

int64_t policy_bound_fixed_bytes(const struct graph *graph, int64_t micro_batches) {
    int64_t bytes = 0;
    for (size_t i = 0; i < graph->tensors.count; i++) {
        const struct tensor *tensor = graph->tensors.items[i];
        if (tensor->kind == TENSOR_INPUT) bytes += micro_batches * shape_bytes(&tensor->shape);
    }
    return bytes;
}
