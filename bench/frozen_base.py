#!/usr/bin/env python3
"""Trains adapters on a frozen, quantized base: within a memory limit, and compared with the same base in bf16.

    bench/frozen_base.py [--model smollm2-360m] [--format nf4] [--limit 600M] [--batch 2] [--seq 256] [--steps 6] [-o NAME]
    bench/frozen_base.py --model qwen3-30b-a3b --limit 16G --batch 8 --seq 128 --steps 3 --disk --no-open

Unless --folder has the models, `ballast init --like MODEL` creates them in --format, and in bf16 for the open runs and
to show that bf16 does not fit. Capped runs are in a memory cgroup of --limit without swap (cgroup_run.sh: needs root).
Their arena is the plan's. `resident` is the peak of the process, and `peak` that of the cgroup, which includes the page
cache. `disk's limit` is the tokens per second at which the disk is always busy, from the plan's time of its busier
direction at the measured rates.

Open runs have no limit. The two formats run in turns, --rounds times. The processor time of a step is the difference
between a run of --steps and a run of one step, divided by the number of steps between. Other programs affect it less
than tokens per second.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess

import peers

TOKEN_KINDS = 1 << 16  # of an llm.c file


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_options(parser)
    parser.add_argument("--model", default="smollm2-360m", help="a preset's name [smollm2-360m]")
    parser.add_argument("--format", choices=["nf4", "int8", "mxfp4"], default="nf4", help="[nf4]")
    parser.add_argument("--limit", default="600M", help="of the cgroup [600M]")
    parser.add_argument("--lora", default="16,32,q_proj,k_proj,v_proj,o_proj", help="[16,32,q_proj,k_proj,v_proj,o_proj]")
    parser.add_argument("--batch", type=int, default=2, help="[2]")
    parser.add_argument("--seq", type=int, default=256, help="[256]")
    parser.add_argument("--steps", type=int, default=6, help="the first half is left out [6]")
    parser.add_argument("--rounds", type=int, default=3, help="of the open runs [3]")
    parser.add_argument("--disk", action="store_true", help="capped runs may use a disk tier in the directory")
    parser.add_argument("--no-open", action="store_true", help="capped runs alone")
    options = parser.parse_args()
    if options.steps < 2:
        peers.fail("--steps: at least 2, since the first half is left out")
    peers.prepare(options)
    return options


def make_model(options, format_):
    folder = options.folder / f"{options.model}-{format_}"
    if not (folder / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = [options.build / "ballast", "init", folder, "--like", options.model, "--dtype", "bf16", "--quiet"]
        subprocess.run([*command, "--quantize-base", "none" if format_ == "bf16" else format_], check=True)
    return folder


def make_tokens(options, vocabulary):
    count, kinds = options.batch * options.seq + 1, min(vocabulary, TOKEN_KINDS)
    path = options.folder / f"tokens-{kinds}-{count}.bin"
    draw = random.Random(1)
    tokens = [min(kinds, int(draw.paretovariate(0.6))) - 1 for _ in range(count)]
    path.write_bytes(struct.pack("<256i", 20240520, 1, count, *[0] * 253) + struct.pack(f"<{count}H", *tokens))
    return path


def run(command, log):
    """Exit status, seconds of processor time and the greatest resident memory of the command and its children."""
    environment = {**os.environ, "OMP_WAIT_POLICY": "passive"}
    with open(log, "wb") as errors:
        begun = subprocess.Popen([str(part) for part in command], stdout=errors, stderr=errors, env=environment)
        _, status, usage = os.wait4(begun.pid, 0)
    begun.returncode = os.waitstatus_to_exitcode(status)
    return begun.returncode, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def train(options, tokens, format_, steps, before=(), after=()):
    folder, log = options.folder / "run", options.folder / f"{format_}.log"
    shutil.rmtree(folder, ignore_errors=True)
    command = [*before, options.build / "ballast", "train", make_model(options, format_), tokens, "-o", folder, "--quiet"]
    command += ["--batch", options.batch, "--seq", options.seq, "--steps", steps, "--dtype", "bf16", "--lora", options.lora]
    command += ["--threads", options.threads, *peers.TRAIN_FLAGS, *after]
    status, seconds, resident = run(command, log)
    if status != 0:
        return {"status": status, "error": peers.why_failed(status, log), "log": log}
    return {"status": 0, "cpu_s": seconds, "resident": resident, "log": log, **peers.read_metrics(folder)}


def gib(size):
    return f"{size / 2**30:.2f}"


def capped_row(options, tokens, format_):
    limit = [peers.ROOT / "bench" / "cgroup_run.sh", options.limit]
    disk = ["--disk", options.folder] if options.disk else []
    result = train(options, tokens, format_, options.steps, limit, disk)
    log = result["log"].read_text(errors="replace")
    lines = re.findall(r"^cgroup_run: limit=\d+ peak=(\d+) oom_kills=(\d+) status=\d+ read=(\d+) written=(\d+)", log, re.M)
    if not lines:
        peers.fail(f"cgroup_run.sh: {log}")
    peak, kills, read, written = map(int, lines[-1])
    if result["status"]:
        message = re.findall(r"ballast: error: (.*)", log)
        return [format_, f"no: {message[-1] if message else result['error']}", "", "", gib(peak), str(kills), "", "", ""]
    arena = planned_bytes(options)
    rate = f"{peers.steady_rate(result, options):.2f}"
    moved = f"{gib(read)} / {gib(written)}"
    return [format_, "yes", gib(arena), gib(result["resident"]), gib(peak), str(kills), rate, disk_rate(options), moved]


def disk_rate(options):
    """Tokens a second at the disk's limit."""
    plan = json.loads((options.folder / "run" / "plan.json").read_text())
    busy = [stream["busy_s"] for stream in plan["streams"] if stream["role"].startswith("disk")]
    return f"{options.batch * options.seq / max(busy):.1f}" if any(busy) else ""


