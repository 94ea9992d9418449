"""Makes tests/fixtures/tokenizers: small tokenizers of every kind, and what the `tokenizers` library does with them.

    python tests/reference/make_tokenizer_fixtures.py

Writes, next to each tokenizer NAME.json, NAME.expected.json.gz:
    {"ids": [[...], ...],            for each text of texts.json, without special tokens of the template
     "decoded": {"INDEX": text},     where decoding these ids does not give the (repaired) text back
     "skipped": {"INDEX": text},     where decoding without special tokens gives something else again
     "template": [[...], ...],       the first texts, with special tokens
     "decode": [[ids, text, text without special tokens], ...]}   for ids drawn at random; null where the library panics
Texts are strings, or {"hex": bytes} where they are not UTF-8 or hold NUL. trained.json is what BpeTrainer makes of
train.txt. All is drawn from one seed.
"""

import json
import pathlib
import random

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

import packed_json
import tokenizer_texts

OUT = pathlib.Path(__file__).resolve().parent.parent / "fixtures" / "tokenizers"
SEED = 20240607

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
# Possessive repeats, a repeat of a repeat, character ranges, categories, case: what other families use.
OTHER = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|\p{N}{1,2}+"
    r"| ?[^\s\p{L}\p{N}]++[\r\n/]*|[a-fA-F一-龥]{2,}?\d|\s*[\r\n]|\s+(?!\S)|\s|."
)


# Ends of lines: the later of tiktoken's splits for GPT-4, and splits one after the other as DeepSeek's.
TIKTOKEN = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]"
    r"|\s+(?!\S)|\s"
)
LINES = [r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", r"\s+$", r"^\p{N}", r"[\p{Mn}]+|[\p{Mc}]+"]


def train(vocab_size, alphabet=True, **options):
    """A BPE model trained on the sample texts with GPT-2's split, as the tokenizer.json that holds it."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    unknown = [options["unk_token"]] if "unk_token" in options else []
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        show_progress=False,
        special_tokens=unknown,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if alphabet else [],
    )
    tokenizer.train_from_iterator(tokenizer_texts.SAMPLES, trainer)
    return tokenizer


def byte_level_after(*splits):
    return pre_tokenizers.Sequence([*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def edit(tokenizer, change):
    """The tokenizer whose file is this one's, changed."""
    data = json.loads(tokenizer.to_str())
    change(data)
    return Tokenizer.from_str(json.dumps(data)), data


def gpt2():
    tokenizer = train(700)
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    tokenizer.add_special_tokens(["<|endoftext|>"])

    def legacy(data):
        model = data["model"]
        model["merges"] = [" ".join(pair) for pair in model["merges"]]
        del model["type"], model["byte_fallback"], model["ignore_merges"]
        model["unk_token"] = model["continuing_subword_prefix"] = model["end_of_word_suffix"] = ""

    return edit(tokenizer, legacy)


def gpt2_prefix_space():
    tokenizer = train(400)
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.add_special_tokens(["<s>", "</s>"])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 400), ("</s>", 401)]
    )
    return edit(tokenizer, lambda data: None)


def llama3():
    tokenizer = train(600)
    tokenizer.pre_tokenizer = byte_level_after(split(LLAMA3))

    def words(data):
        # Tokens that no merge makes: found only because words that are tokens are not taken apart.
        data["model"]["ignore_merges"] = True
        for word in ["Ġelephant", "zyx", "ĠĠĠĠĠ", "123", "Ġdéjà".encode().decode()]:
            data["model"]["vocab"].setdefault(word, len(data["model"]["vocab"]))

    tokenizer, _ = edit(tokenizer, words)
    names = ["<|begin_of_text|>", "<|end_of_text|>"] + [f"<|reserved_special_token_{i}|>" for i in range(12)]
    tokenizer.add_special_tokens(names)
    begin = tokenizer.token_to_id(names[0])
    tokenizer.post_processor = processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single=f"{names[0]} $A", pair=f"{names[0]} $A {names[0]} $B", special_tokens=[(names[0], begin)]
            ),
        ]
    )
    return edit(tokenizer, lambda data: None)


