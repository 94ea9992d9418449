#!/usr/bin/env python3
"""Compares training in less memory than a step needs: Ballast, with and without a disk tier, and PyTorch's libraries.

    bench/vs_offload.py --python VENV/bin/python [--model gpt2 | gpt2-large] [--limit 1.2G | 3G] [--batch 1] [--seq 1024]

Each contender is one process in a memory cgroup of --limit without swap (cgroup_run.sh: needs root). A row shows
whether it trains, tokens per second (median step of the later half), the cgroup's peak, which includes the page cache,
and the peak resident memory of the process. Losses must equal those of the first contender that ran; optimizers with
states of 8 or 4 bits differ by design.

Packages besides tests/reference/requirements.txt: torchao==0.18.0, deepspeed==0.19.8 (DS_ACCELERATOR=cpu DS_BUILD_OPS=0 pip
install --no-build-isolation deepspeed, after setuptools and wheel; NVMe needs Debian's libaio-dev, and a compiler).
"""

import argparse
import dataclasses
import json
import re
import shutil
import sys

import peers

PEERS = {
    "plain": "PyTorch",
    "checkpoint": "PyTorch, torch.utils.checkpoint",
    "torchao-adamw8bit": "the same, torchao AdamW8bit",
    "torchao-adamw4bit": "the same, torchao AdamW4bit",
    "torchao-cpu-offload": "torchao CPUOffloadOptimizer",
    "accelerate-cpu": "Accelerate cpu_offload",
    "accelerate-disk": "Accelerate disk_offload",
    "deepspeed-cpu": "DeepSpeed ZeRO-3 to CPU",
    "deepspeed-nvme": "DeepSpeed ZeRO-Infinity to disk",
}
OURS = {"ballast": "Ballast", "ballast-disk": "Ballast, --disk"}


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    dtype: str
    batch: int
    seq: int
    steps: int


def run_capped(options, command, log):
    """As peers.run_measured, with the cgroup's own peak and kills."""
    # The kernel charges the page cache to the cgroup that reads a file first.
    ended = ["timeout", "--kill-after=10", options.minutes * 60]
    capped = [peers.ROOT / "bench" / "cgroup_run.sh", options.limit, *ended, *command]
    threads = {"OMP_NUM_THREADS": str(options.threads), "MKL_NUM_THREADS": str(options.threads)}
    status, text, resident = peers.run_measured(capped, log, threads)
    lines = re.findall(r"^cgroup_run: limit=\d+ peak=(\d+) oom_kills=(\d+)", log.read_text(errors="replace"), re.M)
    if not lines:
        peers.fail(f"cgroup_run.sh: {peers.why_failed(status, log)}")
    peak, kills = map(int, lines[-1])
    return status, text, {"peak_bytes": peak, "oom_kills": kills, "resident_bytes": resident}


def run_ballast(options, work, model, tokens, extra):
    run, log = options.folder / "run", options.folder / "ballast.log"
    shutil.rmtree(run, ignore_errors=True)
    status, _, seen = run_capped(options, peers.ballast_command(options, model, tokens, run, work, extra), log)
    return {**seen, **(peers.read_metrics(run) if status == 0 else {"error": failure(options, status, seen, log)})}


def run_peer(options, work, model, tokens, name):
    log, disk = options.folder / "peer.log", options.folder / "disk"
    shutil.rmtree(disk, ignore_errors=True)
    disk.mkdir()
    command = [options.python, peers.ROOT / "bench" / "offload_peer.py", name, model, tokens, "--folder", disk]
    command += ["--batch", work.batch, "--seq", work.seq, "--steps", work.steps, "--threads", options.threads]
    status, text, seen = run_capped(options, command, log)
    shutil.rmtree(disk)
    summary = json.loads(text.splitlines()[-1]) if status == 0 else {"error": failure(options, status, seen, log)}
    return {**summary, **seen}


