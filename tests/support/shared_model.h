/* Models of the fixtures' families whose heads and features are divisible by 2 and 4 ranks. */
#pragma once

#include "model/model.h"

struct shared_sizes {
    int64_t heads, kv_heads, ffn, vocab, embedding_width; /* 0: the hidden size */
};
extern const struct shared_sizes shared_sizes_usual;

/* The config of the fixture of that name with other sizes; ends the test where there is none. */
struct model_config shared_model_config(const char *fixture, const struct shared_sizes *sizes);
/* A model from that, without weights. */
struct model *shared_model_make(const char *fixture, const struct shared_sizes *sizes);
