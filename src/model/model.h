/* Models: from a Hugging Face directory to a forward graph, and the weights' names and layout.
 *
 * Files, in the order to read them:
 *   model: finding, opening, creating and building models;
 *   config, rope: config.json by a family's table of keys; families/: one builder per family;
 *   safetensors, safetensors_read, safetensors_write: weight files;
 *   weights: the weights of a model, read and checked; write: the directory that is written;
 *   stored_format, compressed, plain_layers: weights in fewer bits, as files have them; quantise: as programs do;
 *   adapter: LoRA adapters and their settings; adapter_weights: adapters in a model, and merged into its weights;
 *   preset: published models by name; document: a model's description for the user, and docs/models.md.
 *
 * A family reads its config.json and builds the graph from operators; no model has a forward or backward of its own.
 * Each tensor in the weight files is one parameter of the graph, of the same name. docs/models.md, made from the
 * families' tables, says what each reads and refuses. */
#pragma once

#include <jansson.h>

#include "base/base.h"
#include "base/manifest.h"
#include "ir/graph.h"
#include "ir/ops/ops.h"
#include "model/safetensors.h"

/* LoRA adapters (Hu et al., arXiv 2106.09685): next to a frozen linear layer's W, y = W x + (alpha / rank) B (A x),
 * with A [rank, in] and B [out, rank].
 *
 * Their names and files are those of the library peft: a directory with adapter_config.json and
 * adapter_model.safetensors, which says where the base model is. A and B are parameters of the graph, named as in that
 * file. */

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
/* Takes the next of the targets from *left, at first all of them; false where none is left. */
struct adapter_target {
    const char *name; /* `length` characters of it */
    size_t length;
};
bool adapter_take_target(const char **left, struct adapter_target *out);
/* Whether a layer's name is the target or ends with it, after a dot. */
bool adapter_matches(const char *layer, const struct adapter_target *target);

/* The targets as an array; NULL when out of memory. */
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

/* Wrappers, which hold a family's text model next to other parts: the text model trains, the rest is carried unchanged
 * into what is written. They are read, but not made. */
#define MODEL_WRAPPER_LIST(X) X(gemma3)

/* For text with their names: " gpt2 llama …", and "gpt2|llama|…". */
#define MODEL_FAMILY_NAME(name) " " #name
#define MODEL_FAMILY_CHOICE(name) "|" #name
#define MODEL_FAMILY_CHOICES (&(MODEL_FAMILY_LIST(MODEL_FAMILY_CHOICE))[1])

enum { MODEL_LAYERS_MAX = 1024 };

/* The contents of config.json, for all families; a family uses the fields that it has. */
struct model_config {
    const struct model_family *family;
    int64_t vocab_size, hidden, layers, heads, kv_heads, head_dim, ffn, context;
    int64_t embedding_width; /* columns of the embedding and the head; OPT can project them to `hidden` and back */
    double norm_epsilon;
    enum activation activation;
    bool tied; /* the head's weight is the embedding's */
    bool attention_bias, mlp_bias;
    bool scale_by_inverse_layer; /* GPT-2: attention scores of layer i (from 0) are also divided by i + 1 */
    bool scale_attention;        /* scores times head_dim^-1/2; GPT-2 can leave it out */
    bool norm_after;             /* OPT: norms follow the residual sums instead of coming before attention and MLP */
    int64_t window; /* tokens that a position sees in windowed layers, itself included; 0: there are none */
    bool windowed[MODEL_LAYERS_MAX];     /* by layer */
    bool without_rope[MODEL_LAYERS_MAX]; /* by layer: SmolLM3 leaves rotary positions out of some */
    struct rope_table_attributes rope;
    struct rope_table_attributes local_rope; /* Gemma 3: of windowed layers; head_dim 0: theirs is `rope` */
    /* Granite; 0 where there is no such setting: */
    double attention_multiplier; /* of the scores, in place of head_dim^-1/2 */
    double embedding_multiplier; /* of what comes from the embedding */
    double residual_multiplier;  /* of what is added to the residual stream */
    double logits_divisor;
    bool norm_one_plus; /* Gemma: norms multiply by 1 + their weight */
    /* Gemma; 0: none. */
    double attention_softcap, logits_softcap;
    int64_t query_scalar; /* scores are times its root's inverse in place of head_dim's */
    double initial_range; /* standard deviation with which matrices start */
    /* Mixtures of experts; 0: the MLP is one. */
    int64_t experts, experts_per_token;
    int64_t expert_ffn;          /* width of an expert; 0: ffn */
    int64_t shared_ffn;          /* Qwen2-MoE: width of the expert that all tokens take */
    bool normalise_experts;      /* the weights of a token's experts add up to 1 */
    double glu_alpha, glu_limit; /* gpt-oss: of its experts' gates (op expert_glu) */
    /* The loss that balances experts, and what it is multiplied by. */
    bool balances_experts;
    double balance_coefficient;
    struct adapter adapter; /* next to linear layers; not of config.json, set by model_open and model_set_adapter */
    /* Of the matrices of linear layers and experts, which are frozen then: quantization_config, or set by
     * model_set_base_format. */
    enum weight_format base_format;
    int64_t base_block;                      /* of their blocks, for weight_layout_of */
    const struct plain_layers *plain_layers; /* which of them stay plain (stored_format.h); the model's, or NULL */
    double dropout;                          /* the largest that the file asks for; not applied, model_open says so */
};

