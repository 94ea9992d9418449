"""Matrices in formats of fewer bits, as bitsandbytes makes them on the CPU; mxfp4 by the MX specification's rules.

tests/fixtures/quantised/cases.safetensors, for each case:
    <case>                        F32 or BF16, the matrix
    <case>.nf4                    U8   codes, two a byte
    <case>.nf4.scales             U8   of blocks of 64
    <case>.nf4.groups, .offset    F32
    <case>.int8, .scales          I8, F32 of each row
    <case>.mxfp4, .scales         U8, U8 of each block of 32; where rows are whole blocks

tests/fixtures/quantised/compressed_mxfp4/model.safetensors, as compressed-tensors packs a linear layer and reads it
again:
    linear.weight_packed, .weight_scale U8
    linear.numbers                      F32

tests/fixtures/quantised/compressed_integers: the same of integers in groups, for each of INTEGERS:
    <case>.weight_packed or .weight, .weight_scale, .weight_shape, .weight_zero_point
    <case>.numbers                      in the dtype of the scales
and configs.json, each case's quantization_config as compressed-tensors writes it.

tests/fixtures/quantised/plain_layers.json: for each of PLAIN_LAYERS its quantization_config, and of LAYER_NAMES those
that compressed-tensors or transformers leaves plain.
"""

import json

import bitsandbytes.functional as functional
import safetensors.torch
import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.compressors.naive_quantized.base import IntQuantizationCompressor
from compressed_tensors.compressors.pack_quantized.base import PackedQuantizationCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
from compressed_tensors.utils import is_match
from transformers.quantizers.quantizers_utils import should_convert_module

# rows, columns, dtype
CASES = {
    "odd": (37, 53, torch.float32),
    "whole": (96, 192, torch.bfloat16),
    "groups": (270, 64, torch.float32),
}
# format, rows, columns, bits, strategy, group size, symmetric, dtype of the scales
INTEGERS = {
    "w4a16": ("pack-quantized", 24, 256, 4, "group", 128, True, torch.bfloat16),
    "w4a16_asym": ("pack-quantized", 37, 96, 4, "group", 32, False, torch.float16),
    "w4a16_short": ("pack-quantized", 13, 60, 4, "group", 12, False, torch.float32),
    "w4a16_channel": ("pack-quantized", 11, 53, 4, "channel", None, True, torch.float32),
    "w4a16_channel_asym": ("pack-quantized", 19, 53, 4, "channel", None, False, torch.bfloat16),
    "w4a16_tensor": ("pack-quantized", 9, 40, 4, "tensor", None, True, torch.bfloat16),
    "w8a16": ("pack-quantized", 10, 256, 8, "group", 128, True, torch.bfloat16),
    "w8a16_asym": ("pack-quantized", 15, 70, 8, "group", 35, False, torch.float32),
    "int8": ("int-quantized", 21, 53, 8, "channel", None, True, torch.bfloat16),
    "int8_asym": ("int-quantized", 21, 64, 8, "group", 16, False, torch.float32),
    "int8_tensor_asym": ("naive-quantized", 7, 33, 8, "tensor", None, False, torch.bfloat16),
}
LAYER_NAMES = ["lm_head", *(f"model.layers.{layer}.{name}" for layer in (0, 1, 2, 11, 20)
                            for name in ("self_attn.q_proj", "self_attn.k_proj", "mlp.gate_proj", "mlp.gate",
                                         "mlp.down_proj", "mlp.experts.3.down_proj", "mlp.experts.13.down_proj"))]
