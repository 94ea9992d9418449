"""Make tests/fixtures/fused: small mixtures of experts that transformers saved twice, once with each expert's matrices
apart (FAMILY) and once with those of a layer fused (FAMILY_fused).

    venv/bin/python tests/reference/make_fused_fixtures.py
"""

import pathlib
import shutil

import torch
import transformers

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "fused"
SIZES = {"vocab_size": 7, "hidden_size": 6, "num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1,
         "head_dim": 6, "intermediate_size": 5, "num_experts_per_tok": 2, "max_position_embeddings": 16,
         "bos_token_id": None, "eos_token_id": None, "pad_token_id": None}
CONFIGS = {
    "mixtral": transformers.MixtralConfig(**SIZES, num_local_experts=3, sliding_window=None),
    "qwen3_moe": transformers.Qwen3MoeConfig(**SIZES, num_experts=3, moe_intermediate_size=4),
}


def main():
    shutil.rmtree(FIXTURES, ignore_errors=True)
    for family, config in CONFIGS.items():
        torch.manual_seed(1)
        model = transformers.AutoModelForCausalLM.from_config(config)
        for suffix, apart in ("", True), ("_fused", False):
            folder = FIXTURES / (family + suffix)
            model.save_pretrained(folder, save_original_format=apart)
            (folder / "generation_config.json").unlink(missing_ok=True)
            (folder / "model.safetensors").chmod(0o644)


if __name__ == "__main__":
    main()
