"""Shared by the benchmarks against other trainers: models, token files, measured processes, runs of `ballast train`,
tables. Needs only Python."""

import dataclasses
import itertools
import json
import os
import pathlib
import platform
import random
import shutil
import statistics
import struct
import subprocess
import sys
import time

import bars

ROOT = pathlib.Path(__file__).resolve().parent.parent
SIZES = {
    "gpt2": ["--arch", "gpt2", "--hidden", "768", "--layers", "12", "--heads", "12", "--vocab", "50257"],
    "gpt2-large": ["--arch", "gpt2", "--hidden", "1280", "--layers", "36", "--heads", "20", "--vocab", "50257"],
    "llama": ["--arch", "llama", "--hidden", "768", "--layers", "12", "--heads", "12", "--vocab", "32000", "--ffn", "2048"],
    "small": ["--arch", "gpt2", "--hidden", "384", "--layers", "6", "--heads", "6", "--vocab", "8192"],
    "tiny": ["--arch", "gpt2", "--hidden", "128", "--layers", "2", "--heads", "2", "--vocab", "2048"],  # for a trial
}
# Every contender has the optimizer of `ballast train` with a constant learning rate.
TRAIN_FLAGS = ["--schedule", "constant", "--warmup-steps", "0", "--save-every", "0"]


def fail(message):
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(2)


def median(values):
    return statistics.median(values)


def add_options(parser):
    """Options that all of these benchmarks have."""
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build", help="holds ballast [build]")
    parser.add_argument("--folder", type=pathlib.Path, help="for models and runs [BUILD/bench-peers]")
    parser.add_argument("--python", default=sys.executable, help="one with the peers' packages [this one]")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)), help="of every contender [all cores]")
    parser.add_argument("-o", "--output", metavar="NAME", help="also write bench/results/DATE-NAME.md")


def prepare(options):
    """Sets the default directory. Fails if `ballast` is missing."""
    if not (options.build / "ballast").exists():
        fail(f"{options.build}/ballast is not there: build it (make), or name its directory with --build")
    options.build = options.build.resolve()
    options.folder = (options.folder or options.build / "bench-peers").resolve()
    options.folder.mkdir(parents=True, exist_ok=True)


def require_module(python, module):
    if subprocess.run([python, "-c", f"import {module}"], capture_output=True).returncode:
        fail(
            f"{python} has no {module}; make one that has it, and name it with --python VENV/bin/python:\n"
            f"    python3 -m venv VENV && VENV/bin/pip install -r {ROOT}/tests/reference/requirements.txt"
        )


def make_model(options, size, context):
    """A model with random weights, made once by `ballast init`."""
    folder = options.folder / f"{size}-{context}"
    if not (folder / "config.json").exists():
        shutil.rmtree(folder, ignore_errors=True)
        command = [options.build / "ballast", "init", folder, *SIZES[size], "--context", str(context), "--quiet"]
        subprocess.run(command, check=True)
    return folder


def make_tokens(options, size, count):
    """An llm.c token file of `count` ids below the model's vocabulary, drawn from a power law with one seed."""
    vocabulary = int(SIZES[size][SIZES[size].index("--vocab") + 1])
    path = options.folder / f"tokens-{vocabulary}-{count}.bin"
    draw = random.Random(1)
    tokens = [min(vocabulary, int(draw.paretovariate(0.6))) - 1 for _ in range(count)]
    header = struct.pack("<256i", 20240520, 1, count, *[0] * 253)
    path.write_bytes(header + struct.pack(f"<{count}H", *tokens))
    return path


def die_first():
    """Makes the kernel kill this process, and no other, when memory runs out."""
    pathlib.Path("/proc/self/oom_score_adj").write_text("1000")


