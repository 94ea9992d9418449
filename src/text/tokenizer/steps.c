#include "text/tokenizer/steps.h"

enum { LONG_BYTES_MIN = 64 };

struct text_step {
    struct text_step_spec spec;
    void *state;
    struct text_buffer kept;     /* bytes not yet consumed */
    size_t retry_bytes;          /* how many must be kept before the step is called again */
    enum text_position position; /* of the segment under way */
    struct text_output output;
};

struct text_chain {
    struct text_sink first;
    size_t count;
    struct text_step steps[];
};

static void step_reset(struct text_step *step) {
    step->kept.count = 0;
    step->retry_bytes = 0;
    if (step->spec.type->reset) step->spec.type->reset(step->state);
}

static enum status keep_rest(struct text_step *step, struct text_view view, size_t consumed) {
    size_t rest = view.bytes - consumed;
    /* A step that waits for more text is called again only when the text has doubled: linear time in all. */
    step->retry_bytes = rest < LONG_BYTES_MIN ? 0 : 2 * rest;
    if (view.text != step->kept.items) return text_append(&step->kept, view.text + consumed, rest);
    if (consumed > 0) memmove(step->kept.items, step->kept.items + consumed, rest);
    step->kept.count = rest;
    return STATUS_OK;
}

static enum status step_write(void *payload, const char *text, size_t bytes, bool end) {
    struct text_step *step = payload;
    struct text_view view = {text, bytes, end, step->position};
    if (step->kept.count > 0) {
        TRY(text_append(&step->kept, text, bytes));
        if (!end && step->kept.count < step->retry_bytes) return STATUS_OK;
        view.text = step->kept.items;
        view.bytes = step->kept.count;
    }
    if (view.bytes == 0 && !end) return STATUS_OK;
    size_t consumed = 0;
    TRY(step->spec.type->apply(step->spec.settings, step->state, view, &step->output, &consumed));
    BUG_IF(end ? consumed != view.bytes : consumed > view.bytes, "stage %s consumed %zu of %zu bytes",
           step->spec.type->name, consumed, view.bytes);
    if (!end) return keep_rest(step, view, consumed);
    step_reset(step);
    step->position = SEGMENT_LATER;
    return STATUS_OK;
}

static enum status step_start(struct text_step *step) {
    const struct text_step_type *type = step->spec.type;
    step->state = mem_array(1, type->state_bytes);
    if (!step->state) return STATUS_FAILED;
    return type->start ? type->start(step->spec.settings, step->state) : STATUS_OK;
}

enum status text_chain_create(const struct text_step_spec *specs, size_t count, struct text_sink last,
                              struct token_sink ids, struct text_chain **out) {
    struct text_chain *chain = mem_array(1, sizeof *chain + count * sizeof chain->steps[0]);
    if (!chain) return STATUS_FAILED;
    chain->first = last;
    for (size_t i = count; i-- > 0;) {
        struct text_step *step = &chain->steps[i];
        step->spec = specs[i];
        step->output = (struct text_output){chain->first, ids};
        chain->first = (struct text_sink){step_write, step};
    }
    for (; chain->count < count; chain->count++) {
        enum status status = step_start(&chain->steps[chain->count]);
        if (status == STATUS_OK) continue;
        if (chain->steps[chain->count].state) chain->count++;
        text_chain_free(chain);
        return status;
    }
    *out = chain;
    return STATUS_OK;
}

enum status text_chain_write(struct text_chain *chain, const char *text, size_t bytes, bool end) {
    return chain->first.write(chain->first.payload, text, bytes, end);
}

void text_chain_reset(struct text_chain *chain, bool continues) {
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        step_reset(step);
        step->position = continues ? SEGMENT_CONTINUES : SEGMENT_FIRST;
        if (step->spec.type->drop) step->spec.type->drop(step->state);
    }
}

enum status text_chain_finish(struct text_chain *chain) {
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        if (step->spec.type->finish) TRY(step->spec.type->finish(step->spec.settings, step->state, &step->output));
    }
    text_chain_reset(chain, false);
    return STATUS_OK;
}

void text_chain_free(struct text_chain *chain) {
    if (!chain) return;
    for (size_t i = 0; i < chain->count; i++) {
        struct text_step *step = &chain->steps[i];
        if (step->spec.type->stop) step->spec.type->stop(step->state);
        mem_free(step->state);
        vec_free(&step->kept);
    }
    mem_free(chain);
}
