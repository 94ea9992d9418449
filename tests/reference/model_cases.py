"""Tiny models with the logits, losses, gradients and short training runs that transformers gives for them.

FULL cases record everything. Each LIGHT case stores the model of a full case in another way: another dtype, shards,
names, or spelling of the config. Every directory holds a Hugging Face model, generated.json (generated_cases.py), and

reference.safetensors, for B = 4 sequences of T = 19 tokens, V = vocabulary, of the tokens in ../batches.safetensors:
    logits                        F32 [B,T,V]   weights and arithmetic in fp32, whatever dtype the file stores
    loss, loss64                  F64 [1]       mean over unmasked tokens, of the fp32 and of the fp64 model
  and of full cases, for every parameter by its name in the file (a tied head goes by the embedding's name)
    grad64.<name>                 F32           of loss64; computed in fp64, then rounded, which moves it by 1/1000 of
                                                the tests' bound at most
    train.losses                  F64 [20]      before each step's update
    train.grad_norms, train.lrs   F64 [20]      the norm before clipping
    train.losses_bf16             F64 [20]      by the bf16 recipe, see train_bf16
    final.<name>                  F32           the weights after the 20 fp32 steps
reference.json: the versions and settings that made the numbers, and of full cases
    bf16_updates_off              for every parameter, how far 20 steps by the bf16 recipe end from the 20 fp32 steps:
                                  |bf16 - fp32| / |fp32 - initial|, over all of its elements
    bf16_updates_spread           what another order of the same sums makes of it, see bf16_updates

A light case with the weights of its full case shares the files: model.safetensors is a symbolic link to the full case's
where the bytes are equal, and so is reference.safetensors where the logits are.

batches.safetensors, the same for all models, adapters and optimizers:
    input_ids, labels             I32 [B,T]     labels[b,t] is the token to predict at position t, -100 where masked
    train.input_ids, train.labels I32 [20,B,T]  one batch a step
"""

import contextlib
import inspect
import json
import math
import shutil
import sys
import unittest.mock
import zlib

import bitsandbytes
import lion_pytorch
import numpy
import safetensors.torch
import torch
import transformers
from torch.nn.functional import cross_entropy
from transformers import (AutoModelForCausalLM, Gemma2Config, Gemma3Config, Gemma3ForConditionalGeneration,
                          Gemma3TextConfig, GPT2Config, GptOssConfig, GraniteConfig, LlamaConfig, MistralConfig, MixtralConfig,
                          Olmo2Config, OlmoeConfig, OPTConfig, Phi3Config, Qwen2Config, Qwen2MoeConfig, Qwen3Config,
                          Qwen3MoeConfig, SiglipVisionConfig, SmolLM3Config)
from transformers.models.gemma2.modeling_gemma2 import Gemma2RMSNorm
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

import quantised_cases

BATCH, TOKENS, VOCAB, STEPS = 4, 19, 53, 20
BATCHES = "batches.safetensors"
BALANCED_MICRO_BATCH = 2  # sequences over which the experts' load is balanced
BF16_MIN = 0.01
# AdamW, unless a case says otherwise. It decays tensors of two or more dimensions, embeddings included, and no biases.
# Gradients are multiplied by min(1, clip_norm / (norm + 1e-6)). Rates are those of lr_at.
TRAINING = {"optimizer": "adamw", "steps": STEPS, "lr": 3e-3, "warmup_steps": 5, "min_lr_fraction": 0.1,
            "betas": [0.9, 0.95], "eps": 1e-6, "weight_decay": 0.1}


def gpt2(heads=2, **settings):
    return GPT2Config(vocab_size=VOCAB, n_positions=40, n_embd=10 * heads, n_head=heads, n_layer=2,
                      bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1, **settings)


def decoder(family, hidden_size=15, intermediate_size=23, heads=3, kv_heads=1, rope=None, **settings):
    """Llama, and the families that share its layers. Sizes leave remainders after whole vectors of 4, 8 and 16."""
    return family(vocab_size=VOCAB, hidden_size=hidden_size, intermediate_size=intermediate_size, num_hidden_layers=2,
                  num_attention_heads=heads, num_key_value_heads=kv_heads, head_dim=10, max_position_embeddings=128,
                  rope_parameters=rope or {"rope_theta": 10000.0}, **settings)


def llama(**settings):
    return decoder(LlamaConfig, **settings)


def opt(**settings):
    """Without a padding token, since PyTorch gives its row of the embedding no gradient."""
    return OPTConfig(vocab_size=VOCAB, hidden_size=20, ffn_dim=23, num_hidden_layers=2, num_attention_heads=2,
                     max_position_embeddings=40, pad_token_id=None, **settings)


def smollm3(**settings):
    return decoder(SmolLM3Config, pad_token_id=None, bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1, **settings)


def gemma(family, rope=None, **settings):
    """Without a padding token, since PyTorch gives its row of the embedding no gradient."""
    return decoder(family, rope=rope, pad_token_id=None, bos_token_id=VOCAB - 1, eos_token_id=VOCAB - 1, **settings)


