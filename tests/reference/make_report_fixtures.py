"""Make tests/fixtures/report/run.tar.gz, a run with its plan: what `ballast report` reads, of a believable run.

    python3 tests/reference/make_report_fixtures.py                    # the committed fixtures
    python3 tests/reference/make_report_fixtures.py DIR STEPS EVENTS  # a larger run, to see how the page holds it

A step of a small Llama whose optimizer state is on the disk: four micro-batches in two waves, forward and backward of each
block, reads and writes overlapped with them, deferred updates in the next forward. No clock and no machine is asked: the same
files come out everywhere.
"""

import gzip
import json
import math
import pathlib
import random
import sys
import tarfile
import tempfile

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "report"
MIB = 1 << 20
LAYERS = 12
BLOCKS = ["embedding"] + [f"layer {i}" for i in range(LAYERS)] + ["head"]
KINDS = ["parameters", "gradients", "cache", "optimizer", "activations", "inputs", "results", "workspace"]
NAMES = ["embedding", "rms_norm", "linear", "attention", "swiglu", "head_loss", "linear_backward",
         "attention_backward", "norm", "adamw", "copy from disk", "copy to disk"]
PHASES = ["forward", "backward", "update"]
SECTIONS = ["first pass", "last pass", "update"]
ROLES = ["compute", "update", "disk_in", "disk_out"]
RECIPE = {"dtype": "fp32", "batch": 8, "sequence_length": 512, "grain_sequences": 2, "threads": 8, "seed": 1,
          "kernels_version": 2, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0,
          "document_attention": "across", "lora": "", "freeze": "", "isa": "avx2"}
POLICY = {"grains_per_pass": 2, "chunk_bytes": 0, "persistent_chunks": 3, "buffers": 4, "lookahead": 1,
          "parameters": "device", "gradients": "device", "optimizer": "disk", "update": "device",
          "schedule": "f0-13 d1-6 b13-7 f6 b6-0"}


