/* Models: reads a Hugging Face directory, builds a forward graph, and defines the weights' names and layout.
 *
 * Files, in the order to read them:
 * - model: finds, opens, creates and builds models
 * - config, rope: config.json by a family's table of keys
 * - families/: one builder per family
 * - safetensors, safetensors_read, safetensors_write: weight files
 * - weights: reads and checks a model's weights
 * - write: writes a model's directory
 * - stored_format, compressed, plain_layers: quantized weights in files
 * - quantise: quantized weights in programs
 * - adapter: LoRA adapters and their settings
 * - adapter_weights: adapters in a model, and their merging into its weights
 * - preset: published models by name
 * - document: a model's description for the user, and docs/models.md
 *
 * A family reads its config.json and builds the graph from operators; no model has its own forward or backward. Each
 * tensor in the weight files is one parameter of the graph, of the same name. The families' tables generate
 * docs/models.md, which lists the settings that each reads and rejects. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/manifest.h"
#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "model/safetensors.h"

/* LoRA adapters (Hu et al., arXiv 2106.09685). They extend a frozen linear layer W to y = W x + (alpha / rank) B (A x),
 * with A [rank, in] and B [out, rank].
 *
 * Names and files are those of the library peft: a directory with adapter_config.json, which names the base model, and
 * adapter_model.safetensors. A and B are parameters of the graph, named as in that file. */

enum { ADAPTER_TEXT_BYTES = 1024, ADAPTER_TARGETS_BYTES = 896 };

struct adapter {
    int64_t rank; /* 0: no adapters */
    double alpha;
    char targets[ADAPTER_TARGETS_BYTES]; /* ends of linear layers' names, separated by commas; or "all-linear" */
};

/* Parses "RANK,ALPHA,TARGET[,TARGET]…". BAD_INPUT names the error. */
enum status adapter_parse(const char *text, struct adapter *out);
/* Prints it in canonical spelling; returns `text`. */
char *adapter_print(const struct adapter *adapter, char text[ADAPTER_TEXT_BYTES]);
/* Whether the linear layer of this name ("model.layers.0.self_attn.q_proj") gets an adapter. */
bool adapter_wanted(const struct adapter *adapter, const char *layer);
/* Takes the next target from *left, which initially has all of them; false if none is left. */
struct adapter_target {
    const char *name; /* `length` characters of a longer text */
    size_t length;
};
bool adapter_take_target(const char **left, struct adapter_target *out);
/* Whether a layer's name is the target, or ends with it after a dot. */
bool adapter_matches(const char *layer, const struct adapter_target *target);

/* The targets as an array; NULL if out of memory. */
json_t *adapter_list_targets(const struct adapter *adapter);

/* Names in the graph and the files. */
extern const char adapter_prefix[];   /* before the layer's name */
extern const char adapter_suffix_a[]; /* and after it */
extern const char adapter_suffix_b[];
/* Whether a parameter of this name is an adapter's. */
bool adapter_owns(const char *parameter);

/* Reads adapter_config.json. Settings of peft that Ballast does not support are BAD_INPUT by name, unless they are off.
 * `*base` is borrowed from the object, or NULL. */
enum status adapter_read_config(const char *file, const json_t *object, struct adapter *out, const char **base);
/* `targets`: an array of names, which is taken over. NULL if out of memory. */
json_t *adapter_write_config(const struct adapter *adapter, const char *base, json_t *targets, bool weight_is_kn);

/* Every family, by its model_type in config.json. */
#define MODEL_FAMILY_LIST(X)                                                                                           \
    X(gemma2)                                                                                                          \
    X(gemma3_text)                                                                                                     \
    X(gpt2)                                                                                                            \
    X(gpt_oss)                                                                                                         \
    X(granite)                                                                                                         \
    X(llama)                                                                                                           \
    X(mistral)                                                                                                         \
    X(mixtral)                                                                                                         \
    X(olmo2)                                                                                                           \
    X(olmoe)                                                                                                           \
    X(opt)                                                                                                             \
    X(phi3)                                                                                                            \
    X(qwen2)                                                                                                           \
    X(qwen2_moe)                                                                                                       \
    X(qwen3)                                                                                                           \
    X(qwen3_moe)                                                                                                       \
    X(smollm3)

/* Wrappers hold a family's text model next to other parts. The text model trains; the other parts are copied unchanged
 * to the output. Ballast reads wrappers but does not create them. */
#define MODEL_WRAPPER_LIST(X) X(gemma3)

