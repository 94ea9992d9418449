/* What a policy's programs take: compiled, and simulated where they fit. */
#ifndef BALLAST_SEARCH_MEASURE_H
#define BALLAST_SEARCH_MEASURE_H

#include "search/search.h"

/* Whether no tier has less than the candidate needs. */
bool search_fits(const struct search_input *input, const struct candidate *candidate);

/* What the stages of a pipeline wait, as a part of the longest one's work, while it fills and drains (1F1B): as long as
 * the passes of all other stages take. */
static inline double pipeline_wait_part(int stages, int64_t passes) {
    return passes > 0 ? (double)(stages - 1) / (double)passes : 0;
}

/* The policy of `candidate`: its bytes, and where it fits its seconds. Of a pipeline the programs of all stages, by one
 * rank of each: bytes are those of the stage that needs most. NO_FIT for more operations between ranks than there can
 * be. */
enum status policy_measure(const struct search_input *input, struct candidate *candidate);

#endif
