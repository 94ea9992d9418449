#include <string.h>

#include "support/op_case_build.h"

const struct op_sizes op_sizes_gpt2 = {.sequences = 1,
                                       .length = 1024,
                                       .columns = 768,
                                       .inner = 3072,
                                       .heads = 12,
                                       .kv_heads = 12,
                                       .head_dim = 64,
                                       .vocab = 50257};

/* Sizes of tests. */
#define ODD_BUT(...)                                                                                                   \
    { .sequences = 3, .columns = 45, .inner = 77, .heads = 6, .kv_heads = 2, .head_dim = 10, .vocab = 131, __VA_ARGS__ }
#define ODD ODD_BUT(.length = 29)
#define EVEN ODD_BUT(.length = 28)
/* Several tiles of positions; a head that is no whole number of vectors. */
#define LONG(window_)                                                                                                  \
    { .sequences = 2, .length = 131, .heads = 6, .kv_heads = 2, .head_dim = 10, .window = window_ }
/* Half of the queries read 2 of 4 heads; or 2 of 3, of which one serves twice as many queries. */
#define TRIPLES                                                                                                        \
    { .sequences = 2, .length = 29, .heads = 12, .kv_heads = 4, .head_dim = 10 }
#define QUADRUPLES                                                                                                     \
    { .sequences = 2, .length = 29, .heads = 12, .kv_heads = 3, .head_dim = 6 }
/* Heads of several vectors, and of no whole number of them. */
#define WIDE                                                                                                           \
    { .sequences = 1, .length = 71, .heads = 3, .kv_heads = 1, .head_dim = 85 }
/* Several of attention's tiles, the last of them with a single position. */
#define TILES                                                                                                          \
    { .sequences = 1, .length = 385, .heads = 2, .kv_heads = 1, .head_dim = 40, .window = 150 }
/* More than one block of the packed matrix multiplication in each direction; more than one block of rows. */
#define LARGE                                                                                                          \
    { .sequences = 2, .length = 101, .columns = 281, .inner = 203, .vocab = 300 }
/* Few tokens of an expert, and several tiles of them. */
#define MANY_TOKENS                                                                                                    \
    { .sequences = 2, .length = 331, .columns = 45, .inner = 77, .heads = 4 }
/* Several slices of a vocabulary; not all tokens are in them. */
#define MANY_WORDS                                                                                                     \
    { .sequences = 3, .length = 29, .columns = 45, .vocab = 4500 }
#define ALL_IN_SLICES                                                                                                  \
    { .sequences = 2, .length = 20, .columns = 45, .vocab = 4500 }
#define WIDE_MATRIX                                                                                                    \
    { .sequences = 1, .length = 1, .columns = 201, .vocab = 131 }
#define PAIRS                                                                                                          \
    { .sequences = 4, .length = 37, .columns = 1 }
