#!/usr/bin/env python3
"""Compares training steps with llm.c's train_gpt2 on the CPU, in turns, with the same weights, tokens and optimizer.

    bench/vs_llmc.py --llmc CHECKOUT --python VENV/bin/python [--batch 4] [--seq 1024]

CHECKOUT is a clone of github.com/karpathy/llm.c, which is copied and not changed. The constants for batch, sequence
length and number of steps in train_gpt2.c are set in the copy, which `make train_gpt2` then builds. Both train in fp32
with llm.c's settings of AdamW, without decay and clipping. If losses differ, the row says so. PYTHON needs numpy and
safetensors.

The steps around llm.c have been tested, but never with llm.c itself, because no checkout was available. Formats and
output are those of llm.c in 2024; a missing constant is an error.
"""

import argparse
import dataclasses
import pathlib
import re
import shutil
import subprocess
import sys

import peers

TOLERANCE = 1e-3
OPTIMIZER = ["--lr", "1e-4", "--beta2", "0.999", "--weight-decay", "0", "--clip-norm", "0"]
STEP_LINE = re.compile(r"^step \d+: train loss ([\d.]+) \(took ([\d.]+) ms\)", re.M)


@dataclasses.dataclass(frozen=True)
class Work:
    dtype: str
    batch: int
    seq: int
    steps: int


def build_llmc(options, work, model, tokens):
    """A copy of the checkout with the case's constants, built, and its files where it looks for them."""
    copy = options.folder / "llm.c"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(options.llmc, copy, ignore=shutil.ignore_patterns(".git", "*.bin"))
    source = copy / "train_gpt2.c"
    text = source.read_text()
    for pattern, value in ((r"int B = \d+;", f"int B = {work.batch};"), (r"int T = \d+;", f"int T = {work.seq};"),
                           (r"step <= \d+;", f"step < {work.steps};")):  # fmt: skip
        text, found = re.subn(pattern, value, text)
        if found != 1:
            peers.fail(f"{options.llmc}/train_gpt2.c: '{pattern}' is there {found} times, not once: not a version known here")
    source.write_text(text)
    with open(options.folder / "llmc-build.log", "wb") as log:
        if subprocess.run(["make", "train_gpt2"], cwd=copy, stdout=log, stderr=log).returncode:
            peers.fail(f"{options.llmc}: `make train_gpt2` failed, see {log.name}")
    data = copy / "dev" / "data" / "tinyshakespeare"
    data.mkdir(parents=True, exist_ok=True)
    shutil.copy(tokens, data / "tiny_shakespeare_train.bin")
    # Five batches before the first step validate; they are not in a step's time.
    shutil.copy(tokens, data / "tiny_shakespeare_val.bin")
    convert = [options.python, peers.ROOT / "bench" / "llmc_model.py", model, copy / "gpt2_124M.bin"]
    subprocess.run(convert, check=True)
    return copy


def run_llmc(options, copy):
    log = options.folder / "llmc.log"
    command = ["sh", "-c", 'cd "$0" && exec ./train_gpt2', copy]
    status, text, peak = peers.run_measured(command, log, {"OMP_NUM_THREADS": str(options.threads)})
    steps = STEP_LINE.findall(text)
    if status or not steps:
        peers.fail(f"llm.c's train_gpt2: {peers.why_failed(status, log)}")
    return {
        "losses": [float(loss) for loss, _ in steps],
        "step_s": [float(taken) * 1e-3 for _, taken in steps],
        "peak_bytes": peak,
    }


def run_ballast(options, work, model, tokens):
    run, log = options.folder / "run", options.folder / "ballast.log"
    shutil.rmtree(run, ignore_errors=True)
    status, _, peak = peers.run_measured(peers.ballast_command(options, model, tokens, run, work, OPTIMIZER), log)
    if status:
        peers.fail(f"ballast train: {peers.why_failed(status, log)}")
    return {**peers.read_metrics(run), "peak_bytes": peak}


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--llmc", type=pathlib.Path, help="a checkout of llm.c")
    parser.add_argument("--batch", type=int, default=4, help="[4]")
    parser.add_argument("--seq", type=int, default=1024, help="[1024]")
    parser.add_argument("--steps", type=int, default=3, help="of each process; the first half is left out [3]")
    parser.add_argument("--repeats", type=int, default=5, help="[5]")
    options = parser.parse_args()
    if not options.llmc:
        peers.fail("no checkout of llm.c was given (--llmc CHECKOUT), so there is nothing to compare with")
    if not (options.llmc / "train_gpt2.c").exists():
        peers.fail(f"--llmc: {options.llmc} has no train_gpt2.c")
    if not 2 <= options.steps <= 10 or options.seq > 1024:
        peers.fail("--steps must be 2 to 10 (llm.c validates again at the tenth), --seq at most 1024 (GPT-2's context)")
    peers.prepare(options)
    peers.require_module(options.python, "numpy, safetensors")
    return options


def main():
    options = parse()
    work = Work("fp32", options.batch, options.seq, options.steps)
    model = peers.make_model(options, "gpt2", 1024)
    tokens = peers.make_tokens(options, "gpt2", work.batch * work.seq + 1)
    copy = build_llmc(options, work, model, tokens)
    ours, theirs = [], []
    for repeat in range(options.repeats):
        ours.append(run_ballast(options, work, model, tokens))
        theirs.append(run_llmc(options, copy))
        print(f"repeat {repeat + 1}: {ours[-1]} {theirs[-1]}", file=sys.stderr, flush=True)
    rows = []
    for name, runs in (("Ballast", ours), ("llm.c", theirs)):
        rate = peers.median([peers.steady_rate(run, work) for run in runs])
        peak = peers.median([run["peak_bytes"] for run in runs])
        rows.append([name, f"{rate:.1f}", f"{peak / 2**30:.2f}", f"{runs[-1]['losses']}"])
    pairs = zip(ours[-1]["losses"], theirs[-1]["losses"], strict=True)
    difference = max(abs(a - b) / abs(b) for a, b in pairs)
    same = "the same work" if difference <= TOLERANCE else "NOT THE SAME WORK"
    body = peers.table(["contender", "tokens/s", "peak GiB", "losses"], rows)
    body += f"\n\nLosses differ by {difference:.1e} at most, relative: {same}."
    configuration = f"GPT-2 124M, fp32, batch {work.batch} x {work.seq}, {options.threads} threads, {options.repeats} repeats."
    peers.report(options, "Compared with llm.c", configuration, body)


if __name__ == "__main__":
    main()
