#!/usr/bin/env python3
"""Tests whether a run corrects a wrong profile.

Costs of the disk or of GEMMs are made 3 times higher or lower in the stored profile. A run that begins with them must
reach the best plan's speed within 20 steps.

    bench/wrong_profile.py [--build DIR] [--folder DIR] [--threads 1] [--rounds 8] [--mistake NAME...] [--layers 8]
                           [--hidden 512] [--seq 128] [--dtype fp32] [--batch N...] [--memory SIZE...] [--scan] [-o FILE]

`ballast plan` measures the right profile, until none of it is noisy. The best plan is the one chosen with it. Among
some batches and memory sizes, the benchmark picks the case in which the wrong profile's plan is predicted to be
furthest behind the best one. --scan prints this distance for each case, and exits.

A run with the wrong profile is stopped after 20 steps. Then its last plan, its first plan and the best plan run in
turns with --replan off, 6 steps each; the median from the third step on counts. A row shows how much slower than the
best plan they are: the prediction of the right profile, and the median over rounds with its interval (bars.py), each
round compared with the best plan of the same round. It also shows the spread of the best plan's rounds. A run meets or
misses the bar if the whole interval does. If its first plan cannot be distinguished from the best one, there is no
verdict. The losses of a run that changed its plan must equal those of a run that did not, to the last digit.
"""

import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import time

import bars

BAR = 0.03
PRODUCTS = ("linear", "head", "attention")  # operators whose names begin so
MISTAKES = {  # factors of the disk's times and of products' times
    "disk 3 times too slow": (3, 1),
    "disk 3 times too fast": (1 / 3, 1),
    "products 3 times too slow": (1, 3),
    "products 3 times too fast": (1, 1 / 3),
}
BATCHES, MEMORIES = (1, 4, 8), ("230M", "260M", "300M")
LEARNT_STEPS, TURN_STEPS, PROFILES = 20, 6, 6


class Bench:
    def __init__(self, options):
        self.options = options
        self.ballast = str((pathlib.Path(options.build) / "ballast").resolve())
        self.folder = pathlib.Path(options.folder).resolve()
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "disk").mkdir(parents=True)
        ffn = options.hidden * 43 // 16 // 16 * 16
        self.run(["init", "model", "--arch", "llama", "--hidden", str(options.hidden), "--layers", str(options.layers),
                  "--heads", "8", "--ffn", str(ffn), "--vocab", "512", "--context", str(options.seq)])
        tokens, value = [], 1
        for _ in range(65536):
            value = (value * 75 + 74) % 65537
            tokens.append(value % 256)
        head = [20240520, 1, len(tokens)] + [0] * 253  # of llm.c's token files
        (self.folder / "tokens.bin").write_bytes(b"".join(n.to_bytes(4, "little") for n in head) +
                                                 b"".join(n.to_bytes(2, "little") for n in tokens))

    def environment(self, cache):
        return dict(os.environ, XDG_CACHE_HOME=str(self.folder / cache))

    def run(self, arguments, cache="right", output=False):
        done = subprocess.run([self.ballast, *arguments], cwd=self.folder, env=self.environment(cache), text=True,
                              capture_output=True)
        if done.returncode:
            sys.exit(f"wrong_profile: ballast {' '.join(arguments)}: {done.stderr}")
        return done.stdout if output else done.stderr

    def scene(self, batch, memory):
        return ["--batch", str(batch), "--seq", str(self.options.seq), "--dtype", self.options.dtype,
                "--threads", str(self.options.threads), "--device-memory", memory, "--disk", "disk"]

    def plan(self, scene, cache, output):
        for _ in range(PROFILES):  # until nothing is noisy
            if "measuring" not in self.run(["plan", "model", *scene, "-o", output], cache):
                return
            if cache != "right":
                sys.exit("wrong_profile: the edited profile is measured again")
        print("wrong_profile: the machine is busy: operators stay noisy", file=sys.stderr)

    def predict(self, plan):
        """Seconds of a step by the right profile."""
        return json.loads(self.run(["simulate", plan, "--disk", "disk", "--json"], output=True))["step_s"]

    def scan(self, cache):
        """By how much the wrong profile's plan is predicted to be behind, with batch and memory, the furthest first."""
        found = []
        for batch in self.options.batch:
            for memory in self.options.memory:
                scene = self.scene(batch, memory)
                self.plan(scene, "right", "best.json")
                self.plan(scene, cache, "wrong.json")
                best_s = self.predict("best.json")
                found.append((self.predict("wrong.json") / best_s, batch, memory, best_s))
        return sorted(found, reverse=True)

    def make_wrong(self, mistake, cache):
        disk, products = MISTAKES[mistake]
        into = self.folder / cache / "ballast"
        into.mkdir(parents=True)
        for path in (self.folder / "right/ballast").glob("profile-*.json"):
            profile = json.loads(path.read_text())
            for rates in profile["rates"].values():
                rates["noise"] = 0
                for copy in rates["copies"]:
                    if "disk" in (copy["from"], copy["to"]):
                        copy["latency_s"] *= disk
                        copy["bytes_per_s"] /= disk
            for key, (seconds, _) in profile["operators"].items():
                profile["operators"][key] = [seconds * (products if key.startswith(PRODUCTS) else 1), 0]
            for dtype, (seconds, _) in profile["products"].items():
                profile["products"][dtype] = [seconds * products, 0]
            (into / path.name).write_text(json.dumps(profile))

    def train(self, scene, name, *more):
        return ["train", "model", "tokens.bin", "-o", name, *scene, "--schedule", "constant", "--warmup-steps", "0",
                "--save-every", "0", "--valid-every", "0", *more]

    def metrics(self, name):
        try:
            text = (self.folder / name / "metrics.jsonl").read_text()
        except FileNotFoundError:
            return []
        return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]

    def learn(self, scene, name, cache):
        """Trains until so many steps are done, and returns the changes of plan up to there."""
        with open(self.folder / f"{name}.txt", "w") as log:
            child = subprocess.Popen([self.ballast, *self.train(scene, name, "--steps", "1000")], cwd=self.folder,
                                     env=self.environment(cache), stdout=log, stderr=log)
            while child.poll() is None and len(losses(self.metrics(name))) < LEARNT_STEPS:
                time.sleep(0.02)
            child.send_signal(signal.SIGINT)
            child.wait()
        return [line for line in self.metrics(name) if "replan" in line and line["step"] <= LEARNT_STEPS]

    def turn(self, scene, plan, name):
        shutil.rmtree(self.folder / name, ignore_errors=True)
        self.run(self.train(scene, name, "--plan", plan, "--replan", "off", "--steps", str(TURN_STEPS)))
        return statistics.median([line["step_s"] for line in self.metrics(name) if "loss" in line][2:])