# One frequency stays, three are blended, one is divided by the factor.
ROPE_UNTRUNCATED = {"rope_type": "yarn", "rope_theta": 400.0, "factor": 8.0, "beta_fast": 16.0, "beta_slow": 0.5,
                    "truncate": False, "original_max_position_embeddings": 64}


def gpt_oss(**settings):
    """Limits that many gates and many numbers next to them pass."""
    return decoder(GptOssConfig, pad_token_id=None, eos_token_id=VOCAB - 1, **settings)


def gpt_oss_even(hidden_size=16, intermediate_size=16):
    return gpt_oss(hidden_size=hidden_size, intermediate_size=intermediate_size, num_local_experts=4,
                   num_experts_per_tok=3, sliding_window=11, swiglu_alpha=1.3, swiglu_limit=1.1,
                   layer_types=["full_attention", "sliding_attention"], attention_bias=False,
                   tie_word_embeddings=True, rms_norm_eps=1e-3, rope={"rope_theta": 5e4})


# Windows below are shorter than the sequences.
QWEN_WINDOW = {"use_sliding_window": True, "sliding_window": 11}


# At these settings two of the five frequencies stay, one is blended, two are divided by the factor.
ROPE_LLAMA3 = {"rope_type": "llama3", "rope_theta": 500.0, "factor": 8.0, "low_freq_factor": 1.0,
               "high_freq_factor": 4.0, "original_max_position_embeddings": 100}

# Rotary positions of Gemma 3's layers.
BY_TYPE = {"sliding_attention": {"rope_type": "default", "rope_theta": 300.0},
           "full_attention": {"rope_type": "default", "rope_theta": 5e5}}

# No value is what its absence would mean; products of bf16 with these are not exact.
GRANITE = {"attention_multiplier": 0.21, "embedding_multiplier": 2.7, "residual_multiplier": 0.63,
           "logits_scaling": 1.3}

# At this base and context one of the five frequencies stays, two are blended, two are divided by the factor.
ROPE_YARN = {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 64}


def phi3_longrope(original):
    """Six of ten features of each head are rotated; sequences are shorter or longer than the original context."""
    rope = {"rope_type": "longrope", "rope_theta": 300.0, "short_factor": [1.1, 1.3, 2.5], "long_factor": [1.7, 3.0, 5.5],
            "partial_rotary_factor": 0.6}
    return decoder(Phi3Config, hidden_size=20, heads=2, rope=rope, pad_token_id=None,
                   eos_token_id=VOCAB - 1, original_max_position_embeddings=original, tie_word_embeddings=original < 64)


