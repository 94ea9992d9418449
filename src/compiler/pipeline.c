#include "compiler/executions.h"

#include "plan/layout/pipeline.h"

/* ---- values ---- */

/* By tensor id: the span that makes it, and in which direction. */
struct makers {
    int32_t *span; /* -1: none */
    bool *backward;
};

static enum status note_maker(const struct stage_spans *spans, const struct node *node, const struct tensor *tensor,
                              struct makers *makers) {
    int32_t span = stage_spans_of_block(spans, node->block), *before = &makers->span[tensor->id];
    if (*before >= 0 && *before % spans->stages != span % spans->stages)
        return status_set(STATUS_BAD_INPUT, "plan: policy.stage_starts: a stage begins within what makes %s",
                          tensor->name);
    *before = span;
    makers->backward[tensor->id] = node->phase == PHASE_BACKWARD;
    return STATUS_OK;
}

static enum status note_makers(const struct stage_spans *spans, const struct node *node, struct makers *makers) {
    for (int i = 0; i < node->op->inputs; i++) {
        const struct tensor *tensor = node->in[i] ? tensor_storage(node->in[i]) : NULL;
        if (tensor && tensor->kind == TENSOR_PARAMETER)
            makers->span[tensor->id] = stage_spans_of_block(spans, tensor->block);
    }
    for (int i = 0; i < node->op->outputs; i++) {
        const struct tensor *tensor = node->out[i] ? tensor_storage(node->out[i]) : NULL;
        if (tensor && (tensor->kind == TENSOR_ACTIVATION || tensor->kind == TENSOR_GRADIENT))
            TRY(note_maker(spans, node, tensor, makers));
    }
    return STATUS_OK;
}

static enum status add_value(struct pipeline *pipeline, const struct makers *makers, struct tensor *tensor, int to) {
    int32_t span = makers->span[tensor->id];
    if (span < 0 || span % pipeline->spans->stages == to) return STATUS_OK;
    for (size_t v = 0; v < pipeline->values.count; v++)
        if (pipeline->values.items[v].tensor == tensor && pipeline->values.items[v].to == to) return STATUS_OK;
    return vec_push(&pipeline->values, (struct pipeline_value){tensor, span, makers->backward[tensor->id], to});
}

/* Adds three kinds of values: those that a stage reads; those that the caller reads afterwards, on every rank; and sums
 * that are added to the other uses' sums of a parameter by the stage that updates it. */
static enum status add_values(struct pipeline *pipeline, const struct makers *makers, const struct node *node) {
    int stage = stage_of_block(pipeline->spans, node->block);
    for (int i = 0; i < node->op->inputs; i++)
        if (node->in[i]) TRY(add_value(pipeline, makers, tensor_storage(node->in[i]), stage));
    for (int i = 0; i < node->op->outputs; i++) {
        struct tensor *tensor = node->out[i] ? tensor_storage(node->out[i]) : NULL;
        for (int to = 0; to < pipeline->spans->stages && tensor && tensor->kept; to++)
            TRY(add_value(pipeline, makers, tensor, to));
        if (tensor && tensor->kind == TENSOR_GRADIENT)
            TRY(add_value(pipeline, makers, tensor, stage_of_tensor(pipeline->spans, tensor->parameter)));
    }
    return STATUS_OK;
}

bool pipeline_holds(const struct pipeline *pipeline, const struct tensor *tensor, int stage) {
    if (stage_of_tensor(pipeline->spans, tensor) == stage) return true;
    for (size_t v = 0; v < pipeline->values.count; v++)
        if (pipeline->values.items[v].tensor == tensor && pipeline->values.items[v].to == stage) return true;
    return false;
}

