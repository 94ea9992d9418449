"""The references under tests/fixtures/optimizers: 20 steps of a committed model by another optimizer than AdamW in fp32,
as model_cases.py writes AdamW's: Lion by lion-pytorch, momentum by torch.optim.SGD, moments in 8 bits by bitsandbytes,
Muon by torch.optim.Muon. Logits and gradients are those of the base, models/llama_bias."""

import json
import shutil
import unittest.mock

import bitsandbytes.backends.cpu.ops
import torch
from transformers import AutoModelForCausalLM

import model_cases

BASE = "llama_bias"
CASES = {  # learning rates at which the loss falls
    "llama_lion": {"optimizer": "lion", "lr": 3e-4, "betas": [0.9, 0.99]},
    "llama_sgd": {"optimizer": "sgd", "lr": 3e-2, "betas": [0.9, 0], "weight_decay": 0.01},
    "llama_int8": {"optimizer_dtype": "int8"},
    "llama_lion_int8": {"optimizer": "lion", "optimizer_dtype": "int8", "lr": 3e-4, "betas": [0.9, 0.99]},
    "llama_sgd_int8": {"optimizer": "sgd", "optimizer_dtype": "int8", "lr": 3e-2, "betas": [0.9, 0], "weight_decay": 0.01},
    "llama_muon": {"optimizer": "muon", "muon_momentum": 0.95},
}


def quantise(numbers, code, absmax, out, blocksize):
    """The nearest codes, as bitsandbytes' GPU kernels find them: those of its CPU code come from a table that is too
    coarse for small numbers, of which it misses most."""
    blocks = torch.nn.functional.pad(numbers.flatten(), (0, -numbers.numel() % blocksize)).view(-1, blocksize)
    absmax.copy_(blocks.abs().amax(1))
    between = (code[1:] + code[:-1]) / 2
    codes = torch.bucketize(blocks / absmax.clamp(min=1e-38)[:, None], between)
    out.copy_(codes.flatten()[:numbers.numel()].view(out.shape))


def names():
    return CASES.keys()


def write(root, wanted):
    for case, training in CASES.items():
        if wanted and case not in wanted:
            continue
        folder = root / "optimizers" / case
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model = AutoModelForCausalLM.from_pretrained(root / "models" / BASE, dtype=torch.float32,
                                                     attn_implementation="eager").eval()
        with unittest.mock.patch.object(bitsandbytes.backends.cpu.ops, "_quant_blockwise_fp32_direct", quantise), \
                unittest.mock.patch.dict(model_cases.TRAINING, training):
            tensors, about = model_cases.reference_of(model, case)
        trained = {name: tensor for name, tensor in tensors.items() if name.startswith(("train.", "final."))}
        model_cases.save_tensors(trained, folder / "reference.safetensors")  # logits and gradients are the base's
        (folder / "reference.json").write_text(json.dumps(about | {"base": BASE}, indent=2) + "\n")
        for path in folder.iterdir():
            path.chmod(0o644)
