#!/usr/bin/env python3
"""Compares training on several ranks of this machine with PyTorch's DistributedDataParallel and FSDP2 over gloo, in one
run, with the same weights, tokens, steps, optimizer, number of ranks and threads per rank.

    bench/ranks.py --python VENV/bin/python [--ranks 2] [--model gpt2 llama] [--dtype fp32 bf16] [--seq 1024] [--batch 4]
                   [--partitions]

--partitions adds Ballast with each partition of parameters, gradients and optimizer states, next to the one that it
chooses. The contenders take turns, --repeats times. Speed is that of the median step of the later half. Memory is the
peak sum of the processes' proportional set sizes (PSS, which counts a shared page once). A separate earlier run samples
it five times a second, because sampling takes a tenth of the step's time. If the losses of a step differ, the row says
so.

Bars: at least 1.3 times the tokens per second of PyTorch's fastest, at most 0.6 times the memory of its smallest, and
the step predicted within 10%. There is no verdict if noise between repeats could reverse it (bars.py).
"""

import argparse
import itertools
import json
import os
import pathlib
import shutil
import subprocess
import threading

import peers

SPEED_MIN, MEMORY_MAX, ERROR_MAX = 1.3, 0.6, 0.1
PYTORCH = {
    "DDP": [],
    "DDP, chunked head": ["--head-loss", "chunked"],
    "FSDP2": ["--wrap", "fsdp"],
    "FSDP2, chunked head": ["--wrap", "fsdp", "--head-loss", "chunked"],
}


def processes_below(root):
    """The process and all that it started, mpirun's ranks included."""
    parents = {}
    for entry in pathlib.Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parents.setdefault(int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1]), []).append(int(entry.name))
            except (OSError, IndexError):
                pass
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += parents.get(found[-1], [])
    return found


def share_bytes(process):
    try:
        for line in pathlib.Path(f"/proc/{process}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return 0


def run(command, log, environment, watched=False):
    """Exit status, stdout, and, if watched, the greatest sum of the processes' shares."""
    peak, ended = 0, threading.Event()
    with open(log, "wb") as errors:
        begun = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **environment},
        )

        def watch():
            nonlocal peak
            while not ended.wait(0.2):
                peak = max(peak, sum(share_bytes(process) for process in processes_below(begun.pid)))

        watcher = threading.Thread(target=watch)
        if watched:
            watcher.start()
        text = begun.stdout.read().decode()
        status = begun.wait()
        ended.set()
        if watched:
            watcher.join()
    return status, text, peak


PEAKS = {}


def peak_of(key, command, log, environment):
    """Of a contender's command, measured once. `key` says which it is."""
    if key not in PEAKS:
        PEAKS[key] = run(command, log, environment, watched=True)[2]
    return PEAKS[key]


def predict(options, folder):
    """Seconds that `ballast simulate` expects of a step, and the share of communication that is hidden; None: unknown."""
    command = [options.build / "ballast", "simulate", folder, "--json"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        return {}
    sums = answer.get("communication") or {}
    hidden = sums["hidden_s"] / sums["seconds"] if sums.get("seconds") else None
    return {"predicted_s": answer.get("step_s"), "hidden": hidden}


def partitions(ranks):
    """Widths of parameters, gradients and optimizer states, each a multiple of the one before."""
    widths = [width for width in range(1, ranks + 1) if ranks % width == 0]
    triples = itertools.product(widths, repeat=3)
    return ["|".join(map(str, (p, g, o))) for p, g, o in triples if g % p == 0 and o % g == 0]


def run_ballast(options, work, model, tokens, extra=()):
    folder, log = options.folder / "run", options.folder / "ballast.log"
    command = peers.ballast_command(options, model, tokens, folder, work, ["--ranks", options.ranks, *extra])
    shutil.rmtree(folder, ignore_errors=True)
    peak = peak_of((work, "Ballast", *extra), command, log, {})
    shutil.rmtree(folder, ignore_errors=True)
    status, _, _ = run(command, log, {})
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**peers.read_metrics(folder), "peak_bytes": peak, **predict(options, folder)}


def run_pytorch(options, work, model, tokens, flags):
    log = options.folder / "pytorch.log"
    command = [options.python, peers.ROOT / "bench" / "ranks_peer.py", model, tokens, "--threads", options.threads]
    command += ["--ranks", options.ranks, "--batch", work.batch, "--seq", work.seq, "--steps", work.steps]
    command += ["--dtype", work.dtype, *flags]
    threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    peak = peak_of((work, "PyTorch", *flags), command, log, threads)
    status, text, _ = run(command, log, threads)
    if status:
        return {"error": peers.why_failed(status, log)}
    return {**json.loads(text.splitlines()[-1]), "peak_bytes": peak}


