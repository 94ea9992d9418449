"""Texts for the tokenizer fixtures: samples in many scripts, awkward cases, and random strings."""

SAMPLES = [
    "The elephant walked slowly along the river, and the children who were watching it didn't say a word. "
    "It's been a long day; they'll be tired, we've said, and I'm sure you're right. ",
    "def merge(pairs, count=1024):\n    for left, right in pairs:\n        if left == right:\n            yield "
    "left + right  # twice\n    return [x ** 2 for x in range(count)]\n\n",
    "La rivière coulait doucement près de la forêt, où les élèves étaient déjà arrivés à l'heure.\n",
    "Der Fluß fließt langsam durch die große Stadt, und die Kinder hören übermütig zu.\n",
    "Река медленно текла вдоль леса, а дети смотрели на слона и молчали.\n",
    "Ο ποταμός κυλούσε αργά δίπλα στο δάσος και τα παιδιά κοιτούσαν.\n",
    "הנהר זרם לאט לאורך היער והילדים הביטו בפיל.\n",
    "كان النهر يجري ببطء بجانب الغابة والأطفال ينظرون إلى الفيل.\n",
    "नदी जंगल के किनारे धीरे-धीरे बह रही थी और बच्चे हाथी को देख रहे थे।\n",
    "নদীটি বনের পাশে ধীরে ধীরে বয়ে যাচ্ছিল।\n",
    "நதி காட்டின் அருகே மெதுவாக ஓடியது.\n",
    "แม่น้ำไหลช้าๆ ข้างป่า และเด็กๆ มองดูช้าง\n",
    "河水沿着森林缓缓流淌，孩子们静静地看着大象。\n",
    "川は森に沿ってゆっくりと流れ、子どもたちは象を見ていた。カタカナも。\n",
    "강은 숲을 따라 천천히 흐르고 아이들은 코끼리를 바라보았다.\n",
    "მდინარე ნელა მიედინებოდა ტყის გასწვრივ.\n",
    "Գետը դանդաղ հոսում էր անտառի երկայնքով։\n",
    "ወንዙ በጫካው አጠገብ ቀስ ብሎ ይፈስ ነበር።\n",
    "In 1984 there were 1,234,567 of them: 3.14159, 42 and 0x7fff. Prices: $5.00, €7,50, £12.\n",
    "🙂 👩‍👩‍👧‍👦 👍🏽 🇫🇷 ❤️ made of several parts 🎉🎉🎉\n",
]

SPECIALS = [
    "<|endoftext|>", "<s>", "</s>", "<|begin_of_text|>", "<|reserved_special_token_11|>", "<|reserved_special_token_1|>",
    "<|im_start|>", "<|im_end|>", "<tool_call>", "</tool_call>", "<a>", "<a><b>", "<a><b><c>", " spaced out ", "   ",
    "cafe\u0301", "café", "nai\u0308ve", "naïve", "日本", "ḍ̇", "\u1E0B\u0323", "Ω", "\u2126", "<unk>",
] + [f"[{i}]" if i % 3 else f"tok{i}" for i in range(32)]