# method, what is named: ignore and targets, or llm_int8_skip_modules
PLAIN_LAYERS = [
    ("compressed-tensors", ["lm_head"], ["Linear"]),
    ("compressed-tensors", ["re:.*lm_head", "re:.*mlp.gate$", "model.layers.1.self_attn.q_proj"], ["Linear"]),
    ("compressed-tensors", [r"re:.*\.layers\.(0|2\d)\.", "model.layers.1", "re:layers", "gate_proj"], ["Linear"]),
    ("compressed-tensors", [r"re:model\.layers\.\d+\.mlp\.(?!experts)\w+$"], ["re:.*experts", "re:.*proj$"]),
    ("compressed-tensors", [], [r"re:.*layers\.[01]\..*down_proj", "model.layers.11.mlp.gate_proj"]),
    ("compressed-tensors", ["Linear"], ["Linear"]),
    ("bitsandbytes", ["lm_head"], None),
    ("bitsandbytes", ["lm_head", "model.layers.1.mlp", "layers.2.self_attn", "gate"], None),
    ("bitsandbytes", [r"model.layers.\d*0", "k_proj", "3.down_proj"], None),
]
COMPRESSORS = {"pack-quantized": PackedQuantizationCompressor, "int-quantized": IntQuantizationCompressor,
               "naive-quantized": IntQuantizationCompressor}
MXFP4 = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])


def matrix_of(generator, rows, columns, dtype):
    """Rows of many sizes, one of zeros, and a whole block of zeros where rows are short."""
    numbers = torch.randn(rows, columns, generator=generator) * (0.02 + torch.arange(rows)[:, None] / 400)
    numbers[3:6] = 0
    return numbers.to(dtype)


def in_pairs(codes, first_shift):
    flat = torch.nn.functional.pad(codes.reshape(-1), (0, codes.numel() % 2))
    return flat[::2] << first_shift | flat[1::2] << 4 - first_shift


def nf4(matrix):
    codes, state = functional.quantize_4bit(matrix, blocksize=64, compress_statistics=True, quant_type="nf4")
    state.dtype = torch.float32
    return {"": codes.reshape(-1), ".scales": state.absmax, ".groups": state.state2.absmax,
            ".offset": state.offset.reshape(1)}


def int8(matrix):
    codes, scales, _ = functional.int8_vectorwise_quant(matrix.float())
    codes[scales == 0] = 0
    return {"": codes, ".scales": scales}


def mxfp4(matrix):
    blocks = matrix.float().reshape(-1, 32)
    exponents = torch.clamp(torch.floor(torch.log2(blocks.abs().amax(1))) - 2, min=-127)
    scales = torch.exp2(exponents.double())[:, None]
    distances = (blocks.double().abs() / scales)[..., None] - MXFP4.double()
    # The nearest, and of two the even code.
    order = distances.abs() * 1024 + torch.arange(8).remainder(2) * 1e-9
    codes = order.argmin(-1).to(torch.uint8) + 8 * torch.signbit(blocks).to(torch.uint8)
    return {"": in_pairs(codes, 0), ".scales": (exponents + 127).to(torch.uint8)}


def scale_and_zero(matrix, bits, block, symmetric, dtype):
    """Of each block, from its smallest and largest number and 0."""
    blocks = matrix.reshape(-1, block)
    low, high = blocks.amin(1).clamp(max=0), blocks.amax(1).clamp(min=0)
    levels, lowest = 2**bits - 1, -(2 ** (bits - 1))
    if symmetric:
        return (torch.maximum(-low, high) / (levels / 2)).to(dtype), None
    scale = ((high - low) / levels).to(dtype)
    zero = (lowest - low / scale.float()).round().clamp(lowest, -lowest - 1)
    return scale, zero.to(torch.int8)


