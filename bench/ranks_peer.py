"""PyTorch's side of bench/ranks.py: trains on several ranks by gloo, and prints one JSON object from the first.

    python bench/ranks_peer.py MODEL_DIR TOKENS.bin --wrap fsdp --ranks 2 --batch 4 --seq 1024 --steps 4 --dtype fp32 --threads 1

The model and its settings are those of pytorch_peer.py. Each rank has its share of the batch, in order, and as many
threads. Losses are means over all ranks. The wrappers are
    ddp   DistributedDataParallel with gradients in its buckets (gradient_as_bucket_view), which is smaller and faster;
    fsdp  FSDP2 (fully_shard) with a group per layer and one for the rest. Parameters, gradients and optimizer states
    are
          sharded over all ranks in fp32; bf16 runs gather in bf16 and sum in fp32.
"""

import argparse
import json
import os
import pathlib
import socket
import sys
import time

import pytorch_peer
import torch
import torch.distributed as distributed
import torch.multiprocessing as multiprocessing
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.parallel import DistributedDataParallel


class Losses(torch.nn.Module):
    """The model as a function of inputs and targets, so that the wrapper sees a forward that ends in the loss."""

    def __init__(self, model, head_loss):
        super().__init__()
        self.model = model
        self.loss = pytorch_peer.loss_of(model, head_loss)

    def forward(self, inputs, targets):
        return self.loss(inputs, targets)


def layers_of(model):
    return model.transformer.h if hasattr(model, "transformer") else model.model.layers


def wrap(module, options):
    if options.wrap == "ddp":
        return DistributedDataParallel(module, gradient_as_bucket_view=True)
    formats = MixedPrecisionPolicy(torch.bfloat16, torch.float32) if options.dtype == "bf16" else MixedPrecisionPolicy()
    mesh = init_device_mesh("cpu", (options.ranks,))
    for layer in layers_of(module.model):
        fully_shard(layer, mesh=mesh, mp_policy=formats)
    return fully_shard(module, mesh=mesh, mp_policy=formats)


def share_of(batch, rank, ranks):
    each = batch.shape[0] // ranks
    return batch[rank * each : (rank + 1) * each]


def train_rank(rank, port, options):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.set_num_threads(options.threads)
    torch.manual_seed(1)
    distributed.init_process_group("gloo", rank=rank, world_size=options.ranks)
    module = Losses(pytorch_peer.open_model(options.model, "sdpa"), options.head_loss)
    wrapped = wrap(module, options)
    optimizer = torch.optim.AdamW(
        pytorch_peer.groups(module.model), lr=pytorch_peer.LR, betas=pytorch_peer.BETAS, eps=pytorch_peer.EPSILON, fused=True
    )
    batch = pytorch_peer.read_batch(options.tokens, options.batch, options.seq)
    inputs, targets = (share_of(part, rank, options.ranks) for part in batch)
    losses, seconds = [], []
    for _ in range(options.steps):
        distributed.barrier()
        begun = time.perf_counter()
        with torch.autocast("cpu", torch.bfloat16, enabled=options.dtype == "bf16" and options.wrap == "ddp"):
            loss = wrapped(inputs, targets)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(module.model.parameters(), pytorch_peer.CLIP_NORM)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        mean = loss.detach().clone()
        distributed.all_reduce(mean)
        losses.append(mean.item() / options.ranks)
        seconds.append(time.perf_counter() - begun)
        if rank == 0:
            print(f"step {len(losses)} loss {losses[-1]:.6f} {seconds[-1]:.3f} s", file=sys.stderr, flush=True)
    if rank == 0:
        print(json.dumps({"losses": losses, "step_s": seconds}), flush=True)
    distributed.destroy_process_group()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("tokens", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--seq", type=int, required=True)
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--threads", type=int, required=True)
    parser.add_argument("--dtype", choices=("fp32", "bf16"), required=True)
    parser.add_argument("--wrap", choices=("ddp", "fsdp"), default="ddp")
    parser.add_argument("--head-loss", choices=("whole", "chunked"), default="whole")
    options = parser.parse_args()
    # The first rank is this process, so that none is there for nothing.
    port, context = free_port(), multiprocessing.get_context("spawn")
    others = [context.Process(target=train_rank, args=(rank, port, options)) for rank in range(1, options.ranks)]
    for other in others:
        other.start()
    train_rank(0, port, options)
    for other in others:
        other.join()


if __name__ == "__main__":
    main()
