/* The last programs of a search: policies near the best. Lists the policy classes near one, which are too many to list
 * for the whole space, and chooses the policies to compile. */
#include <math.h>

#include "search/proposals.h"

/* ---- policy classes near one ---- */

/* With fewer chunks than this, smaller ones are tried too. */
enum { CHUNKS_FEW = 128 };

/* ---- smaller chunks ---- */

/* Chunks of half and a quarter of the size, if there are few: with more, chunks are small enough parts of the
 * states. */
static enum status pack_finer(struct space *space, const struct partition *partition, struct packings *out) {
    struct policy policy = {.partition = *partition, .chunk_bytes = out->states[0].chunk_bytes};
    if (out->count > out->listed || states_count(&out->states[0]) >= CHUNKS_FEW) return STATUS_OK;
    int32_t before = states_count(&out->states[0]);
    for (int i = 0; i < PACKINGS_MAX - PACKINGS_LISTED; i++) {
        struct states *states = &out->states[out->count];
        policy.chunk_bytes /= 2;
        out->count++;
        TRY(states_create(space->input->graph, space->input->costs, &policy, states));
        if (states_count(states) == before) { /* each parameter is its own chunk */
            states_free(states);
            out->count--;
            break;
        }
        before = states_count(states);
    }
    return STATUS_OK;
}

static bool is_near(const struct policy_class *a, const struct policy_class *b) {
    bool updates = a->at.optimizer == b->at.optimizer && a->at.update != b->at.update;
    int choices = (a->schedule != b->schedule) + (a->micro_batches_per_wave != b->micro_batches_per_wave) +
                  (policy_class_copy_way(a) != policy_class_copy_way(b)) + (a->at.parameters != b->at.parameters) +
                  (a->at.gradients != b->at.gradients) + (a->at.optimizer != b->at.optimizer) + updates;
    return a->sharding_option == b->sharding_option && a->flat == b->flat && choices <= 1;
}

static bool has_twin(const struct space *space, size_t from, const struct policy_class *policy_class) {
    for (size_t f = from; f < space->policy_classes.count; f++)
        if (space->policy_classes.items[f].fit == policy_class->fit &&
            space->policy_classes.items[f].schedule == policy_class->schedule &&
            memcmp(&space->policy_classes.items[f].at, &policy_class->at, sizeof policy_class->at) == 0)
            return true;
    return false;
}

/* Adds the class with updates ahead. It needs more device memory than the classes that share its fit, so it gets its
 * own. */
static enum status add_ahead(struct space *space, struct policy_class ahead) {
    const struct schedule_cost *cost = space_schedule_cost(space, ahead.schedule, ahead.lookahead);
    struct wave_activations activations = policy_bound_activations(cost, &space->cut, ahead.micro_batches_per_wave);
    ahead.fit = (int32_t)space->fits.count;
    TRY(vec_push(&space->fits, (struct fit){0}));
    return space_add_policy_class(space, ahead, &activations);
}

/* Adds updates ahead to all classes near `base`, once per class: lookahead includes updates. */
static enum status add_all_ahead(struct space *space, const struct policy_class *base) {
    size_t count = space->policy_classes.count;
    for (size_t f = 0; f < count; f++) {
        struct policy_class *policy_class = &space->policy_classes.items[f], ahead = *policy_class;
        bool deferred = policy_class->at.optimizer != TIER_DEVICE &&
                        !space->sharding_options.items[policy_class->sharding_option].early;
        ahead.update_ahead = 1;
        if (policy_class->has_ahead || !deferred || policy_class_copy_way(policy_class) != 0 || !is_near(&ahead, base))
            continue;
        policy_class->has_ahead = true;
        TRY(add_ahead(space, ahead));
    }
    return STATUS_OK;
}

/* Adds the class with smaller chunks. */
static enum status add_finer(struct space *space, const struct policy_class *coarse, size_t first_finer) {
    const struct packings *packings =
        space_packings_for(space, &space->sharding_options.items[coarse->sharding_option].partition);
    const struct schedule_cost *cost = space_schedule_cost(space, coarse->schedule, coarse->lookahead);
    struct wave_activations activations = policy_bound_activations(cost, &space->cut, coarse->micro_batches_per_wave);
    for (int32_t k = packings->listed; k < packings->count; k++) {
        struct policy_class policy_class = *coarse;
        policy_class.packing = k;
        policy_class.fit = coarse->fit + SPACE_FITS * k;
        if (!has_twin(space, first_finer, &policy_class))
            TRY(space_add_policy_class(space, policy_class, &activations));
    }
    return STATUS_OK;
}

