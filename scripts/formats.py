#!/usr/bin/env python3
"""Documents and checks the JSON that Ballast writes, from docs/schemas/*.json (JSON Schema, draft 2020-12).

    scripts/formats.py print > docs/formats.md       prints the schemas as a document
    build/ballast help schemas | scripts/formats.py settings [--check]
                                                     updates the settings in docs/schemas/common.json
    scripts/formats.py check NAME FILE...            validates files (each line of a .jsonl)
                                                     against docs/schemas/NAME.json

`check` needs Debian's python3-jsonschema, and exits with 77 without it.
"""
import json
import pathlib
import re
import sys

SCHEMAS = pathlib.Path(__file__).resolve().parent.parent / "docs" / "schemas"
ORDER = ["plan", "profile", "simulate", "train", "eval", "generate", "texts", "inspect", "run", "metrics", "samples",
         "timeline", "end", "state", "manifest", "cluster",
         "cluster_plan"]
SHARED = "common.json#/$defs/"
HEAD = """# Formats

Made from [the schemas](schemas) by `scripts/formats.py print > docs/formats.md`; a test compares, and holds what the
program writes to the schemas (`tests/cli/test_formats.sh`). The schemas are JSON Schema, draft 2020-12; they allow no
field that is not described, so a program that reads more than it knows should pass over what is new.

Numbers have a unit in their name (`_s`, `_bytes`, `_per_s`) or in their description; bytes are exact; losses, norms and
learning rates have all digits. A field is always there unless its description says when it is absent; `null` is "none"
or "not known", as described. `version` is that of the format: a field that came later than its first says so.
"""


# Values in files that the help of a setting does not mention. In runs of earlier versions, a number that was not given
# is 0 or -1, which is below the setting's range.
OF_FILES = {
    "recipe": {
        "lanes": '"8", or "2x4" for 4 on each of 2 nodes. Absent in files of versions without lanes: 1',
        "packing": "rows-held: as Ballast 0.1.0 packed them; auto, in plan files alone: the data of the run decide. "
                   "Absent in files of 0.1.0: rows-held where document_attention is within, else off",
        "lora": '"": none. Absent in files of versions without adapters',
        "freeze": 'Several are joined by commas; "": none. Absent in files of versions without it',
    },
    "options": {
        "schedule_steps": "null: `steps`, for which earlier versions wrote 0",
        "warmup_steps": "null: a tenth of the schedule, at most 100, for which earlier versions wrote -1",
        "chat_time_s": "seconds since 1970; null: not given, for which earlier versions wrote 0",
        "epochs": "null: `steps` decides, for which earlier versions wrote 0. Absent in files of earlier versions",
    },
}
OLDER_MINIMA = {"schedule_steps": 0, "warmup_steps": -1, "chat_time_s": 0, "epochs": 0}


def read(name):
    return json.loads((SCHEMAS / (name + ".json")).read_text())


def type_of(schema):
    if "$ref" in schema:
        name = schema["$ref"][len(SHARED):]
        return "[%s](#%s)" % (name, name)
    if "const" in schema:
        return "`%s`" % json.dumps(schema["const"])
    if "enum" in schema:
        return ", ".join("`%s`" % json.dumps(value) for value in schema["enum"])
    if "oneOf" in schema:
        return " or ".join(type_of(one) for one in schema["oneOf"])
    kinds = schema.get("type", "any")
    kinds = kinds if isinstance(kinds, list) else [kinds]
    if "array" in kinds:
        inner = type_of(schema["items"]) if schema.get("items") else "any"
        return "array of " + inner
    return " or ".join(kinds)


def rows(schema, path=""):
    """Yields a row for each field, followed by the fields of its objects."""
    for name, field in schema.get("properties", {}).items():
        where = path + name
        text = field.get("description", "")
        if name not in schema.get("required", []) and "bsent" not in text and "only" not in text:
            text += "; may be absent"
        if "since" in field:
            text += "; since version %s" % field["since"]
        yield "| `%s` | %s | %s |" % (where, type_of(field).replace("|", "\\|"), text.replace("|", "\\|"))
        inner, suffix = field, "."
        if field.get("type") == "array" or "array" in field.get("type", []):
            inner, suffix = field.get("items") or {}, "[]."
        yield from rows(inner, where + suffix)