def qwen2():
    tokenizer = train(600)
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = byte_level_after(split(QWEN2))
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("</tool_call>", normalized=False)])
    return edit(tokenizer, lambda data: None)


def tiktoken():
    tokenizer = train(600)
    tokenizer.pre_tokenizer = byte_level_after(split(TIKTOKEN))
    return edit(tokenizer, lambda data: None)


def lines():
    tokenizer = train(600)
    tokenizer.normalizer = normalizers.Replace(Regex(r"^\t| $"), "_")
    tokenizer.pre_tokenizer = byte_level_after(*[split(pattern) for pattern in LINES])
    return edit(tokenizer, lambda data: None)


def flags():
    tokenizer = train(300)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFC()])
    tokens = []
    for i in range(32):
        names = ["single_word", "lstrip", "rstrip", "normalized", "special"]
        on = {name: bool(i >> bit & 1) for bit, name in enumerate(names)}
        tokens.append(AddedToken(f"[{i}]" if i % 3 else f"tok{i}", **on))
    tokens += [
        AddedToken("<a>", normalized=False),
        AddedToken("<a><b>", normalized=False),
        AddedToken("<a><b><c>", normalized=True),
        AddedToken(" spaced out ", normalized=False, rstrip=True),
        AddedToken("   ", normalized=False),
        AddedToken("cafe\u0301", normalized=True, special=True),
        AddedToken("nai\u0308ve", normalized=False),
        AddedToken("日本", single_word=True, normalized=False),
        AddedToken("ḍ̇", normalized=True, lstrip=True),
        AddedToken("Ω", normalized=True),
    ]
    for token in tokens:
        tokenizer.add_tokens([token]) if not token.special else tokenizer.add_special_tokens([token])
    return edit(tokenizer, lambda data: None)


def normal_form(form):
    def make():
        tokenizer = train(280)
        tokenizer.normalizer = form()
        tokenizer.pre_tokenizer = byte_level_after()
        return edit(tokenizer, lambda data: None)

    return make


def splits(behavior, invert):
    def make():
        tokenizer = train(300)
        tokenizer.pre_tokenizer = byte_level_after(split(r"\p{P}|[a-m]", behavior, invert))
        return edit(tokenizer, lambda data: None)

    return make


def other_splits():
    tokenizer = train(350)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Digits(individual_digits=False),
            split(OTHER),
            pre_tokenizers.Split("ing", "merged_with_previous"),
            pre_tokenizers.Split(" ", "removed"),
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=True, use_regex=True),
        ]
    )
    return edit(tokenizer, lambda data: None)


def unknown(fuse):
    def make():
        tokenizer = train(200, alphabet=False, unk_token="<unk>", fuse_unk=fuse)

        def thin(data):  # a few bytes fewer, so that there is much that is unknown
            drop = set("eĠå")
            model = data["model"]
            model["vocab"] = {t: i for t, i in model["vocab"].items() if t == "<unk>" or not drop & set(t)}
            model["vocab"] = {t: n for n, t in enumerate(model["vocab"])}
            model["merges"] = [pair for pair in model["merges"] if not drop & set("".join(pair))]
            data["added_tokens"] = []

        return edit(tokenizer, thin)

    return make


def dropped_bytes():
    tokenizer = train(180, alphabet=False)
    tokenizer.decoder = None
    return edit(tokenizer, lambda data: None)


# --- SentencePiece-style: characters with byte fallback ---

SPACE = "\u2581"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]
LLAMA_DECODER = [decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]


def train_characters(vocab_size, whole=False, alphabet=90, byte_tokens=BYTES, **options):
    """Merges over characters; `whole` texts give merges that span words. Most characters have no token."""
    options = {"unk_token": "<unk>", "fuse_unk": True, "byte_fallback": True} | options
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "always", not whole)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size + 3 + len(byte_tokens),
        show_progress=False,
        special_tokens=["<unk>", "<s>", "</s>", *byte_tokens],
        limit_alphabet=alphabet,
        initial_alphabet=[SPACE],
    )
    tokenizer.train_from_iterator(tokenizer_texts.SAMPLES + ["   x    y  z        "] * 9, trainer)
    tokenizer.pre_tokenizer = None

    def few_added(data):
        data["added_tokens"] = data["added_tokens"][:3]

    return edit(tokenizer, few_added)[0]


