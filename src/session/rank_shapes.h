/* The shapes that ranks may have, where it is left open: how many of them share each tensor and how it is cut among
 * them (recipe.sequence, recipe.layout), and how many stages a pipeline has. The others of the ranks are data ranks
 * (plan/rank_place.h), among which a partition is chosen. */
#ifndef BALLAST_SESSION_RANK_SHAPES_H
#define BALLAST_SESSION_RANK_SHAPES_H

#include "session/train_options.h"

enum shape_outcome {
    SHAPE_OPEN,    /* not looked at */
    SHAPE_SAME,    /* its ranks do what those of a shape before it do: the solver cuts as Megatron-LM does */
    SHAPE_REFUSED, /* the model cannot be cut so, or Ballast does not run it: `reason` */
    SHAPE_NO_FIT,  /* no policy fits: by a bound where min_bytes is 0, else none that was tried */
    SHAPE_BOUNDED, /* not compiled: no policy is faster than bound_s, and the best one is */
    SHAPE_UNTRIED, /* expected to take longer than the best one by a tenth or more; at least bound_s */
    SHAPE_PLANNED  /* its best policy, of those tried, takes step_s */
};
enum { SHAPE_REASON_BYTES = 240 };

struct rank_shape {
    struct plan *plan; /* what is asked for of it, with its recipe and its axes; owned */
    enum shape_outcome outcome;
    double solver_memory; /* of a solver's cut: its limit, in memories of the devices that it is for; INFINITY: none */
    double bound_s, expected_s, step_s; /* 0: unknown */
    double left_s;                      /* no plan of it that was not simulated takes less; INFINITY: none is faster */
    int64_t tier_bytes[TIER_COUNT];     /* SHAPE_PLANNED */
    int64_t min_bytes;                  /* SHAPE_NO_FIT: of the device, of what was compiled; 0: nothing had to be */
    char reason[SHAPE_REASON_BYTES];    /* SHAPE_REFUSED */
    bool unjudged;                      /* SHAPE_REFUSED: it has more operations between ranks than there can be */
    bool larger_micro_batch;            /* SHAPE_PLANNED: since smaller ones have too many operations */
};
/* By tensor, then by stages, then by cut: Megatron-LM's, that with positions cut too, the solver's, which the search
 * may add to under other limits of memory. None: the shape is settled. */
struct rank_shapes {
    VEC(struct rank_shape) list;
    double min_s; /* by bounds, no plan of any shape takes less, but for tiles; of those that were searched */
};

/* Whether options leave the tensor ranks or the stages open ("auto"). */
bool rank_shapes_are_open(const struct plan_options *options);
/* Makes the plan that one shape is asked for (in `out`): plan_options_resolve with whatever else it takes. */
struct shape_resolver {
    void *context;
    enum status (*resolve)(void *context, const struct plan_options *options, struct plan *out);
};
/* All shapes of so many ranks that the options leave open. How tensors are cut is open where their ranks are and
 * neither `sequence` nor `layout` is given. Shapes that are refused have the resolver's message. BAD_INPUT with the
 * first message where all are. `tensor`: as many must share each tensor, 0: any number. The caller frees, also after a
 * failure. */
enum status rank_shapes_list(const struct plan_options *options, int ranks, int tensor,
                             const struct shape_resolver *resolver, struct rank_shapes *out);
void rank_shapes_free(struct rank_shapes *shapes);

/* Whether a plan has that shape. */
bool rank_shape_is_of(const struct rank_shape *shape, const struct plan *plan);
/* Adds a copy of shape `at` behind it, with a plan of its own. */
enum status rank_shapes_repeat(struct rank_shapes *shapes, size_t at);

/* Keeps the last message as the reason why a shape is refused. */
void rank_shape_refuse(struct rank_shape *shape);

#endif