enum status pipeline_create(const struct stage_spans *spans, const struct node *const *nodes, size_t count,
                            struct pipeline *out) {
    *out = (struct pipeline){.spans = spans};
    size_t tensors = 1;
    for (size_t n = 0; n < count; n++)
        for (int i = 0; i < OP_OPERANDS_MAX; i++) {
            const struct tensor *tensor = i < OP_INPUTS_MAX ? nodes[n]->in[i] : nodes[n]->out[i - OP_INPUTS_MAX];
            if (tensor && (size_t)tensor->id >= tensors) tensors = (size_t)tensor->id + 1;
            if (tensor && tensor->base && (size_t)tensor->base->id >= tensors) tensors = (size_t)tensor->base->id + 1;
        }
    struct makers makers = {mem_array(tensors, sizeof *makers.span), mem_array(tensors, sizeof *makers.backward)};
    enum status status = makers.span && makers.backward ? STATUS_OK : STATUS_FAILED;
    for (size_t t = 0; t < tensors && status == STATUS_OK; t++)
        makers.span[t] = -1;
    for (size_t n = 0; n < count && status == STATUS_OK; n++) {
        status = note_makers(spans, nodes[n], &makers);
        out->trains |= nodes[n]->phase == PHASE_BACKWARD;
    }
    for (size_t n = 0; n < count && status == STATUS_OK; n++)
        status = add_values(out, &makers, nodes[n]);
    mem_free(makers.span);
    mem_free(makers.backward);
    return status;
}

void pipeline_free(struct pipeline *pipeline) {
    vec_free(&pipeline->values);
    vec_free(&pipeline->events);
}

/* ---- order ---- */

enum { FORWARD_TIME = 1, BACKWARD_TIME = 2 };

struct clockwork {
    const struct pipeline *pipeline;
    int32_t waves;
    int64_t steps;              /* of a stage */
    struct pipeline_step *list; /* by stage * steps */
    int64_t *next, *free_at;    /* by stage: its next step, and when it has time for it */
    int64_t *ends;              /* by (span * waves + wave) * 2 + backward; -1: not yet */
};

static int64_t *end_of(const struct clockwork *clock, int32_t span, int32_t wave, bool backward) {
    return &clock->ends[((int64_t)span * clock->waves + wave) * 2 + backward];
}

/* When what a step needs of other spans is there; -1: that is not known yet. */
static int64_t ready_at(const struct clockwork *clock, int32_t span, int32_t wave, bool backward) {
    int32_t before = backward ? span + 1 : span - 1;
    bool outermost = before < 0 || before >= clock->pipeline->spans->count;
    int64_t own = backward ? *end_of(clock, span, wave, false) : 0;
    int64_t other = outermost ? 0 : *end_of(clock, before, wave, backward);
    if (own < 0 || other < 0) return -1;
    return own > other ? own : other;
}

/* Sums go when they are complete. Parameters go when the first wave has made the updates that the step before left,
 * which is as its step begins. */
static enum status add_messages(struct pipeline *pipeline, const struct pipeline_event *step, int32_t waves,
                                int64_t end) {
    for (int32_t v = 0; v < (int32_t)pipeline->values.count; v++) {
        const struct pipeline_value *value = &pipeline->values.items[v];
        if (value->span != step->span || value->backward != step->backward) continue;
        if (value->tensor->kind == TENSOR_PARAMETER && step->wave > 0) continue;
        if (value->tensor->kind == TENSOR_GRADIENT && step->wave + 1 < waves) continue;
        int64_t time = value->tensor->kind == TENSOR_PARAMETER ? step->time : end;
        TRY(vec_push(&pipeline->events,
                     (struct pipeline_event){v, step->span, step->wave, step->backward, time, time == step->time}));
    }
    return STATUS_OK;
}

/* Takes the stage's next step if it can be taken. */
static enum status take_step(struct pipeline *pipeline, struct clockwork *clock, int stage, bool *took) {
    int64_t *next = &clock->next[stage];
    *took = false;
    if (*next == clock->steps) return STATUS_OK;
    const struct pipeline_step *step = &clock->list[stage * clock->steps + *next];
    int32_t span = step->chunk * pipeline->spans->stages + stage;
    int64_t ready = ready_at(clock, span, step->wave, step->backward);
    if (ready < 0) return STATUS_OK;
    int64_t begin = ready > clock->free_at[stage] ? ready : clock->free_at[stage];
    int64_t end = begin + (step->backward ? BACKWARD_TIME : FORWARD_TIME);
    const struct pipeline_event event = {-1, span, step->wave, step->backward, begin, true};
    clock->free_at[stage] = *end_of(clock, span, step->wave, step->backward) = end;
    ++*next;
    *took = true;
    TRY(vec_push(&pipeline->events, event));
    return add_messages(pipeline, &event, clock->waves, end);
}