FULL = {
    "gpt2": lambda: gpt2(heads=3, n_inner=47),
    "gpt2_gelu": lambda: gpt2(n_inner=23, activation_function="gelu", layer_norm_epsilon=1e-3),
    "gpt2_relu": lambda: gpt2(heads=1, activation_function="relu"),
    "gpt2_inverse_layer": lambda: gpt2(n_inner=23, scale_attn_by_inverse_layer_idx=True, tie_word_embeddings=False),
    # Caps that bend most scores and logits.
    "gemma2": lambda: gemma(Gemma2Config, sliding_window=7, query_pre_attn_scalar=6, attn_logit_softcapping=0.8,
                            final_logit_softcapping=2.5),
    "gemma2_bias": lambda: gemma(Gemma2Config, attention_bias=True, tie_word_embeddings=False, sliding_window=11,
                                 layer_types=["full_attention", "sliding_attention"], rms_norm_eps=1e-3,
                                 attn_logit_softcapping=None, final_logit_softcapping=None, hidden_activation="silu",
                                 query_pre_attn_scalar=10),
    "gemma3_text": lambda: gemma(Gemma3TextConfig, sliding_window=7, query_pre_attn_scalar=14,
                                 layer_types=["sliding_attention", "full_attention"],
                                 rope=BY_TYPE | {"full_attention": {"rope_type": "linear", "rope_theta": 5e5,
                                 "factor": 2.5}}),
    "gemma3_text_bias": lambda: gemma(Gemma3TextConfig, kv_heads=3, attention_bias=True, sliding_window=11,
                                      layer_types=["sliding_attention"] * 2, tie_word_embeddings=False,
                                      rms_norm_eps=1e-3, final_logit_softcapping=3.0, query_pre_attn_scalar=10,
                                      rope=BY_TYPE),
    "gpt_oss": lambda: gpt_oss(intermediate_size=13, num_local_experts=5, num_experts_per_tok=2, sliding_window=7,
                               swiglu_limit=0.7, rope=ROPE_UNTRUNCATED),
    "gpt_oss_even": gpt_oss_even,
    "gpt_oss_balanced": lambda: gpt_oss(intermediate_size=13, num_local_experts=3, num_experts_per_tok=1,
                                        sliding_window=9, layer_types=["sliding_attention"] * 2,
                                        output_router_logits=True, router_aux_loss_coef=0.3, rope=ROPE_YARN),
    "granite": lambda: decoder(GraniteConfig, **GRANITE),
    "granite_bias": lambda: decoder(GraniteConfig, attention_bias=True, mlp_bias=True, tie_word_embeddings=True,
                                    logits_scaling=2.0),
    # Divisible among 3 ranks, and large enough that its plans differ by the memory that they get.
    "llama": lambda: llama(hidden_size=36, intermediate_size=39, heads=6, kv_heads=3),
    "llama_tied": lambda: llama(tie_word_embeddings=True, rms_norm_eps=1e-5),
    # The optimizers' base: wide enough that the sign of one element is within the bound of a norm's update by Lion.
    "llama_bias": lambda: llama(hidden_size=27, kv_heads=3, attention_bias=True, mlp_bias=True),
    "llama_rope_linear": lambda: llama(rope={"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.5}),
    "llama_rope_llama3": lambda: llama(rope=ROPE_LLAMA3, rms_norm_eps=1e-2),
    "llama_rope_yarn": lambda: llama(rope=ROPE_YARN),
    "mistral": lambda: decoder(MistralConfig, sliding_window=7),
    # Fewer tokens than fill a tile; experts that get none in some steps; all experts for each token.
    "mixtral": lambda: decoder(MixtralConfig, intermediate_size=13, sliding_window=7, num_local_experts=5,
                               num_experts_per_tok=2),
    "mixtral_all": lambda: decoder(MixtralConfig, intermediate_size=13, tie_word_embeddings=True, rms_norm_eps=1e-3,
                                   num_local_experts=3, num_experts_per_tok=3),
    "mixtral_balanced": lambda: decoder(MixtralConfig, intermediate_size=13, num_local_experts=5, num_experts_per_tok=2,
                                        output_router_logits=True, router_aux_loss_coef=0.2),
    "olmoe": lambda: decoder(OlmoeConfig, hidden_size=20, intermediate_size=9, heads=2, pad_token_id=None,
                             eos_token_id=VOCAB - 1, num_experts=8, num_experts_per_tok=3),
    "olmoe_bias": lambda: decoder(OlmoeConfig, hidden_size=20, intermediate_size=9, heads=2, kv_heads=2,
                                  pad_token_id=None, eos_token_id=VOCAB - 1, attention_bias=True, norm_topk_prob=True,
                                  tie_word_embeddings=True, num_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-3),
    "olmo2": lambda: decoder(Olmo2Config, pad_token_id=None, eos_token_id=VOCAB - 1),
    "olmo2_bias": lambda: decoder(Olmo2Config, attention_bias=True, tie_word_embeddings=True, rms_norm_eps=1e-3,
                                  rope={"rope_theta": 5e5}, pad_token_id=None, eos_token_id=VOCAB - 1),
    "opt": lambda: opt(),
    "opt_post_norm": lambda: opt(do_layer_norm_before=False, word_embed_proj_dim=13, enable_bias=False,
                                 activation_function="gelu", tie_word_embeddings=False),
    "phi3": lambda: decoder(Phi3Config, intermediate_size=21, kv_heads=3, sliding_window=13, pad_token_id=None,
                            eos_token_id=VOCAB - 1, resid_pdrop=0.1),
    "phi3_longrope": lambda: phi3_longrope(64),
    "phi3_longrope_long": lambda: phi3_longrope(8),
    "qwen2": lambda: decoder(Qwen2Config, hidden_size=20, heads=4, kv_heads=2, **QWEN_WINDOW, max_window_layers=1),
    "qwen2_tied": lambda: decoder(Qwen2Config, hidden_size=20, heads=2, tie_word_embeddings=True,
                                  rope={"rope_theta": 1e6}),
    "qwen2_moe": lambda: decoder(Qwen2MoeConfig, num_experts=6, num_experts_per_tok=3, moe_intermediate_size=9,
                                 shared_expert_intermediate_size=13),
    "qwen2_moe_tied": lambda: decoder(Qwen2MoeConfig, num_experts=4, num_experts_per_tok=2, qkv_bias=False,
                                      moe_intermediate_size=12, shared_expert_intermediate_size=11, norm_topk_prob=True,
                                      tie_word_embeddings=True),
    "qwen3_moe": lambda: decoder(Qwen3MoeConfig, num_experts=7, num_experts_per_tok=2, moe_intermediate_size=9,
                                 norm_topk_prob=True, rope={"rope_theta": 1e6}),
    "qwen3_moe_balanced": lambda: decoder(Qwen3MoeConfig, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=9,
                                          norm_topk_prob=True, output_router_logits=True, router_aux_loss_coef=0.5),
    "qwen3_moe_bias": lambda: decoder(Qwen3MoeConfig, num_experts=3, num_experts_per_tok=2, attention_bias=True,
                                      moe_intermediate_size=11, tie_word_embeddings=True),
    # Divisible among 3 ranks, and so is phi3.
    "qwen3": lambda: decoder(Qwen3Config, intermediate_size=21, kv_heads=3, tie_word_embeddings=True, rope={"rope_theta": 1e6}),
    "qwen3_bias": lambda: decoder(Qwen3Config, attention_bias=True, **QWEN_WINDOW, layer_types=["sliding_attention",
                                  "full_attention"]),
    "smollm3": lambda: smollm3(**QWEN_WINDOW, no_rope_layer_interval=2, rope={"rope_theta": 5e6}),
    "smollm3_bias": lambda: smollm3(attention_bias=True, mlp_bias=True, tie_word_embeddings=False, no_rope_layers=[0,
                                    1], sliding_window=13, use_sliding_window=True, layer_types=["full_attention",
                                    "sliding_attention"]),
}


def store_bf16(folder, model):
    model.to(torch.bfloat16).save_pretrained(folder)


def store_f16(folder, model):
    model.to(torch.float16).save_pretrained(folder)


def store_sharded(folder, model):
    model.save_pretrained(folder, max_shard_size="13KB")


def store_base(folder, model, more=()):
    """Without the name of the base model before the names: as published GPT-2 and OPT files are."""
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(folder)
    tensors = model.base_model.state_dict() | dict(more)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})


