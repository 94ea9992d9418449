#include "support/sized_graph.h"

#include "support/unit.h"

struct graph *sized_graph_make(const char *family, const struct sized_graph *sizes) {
    struct model_config config;
    struct model *model;
    struct graph *graph;
    struct tensor *loss;
    assert_int_equal(model_config_init(family, &config), STATUS_OK);
    config.layers = sizes->layers, config.hidden = sizes->hidden, config.heads = sizes->heads;
    config.vocab_size = sizes->vocab, config.context = sizes->length;
    if (model_create(&config, &model) != STATUS_OK) fail_msg("%s: %s", family, status_message());
    assert_int_equal(model_build_graph(model, MODEL_LOSS, DTYPE_BF16, sizes->sequences, sizes->length, &graph, &loss),
                     STATUS_OK);
    model_free(model);
    return graph;
}