static enum status divide_finer(struct space *space, int32_t sharding_option) {
    struct sharding_option *own = &space->sharding_options.items[sharding_option];
    struct packings *packings = space_packings_for(space, &own->partition);
    TRY(pack_finer(space, &own->partition, packings));
    for (int32_t k = packings->listed; k < packings->count; k++)
        if (!own->from[k]) TRY(space_divide_packing(space, &packings->states[k], k, own));
    return STATUS_OK;
}

enum status space_list_near(struct space *space, int32_t policy_class, struct policy_class_numbers *out) {
    const struct policy_class base = space->policy_classes.items[policy_class];
    if (space->coarse_policy_classes == 0) space->coarse_policy_classes = space->policy_classes.count;
    TRY(divide_finer(space, base.sharding_option));
    for (size_t f = 0; f < space->coarse_policy_classes; f++) {
        const struct policy_class other = space->policy_classes.items[f]; /* the list may move */
        bool chunks = policy_class_moves_states(&other) ||
                      partition_cuts(&space->sharding_options.items[other.sharding_option].partition);
        if (other.packing == 0 && chunks && is_near(&other, &base))
            TRY(add_finer(space, &other, space->coarse_policy_classes));
    }
    TRY(add_all_ahead(space, &base));
    for (size_t f = 0; f < space->policy_classes.count; f++)
        if (is_near(&space->policy_classes.items[f], &base)) TRY(vec_push(&out->list, (int32_t)f));
    return STATUS_OK;
}

/* Smaller chunks are in use for a shorter time and wait less, which bounds ignore. So candidates expected to be
 * slightly slower than the best are tried too. */
static const double WORTH = 1.02;
/* One in this many programs may go to policies near one that are expected not to fit. */
enum { DOUBTFUL_PART = 8 };

/* Expected time at the exposed share of the best program. */
static double expected_s(const struct search *search, const struct policy_seconds *seconds) {
    const struct best_program *best = &search->best;
    double hidden_s = best->bound.serial_s - best->bound.step_s;
    double exposed_s = best->seconds * search_stages(search) - best->bound.step_s;
    return estimates_exposed_s(search, seconds, hidden_s > 0 ? fmax(exposed_s, 0) / hidden_s : 0);
}

/* Programs near the best are expected to exceed their bounds by as much. */
static bool is_doubtful(const struct search *search, const struct proposal *proposal) {
    const struct policy_bound *bound = &proposal->candidate.bound;
    bool known = search->estimates.excesses.items[proposal->policy_class].learned;
    bool large =
        search->best.bytes_factor * (double)bound->likely_bytes > (double)search->space.capacity_bytes[TIER_DEVICE];
    return (large && !known) || estimates_doubt(search, proposal);
}

static bool is_worth(const struct search *search, const struct proposal *proposal) {
    return !search_cannot_win(search, proposal->bound) && proposal->key < search->best.seconds * WORTH;
}

static enum status propose(struct search *search, int32_t f, struct queue *out) {
    const struct policy_class *policy_class = search_class(search, f);
    struct candidate_list candidates;
    if (space_is_hopeless(&search->space, policy_class) || space_is_crowded(&search->space, policy_class))
        return STATUS_OK;
    if (search_cannot_win(search, outcome_min_s(search->input, &policy_class->min))) return STATUS_OK;
    space_candidates(&search->space, policy_class, &candidates);
    for (int m = 0; m < candidates.count; m++) {
        const struct candidate *candidate = &candidates.items[m];
        double key = expected_s(search, &candidate->bound.seconds);
        const struct proposal proposal = search_propose(search, f, candidate, key);
        if (is_worth(search, &proposal)) TRY(queue_push(out, proposal));
    }
    return STATUS_OK;
}

static bool was_tried(struct search *search, const struct proposal *proposal) {
    struct policy policy;
    space_policy(&search->space, search_class(search, proposal->policy_class), &proposal->candidate, &policy);
    for (size_t i = 0; i < search->result->tried.count; i++)
        if (memcmp(&search->result->tried.items[i].policy, &policy, sizeof policy) == 0) return true;
    return false;
}