def store_masks(folder, model):
    """As store_base, and the causal masks stored as tensors."""
    tensors, positions = {}, model.config.n_positions
    for layer in range(model.config.n_layer):
        tensors[f"h.{layer}.attn.bias"] = torch.ones(positions, positions).tril()[None, None].contiguous()
    store_base(folder, model, tensors)


def store_older_config(folder, model):
    """With rope_theta, rope_scaling and torch_dtype, and without layer_types, as transformers wrote configs before
    release 5."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    scaling = config.pop("rope_parameters")
    config["rope_theta"] = scaling.pop("rope_theta")
    if scaling["rope_type"] == "linear":
        scaling["type"] = scaling.pop("rope_type")
    config["rope_scaling"] = None if scaling.get("rope_type") == "default" else scaling
    config.pop("layer_types", None)
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.43.0"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def store_older_bases(folder, model):
    """As store_older_config, of Gemma 3: two bases, and a pattern in place of layer_types."""
    model.save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    by_type = config.pop("rope_parameters")
    config["rope_local_base_freq"] = by_type["sliding_attention"]["rope_theta"]
    scaling = by_type["full_attention"]
    config["rope_theta"] = scaling.pop("rope_theta")
    config["rope_scaling"] = scaling
    config["sliding_window_pattern"] = 2
    del config["layer_types"]
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.50.0"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def store_older_longrope(folder, model):
    """As store_older_config, with the share of a head next to rope_scaling."""
    store_older_config(folder, model)
    config = json.loads((folder / "config.json").read_text())
    scaling = config["rope_scaling"]
    config["partial_rotary_factor"] = scaling.pop("partial_rotary_factor")
    scaling.pop("original_max_position_embeddings")
    scaling["type"] = scaling.pop("rope_type")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def store_wrapped(folder, model):
    """Gemma 3 next to a vision tower, which is not trained."""
    vision = SiglipVisionConfig(hidden_size=14, intermediate_size=22, num_hidden_layers=1, num_attention_heads=2,
                                image_size=8, patch_size=4)
    config = Gemma3Config(text_config=model.config, vision_config=vision, mm_tokens_per_image=4,
                          image_token_index=VOCAB, boi_token_index=VOCAB - 3, eoi_token_index=VOCAB - 2)
    torch.manual_seed(seed_of(folder.name))
    wrapper = Gemma3ForConditionalGeneration(config).eval()
    wrapper.model.language_model.load_state_dict(model.model.state_dict())
    wrapper.save_pretrained(folder)


def store_wrapped_modules(folder, model):
    """With the names that the modules have, as transformers 4.52 wrote them, the vision tower in bf16, and in
    text_config no more than what is not assumed, as in the authors' files."""
    store_wrapped(folder, model)
    path = folder / "model.safetensors"
    tensors = safetensors.torch.load_file(path)
    text = "language_model.model."
    renamed = {name.replace(text, "model.language_model."): tensor for name, tensor in tensors.items()
               if name.startswith(text)}
    renamed |= {f"model.{name}": tensor.to(torch.bfloat16) for name, tensor in tensors.items()
                if not name.startswith(text)}
    safetensors.torch.save_file(renamed, path, {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    text = config["text_config"]
    by_type = text.pop("rope_parameters")
    kept = ("model_type", "vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
            "num_key_value_heads", "head_dim", "query_pre_attn_scalar", "sliding_window", "pad_token_id")
    config["text_config"] = {key: text[key] for key in kept} | {
        "rope_scaling": {"rope_type": "linear", "factor": by_type["full_attention"]["factor"]},
        "rope_theta": by_type["full_attention"]["rope_theta"], "sliding_window_pattern": 2,
        "rope_local_base_freq": by_type["sliding_attention"]["rope_theta"]}
    config["torch_dtype"] = config.pop("dtype")
    config["transformers_version"] = "4.52.0"
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def store_older_experts(folder, model):
    """As store_older_config, with the number of experts by the name that it had."""
    store_older_config(folder, model)
    config = json.loads((folder / "config.json").read_text())
    config["num_experts"] = config.pop("num_local_experts")
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def mxfp4_of(weights):
    """[E, in, out] as blocks [E, out, in / 32, 16] and the exponents of their scales [E, out, in / 32]."""
    turned = weights.detach().transpose(1, 2).contiguous()
    made = quantised_cases.mxfp4(turned.reshape(-1, turned.shape[2]))
    shape = (*turned.shape[:2], turned.shape[2] // 32)
    return made[""].reshape(*shape, 16), made[".scales"].reshape(shape)


def store_mxfp4(folder, _):
    """As OpenAI publishes the models: experts in MXFP4, all else in bf16. Rows are one and two whole blocks."""
    model = make_model(gpt_oss_even(hidden_size=32, intermediate_size=64), seed_of(folder.name))
    model.config.save_pretrained(folder)
    tensors = {}
    for name, tensor in model.state_dict().items():
        if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            tensors[f"{name}_blocks"], tensors[f"{name}_scales"] = mxfp4_of(tensor)
        elif name != "lm_head.weight" or not model.config.tie_word_embeddings:
            tensors[name] = tensor.to(torch.bfloat16)
    safetensors.torch.save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config |= {"dtype": "bfloat16", "architectures": ["GptOssForCausalLM"], "initial_context_length": 64,
               "experts_per_token": 3,
               "quantization_config": {"quant_method": "mxfp4",
                                       "modules_to_not_convert": ["model.layers.*.self_attn",
                                                                  "model.layers.*.mlp.router", "model.embed_tokens",
                                                                  "lm_head"]}}
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


def store_interval(folder, model):
    """As store_older_config, and without the list of layers that have no rotary positions."""
    store_older_config(folder, model)
    config = json.loads((folder / "config.json").read_text())
    del config["no_rope_layers"]
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True) + "\n")


LIGHT = {
    "gemma2_older": ("gemma2", store_older_config),
    "gemma3_text_older": ("gemma3_text", store_older_bases),
    "gemma3_wrapped": ("gemma3_text", store_wrapped),
    "gemma3_wrapped_modules": ("gemma3_text", store_wrapped_modules),
    "gpt_oss_mxfp4": ("gpt_oss_even", store_mxfp4),
    "gpt_oss_older": ("gpt_oss", store_older_config),
    "granite_older": ("granite", store_older_config),
    "olmo2_older": ("olmo2", store_older_config),
    "gpt2_bare": ("gpt2_relu", store_masks),
    "gpt2_f16": ("gpt2_gelu", store_f16),
    "llama_bf16": ("llama_bias", store_bf16),
    "llama_sharded": ("llama_tied", store_sharded),
    "llama_rope_scaling_linear": ("llama_rope_linear", store_older_config),
    "llama_rope_scaling_llama3": ("llama_rope_llama3", store_older_config),
    "mistral_older": ("mistral", store_older_config),
    "mixtral_older": ("mixtral", store_older_config),
    "qwen3_moe_older": ("qwen3_moe", store_older_experts),
    "opt_bare": ("opt", store_base),
    "phi3_older": ("phi3", store_older_config),
    "phi3_longrope_older": ("phi3_longrope_long", store_older_longrope),
    "qwen2_older": ("qwen2", store_older_config),
    "qwen3_older": ("qwen3", store_older_config),
    "smollm3_interval": ("smollm3", store_interval),
}


def names():
    return FULL.keys() | LIGHT.keys()


# With the seed of their names alone, near ties decide how training of these goes: ties between experts, between the
# codes of int8 moments, between the signs of Lion, or an adapter's large scale.
SEED_SUFFIX = {"llama_bias": "2", "qwen2_lora": "2", "qwen2_moe": "2"}


def seed_of(case):
    return zlib.crc32((case + SEED_SUFFIX.get(case, "")).encode())


def gemma_norm(self, x):
    return self._norm(x) * (1 + self.weight)


@contextlib.contextmanager
def all_double():
    """Lifts to fp64 what transformers casts to fp32 inside the models: RMSNorm, softmax and rotary angles."""
    with contextlib.ExitStack() as patches:
        patches.enter_context(unittest.mock.patch.multiple(torch, float=torch.float64, float32=torch.float64))
        patches.enter_context(unittest.mock.patch.object(torch.Tensor, "float", torch.Tensor.double))
        for norm in Gemma2RMSNorm, Gemma3RMSNorm:
            patches.enter_context(unittest.mock.patch.object(norm, "forward", gemma_norm))
        yield


EXPERT_PARTS = {"mixtral": ("w1", "w3", "w2")}


def in_files(model, tensors):
    """The tensors of parameters by their names in the files, where experts are apart from each other, and gate and up
    too."""
    parts = EXPERT_PARTS.get(model.config.model_type, ("gate_proj", "up_proj", "down_proj"))
    found = {}
    for name, tensor in tensors.items():
        if model.config.model_type == "mixtral":
            name = name.replace(".mlp.", ".block_sparse_moe.")
        if ".experts." not in name:
            found[name] = tensor
            continue
        layer, packed = name.split(".experts.")
        if model.config.model_type == "gpt_oss":  # an expert's part of a tensor has no name there
            found |= {f"{layer}.experts.{expert}.{packed}": part for expert, part in enumerate(tensor)}
            continue
        for expert, weight in enumerate(tensor):
            split = zip(parts[:2], weight.chunk(2)) if packed == "gate_up_proj" else [(parts[2], weight)]
            found |= {f"{layer}.experts.{expert}.{part}.weight": value for part, value in split}
    return found


def in_files_of(model):
    return in_files(model, dict(model.named_parameters()))


EAGER = {"attn_implementation": "eager", "experts_implementation": "eager"}


def make_model(config, seed):
    """No weight is left at a value that hides it: norms are away from 1, biases away from 0."""
    model = AutoModelForCausalLM.from_config(config, **EAGER).eval()
    rng = numpy.random.default_rng(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = torch.from_numpy(rng.standard_normal(parameter.shape, dtype=numpy.float32))
            is_norm = parameter.dim() == 1 and name.endswith("weight")
            center = 0 if config.model_type.startswith("gemma") else 1  # where norms multiply by 1 + weight
            parameter.copy_(center + 0.25 * value if is_norm else 0.19 * value)
    return model


def copy_of(model, dtype):
    twin = AutoModelForCausalLM.from_config(model.config, **EAGER, dtype=dtype).eval()
    twin.load_state_dict(model.state_dict())
    return twin


def make_batch(rng, masked_sequence):
    """Frequent tokens are small, so that there is something to learn. One label in ten is masked, and most of one
    sequence's; all of it where masked_sequence is 1."""
    tokens = (VOCAB * rng.random((BATCH, TOKENS + 1)) ** 3).astype(numpy.int32)
    ids, labels = torch.from_numpy(tokens[:, :-1].copy()), torch.from_numpy(tokens[:, 1:].copy())
    labels[torch.from_numpy(rng.random(labels.shape) < 0.1)] = -100
    labels[masked_sequence, : TOKENS if masked_sequence == 1 else 22] = -100
    return ids, labels


def make_batches():
    """The tokens that every case computes with: one batch for logits and gradients, and one a step."""
    rng = numpy.random.default_rng(seed_of(BATCHES))
    ids, labels = make_batch(rng, 2)
    return ids, labels, [make_batch(rng, step % BATCH) for step in range(STEPS)]


def write_batches(path):
    ids, labels, batches = make_batches()
    train_ids, train_labels = (torch.stack(part) for part in zip(*batches))
    save_tensors({"input_ids": ids, "labels": labels, "train.input_ids": train_ids, "train.labels": train_labels}, path)


def save_tensors(tensors, path):
    safetensors.torch.save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(0o644)


def balance_of(model, ids, labels):
    """The loss that balances experts, of each micro-batch by itself, by the labels that it has of all."""
    counts = [(part != -100).sum() for part in labels.split(BALANCED_MICRO_BATCH)]
    losses = [model(input_ids=part.long(), use_cache=False, output_router_logits=True).aux_loss
              for part in ids.split(BALANCED_MICRO_BATCH)]
    return model.config.router_aux_loss_coef * sum(count * loss for count, loss in zip(counts, losses)) / sum(counts)


def is_balanced(config):
    return getattr(config, "output_router_logits", False)


def loss_of(model, ids, labels):
    logits = model(input_ids=ids.long(), use_cache=False).logits
    wide = logits if logits.dtype == torch.float64 else logits.float()
    loss = cross_entropy(wide.flatten(0, 1), labels.flatten().long(), ignore_index=-100)
    return loss + balance_of(model, ids, labels) if is_balanced(model.config) else loss, logits


def gradients(model, ids, labels):
    model.zero_grad()
    loss, logits = loss_of(model, ids, labels)
    loss.backward()
    return loss.item(), logits.detach(), {name: p.grad.clone() for name, p in model.named_parameters()
                                         if p.grad is not None}


def lr_at(step):
    """A linear warm-up, then half a cosine down to the least fraction."""
    warmup, fraction = TRAINING["warmup_steps"], TRAINING["min_lr_fraction"]
    if step < warmup:
        return TRAINING["lr"] * (step + 1) / warmup
    done = (step - warmup) / (STEPS - warmup)
    return TRAINING["lr"] * (fraction + (1 - fraction) * 0.5 * (1 + math.cos(math.pi * done)))


class Together:
    """Optimizers of different parameters as one."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers
        self.param_groups = [group for optimizer in optimizers for group in optimizer.param_groups]

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def make_muon(model):
    """Muon for the matrices of layers, AdamW for embeddings, head, norms and biases."""
    tables = {id(part.weight) for part in (model.get_input_embeddings(), model.get_output_embeddings())}
    matrices = [p for p in model.parameters() if p.dim() == 2 and id(p) not in tables]
    decay = TRAINING["weight_decay"]
    groups = [{"params": [p for p in model.parameters() if id(p) in tables], "weight_decay": decay},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    return Together(torch.optim.Muon(matrices, weight_decay=decay, momentum=TRAINING["muon_momentum"],
                                     adjust_lr_fn="match_rms_adamw"),
                    torch.optim.AdamW(groups, betas=TRAINING["betas"], eps=TRAINING["eps"], foreach=False))


def muon_in_fp32():
    """torch.optim.Muon's own products, but in the gradient's dtype instead of bfloat16."""
    module = sys.modules["torch.optim._muon"]
    source = inspect.getsource(module._zeropower_via_newtonschulz)
    assert "dtype=torch.bfloat16" in source
    scope = dict(vars(module))
    exec(source.replace("dtype=torch.bfloat16", "dtype=grad.dtype"), scope)
    return unittest.mock.patch.object(module, "_zeropower_via_newtonschulz", scope["_zeropower_via_newtonschulz"])


def make_optimizer(model):
    decayed = {n: p.dim() >= 2 and not n.endswith("_bias") for n, p in model.named_parameters()}  # those of experts
    groups = [{"params": [p for n, p in model.named_parameters() if decayed[n]],
               "weight_decay": TRAINING["weight_decay"]},
              {"params": [p for n, p in model.named_parameters() if not decayed[n]], "weight_decay": 0.0}]
    betas = TRAINING["betas"]
    if TRAINING.get("optimizer_dtype") == "int8":  # of all tensors, however small
        of_all = {"min_8bit_size": 0}
        return {"adamw": lambda: bitsandbytes.optim.AdamW8bit(groups, betas=betas, eps=TRAINING["eps"], **of_all),
                "lion": lambda: bitsandbytes.optim.Lion8bit(groups, betas=betas, **of_all),
                "sgd": lambda: bitsandbytes.optim.SGD8bit(groups, lr=1, momentum=betas[0], **of_all),
                }[TRAINING["optimizer"]]()
    return {"muon": lambda: make_muon(model),
            "adamw": lambda: torch.optim.AdamW(groups, betas=betas, eps=TRAINING["eps"], foreach=False),
            "lion": lambda: lion_pytorch.Lion(groups, betas=betas),
            "sgd": lambda: torch.optim.SGD(groups, momentum=betas[0], foreach=False)}[TRAINING["optimizer"]]()


def train(model, batches, clip_norm, gradients_at=gradients):
    """Trains in place; gradients_at(model, ids, labels) gives loss, logits and gradients in the model's dtype."""
    optimizer = make_optimizer(model)
    losses, norms = [], []
    for step, (ids, labels) in enumerate(batches):
        loss, _, grads = gradients_at(model, ids, labels)
        for name, parameter in model.named_parameters():
            parameter.grad = grads[name].to(parameter.dtype)
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm, foreach=False)
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)
        optimizer.step()
        losses.append(loss)
        norms.append(norm.item())
    return losses, norms


