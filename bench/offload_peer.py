"""Trains with PyTorch's libraries for offloading, each set up as its documentation says. For bench/vs_offload.py.

    python bench/offload_peer.py CONTENDER MODEL_DIR TOKENS.bin --batch 1 --seq 1024 --steps 3 --threads 2 --folder DIR

Prints the same as pytorch_peer.py. DIR holds the files of a contender. Trains in fp32 with the optimizer of `ballast
train`.
"""

import argparse
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("DS_ACCELERATOR", "cpu")
# One rank, for DeepSpeed's process group.
for name, value in {"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "127.0.0.1"}.items():
    os.environ.setdefault(name, value)
os.environ.setdefault("MASTER_PORT", "29511")

import pytorch_peer as base
import torch


def fused_adamw(model):
    return torch.optim.AdamW(base.groups(model), lr=base.LR, betas=base.BETAS, eps=base.EPSILON, fused=True)


def stepper(model, optimizer, head_loss="chunked"):
    """A step as a function of inputs and targets."""
    loss_of = base.loss_of(model, head_loss)

    def step(inputs, targets):
        loss = loss_of(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), base.CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        return loss.item()

    return step


def plain(options):
    model = base.open_model(options.model, "sdpa")
    return stepper(model, fused_adamw(model))


def checkpoint(options):
    model = base.open_model(options.model, "sdpa")
    model.gradient_checkpointing_enable({"use_reentrant": False})
    return stepper(model, fused_adamw(model))


def low_bit(name):
    def prepare(options):
        import torchao.optim

        model = base.open_model(options.model, "sdpa")
        model.gradient_checkpointing_enable({"use_reentrant": False})
        made = getattr(torchao.optim, name)
        optimizer = made(base.groups(model), lr=base.LR, betas=base.BETAS, eps=base.EPSILON)
        return stepper(model, optimizer)

    return prepare


def torchao_offload(options):
    import torchao.optim

    model = base.open_model(options.model, "sdpa")
    optimizer = torchao.optim.CPUOffloadOptimizer(
        base.groups(model), torch.optim.AdamW, lr=base.LR, betas=base.BETAS, eps=base.EPSILON, fused=True
    )
    return stepper(model, optimizer)


def accelerate_disk(options):
    import accelerate

    model = base.open_model(options.model, "sdpa")
    optimizer = fused_adamw(model)
    accelerate.disk_offload(model, str(options.folder / "accelerate"), execution_device=torch.device("cpu"))
    return stepper(model, optimizer, "whole")


def accelerate_cpu(options):
    import accelerate

    model = base.open_model(options.model, "sdpa")
    optimizer = fused_adamw(model)
    accelerate.cpu_offload(model, execution_device=torch.device("cpu"))
    return stepper(model, optimizer, "whole")


def deepspeed(device):
    def prepare(options):
        import deepspeed as library

        place = {"device": device}
        if device == "nvme":
            place |= {"nvme_path": str(options.folder / "deepspeed"), "buffer_count": 5}
        zero = {"stage": 3, "offload_optimizer": place, "offload_param": place, "stage3_param_persistence_threshold": 0}
        if device == "nvme":
            # Buffers must hold the largest parameter, the embedding.
            model_peek = base.open_model(options.model, "sdpa")
            zero["offload_param"] = {**place, "buffer_size": 2 * max(p.numel() for p in model_peek.parameters())}
            del model_peek
        adamw = {"lr": base.LR, "betas": base.BETAS, "eps": base.EPSILON, "weight_decay": base.WEIGHT_DECAY}
        settings = {
            "train_micro_batch_size_per_gpu": options.batch,
            "gradient_clipping": base.CLIP_NORM,
            "zero_optimization": zero,
            "optimizer": {"type": "AdamW", "params": {**adamw, "torch_adam": False}},
        }
        library.init_distributed("gloo", verbose=False)
        model = base.open_model(options.model, "sdpa")
        model.gradient_checkpointing_enable({"use_reentrant": False})
        engine, _, _, _ = library.initialize(model=model, model_parameters=base.groups(model), config=settings)

        def step(inputs, targets):
            logits = engine(input_ids=inputs, use_cache=False).logits
            loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())
            engine.backward(loss)
            engine.step()
            return loss.item()

        return step

    return prepare


CONTENDERS = {
    "plain": plain,
    "checkpoint": checkpoint,
    "torchao-adamw8bit": low_bit("AdamW8bit"),
    "torchao-adamw4bit": low_bit("AdamW4bit"),
    "torchao-cpu-offload": torchao_offload,
    "accelerate-cpu": accelerate_cpu,
    "accelerate-disk": accelerate_disk,
    "deepspeed-cpu": deepspeed("cpu"),
    "deepspeed-nvme": deepspeed("nvme"),
}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contender", choices=CONTENDERS)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    for name in ("batch", "seq", "steps", "threads"):
        parser.add_argument(f"--{name}", type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    options = parser.parse_args()
    # Libraries talk on stdout; it is kept for the result.
    result, sys.stdout = sys.stdout, sys.stderr
    torch.set_num_threads(options.threads)
    step = CONTENDERS[options.contender](options)
    inputs, targets = base.read_batch(options.tokens, options.batch, options.seq)
    losses, seconds = [], []
    for _ in range(options.steps):
        begun = time.perf_counter()
        losses.append(step(inputs, targets))
        seconds.append(time.perf_counter() - begun)
        print(f"step {len(losses)} loss {losses[-1]:.6f} {seconds[-1]:.3f} s", file=sys.stderr, flush=True)
    print("\n" + json.dumps({"losses": losses, "step_s": seconds, "peak_bytes": base.peak_bytes()}), file=result)


if __name__ == "__main__":
    main()
