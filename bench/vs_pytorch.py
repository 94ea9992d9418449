#!/usr/bin/env python3
"""Compares training steps with PyTorch in one run, with the same weights, tokens, steps and optimizer.

    bench/vs_pytorch.py --python VENV/bin/python [--model gpt2 llama] [--dtype fp32 bf16] [--seq 256 1024 4096] [--batch 1 4 8]

The contenders take turns, --repeats times. Each is one process, with the same number of threads. A repeat's speed is
that of the median step of the later half, in tokens per second. Memory is the peak resident size of the process. The
table has the medians over repeats. If the losses of a step differ, the row says so.

PyTorch's best is the fastest contender for speed and the smallest for memory, which may be different ones. With
--clip-norm 0, two more contenders update each parameter within backward, so that gradients take no memory of their own.
Bars: at least 1.4 times its tokens per second, and at most 0.6 times its memory. pytorch_peer.py sets up PyTorch.
"""

import argparse
import json
import shutil

import peers

SPEED_MIN, MEMORY_MAX = 1.4, 0.6
PYTORCH = {
    "PyTorch eager": [],
    "PyTorch eager, chunked head": ["--head-loss", "chunked"],
    "PyTorch compile": ["--compile"],
    "PyTorch compile, chunked head": ["--compile", "--head-loss", "chunked"],
    "PyTorch compile, max-autotune": ["--compile", "max-autotune"],
}
IN_BACKWARD = {
    f"{name}, updates in backward": [*PYTORCH[name], "--update-in-backward"]
    for name in ("PyTorch eager, chunked head", "PyTorch compile, chunked head")
}
DEFAULT_PYTORCH = ["PyTorch eager", "PyTorch eager, chunked head", "PyTorch compile", "PyTorch compile, chunked head"]


def run_ballast(options, work, model, tokens):
    run, log = options.folder / "run", options.folder / "ballast.log"
    shutil.rmtree(run, ignore_errors=True)
    own = ["--clip-norm", options.clip_norm, *(["--master-weights", options.master_weights] if work.dtype == "bf16" else [])]
    command = peers.ballast_command(options, model, tokens, run, work, own)
    status, _, peak = peers.run_measured(command, log)
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**peers.read_metrics(run), "peak_bytes": peak}


def run_pytorch(options, work, model, tokens, flags):
    log = options.folder / "pytorch.log"
    command = [options.python, peers.ROOT / "bench" / "pytorch_peer.py", model, tokens, "--threads", options.threads]
    command += ["--batch", work.batch, "--seq", work.seq, "--steps", work.steps, "--dtype", work.dtype]
    command += ["--clip-norm", options.clip_norm, *flags]
    threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    status, text, peak = peers.run_measured(command, log, threads)
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**json.loads(text.splitlines()[-1]), "peak_bytes": peak}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--model", nargs="+", choices=peers.SIZES, default=["gpt2"], help="[gpt2]")
    parser.add_argument("--dtype", nargs="+", choices=peers.TOLERANCE, default=["fp32", "bf16"], help="[both]")
    parser.add_argument("--seq", nargs="+", type=int, default=[1024], help="[1024]")
    parser.add_argument("--batch", nargs="+", type=int, default=[4], help="[4]")
    parser.add_argument("--steps", type=int, default=8, help="of each process; the first half is left out [8]")
    parser.add_argument("--repeats", type=int, default=5, help="[5]")
    parser.add_argument("--clip-norm", type=float, default=1.0, help="of every contender; 0: no clipping [1]")
    parser.add_argument("--master-weights", choices=("fp32", "split"), default="fp32", help="Ballast's in bf16 [fp32]")
    parser.add_argument("--pytorch", nargs="+", choices=[*PYTORCH, *IN_BACKWARD], help="[all but max-autotune]")
    options = parser.parse_args()
    options.pytorch = options.pytorch or [*DEFAULT_PYTORCH, *(IN_BACKWARD if options.clip_norm == 0 else [])]
    if options.clip_norm > 0 and any(name in IN_BACKWARD for name in options.pytorch):
        peers.fail("--pytorch: updates in backward take --clip-norm 0, since clipping needs all gradients")
    if options.steps < 2:
        peers.fail("--steps: at least 2, since the first half is left out")
    peers.prepare(options)
    peers.require_module(options.python, "torch, transformers")
    return options


def main():
    options = parse()
    results = {
        work: peers.run_in_turns(options, work, run_ballast, run_pytorch, {**PYTORCH, **IN_BACKWARD})
        for work in peers.every_work(options)
    }
    rows = [row for work, result in results.items() for row in peers.case_rows(work, result)]
    verdicts = "\n".join(peers.verdict(work, result, SPEED_MIN, MEMORY_MAX) for work, result in results.items())
    body = peers.table(peers.CASE_HEAD, rows) + "\n\n" + verdicts
    configuration = (
        f"{options.threads} threads each; {peers.versions(options.python, ['torch', 'transformers'])}; "
        f"{options.repeats} repeats of {options.steps} steps, in turns; "
        + (f"gradients clipped at {options.clip_norm:g}." if options.clip_norm > 0 else "no clipping.")
    )
    peers.report(options, "Compared with PyTorch", configuration, body)


if __name__ == "__main__":
    main()
