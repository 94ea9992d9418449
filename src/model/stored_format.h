/* Weights in fewer bits (ir/weight_format.h) as files have them: the tensors that a weight NAME.weight lies in, and
 * what config.json says of all.
 *     nf4, nf4-fp32   bitsandbytes: NAME.weight (codes), .weight.absmax, .weight.nested_absmax, the constants
 *                     .weight.quant_map and .weight.nested_quant_map, and .weight.quant_state.bitsandbytes__nf4 (JSON);
 *                     without the nested ones where scales are fp32
 *     int8            bitsandbytes: NAME.weight, NAME.SCB, NAME.weight_format
 *     mxfp4           compressed-tensors, mxfp4-pack-quantized: NAME.weight_packed, NAME.weight_scale; of gpt-oss's
 *                     experts: NAME_blocks, NAME_scales
 *     w4a16, w8a16    compressed-tensors' integers (compressed.c), which are read and not written
 * The bytes of the first four are those of the sections, so that they are read and written as they are. */
#pragma once

#include <jansson.h>

#include "base/byte_store.h"
#include "ir/graph.h"
#include "ir/weight_format.h"
#include "model/safetensors.h"

/* What all weights are in. */
struct stored_format {
    enum weight_format format;
    int64_t block; /* of weight_layout_of */
};
/* What quantization_config of config.json, an object, names. BAD_INPUT naming what is not read of it. */
enum status stored_format_read_config(const char *file, const json_t *object, struct stored_format *out);
/* The same of a family whose files have experts alone in fewer bits (struct model_family, expert_format). */
enum status stored_format_read_experts(const char *file, const json_t *object, struct stored_format *out);
/* The numbers of a block of nf4, which config.json does not hold: of the set's first weight. stored_weight_check then
 * holds all weights to it. *block stays where there is none. BAD_INPUT where it is no power of two from 32 to 4096. */
enum status stored_format_read_block(const struct safetensors *set, int64_t *block);
/* An object that says so of all matrices, in a format without groups, or of experts alone; NULL without memory. */
json_t *stored_format_write_config(enum weight_format format, bool experts);

/* Adds the parts of stacks (ir/tensor.h) that a parameter lies in; names are the graph's. */
struct safetensors_parts {
    struct safetensors_part *items;
    size_t count, capacity;
};
enum status stored_weight_list_stacks(struct graph *graph, const struct tensor *parameter,
                                      struct safetensors_parts *out);
/* Checks the tensors that a parameter lies in, and marks them in `used`, by their place in the set. BAD_INPUT names the
 * tensor and what is wrong. */
enum status stored_weight_check(const struct safetensors *set, const struct tensor *parameter, bool *used);
/* Reads a piece of the sections of a parameter that was checked. FAILED, naming the file, when it cannot be read. */
enum status stored_weight_read(const struct safetensors *set, const struct tensor *parameter,
                               const struct weight_piece *piece);

/* The same of what compressed-tensors stores: quantization_config, and integers in groups, of which a piece is filled
 * with zeros. For stored_format.c. */
bool stored_format_is(const json_t *object, const char *key, const char *value);
enum status compressed_read_config(const char *file, const json_t *object, struct stored_format *out);
enum status compressed_check(const struct safetensors *set, const struct tensor *parameter, bool *used);
enum status compressed_read(const struct safetensors *set, const struct tensor *parameter,
                            const struct weight_piece *piece);

/* What bitsandbytes says of a weight next to its tensors: JSON, `name` stands for the path in messages. BAD_INPUT where
 * it is another format or shape than the parameter's; *offset is nf4's. */
enum status stored_state_parse(const char *name, const char *text, size_t bytes, const struct weight_code *code,
                               float *offset);

/* Writing: the tensors that parameters in fewer bits become, each a tensor of the graph, made for this alone, whose
 * bytes come from `store` under it as key. `make` fills a parameter's sections; those of the latest are kept. */
struct stored_part {
    const struct tensor *tensor, *parameter;
    int number;        /* of the format's */
    const char *group; /* of struct safetensors_item, so that a weight is made once; NULL: none */
};
struct stored_writer {
    enum status (*make)(const void *payload, const struct tensor *parameter, unsigned char *out);
    const void *payload;
    int first; /* id of the first of these tensors */
    VEC(struct stored_part) parts;
    const struct tensor *made; /* whose sections are in `sections` */
    unsigned char *sections;
};
/* Adds the tensors of a parameter; after the first, the graph gets no others before the last. */
enum status stored_writer_add(struct stored_writer *writer, struct graph *graph, const struct tensor *parameter);
struct byte_store stored_writer_store(struct stored_writer *writer);
void stored_writer_close(struct stored_writer *writer);

/* Linear layers that stay plain in a model whose others are in fewer bits, as quantization_config names them.
 *     compressed-tensors   those that no group's "targets" name, and those that "ignore" names: each entry is a layer's
 *                          whole name, "re:" and a regular expression that a name begins with, or the class "Linear"
 *     bitsandbytes         those that "llm_int8_skip_modules" names: each entry is the end of a layer's name, or a
 *                          regular expression that a name, or the name of a module around it, begins with
 * Expressions are Python's, which PCRE2 reads. */
#include "base/base.h"

struct plain_layers;
/* Of quantization_config, which stored_format_read_config has read. The lists are copied. BAD_INPUT naming `file` and
 * the entry that is no text or no expression. */
enum status plain_layers_read(const char *file, const json_t *object, struct plain_layers **out);
/* Whether the layer that has this weight, NAME.weight as in the files, is one of them; NULL has none. */
bool plain_layers_have(const struct plain_layers *layers, const char *weight);
void plain_layers_free(struct plain_layers *layers);