/* For text with their names: " gpt2 llama …", and "gpt2|llama|…". */
#define MODEL_FAMILY_NAME(name) " " #name
#define MODEL_FAMILY_CHOICE(name) "|" #name
#define MODEL_FAMILY_CHOICES (&(MODEL_FAMILY_LIST(MODEL_FAMILY_CHOICE))[1])

enum { MODEL_LAYERS_MAX = 1024 };

/* The contents of config.json, for all families; a family uses some of the fields. */
struct model_config {
    const struct model_family *family;
    int64_t vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn, context;
    int64_t embedding_width; /* columns of the embedding and the head; OPT can project them to `hidden` and back */
    double norm_epsilon;
    enum activation activation;
    bool tied; /* the head shares the embedding's weight */
    bool attention_bias, mlp_bias;
    bool scale_by_inverse_layer; /* GPT-2: attention scores of layer i (from 0) are also divided by i + 1 */
    bool scale_attention;        /* scores times head_dim^-1/2; GPT-2 can omit it */
    bool norm_after;             /* OPT: norms follow the residual sums, in place of norms before attention and MLP */
    int64_t window; /* tokens that a position attends to in windowed layers, including itself; 0: no windows */
    bool windowed[MODEL_LAYERS_MAX];     /* by layer */
    bool without_rope[MODEL_LAYERS_MAX]; /* by layer: SmolLM3 omits rotary positions in some */
    struct rope_table_attributes rope;
    struct rope_table_attributes local_rope; /* Gemma 3: of windowed layers; head_dim 0: they use `rope` */
    /* Granite; 0 if there is no such setting: */
    double attention_multiplier; /* of the scores, in place of head_dim^-1/2 */
    double embedding_multiplier; /* on the embedding's output */
    double residual_multiplier;  /* on the terms added to the residual stream */
    double logits_divisor;
    bool norm_one_plus; /* Gemma: norms multiply by 1 + their weight */
    /* Gemma; 0: none. */
    double attention_softcap, logits_softcap;
    int64_t query_scalar; /* scores are scaled by its inverse square root instead of head_dim's */
    double initial_range; /* standard deviation of initial matrices */
    /* Mixtures of experts; 0: a plain MLP. */
    int64_t experts, experts_per_token;
    int64_t expert_ffn;          /* width of an expert; 0: ffn */
    int64_t shared_ffn;          /* Qwen2-MoE: width of the shared expert */
    bool normalise_experts;      /* the weights of a token's experts sum to 1 */
    double glu_alpha, glu_limit; /* gpt-oss: of its experts' gates (op expert_glu) */
    /* The loss that balances experts, and its factor. */
    bool balances_experts;
    double balance_coefficient;
    struct adapter adapter; /* next to linear layers; not in config.json: set by model_open and model_set_adapter */
    /* Format of the matrices of linear layers and experts, which are then frozen. From quantization_config, or set by
     * model_set_base_format. */
    enum weight_format base_format;
    int64_t base_block;                      /* block size for weight_layout_of */
    const struct plain_layers *plain_layers; /* layers that stay plain (stored_format.h); the model's, or NULL */
    double dropout;                          /* the largest in the file; not applied, as model_open reports */
};

/* Published models by name: built-in dimensions of their config.json, to check whether they fit before a download. */

struct model_preset {
    const char *name;   /* "llama-3.1-8b" */
    const char *hub;    /* its name on the hub: "meta-llama/Llama-3.1-8B" */
    const char *config; /* the relevant part of its config.json */
};
extern const struct model_preset model_presets[];
extern const int model_preset_count;

/* Finds it by its name, or by its hub name with or without the owner, ignoring case. NULL: there is none. */
const struct model_preset *model_preset_find(const char *name);
/* Adds a hint to the current message: the most similar preset, or where presets are listed. Returns `code`. */
enum status model_preset_hint(enum status code, const char *name);
/* The config as a JSON object, which the caller drops. FAILED without memory. */
enum status model_preset_config(const struct model_preset *preset, json_t **out);
/* All of them in a table: `ballast help presets`. FAILED without memory. */
enum status model_preset_print_list(FILE *out);

struct model {
    struct model_config config;
    char *folder;                      /* source directory; NULL for a preset and a model made from scratch */
    const struct model_preset *preset; /* the preset, or NULL */
    json_t *config_json;               /* as read; written back with the weights */
    const char *prefix;          /* prefix of all names except the head's in the weight files: the family's, or "" */
    struct safetensors *weights; /* the mapped and checked files; NULL for an outline without them and a model made from
                                  * scratch */
    char *adapter_folder;        /* directory of its adapters; NULL: there are none, or they are new */
    struct safetensors *adapter_weights; /* weights of these adapters; NULL: adapters are new */
    uint64_t adapter_seed;               /* seed of new adapters */
    bool base_is_stored;                 /* config.base_format is the files' format */
    struct plain_layers *plain_layers;   /* plain layers of the files, or NULL */
    char *frozen;                        /* patterns of model_set_frozen, or NULL */
    json_t *ends;                        /* of model_set_ends, or NULL */
    bool ends_config;                    /* the first of them goes to config.json */
};

