/* What a policy's programs take: compiled, and simulated where they fit. */
#ifndef BALLAST_SEARCH_MEASURE_H
#define BALLAST_SEARCH_MEASURE_H

#include "search/search.h"

/* Whether no tier has less than the trial needs. */
bool search_fits(const struct search_input *input, const struct trial *trial);

/* The policy of `trial`: its bytes, and where it fits its seconds. Of a pipeline the programs of all stages, one
 * rank of each, which wait for each other: bytes are those of the stage that needs most. Where a stage takes more than
 * the capacities, or of the device than `enough_bytes` if that is more, later ones are not looked at. NO_FIT for more
 * operations between ranks than there can be. `out`, where it is not NULL: the program of what fits, which the caller
 * frees; NULL for one that does not, and for a pipeline. */
enum status policy_measure(const struct search_input *input, int64_t enough_bytes, struct trial *trial,
                           struct program **out);

#endif