/* Published models by name: their config.json's dimensions, built in, so that "will it fit?" can be asked before
 * anything is downloaded. */

struct model_preset {
    const char *name;   /* "llama-3.1-8b" */
    const char *hub;    /* where the model is published: "meta-llama/Llama-3.1-8B" */
    const char *config; /* what matters of its config.json */
};
extern const struct model_preset model_presets[];
extern const int model_preset_count;

/* By its name, or by that on the hub with or without the owner, in upper or lower case; NULL: there is none. */
const struct model_preset *model_preset_find(const char *name);
/* Adds as a hint to the current message which preset was probably meant, or where all are listed; returns `code`. */
enum status model_preset_hint(enum status code, const char *name);
/* The config as a JSON object, which the caller drops. FAILED without memory. */
enum status model_preset_config(const struct model_preset *preset, json_t **out);
/* All of them in a table: `ballast help presets`. FAILED without memory. */
enum status model_preset_print_list(FILE *out);

struct model {
    struct model_config config;
    char *folder;                      /* where it was read; NULL for a preset and a model made from scratch */
    const struct model_preset *preset; /* which one it is, or NULL */
    json_t *config_json;               /* as read, written back with the weights */
    const char *prefix;          /* before the names of all but the head in the weight files: the family's, or "" */
    struct safetensors *weights; /* the mapped and checked files; NULL for an outline without them and a model made
                                    from scratch */
    char *adapter_folder;        /* where its adapters were read; NULL: there are none, or they begin anew */
    struct safetensors *adapter_weights; /* the same of an adapter's directory; NULL: adapters begin anew */
    uint64_t adapter_seed;               /* with this seed */
    bool base_is_stored;                 /* config.base_format is that of the files */
    struct plain_layers *plain_layers;   /* which they leave plain, or NULL */
    char *frozen;                        /* patterns of model_set_frozen, or NULL */
    json_t *ends;                        /* of model_set_ends, or NULL */
    bool ends_config;                    /* the first of them is config.json's */
};

/* Which outputs a graph shall have. */
enum model_purpose {
    MODEL_LOSS, /* inputs "tokens", "targets" (and "positions"); result "loss" */
    /* The same with the input "segments" [S,T] int32: a token sees those of its own segment only. */
    MODEL_LOSS_SEGMENTED,
    /* inputs "tokens", "targets" (and "positions"); activation [S,T,1] fp32 (ops_head_log_probability) */
    MODEL_LOG_PROBABILITIES,
    MODEL_LOGITS, /* inputs "tokens" (and "positions"); activation "logits" [S,T,V] fp32 */
    /* The same for tokens whose predecessors are in key-value caches (model_build_decode_graph), with the input "rows"
     * [S,T] int32, where in the caches they go (ops_attention_cache): logits [S,1,V] of the last token that counts. */
    MODEL_DECODE,
};