class Step:
    """Events on streams; `noise` is how far a measured time strays from the model's."""

    def __init__(self, noise, pieces, seed):
        self.random = random.Random(seed)
        self.noise, self.pieces = noise, pieces
        self.events = {role: [] for role in range(len(ROLES))}
        self.free = [0.0] * len(ROLES)

    def add(self, stream, name, block, section, grain, phase, length_us, after=0.0, moved=0):
        start = max(self.free[stream], after) + (self.random.uniform(0.5, 3) if self.noise else 0)
        length = length_us * (1 + self.noise * self.random.gauss(0.3, 1)) if self.noise else length_us
        length = max(length, 0.2 * length_us)
        self.events[stream].append([stream, NAMES.index(name), block, section, grain, phase, round(start, 3),
                                    round(length, 3), moved])
        self.free[stream] = start + length
        return start + length

    def forward(self, section, grain, block, after):
        kinds = [("rms_norm", 140), ("linear", 2600), ("attention", 1500), ("linear", 900), ("swiglu", 420),
                 ("linear", 2700)]
        if block in (0, len(BLOCKS) - 1):
            kinds = [("embedding", 160)] if block == 0 else [("rms_norm", 140), ("head_loss", 9800)]
        for name, length in kinds:
            for _ in range(self.pieces):
                end = self.add(0, name, block, section, grain, 0, length / self.pieces, after)
        return end

    def backward(self, section, grain, block):
        kinds = [("linear_backward", 5300), ("swiglu", 600), ("linear_backward", 1700), ("attention_backward", 3600),
                 ("linear_backward", 5100), ("rms_norm", 300)]
        if block in (0, len(BLOCKS) - 1):
            kinds = [("embedding", 400)] if block == 0 else [("linear_backward", 8200)]
        for name, length in kinds:
            for _ in range(self.pieces):
                end = self.add(0, name, block, section, grain, 1, length / self.pieces)
        return end

    def update(self, block):
        """The state of a block's chunk comes from the disk, is used, and goes back."""
        state = 54 * MIB
        read = self.add(2, "copy from disk", block, 0, -1, 2, state / 1900, max(0, self.free[1] - 40000), state)
        done = self.add(1, "adamw", block, 0, -1, 2, 5200, read)
        self.add(3, "copy to disk", block, 0, -1, 2, state / 1450, done, state)
        return done

    def run(self):
        last = len(BLOCKS) - 1
        for section in range(2):
            for block in range(last + 1):
                ready = self.update(block) if section == 0 and 3 <= block < last else 0
                for grain in (2 * section, 2 * section + 1):
                    self.forward(section, grain, block, ready)
            for block in range(last, -1, -1):
                for grain in (2 * section, 2 * section + 1):
                    if block == 6:
                        self.forward(section, grain, block, 0)
                    self.backward(section, grain, block)
        self.add(0, "norm", -1, 2, -1, 2, 2400)
        self.add(0, "adamw", 0, 2, -1, 2, 14000)

    def memory(self, end):
        """Points of the device tier and of the disk, from what compute does."""
        device, disk, activations = [], [], 0
        held = [MIB * 9 if 0 < block < len(BLOCKS) - 1 else MIB for block in range(len(BLOCKS))]
        for event in self.events[0]:
            block, phase, name = event[2], event[5], NAMES[event[1]]
            if phase == 0 and name in ("swiglu", "embedding", "head_loss"):
                activations += held[block] // self.pieces
            if phase == 1 and name in ("rms_norm", "embedding"):
                activations = max(0, activations - held[block] // self.pieces)
            state = 162 * MIB if event[6] < 0.4 * end and event[3] == 0 and phase == 0 else 54 * MIB
            device.append([event[6], 212 * MIB, 212 * MIB, 0, state, activations, 64 << 10, 256,
                           (46 if name == "head_loss" else 9) * MIB])
        for event in self.events[3]:
            disk.append([event[6], 0, 0, 0, 540 * MIB, 54 * MIB if event[6] > 0.2 * end else 0, 0, 0, 0])
        return device, [[0, 0, 0, 0, 540 * MIB, 0, 0, 0, 0]] + disk

    def timeline(self, kind):
        self.run()
        events = [event for role in range(len(ROLES)) for event in self.events[role]]
        end = max(event[6] + event[7] for event in events)
        device, disk = self.memory(end)
        busy = [sum(event[7] for event in self.events[role]) / 1e6 for role in range(len(ROLES))]
        top = max(sum(point[1:]) for point in device)
        return {"version": 1, "kind": kind, "step_s": round(end / 1e6, 6), "names": NAMES,
                "streams": [{"role": role, "busy_s": round(busy[i], 6), "waiting_s": round(end / 1e6 - busy[i], 6)}
                            for i, role in enumerate(ROLES)],
                "events": events, "blocks": BLOCKS, "sections": SECTIONS, "phases": PHASES,
                "tiers": [{"name": "device", "program_bytes": top + 3 * MIB, "kinds": KINDS, "points": device},
                          {"name": "disk", "program_bytes": 594 * MIB, "kinds": KINDS, "points": disk}]}


def plan_document(timeline):
    tiers = []
    for tier, capacity in zip(timeline["tiers"], (900 * MIB, 40 << 30)):
        peak = max(tier["points"], key=lambda point: sum(point[1:]))
        by_kind = dict(zip(KINDS, peak[1:]))
        by_kind["unused"] = tier["program_bytes"] - sum(peak[1:])
        tiers.append({"name": tier["name"], "program_bytes": tier["program_bytes"], "capacity_bytes": capacity,
                      "by_kind": by_kind})
    other = dict(POLICY, persistent_chunks=1, buffers=2, lookahead=0)
    recomputing = dict(POLICY, schedule="f0-13 b13 f12 b12 f11 b11 f10 b10-0")
    return {"version": 1, "recipe": RECIPE, "policy": POLICY, "step_s": timeline["step_s"], "tiers": tiers,
            "streams": timeline["streams"],
            "runners_up": [{"policy": other, "step_s": timeline["step_s"] * 1.083, "device_bytes": 590 * MIB},
                           {"policy": recomputing, "step_s": timeline["step_s"] * 1.17, "device_bytes": 611 * MIB}],
            "front": [{"policy": recomputing, "step_s": timeline["step_s"] * 1.31, "device_bytes": 402 * MIB},
                      {"policy": other, "step_s": timeline["step_s"] * 1.06, "device_bytes": 540 * MIB}],
            "binds": None}


def metrics(steps, predicted, seed):
    source, lines, norm = random.Random(seed), [], 1.0
    for step in range(1, steps + 1):
        part = step / steps
        loss = 2.1 + 8.3 * math.exp(-9 * part) - 0.5 * part + 0.07 * source.gauss(0, 1)
        norm = 0.9 * norm + 0.1 * (0.4 + 4 * math.exp(-14 * part) + abs(source.gauss(0, 0.25)))
        seconds = predicted * (1.045 + 0.02 * source.gauss(0, 1)) * (1.6 if step % 97 == 0 else 1)
        rate = 3e-4 * min(step / (0.04 * steps), 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * part)))
        lines.append({"step": step, "loss": loss, "grad_norm": norm * (9 if step == steps * 3 // 5 else 1), "lr": rate,
                      "tokens": step * 4096, "tokens_per_s": round(4096 / seconds, 2), "step_s": round(seconds, 5),
                      "mfu": round(0.41 * predicted / seconds, 4), "device_bytes": 640 * MIB,
                      "predicted_step_s": predicted, "predicted_device_bytes": 660 * MIB})
        if step % max(1, steps // 10) == 0:
            lines.append({"step": step, "val_loss": loss + 0.06 + 0.05 * part})
    return lines


def run_document(steps):
    options = {"steps": steps * 5 // 4, "schedule_steps": 0, "warmup_steps": 20, "save_every": 100, "keep": 2,
               "valid_every": 50, "valid_batches": 0, "chat_time_s": 0, "sample_every": 0, "sample_tokens": 64,
               "min_lr_fraction": 0.1, "wsd_decay_fraction": 0.2, "valid_fraction": 0.05, "learning_rate": 3e-4,
               "schedule": "cosine", "sample_prompt": "", "loss_on_all": False, "data": ["/data/books.txt"],
               "valid": []}
    plan = {"version": 1, "recipe": RECIPE, "policy": POLICY}
    return {"version": 1, "model": "/models/llama-124m", "options": options, "plan": plan}


def write(path, value, lines=False):
    text = "\n".join(json.dumps(line) for line in value) if lines else json.dumps(value, separators=(",", ":"))
    path.write_text(text + "\n")


def make(folder, steps, pieces):
    folder.mkdir(parents=True, exist_ok=True)
    predicted = Step(0, pieces, 1).timeline("predicted")
    write(folder / "run.json", run_document(steps))
    write(folder / "plan.json", plan_document(predicted))
    write(folder / "predicted.json", predicted)
    write(folder / "timeline.json", Step(0.06, pieces, 2).timeline("measured"))
    write(folder / "metrics.jsonl", metrics(steps, predicted["step_s"], 3), lines=True)


def pack(path, steps, pieces):
    """The same as an archive of the directory "run", whose bytes depend on its files alone."""
    with tempfile.TemporaryDirectory() as place, path.open("wb") as raw:
        make(pathlib.Path(place) / "run", steps, pieces)
        with gzip.GzipFile(fileobj=raw, mode="wb", filename="", mtime=0) as packed:
            with tarfile.open(fileobj=packed, mode="w") as archive:
                for file in sorted((pathlib.Path(place) / "run").iterdir()):
                    entry = tarfile.TarInfo(f"run/{file.name}")
                    entry.size = file.stat().st_size
                    archive.addfile(entry, file.open("rb"))


def main():
    if len(sys.argv) == 1:
        pack(FIXTURES / "run.tar.gz", 240, 1)
        return
    events = int(sys.argv[3])
    make(pathlib.Path(sys.argv[1]), int(sys.argv[2]), max(1, events // 700))


if __name__ == "__main__":
    main()