def planned_bytes(options):
    """Of the device tier; what the steps took must be it."""
    lines = [json.loads(line) for line in (options.folder / "run" / "metrics.jsonl").read_text().splitlines()]
    if any(line["device_bytes"] != line["predicted_device_bytes"] for line in lines):
        peers.fail(f"{options.folder}/run/metrics.jsonl: device_bytes is not what was planned")
    return lines[0]["predicted_device_bytes"]


def capped(options, tokens):
    formats = [options.format] if options.no_open else [options.format, "bf16"]
    head = ["base", "trains", "arena, GiB", "resident", "cgroup's peak", "killed", "tokens/s", "disk's limit", "read / written, GiB"]
    return peers.table(head, [capped_row(options, tokens, format_) for format_ in formats])


def open_runs(options, tokens):
    formats, found = ["bf16", options.format], {}
    for format_ in formats:
        train(options, tokens, format_, 1)  # measures operators, which later runs find measured
    for _ in range(options.rounds):
        for format_ in formats:
            short, long = (train(options, tokens, format_, steps) for steps in (1, options.steps))
            if short["status"] or long["status"]:
                peers.fail(f"{format_}: {short.get('error') or long.get('error')}")
            cpu = (long["cpu_s"] - short["cpu_s"]) / (options.steps - 1)
            found.setdefault(format_, []).append((cpu, peers.steady_rate(long, options)))
    cpu, rate = ({name: peers.median([pair[i] for pair in pairs]) for name, pairs in found.items()} for i in (0, 1))
    rows = [[name, f"{cpu[name]:.2f}", f"{rate[name]:.1f}"] for name in formats]
    body = peers.table(["base", "processor seconds a step", "tokens/s"], rows)
    speed, wall = cpu["bf16"] / cpu[options.format], rate[options.format] / rate["bf16"]
    summary = f"{options.format} has {speed:.2f} of the speed of bf16 by processor time ({wall:.2f} by the clock); bar: 0.8."
    return f"{body}\n\n{summary}"


def main():
    options = parse()
    config = json.loads((make_model(options, options.format) / "config.json").read_text())
    tokens = make_tokens(options, config["vocab_size"])
    body = f"Within {options.limit}{', with a disk tier' if options.disk else ''}:\n\n{capped(options, tokens)}"
    if not options.no_open:
        body += f"\n\nWithout a limit, medians of {options.rounds} rounds:\n\n{open_runs(options, tokens)}"
    configuration = (
        f"{options.model}, LoRA {options.lora}, batch {options.batch} x {options.seq}, {options.steps} steps, "
        f"{options.threads} threads, base in {options.format}."
    )
    peers.report(options, "Adapters on a frozen base in fewer bits", configuration, body)


if __name__ == "__main__":
    main()