def gradients_in_halves(model, ids, labels, gradients_of=gradients):
    """The same sums in another order: two sequences at a time, added in fp32."""
    counts = [(part != -100).sum() for part in labels.chunk(2)]
    parts = [gradients_of(model, *half) for half in zip(ids.chunk(2), labels.chunk(2))]
    weights = [count / sum(counts) for count in counts]
    mixed = {name: sum(weight * part[2][name].float() for weight, part in zip(weights, parts)) for name in parts[0][2]}
    return sum(weight.item() * part[0] for weight, part in zip(weights, parts)), None, mixed


def train_bf16(model, batches, clip_norm, gradients_of=gradients):
    """The bf16 recipe. The model holds fp32 masters; each step casts them to bfloat16 for forward (eager attention) and
    backward, and the logits to fp32 for softmax and loss. Gradients are cast to fp32 and clipped by their global norm,
    and the optimizer updates the masters in fp32."""
    twin = copy_of(model, torch.bfloat16)

    def gradients_at(masters, ids, labels):
        twin.load_state_dict(masters.state_dict())
        return gradients_of(twin, ids, labels)

    return train(model, batches, clip_norm, gradients_at)[0]


def updates_off(found, exact, initial):
    """For each parameter, |found - exact| / |exact - initial|; each argument is {name: tensor}."""
    return {name: float(f"{(found[name] - exact[name]).norm() / (exact[name] - initial[name]).norm():.4g}")
            for name in exact}