#define CASE(name_, kind, build_, sizes_, ...)                                                                         \
    { .name = name_, .op = &op_##kind, .build = build_, .sizes = sizes_, __VA_ARGS__ }

const struct op_case op_cases[] = {
    CASE("embedding", embedding, build_embedding, ODD, .flags = CASE_TIMED),
    CASE("embedding.from", embedding, build_embedding, LARGE, .flags = CASE_FROM | CASE_VIEWS),
    CASE("embedding_grad", embedding_grad, build_embedding_grad, ODD, .flags = CASE_TIMED),
    CASE("embedding_grad.views", embedding_grad, build_embedding_grad, LARGE, .flags = CASE_VIEWS),
    CASE("embedding_grad.from", embedding_grad, build_embedding_grad, ODD, .flags = CASE_FROM),
    CASE("embedding.part", embedding, build_embedding, ODD, .flags = CASE_PART),
    CASE("embedding_grad.part", embedding_grad, build_embedding_grad, LARGE, .flags = CASE_PART | CASE_VIEWS),
    CASE("linear", linear, build_linear, ODD, .flags = CASE_TIMED),
    CASE("linear.bias", linear, build_linear, ODD, .flags = CASE_BIAS),
    CASE("linear.kn", linear, build_linear, ODD, .flags = CASE_KN | CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("linear.views", linear, build_linear, LARGE, .flags = CASE_BIAS | CASE_ADDEND | CASE_VIEWS),
    CASE("linear.kn.views", linear, build_linear, LARGE, .flags = CASE_KN | CASE_VIEWS),
    CASE("linear_dx", linear_dx, build_linear_dx, ODD, .flags = CASE_TIMED),
    CASE("linear_dx.kn", linear_dx, build_linear_dx, LARGE, .flags = CASE_KN | CASE_ADDEND | CASE_TIMED),
    CASE("linear_dx.views", linear_dx, build_linear_dx, LARGE, .flags = CASE_ADDEND | CASE_VIEWS),
    CASE("linear_dw", linear_dw, build_linear_dw, ODD, .flags = CASE_TIMED),
    CASE("linear_dw.kn", linear_dw, build_linear_dw, LARGE, .flags = CASE_KN | CASE_BIAS | CASE_TIMED),
    CASE("linear_dw.views", linear_dw, build_linear_dw, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("rms_norm", rms_norm, build_norm, ODD, .flags = CASE_TIMED),
    CASE("rms_norm.views", rms_norm, build_norm, LARGE, .flags = CASE_VIEWS),
    CASE("rms_norm_grad", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("rms_norm_grad.views", rms_norm_grad, build_norm_grad, LARGE, .flags = CASE_VIEWS),
    CASE("rms_norm_grad.no_dx", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_NO_DX),
    CASE("rms_norm.heads", rms_norm, build_norm, ODD, .flags = CASE_HEADS | CASE_TIMED),
    CASE("rms_norm.heads.views", rms_norm, build_norm, LONG(0), .flags = CASE_HEADS | CASE_VIEWS),
    CASE("rms_norm_grad.heads", rms_norm_grad, build_norm_grad, ODD, .flags = CASE_HEADS | CASE_TIMED),
    CASE("rms_norm_grad.heads.views", rms_norm_grad, build_norm_grad, LONG(0),
         .flags = CASE_HEADS | CASE_ADDEND | CASE_VIEWS),
    CASE("rms_norm.one_plus", rms_norm, build_norm, ODD, .flags = CASE_ONE_PLUS | CASE_HEADS),
    CASE("rms_norm_grad.one_plus", rms_norm_grad, build_norm_grad, LARGE,
         .flags = CASE_ONE_PLUS | CASE_ADDEND | CASE_VIEWS),
    CASE("layer_norm", layer_norm, build_norm, ODD, .flags = CASE_BIAS | CASE_TIMED),
    CASE("layer_norm.heads", layer_norm, build_norm, LONG(0), .flags = CASE_BIAS | CASE_HEADS | CASE_VIEWS),
    CASE("layer_norm_grad.heads", layer_norm_grad, build_norm_grad, LONG(0), .flags = CASE_BIAS | CASE_HEADS),
    CASE("layer_norm.plain", layer_norm, build_norm, LARGE, .flags = CASE_VIEWS),
    CASE("layer_norm_grad", layer_norm_grad, build_norm_grad, ODD, .flags = CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("layer_norm_grad.views", layer_norm_grad, build_norm_grad, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("layer_norm_grad.frozen", layer_norm_grad, build_norm_grad, ODD, .flags = CASE_BIAS | CASE_FROZEN),
    CASE("rope_table", rope_table, build_rope_table, ODD, .flags = CASE_TIMED),
    CASE("rope_table.yarn", rope_table, build_rope_table, ODD, .flags = CASE_PARTIAL),
    CASE("rope.partial", rope, build_rope, ODD, .flags = CASE_PARTIAL),
    CASE("rope.partial.back", rope, build_rope, LONG(0), .flags = CASE_PARTIAL | CASE_BACK | CASE_VIEWS),
    CASE("rope", rope, build_rope, ODD, .flags = CASE_TIMED),
    CASE("rope.back", rope, build_rope, LONG(0), .flags = CASE_BACK | CASE_VIEWS),
    CASE("attention", attention, build_attention, LONG(0), .flags = CASE_TIMED),
    CASE("attention.window", attention, build_attention, LONG(50), .flags = CASE_VIEWS),
    CASE("attention.window_1", attention, build_attention, ODD_BUT(.length = 29, .window = 1), .flags = 0),
    CASE("attention.window_wide", attention, build_attention, ODD_BUT(.length = 29, .window = 4096), .flags = 0),
    CASE("attention.segments", attention, build_attention, LONG(0), .flags = CASE_SEGMENTS),
    CASE("attention.capped", attention, build_attention, LONG(0), .flags = CASE_CAPPED),
    CASE("attention.capped.window", attention, build_attention, LONG(50),
         .flags = CASE_CAPPED | CASE_SEGMENTS | CASE_VIEWS),
    CASE("attention.sinks", attention, build_attention, LONG(0), .flags = CASE_SINKS | CASE_VIEWS),
    CASE("attention.sinks.window", attention, build_attention, LONG(50), .flags = CASE_SINKS | CASE_CAPPED),
    CASE("attention.wide", attention, build_attention, WIDE, .flags = CASE_VIEWS),
    CASE("attention.tiles", attention, build_attention, TILES, .flags = CASE_VIEWS),
    CASE("attention_grad.tiles", attention_grad, build_attention_grad, TILES, .flags = CASE_VIEWS),
    CASE("attention_grad.wide", attention_grad, build_attention_grad, WIDE, .flags = 0),
    CASE("attention_grad", attention_grad, build_attention_grad, LONG(0), .flags = CASE_TIMED),
    CASE("attention_grad.window", attention_grad, build_attention_grad, LONG(50), .flags = CASE_VIEWS),
    CASE("attention_grad.window_wide", attention_grad, build_attention_grad, ODD_BUT(.length = 29, .window = 4096),
         .flags = 0),
    CASE("attention_grad.segments", attention_grad, build_attention_grad, LONG(0), .flags = CASE_SEGMENTS),
    CASE("attention_grad.capped", attention_grad, build_attention_grad, LONG(0), .flags = CASE_CAPPED),
    CASE("attention_grad.capped.window", attention_grad, build_attention_grad, LONG(50),
         .flags = CASE_CAPPED | CASE_SEGMENTS | CASE_VIEWS),
    CASE("attention_grad.sinks", attention_grad, build_attention_grad, LONG(50), .flags = CASE_SINKS),
    CASE("attention_sinks_grad", attention_sinks_grad, build_attention_sinks_grad, LONG(50),
         .flags = CASE_SINKS | CASE_TIMED),
    CASE("attention_sinks_grad.views", attention_sinks_grad, build_attention_sinks_grad, WIDE,
         .flags = CASE_SINKS | CASE_VIEWS),
    CASE("attention_grad.short", attention_grad, build_attention_grad, ODD_BUT(.length = 1), .flags = 0),
    CASE("select_heads", select_heads, build_select_heads, ODD, .flags = CASE_TIMED),
    CASE("select_heads.many", select_heads, build_select_heads, TRIPLES, .flags = CASE_VIEWS),
    CASE("select_heads.uneven", select_heads, build_select_heads, QUADRUPLES, .flags = 0),
    CASE("select_heads_grad", select_heads_grad, build_select_heads_grad, ODD, .flags = CASE_TIMED),
    CASE("select_heads_grad.many", select_heads_grad, build_select_heads_grad, TRIPLES, .flags = CASE_VIEWS),
    CASE("select_heads_grad.uneven", select_heads_grad, build_select_heads_grad, QUADRUPLES, .flags = 0),
    CASE("attention_cache", attention_cache, build_attention_cache, LONG(0), .flags = CASE_TIMED),
    CASE("attention_cache.window", attention_cache, build_attention_cache, LONG(50), .flags = CASE_VIEWS),
    CASE("attention_cache.wide", attention_cache, build_attention_cache, WIDE, .flags = CASE_VIEWS),
    CASE("attention_cache.one", attention_cache, build_attention_cache, ODD_BUT(.length = 1, .window = 3), .flags = 0),
    CASE("attention_cache.sinks", attention_cache, build_attention_cache, LONG(50), .flags = CASE_SINKS),
    CASE("attention_cache.capped", attention_cache, build_attention_cache, LONG(50), .flags = CASE_CAPPED),
    CASE("last_token", last_token, build_last_token, ODD, .flags = 0),
    CASE("last_token.views", last_token, build_last_token, LARGE, .flags = CASE_VIEWS),
    CASE("gelu_tanh", activation, build_activation, ODD, .function = ACTIVATION_GELU_TANH, .flags = CASE_TIMED),
    CASE("gelu_erf", activation, build_activation, ODD, .function = ACTIVATION_GELU_ERF, .flags = CASE_TIMED),
    CASE("relu", activation, build_activation, LARGE, .function = ACTIVATION_RELU, .flags = CASE_VIEWS),
    CASE("silu", activation, build_activation, LARGE, .function = ACTIVATION_SILU),
    CASE("gelu_tanh_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_TIMED),
    CASE("gelu_erf_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_GELU_ERF, .flags = CASE_VIEWS),
    CASE("relu_grad", activation_grad, build_activation, LARGE, .function = ACTIVATION_RELU),
    CASE("silu_grad", activation_grad, build_activation, ODD, .function = ACTIVATION_SILU),
    CASE("swiglu", gated_activation, build_gated, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("geglu", gated_activation, build_gated, LARGE, .function = ACTIVATION_GELU_TANH, .flags = CASE_VIEWS),
    CASE("swiglu_grad", gated_activation_grad, build_gated, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("geglu_grad", gated_activation_grad, build_gated, LARGE, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_VIEWS),
    CASE("add", add, build_add, ODD, .flags = CASE_TIMED),
    CASE("add.views", add, build_add, LARGE, .flags = CASE_VIEWS),
    CASE("add_bias", add_bias, build_add_bias, ODD, .flags = CASE_BIAS | CASE_ADDEND | CASE_TIMED),
    CASE("add_bias.alone", add_bias, build_add_bias, ODD, .flags = CASE_BIAS),
    CASE("add_bias.views", add_bias, build_add_bias, LARGE, .flags = CASE_BIAS | CASE_ADDEND | CASE_VIEWS),
    CASE("scale", scale, build_scale, ODD, .flags = CASE_TIMED),
    CASE("scale.views", scale, build_scale, LARGE, .flags = CASE_VIEWS),
    CASE("convert", convert, build_convert, ODD, .flags = 0),
    CASE("convert.views", convert, build_convert, LARGE, .flags = CASE_VIEWS),
    CASE("copy_in", copy_in, build_convert, ODD, .flags = 0),
    CASE("to_parts", to_parts, build_parts, ODD, .flags = CASE_TIMED),
    CASE("to_parts.views", to_parts, build_parts, LARGE, .flags = CASE_VIEWS | CASE_CONVERTS),
    CASE("to_parts.length", to_parts, build_parts, LARGE, .flags = CASE_LENGTH),
    CASE("to_parts.zigzag", to_parts, build_parts, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("from_parts", from_parts, build_parts, ODD, .flags = CASE_VIEWS),
    CASE("from_parts.length", from_parts, build_parts, ODD, .flags = CASE_LENGTH | CASE_CONVERTS),
    CASE("from_parts.zigzag", from_parts, build_parts, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG | CASE_CONVERTS),
    CASE("cut", cut, build_cut, LARGE, .flags = CASE_VIEWS),
    CASE("cut.length", cut, build_cut, ODD, .flags = CASE_LENGTH),
    CASE("cut.zigzag", cut, build_cut, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("cut.zigzag_tokens", cut, build_cut_tokens, EVEN, .flags = CASE_LENGTH | CASE_ZIGZAG),
    CASE("bias_grad", bias_grad, build_bias_grad, ODD, .flags = CASE_BIAS | CASE_TIMED),
    CASE("bias_grad.views", bias_grad, build_bias_grad, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss", head_loss, build_head_loss, ODD, .flags = CASE_TIMED),
    CASE("head_loss.bias", head_loss, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss_grad", head_loss_grad, build_head_loss, ODD, .flags = CASE_TIMED),
    CASE("head_loss_grad.bias", head_loss_grad, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_loss_grad.begins", head_loss_grad, build_head_loss, MANY_WORDS, .flags = CASE_BEGINS),
    CASE("head_loss_grad.begins.all", head_loss_grad, build_head_loss, ALL_IN_SLICES,
         .flags = CASE_BEGINS | CASE_BIAS | CASE_VIEWS | CASE_CAPPED),
    CASE("head_loss_grad.frozen", head_loss_grad, build_head_loss, ODD, .flags = CASE_FROZEN),
    CASE("head_loss_grad.no_dx", head_loss_grad, build_head_loss, ODD, .flags = CASE_NO_DX),
    CASE("head_loss.capped", head_loss, build_head_loss, LARGE, .flags = CASE_BIAS | CASE_CAPPED),
    CASE("head_loss_grad.capped", head_loss_grad, build_head_loss, ODD, .flags = CASE_CAPPED),
    CASE("head_loss_grad.capped.bias", head_loss_grad, build_head_loss, LARGE,
         .flags = CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_loss.part", head_loss, build_head_loss, ODD, .flags = CASE_PART),
    CASE("head_loss_grad.part", head_loss_grad, build_head_loss, ODD, .flags = CASE_PART),
    CASE("head_loss_grad.part.capped", head_loss_grad, build_head_loss, ODD,
         .flags = CASE_PART | CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_log_probability", head_log_probability, build_head_log_probability, ODD, .flags = CASE_TIMED),
    CASE("head_log_probability.capped", head_log_probability, build_head_log_probability, LARGE,
         .flags = CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("head_log_probability.part", head_log_probability, build_head_log_probability, ODD, .flags = CASE_PART),
    CASE("head_log_probability_grad", head_log_probability_grad, build_head_log_probability, ODD, .flags = CASE_TIMED),
    CASE("head_log_probability_grad.bias", head_log_probability_grad, build_head_log_probability, LARGE,
         .flags = CASE_BIAS | CASE_VIEWS),
    CASE("head_log_probability_grad.frozen", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_FROZEN | CASE_CAPPED),
    CASE("head_log_probability_grad.no_dx", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_NO_DX),
    CASE("head_log_probability_grad.part", head_log_probability_grad, build_head_log_probability, ODD,
         .flags = CASE_PART | CASE_CAPPED),
    CASE("preference_loss", preference_loss, build_preference, LARGE, .flags = CASE_TIMED),
    CASE("preference_loss_grad", preference_loss_grad, build_preference, PAIRS, .flags = CASE_TIMED),
    CASE("preference_loss_grad.smoothed", preference_loss_grad, build_preference, MANY_TOKENS,
         .pairs = {.label_smoothing = 0.2}),
    CASE("preference_loss_grad.robust", preference_loss_grad, build_preference, PAIRS,
         .pairs = {.loss = PAIR_LOSS_ROBUST, .label_smoothing = 0.1}),
    CASE("preference_loss_grad.hinge", preference_loss_grad, build_preference, PAIRS,
         .pairs = {.loss = PAIR_LOSS_HINGE}),
    CASE("preference_loss_grad.ipo", preference_loss_grad, build_preference, MANY_TOKENS,
         .pairs = {.loss = PAIR_LOSS_IPO}),
    CASE("head_statistics", head_statistics, build_head_statistics, ODD, .flags = CASE_PART | CASE_TIMED),
    CASE("head_statistics.capped", head_statistics, build_head_statistics, LARGE,
         .flags = CASE_PART | CASE_BIAS | CASE_CAPPED | CASE_VIEWS),
    CASE("join_statistics", join_statistics, build_join_statistics, ODD, .flags = 0),
    CASE("head_logits.capped", head_logits, build_head_logits, LARGE, .flags = CASE_BIAS | CASE_CAPPED),
    CASE("head_logits", head_logits, build_head_logits, ODD, .flags = 0),
    CASE("head_logits.bias", head_logits, build_head_logits, LARGE, .flags = CASE_BIAS | CASE_VIEWS),
    CASE("route", route, build_route, ODD, .flags = CASE_TIMED),
    CASE("route.normalised", route, build_route, ODD, .flags = CASE_ONE_PLUS | CASE_VIEWS),
    CASE("route.no_targets", route, build_route, ODD, .flags = CASE_NO_TARGETS),
    CASE("route_grad", route_grad, build_route, ODD, .flags = CASE_TIMED),
    CASE("route_grad.normalised", route_grad, build_route, ODD, .flags = CASE_ONE_PLUS | CASE_VIEWS),
    CASE("dispatch", dispatch, build_dispatch, ODD, .flags = CASE_TIMED),
    CASE("dispatch.views", dispatch, build_dispatch, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("dispatch_grad", dispatch_grad, build_dispatch, ODD, .flags = CASE_TIMED),
    CASE("dispatch_grad.addend", dispatch_grad, build_dispatch, MANY_TOKENS, .flags = CASE_ADDEND),
    CASE("combine", combine, build_combine, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("combine.views", combine, build_combine, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("combine_grad", combine_grad, build_combine, ODD, .flags = CASE_TIMED),
    CASE("token_gate", token_gate, build_token_gate, ODD, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("token_gate.views", token_gate, build_token_gate, LARGE, .flags = CASE_VIEWS),
    CASE("token_gate_grad", token_gate_grad, build_token_gate, ODD, .flags = CASE_TIMED),
    CASE("token_gate_grad.views", token_gate_grad, build_token_gate, LARGE, .flags = CASE_VIEWS),
    CASE("expert_mlp", expert_mlp, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("expert_mlp.previous", expert_mlp, build_expert, MANY_TOKENS, .function = ACTIVATION_SILU,
         .flags = CASE_ADDEND),
    CASE("expert_mlp_grad", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_TIMED),
    CASE("expert_mlp_grad.tiles", expert_mlp_grad, build_expert, MANY_TOKENS, .function = ACTIVATION_SILU),
    CASE("expert_mlp_grad.previous", expert_mlp_grad, build_expert, MANY_TOKENS, .function = ACTIVATION_GELU_TANH,
         .flags = CASE_ADDEND),
    CASE("expert_mlp_grad.frozen", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU,
         .flags = CASE_FROZEN),
    CASE("expert_mlp_grad.no_dx", expert_mlp_grad, build_expert, ODD, .function = ACTIVATION_SILU, .flags = CASE_NO_DX),
    CASE("expert_glu", expert_glu, build_expert_glu, ODD, .flags = CASE_TIMED),
    CASE("expert_glu.previous", expert_glu, build_expert_glu, MANY_TOKENS, .flags = CASE_ADDEND | CASE_KN),
    CASE("expert_glu_grad", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_KN | CASE_TIMED),
    CASE("expert_glu_grad.tiles", expert_glu_grad, build_expert_glu, MANY_TOKENS, .flags = 0),
    CASE("expert_glu_grad.previous", expert_glu_grad, build_expert_glu, MANY_TOKENS, .flags = CASE_ADDEND | CASE_KN),
    CASE("expert_glu_grad.frozen", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_FROZEN),
    CASE("expert_glu_grad.no_dx", expert_glu_grad, build_expert_glu, ODD, .flags = CASE_NO_DX),
    CASE("expert_load", expert_load, build_expert_load, MANY_TOKENS, .flags = CASE_ADDEND | CASE_TIMED),
    CASE("expert_load.views", expert_load, build_expert_load, ODD, .flags = CASE_VIEWS),
    CASE("expert_load_grad", expert_load_grad, build_expert_load, ODD, .flags = CASE_TIMED),
    CASE("expert_load_grad.views", expert_load_grad, build_expert_load, MANY_TOKENS, .flags = CASE_VIEWS),
    CASE("balanced_loss", balanced_loss, build_balanced_loss, ODD, .flags = CASE_TIMED),
    CASE("balanced_loss_grad", balanced_loss_grad, build_balanced_loss, ODD, .flags = CASE_TIMED),
    CASE("balanced_loss_grad.frozen", balanced_loss_grad, build_balanced_loss, ODD, .flags = CASE_FROZEN),
    CASE("count_slots", count_slots, build_count_slots, ODD, .flags = 0),
    CASE("gradient_sum", gradient_sum, build_gradient_sum, LARGE, .flags = CASE_TIMED),
    CASE("squared_sums", squared_sums, build_squared_sums, LARGE, .flags = CASE_TIMED),
    CASE("squared_norm", squared_norm, build_squared_norm, LARGE, .flags = CASE_TIMED),
    CASE("clip_factor", clip_factor, build_clip_factor, ODD, .flags = 0),
    CASE("adamw", adamw, build_update, LARGE, .flags = CASE_TIMED),
    CASE("adamw.bf16_state", adamw, build_update, LARGE, .flags = CASE_BF16_STATE | CASE_TIMED),
    CASE("adamw.no_master", adamw, build_update, LARGE, .flags = CASE_NO_MASTER | CASE_BF16_STATE | CASE_TIMED),
    CASE("adamw.no_master.fp32_state", adamw, build_update, ODD, .flags = CASE_NO_MASTER),
    CASE("adamw.int8_state", adamw, build_update, LARGE, .flags = CASE_INT8_STATE | CASE_TIMED),
    CASE("adamw.int8_state.no_master", adamw, build_update, ODD, .flags = CASE_INT8_STATE | CASE_NO_MASTER),
    CASE("adamw.split_master", adamw, build_update, LARGE, .flags = CASE_SPLIT_MASTER | CASE_TIMED),
    CASE("adamw.split_master.bf16_state", adamw, build_update, LARGE, .flags = CASE_SPLIT_MASTER | CASE_BF16_STATE),
    CASE("adamw.split_master.int8_state", adamw, build_update, LARGE, .flags = CASE_SPLIT_MASTER | CASE_INT8_STATE),
    CASE("adamw.unclipped", adamw, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("lion", lion, build_update, LARGE, .flags = CASE_TIMED),
    CASE("lion.no_master", lion, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("lion.split_master", lion, build_update, LARGE, .flags = CASE_SPLIT_MASTER),
    CASE("lion.int8_state", lion, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("lion.unclipped", lion, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("sgd", sgd, build_update, LARGE, .flags = CASE_TIMED),
    CASE("sgd.no_master", sgd, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("sgd.split_master", sgd, build_update, LARGE, .flags = CASE_SPLIT_MASTER),
    CASE("sgd.int8_state", sgd, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("sgd.unclipped", sgd, build_update, LARGE, .flags = CASE_UNCLIPPED),
    CASE("muon", muon, build_update, LARGE, .flags = CASE_TIMED),
    CASE("muon.wide", muon, build_update, WIDE_MATRIX, .flags = 0),
    CASE("muon.no_master", muon, build_update, ODD, .flags = CASE_NO_MASTER | CASE_BF16_STATE),
    CASE("muon.split_master", muon, build_update, LARGE, .flags = CASE_SPLIT_MASTER),
    CASE("muon.int8_state", muon, build_update, ODD, .flags = CASE_INT8_STATE),
    CASE("muon.unclipped", muon, build_update, LARGE, .flags = CASE_UNCLIPPED),
};
const int op_case_count = sizeof op_cases / sizeof *op_cases;

struct graph *op_case_build(const struct op_case *op_case, enum dtype dtype, const struct op_sizes *sizes) {
    struct graph *graph = graph_create(dtype, sizes->sequences, sizes->length);
    if (!graph) return NULL;
    graph_begin_block(graph, "case");
    op_case->build(graph, op_case, sizes);
    if (graph_status(graph) == STATUS_OK) return graph;
    graph_free(graph);
    return NULL;
}

struct tensor *op_case_tensor(const struct graph *graph, const char *name) {
    for (size_t i = 0; i < graph->tensors.count; i++)
        if (strcmp(graph->tensors.items[i]->name, name) == 0) return graph->tensors.items[i];
    return NULL;
}