def integers_of(matrix, case):
    """The tensors of a weight, and its scheme."""
    format_, rows, columns, bits, strategy, group, symmetric, dtype = case
    block = {"group": group, "channel": columns, "tensor": rows * columns}[strategy]
    scale, zero = scale_and_zero(matrix, bits, block, symmetric, dtype)
    shape = (1,) if strategy == "tensor" else (rows, columns // block)
    state = {"weight": matrix, "weight_scale": scale.reshape(shape)}
    if not symmetric:
        state["weight_zero_point"] = zero.reshape(shape)
    arguments = QuantizationArgs(num_bits=bits, type="int", strategy=strategy, group_size=group, symmetric=symmetric)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    return COMPRESSORS[format_].compress(state, scheme), scheme


def config_of(format_, scheme):
    config = QuantizationConfig(config_groups={"group_0": scheme}, format=format_, ignore=["lm_head"],
                                quantization_status="compressed")
    return json.loads(config.model_dump_json())


def write_integers(folder):
    generator = torch.Generator().manual_seed(22)
    tensors, configs = {}, {}
    for name, case in INTEGERS.items():
        matrix = torch.randn(case[1], case[2], generator=generator) * (0.02 + torch.arange(case[1])[:, None] / 200)
        stored, scheme = integers_of(matrix + 0.01, case)
        numbers = COMPRESSORS[case[0]].decompress(stored, scheme)["weight"]
        tensors |= {f"{name}.{part}": tensor.detach().contiguous().clone() for part, tensor in stored.items()}
        tensors[f"{name}.numbers"] = numbers.contiguous()
        configs[name] = config_of(case[0], scheme)
    folder = folder / "compressed_integers"
    folder.mkdir(exist_ok=True)
    safetensors.torch.save_file(tensors, folder / "model.safetensors")
    (folder / "configs.json").write_text(json.dumps(configs, indent=1) + "\n")
    for path in folder.iterdir():
        path.chmod(0o644)


def plain_of(method, named, targets):
    linear = torch.nn.Linear(1, 1)
    if method == "bitsandbytes":
        config = {"quant_method": method, "load_in_4bit": True, "bnb_4bit_quant_type": "nf4",
                  "llm_int8_skip_modules": named}
        return config, [name for name in LAYER_NAMES if not should_convert_module(name, named)]
    arguments = QuantizationArgs(num_bits=4, type="int", strategy="channel", symmetric=True)
    config = QuantizationConfig(config_groups={"group_0": QuantizationScheme(targets=targets, weights=arguments)},
                                format="pack-quantized", ignore=named, quantization_status="compressed")
    return json.loads(config.model_dump_json()), [name for name in LAYER_NAMES
                                                  if not is_match(name, linear, targets, named)]


def write_plain_layers(path):
    cases = []
    for case in PLAIN_LAYERS:
        config, plain = plain_of(*case)
        cases.append({"config": config, "names": LAYER_NAMES, "plain": plain})
    path.write_text(json.dumps(cases, indent=1) + "\n")


def write_compressed(folder):
    generator = torch.Generator().manual_seed(21)
    matrix = torch.randn(24, 96, generator=generator) * torch.exp2(torch.arange(24)[:, None] - 12.0)
    arguments = QuantizationArgs(num_bits=4, type="float", strategy="group", group_size=32, symmetric=True)
    scheme = QuantizationScheme(targets=["Linear"], weights=arguments)
    scales = torch.exp2(torch.floor(torch.log2(matrix.reshape(24, 3, 32).abs().amax(-1))) - 2)
    packed = MXFP4PackedCompressor.compress({"weight": matrix, "weight_scale": scales}, scheme)
    numbers = MXFP4PackedCompressor.decompress(packed, scheme)["weight"]
    tensors = {"linear.weight_packed": packed["weight_packed"], "linear.weight_scale": packed["weight_scale"],
               "linear.numbers": numbers.float()}
    path = folder / "compressed_mxfp4" / "model.safetensors"
    path.parent.mkdir(exist_ok=True)
    safetensors.torch.save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
    path.chmod(0o644)


def write(folder):
    folder.mkdir(parents=True, exist_ok=True)
    generator = torch.Generator().manual_seed(20)
    tensors = {}
    for case, (rows, columns, dtype) in CASES.items():
        matrix = matrix_of(generator, rows, columns, dtype)
        tensors[case] = matrix
        for name, make in {"nf4": nf4, "int8": int8, "mxfp4": mxfp4}.items():
            if name == "mxfp4" and columns % 32 != 0:
                continue
            tensors |= {f"{case}.{name}{part}": tensor.contiguous() for part, tensor in make(matrix).items()}
    safetensors.torch.save_file(tensors, folder / "cases.safetensors")
    (folder / "cases.safetensors").chmod(0o644)
    write_compressed(folder)
    write_integers(folder)
    write_plain_layers(folder / "plain_layers.json")
