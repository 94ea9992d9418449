#include "support/step_graph.h"

#include <time.h>

#include "ir/differentiate.h"
#include "model/model.h"

enum status step_graph_forward(const struct step_graph_size *size, int64_t sequences, struct graph **out,
                               struct tensor **loss) {
    struct model_config config;
    struct model *model;
    TRY(model_config_init("gpt2", &config));
    config.layers = size->layers;
    config.hidden = size->hidden;
    config.heads = size->heads;
    config.vocab_size = size->vocabulary;
    config.context = size->sequence;
    TRY(model_create(&config, &model));
    enum status status = model_build_graph(model, MODEL_LOSS, DTYPE_BF16, sequences, size->sequence, out, loss);
    model_free(model);
    return status;
}

enum status step_graph_build(const struct step_graph_size *size, struct graph **out) {
    struct tensor *loss;
    TRY(step_graph_forward(size, 1, out, &loss));
    TRY(graph_differentiate(*out, loss));
    struct optimizer_options optimizer = {
        .beta1 = 0.9, .beta2 = 0.95, .epsilon = 1e-8, .weight_decay = 0.1, .clip_norm = 1, .moments = DTYPE_F32};
    return ops_add_optimizer(*out, &optimizer);
}

double step_graph_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
