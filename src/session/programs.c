#include "session/programs.h"

#include "graph/differentiate.h"
#include "ops/ops.h"

/* What one program is made from. */
struct compiling {
    const struct session *session;
    const struct program_set *set;
    const struct plan *plan;
};

static enum status add_backward(struct graph *graph, struct tensor *loss, const struct recipe *recipe) {
    struct optimizer_options optimizer = {recipe->beta1, recipe->beta2, recipe->epsilon, recipe->weight_decay,
                                          recipe->clip_norm};
    TRY(graph_differentiate(graph, loss));
    return ops_add_optimizer(graph, &optimizer);
}

static enum status build_loss(const struct compiling *compiling, struct graph **graph, struct tensor **loss) {
    const struct recipe *recipe = &compiling->plan->recipe;
    bool apart = recipe->document_attention == DOCUMENT_ATTENTION_WITHIN;
    return model_build_graph(compiling->session->model, apart ? MODEL_LOSS_SEGMENTED : MODEL_LOSS, recipe->dtype,
                             recipe->grain_sequences, recipe->sequence_length, graph, loss);
}

static enum status compile_batch(const struct compiling *compiling, bool training, const struct executable *resident,
                                 struct executable **out) {
    struct graph *graph;
    struct tensor *loss;
    TRY(build_loss(compiling, &graph, &loss));
    enum status status = training ? add_backward(graph, loss, &compiling->plan->recipe) : STATUS_OK;
    if (status != STATUS_OK) {
        graph_free(graph);
        return status;
    }
    return executable_create_beside(compiling->session->machine.backend, graph, compiling->plan, resident, out);
}

struct plan plan_of_texts(const struct plan *plan, int64_t sequences) {
    struct plan text = *plan;
    text.recipe.batch = text.recipe.grain_sequences = sequences;
    text.policy.grains_per_pass = 1;
    return text;
}

static enum status compile_texts(const struct compiling *compiling, int64_t sequences, int64_t tokens,
                                 const struct executable *resident, struct executable **out) {
    int64_t positions = compiling->plan->recipe.sequence_length;
    struct decode_shape shape = {
        .sequences = sequences, .tokens = tokens, .texts = compiling->set->texts, .positions = positions};
    struct plan plan = plan_of_texts(compiling->plan, sequences);
    struct graph *graph;
    struct tensor *logits;
    TRY(model_build_decode_graph(compiling->session->model, plan.recipe.dtype, &shape, &graph, &logits));
    return executable_create_beside(compiling->session->machine.backend, graph, &plan, resident, out);
}

/* `made`: those before it in the enumeration. */
static enum status compile_one(const struct compiling *compiling, enum program_use use, const struct programs *made,
                               struct executable **out) {
    const struct executable *main = programs_main(made);
    int64_t positions = compiling->plan->recipe.sequence_length;
    switch (use) {
    case PROGRAM_STEP:
    case PROGRAM_LOSS: return compile_batch(compiling, use == PROGRAM_STEP, main, out);
    case PROGRAM_PREFILL:
        return compile_texts(compiling, 1, positions < PREFILL_TOKENS ? positions : PREFILL_TOKENS, main, out);
    case PROGRAM_DECODE: return compile_texts(compiling, DECODE_TEXTS, 1, made->of[PROGRAM_PREFILL], out);
    default: BUG("no program has use %d", (int)use);
    }
}

static void sum_bytes(struct programs *programs) {
    for (int use = 0; use < PROGRAM_USES; use++)
        for (enum tier tier = 0; tier < TIER_COUNT && programs->of[use]; tier++) {
            int64_t bytes = programs->of[use]->program->tier_bytes[tier];
            if (bytes > programs->tier_bytes[tier]) programs->tier_bytes[tier] = bytes;
        }
}

enum status programs_compile(const struct session *session, const struct program_set *set, const struct plan *plan,
                             struct programs *out) {
    const struct compiling compiling = {session, set, plan};
    struct programs programs = {.of = {NULL}};
    enum status status = STATUS_OK;
    session->machine.backend->set_threads(plan->recipe.threads);
    for (enum program_use use = 0; use < PROGRAM_USES && status == STATUS_OK; use++)
        if (program_set_has(set, use)) status = compile_one(&compiling, use, &programs, &programs.of[use]);
    if (status != STATUS_OK) {
        programs_free(&programs);
        return status;
    }
    sum_bytes(&programs);
    *out = programs;
    return STATUS_OK;
}

void programs_free(struct programs *programs) {
    for (int use = PROGRAM_USES - 1; use >= 0; use--)
        executable_free(programs->of[use]);
    *programs = (struct programs){.of = {NULL}};
}

enum program_use programs_main_use(const struct programs *programs) {
    enum program_use use = 0;
    while (use < PROGRAM_USES - 1 && !programs->of[use])
        use++;
    return use;
}
