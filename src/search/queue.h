/* What a search has yet to look at, the most promising first: a heap by key, then by order of arrival. */
#ifndef BALLAST_SEARCH_QUEUE_H
#define BALLAST_SEARCH_QUEUE_H

#include "search/space.h"

enum proposal_stage {
    PROPOSAL_FAMILY,   /* bounded as a whole, by closed forms */
    PROPOSAL_PROMISED, /* its most promising member was bounded */
    PROPOSAL_MEMBER,
};

struct proposal {
    double key;   /* seconds that it is expected to take; least first */
    double bound; /* no program of it takes less */
    int64_t number;
    int32_t family;
    enum proposal_stage stage;
    struct member member; /* the family's most promising one; of PROPOSAL_MEMBER: this */
    bool weighed;         /* the member was */
};

struct queue {
    VEC(struct proposal) heap;
    int64_t arrived;
};

enum status queue_push(struct queue *queue, struct proposal proposal);
/* False when it is empty. */
bool queue_pop(struct queue *queue, struct proposal *out);
void queue_free(struct queue *queue);

#endif
