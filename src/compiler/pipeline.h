/* Pipelines: what goes from stage to stage, and who does what when.
 *
 * A pipeline schedules waves. Each rank has the nodes of its stage's blocks; an activation or its gradient that another
 * stage reads is a message, one for each micro-batch. All ranks derive the same list of events from graph and policy:
 * spans' forwards and backwards as 1F1B (or its interleaved form) has them, by a clock on which a forward takes 1 and a
 * backward 2, and messages when their sender is done. A rank takes those events that it is part of, in that order. So
 * nobody waits for ever: whatever an event waits for stands before it in the one list. */
#pragma once

#include "base/base.h"
#include "ir/graph.h"
#include "plan/layout/pipeline.h"

/* A tensor with bytes of its own that one stage has, made in the forward or backward of a span, and another reads: an
 * activation, for each micro-batch; a parameter that both use, when it was updated; or the other stage's sum of its
 * gradient, once a share, which goes to the stage that updates it. */
struct pipeline_value {
    struct tensor *tensor;
    int32_t span; /* that makes it */
    bool backward;
    int to; /* stage */
};

struct pipeline_event {
    int32_t value; /* index of the value that is sent; -1: a span's forward or backward */
    int32_t span;
    int32_t wave;
    bool backward;
    int64_t time; /* when it begins, on the clock above */
    bool begins;  /* a message that goes as its span's step begins, and not when that has ended */
};

struct pipeline {
    const struct stage_spans *spans; /* borrowed */
    bool trains;                     /* there are backwards */
    VEC(struct pipeline_value) values;
    VEC(struct pipeline_event) events; /* of the waves that pipeline_order_waves was asked for */
};

/* What crosses stages when these nodes are executed: each value goes to a stage once. BAD_INPUT where a cut lies within
 * a tensor that several spans write. The caller frees with pipeline_free, also after a failure. */
enum status pipeline_create(const struct stage_spans *spans, const struct node *const *nodes, size_t count,
                            struct pipeline *out);
/* Whether a stage has a parameter, gradient, state, sum of squares or cache. */
bool pipeline_holds(const struct pipeline *pipeline, const struct tensor *tensor, int stage);

/* The events of so many waves. */
enum status pipeline_order_waves(struct pipeline *pipeline, int32_t waves);
void pipeline_free(struct pipeline *pipeline);

/* When a span's forward or backward ends. */
int64_t pipeline_step_end(const struct pipeline_event *event);
/* Whether a stage computes it, sends or receives it. */
bool pipeline_concerns(const struct pipeline *pipeline, const struct pipeline_event *event, int stage);
