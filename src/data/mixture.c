#include "data/mixture.h"

#include "base/mem.h"
#include "base/random.h"

static const int64_t sum_limit = (int64_t)1 << 62;

enum status mixture_create(const int64_t *weights, size_t count, uint64_t seed, struct mixture *out) {
    BUG_IF(count == 0, "a mixture of nothing");
    struct mixture mixture = {.parts = mem_array(count, sizeof *mixture.parts), .count = count};
    if (!mixture.parts) return STATUS_FAILED;
    int64_t rest = 0;
    for (size_t i = count; i-- > 0;) {
        BUG_IF(weights[i] < 1, "weight %lld", (long long)weights[i]);
        if (weights[i] > sum_limit - rest) {
            mixture_free(&mixture);
            return status_set(STATUS_BAD_INPUT, "the weights of the data are too large in sum");
        }
        rest += weights[i];
        mixture.parts[i] = (struct mixture_part){
            .weight = weights[i],
            .rest = rest,
            .offset = (int64_t)(random_u64(seed, RANDOM_SHUFFLE, UINT32_MAX, i) % (uint64_t)rest),
        };
    }
    *out = mixture;
    return STATUS_OK;
}

void mixture_free(struct mixture *mixture) {
    mem_free(mixture->parts);
    *mixture = (struct mixture){0};
}

/* Of the first `position` positions that this part and the parts after it share, how many are this part's. */
static int64_t count_own(const struct mixture_part *part, int64_t position) {
    return (int64_t)(((__int128)position * part->weight + part->offset) / part->rest);
}

/* Each part takes its share of what those before it left, evenly spread, as a line is drawn on a raster (Bresenham,
 * "Algorithm for computer control of a digital plotter", IBM Systems Journal 4, 1965). */
struct mixture_draw mixture_at(const struct mixture *mixture, int64_t position) {
    for (size_t i = 0; i < mixture->count; i++) {
        const struct mixture_part *part = &mixture->parts[i];
        int64_t own = count_own(part, position);
        if (count_own(part, position + 1) > own) return (struct mixture_draw){i, own};
        position -= own;
    }
    BUG("position %lld is left over", (long long)position);
}
