/* What makes a policy the better, and what came of those that a search tried. */
#ifndef BALLAST_SEARCH_POLICY_OUTCOMES_H
#define BALLAST_SEARCH_POLICY_OUTCOMES_H

#include "search/space.h"

/* The fewer, the better. Of what was simulated; and at least, by its bound: of a pipeline the longest stage takes at
 * least its part of the whole model's. */
double outcome_seconds(const struct search_input *input, const struct trial *trial);
double outcome_min_s(const struct search_input *input, const struct policy_seconds *seconds);

struct outcomes {
    const struct search_input *input;
    const struct space *space;
    const int32_t *policy_classes; /* of result->tried */
    struct search_result *result;
};
/* Fills result->pareto_front and result->runners_up, by result->tried. */
enum status outcomes_rank(const struct outcomes *outcomes);
/* Fills result->partitions, where there are several. */
enum status outcomes_note_partitions(const struct outcomes *outcomes);

#endif