def run_measured(command, log, environment=None):
    """Runs a command with stderr in the file `log`. Returns the exit status (-9: killed), stdout, and the peak resident
    memory of the process or of one of its children, in bytes."""
    with open(log, "wb") as errors:
        begun = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=errors,
            env={**os.environ, **(environment or {})},
            preexec_fn=die_first,
        )
        text = begun.stdout.read().decode()
        _, status, usage = os.wait4(begun.pid, 0)
    begun.returncode = os.waitstatus_to_exitcode(status)
    return begun.returncode, text, usage.ru_maxrss * 1024


def why_failed(status, log):
    """A line on a process that did not end well."""
    if status in (-9, 137):
        return "killed: out of memory"
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    tellings = [line for line in lines if "rror" in line and not line.startswith(("File", "raise"))]
    return f"exit {status}: {(tellings or lines or ['no message'])[-1][:160]}"


def ballast_command(options, model, tokens, run, work, extra=()):
    command = [options.build / "ballast", "train", model, tokens, "-o", run, "--quiet", "--threads", options.threads]
    command += ["--batch", work.batch, "--seq", work.seq, "--steps", work.steps, "--dtype", work.dtype]
    return [*command, *TRAIN_FLAGS, *extra]


def read_metrics(run):
    """Losses and seconds of the steps of a run."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return {"losses": [line["loss"] for line in lines], "step_s": [line["step_s"] for line in lines]}


def steady_rate(result, work):
    """Returns tokens per second, by the median of the later half of the steps. The first step compiles and touches
    memory, and PyTorch's allocator settles over the next two."""
    steps = result["step_s"]
    return work.batch * work.seq / median(steps[len(steps) // 2 :])


@dataclasses.dataclass(frozen=True)
class Work:
    model: str
    dtype: str
    batch: int
    seq: int
    steps: int

    def __str__(self):
        return f"{self.model} {self.dtype} {self.batch}x{self.seq}"


# Relative tolerance of losses: fp32 differs in the order of sums, bf16 also in where values are rounded.
TOLERANCE = {"fp32": 1e-4, "bf16": 1e-2}
CASE_HEAD = ["case", "contender", "tokens/s", "Ballast is", "peak GiB", "Ballast takes", "loss differs by"]


def every_work(options):
    cases = itertools.product(options.model, options.dtype, options.batch, options.seq)
    return [Work(model, dtype, batch, seq, options.steps) for model, dtype, batch, seq in cases]


def run_in_turns(options, work, run_ballast, run_pytorch, flags, own=None):
    """Returns a list of results for each contender: "Ballast", variants of it in `own`, and those of `flags`. Does not
    run a contender again after a failure."""
    model = make_model(options, work.model, max(1024, work.seq))
    tokens = make_tokens(options, work.model, work.batch * work.seq + 1)
    contenders = {"Ballast": lambda: run_ballast(options, work, model, tokens)}
    for name, extra in (own or {}).items():
        contenders[f"Ballast {name}"] = lambda extra=extra: run_ballast(options, work, model, tokens, extra)
    for name in options.pytorch:
        contenders[name] = lambda own=flags[name]: run_pytorch(options, work, model, tokens, own)
    results = {name: [] for name in contenders}
    for repeat, name in itertools.product(range(options.repeats), contenders):
        if results[name] and "error" in results[name][-1]:
            continue
        results[name].append(contenders[name]())
        print(f"{work} repeat {repeat + 1}: {name}: {results[name][-1]}", file=sys.stderr, flush=True)
    return results


def figures(results, work):
    """By contender that ran: tokens a second, bytes."""
    good = {name: runs for name, runs in results.items() if runs and "error" not in runs[-1]}
    rates = {name: median([steady_rate(run, work) for run in runs]) for name, runs in good.items()}
    peaks = {name: median([run["peak_bytes"] for run in runs]) for name, runs in good.items()}
    return rates, peaks


def loss_difference(results, name, work):
    """Describes the largest relative difference from Ballast's losses."""
    ours, theirs = results["Ballast"][-1]["losses"], results[name][-1]["losses"]
    difference = max(abs(a - b) / abs(b) for a, b in zip(ours, theirs, strict=True))
    return f"{difference:.1e}" + ("" if difference <= TOLERANCE[work.dtype] else ": NOT THE SAME WORK")


def case_rows(work, results):
    """Rows below CASE_HEAD."""
    rates, peaks = figures(results, work)
    rows = []
    for name, runs in results.items():
        if name not in rates:
            rows.append([str(work), name, f"could not run ({runs[-1]['error']})", "", "", "", ""])
            continue
        compared = name != "Ballast" and "Ballast" in rates
        rows.append(
            [
                str(work),
                name.replace("|", "\\|"),
                f"{rates[name]:.1f}",
                f"{rates['Ballast'] / rates[name]:.2f}" if compared else "",
                f"{peaks[name] / 2**30:.2f}",
                f"{peaks['Ballast'] / peaks[name]:.2f}" if compared else "",
                loss_difference(results, name, work) if compared else "",
            ]
        )
    return rows


AT = {"max_ratio": "at most", "min_ratio": "at least"}


def bar_of(ratios, **limit):
    """Describes a bar, and whether these rounds meet it (bars.judge)."""
    return f"{bars.judge(ratios, **limit)}: {', '.join(f'{AT[side]} {bar}' for side, bar in limit.items())}"


def verdict(work, results, min_speed, max_memory):
    """Compares Ballast with PyTorch's best in speed and memory, and judges the bars."""
    rates, peaks = figures(results, work)
    theirs = [name for name in rates if not name.startswith("Ballast")]
    if not theirs or "Ballast" not in rates:
        return f"- {work}: nothing to compare"
    fastest, smallest = max(theirs, key=rates.get), min(theirs, key=peaks.get)
    speed, memory = rates["Ballast"] / rates[fastest], peaks["Ballast"] / peaks[smallest]
    own = results["Ballast"]
    speeds = [steady_rate(mine, work) / steady_rate(other, work) for mine, other in zip(own, results[fastest])]
    memories = [mine["peak_bytes"] / other["peak_bytes"] for mine, other in zip(own, results[smallest])]
    return (
        f"- {work}: {speed:.2f} times the tokens/s of {fastest} ({bar_of(speeds, min_ratio=min_speed)}), "
        f"{memory:.2f} times the memory of {smallest} ({bar_of(memories, max_ratio=max_memory)})"
    )


def processor_name():
    for line in pathlib.Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()


def describe_machine():
    flags = pathlib.Path("/proc/cpuinfo").read_text().split()
    extensions = [name for name in ("avx2", "avx512f", "avx512_bf16", "amx_bf16") if name in flags]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{os.cpu_count()} cores of {processor_name()} ({', '.join(extensions)}), {memory:.0f} GiB"


def table(head, rows):
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    return "\n".join(lines + ["| " + " | ".join(row) + " |" for row in rows])


def report(options, title, configuration, body):
    """Prints the result, and writes it to the requested file."""
    date = time.strftime("%Y-%m-%d")
    command = " ".join(["bench/" + pathlib.Path(sys.argv[0]).name, *command_line_without_paths()])
    text = f"# {title}\n\nCommand: `{command}`. Machine: {describe_machine()}. Date: {date}.\n{configuration}\n\n{body}\n"
    print(text)
    if options.output:
        (ROOT / "bench" / "results" / f"{date}-{options.output}.md").write_text(text)


def command_line_without_paths():
    """Returns the arguments that affect the result, without paths of this machine."""
    hidden = {"--python": "PYTHON", "--build": "BUILD", "--folder": "FOLDER", "--llmc": "LLMC"}
    words = sys.argv[1:]
    for at, word in enumerate(words[:-1]):
        if word in hidden:
            words[at + 1] = hidden[word]
    return words


def versions(python, packages):
    program = "import sys, importlib.metadata as m; print(', '.join(f'{p} {m.version(p)}' for p in sys.argv[1:]))"
    return subprocess.run([python, "-c", program, *packages], capture_output=True, text=True, check=True).stdout.strip()
