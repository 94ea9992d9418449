#include "tokenizer/text_stage.h"

#include <string.h>

enum { LONG_BYTES_MIN = 64 };

struct text_stage {
    struct text_stage_spec spec;
    void *state;
    struct text_buffer kept;     /* bytes not yet consumed */
    size_t retry_bytes;          /* how many must be kept before the stage is called again */
    enum text_position position; /* of the segment under way */
    struct text_output output;
};

struct text_chain {
    struct text_sink first;
    size_t count;
    struct text_stage stages[];
};

static void stage_reset(struct text_stage *stage) {
    stage->kept.count = 0;
    stage->retry_bytes = 0;
    if (stage->spec.type->reset) stage->spec.type->reset(stage->state);
}

static enum status keep_rest(struct text_stage *stage, struct text_view view, size_t consumed) {
    size_t rest = view.bytes - consumed;
    /* A stage that waits for more text is called again only when the text has doubled: linear time in all. */
    stage->retry_bytes = rest < LONG_BYTES_MIN ? 0 : 2 * rest;
    if (view.text != stage->kept.items) return text_append(&stage->kept, view.text + consumed, rest);
    if (consumed > 0) memmove(stage->kept.items, stage->kept.items + consumed, rest);
    stage->kept.count = rest;
    return STATUS_OK;
}

static enum status stage_write(void *payload, const char *text, size_t bytes, bool end) {
    struct text_stage *stage = payload;
    struct text_view view = {text, bytes, end, stage->position};
    if (stage->kept.count > 0) {
        TRY(text_append(&stage->kept, text, bytes));
        if (!end && stage->kept.count < stage->retry_bytes) return STATUS_OK;
        view.text = stage->kept.items;
        view.bytes = stage->kept.count;
    }
    if (view.bytes == 0 && !end) return STATUS_OK;
    size_t consumed = 0;
    TRY(stage->spec.type->apply(stage->spec.settings, stage->state, view, &stage->output, &consumed));
    BUG_IF(end ? consumed != view.bytes : consumed > view.bytes, "stage %s consumed %zu of %zu bytes",
           stage->spec.type->name, consumed, view.bytes);
    if (!end) return keep_rest(stage, view, consumed);
    stage_reset(stage);
    stage->position = SEGMENT_LATER;
    return STATUS_OK;
}

static enum status stage_start(struct text_stage *stage) {
    const struct text_stage_type *type = stage->spec.type;
    stage->state = mem_array(1, type->state_bytes);
    if (!stage->state) return STATUS_FAILED;
    return type->start ? type->start(stage->spec.settings, stage->state) : STATUS_OK;
}

enum status text_chain_create(const struct text_stage_spec *specs, size_t count, struct text_sink last,
                              struct token_sink ids, struct text_chain **out) {
    struct text_chain *chain = mem_array(1, sizeof *chain + count * sizeof chain->stages[0]);
    if (!chain) return STATUS_FAILED;
    chain->first = last;
    for (size_t i = count; i-- > 0;) {
        struct text_stage *stage = &chain->stages[i];
        stage->spec = specs[i];
        stage->output = (struct text_output){chain->first, ids};
        chain->first = (struct text_sink){stage_write, stage};
    }
    for (; chain->count < count; chain->count++) {
        enum status status = stage_start(&chain->stages[chain->count]);
        if (status == STATUS_OK) continue;
        if (chain->stages[chain->count].state) chain->count++;
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
        struct text_stage *stage = &chain->stages[i];
        stage_reset(stage);
        stage->position = continues ? SEGMENT_CONTINUES : SEGMENT_FIRST;
        if (stage->spec.type->drop) stage->spec.type->drop(stage->state);
    }
}

enum status text_chain_finish(struct text_chain *chain) {
    for (size_t i = 0; i < chain->count; i++) {
        struct text_stage *stage = &chain->stages[i];
        if (stage->spec.type->finish) TRY(stage->spec.type->finish(stage->spec.settings, stage->state, &stage->output));
    }
    text_chain_reset(chain, false);
    return STATUS_OK;
}

void text_chain_free(struct text_chain *chain) {
    if (!chain) return;
    for (size_t i = 0; i < chain->count; i++) {
        struct text_stage *stage = &chain->stages[i];
        if (stage->spec.type->stop) stage->spec.type->stop(stage->state);
        mem_free(stage->state);
        vec_free(&stage->kept);
    }
    mem_free(chain);
}