def fixed_texts():
    texts = ["", " ", "\n", "a", "hello world", "'", "''s 'S 'ſ 'LL'd", "I'M WE'VE they'RE 'Tis"]
    texts += SAMPLES
    texts += ["a" * n for n in (2, 3, 31, 200)] + [" " * n for n in (2, 7, 8, 200)]
    texts += ["ab" * 90, "\n" * 50, " \n" * 30, "\t\t  \r\n\r\n x", "x   ", "x \n\n  y", "   x", "1" * 40, "!" * 100]
    texts += ["".join(map(chr, range(0, 33))) + "\x7f\x80\x85\x9f\xa0", "\0", "a\0b\0\0c"]
    texts += ["\u1680\u180e\u2003\u2028\u2029\u202f\u205f\u3000\u200b\ufeffx \u3000 y\u00a0\u00a0z"]
    texts += ["e\u0301 é \u1e9b\u0323 q\u0307\u0323 q\u0323\u0307 \uac01\u1100\u1161\u11a8 \u0344 \u2126 \ufb01 \ufdfa"]
    texts += ["\uac00\u11a7\u0301 a\u0345\u0c3c\u0334 \u32ff \U00010785 \u1abf\u0301 e\u1abf\u0301"]
    texts += ["a" + "\u0323\u0301\u0327\u0345" * 30 + "b", "\u0301start", "\u09c7\u09be \u0b47\u0b57 \u0dd9\u0dcf\u0dca"]
    texts += ["zyx elephant  elephant elephants 123 1234 12345     déjà vu", "ǅ ﬀ ß ẞ İ ı K ſ"]
    # Letters, digits and symbols of Unicode 15, 16 and 17.
    texts += ["\U00031350\U000323af\U0001e4d0x\U0001e4f0\U00010d40\U00010d50\U0001ccf0\U0001cc00\ua7cb\u1c89 \u2ffc"]
    texts += ["!\U00016ff4!\U00011de7!"]
    texts += ["\U000e0041\U0010ffff\ue000\ufffd\ufffe 🏴\U000e0067\U000e007f", "①②③ ½ Ⅷ ⅷ ٣٤٥ 九 Ⓐⓐ 🄰"]
    texts += ["x".join(SPECIALS), "  ".join(SPECIALS), "".join(SPECIALS)]
    texts += ["<|endoftext|", "|endoftext|>", "<<|endoftext|>>", "[1][2]  [4] [5]x[7]\t[8]\n[10] [11]x [13]  [14]y"]
    texts += ["tok0 tok3x tok9 xtok3 tok6. tok12  tok15  tok18", "日本 日本語 x日本 (日本)", "  <a>  <a><b>  <a><b><c>  "]
    texts += ["tok24 tok27 tok30", "tok0tok3tok6tok9", " spaced out   spaced out    x", "_[1]_ [1]é [1]\u0301 [1]\u200d"]
    # Bytes that are not UTF-8: lone continuations, cut and overlong sequences, surrogates, beyond U+10FFFF.
    texts += [b"\x80", b"\xff\xfe", b"a\xc3", b"\xc3(", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x99", b"\xf0\x9f\x99\xc3\xa9"]
    texts += [b"\xc0\x80\xc1\xbf", b"\xe0\x80\x80", b"\xed\xa0\x80\xed\xbf\xbf", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80"]
    texts += [b"ok \xf0\x9f\x99\x82 \xf0\x9f\x99 <|endoftext|>\xe2<|endoftext|>\x82 \xef\xbf\xbd", bytes(range(256))]
    # What SentencePiece-style tokenizers write spaces and bytes with.
    texts += ["\u2581x \u2581\u2581 a\u2581b \u2581", "\u2581", "<0x41><0x0a>\u2581<0xE2>", "ननन ननa aनन नन" * 2, "x" * 120 + "<0x41>AA<0x41>AAA<0x41>A", "abaaba ingaba"]
    texts += ["  Two   Spaces  ", "éaé é<a>aé", "[1] x [1]  [1]", "a<a>b <a> c[1]", "ǄЀΣ ΑΣ İ \U00016ea0\ua7cb\u1c89\U00010d50"]
    return texts


POOLS = [
    lambda rng: chr(rng.randrange(0x20, 0x7F)),
    lambda rng: rng.choice("  \n\t\r\u00a0\u3000\u2003'’.,!?-"),
    lambda rng: rng.choice("abcABCxyz019éß"),
    lambda rng: chr(rng.randrange(0xA0, 0x800)),
    lambda rng: chr(rng.randrange(0x900, 0x1100)),
    lambda rng: chr(rng.randrange(0x300, 0x370)),
    lambda rng: chr(rng.randrange(0x1100, 0x1200)),
    lambda rng: chr(rng.randrange(0xAC00, 0xD7A4)),
    lambda rng: chr(rng.randrange(0x3040, 0x3100)),
    lambda rng: chr(rng.randrange(0x4E00, 0xA000)),
    lambda rng: chr(rng.randrange(0x1F300, 0x1FB00)),
    lambda rng: rng.choice([chr(rng.randrange(0, 0xD800)), chr(rng.randrange(0xE000, 0x110000))]),
    lambda rng: chr(rng.randrange(0x10000, 0x20000)),
    lambda rng: rng.choice(SPECIALS),
    lambda rng: rng.choice(["the ", " elephant", "ing", "tion", "'s", "'LL", "  ", " \n", "1234"]),
    lambda rng: rng.choice("ab x") * rng.randrange(1, 20),
    lambda rng: rng.choice("\u2581 \u2581a"),
]


def random_texts(rng, count):
    texts = []
    for index in range(count):
        pools = rng.sample(POOLS, rng.randrange(1, 5))
        text = "".join(rng.choice(pools)(rng) for _ in range(rng.randrange(1, 24)))
        if index % 10 == 0:  # some with broken bytes
            raw = bytearray(text.encode())
            for _ in range(rng.randrange(1, 4)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            text = bytes(raw)
        texts.append(text)
    return texts


def training_text():
    """A few kilobytes with enough repetition for a thousand tokens."""
    import random

    rng = random.Random(1)
    words = " ".join(SAMPLES).split(" ")
    out = []
    while sum(map(len, out)) < 24000:
        line = " ".join(rng.choice(words) for _ in range(rng.randrange(3, 15)))
        out.append(line + rng.choice(["\n", ". ", "!\n\n", "  ", "\t", " aaaaaaaa bababab\n"]))
    return "".join(out)
