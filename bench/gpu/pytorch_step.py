"""Trains a Hugging Face directory with PyTorch on a GPU, for bench/gpu/second.sh.

Every step uses the first sequences of the token file. Uses bf16 autocast over fp32 weights,
scaled_dot_product_attention, fused AdamW, and torch.compile unless --eager. Prints the seconds of every step as JSON;
the first ones include compilation.

    python3 bench/gpu/pytorch_step.py MODEL_DIR TOKENS.bin --batch 32 --seq 1024 --steps 12 [--eager]
"""

import argparse
import json
import pathlib
import time

import torch
import torch.nn.functional as functional
import transformers

HEADER_BYTES = 1024  # of an llm.c token file


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--micro", type=int, help="sequences at once; default: all")
    parser.add_argument("--eager", action="store_true")
    options = parser.parse_args()
    torch.set_float32_matmul_precision("high")
    count = options.batch * options.seq + 1
    raw = options.tokens.read_bytes()[HEADER_BYTES : HEADER_BYTES + 2 * count]
    tokens = torch.frombuffer(bytearray(raw), dtype=torch.uint16).to(torch.int64).cuda()
    inputs, targets = (t.view(options.batch, options.seq) for t in (tokens[:-1], tokens[1:]))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        options.model, dtype=torch.float32, attn_implementation="sdpa"
    )
    model = model.cuda().train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, betas=(0.9, 0.95), weight_decay=0.1, fused=True)
    micro = options.micro or options.batch

    def loss_of(x, y):
        logits = model(input_ids=x, use_cache=False).logits
        return functional.cross_entropy(logits.flatten(0, 1).float(), y.flatten())

    step_loss = loss_of if options.eager else torch.compile(loss_of)
    losses, seconds = [], []
    for _ in range(options.steps):
        torch.cuda.synchronize()
        begun = time.perf_counter()
        total = 0.0
        for at in range(0, options.batch, micro):
            with torch.autocast("cuda", torch.bfloat16):
                loss = step_loss(inputs[at : at + micro], targets[at : at + micro]) * (micro / options.batch)
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        losses.append(float(total))
        seconds.append(time.perf_counter() - begun)
    print(json.dumps({"losses": losses, "step_s": seconds, "peak_bytes": torch.cuda.max_memory_allocated()}))


if __name__ == "__main__":
    main()
