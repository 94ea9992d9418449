"""The `tokenizers` library's side of bench/tokenize.sh.

    python bench/tokenize_peer.py make DEMO.txt OUT_FOLDER    text.txt (100 MB) and tokenizers trained on a part of it
    python bench/tokenize_peer.py run TOKENIZER TEXT          encodes the text's documents, on one thread

The text mixes the demo's paragraphs with sentences in twenty scripts and languages, in an order drawn from a fixed
seed. Seven of ten bytes are English. Blank lines separate documents.
"""

import os

os.environ["TOKENIZERS_PARALLELISM"] = "false"
os.environ["RAYON_NUM_THREADS"] = "1"

import json
import pathlib
import random
import sys
import time

import tokenizers
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests" / "reference"))
from make_tokenizer_fixtures import LLAMA3, LLAMA_DECODER, SPACE  # noqa: E402
from tokenizer_texts import SAMPLES  # noqa: E402

TEXT_BYTES, TRAINING_BYTES, VOCABULARY = 100_000_000, 12_000_000, 32_000
BATCH = 2000


def mixed(rng):
    """A paragraph of words of one of the samples, some with a number or a letter changed."""
    words = rng.choice(SAMPLES).split(" ")
    out = []
    for _ in range(rng.randrange(20, 120)):
        word = rng.choice(words)
        if rng.random() < 0.15:
            word += str(rng.randrange(10000))
        elif rng.random() < 0.3 and len(word) > 2:
            place = rng.randrange(len(word) - 1)
            word = word[:place] + word[place + 1] + word[place] + word[place + 2 :]
        out.append(word)
    return " ".join(out).replace("\n\n", "\n")


def make_text(demo):
    rng = random.Random(1)
    paragraphs = [part for part in demo.read_text().split("\n\n") if part]
    parts, sizes = [], [0, 0]
    while sum(sizes) < TEXT_BYTES:
        english = sizes[0] < 0.7 * (sum(sizes) + 1)
        part = rng.choice(paragraphs) if english else mixed(rng)
        parts.append(part)
        sizes[0 if english else 1] += len(part.encode()) + 2
    return "\n\n".join(parts)


def train(text, byte_level):
    tokenizer = Tokenizer(models.BPE(unk_token=None if byte_level else "<unk>", byte_fallback=not byte_level))
    if byte_level:
        split = pre_tokenizers.Split(Regex(LLAMA3), "isolated")
        last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([split, last])
        tokenizer.decoder = decoders.ByteLevel()
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", True)
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        show_progress=False,
        special_tokens=[] if byte_level else ["<unk>", "<s>", "</s>"] + [f"<0x{byte:02X}>" for byte in range(256)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if byte_level else [],
        limit_alphabet=1000,
    )
    tokenizer.train_from_iterator(text[:TRAINING_BYTES].split("\n\n"), trainer)
    return tokenizer


def make(demo, folder):
    text = make_text(demo)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "text.txt").write_text(text)
    train(text, True).save(str(folder / "byte_level.json"))
    data = json.loads(train(text, False).to_str())
    data["added_tokens"] = data["added_tokens"][:3]
    data["model"]["fuse_unk"] = True
    llama = Tokenizer.from_str(json.dumps(data))
    llama.decoder = decoders.Sequence(LLAMA_DECODER)
    llama.save(str(folder / "metaspace.json"))
    llama.pre_tokenizer = None
    llama.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
    llama.save(str(folder / "llama2.json"))


def run(path, text_path):
    tokenizer = Tokenizer.from_file(str(path))
    raw = text_path.read_bytes()
    documents = raw.decode().split("\n\n")
    taken, count, total = 0.0, 0, 0
    for start in range(0, len(documents), BATCH):
        batch = documents[start : start + BATCH]
        begun = time.perf_counter()
        encoded = tokenizer.encode_batch_fast(batch, add_special_tokens=False)
        taken += time.perf_counter() - begun
        for one in encoded:
            count += len(one.ids)
            total += sum(one.ids)
    megabytes = len(raw) * 1e-6
    name = f"tokenizers {tokenizers.__version__}"
    print(f"{name:22} {megabytes:6.1f} MB {taken:8.3f} s {megabytes / taken:7.1f} MB/s  ids {count} sum {total}")


if __name__ == "__main__":
    if len(sys.argv) != 4 or sys.argv[1] not in ("make", "run"):
        sys.exit(__doc__)
    {"make": make, "run": run}[sys.argv[1]](pathlib.Path(sys.argv[2]), pathlib.Path(sys.argv[3]))
