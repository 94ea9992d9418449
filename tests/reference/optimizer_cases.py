"""The references under tests/fixtures/optimizers: 20 steps of a committed model by another optimizer than AdamW, as
model_cases.py writes AdamW's: Lion by lion-pytorch, momentum by torch.optim.SGD."""

import json
import shutil
import unittest.mock

import safetensors.torch
import torch
from transformers import AutoModelForCausalLM

import model_cases

BASE = "llama_bias"
CASES = {  # learning rates at which the loss falls
    "llama_lion": {"optimizer": "lion", "lr": 3e-4, "betas": [0.9, 0.99]},
    "llama_sgd": {"optimizer": "sgd", "lr": 3e-2, "betas": [0.9, 0], "weight_decay": 0.01},
}


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
        with unittest.mock.patch.dict(model_cases.TRAINING, training), \
                unittest.mock.patch.dict(model_cases.FULL, {case: model_cases.FULL[BASE]}):
            tensors, about = model_cases.reference_of(model, case)
        contiguous = {name: tensor.contiguous() for name, tensor in tensors.items()}
        safetensors.torch.save_file(contiguous, folder / "reference.safetensors")
        (folder / "reference.json").write_text(json.dumps(about | {"base": BASE}, indent=2) + "\n")
        for path in folder.iterdir():
            path.chmod(0o644)
