"""Matrices in formats of fewer bits, as bitsandbytes makes them on the CPU; mxfp4 by the MX specification's rules.

tests/fixtures/quantised/cases.safetensors, for each case:
    <case>                        F32 or BF16, the matrix
    <case>.nf4                    U8   codes, two a byte
    <case>.nf4.scales             U8   of blocks of 64
    <case>.nf4.groups, .offset    F32
    <case>.nf4.numbers            F32  that all of these stand for
    <case>.int8, .scales, .numbers      I8, F32 of each row, F32
    <case>.mxfp4, .scales, .numbers     U8, U8 of each block of 32, F32; where rows are whole blocks

tests/fixtures/quantised/compressed_mxfp4/model.safetensors, as compressed-tensors packs a linear layer and reads it
again:
    linear.weight_packed, .weight_scale U8
    linear.numbers                      F32
"""

import bitsandbytes.functional as functional
import safetensors.torch
import torch
from compressed_tensors.compressors.mxfp4.base import MXFP4PackedCompressor
from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme

# rows, columns, dtype
CASES = {
    "odd": (37, 53, torch.float32),
    "whole": (96, 192, torch.bfloat16),
    "groups": (270, 64, torch.float32),
}
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
            ".offset": state.offset.reshape(1), ".numbers": functional.dequantize_4bit(codes, state)}


def int8(matrix):
    codes, scales, _ = functional.int8_vectorwise_quant(matrix.float())
    codes[scales == 0] = 0
    return {"": codes, ".scales": scales, ".numbers": functional.int8_vectorwise_dequant(codes, scales)}


def mxfp4(matrix):
    blocks = matrix.float().reshape(-1, 32)
    exponents = torch.clamp(torch.floor(torch.log2(blocks.abs().amax(1))) - 2, min=-127)
    scales = torch.exp2(exponents.double())[:, None]
    distances = (blocks.double().abs() / scales)[..., None] - MXFP4.double()
    # The nearest, and of two the even code.
    order = distances.abs() * 1024 + torch.arange(8).remainder(2) * 1e-9
    codes = order.argmin(-1).to(torch.uint8) + 8 * torch.signbit(blocks).to(torch.uint8)
    numbers = (MXFP4[codes.long() & 7] * torch.where(codes > 7, -1.0, 1.0)).double() * scales
    return {"": in_pairs(codes, 0), ".scales": (exponents + 127).to(torch.uint8),
            ".numbers": numbers.float().reshape(matrix.shape)}


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