def print_body(schema):
    if "$ref" in schema:
        print("The fields of %s%s\n" % (type_of(schema), ", and" if schema.get("properties") else "."))
    if schema.get("properties"):
        print("| field | type | meaning |\n|---|---|---|")
        print("\n".join(rows(schema)) + "\n")
    for one in schema.get("oneOf", []):
        print(one.get("description", "A line is a %s." % type_of(one)) + "\n")
        if "$ref" not in one or one.get("properties"):
            print_body(one)
        elif "description" in one:
            print_body(one)


def print_document():
    print(HEAD)
    for name in ORDER:
        schema = read(name)
        print("## %s\n\n%s. Schema: [%s.json](schemas/%s.json)\n\n%s\n" %
              (schema["title"], schema["where"], name, name, schema["description"]))
        print_body(schema)
    print("# Parts\n\nParts that several formats share: [common.json](schemas/common.json).\n")
    for name, part in read("common")["$defs"].items():
        print("## %s\n\n%s\n" % (name, part.get("description", "")))
        if part.get("type") == "array":
            part = part["items"]
        print_body(part)


def bundle(name):
    """Returns a schema that includes the shared parts, for validators that do not fetch them."""
    text = json.dumps(read(name)).replace(SHARED, "#/$defs/")
    schema = json.loads(text)
    schema["$defs"] = json.loads(json.dumps(read("common")["$defs"]).replace(SHARED, "#/$defs/"))
    return schema


def check(name, paths):
    try:
        import jsonschema
    except ImportError:
        print("skipped: python3-jsonschema is not installed")
        return 77
    validator = jsonschema.Draft202012Validator(bundle(name))
    jsonschema.Draft202012Validator.check_schema(validator.schema)
    bad = 0
    for path in paths:
        text = pathlib.Path(path).read_text(errors="strict")
        documents = text.splitlines() if path.endswith(".jsonl") else [text]
        for number, document in enumerate(documents, 1):
            for error in validator.iter_errors(json.loads(document)):
                place = "/".join(str(part) for part in error.absolute_path)
                print("%s: line %d: %s: %s" % (path, number, place or "(top)", error.message[:300]))
                bad += 1
    return 1 if bad else 0


def add_of_files(part, properties):
    for key, meaning in OF_FILES.get(part, {}).items():
        field = properties[key]
        about = re.sub(r"(; null: not given)?(\. Absent in files of earlier versions)?$", "", field["description"])
        field["description"] = about + (". " if part == "recipe" else "; ") + meaning
        if key in OLDER_MINIMA:
            field.pop("exclusiveMinimum", None)
            field["minimum"] = OLDER_MINIMA[key]


def settings(check_only):
    """Reads the table of settings from stdin, and writes it to the parts of common.json that list settings."""
    path = SCHEMAS / "common.json"
    before = path.read_text()
    document = json.loads(before)
    for part, described in json.load(sys.stdin).items():
        schema = document["$defs"][part]
        add_of_files(part, described["properties"])
        schema["properties"].update(described["properties"])
        others = [key for key in schema["required"] if key not in described["properties"]]
        schema["required"] = described["required"] + others
    document["$defs"]["recipe"]["properties"]["packing"]["enum"].append("auto")  # only in plan files
    after = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    if not check_only:
        path.write_text(after)
    elif after != before:
        print("run: build/ballast help schemas | scripts/formats.py settings")
    return int(check_only and after != before)


def main(words):
    if words == ["print"]:
        print_document()
        return 0
    if words[:1] == ["settings"]:
        return settings("--check" in words)
    if len(words) > 2 and words[0] == "check":
        return check(words[1], words[2:])
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