def begin_and_end(end=False):
    tail = " </s>" if end else ""
    return processors.TemplateProcessing(
        single=f"<s> $A{tail}", pair=f"<s> $A{tail} <s> $B{tail}", special_tokens=[("<s>", 1), ("</s>", 2)]
    )


def llama2(whole=False, normalized=False):
    """Llama 2 and Mistral 0.1: the older form, by normalizers."""

    def make():
        tokenizer = train_characters(500, whole)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(SPACE), normalizers.Replace(" ", SPACE)])
        tokenizer.post_processor = begin_and_end()
        tokenizer.decoder = decoders.Sequence(LLAMA_DECODER)

        def flags(data):
            for token in data["added_tokens"]:
                token["normalized"] = normalized

        tokenizer, _ = edit(tokenizer, flags)
        tokenizer.add_tokens([AddedToken("<a>", normalized=True), AddedToken("[1]", rstrip=True, normalized=False)])
        return edit(tokenizer, lambda data: None)

    return make


def metaspace(scheme, split, whole=False, end=False):
    def make():
        tokenizer = train_characters(400, whole)
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, scheme, split)
        tokenizer.post_processor = begin_and_end(end)
        tokenizer.decoder = decoders.Sequence(LLAMA_DECODER) if whole else decoders.Metaspace(SPACE, scheme, split)
        tokenizer.add_special_tokens(["[1]", "<|im_start|>"])
        tokenizer.add_tokens([AddedToken("<a>", normalized=True, lstrip=True), AddedToken("[2]", normalized=False)])

        def older(data):
            if scheme == "always":
                data["pre_tokenizer"] |= {"add_prefix_space": True, "str_rep": SPACE}

        return edit(tokenizer, older)

    return make


def gemma():
    tokenizer = train_characters(400, alphabet=300)
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER[:3])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("   ", normalized=False)])
    return edit(tokenizer, lambda data: None)


def characters(fuse, byte_tokens, fallback=True):
    """Vocabularies that lack characters, and some or all of the bytes to write them with."""

    def make():
        tokenizer = train_characters(300, True, 60, byte_tokens, fuse_unk=fuse, byte_fallback=fallback)
        tokenizer.normalizer = normalizers.Replace(" ", SPACE)
        return edit(tokenizer, lambda data: None)

    return make


def byte_merges():
    """Merges of byte tokens with each other and with characters."""
    tokenizer = train_characters(200, True, 60)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Replace(Regex("[aeiou]{2}"), "_")])

    def merges(data):
        na = "<0xE0><0xA4><0xA8>"
        assert "\u0928" not in data["model"]["vocab"]
        pairs = [["<0xE0>", "<0xA4>"], ["<0xE0><0xA4>", "<0xA8>"], ["a", na], [na, na], ["<unk>", "a"], ["<0xF0>", "<0x9F>"]]
        vocabulary = data["model"]["vocab"]
        for left, right in pairs:
            vocabulary.setdefault(left + right, len(vocabulary))
        # One id for two things: what is written as the token of a byte, and the byte.
        assert "A" not in vocabulary
        byte = "<0x41>"
        for place in range(6):
            vocabulary.setdefault(byte[place], len(vocabulary))
        for place in range(1, 6):
            vocabulary.setdefault(byte[: place + 1], len(vocabulary))
            pairs.append([byte[:place], byte[place]])
        vocabulary.setdefault(byte + byte, len(vocabulary))
        data["model"]["merges"] = pairs + [[byte, byte]] + data["model"]["merges"]

    return edit(tokenizer, merges)