/* The outputs of a graph. */
enum model_purpose {
    MODEL_LOSS, /* inputs "tokens", "targets" (and "positions"); result "loss" */
    /* The same with the input "segments" [S,T] int32: a token attends only to its own segment. */
    MODEL_LOSS_SEGMENTED,
    /* inputs "tokens", "targets" (and "positions"); activation [S,T,1] fp32 (ops_head_log_probability) */
    MODEL_LOG_PROBABILITIES,
    MODEL_LOGITS, /* inputs "tokens" (and "positions"); activation "logits" [S,T,V] fp32 */
    /* Logits for tokens whose predecessors are in key-value caches (model_build_decode_graph). The input "rows" [S,T]
     * int32 gives their places in the caches (ops_attention_cache). Output: logits [S,1,V] of the last token that
     * counts. */
    MODEL_DECODE,
};

struct builder;
struct config_key;
struct expert_names;

/* Default ffn of a new model: hidden * numerator / denominator, rounded up to a multiple. */
struct model_ffn {
    int64_t numerator, denominator, multiple;
};

struct model_family {
    const char *name;              /* model_type in config.json */
    const char *models;            /* for docs/models.md: the models of this family */
    const char *initial;           /* for docs/models.md: initial weights of a new model */
    struct model_ffn ffn;          /* as in the authors' models */
    const struct config_key *keys; /* of config.json (config.h) */
    const char *prefix;            /* transformers' prefix when it saves the model with its head */
    const char *stored_prefix;     /* alternative prefix in files; NULL: none */
    const char *const *carried;    /* of a wrapper: name prefixes of the tensors next to the text model in files; ends
                                    * with NULL */
    enum weight_format expert_format; /* the quantized format of its files, for experts only; PLAIN: any format, for all
                                       * matrices */
    const char *embedding;            /* name of the token embedding, without prefix */
    const char *const *buffers;       /* tensors in older files that are no parameters, without prefix; '#' matches a
                                       * number; ends with NULL */
    /* Defaults for a new model (model_config_init), from the family's authors. The number of layers is not known yet,
     * so lists by layer are filled to their end. For missing keys, transformers may assume other values: see
     * read_config. */
    void (*set_defaults)(struct model_config *config);
    /* transformers' defaults for missing keys, for decoder_read_config. */
    void (*set_assumed)(struct model_config *config);
    /* Reads and checks every key into a config that is zero except for `family`. Unknown keys or values are BAD_INPUT
     * by name. */
    enum status (*read_config)(const char *file, const json_t *object, struct model_config *config);
    /* Adds parameters and nodes; returns the loss or the logits (NULL: see graph_status). */
    struct tensor *(*build)(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                            struct graph *graph);
    /* Families built by decoder_build: their layer; `table` is that of ops_rope_table. NULL: the common layer, with the
     * settings below. */
    struct tensor *(*layer)(struct builder *builder, struct tensor *x, struct tensor *table);
    enum decoder_heads_norm {
        HEADS_UNNORMED,
        HEADS_NORMED,
        HEADS_NORMED_TOGETHER
    } heads_norm;                       /* of queries and keys */
    bool plain_mlp;                     /* two matrices with biases; otherwise a gated MLP with three */
    bool output_unbiased;               /* attention_bias excludes the output projection */
    const struct expert_names *experts; /* in place of the MLP */
    int windows;                        /* enum config_windows */
    int64_t window_pattern;             /* of CONFIG_WINDOWS_LISTED */
    /* Writes config.json for a model made from scratch; NULL if out of memory. model_create reads it back, so fields
     * that are not written are lost. */
    json_t *(*write_config)(const struct model_config *config);
    /* Standard deviation (0: zeros, -1: ones) of the parameter's initial values, from the family's authors. */
    double (*initial_deviation)(const struct model_config *config, const struct tensor *parameter);
};
#define FAMILY_DECLARE(name) extern const struct model_family family_##name;
MODEL_FAMILY_LIST(FAMILY_DECLARE)
MODEL_WRAPPER_LIST(FAMILY_DECLARE)
#undef FAMILY_DECLARE
extern const struct model_family *const model_families[];
extern const int model_family_count;
extern const struct model_family *const model_wrappers[];
extern const int model_wrapper_count;
/* BAD_INPUT naming all families if `name` is none of them; `file` and `field` are for the message. */
enum status model_family_find(const char *file, const char *field, const char *name, const struct model_family **out);
/* The family or wrapper of a config.json, by its model_type. */
enum status model_family_of(const char *file, const json_t *config, const struct model_family **out);
/* Reads a config.json of a family. BAD_INPUT names file and key. */
enum status model_config_read(const char *file, const json_t *object, const struct model_family *family,
                              struct model_config *out);