def bf16_updates(initial, trained, ways):
    """What reference.json says of bf16 training. ways: the parameters that the recipe ended with, by two orders of its
    sums. Neither is nearer to the truth, so the second one's error over the first one's is how far another correct
    implementation may be from the recorded numbers: the largest and the mean over all parameters. The sign of a single
    element's gradient decides below BF16_MIN, which is added to the first one's error."""
    off, other = (updates_off(way, trained, initial) for way in ways)
    ratios = [other[name] / (off[name] + BF16_MIN) for name in off]
    return {"bf16_updates_off": off, "bf16_updates_spread": {"most": max(ratios), "mean": sum(ratios) / len(ratios)}}


def choose_clip_norm(norms_at):
    """A norm that most steps pass and some do not; norms_at(clip_norm) are the norms of training's steps."""
    clip_norm = 1.0
    for _ in range(20):
        norms = sorted(norms_at(clip_norm))
        if 13 <= sum(norm > clip_norm for norm in norms) <= 16:
            return clip_norm
        clip_norm = float(f"{(norms[5] + norms[6]) / 2:.3g}")
    raise RuntimeError(f"no norm clips 13 to 16 of {STEPS} steps; the last norms are {norms}")


def spread(found, exact):
    """The largest relative difference between two lists of numbers."""
    return max(abs(a - b) / abs(b) for a, b in zip(found, exact))