def many_normalizers():
    tokenizer = train_characters(400, alphabet=200)
    tokenizer.normalizer = normalizers.Sequence(
        [
            normalizers.Strip(left=True, right=True),
            normalizers.NFD(),
            normalizers.StripAccents(),
            normalizers.Lowercase(),
            normalizers.Replace(Regex(r"\s+|\p{P}{2}"), " "),
            normalizers.Replace("ing", ""),
            normalizers.Replace("aba", "xyzxyz"),
            normalizers.Prepend("_ "),
            normalizers.NFC(),
        ]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Sequence([decoders.Strip("e", 1, 1), decoders.Metaspace(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("Cafe\u0301", normalized=True), AddedToken("<a>", normalized=False, single_word=True)])
    return edit(tokenizer, lambda data: None)


def strip(left, right):
    def make():
        tokenizer = train_characters(300)
        tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(left=left, right=right), normalizers.Prepend("x")])
        tokenizer.pre_tokenizer = pre_tokenizers.Punctuation()
        tokenizer.decoder = decoders.Sequence([decoders.Fuse(), decoders.Strip("x", 2, 2)])
        tokenizer.add_tokens([AddedToken("<a>", normalized=True), AddedToken("[1]", normalized=False)])
        return edit(tokenizer, lambda data: None)

    return make


def words():
    tokenizer = train_characters(300, fuse_unk=False, byte_fallback=False)
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.CharDelimiterSplit("é"), pre_tokenizers.Whitespace(), pre_tokenizers.Metaspace(SPACE, "never")]
    )
    return edit(tokenizer, lambda data: data["model"].update(ignore_merges=True))


def delimiter_first():
    """Whether a piece is the text's first goes by what was removed before it."""
    tokenizer = train_characters(300)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.CharDelimiterSplit("a"), pre_tokenizers.Metaspace(SPACE, "first", False)]
    )
    tokenizer.decoder = decoders.Sequence([])
    tokenizer.add_tokens([AddedToken("<a>", normalized=False), AddedToken("[1]", normalized=False)])
    return edit(tokenizer, lambda data: None)


def metaspace_first_normalized():
    tokenizer = train_characters(300)
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase(), normalizers.Prepend("a")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(SPACE, "first", True)
    tokenizer.decoder = decoders.Sequence(LLAMA_DECODER)
    tokenizer.add_tokens([AddedToken("<a>", normalized=False), AddedToken("[1]", normalized=False)])
    return edit(tokenizer, lambda data: None)


def byte_level_fallback():
    """Byte-level, and what is missing in its alphabet becomes tokens of bytes."""
    tokenizer = train(180, alphabet=False)

    def fall_back(data):
        model = data["model"]
        for token in ["<unk>", *BYTES[:0xC4], *BYTES[0xC5:]]:
            model["vocab"][token] = len(model["vocab"])
        model |= {"byte_fallback": True, "unk_token": "<unk>", "fuse_unk": True}

    return edit(tokenizer, fall_back)


def shuffled_merges():
    tokenizer = train(700)
    return edit(tokenizer, lambda data: random.Random(SEED).shuffle(data["model"]["merges"]))


