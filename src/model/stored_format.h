/* Quantized weights (ir/weight_format.h) in files: the tensors of a weight NAME.weight, and the format in config.json.
 *
 *     nf4, nf4-fp32   bitsandbytes: NAME.weight (codes), .weight.absmax, .weight.nested_absmax, the constants
 *                     .weight.quant_map and .weight.nested_quant_map, and .weight.quant_state.bitsandbytes__nf4 (JSON);
 *                     without the nested ones if scales are fp32
 *     int8            bitsandbytes: NAME.weight, NAME.SCB, NAME.weight_format
 *     mxfp4           compressed-tensors, mxfp4-pack-quantized: NAME.weight_packed, NAME.weight_scale;
 *                     in gpt-oss's experts: NAME_blocks, NAME_scales
 *     w4a16, w8a16    compressed-tensors' integers (compressed.c), which are read but not written
 *
 * The bytes of the first four are those of the sections, so they are read and written unchanged. */
#pragma once

#include <jansson.h>

#include "base/byte_store.h"
#include "ir/graph.h"
#include "ir/weight_format.h"
#include "model/safetensors.h"

/* The format of all weights. */
struct stored_format {
    enum weight_format format;
    int64_t block; /* of weight_layout_of */
};
/* Reads the format from quantization_config of config.json, an object. BAD_INPUT naming unsupported settings. */
enum status stored_format_read_config(const char *file, const json_t *object, struct stored_format *out);
/* The same for a family whose files quantize only experts (struct model_family, expert_format). */
enum status stored_format_read_experts(const char *file, const json_t *object, struct stored_format *out);
/* Reads the block size of nf4 from the set's first weight, since config.json does not have it. stored_weight_check then
 * requires it of all weights. If there is no weight, *block does not change. BAD_INPUT unless it is a power of two from
 * 32 to 4096. */
enum status stored_format_read_block(const struct safetensors *set, int64_t *block);
/* An object that gives this format to all matrices, if it has no groups, or only to experts. NULL without memory. */
json_t *stored_format_write_config(enum weight_format format, bool experts);

/* Adds the parts of a parameter's stacks (ir/tensor.h); names are the graph's. */
struct safetensors_parts {
    struct safetensors_part *items;
    size_t count, capacity;
};
enum status stored_weight_list_stacks(struct graph *graph, const struct tensor *parameter,
                                      struct safetensors_parts *out);
/* Checks the tensors of a parameter, and marks them in `used`, by their place in the set. BAD_INPUT names the tensor
 * and the error. */
enum status stored_weight_check(const struct safetensors *set, const struct tensor *parameter, bool *used);
/* Reads a piece of the sections of a checked parameter. FAILED, naming the file, if it cannot be read. */
enum status stored_weight_read(const struct safetensors *set, const struct tensor *parameter,
                               const struct weight_piece *piece);

/* The same for compressed-tensors' format: quantization_config, and integers in groups; zero-fills a piece first. For
 * stored_format.c. */
bool stored_format_is(const json_t *object, const char *key, const char *value);
enum status compressed_read_config(const char *file, const json_t *object, struct stored_format *out);
enum status compressed_check(const struct safetensors *set, const struct tensor *parameter, bool *used);
enum status compressed_read(const struct safetensors *set, const struct tensor *parameter,
                            const struct weight_piece *piece);

/* Parses the JSON that bitsandbytes stores next to a weight's tensors; `name` replaces the path in messages. BAD_INPUT
 * if its format or shape is not the parameter's. *offset is nf4's. */
enum status stored_state_parse(const char *name, const char *text, size_t bytes, const struct weight_code *code,
                               float *offset);

/* Writes quantized parameters as tensors. Each is a temporary tensor of the graph, whose bytes come from `store` with
 * the tensor as key. `make` fills a parameter's sections; the latest ones are cached. */
struct stored_part {
    const struct tensor *tensor, *parameter;
    int number;        /* index in the format */
    const char *group; /* of struct safetensors_item, so that a weight is made once; NULL: none */
};
struct stored_writer {
    enum status (*make)(const void *payload, const struct tensor *parameter, unsigned char *out);
    const void *payload;
    int first; /* id of the first of these tensors */
    VEC(struct stored_part) parts;
    const struct tensor *made; /* the parameter whose sections are in `sections` */
    unsigned char *sections;
};
/* Adds the tensors of a parameter. Between the first and the last call, the graph gets no other tensors. */
enum status stored_writer_add(struct stored_writer *writer, struct graph *graph, const struct tensor *parameter);
struct byte_store stored_writer_store(struct stored_writer *writer);
void stored_writer_close(struct stored_writer *writer);

/* Linear layers that stay plain in a quantized model, as listed in quantization_config.
 *
 * - compressed-tensors: layers that no group's "targets" name, and layers in "ignore". An entry is a layer's whole
 *   name, "re:" and a regular expression for the beginning of a name, or the class "Linear".
 * - bitsandbytes: layers in "llm_int8_skip_modules". An entry is the end of a layer's name, or a regular expression for
 *   the beginning of its name or of an enclosing module's.
 *
 * Expressions are Python's, which PCRE2 reads. */
#include "base/base.h"

struct plain_layers;
/* Reads quantization_config, after stored_format_read_config. Copies the lists. BAD_INPUT naming `file` and the entry
 * that is no text or no expression. */
enum status plain_layers_read(const char *file, const json_t *object, struct plain_layers **out);
/* Whether the layer of this weight, NAME.weight as in the files, is one of them. NULL has none. */
bool plain_layers_have(const struct plain_layers *layers, const char *weight);
void plain_layers_free(struct plain_layers *layers);