def failure(options, status, seen, log):
    if seen["oom_kills"]:
        return "killed: out of memory"
    if status in (124, 137):
        return f"not done after {options.minutes:g} minutes"
    # The line that cgroup_run.sh adds is not the error.
    lines = [line for line in log.read_text(errors="replace").splitlines() if not line.startswith("cgroup_run:")]
    log.write_text("\n".join(lines))
    return peers.why_failed(status, log)


def run(options, work, model, tokens, name):
    if name == "ballast":
        return run_ballast(options, work, model, tokens, ["--device-memory", options.device_memory])
    if name == "ballast-disk":
        disk = options.folder / "ballast-disk"
        disk.mkdir(exist_ok=True)
        return run_ballast(options, work, model, tokens, ["--device-memory", options.device_memory, "--disk", disk])
    return run_peer(options, work, model, tokens, name)


def row(name, result, work, reference):
    label = {**OURS, **PEERS}[name]
    sizes = [f"{result['peak_bytes'] / 2**30:.2f}", f"{result['resident_bytes'] / 2**30:.2f}"]
    if "error" in result:
        return [label, "no: " + result["error"].replace("|", "/"), "", *sizes, ""]
    difference = max(abs(a - b) / abs(b) for a, b in zip(result["losses"], reference, strict=True))
    return [label, "yes", f"{peers.steady_rate(result, work):.1f}", *sizes, f"{difference:.1e}"]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--model", choices=peers.SIZES, default="gpt2", help="[gpt2]")
    parser.add_argument("--limit", default="1.2G", help="of the cgroup [1.2G]")
    parser.add_argument("--device-memory", help="of Ballast's arena [the limit less 128 MiB]")
    parser.add_argument("--batch", type=int, default=1, help="[1]")
    parser.add_argument("--seq", type=int, default=1024, help="[1024]")
    parser.add_argument("--steps", type=int, default=3, help="the first half is left out [3]")
    parser.add_argument("--minutes", type=float, default=15, help="a contender may take [15]")
    parser.add_argument("--contenders", nargs="+", choices=[*OURS, *PEERS], default=[*OURS, *PEERS], help="[all]")
    options = parser.parse_args()
    if options.steps < 2:
        peers.fail("--steps: at least 2, since the first half is left out")
    peers.prepare(options)
    peers.require_module(options.python, "torch, transformers")
    limit = re.fullmatch(r"([\d.]+)([KMGT]?)", options.limit)
    if not limit:
        peers.fail(f"--limit: '{options.limit}' is no size such as 512M or 1.5G")
    bytes_ = int(float(limit[1]) * 1024 ** " KMGT".index(limit[2] or " "))
    options.device_memory = options.device_memory or str(bytes_ - (128 << 20))
    return options


def main():
    options = parse()
    work = Work(options.model, "fp32", options.batch, options.seq, options.steps)
    model = peers.make_model(options, work.model, max(1024, work.seq))
    tokens = peers.make_tokens(options, work.model, work.batch * work.seq + 1)
    results = {}
    for name in options.contenders:
        results[name] = run(options, work, model, tokens, name)
        print(f"{name}: {results[name]}", file=sys.stderr, flush=True)
    ran = [result["losses"] for result in results.values() if "error" not in result]
    rows = [row(name, result, work, ran[0] if ran else None) for name, result in results.items()]
    head = ["contender", "trains", "tokens/s", "cgroup's peak GiB", "resident GiB", "loss differs by"]
    optional = ("accelerate", "deepspeed", "torchao")
    used = [package for package in optional if any(name.startswith(package) for name in results)]
    configuration = (
        f"{work.model}, fp32, batch {work.batch} x {work.seq}, {work.steps} steps, {options.threads} threads; cgroup of "
        f"{options.limit} without swap; {peers.versions(options.python, ['torch', 'transformers', *used])}."
    )
    peers.report(options, "Training in less memory than it needs", configuration, peers.table(head, rows))


if __name__ == "__main__":
    main()
