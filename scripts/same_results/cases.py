"""The models, data and commands that both builds run."""
import json
import pathlib
import random
import struct

SOURCE = pathlib.Path(__file__).resolve().parent.parent.parent
MODELS = SOURCE / "tests" / "fixtures" / "models"


# ---- inputs ----

def read_json(path):
    return json.loads(path.read_text())


def text_config(config):
    return {**config, **config.get("text_config", {})}


def write_tokenizer(config, path):
    """Writes a byte-level tokenizer with the model's number of tokens: special ones, letters and pairs of letters."""
    config = text_config(config)
    special = set()
    for key in ("bos_token_id", "eos_token_id", "pad_token_id"):
        ids = config.get(key)
        special |= {i for i in (ids if isinstance(ids, list) else [ids]) if isinstance(i, int)}
    letters = "etaoinshrdlucmfwypvbgkjqxz"
    pairs = [(a, b) for a in letters for b in letters]
    texts = iter(["Ġ", "Ċ", "."] + list(letters) + pairs)
    vocabulary, merges = {}, []
    for number in range(config["vocab_size"]):
        text = None if number in special else next(texts, None)
        if isinstance(text, tuple):
            merges.append(list(text))
        vocabulary[f"<{number}>" if text is None else "".join(text)] = number
    added = [{"id": number, "content": f"<{number}>", "single_word": False, "lstrip": False, "rstrip": False,
              "normalized": False, "special": True} for number in sorted(special) if number < config["vocab_size"]]
    path.write_text(json.dumps({
        "version": "1.0", "truncation": None, "padding": None, "added_tokens": added, "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "post_processor": None, "decoder": {"type": "ByteLevel"},
        "model": {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
                  "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
                  "vocab": vocabulary, "merges": merges}}))


def write_data(place, vocabulary):
    """Writes a text in a small language, preference pairs and a file of tokens. They are the same at each run."""
    draw = random.Random(33)
    words = ["".join(draw.choice("etaoinshr") for _ in range(draw.randint(1, 6))) for _ in range(60)]
    sentence = lambda: " ".join(draw.choice(words) for _ in range(draw.randint(3, 9)))
    (place / "text.txt").write_text("".join(sentence() + ".\n" for _ in range(120)))
    pair = lambda: {"prompt": sentence(), "chosen": " " + sentence(), "rejected": " " + sentence()}
    (place / "pairs.jsonl").write_text("".join(json.dumps(pair()) + "\n" for _ in range(24)))
    tokens = [draw.randrange(3, vocabulary) for _ in range(1500)]
    header = struct.pack("<3i", 20240520, 1, len(tokens)) + bytes(1012)
    (place / "tokens.bin").write_bytes(header + struct.pack(f"<{len(tokens)}H", *tokens))


class Inputs:
    """Inputs of both builds: data, and models with a tokenizer."""

    def __init__(self, place):
        self.place = place
        self.configs = {path.parent.name: read_json(path) for path in sorted(MODELS.glob("*/config.json"))}
        self.families = [name for name, config in self.configs.items() if config["model_type"] == name]
        place.mkdir(parents=True)
        write_data(place, min(text_config(config)["vocab_size"] for config in self.configs.values()))

    def model(self, name):
        """Creates a model's directory: links to the fixture's files, and a tokenizer if it has none."""
        place = self.place / "models" / name
        if not place.exists():
            place.mkdir(parents=True)
            for file in (MODELS / name).iterdir():
                if not file.name.startswith(("reference.", "generated.")):
                    (place / file.name).symlink_to(file)
            if not (place / "tokenizer.json").exists():
                write_tokenizer(self.configs[name], place / "tokenizer.json")
        return place


# ---- cases ----

STEP = ["--batch", "4", "--seq", "16", "--device", "cpu"]
MEMORY = ["--device-memory", "1G"]
CAPS = [0.55, 0.7, 0.85]  # fractions of the plain step's device memory; the first that fits is the cap
RUN = ["--warmup-steps", "1", "--save-every", "2", "--lr", "1e-2", "--chat-date", "2026-01-01", "--json", "--quiet"]
FIXED = ["--replan", "off"]  # ranks never change their plan
RANKS = ["--rank-timeout", "300"]
HALF = [*FIXED, "--schedule-steps", "4"]
VALID = ["--valid-fraction", "0.2", "--valid-every", "2", "--valid-batches", "2"]
SAMPLE = ["--sample-every", "2", "--sample-prompt", "as the", "--sample-tokens", "6"]
LORA = ["--lora", "4,8,all-linear"]
WRITE = ["--prompt", "as the", "--tokens", "8", "--ignore-end", "--seq", "16", "--device", "cpu", "--threads", "1",
         "--json", "--quiet"]
