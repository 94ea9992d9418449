/* Proposals that a search has not dealt with yet, the least expected time first: a heap by key, then by arrival. */
#ifndef BALLAST_SEARCH_QUEUE_H
#define BALLAST_SEARCH_QUEUE_H

#include "search/space.h"

enum proposal_stage {
    PROPOSAL_CLAN,    /* a clan, bounded as a whole */
    PROPOSAL_FAMILY,  /* a family, bounded as a whole by closed forms */
    PROPOSAL_FULLEST, /* a family whose fullest member was bounded */
    PROPOSAL_MEMBER,
};

struct proposal {
    double key;      /* expected seconds; least first */
    double bound;    /* seconds that no program of it goes below */
    int64_t learned; /* programs that had been compiled when `key` was found */
    int64_t number;
    int32_t family; /* PROPOSAL_CLAN: the clan */
    enum proposal_stage stage;
    struct member member; /* the family's fullest; of PROPOSAL_MEMBER: this */
    bool device_bounded;  /* the member's device bytes are known */
};

struct queue {
    VEC(struct proposal) heap;
    int64_t arrived;
};

enum status queue_push(struct queue *queue, struct proposal proposal);
/* The least; false when there is none. */
bool queue_pop(struct queue *queue, struct proposal *out);
void queue_free(struct queue *queue);

#endif
