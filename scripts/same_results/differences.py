"""Finds and classifies the differences between the files that two builds write."""
import collections
import json
import re
import struct

# The class of a JSON field, by document and path; the first match decides. Anything else is "bits". "ignored" covers
# wall-clock times, figures derived from them, and sizes of files that are compared themselves.
FIELDS = [
    (r".*", r"(.*\.)?version", "format"),
    (r"(plan|out\.plan)\.json", r"(?!recipe\.).*", "plan"),
    (r".*", r"(.*\.)?policy\..*", "plan"),
    (r".*", r"(.*\.)?recipe\.packing", "format"),  # older builds have no such key; other rows give other bits
    (r"run\.json", r"memory\..*", "plan"),
    (r"metrics\.jsonl", r"(tokens_per_s|step_s|mfu|predicted_step_s)", "ignored"),
    (r"metrics\.jsonl", r"(device_bytes|predicted_device_bytes)", "plan"),
    (r"out\.(train|resume|eval|generate).*\.json", r"(seconds|tokens_per_s)", "ignored"),
    (r"out\.inspect\.json", r"folders\.\d+\.bytes", "ignored"),
    (r"out\.inspect\.json", r"folders\.\d+\.files", "format"),
]
# Files that are not compared: measured times, a second copy of metrics.jsonl, and checksums of compared files, which
# `ballast inspect --verify` checks.
IGNORED_FILES = re.compile(r"(.*/)?(timeline\.json|events\.out\.tfevents.*|ballast_manifest\.json)|"
                           r"err\..*|commands|disk/.*")


class Refusal(Exception):
    """Wrong input of the caller."""


class Names:
    """The rows of the name map. A row lists all names of one thing, oldest first."""

    def __init__(self, path):
        self.options, self.keys, self.values = {}, {}, {}
        for number, line in enumerate(path.read_text().splitlines(), 1):
            words = line.split("#")[0].split()
            if not words:
                continue
            if words[0] == "option" and len(words) > 2:
                self.options.update({name: words[1:] for name in words[1:]})
            elif words[0] == "key" and len(words) > 2:
                self.keys.update({name: words[-1] for name in words[1:-1]})
            elif words[0] == "value" and len(words) > 3:
                self.values.update({(words[1], name): words[2:] for name in words[2:]})
            else:
                raise Refusal(f"{path}:{number}: not a row of the name map: {line}")

    def latest(self, value, key=""):
        """The JSON value with the newest names. An object that has both names of a row keeps both: there the older name
        has a new meaning."""
        if isinstance(value, dict):
            rename = {key: self.keys[key] for key in value if key in self.keys and self.keys[key] not in value}
            return {rename.get(key, key): self.latest(inner, rename.get(key, key)) for key, inner in value.items()}
        if isinstance(value, list):
            return [self.latest(inner, key) for inner in value]
        return self.values[key, value][-1] if isinstance(value, str) and (key, value) in self.values else value

    def latest_text(self, text):
        """A message with the newest names of options."""
        return re.sub(r"--[a-z][a-z-]*", lambda found: self.options.get(found[0], [found[0]])[-1], text)


# ---- differences ----

Difference = collections.namedtuple("Difference", "kind file text")
MISSING = object()
ELEMENTS = {"F32": ("<f", 4), "F64": ("<d", 8), "BF16": (None, 2), "F16": ("<e", 2), "U8": ("<B", 1), "I8": ("<b", 1),
            "I32": ("<i", 4), "I64": ("<q", 8)}


def has_kind(differences, kind):
    return any(difference.kind == kind for difference in differences)


def field_kind(document, path):
    name = document.rsplit("/", 1)[-1]
    matches = (kind for file, field, kind in FIELDS if re.fullmatch(file, name) and re.fullmatch(field, path))
    return next(matches, "bits")


def leaves(old, new, path=""):
    """Each field that differs, as (path, old value, new value)."""
    join = lambda key: f"{path}.{key}" if path else str(key)
    if isinstance(old, dict) and isinstance(new, dict):
        for key in [*old, *(key for key in new if key not in old)]:
            yield from leaves(old.get(key, MISSING), new.get(key, MISSING), join(key))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for number, pair in enumerate(zip(old, new)):
            yield from leaves(*pair, join(number))
    elif old is MISSING or new is MISSING or old != new or isinstance(old, bool) != isinstance(new, bool):
        yield path, old, new


def show(value):
    text = "absent" if value is MISSING else json.dumps(value)
    return text if len(text) <= 60 else text[:57] + "..."