def double_check(model, ids, labels, batches, clip_norm, tensors, grads):
    """Adds the fp64 references; returns how far fp32 is from them: what a correct fp32 implementation may differ by."""
    with all_double(), muon_in_fp32():
        exact = copy_of(model, torch.float64)
        loss64, _, grads64 = gradients(exact, ids, labels)
        losses64, _ = train(exact, batches, clip_norm)
    tensors["loss64"] = torch.tensor([loss64], dtype=torch.float64)
    tensors |= {f"grad64.{name}": grad.float() for name, grad in in_files(model, grads64).items()}
    scale = math.sqrt(sum(g.norm().item() ** 2 for g in grads64.values()) / len(grads64))
    return losses64, {
        "gradient": max((grads[n] - g).norm().item() / (g.norm().item() + 1e-3 * scale) for n, g in grads64.items()),
        "losses": spread(tensors["train.losses"].tolist(), losses64),
        # bitsandbytes updates in fp32, whatever the model's dtype, so that there is nothing to compare with.
        "final": None if "optimizer_dtype" in TRAINING else max(
            ((tensors[f"final.{n}"] - p).norm() / p.norm()).item() for n, p in in_files_of(exact).items()),
    }


def reference_of(model, case):
    ids, labels, batches = make_batches()
    loss, logits, grads = gradients(model, ids, labels)
    tensors = {"logits": logits, "loss": torch.tensor([loss], dtype=torch.float64)}
    about = {"case": case, "seed": seed_of(case), "torch": torch.__version__.split("+")[0],
             "transformers": transformers.__version__}
    if is_balanced(model.config):
        about["grain_sequences"] = BALANCED_MICRO_BATCH
    if case in LIGHT:
        with all_double():
            tensors["loss64"] = loss_of(copy_of(model, torch.float64), ids, labels)[0].detach()[None]
        return tensors, about

    trained = copy_of(model, torch.float32)
    with muon_in_fp32():
        clip_norm = choose_clip_norm(lambda norm: train(copy_of(model, torch.float32), batches, norm)[1])
        losses, norms = train(trained, batches, clip_norm)
    bf16, halves = copy_of(model, torch.float32), copy_of(model, torch.float32)
    losses_bf16 = train_bf16(bf16, batches, clip_norm)
    train_bf16(halves, batches, clip_norm, gradients_in_halves)
    for name, values in {"losses": losses, "grad_norms": norms, "losses_bf16": losses_bf16,
                         "lrs": [lr_at(step) for step in range(STEPS)]}.items():
        tensors[f"train.{name}"] = torch.tensor(values, dtype=torch.float64)
    tensors |= {f"final.{name}": parameter.detach() for name, parameter in in_files_of(trained).items()}
    losses64, fp32_error = double_check(model, ids, labels, batches, clip_norm, tensors, grads)

    clipped = sum(norm > clip_norm for norm in norms)
    about |= {"training": TRAINING | {"clip_norm": clip_norm}, "steps_clipped": clipped, "fp32_from_fp64": fp32_error,
              "bf16_losses_from_fp64": spread(losses_bf16, losses64)}
    about |= bf16_updates(*(in_files_of(m) for m in (model, trained)), [in_files_of(m) for m in (bf16, halves)])
    print(f"{case}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {clipped} steps clipped, fp32 from fp64: "
          + ", ".join(f"{what} {error:.1e}" for what, error in fp32_error.items() if error is not None)
          + f", bf16 losses {about['bf16_losses_from_fp64']:.1e}, updates {max(about['bf16_updates_off'].values()):.2f}"
          f", in halves times {about['bf16_updates_spread']['most']:.2f}")
    return tensors, about


