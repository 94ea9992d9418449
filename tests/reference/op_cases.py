"""Single operators and their gradients: tensors in ops.safetensors, each case's operator and attributes in ops.json.

<case>.in.<k>    F32 or I32   inputs
<case>.dout.<k>  F32          gradients of the outputs
<case>.out.<k>   F32          outputs, computed in fp64 and then rounded: by 1/300 of the tests' bound at most
<case>.din.<k>   F32          gradients of the floating-point inputs, likewise

A load_balancing case has the logits of two routers, x and x2, the log-probabilities of targets, and targets, of which
-100 is masked and -101 is padding.

Activations are [B,T,heads*D] (or [rows, columns]); a linear weight is [N,K] as in torch.nn.Linear, a conv1d weight
[K,N] as in transformers' Conv1D, which GPT-2 uses. Segment ids rise along a sequence: tokens attend within their own.
"""

import json
import shutil
import zlib

import numpy
import safetensors.torch
import torch
import torch.nn.functional as F
import transformers
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb
from transformers.models.mixtral.modeling_mixtral import load_balancing_loss_func
from transformers.models.phi3.modeling_phi3 import Phi3RotaryEmbedding, apply_rotary_pos_emb as phi3_apply
from transformers.pytorch_utils import Conv1D

from model_cases import ROPE_LLAMA3, ROPE_YARN, all_double

BATCH, TOKENS, HEADS, KV_HEADS, HEAD_DIM, HIDDEN, VOCAB = 2, 37, 3, 1, 10, 45, 131
ROPE_HEADS = 2


def rms_norm(inputs, attributes):
    x, weight = inputs["x"], inputs["weight"]
    groups = x.unflatten(-1, (-1, len(weight)))  # the weight's length says how many features make a norm
    return F.rms_norm(groups, weight.shape, weight, attributes["eps"]).flatten(-2)


def rms_norm_one_plus(inputs, attributes):
    return rms_norm({"x": inputs["x"], "weight": 1 + inputs["weight"]}, attributes)


def soft_cap(values, attributes):
    softcap = attributes.get("softcap")
    return values if softcap is None else softcap * torch.tanh(values / softcap)


def layer_norm(inputs, attributes):
    x = inputs["x"]
    return F.layer_norm(x, x.shape[-1:], inputs["weight"], inputs["bias"], attributes["eps"])


def by_heads(x, heads):
    return x.unflatten(-1, (heads, -1)).transpose(1, 2)


def rope_partial(inputs, attributes):
    heads, head_dim = attributes["heads"], attributes["head_dim"]
    config = transformers.Phi3Config(hidden_size=heads * head_dim, num_attention_heads=heads, pad_token_id=None,
                                     max_position_embeddings=320, rope_parameters=dict(attributes["rope"]),
                                     original_max_position_embeddings=80)
    with all_double():
        cos, sin = Phi3RotaryEmbedding(config)(inputs["x"], inputs["positions"].long())
    x = by_heads(inputs["x"], heads)
    return phi3_apply(x, x, cos, sin)[0].transpose(1, 2).flatten(2)


def rope(inputs, attributes):
    heads, head_dim = attributes["heads"], attributes["head_dim"]
    config = transformers.LlamaConfig(hidden_size=heads * head_dim, num_attention_heads=heads, head_dim=head_dim,
                                      rope_parameters=dict(attributes["rope"]))
    with all_double():
        cos, sin = LlamaRotaryEmbedding(config)(inputs["x"], inputs["positions"].long())
    assert cos.dtype == torch.float64
    x = by_heads(inputs["x"], heads)
    return apply_rotary_pos_emb(x, x, cos, sin)[0].transpose(1, 2).flatten(2)


