/* What a search does with its last programs: looks at the policies near the best one found.
 *
 * The search before orders policies by what is expected of their kind, which is little knowledge: programs of one kind
 * expose different shares of what their bounds assume hidden. Those near the best policy are taken to expose as much as
 * it does. Besides them are chunks of a half and a quarter of the usual size, where these are few: there more of the
 * states stay on the device by parts of a layer. What these gain is another part for each tier placement and lookahead,
 * up to a third where nothing is fetched ahead: so the best policy of each such kind is tried with them first. */
#ifndef BALLAST_SEARCH_REFINE_H
#define BALLAST_SEARCH_REFINE_H

#include "search/queue.h"

/* The fastest program so far. */
struct best_program {
    int32_t policy_class; /* -1: none fits yet */
    struct policy_seconds bound;
    double seconds;
    double bytes_factor; /* the device's bytes, over the likely ones of its bound */
};

struct refinement {
    const struct search_input *input;
    struct space *space;
    const struct best_program *best;
    const struct search_result *result;
    const struct policy_class_numbers *policy_classes; /* of result->tried */
    int max;                                           /* programs that may be compiled, with those that were */
    void *payload;
    /* Space for what is learned of policy classes that were listed last. */
    enum status (*follow)(void *payload);
    /* Compiles a candidate, which may change *best. */
    enum status (*compile)(void *payload, const struct proposal *proposal);
    /* Whether a candidate, whose bytes are bounded, is expected not to fit. */
    bool (*is_doubtful)(void *payload, const struct proposal *proposal);
};
/* Nothing where none fits yet. */
enum status refine(const struct refinement *refinement);

#endif
