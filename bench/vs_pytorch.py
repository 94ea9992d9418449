#!/usr/bin/env python3
"""Training steps of Ballast beside those of PyTorch: the same weights, tokens, steps and optimizer, in one run.

    bench/vs_pytorch.py --python VENV/bin/python [--model gpt2 llama] [--dtype fp32 bf16] [--seq 256 1024 4096] [--batch 1 4 8]

The contenders take turns, --repeats times. Each is one process, pinned to as many threads. Tokens a second are those of
the median step, the first left out; a repeat has one figure and the table has the repeats' median. Memory is the greatest
resident size of the whole process (the median too). Losses of every step must agree, else the row says so.

PyTorch's best is the fastest of its contenders for speed and the smallest for memory, which need not be the same one.
Bars: at least 1.2 times its tokens a second, at most 0.6 times its memory. How PyTorch is set up: pytorch_peer.py.
"""

import argparse
import dataclasses
import itertools
import json
import shutil
import sys

import peers

LEAST_SPEED, MOST_MEMORY = 1.2, 0.6
# Of the loss, relative: fp32 differs in the order of sums, bf16 also in where is rounded.
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}
PYTORCH = {
    "PyTorch eager": [],
    "PyTorch eager, chunked head": ["--head-loss", "chunked"],
    "PyTorch compile": ["--compile"],
    "PyTorch compile, chunked head": ["--compile", "--head-loss", "chunked"],
    "PyTorch compile, max-autotune": ["--compile", "max-autotune"],
}
DEFAULT_PYTORCH = ["PyTorch eager", "PyTorch eager, chunked head", "PyTorch compile", "PyTorch compile, chunked head"]


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    dtype: str
    batch: int
    seq: int
    steps: int


def run_ballast(options, work, model, tokens):
    run, log = options.folder / "run", options.folder / "ballast.log"
    shutil.rmtree(run, ignore_errors=True)
    status, _, peak = peers.run_measured(peers.ballast_command(options, model, tokens, run, work), log)
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**peers.read_metrics(run), "peak_bytes": peak}


def run_pytorch(options, work, model, tokens, flags):
    log = options.folder / "pytorch.log"
    command = [options.python, peers.ROOT / "bench" / "pytorch_peer.py", model, tokens, "--threads", options.threads]
    command += ["--batch", work.batch, "--seq", work.seq, "--steps", work.steps, "--dtype", work.dtype, *flags]
    threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    status, text, peak = peers.run_measured(command, log, threads)
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**json.loads(text.splitlines()[-1]), "peak_bytes": peak}


def run_in_turns(options, work):
    """A list of results for each contender. One that failed is not run again."""
    model = peers.make_model(options, work.model, max(1024, work.seq))
    tokens = peers.make_tokens(options, work.model, work.batch * work.seq + 1)
    contenders = {"Ballast": lambda: run_ballast(options, work, model, tokens)}
    for name in options.pytorch:
        contenders[name] = lambda flags=PYTORCH[name]: run_pytorch(options, work, model, tokens, flags)
    results = {name: [] for name in contenders}
    for repeat, name in itertools.product(range(options.repeats), contenders):
        if results[name] and "error" in results[name][-1]:
            continue
        results[name].append(contenders[name]())
        print(f"{work} repeat {repeat + 1}: {name}: {tell(results[name][-1], work)}", file=sys.stderr, flush=True)
    return results


def tell(result, work):
    if "error" in result:
        return result["error"]
    return f"{peers.steady_rate(result, work):.1f} tokens/s, {result['peak_bytes'] / 2**30:.2f} GiB, losses {result['losses']}"


def summarise(results, work):
    """Of those that ran: tokens a second and bytes by contender."""
    good = {name: runs for name, runs in results.items() if runs and "error" not in runs[-1]}
    rates = {name: peers.median([peers.steady_rate(run, work) for run in runs]) for name, runs in good.items()}
    peaks = {name: peers.median([run["peak_bytes"] for run in runs]) for name, runs in good.items()}
    return rates, peaks


