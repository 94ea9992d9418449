"""PyTorch's side of the benchmarks: trains a Hugging Face directory on a token file and prints one JSON object.

    python bench/pytorch_peer.py MODEL_DIR TOKENS.bin --batch 4 --seq 1024 --steps 4 --dtype fp32 [--compile]

Trains the model of transformers with its fastest settings: scaled_dot_product_attention, PyTorch's own operators for
tanh GELU and RMSNorm, fused AdamW, and autocast for bf16. The optimizer, its settings and the weights that decay are
those of `ballast train`. Every step uses the first BATCH sequences of the file. With --clip-norm 0
--update-in-backward, gradients take no memory of their own, as in PyTorch's tutorial.
"""

import argparse
import json
import pathlib
import resource
import sys
import time

import torch
import torch.nn.functional as functional
import transformers

LR, BETAS, EPSILON, WEIGHT_DECAY, CLIP_NORM = 3e-4, (0.9, 0.95), 1e-8, 0.1, 1.0
HEADER_BYTES = 1024  # of an llm.c token file


def peak_bytes():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def read_batch(path, batch, seq):
    """Returns inputs and targets, each [batch, seq]. Neighbouring sequences share a token, as in Ballast."""
    raw = path.read_bytes()[HEADER_BYTES : HEADER_BYTES + 2 * (batch * seq + 1)]
    tokens = torch.frombuffer(bytearray(raw), dtype=torch.uint16).long()
    return tokens[:-1].view(batch, seq), tokens[1:].view(batch, seq)


def use_whole_operators(model):
    """RMSNorm as PyTorch's one operator; transformers writes it out in six."""
    for module in model.modules():
        if type(module).__name__ == "LlamaRMSNorm":
            module.forward = (
                lambda hidden, of=module: functional.rms_norm(
                    hidden, of.weight.shape, of.weight.to(hidden.dtype), of.variance_epsilon
                )
            )


def open_model(folder, attention):
    config = transformers.AutoConfig.from_pretrained(folder)
    if getattr(config, "activation_function", None) == "gelu_new":
        config.activation_function = "gelu_pytorch_tanh"
    model = transformers.AutoModelForCausalLM.from_pretrained(
        folder, config=config, dtype=torch.float32, attn_implementation=attention
    )
    use_whole_operators(model)
    return model.train()


def groups(model):
    """Matrices and embeddings decay, the rest does not."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    return [{"params": matrices, "weight_decay": WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]


def adamw(parameters):
    return torch.optim.AdamW(parameters, lr=LR, betas=BETAS, eps=EPSILON, fused=True)


def update_at_end(model, clip_norm):
    """Updates after backward, when all gradients are complete."""
    optimizer = adamw(groups(model))

    def update():
        if clip_norm > 0:
            torch.nn.utils.clip_grad_norm_(model.parameters(), clip_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def update_in_backward(model):
    """Gives each parameter its own optimizer, which updates it and drops its gradient as soon as backward has computed
    it. Nothing is left to do after backward."""
    for group in groups(model):
        for parameter in group["params"]:
            optimizer = adamw([{**group, "params": [parameter]}])

            def update(_, optimizer=optimizer):
                optimizer.step()
                optimizer.zero_grad(set_to_none=True)

            parameter.register_post_accumulate_grad_hook(update)
    return lambda: None


def loss_of(model, head_loss):
    """The mean loss as a function of inputs and targets. `whole`: all logits at once; `chunked`: PyTorch's own chunks."""
    chunks = torch.nn.LinearCrossEntropyOptions() if head_loss == "chunked" else None

    def loss(inputs, targets):
        hidden = model.base_model(input_ids=inputs, use_cache=False)[0]
        hidden, weight = hidden.flatten(0, 1), model.lm_head.weight
        if chunks is None:
            return functional.cross_entropy(functional.linear(hidden, weight).float(), targets.flatten())
        if torch.is_autocast_enabled("cpu"):
            hidden, weight = hidden.bfloat16(), weight.bfloat16()
        return functional.linear_cross_entropy(hidden, weight, targets.flatten(), options=chunks)

    return loss


def train(options):
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    model = open_model(options.model, "sdpa")
    if options.checkpoint:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    update = update_in_backward(model) if options.update_in_backward else update_at_end(model, options.clip_norm)
    loss_function = loss_of(model, options.head_loss)
    if options.compile:
        loss_function = torch.compile(loss_function, mode=options.compile)
    inputs, targets = read_batch(options.tokens, options.batch, options.seq)
    losses, seconds, loaded = [], [], peak_bytes()
    for _ in range(options.steps):
        begun = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16"):
            loss = loss_function(inputs, targets)
        loss.backward()
        update()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - begun)
        print(f"step {len(losses)} loss {losses[-1]:.6f} {seconds[-1]:.3f} s", file=sys.stderr, flush=True)
    return {"losses": losses, "step_s": seconds, "peak_bytes": peak_bytes(), "loaded_bytes": loaded}


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--compile", nargs="?", const="default")
    parser.add_argument("--checkpoint", action="store_true")
    parser.add_argument("--head-loss", choices=("whole", "chunked"), default="whole")
    parser.add_argument("--clip-norm", type=float, default=CLIP_NORM, help="0: no clipping")
    parser.add_argument("--update-in-backward", action="store_true", help="takes --clip-norm 0")
    options = parser.parse_args()
    if options.update_in_backward and options.clip_norm > 0:
        parser.error("--update-in-backward takes --clip-norm 0: clipping needs the norm of all gradients")
    print(json.dumps(train(options)))


if __name__ == "__main__":
    main()