MAKERS = {
    "gpt2": gpt2,
    "gpt2_prefix_space": gpt2_prefix_space,
    "llama3": llama3,
    "qwen2": qwen2,
    "flags": flags,
    "nfd": normal_form(normalizers.NFD),
    "nfkc": normal_form(normalizers.NFKC),
    "nfkd": normal_form(normalizers.NFKD),
    "removed": splits("removed", False),
    "removed_inverted": splits("removed", True),
    "contiguous": splits("contiguous", False),
    "merged_with_previous": splits("merged_with_previous", False),
    "merged_with_next": splits("merged_with_next", True),
    "other_splits": other_splits,
    "unknown": unknown(False),
    "unknown_fused": unknown(True),
    "dropped_bytes": dropped_bytes,
    "shuffled_merges": shuffled_merges,
    "llama2": llama2(),
    "llama2_normalized": llama2(normalized=True),
    "llama2_spanning": llama2(whole=True),
    "metaspace_always": metaspace("always", True),
    "metaspace_always_whole": metaspace("always", False, whole=True, end=True),
    "metaspace_first": metaspace("first", False, whole=True),
    "metaspace_first_split": metaspace("first", True),
    "metaspace_first_normalized": metaspace_first_normalized,
    "metaspace_never": metaspace("never", True, end=True),
    "gemma": gemma,
    "characters": characters(False, []),
    "characters_fused": characters(True, [], False),
    "some_bytes": characters(False, BYTES[:0xD0]),
    "some_bytes_fused": characters(True, BYTES[0x80:0xD0] + BYTES[0xE0:0xE4]),
    "byte_merges": byte_merges,
    "many_normalizers": many_normalizers,
    "strip_left": strip(True, False),
    "strip_right": strip(False, True),
    "words": words,
    "delimiter_first": delimiter_first,
    "byte_level_fallback": byte_level_fallback,
    "tiktoken": tiktoken,
    "lines": lines,
}
IN_FULL = {"gpt2", "llama3", "qwen2", "flags", "llama2", "metaspace_first", "tiktoken", "lines"}  # the others see every sixth of the random texts


def repaired(text):
    return text.decode("utf-8", errors="replace") if isinstance(text, bytes) else text


def as_json(text):
    if text is None:
        return None
    raw = text if isinstance(text, bytes) else text.encode()
    try:
        if b"\0" not in raw:
            return raw.decode()
    except UnicodeDecodeError:
        pass
    return {"hex": raw.hex()}


def decoded(tokenizer, ids, skip):
    """None where the library panics, as its Strip does on short tokens."""
    try:
        return tokenizer.decode(ids, skip_special_tokens=skip)
    except BaseException as error:
        if type(error).__name__ != "PanicException":
            raise
        return None


def expected(tokenizer, texts, chosen, rng):
    result = {"ids": [], "decoded": {}, "skipped": {}, "template": [], "decode": []}
    for index, text in enumerate(texts):
        if index not in chosen:
            result["ids"].append(None)
            continue
        text = repaired(text)
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        whole, skipped = decoded(tokenizer, ids, False), decoded(tokenizer, ids, True)
        result["ids"].append(ids)
        if whole != text:
            result["decoded"][str(index)] = as_json(whole)
        if skipped != whole or whole is None:
            result["skipped"][str(index)] = as_json(skipped)
        if len(result["template"]) < 4:
            result["template"].append(tokenizer.encode(text).ids)
    size = tokenizer.get_vocab_size()
    for _ in range(24):
        ids = [rng.randrange(size + 2) for _ in range(rng.randrange(12))]
        texts_of = [as_json(decoded(tokenizer, ids, skip)) for skip in (False, True)]
        result["decode"].append([ids, *texts_of])
    return result


def save(name, value):
    (OUT / name).write_text(json.dumps(value, ensure_ascii=False, separators=(",", ":")) + "\n")


def make_trained():
    """What tokenizer_train has to equal."""
    text = (OUT / "train.txt").read_text()
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        min_frequency=2,
        show_progress=False,
        special_tokens=["<|endoftext|>", "<|pad|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator([text], trainer)
    model = json.loads(tokenizer.to_str())["model"]
    save("trained.json", {"vocab": model["vocab"], "merges": model["merges"]})


def main():
    OUT.mkdir(parents=True, exist_ok=True)
    rng = random.Random(SEED)
    fixed = tokenizer_texts.fixed_texts()
    texts = fixed + tokenizer_texts.random_texts(rng, 300)
    save("texts.json", {"seed": SEED, "texts": [as_json(text) for text in texts]})
    for name, make in MAKERS.items():
        tokenizer, data = make()
        save(f"{name}.json", data)
        step = 1 if name in IN_FULL else 6
        chosen = set(range(len(fixed))) | set(range(len(fixed), len(texts), step))
        packed_json.write(OUT / f"{name}.expected.json.gz", expected(tokenizer, texts, chosen, rng))
    (OUT / "train.txt").write_text(tokenizer_texts.training_text())
    make_trained()


if __name__ == "__main__":
    main()