/* At one time messages come before what may read them, those of the step that begins then last. */
static int compare_events(const void *a, const void *b) {
    const struct pipeline_event *x = a, *y = b;
    if (x->time != y->time) return x->time < y->time ? -1 : 1;
    if ((x->value < 0) != (y->value < 0)) return x->value < 0 ? 1 : -1;
    if (x->begins != y->begins) return x->begins ? 1 : -1;
    if (x->span != y->span) return x->span < y->span ? -1 : 1;
    if (x->wave != y->wave) return x->wave < y->wave ? -1 : 1;
    return (x->value > y->value) - (x->value < y->value);
}

/* Without backwards every span takes the waves as they come; a stage with several spans, the first span's first. */
static void order_forwards(const struct clockwork *clock, int32_t chunks, struct pipeline_step *out) {
    for (int32_t chunk = 0; chunk < chunks; chunk++)
        for (int32_t wave = 0; wave < clock->waves; wave++)
            *out++ = (struct pipeline_step){.chunk = chunk, .wave = wave};
}

/* Interleaving deals waves in groups of as many as there are stages. Others go through all spans forward first. */
static void order_stage(const struct clockwork *clock, int stage, struct pipeline_step *out) {
    const struct stage_spans *spans = clock->pipeline->spans;
    int32_t chunks = spans->count / spans->stages, waves = clock->waves;
    const struct pipeline_shape shape = {spans->stages, chunks, waves};
    if (clock->pipeline->trains && pipeline_chunks(spans->stages, chunks, waves) == chunks) {
        pipeline_order(&shape, stage, out);
        return;
    }
    order_forwards(clock, chunks, out);
    if (!clock->pipeline->trains) return;
    for (int32_t n = 0; n < chunks * waves; n++)
        out[chunks * waves + n] = (struct pipeline_step){chunks - 1 - n / waves, n % waves, true};
}

static enum status run_clock(struct pipeline *pipeline, struct clockwork *clock) {
    for (bool moved = true; moved;) {
        moved = false;
        for (int stage = 0; stage < pipeline->spans->stages; stage++)
            for (bool took = true; took; moved |= took)
                TRY(take_step(pipeline, clock, stage, &took));
    }
    for (int stage = 0; stage < pipeline->spans->stages; stage++)
        BUG_IF(clock->next[stage] < clock->steps, "stages that wait for each other");
    qsort(pipeline->events.items, pipeline->events.count, sizeof *pipeline->events.items, compare_events);
    return STATUS_OK;
}

static enum status order_waves(struct pipeline *pipeline, struct clockwork *clock, struct scratch *memory) {
    const struct stage_spans *spans = pipeline->spans;
    size_t stages = (size_t)spans->stages, ends = (size_t)spans->count * (size_t)clock->waves * 2;
    TRY(scratch_items(memory, &clock->list, stages * (size_t)clock->steps));
    TRY(scratch_items(memory, &clock->next, stages));
    TRY(scratch_items(memory, &clock->free_at, stages));
    TRY(scratch_items(memory, &clock->ends, ends));
    memset(clock->ends, -1, ends * sizeof *clock->ends);
    for (int stage = 0; stage < spans->stages; stage++)
        order_stage(clock, stage, clock->list + stage * clock->steps);
    return run_clock(pipeline, clock);
}

enum status pipeline_order_waves(struct pipeline *pipeline, int32_t waves) {
    const struct stage_spans *spans = pipeline->spans;
    int64_t steps = (int64_t)(spans->count / spans->stages) * waves * (pipeline->trains ? 2 : 1);
    struct clockwork clock = {.pipeline = pipeline, .waves = waves, .steps = steps};
    AUTO(scratch_free) struct scratch memory = {0};
    pipeline->events.count = 0;
    return order_waves(pipeline, &clock, &memory);
}

int64_t pipeline_step_end(const struct pipeline_event *event) {
    return event->time + (event->backward ? BACKWARD_TIME : FORWARD_TIME);
}

bool pipeline_concerns(const struct pipeline *pipeline, const struct pipeline_event *event, int stage) {
    bool own = event->span % pipeline->spans->stages == stage;
    return own || (event->value >= 0 && pipeline->values.items[event->value].to == stage);
}
