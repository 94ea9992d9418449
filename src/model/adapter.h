/* LoRA adapters (Hu et al., arXiv 2106.09685): next to a frozen linear layer's W, y = W x + (alpha / rank) B (A x),
 * with A [rank, in] and B [out, rank].
 *
 * Their names and files are those of the library peft: a directory with adapter_config.json and
 * adapter_model.safetensors, which says where the base model is. A and B are parameters of the graph, named as in that
 * file. */
#pragma once

#include <jansson.h>

#include "base/base.h"

enum { ADAPTER_TEXT_BYTES = 1024, ADAPTER_TARGETS_BYTES = 896 };

struct adapter {
    int64_t rank; /* 0: there is none */
    double alpha;
    char targets[ADAPTER_TARGETS_BYTES]; /* ends of linear layers' names, separated by commas; or "all-linear" */
};

/* From "RANK,ALPHA,TARGET[,TARGET]…". BAD_INPUT names what is wrong. */
enum status adapter_parse(const char *text, struct adapter *out);
/* The same text again, in one spelling; returns `text`. */
char *adapter_print(const struct adapter *adapter, char text[ADAPTER_TEXT_BYTES]);
/* Whether the linear layer of this name ("model.layers.0.self_attn.q_proj") gets an adapter. */
bool adapter_wanted(const struct adapter *adapter, const char *layer);
/* Whether a layer's name is `target` or ends with it, after a dot. */
bool adapter_matches(const char *layer, const char *target, size_t target_length);

/* Calls `each` with every target; stops when it returns something else than OK, and returns that. */
enum status adapter_each_target(const struct adapter *adapter,
                                enum status (*each)(void *payload, const char *target, size_t length), void *payload);

/* The same as an array; NULL when out of memory. */
json_t *adapter_list_targets(const struct adapter *adapter);

/* Names in the graph and the files. */
extern const char adapter_prefix[];   /* before the layer's name */
extern const char adapter_suffix_a[]; /* and after it */
extern const char adapter_suffix_b[];
/* Whether a parameter of this name is an adapter's. */
bool adapter_owns(const char *parameter);

/* adapter_config.json: settings that peft knows and this program does not are BAD_INPUT by name, unless they say that
 * they are off. `*base` is borrowed from the object, or NULL. */
enum status adapter_read_config(const char *file, const json_t *object, struct adapter *out, const char **base);
/* `targets`: an array of names, which is taken over. NULL when out of memory. */
json_t *adapter_write_config(const struct adapter *adapter, const char *base, json_t *targets, bool weight_is_kn);