def attention(inputs, attributes):
    heads, kv_heads = attributes["heads"], attributes["kv_heads"]
    q = by_heads(inputs["q"], heads)
    k, v = (by_heads(inputs[name], kv_heads).repeat_interleave(heads // kv_heads, 1) for name in "kv")
    tokens = q.shape[2]
    allowed = torch.ones(tokens, tokens, dtype=torch.bool).tril()
    if "window" in attributes:
        allowed = allowed.triu(1 - attributes["window"])
    if "segments" in inputs:
        segments = inputs["segments"]
        allowed = (allowed & (segments[:, :, None] == segments[:, None, :]))[:, None]
    scores = soft_cap(q @ k.transpose(2, 3) * attributes["scale"], attributes)
    out = scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ v
    return out.transpose(1, 2).flatten(2)


def linear(inputs, attributes):
    return F.linear(inputs["x"], inputs["weight"], inputs.get("bias"))


def conv1d(inputs, attributes):
    columns, outputs = inputs["weight"].shape
    layer = Conv1D(outputs, columns).double()
    return torch.func.functional_call(layer, {"weight": inputs["weight"], "bias": inputs["bias"]}, (inputs["x"],))


def linear_cross_entropy(inputs, attributes):
    logits = soft_cap(F.linear(inputs["x"], inputs["weight"]), attributes)
    return F.cross_entropy(logits, inputs["labels"].long(), ignore_index=-100, reduction="sum")[None]


def load_balancing(inputs, attributes):
    targets, routers = inputs["targets"], (inputs["x"].flatten(0, 1), inputs["x2"].flatten(0, 1))
    with all_double():
        balance = load_balancing_loss_func(routers, routers[0].shape[1], attributes["chosen"], targets != -101)
    trained = targets >= 0
    cross_entropy = -inputs["log_probability"].squeeze(-1)[trained].sum()
    return (cross_entropy + trained.sum() * attributes["coefficient"] * balance)[None]


OPERATORS = {
    "rmsnorm": rms_norm,
    "rmsnorm_one_plus": rms_norm_one_plus,
    "layernorm": layer_norm,
    "rope": rope,
    "rope_partial": rope_partial,
    "attention": attention,
    "gelu_tanh": lambda inputs, attributes: F.gelu(inputs["x"], approximate="tanh"),
    "gelu_erf": lambda inputs, attributes: F.gelu(inputs["x"]),
    "relu": lambda inputs, attributes: F.relu(inputs["x"]),
    "silu": lambda inputs, attributes: F.silu(inputs["x"]),
    "swiglu": lambda inputs, attributes: F.silu(inputs["gate"]) * inputs["up"],
    "embedding": lambda inputs, attributes: F.embedding(inputs["ids"].long(), inputs["weight"]),
    "linear": linear,
    "conv1d": conv1d,
    "linear_cross_entropy": linear_cross_entropy,
    "load_balancing": load_balancing,
}


class Inputs:
    """Draws the inputs of one case, seeded by its name."""

    def __init__(self, case):
        self.rng = numpy.random.default_rng(zlib.crc32(case.encode()))

    def normal(self, *shape, scale=1.0, mean=0.0):
        return torch.from_numpy((mean + scale * self.rng.standard_normal(shape)).astype(numpy.float32))

    def below(self, limit, *shape):
        return torch.from_numpy(self.rng.integers(0, limit, shape, dtype=numpy.int32))

    def wide(self):
        """Ordinary values, and ends where an exponential overflows or vanishes."""
        ends = torch.tensor([0.0, 1e-6, -1e-6, 12.0, -12.0, 40.0, -40.0, 300.0, -300.0])
        return torch.cat([self.normal(4 * 67 - len(ends), scale=2.0), ends]).view(4, 67)

    def positions(self):
        """Each sequence starts at a position of its own; the second jumps, as where documents are packed."""
        positions = torch.arange(TOKENS).repeat(BATCH, 1) + torch.tensor([[3], [71]])
        positions[1, 20:] = torch.arange(TOKENS - 20)
        return positions.int()

    def router(self, experts):
        """Logits that bf16 holds, of which no two of a token are alike."""
        ranks = self.rng.permuted(numpy.tile(numpy.arange(experts), (BATCH, TOKENS, 1)), axis=-1)
        return torch.from_numpy((0.375 * ranks - 1).astype(numpy.float32))

    def padded_targets(self):
        """Targets of which some are masked, and the last of each sequence are padding."""
        targets = self.below(VOCAB, BATCH, TOKENS)
        targets[:, :5] = -100
        targets[0, 23:] = -101
        targets[1, 11:] = -101
        return targets

    def labels(self, rows, vocab):
        labels = self.below(vocab, rows)
        labels[::7] = -100
        labels[20:33] = -100
        return labels


def norm_inputs(draw, scale=1.0, mean=0.0, bias=False, weight_mean=1.0):
    inputs = {"x": draw.normal(BATCH, 7, HIDDEN, scale=scale, mean=mean),
              "weight": draw.normal(HIDDEN, scale=0.3, mean=weight_mean)}
    return inputs | ({"bias": draw.normal(HIDDEN, scale=0.3)} if bias else {})


def attention_inputs(draw, batch=BATCH, tokens=TOKENS, heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM, scale=1.0):
    return {"q": draw.normal(batch, tokens, heads * head_dim, scale=scale),
            "k": draw.normal(batch, tokens, kv_heads * head_dim),
            "v": draw.normal(batch, tokens, kv_heads * head_dim)}


def head_norm_inputs(draw):
    return {"x": draw.normal(BATCH, TOKENS, HEADS * HEAD_DIM, scale=0.5),
            "weight": draw.normal(HEAD_DIM, scale=0.3, mean=1.0)}


def attention_attributes(heads=HEADS, kv_heads=KV_HEADS, head_dim=HEAD_DIM):
    return {"heads": heads, "kv_heads": kv_heads, "head_dim": head_dim, "scale": head_dim ** -0.5}


def segments():
    """Lengths 1, 16, 20 and 30, 7."""
    return torch.tensor([[0] + [1] * 16 + [2] * 20, [0] * 30 + [1] * 7], dtype=torch.int32)


def rope_inputs(draw):
    return {"x": draw.normal(BATCH, TOKENS, ROPE_HEADS * HEAD_DIM), "positions": draw.positions()}


def rope_attributes(**scaling):
    return {"heads": ROPE_HEADS, "head_dim": HEAD_DIM, "rope": {"rope_type": "default", "rope_theta": 10000.0} | scaling}


# Positions go up to 107, past the original context of 80.
LONGROPE = {"rope_type": "longrope", "rope_theta": 300.0, "partial_rotary_factor": 0.6, "short_factor": [1.0, 1.0, 1.0],
            "long_factor": [1.2, 2.0, 3.5]}


def linear_inputs(draw, weight_shape, bias):
    inputs = {"x": draw.normal(BATCH, 19, 45), "weight": draw.normal(*weight_shape, scale=0.15)}
    return inputs | ({"bias": draw.normal(53, scale=0.3)} if bias else {})


def loss_inputs(draw, columns, vocab, scale=0.3):
    return {"x": draw.normal(BATCH * TOKENS, columns), "weight": draw.normal(vocab, columns, scale=scale),
            "labels": draw.labels(BATCH * TOKENS, vocab)}


def load_balancing_inputs(draw):
    return {"x": draw.router(5), "x2": draw.router(5), "log_probability": draw.normal(BATCH, TOKENS, 1),
            "targets": draw.padded_targets()}


# case: operator, attributes, how its inputs are drawn
CASES = {
    "rmsnorm": ("rmsnorm", {"eps": 1e-5}, norm_inputs),
    "rmsnorm_small": ("rmsnorm", {"eps": 1e-6}, lambda draw: norm_inputs(draw, scale=1e-3)),
    "rmsnorm_heads": ("rmsnorm", {"eps": 1e-6}, head_norm_inputs),
    "rmsnorm_one_plus": ("rmsnorm_one_plus", {"eps": 1e-6}, lambda draw: norm_inputs(draw, weight_mean=0.0)),
    "layernorm": ("layernorm", {"eps": 1e-5}, lambda draw: norm_inputs(draw, bias=True)),
    "layernorm_offset": ("layernorm", {"eps": 1e-5}, lambda draw: norm_inputs(draw, mean=100.0, bias=True)),
    "rope": ("rope", rope_attributes(), rope_inputs),
    "rope_linear": ("rope", rope_attributes(rope_type="linear", factor=2.5), rope_inputs),
    "rope_llama3": ("rope", rope_attributes(**ROPE_LLAMA3), rope_inputs),
    "rope_yarn": ("rope", rope_attributes(**ROPE_YARN), rope_inputs),
    "rope_yarn_mscale": ("rope", rope_attributes(**ROPE_YARN, mscale=1.5, mscale_all_dim=0.4, beta_fast=3.0,
                                                 beta_slow=0.2, truncate=False), rope_inputs),
    "rope_yarn_factor": ("rope", rope_attributes(**ROPE_YARN, attention_factor=1.7), rope_inputs),
    "rope_longrope": ("rope_partial", rope_attributes(**LONGROPE), rope_inputs),
    "rope_partial": ("rope_partial", rope_attributes(partial_rotary_factor=0.4), rope_inputs),
    "attention": ("attention", attention_attributes(6, 2), lambda draw: attention_inputs(draw, heads=6, kv_heads=2)),
    "attention_segments": ("attention", attention_attributes(),
                           lambda draw: attention_inputs(draw) | {"segments": segments()}),
    "attention_window": ("attention", attention_attributes() | {"window": 9}, attention_inputs),
    "attention_capped": ("attention", attention_attributes() | {"window": 9, "softcap": 1.5},
                         lambda draw: attention_inputs(draw, scale=2.0) | {"segments": segments()}),
    "attention_steep": ("attention", attention_attributes(), lambda draw: attention_inputs(draw, scale=60.0)),
    "attention_long": ("attention", attention_attributes(1, 1, 16),
                       lambda draw: attention_inputs(draw, 1, 259, 1, 1, 16)),
    "gelu_tanh": ("gelu_tanh", {}, lambda draw: {"x": draw.wide()}),
    "gelu_erf": ("gelu_erf", {}, lambda draw: {"x": draw.wide()}),
    "relu": ("relu", {}, lambda draw: {"x": draw.wide()}),
    "silu": ("silu", {}, lambda draw: {"x": draw.wide()}),
    "swiglu": ("swiglu", {}, lambda draw: {"gate": draw.wide(), "up": draw.normal(4, 67)}),
    "embedding": ("embedding", {}, lambda draw: {"ids": draw.below(31, BATCH, TOKENS), "weight": draw.normal(41, 23)}),
    "linear": ("linear", {}, lambda draw: linear_inputs(draw, (53, 45), bias=False)),
    "linear_bias": ("linear", {}, lambda draw: linear_inputs(draw, (53, 45), bias=True)),
    "conv1d": ("conv1d", {}, lambda draw: linear_inputs(draw, (45, 53), bias=True)),
    "linear_cross_entropy": ("linear_cross_entropy", {}, lambda draw: loss_inputs(draw, 45, VOCAB)),
    "linear_cross_entropy_capped": ("linear_cross_entropy", {"softcap": 2.5},
                                    lambda draw: loss_inputs(draw, 45, VOCAB)),
    "linear_cross_entropy_steep": ("linear_cross_entropy", {}, lambda draw: loss_inputs(draw, 21, 47, scale=30.0)),
    "linear_cross_entropy_wide": ("linear_cross_entropy", {}, lambda draw: loss_inputs(draw, 7, 1031)),
    "load_balancing": ("load_balancing", {"chosen": 2, "coefficient": 0.7}, load_balancing_inputs),
}


def run(case):
    operator, attributes, draw_inputs = CASES[case]
    draw = Inputs(case)
    stored = draw_inputs(draw)
    inputs = {name: tensor.double().requires_grad_() if tensor.is_floating_point() else tensor
              for name, tensor in stored.items()}
    out = OPERATORS[operator](inputs, attributes)
    assert out.dtype == torch.float64
    dout = draw.normal(*out.shape)
    out.backward(dout.double())

    name = "loss" if operator in ("linear_cross_entropy", "load_balancing") else "y"
    tensors = {f"{case}.in.{k}": tensor for k, tensor in stored.items()}
    tensors |= {f"{case}.out.{name}": out.detach().float(), f"{case}.dout.{name}": dout}
    return tensors | {f"{case}.din.{k}": tensor.grad.float() for k, tensor in inputs.items() if tensor.is_floating_point()}


def write(folder):
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = {}
    for case in CASES:
        tensors |= {name: tensor.contiguous() for name, tensor in run(case).items()}
    path = folder / "ops.safetensors"
    safetensors.torch.save_file(tensors, path)
    path.chmod(0o644)
    about = {case: {"operator": operator, "attributes": attributes}
             for case, (operator, attributes, _) in CASES.items()}
    (folder / "ops.json").write_text(json.dumps(about, indent=2) + "\n")
    print(f"ops: {len(CASES)} cases, {len(tensors)} tensors")