def share(folder, source, name):
    (folder / name).unlink(missing_ok=True)
    (folder / name).symlink_to(f"../{source}/{name}")


def has_logits_of(folder, source, tensors):
    path = folder.parent / source / "reference.safetensors"
    return source != folder.name and torch.equal(safetensors.torch.load_file(path)["logits"], tensors["logits"])


def write_reference(folder, case, source):
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **EAGER).eval()
    tensors, about = reference_of(model, case)
    if has_logits_of(folder, source, tensors):
        share(folder, source, "reference.safetensors")
    else:
        save_tensors(tensors, folder / "reference.safetensors")
    (folder / "reference.json").write_text(json.dumps(about, indent=2) + "\n")


def write_case(folder, case):
    source, store = LIGHT.get(case, (case, lambda folder, model: model.save_pretrained(folder)))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    store(folder, make_model(FULL[source](), seed_of(source)))
    write_reference(folder, case, source)
    weights, original = folder / "model.safetensors", folder.parent / source / "model.safetensors"
    if source != case and weights.exists() and weights.read_bytes() == original.read_bytes():
        share(folder, source, weights.name)
    (folder / "generation_config.json").unlink(missing_ok=True)
    for path in folder.iterdir():
        path.chmod(0o644)


def write(root, wanted):
    transformers.utils.logging.disable_progress_bar()
    for case in [*sorted(FULL), *sorted(LIGHT)]:  # the full cases first, which the others share files with
        if not wanted or case in wanted:
            write_case(root / "models" / case, case)
