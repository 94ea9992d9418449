/* The policies that a search looks at: families, which differ in kind, and in each of them members, which differ in how
 * much of the model states stays on the device. */
#ifndef BALLAST_SEARCH_SPACE_H
#define BALLAST_SEARCH_SPACE_H

#include "search/policy_bound.h"
#include "search/schedules.h"
#include "search/search.h"

/* Of the chunks that do not stay. */
struct placement {
    enum tier parameters, gradients, optimizer, update;
};

struct placement_list {
    VEC(struct placement) list;
};

/* What families share that differ in tiers alone: the device's bytes. */
struct fit {
    int64_t most_persistent; /* chunks that may stay, by a closed form: no member has more; -1: no member fits */
    int64_t promising, promising_bytes; /* chunks that stay and bytes of the most promising member */
    bool listed, promised;              /* whether the numbers are known */
};

struct family {
    int32_t schedule, packing, fit;
    int64_t grains_per_pass, lookahead;
    struct placement at;
    struct policy_seconds least; /* no member takes less */
};

struct member {
    int64_t persistent, buffers;
    struct policy_bound bound;
};

struct member_list {
    VEC(struct member) list;
};

enum {
    LOOKAHEADS = 2,       /* from 0 on */
    PACKINGS_MAX = 2,     /* chunks twice as large each time */
    BUFFERS_MORE_MAX = 4, /* than the least */
    SPACE_FITS = 16,      /* kinds of states that are elsewhere, and whether the update is */
};

struct space {
    const struct search_input *input;
    int64_t grains;
    struct schedule_list schedules;
    struct way *ways; /* by schedule * LOOKAHEADS + lookahead; those that move nothing have the first alone */
    struct execution_source source;
    struct policy plain; /* that it was made with */
    struct states packings[PACKINGS_MAX];
    int32_t packing_count;
    VEC(struct family) families;
    VEC(struct fit) fits;
    int32_t *first_fits; /* by schedule */
    int64_t fixed_bytes;
    int64_t *scratch; /* for the longest way */
    size_t scratch_count;
    struct policy policy; /* being bounded; its text is not used */
};

/* The caller frees, also after a failure. */
enum status space_create(const struct search_input *input, struct space *out);
void space_free(struct space *space);

/* The member that likely is the fastest: as much stays as bounds let. False when the device holds none. */
bool space_promising(struct space *space, const struct family *family, struct member *out);
/* By the closed form alone: the device holds no member. */
bool space_is_hopeless(const struct space *space, const struct family *family);
/* All members of which no tier is certain to overflow. Their bytes of the device are yet to be weighed: that takes a
 * walk through the pass, and few are ever asked. */
enum status space_members(struct space *space, const struct family *family, struct member_list *out);
void space_weigh(struct space *space, const struct family *family, struct member *member);
/* The member of a family that takes least of the device. */
struct member space_least(struct space *space, const struct family *family);
bool space_may_fit(const struct space *space, const struct policy_bound *bound, enum tier from);
/* Below SPACE_FITS. */
int32_t space_fit_number(const struct placement *at);
bool family_moves_states(const struct family *family);
/* As the compiler takes it. */
void space_policy(const struct space *space, const struct family *family, const struct member *member,
                  struct policy *out);
const struct schedule *space_schedule(const struct space *space, const struct family *family);

#endif