/* Finds the directory of the model that `given` names, for the caller to free. It is `given` itself if that holds
 * config.json or adapter_config.json, and RUN_DIR/model if `given` is a run's directory. BAD_INPUT if there is no
 * model. The message says how to proceed and, if known, what `given` is: a name on the Hugging Face hub, a file, a run
 * without a model yet, or weights of another format. */
enum status model_folder_find(const char *given, char **out);

/* Reads config.json of a Hugging Face directory, and checks the weights' headers against it: names, shapes, dtypes,
 * offsets. Does not read the weights. A directory with adapter_config.json is opened by model_open_adapter; a run's
 * directory means RUN_DIR/model (model_folder_find). */
enum status model_open(const char *given, struct model **out);
/* Opens a model for callers that need no weights. Some or all weight files may be missing, which is noted. If there is
 * no such directory, `name` may be a preset's (model.h). */
enum status model_open_outline(const char *name, struct model **out);
enum status model_open_preset(const struct model_preset *preset, struct model **out);
/* Opens an adapter's directory with its base model: from `base_folder` or, if that is NULL, the one that its config
 * names. */
enum status model_open_adapter(const char *given, const char *base_folder, struct model **out);
/* Adds adapters by `text` (adapter_parse), before graphs are built. As in peft, B starts at zero and A uniform, from
 * `seed`. "" has no effect. BAD_INPUT if a model opened with adapters would get others. In a model with adapters,
 * everything else is frozen. */
enum status model_set_adapter(struct model *model, const char *text, uint64_t seed);
/* Freezes the parameters that match one of the patterns (separated by commas; '*', '?' and '[…]' as in fnmatch).
 * BAD_INPUT if one matches nothing. */
enum status model_set_frozen(struct model *model, const char *patterns);
/* Sets the ids to be written as eos_token_id of generation_config.json. If `of_config`, config.json gets the first
 * one. */
enum status model_set_ends(struct model *model, const uint32_t *ids, size_t count, bool of_config);
/* Quantizes the base matrices of adapters, and those of experts, before graphs are built. WEIGHT_PLAIN has no effect.
 * BAD_INPUT for a model without adapters, if its files have another format, or if a matrix cannot have the format; the
 * message names it. */
enum status model_set_base_format(struct model *model, enum weight_format format);
/* Whether a config of the family has a key for the field at this offset of struct model_config. */
bool model_family_has(const struct model_family *family, size_t field_offset);
/* The config of a new model of the family `arch` ("llama", "gpt2", …), with the family's defaults in all other fields.
 * Set the sizes; model_create fills in kv_heads, head_dim and ffn if they are 0. */
enum status model_config_init(const char *arch, struct model_config *out);
/* Sets a window of that size, for families that have the field `window`. If only some layers have windows in this
 * config, as in Gemma, only they get it; otherwise all do. 0: none. */
void model_config_set_window(struct model_config *config, int64_t window);
/* Makes a model from a config, without files. BAD_INPUT if its sizes make no model. */
enum status model_create(const struct model_config *config, struct model **out);
void model_free(struct model *model);
static inline void model_release(struct model **model) { model_free(*model); } /* for AUTO */

/* Builds the forward graph of one micro-batch. *out_tensor is the loss or the logits. The caller frees the graph.
 * BAD_INPUT if the sequences are longer than the model's context. */
enum status model_build_graph(const struct model *model, enum model_purpose purpose, enum dtype dtype,
                              int64_t micro_batch_sequences, int64_t sequence_length, struct graph **out,
                              struct tensor **out_tensor);
/* Shape of a MODEL_DECODE graph: so many tokens at a time, of any of the texts, whose caches hold so many positions
 * each. */
struct decode_shape {
    int64_t sequences, tokens; /* S and T of the tokens computed at a time */
    int64_t texts, positions;
};
/* BAD_INPUT if there are more positions than the model's context, or fewer than tokens, or if the caches are too
 * large. */
enum status model_build_decode_graph(const struct model *model, enum dtype dtype, const struct decode_shape *shape,
                                     struct graph **out, struct tensor **out_logits);