def losses(lines):
    return [line["loss"] for line in lines if "loss" in line]


def prepare(bench, mistake):
    """The name of a cache with the wrong profile."""
    cache = mistake.replace(" ", "-")
    for batch in bench.options.batch:
        bench.plan(bench.scene(batch, bench.options.memory[0]), "right", "best.json")
    bench.make_wrong(mistake, cache)
    return cache


def correct(bench, mistake):
    cache = prepare(bench, mistake)
    _, batch, memory, _ = bench.scan(cache)[0]
    scene = bench.scene(batch, memory)
    bench.plan(scene, "right", "best.json")
    bench.plan(scene, cache, "wrong.json")
    changes = bench.learn(scene, f"run-{cache}", cache)
    plans = {"best": "best.json", "wrong": "wrong.json", "corrected": f"run-{cache}/plan.json"}
    predicted = {name: bench.predict(plan) for name, plan in plans.items()}
    rounds = [{name: bench.turn(scene, plan, f"turn-{name}") for name, plan in plans.items()}
              for _ in range(bench.options.rounds)]
    mine, best = losses(bench.metrics(f"run-{cache}")), losses(bench.metrics("turn-best"))
    quickest = [r["best"] for r in rounds]
    return {
        "scene": f"{batch} x {bench.options.seq} tokens in {memory}, {bench.options.dtype}, "
                 f"width {bench.options.hidden}",
        "best_s": statistics.median(quickest),
        "apart": max(quickest) / min(quickest) - 1,
        "behind": {name: (predicted[name] / predicted["best"] - 1, [r[name] / r["best"] for r in rounds])
                   for name in ("wrong", "corrected")},
        "predicted_s": predicted["best"],
        "changes": changes,
        "equal": len(best) == TURN_STEPS and mine[:TURN_STEPS] == best,
    }


def verdict(row):
    if not row["equal"]:
        return "LOSSES DIFFER"
    begun, corrected = (bars.judge(row["behind"][name][1], max_ratio=1 + BAR) for name in ("wrong", "corrected"))
    if corrected == "met" and begun != "NOT met":
        return "says nothing: that the mistake cost something cannot be told"
    return corrected


def measured_words(ratios):
    low, high = bars.interval(ratios)
    return f"{100 * statistics.median(ratios) - 100:+.1f}% measured ({100 * low - 100:+.1f} to {100 * high - 100:+.1f})"


def words(mistake, row):
    changes = ", ".join(f"after step {c['step']}, {c['predicted_before_s']:.3f} to {c['predicted_after_s']:.3f} s"
                        for c in row["changes"]) or "none"
    behind = {name: f"{100 * predicted:+.1f}% predicted, {measured_words(ratios)}"
              for name, (predicted, ratios) in row["behind"].items()}
    return (f"{mistake}: {row['scene']}\n"
            f"    best plan              {row['predicted_s']:.3f} s a step predicted, {row['best_s']:.3f} s measured, "
            f"its rounds {100 * row['apart']:.1f}% apart\n"
            f"    begun with             {behind['wrong']}\n"
            f"    after {LEARNT_STEPS} steps         {behind['corrected']}, at most {100 * BAR:.0f}%: {verdict(row)}\n"
            f"    changes                {changes}\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", default="build")
    parser.add_argument("--folder", default="build/bench-wrong-profile")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--mistake", nargs="+", choices=MISTAKES, default=list(MISTAKES), metavar="NAME")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--seq", type=int, default=128)
    parser.add_argument("--dtype", default="fp32")
    parser.add_argument("--batch", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--memory", nargs="+", default=MEMORIES)
    parser.add_argument("--scan", action="store_true")
    parser.add_argument("-o", dest="output")
    options = parser.parse_args()
    bench, text, failed = Bench(options), [], False
    for mistake in options.mistake:
        if options.scan:
            for behind, batch, memory, best_s in bench.scan(prepare(bench, mistake)):
                print(f"{mistake}: {batch} in {memory}: {100 * behind - 100:+.1f}% of {best_s:.3f} s", flush=True)
            continue
        row = correct(bench, mistake)
        failed |= verdict(row) in ("NOT met", "LOSSES DIFFER")
        text.append(words(mistake, row))
        print(text[-1], end="", flush=True)
    if options.output:
        pathlib.Path(options.output).write_text("".join(text))
    sys.exit(failed)


if __name__ == "__main__":
    main()