# A new model has heads that two ranks can share.
NEW_MODEL = ["--hidden", "32", "--layers", "2", "--heads", "4", "--vocab", "256", "--context", "64", "--quiet"]
WITHOUT_GROUPED_HEADS = ("gpt2", "opt")


def evaluate(case, data, *options):
    return "eval", ["eval", "run/model", case.input(data), "--batches", "3", "--json", *STEP, *case.numbers, *options]


def after_plain(case):
    write = ["generate", "run/model", *WRITE, "--dtype", case.dtype]
    return [evaluate(case, "text.txt"),
            ("generate", [*write, "--temperature", "0"]),
            ("generate-drawn", [*write, "--temperature", "0.9", "--top-k", "20"]),
            ("inspect", ["inspect", "run", "--verify", "--json"])]


def after_adapters(case):
    return [*after_plain(case), ("merge", ["merge", "run/model", "-o", "merged", "--quiet"])]


def after_pairs(case):
    return [evaluate(case, "pairs.jsonl", "--loss", "dpo", "--reference", case.model)]


def after_ranks(case):
    return [evaluate(case, "text.txt", "--lanes", "4", "--ranks", "2", *RANKS)]


def after_half(_):
    return [("resume", ["resume", "run", "--steps", "4", *MEMORY, "--json", "--quiet"])]


class Variant:
    """Options of a case's training, and the commands that follow. `bf16`: options only for bf16."""

    def __init__(self, name, step=(), bf16=(), run=FIXED, data="tokens.bin", after=lambda case: [], micro_batch=1,
                 threads=1, steps=4, new_model=False):
        self.name, self.step, self.bf16, self.run = name, list(step), list(bf16), [*run, "--steps", str(steps)]
        self.data, self.after, self.new_model = data, after, new_model
        self.numbers = ["--threads", str(threads), "--micro-batch", str(micro_batch)]


VARIANTS = [
    Variant("plain", run=[*FIXED, *VALID, *SAMPLE], data="text.txt", threads=2, after=after_plain),
    Variant("capped"),  # Group.measure finds the cap
    Variant("lora", LORA, data="text.txt", after=after_adapters),
    Variant("nf4", [*LORA, "--quantize-base", "nf4"], after=after_adapters),
    Variant("dpo", ["--loss", "dpo"], data="pairs.jsonl", micro_batch=2, after=after_pairs),
    Variant("ranks", ["--ranks", "2", "--lanes", "4"], run=RANKS, data="text.txt", after=after_ranks),
    Variant("pipeline", ["--ranks", "2", "--pipeline-parallel", "2"], run=[]),
    Variant("tensor", ["--ranks", "2", "--tensor-parallel", "2"], bf16=["--sequence-parallel", "on"], run=RANKS,
            new_model=True),
    Variant("tensor-3", ["--ranks", "3", "--tensor-parallel", "3"], run=[]),
    Variant("resumed", run=HALF, steps=2, after=after_half),
    Variant("taken-over", run=HALF, steps=2, after=after_half),  # the new build resumes the old build's run
    Variant("compact", ["--optimizer-dtype", "int8"], bf16=["--master-weights", "split"]),
    Variant("muon", ["--optimizer", "muon"]),
]


class Case:
    def __init__(self, inputs, family, dtype, isa, variant):
        self.name = f"{family} {dtype} {variant.name} {isa}"
        self.inputs, self.family, self.dtype, self.isa, self.variant = inputs, family, dtype, isa, variant
        self.model = "model" if variant.new_model else str(inputs.model(family))
        self.numbers = ["--dtype", dtype, *variant.numbers]
        self.cap = MEMORY
        self.has_ranks = "--ranks" in variant.step

    def input(self, name):
        return str(self.inputs.place / name)

    def step(self):
        more = self.variant.bf16 if self.dtype == "bf16" else []
        return [*STEP, *self.numbers, *self.variant.step, *more, *self.cap]

    def init(self):
        heads = [] if self.family in WITHOUT_GROUPED_HEADS else ["--kv-heads", "2"]
        command = ["init", "model", "--arch", self.family, *NEW_MODEL, *heads]
        return [("init", command)] if self.variant.new_model else []

    def plan(self):
        return "plan", ["plan", self.model, *self.step(), "--json"]

    def train(self):
        data = self.input(self.variant.data)
        return "train", ["train", self.model, data, "-o", "run", *self.step(), *RUN, *self.variant.run]

    def commands(self):
        return [*self.init(), self.plan(), self.train(), *self.variant.after(self)]