/* Parameters in GEMMs (for model FLOPs: 6 per token and parameter), and all parameters. */
int64_t model_parameter_count(const struct graph *graph);
int64_t model_trained_count(const struct graph *graph);
int64_t model_matrix_parameter_count(const struct graph *graph);
/* Trained parameters in GEMMs. */
int64_t model_trained_matrix_count(const struct graph *graph);

/* Destination or source of a parameter's values: a run of the tensor's elements, contiguous, in `dtype`. If one process
 * writes the whole tensor, the run has all elements. */
struct weight_target {
    const struct tensor *tensor;
    int64_t first, elements;
    void *data;       /* the first of them; NULL: in `store`, under the key `stored_as`, at their place in the tensor */
    enum dtype dtype; /* F32 or BF16; U8 for a quantized tensor, whose elements are bytes */
    const struct byte_store *store;
    const struct tensor *stored_as;
    uint64_t *hash;    /* model_write: set to the XXH3 of the written bytes; NULL: not wanted */
    const char *group; /* model_write: of struct safetensors_item */
};
/* The whole tensor, in memory. */
static inline struct weight_target weight_whole(const struct tensor *tensor, enum dtype dtype, void *data) {
    return (struct weight_target){
        .tensor = tensor, .elements = shape_elements(&tensor->shape), .data = data, .dtype = dtype};
}

/* Fills every target with converted values from the model's files: any of the model's parameters, by name. Reads with
 * OpenMP's threads from the mapped files, and releases their pages again. */
enum status model_load_weights(const struct model *model, const struct weight_target *targets, int count);
/* Hashes one of `parts` parts of the model's files: of each tensor the same part of its bytes. */
enum status model_hash_files(const struct model *model, int part, int parts, uint64_t *hash);
/* Fills every target with the family's initial values for this seed. An element depends neither on the order of the
 * targets nor on their runs. FAILED without memory for pieces of quantized or stored targets, or if the store fails. */
enum status model_initialise_weights(const struct model *model, uint64_t seed, const struct weight_target *targets,
                                     int count);
/* The same values in the parameter's dtype, read from a store in complete elements with the tensor as key. They are
 * drawn as they are read, so that models larger than memory can be written. `weights` outlives the store. */
struct initial_weights {
    const struct model *model;
    uint64_t seed;
};
struct byte_store model_initial_store(struct initial_weights *weights);
/* The sections of a quantized weight with these values, from `weights`, a struct initial_weights. */
enum status model_draw_quantized(const void *weights, const struct tensor *tensor, unsigned char *out);
/* The directory with a model's file of this name ("tokenizer.json", "generation_config.json"): the adapter's if that
 * has its own, else the model's. A tokenizer's files and its chat templates belong together, so an adapter's
 * tokenizer.json stands for all of them. NULL if the model has no directory. */
const char *model_companion_folder(const struct model *model, const char *name);

/* Writes config.json and model.safetensors (in the sources' dtypes) into an existing empty directory, and copies the
 * tokenizer files of the model's directory, if any. For a model with adapters, writes only these, as peft does. On
 * failure the directory is empty again. A non-finite weight is a failure; the message names it. Adds the files to
 * `manifest`; NULL: to none. */
enum status model_write(const struct model *model, const char *folder, const struct weight_target *sources, int count,
                        struct manifest *manifest);

/* Writes the same in parts, for ranks that write the weights together (safetensors_write_range): the name of the weight
 * file, its items, and all other files. The caller frees the array of items, which borrows from the sources. */
const char *model_weights_name(const struct model *model);
enum status model_list_items(const struct model *model, const struct weight_target *sources, int count,
                             struct safetensors_item **out, size_t *items);
enum status model_write_settings(const struct model *model, const char *folder, const struct weight_target *sources,
                                 int count, struct manifest *manifest);

/* Writes a model with its adapters merged, into an existing empty directory: W + (alpha / rank) B A, computed in fp32
 * and rounded to the dtype of the file (F16 becomes fp32). */
enum status model_write_merged(const struct model *model, const char *folder);

/* The family and sizes of a model: {"family", "vocab_size", "hidden", "layers", ...}, for files that belong to a model
 * of this shape (document.c). NULL if out of memory. */
json_t *model_shape_to_json(const struct model_config *config);
/* BAD_INPUT naming `file` and every size that differs; sizes that `shape` lacks are not compared. */
enum status model_shape_check(const char *file, const json_t *shape, const struct model_config *config);

/* Summary of a model: sizes, settings, parameters, files; for `inspect --json`. The caller drops it. */
enum status model_summarise(const struct model *model, json_t **out);
/* Prints docs/models.md: the supported models and settings, from the families' tables and graphs. */
enum status model_print_document(FILE *out);
