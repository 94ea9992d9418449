"""Make tests/fixtures/nf4_blocks_of_128: a model whose MLP bitsandbytes made nf4 in blocks of 128, as it does
by default on AMD's GPUs, and bitsandbytes/numbers.safetensors, the numbers that
bitsandbytes makes of one of its weights again.

    venv/bin/python tests/reference/make_nf4_block_fixture.py
"""

import json
import pathlib
import shutil

import bitsandbytes.functional as functional
import safetensors.torch
import torch
import transformers

FIXTURE = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "nf4_blocks_of_128"
BLOCK = 128
CONFIG = transformers.Qwen3Config(
    vocab_size=7, hidden_size=14, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1, head_dim=4,
    intermediate_size=25, max_position_embeddings=16, tie_word_embeddings=True, bos_token_id=None, eos_token_id=None,
    pad_token_id=None)
QUANTIZATION = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False,
                "bnb_4bit_quant_type": "nf4", "bnb_4bit_use_double_quant": True, "bnb_4bit_compute_dtype": "float32",
                "bnb_4bit_quant_storage": "uint8",
                "llm_int8_skip_modules": ["q_proj", "k_proj", "v_proj", "o_proj", "lm_head"]}


def main():
    torch.manual_seed(1)
    model = transformers.AutoModelForCausalLM.from_config(CONFIG, dtype=torch.float32)
    shutil.rmtree(FIXTURE, ignore_errors=True)
    CONFIG.save_pretrained(FIXTURE)
    tensors, numbers = {}, {}
    for name, tensor in model.state_dict().items():
        if ".mlp." not in name:
            tensors[name] = tensor
            continue
        codes, state = functional.quantize_4bit(tensor, blocksize=BLOCK, compress_statistics=True, quant_type="nf4")
        tensors |= {name: codes} | {f"{name}.{part}": value for part, value in state.as_dict(packed=True).items()}
        if "down_proj" in name:
            numbers[name] = functional.dequantize_4bit(codes, state)
    tensors.pop("lm_head.weight", None)
    config = json.loads((FIXTURE / "config.json").read_text())
    config |= {"architectures": ["Qwen3ForCausalLM"], "quantization_config": QUANTIZATION}
    (FIXTURE / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    for name, found in ("model", tensors), ("numbers", numbers):
        folder = FIXTURE if name == "model" else FIXTURE / "bitsandbytes"
        folder.mkdir(exist_ok=True)
        safetensors.torch.save_file({key: value.contiguous() for key, value in found.items()},
                                    folder / f"{name}.safetensors")
        (folder / f"{name}.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