static bool is_left(struct search *search) { return search->result->compiled < search->input->max_compiled; }

/* Compiles candidates in order until one is faster than the best, whose neighbors are then tried. A few that are
 * expected not to fit come last. */
static enum status compile_near(struct search *search, struct queue *queue, struct queue *doubtful) {
    struct proposal next;
    int32_t around = search->best.policy_class;
    int64_t max = search->result->compiled + search->input->max_compiled / (doubtful ? 1 : DOUBTFUL_PART);
    while (is_left(search) && search->result->compiled < max && search->best.policy_class == around &&
           queue_pop(queue, &next)) {
        if (!is_worth(search, &next) || was_tried(search, &next)) continue;
        search_bound_device(search, &next);
        if (doubtful && is_doubtful(search, &next))
            TRY(queue_push(doubtful, next));
        else
            TRY(search_compile(search, &next));
    }
    return STATUS_OK;
}

static enum status look_around(struct search *search) {
    AUTO(queue_free) struct queue queue = {0}, doubtful = {0};
    struct policy_class_numbers near = {0};
    enum status status = space_list_near(&search->space, search->best.policy_class, &near);
    if (status == STATUS_OK) status = estimates_follow(search);
    for (size_t i = near.list.count;
         i-- > 0 && status == STATUS_OK;) /* on ties the ones with smaller chunks are first */
        status = propose(search, near.list.items[i], &queue);
    if (status == STATUS_OK) status = compile_near(search, &queue, &doubtful);
    if (status == STATUS_OK) status = compile_near(search, &doubtful, NULL);
    vec_free(&near.list);
    return status;
}

/* ---- smaller chunks ---- */

/* Number of kinds whose best policies are tried with smaller chunks, and the fraction of the remaining programs for
 * them. */
enum { KINDS_MAX = 3, KINDS_PART = 2 /* of the remaining programs */ };
static const double KINDS_WITHIN = 1.3;

static bool same_kind(const struct policy_class *a, const struct policy_class *b) {
    return memcmp(&a->at, &b->at, sizeof a->at) == 0 && policy_class_copy_way(a) == policy_class_copy_way(b) &&
           a->sharding_option == b->sharding_option;
}

static double seconds_of(struct search *search, size_t tried) {
    const struct trial *trial = &search->result->tried.items[tried];
    return trial->step_s > 0 ? outcome_seconds(search->input, trial) : INFINITY;
}

/* The fastest trial of none of the kinds of `bests`; -1: none is near the best of all. */
static int find_best_of_other(struct search *search, const size_t *bests, int count) {
    int found = -1;
    for (size_t i = 0; i < search->result->tried.count; i++) {
        const struct policy_class *policy_class = search_class(search, search->policy_classes.list.items[i]);
        bool other = policy_class_moves_states(policy_class);
        for (int k = 0; k < count; k++)
            other &= !same_kind(policy_class, search_class(search, search->policy_classes.list.items[bests[k]]));
        double min = found < 0 ? search->best.seconds * KINDS_WITHIN : seconds_of(search, (size_t)found);
        if (other && seconds_of(search, i) < min) found = (int)i;
    }
    return found;
}

/* The possible chunks of a policy class's partition, by `packing`. */
static const struct states *packings_of(struct search *search, const struct policy_class *policy_class) {
    const struct sharding_option *sharding_option =
        &search->space.sharding_options.items[policy_class->sharding_option];
    return space_packings_for(&search->space, &sharding_option->partition)->states;
}

static int64_t chunk_bytes(struct search *search, const struct policy_class *policy_class) {
    return packings_of(search, policy_class)[policy_class->packing].chunk_bytes;
}

/* Among the policy classes near one, the equal class with the largest chunks below `bytes`; -1: none. */
static int32_t find_finer(struct search *search, const struct policy_class_numbers *near, int32_t like, int64_t bytes) {
    const struct policy_class *base = search_class(search, like);
    int32_t found = -1;
    for (size_t i = 0; i < near->list.count; i++) {
        const struct policy_class *policy_class = search_class(search, near->list.items[i]);
        bool same = same_kind(policy_class, base) && policy_class->schedule == base->schedule &&
                    policy_class->flat == base->flat &&
                    policy_class->micro_batches_per_wave == base->micro_batches_per_wave;
        int64_t own = chunk_bytes(search, policy_class);
        if (same && own < bytes && (found < 0 || own > chunk_bytes(search, search_class(search, found))))
            found = near->list.items[i];
    }
    return found;
}

