/* Proposals that a search has not dealt with yet, the least expected time first: a heap by key, then by arrival. */
#ifndef BALLAST_SEARCH_QUEUE_H
#define BALLAST_SEARCH_QUEUE_H

#include "search/space.h"

enum proposal_kind {
    PROPOSAL_PLACEMENT,    /* a placement, bounded as a whole */
    PROPOSAL_POLICY_CLASS, /* a policy class, bounded as a whole by closed forms */
    PROPOSAL_FULLEST,      /* a policy class whose fullest candidate was bounded */
    PROPOSAL_CANDIDATE,
};

struct proposal {
    double key;      /* expected seconds; least first */
    double bound;    /* seconds that no program of it goes below */
    int64_t learned; /* programs that had been compiled when `key` was found */
    int64_t number;
    int32_t policy_class; /* PROPOSAL_PLACEMENT: the placement */
    enum proposal_kind kind;
    struct candidate candidate; /* the policy class's fullest; of PROPOSAL_CANDIDATE: this */
    bool device_bounded;        /* the candidate's device bytes are known */
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