def prediction_ratios(runs):
    """The predicted step over the median one, by repeat."""
    return [run["predicted_s"] / peers.median(run["step_s"][1:]) for run in runs if run.get("predicted_s")]


def prediction_error(runs):
    """The predicted step against the median one, of all repeats; None: none was predicted."""
    ratios = prediction_ratios(runs)
    return peers.median(ratios) - 1 if ratios else None


def step_noise(runs):
    """By how much the slowest step took longer than the quickest one, over all repeats."""
    steps = [step for run in runs for step in run["step_s"][1:]]
    return max(steps) / min(steps) - 1


def prediction(runs):
    known = [run for run in runs if run.get("predicted_s")]
    middle = prediction_error(runs)
    if middle is None:
        return "no step was predicted"
    hidden = [run["hidden"] for run in known if run.get("hidden") is not None]
    summary = f", {100 * peers.median(hidden):.0f}% of communication hidden" if hidden else ""
    bar = peers.bar_of(prediction_ratios(runs), max_ratio=1 + ERROR_MAX, min_ratio=1 - ERROR_MAX)
    noise = f"steps differ by up to {100 * step_noise(runs):.0f}%"
    return f"step predicted {100 * middle:+.1f}% off ({bar}; {noise}){summary}"


def verdict(work, results):
    words = peers.verdict(work, results, SPEED_MIN, MEMORY_MAX)
    return f"{words}, {prediction(results['Ballast'])}{partition_verdict(results)}"


def partition_verdict(results):
    """How well each partition's step was predicted; "" where none was asked for."""
    own = {name: runs for name, runs in results.items() if name.startswith("Ballast ")}
    errors = {name: prediction_error(runs) for name, runs in own.items()}
    errors = {name: error for name, error in errors.items() if error is not None}
    if not errors:
        return ""
    middle = peers.median([abs(error) for error in errors.values()])
    words = ", ".join(f"{name.split()[1]} {100 * error:+.1f}%" for name, error in errors.items())
    same = all(runs[-1].get("losses") == results["Ballast"][-1].get("losses") for runs in own.values())
    bar = peers.bar_of([abs(error) for error in errors.values()], max_ratio=ERROR_MAX)
    summary = "losses the same to the bit" if same else "losses NOT the same"
    return f"; by partition: {words}, {100 * middle:.1f}% in the median ({bar}), {summary}"


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--ranks", type=int, default=2, help="of every contender [2]")
    parser.add_argument("--model", nargs="+", choices=peers.SIZES, default=["gpt2"], help="[gpt2]")
    parser.add_argument("--dtype", nargs="+", choices=peers.TOLERANCE, default=["fp32", "bf16"], help="[both]")
    parser.add_argument("--seq", nargs="+", type=int, default=[1024], help="[1024]")
    parser.add_argument("--batch", nargs="+", type=int, default=[4], help="over all ranks, a multiple of their number [4]")
    parser.add_argument("--steps", type=int, default=4, help="of each process; the first half is left out [4]")
    parser.add_argument("--repeats", type=int, default=5, help="[5]")
    parser.add_argument("--partitions", action="store_true", help="Ballast with each of them too")
    parser.add_argument("--pytorch", nargs="+", choices=PYTORCH, default=list(PYTORCH), help="[all]")
    options = parser.parse_args()
    options.threads = max(1, options.threads // options.ranks)
    if options.steps < 2:
        peers.fail("--steps: at least 2, since the first half is left out")
    if any(batch % options.ranks for batch in options.batch):
        peers.fail(f"--batch: must be a multiple of {options.ranks}, the number of ranks")
    peers.prepare(options)
    peers.require_module(options.python, "torch, transformers")
    return options


def main():
    options = parse()
    own = {triple: ["--partition", triple] for triple in partitions(options.ranks)} if options.partitions else {}
    results = {
        work: peers.run_in_turns(options, work, run_ballast, run_pytorch, PYTORCH, own) for work in peers.every_work(options)
    }
    rows = [row for work, result in results.items() for row in peers.case_rows(work, result)]
    verdicts = "\n".join(verdict(work, result) for work, result in results.items())
    body = peers.table(peers.CASE_HEAD, rows) + "\n\n" + verdicts
    configuration = (
        f"{options.ranks} ranks of {options.threads} thread(s) each; "
        f"{peers.versions(options.python, ['torch', 'transformers'])}; "
        f"{options.repeats} repeats of {options.steps} steps, in turns."
    )
    peers.report(options, "Ranks compared with PyTorch", configuration, body)


if __name__ == "__main__":
    main()