def loss_difference(results, name, work):
    """The greatest relative difference from Ballast's losses, in words."""
    ours, theirs = results["Ballast"][-1]["losses"], results[name][-1]["losses"]
    difference = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    return f"{difference:.1e}" + ("" if difference <= TOLERANCE[work.dtype] else ": NOT THE SAME WORK")


def case_rows(work, results):
    rates, peaks = summarise(results, work)
    case = f"{work.model} {work.dtype} {work.batch}x{work.seq}"
    rows = []
    for name, runs in results.items():
        if name not in rates:
            rows.append([case, name, f"could not run ({runs[-1]['error']})", "", "", "", ""])
            continue
        compared = name != "Ballast" and "Ballast" in rates
        rows.append(
            [
                case,
                name,
                f"{rates[name]:.1f}",
                f"{rates['Ballast'] / rates[name]:.2f}" if compared else "",
                f"{peaks[name] / 2**30:.2f}",
                f"{peaks['Ballast'] / peaks[name]:.2f}" if compared else "",
                loss_difference(results, name, work) if compared else "",
            ]
        )
    return rows


def verdict(work, results):
    """Ballast against PyTorch's best in both, and whether the bars are met."""
    rates, peaks = summarise(results, work)
    theirs = [name for name in rates if name != "Ballast"]
    if not theirs or "Ballast" not in rates:
        return f"- {work.model} {work.dtype} {work.batch}x{work.seq}: nothing to compare"
    fastest, smallest = max(theirs, key=rates.get), min(theirs, key=peaks.get)
    speed, memory = rates["Ballast"] / rates[fastest], peaks["Ballast"] / peaks[smallest]
    return (
        f"- {work.model} {work.dtype} {work.batch}x{work.seq}: {speed:.2f} times the tokens/s of {fastest} "
        f"({'met' if speed >= LEAST_SPEED else 'NOT met'}: {LEAST_SPEED}), {memory:.2f} times the memory of {smallest} "
        f"({'met' if memory <= MOST_MEMORY else 'NOT met'}: {MOST_MEMORY})"
    )


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--model", nargs="+", choices=peers.SIZES, default=["gpt2"], help="[gpt2]")
    parser.add_argument("--dtype", nargs="+", choices=TOLERANCE, default=["fp32", "bf16"], help="[both]")
    parser.add_argument("--seq", nargs="+", type=int, default=[1024], help="[1024]")
    parser.add_argument("--batch", nargs="+", type=int, default=[4], help="[4]")
    parser.add_argument("--steps", type=int, default=3, help="of each process; the first is left out [3]")
    parser.add_argument("--repeats", type=int, default=5, help="[5]")
    parser.add_argument("--pytorch", nargs="+", choices=PYTORCH, default=DEFAULT_PYTORCH, help="[all but max-autotune]")
    options = parser.parse_args()
    if options.steps < 2:
        peers.fail("--steps: at least 2, since the first is left out")
    peers.prepare(options)
    peers.require_module(options.python, "torch, transformers")
    return options


def main():
    options = parse()
    cases = itertools.product(options.model, options.dtype, options.batch, options.seq)
    works = [Work(model, dtype, batch, seq, options.steps) for model, dtype, batch, seq in cases]
    results = {work: run_in_turns(options, work) for work in works}
    head = ["case", "contender", "tokens/s", "Ballast is", "peak GiB", "Ballast takes", "loss differs by"]
    rows = [row for work in works for row in case_rows(work, results[work])]
    body = peers.table(head, rows) + "\n\n" + "\n".join(verdict(work, results[work]) for work in works)
    configuration = (
        f"{options.threads} threads each; {peers.versions(options.python, ['torch', 'transformers'])}; "
        f"{options.repeats} repeats of {options.steps} steps, in turns."
    )
    peers.report(options, "Beside PyTorch", configuration, body)


if __name__ == "__main__":
    main()
