#include "support/shared_model.h"

#include <stdio.h>

#include "support/unit.h"

const struct shared_sizes shared_sizes_usual = {8, 4, 48, 211, 0};

struct model_config shared_model_config(const char *fixture, const struct shared_sizes *sizes) {
    char folder[512];
    struct model *read;
    snprintf(folder, sizeof folder, "%s/models/%s", BALLAST_FIXTURES, fixture);
    if (model_open_outline(folder, &read) != STATUS_OK) fail_msg("%s: %s", fixture, status_message());
    struct model_config config = read->config;
    bool grouped = config.kv_heads < config.heads;
    config.heads = sizes->heads;
    config.kv_heads = grouped ? sizes->kv_heads : sizes->heads;
    config.hidden = sizes->heads * config.head_dim;
    config.embedding_width = sizes->embedding_width > 0 ? sizes->embedding_width : config.hidden;
    config.ffn = sizes->ffn;
    if (config.shared_ffn > 0) config.shared_ffn = sizes->ffn; /* the others' width stays: ranks need not divide it */
    config.vocab_size = sizes->vocab;
    model_free(read);
    return config;
}

struct model *shared_model_make(const char *fixture, const struct shared_sizes *sizes) {
    struct model_config config = shared_model_config(fixture, sizes);
    struct model *made;
    if (model_create(&config, &made) != STATUS_OK) fail_msg("%s: %s", fixture, status_message());
    return made;
}