def compare_json(document, old, new, place=""):
    for path, before, after in leaves(old, new):
        kind = field_kind(document, path)
        if before is MISSING and kind == "bits":
            kind = "format"
        if kind != "ignored":
            yield Difference(kind, document, f"{place}{path}: {show(before)} -> {show(after)}")


def lines_of(text, names):
    return [names.latest(json.loads(line)) for line in text.splitlines()]


def compare_lines(document, old, new):
    if len(old) != len(new):
        yield Difference("bits", document, f"{len(old)} lines -> {len(new)}")
    for number, (before, after) in enumerate(zip(old, new), 1):
        step = f"step {before['step']}: " if "step" in before else f"line {number}: "
        yield from compare_json(document, before, after, step)


def read_tensors(path, names):
    """{name: (entry, bytes)} of a safetensors file, and its metadata."""
    content = path.read_bytes()
    start = 8 + struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:start])
    metadata = names.latest(header.pop("__metadata__", {}))
    tensors = {}
    for name, entry in header.items():
        begin, end = entry.pop("data_offsets")
        latest = ".".join(names.keys.get(part, part) for part in name.split("."))
        tensors[latest] = entry, content[start + begin:start + end]
    return tensors, metadata


def element(dtype, data, number):
    form, size = ELEMENTS[dtype]
    data = data[number * size:(number + 1) * size]
    return struct.unpack(form, data)[0] if form else struct.unpack("<f", b"\0\0" + data)[0]


def describe_data(entry, old, new):
    """How many elements differ, and the first one that does."""
    size = ELEMENTS.get(entry["dtype"], (None, 1))[1]
    unequal = [i for i in range(len(old) // size) if old[i * size:(i + 1) * size] != new[i * size:(i + 1) * size]]
    first = ""
    if entry["dtype"] in ELEMENTS:
        before, after = (element(entry["dtype"], data, unequal[0]) for data in (old, new))
        first = f": {before!r} -> {after!r}"
    return f"{len(unequal)} of {len(old) // size} elements differ, the first is {unequal[0]}{first}"


def compare_tensors(document, old_path, new_path, names):
    (old, old_metadata), (new, new_metadata) = read_tensors(old_path, names), read_tensors(new_path, names)
    yield from compare_json(document, old_metadata, new_metadata, "metadata ")
    for name in [*old, *(name for name in new if name not in old)]:
        if name not in old or name not in new:
            yield Difference("bits", document, f"tensor {name} is only in the {'old' if name in old else 'new'} file")
        elif old[name][0] != new[name][0]:
            yield Difference("bits", document, f"tensor {name}: {old[name][0]} -> {new[name][0]}")
        elif old[name][1] != new[name][1]:
            yield Difference("bits", document, f"tensor {name}: {describe_data(*old[name], new[name][1])}")


def compare_text(document, old, new, names):
    try:
        if document.endswith(".jsonl"):
            yield from compare_lines(document, lines_of(old, names), lines_of(new, names))
            return
        if document.endswith(".json"):
            yield from compare_json(document, names.latest(json.loads(old)), names.latest(json.loads(new)))
            return
    except ValueError:
        pass
    if old != new:
        yield Difference("bits", document, "the text differs")


def compare_file(document, old, new, names):
    """Paths of the two places are no difference."""
    if old.read_bytes() == new.read_bytes():
        return
    if document.endswith(".safetensors"):
        yield from compare_tensors(document, old, new, names)
        return
    texts = [file.read_bytes().decode("utf-8", "backslashreplace") for file in (old, new)]
    places = [str(file)[:-len(document) - 1] for file in (old, new)]
    yield from compare_text(document, *(text.replace(place, "PLACE") for text, place in zip(texts, places)), names)


def files_of(place):
    paths = [path.relative_to(place).as_posix() for path in place.rglob("*") if path.is_file()]
    return {path for path in paths if not IGNORED_FILES.fullmatch(path)}


def compare_places(old, new, names):
    """All differences between the files under two directories."""
    old_files, new_files = files_of(old), files_of(new)
    for document in sorted(old_files | new_files):
        if document not in new_files:
            yield Difference("bits", document, "only the old build writes this file")
        elif document not in old_files:
            yield Difference("format", document, "only the new build writes this file")
        else:
            yield from compare_file(document, old / document, new / document, names)


def error_of(path, place, names):
    """The message of a refusal, without the names of ranks and machines."""
    lines = path.read_text(errors="backslashreplace").replace(str(place), "PLACE").splitlines()
    errors = [re.sub(r"^ballast: error: (rank \d+ on [^:]*: )?", "", line) for line in lines if "error: " in line]
    return names.latest_text(errors[0] if errors else "no message")