struct builder;
struct config_key;
struct expert_names;

/* Of a new model whose ffn is not given: hidden * numerator / denominator, up to a multiple. */
struct model_ffn {
    int64_t numerator, denominator, multiple;
};

struct model_family {
    const char *name;              /* model_type in config.json */
    const char *models;            /* for docs/models.md: which models these are */
    const char *initial;           /* and what the weights of a new one start from */
    struct model_ffn ffn;          /* as in the authors' models */
    const struct config_key *keys; /* of config.json (config.h) */
    const char *prefix;            /* what transformers puts before the names when it saves the model with its head */
    const char *stored_prefix;     /* what files may have in its place; NULL: nothing */
    const char *const *carried;    /* of a wrapper: beginnings of the names of the tensors next to the text model, as
                                      files have them; ends with NULL */
    enum weight_format expert_format; /* of fewer bits, the one that its files have, of experts alone; PLAIN: any, of
                                         all matrices */
    const char *embedding;            /* name of the token embedding, without prefix */
    const char *const *buffers;       /* tensors in older files that are no parameters, without prefix; '#' stands for a
                                         number; ends with NULL */
    /* For a new model (model_config_init): what the authors of the family start from. The number of layers is not known
     * yet, so a list by layer is filled to its end. Where a config lacks a key, transformers may assume something else:
     * that is read_config's. */
    void (*set_defaults)(struct model_config *config);
    /* What transformers assumes where keys are missing. For decoder_read_config. */
    void (*set_assumed)(struct model_config *config);
    /* Reads and checks every key into a config that is zeroed but for `family`; a key or value that the family does
     * not know is BAD_INPUT by name. */
    enum status (*read_config)(const char *file, const json_t *object, struct model_config *config);
    /* Adds parameters and nodes; returns the loss or the logits (NULL: see graph_status). */
    struct tensor *(*build)(const struct model_config *config, const char *prefix, enum model_purpose purpose,
                            struct graph *graph);
    /* Families built by decoder_build: one layer, for their build; `table` is that of ops_rope_table. NULL: that of
     * most, by what follows. */
    struct tensor *(*layer)(struct builder *builder, struct tensor *x, struct tensor *table);
    enum decoder_heads_norm {
        HEADS_UNNORMED,
        HEADS_NORMED,
        HEADS_NORMED_TOGETHER
    } heads_norm;                       /* of queries and keys */
    bool plain_mlp;                     /* two matrices with biases; else a gated MLP: three */
    bool output_unbiased;               /* attention_bias is not of the output's projection */
    const struct expert_names *experts; /* in place of the MLP */
    int windows;                        /* enum config_windows */
    int64_t window_pattern;             /* of CONFIG_WINDOWS_LISTED */
    /* config.json for a model made from scratch; NULL when out of memory. model_create reads it back, so a field that
     * is not written is lost. */
    json_t *(*write_config)(const struct model_config *config);
    /* Standard deviation (0: zeros, -1: ones) with which the authors of the family start the parameter. */
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
/* BAD_INPUT naming the families that there are when `name` is none of them; `file` and `field` are for the message. */
enum status model_family_find(const char *file, const char *field, const char *name, const struct model_family **out);
/* The family or wrapper of a config.json, by its model_type. */
enum status model_family_of(const char *file, const json_t *config, const struct model_family **out);
/* Reads a config.json of a family. BAD_INPUT names file and key. */
enum status model_config_read(const char *file, const json_t *object, const struct model_family *family,
                              struct model_config *out);

/* The directory of the model that `given` names, for the caller to free: `given` itself where it holds config.json or
 * adapter_config.json; RUN_DIR/model where it is a run's directory. BAD_INPUT where there is no model: the message says
 * what `given` is instead, if that can be told (a name on the Hugging Face hub, a file, a run that has no model yet,
 * weights of another format), and what to do. */
enum status model_folder_find(const char *given, char **out);

/* Reads config.json of a Hugging Face directory (not the weights' contents, but their headers are checked against the
 * config: names, shapes, dtypes, offsets). A directory with adapter_config.json is opened by model_open_adapter; that
 * of a run stands for RUN_DIR/model (model_folder_find). */
enum status model_open(const char *given, struct model **out);
/* The same for callers that need no weights: these may be missing from the directory (all or some of their files, which
 * is noted), and where there is no such directory, `name` may be a preset's (model.h). */
enum status model_open_outline(const char *name, struct model **out);
enum status model_open_preset(const struct model_preset *preset, struct model **out);
/* An adapter's directory with the model that it belongs to: in `base_folder` or, when that is NULL, where its config
 * says.
 */
enum status model_open_adapter(const char *given, const char *base_folder, struct model **out);
/* Before graphs are built: adds adapters as `text` says (adapter_parse), B zero and A uniform as peft starts them, from
 * `seed`. "" changes nothing; a model that was opened with adapters takes no others. All but adapters is frozen in a
 * model that has them. */
enum status model_set_adapter(struct model *model, const char *text, uint64_t seed);
/* Freezes the parameters that match one of the patterns (separated by commas; '*', '?' and '[…]' as in fnmatch).
 * BAD_INPUT when one matches nothing. */
enum status model_set_frozen(struct model *model, const char *patterns);
/* Has the model written with these ids as eos_token_id of generation_config.json, and the first of them as
 * config.json's where `of_config`. */
enum status model_set_ends(struct model *model, const uint32_t *ids, size_t count, bool of_config);
/* Before graphs are built: keeps the matrices that adapters stand next to, and those of experts, in a format of fewer
 * bits. WEIGHT_PLAIN changes nothing. BAD_INPUT for a model without adapters, for one whose files have them in another
 * format, and naming a matrix that the format cannot have. */
enum status model_set_base_format(struct model *model, enum weight_format format);
/* Whether a config of the family has a key for the field at this offset of struct model_config. */
bool model_family_has(const struct model_family *family, size_t field_offset);
/* The config of a new model of the family `arch` ("llama", "gpt2", …), with the family's defaults in all other fields.
 * Set the sizes that are asked for; kv_heads, head_dim and ffn may stay 0, model_create then fills them in. */
enum status model_config_init(const char *arch, struct model_config *out);
/* A window of that size, for families that have the field `window`: in the layers that have one in this config if only
 * some of them do, as Gemma's, else in all. 0: none. */
void model_config_set_window(struct model_config *config, int64_t window);
/* A model from a config, without files; BAD_INPUT when its sizes make no model. */
enum status model_create(const struct model_config *config, struct model **out);
void model_free(struct model *model);
static inline void model_release(struct model **model) { model_free(*model); } /* for AUTO */

/* The forward graph of one micro-batch. *out_tensor is the loss or the logits. The caller frees the graph. BAD_INPUT
 * when the sequences are longer than the model's context. */
enum status model_build_graph(const struct model *model, enum model_purpose purpose, enum dtype dtype,
                              int64_t micro_batch_sequences, int64_t sequence_length, struct graph **out,
                              struct tensor **out_tensor);
/* The graph of MODEL_DECODE: so many tokens at a time, of any of the texts, whose caches hold so many positions each.
 */
struct decode_shape {
    int64_t sequences, tokens; /* S and T of what is computed at a time */
    int64_t texts, positions;
};
/* BAD_INPUT when the positions are more than the model's context, or fewer than the tokens, or the caches too large. */
enum status model_build_decode_graph(const struct model *model, enum dtype dtype, const struct decode_shape *shape,
                                     struct graph **out, struct tensor **out_logits);
/* Parameters that take part in GEMMs (for model FLOPs: 6 a token and parameter), and all parameters. */
int64_t model_parameter_count(const struct graph *graph);
int64_t model_trained_count(const struct graph *graph);
int64_t model_matrix_parameter_count(const struct graph *graph);
/* Those of the latter that are trained. */
int64_t model_trained_matrix_count(const struct graph *graph);

/* Where a parameter's values go to or come from: a run of the tensor's elements, contiguous, in `dtype`. What is
 * written as a whole by one process has all of them. */
struct weight_target {
    const struct tensor *tensor;
    int64_t first, elements;
    void *data;       /* the first of them; NULL: in `store`, under the key `stored_as`, at their place in the tensor */
    enum dtype dtype; /* F32 or BF16; U8 of a tensor in a format of fewer bits, whose elements are bytes */
    const struct byte_store *store;
    const struct tensor *stored_as;
    uint64_t *hash;    /* model_write: becomes the XXH3 of the bytes that are written; NULL: not wanted */
    const char *group; /* model_write: of struct safetensors_item */
};
/* All of a tensor, in memory. */
static inline struct weight_target weight_whole(const struct tensor *tensor, enum dtype dtype, void *data) {
    return (struct weight_target){
        .tensor = tensor, .elements = shape_elements(&tensor->shape), .data = data, .dtype = dtype};
}

/* Fills every target from the model's files, converting; any of the model's parameters, each by its name. With OpenMP's
 * threads, straight from the mapped files, whose pages are let go again. */
enum status model_load_weights(const struct model *model, const struct weight_target *targets, int count);
/* A hash of one of `parts` parts of what the model's files hold: of each tensor the same part of its bytes. */
enum status model_hash_files(const struct model *model, int part, int parts, uint64_t *hash);
/* Fills every target with the family's initial values for this seed; an element's depends neither on the order of the
 * targets nor on their runs. FAILED without memory for the pieces of those in fewer bits or in a store, or where the
 * store fails. */
enum status model_initialise_weights(const struct model *model, uint64_t seed, const struct weight_target *targets,
                                     int count);
/* The same values in the parameter's dtype, to be read from a store in whole elements under its tensor as key: they are
 * drawn as they are read, so that a model can be written that memory does not hold. `weights` outlives the store. */
struct initial_weights {
    const struct model *model;
    uint64_t seed;
};
struct byte_store model_initial_store(struct initial_weights *weights);
/* The sections of a weight in fewer bits with these values, of `weights`, a struct initial_weights. */
enum status model_draw_quantized(const void *weights, const struct tensor *tensor, unsigned char *out);
/* The directory with a model's file of this name ("tokenizer.json", "generation_config.json"): the adapter's where that
 * has its own, else the model's. The files of a tokenizer and its chat templates belong together, so that an adapter's
 * tokenizer.json stands for all of them. NULL where the model was read from no directory. */
const char *model_companion_folder(const struct model *model, const char *name);

/* Writes config.json, model.safetensors (in the sources' dtypes) and, when the model was read from a directory, copies
 * its tokenizer files, into an existing empty directory. Of a model with adapters, these alone, as peft stores them. On
 * failure the directory is empty again; a weight that is not finite is one, and named. The files are added to
 * `manifest`; NULL: to none. */
enum status model_write(const struct model *model, const char *folder, const struct weight_target *sources, int count,
                        struct manifest *manifest);

/* The same in parts, for ranks that write the weights together (safetensors_write_range): the name of the file of
 * weights, what lies in it (the caller frees the array, which borrows from the sources), and all other files. */
const char *model_weights_name(const struct model *model);
enum status model_list_items(const struct model *model, const struct weight_target *sources, int count,
                             struct safetensors_item **out, size_t *items);
enum status model_write_settings(const struct model *model, const char *folder, const struct weight_target *sources,
                                 int count, struct manifest *manifest);

/* Writes a model with adapters as one without, into an existing empty directory: W + (alpha / rank) B A, computed in
 * fp32 and rounded to the dtype of the file (F16 becomes fp32). */
enum status model_write_merged(const struct model *model, const char *folder);

/* The family and sizes of a model: {"family", "vocab_size", "hidden", "layers", ...}, for files that are for a model of
 * this shape alone (document.c). NULL when out of memory. */
json_t *model_shape_to_json(const struct model_config *config);
/* BAD_INPUT naming `file` and every size that differs; a size that `shape` lacks is not compared. */
enum status model_shape_check(const char *file, const json_t *shape, const struct model_config *config);

/* What there is to say about a model: sizes, settings, parameters, files; for `inspect --json`. The caller drops it. */
enum status model_summarise(const struct model *model, json_t **out);
/* docs/models.md: what is supported, from the families' tables and graphs. */
enum status model_print_document(FILE *out);
