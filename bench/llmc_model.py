"""Writes a GPT-2 Hugging Face directory as the checkpoint that llm.c's train_gpt2 reads. For bench/vs_llmc.py.

    python bench/llmc_model.py MODEL_DIR OUT.bin         needs numpy and safetensors

The file has 256 int32 (magic 20240326, version 3: fp32, maximum sequence, vocabulary, layers, heads, width, padded
vocabulary), then the parameters in fp32, kind by kind, each for all layers. The embedding is padded with rows of zeros
to a multiple of 128. Matrices are [out, in] in the file and [in, out] in the directory.
"""

import json
import pathlib
import sys

import numpy
import safetensors.numpy

VOCABULARY_MULTIPLE = 128
LAYER_KINDS = [
    "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
    "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
]  # fmt: skip


def main(folder, out):
    config = json.loads((folder / "config.json").read_text())
    weights = {
        name.removeprefix("transformer."): tensor
        for name, tensor in safetensors.numpy.load_file(folder / "model.safetensors").items()
    }
    vocabulary, layers = config["vocab_size"], config["n_layer"]
    padded = -(-vocabulary // VOCABULARY_MULTIPLE) * VOCABULARY_MULTIPLE
    header = numpy.zeros(256, "<i4")
    header[:8] = 20240326, 3, config["n_positions"], vocabulary, layers, config["n_head"], config["n_embd"], padded
    embedding = numpy.zeros((padded, config["n_embd"]), "<f4")
    embedding[:vocabulary] = weights["wte.weight"]
    with open(out, "wb") as file:
        parts = [header, embedding, weights["wpe.weight"]]
        for kind in LAYER_KINDS:
            parts += [weights[f"h.{layer}.{kind}"].T for layer in range(layers)]
        for part in [*parts, weights["ln_f.weight"], weights["ln_f.bias"]]:
            file.write(numpy.ascontiguousarray(part).tobytes())


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2]))