/* Whether `candidate` is preferred to `than`: it keeps more chunks, or as many with more buffers, up to `buffers`. */
static bool is_fuller(const struct candidate *candidate, const struct candidate *than, int64_t buffers) {
    if (candidate->persistent != than->persistent) return candidate->persistent > than->persistent;
    return candidate->buffers > than->buffers && candidate->buffers <= buffers;
}

/* Among a policy class's candidates, the one that keeps the most on the device in chunks and buffers, but no more than
 * the policy. False: there is none. */
static bool find_alike(struct search *search, int32_t f, const struct policy *policy, struct candidate *out) {
    const struct policy_class *policy_class = search_class(search, f);
    int64_t bytes = chunk_bytes(search, policy_class), stay = policy->persistent_chunks * policy->chunk_bytes / bytes;
    int64_t buffers = policy->buffers * policy->chunk_bytes / bytes;
    struct candidate_list candidates;
    bool any = false;
    space_candidates(&search->space, policy_class, &candidates);
    for (int m = 0; m < candidates.count; m++) {
        const struct candidate *candidate = &candidates.items[m];
        if (candidate->persistent > stay || (any && !is_fuller(candidate, out, buffers))) continue;
        *out = *candidate;
        any = true;
    }
    return any;
}

static enum status compile_alike(struct search *search, int32_t f, const struct candidate *candidate) {
    struct proposal proposal = search_propose(search, f, candidate, expected_s(search, &candidate->bound.seconds));
    if (search_cannot_win(search, proposal.bound) || was_tried(search, &proposal)) return STATUS_OK;
    search_bound_device(search, &proposal);
    if (!space_may_fit(&search->space, &proposal.candidate.bound, TIER_DEVICE)) return STATUS_OK;
    return search_compile(search, &proposal);
}

/* Tries a policy again with ever smaller chunks while they gain. */
static enum status try_finer(struct search *search, size_t tried, const struct policy_class_numbers *near,
                             int64_t max) {
    struct policy policy = search->result->tried.items[tried].policy;
    int32_t like = search->policy_classes.list.items[tried], finer;
    double min = seconds_of(search, tried);
    int64_t bytes = packings_of(search, search_class(search, like))[0].chunk_bytes; /* the smallest that is listed */
    struct candidate candidate;
    while (search->result->compiled < max && (finer = find_finer(search, near, like, bytes)) >= 0) {
        size_t before = search->result->tried.count;
        if (!find_alike(search, finer, &policy, &candidate)) break;
        TRY(compile_alike(search, finer, &candidate));
        bool compiled = search->result->tried.count > before;
        if (compiled && seconds_of(search, before) > min) break;
        if (compiled) min = seconds_of(search, before);
        bytes = chunk_bytes(search, search_class(search, finer));
    }
    return STATUS_OK;
}

static enum status try_kinds(struct search *search) {
    size_t bests[KINDS_MAX];
    int64_t compiled = search->result->compiled, max = compiled + (search->input->max_compiled - compiled) / KINDS_PART;
    enum status status = STATUS_OK;
    for (int k = 0, found; k < KINDS_MAX && status == STATUS_OK; k++) {
        struct policy_class_numbers near = {0};
        if ((found = find_best_of_other(search, bests, k)) < 0) break;
        bests[k] = (size_t)found;
        status = space_list_near(&search->space, search->policy_classes.list.items[found], &near);
        if (status == STATUS_OK) status = estimates_follow(search);
        if (status == STATUS_OK) status = try_finer(search, bests[k], &near, max);
        vec_free(&near.list);
    }
    return status;
}

enum status refine(struct search *search) {
    if (search->best.policy_class >= 0) TRY(try_kinds(search));
    for (int32_t around = -1; around != search->best.policy_class && is_left(search);) {
        around = search->best.policy_class;
        TRY(look_around(search));
    }
    return STATUS_OK;
}
