#!/usr/bin/env python3
"""Fails if prose is hard to read: documents, help, messages, and the comments of headers and sources.

    scripts/check-readability.py [--list] [ROOT]

The sentences of a page have at most 25 words on average, and each at most 50. In src/, the comments of a module count
as a page, and so do its messages. No sentence begins with a word of BANNED, unless it is a question.
scripts/readability-exceptions lists exceptions with reasons; one that matches nothing is an error. --list prints the
average of each page. The exit status is 0 if all pages pass, 1 if not, and 2 if the exceptions are wrong.
"""
import argparse
import pathlib
import re
import subprocess
import sys

AVERAGE_MAX, LONGEST_MAX = 25, 50
BANNED = re.compile(r"^(What|Of|That which|Those that|Those who|Whoever|Such that|As it is|There being)\b")
SKIPPED = re.compile(r"^(docs/schemas/|tests/fixtures/|bench/results/|LICENSE)|CHANGELOG")
COMMENT = re.compile(r"/\*(.*?)\*/", re.S)
LITERALS = re.compile(r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])'|((?:\"(?:\\.|[^\"\\\n])*\"\s*)+)", re.S)


def sentences(text):
    """Returns the sentences of at least four words."""
    text = re.sub(r"`[^`]*`", "CODE", re.sub(r"\s+", " ", text)).strip()
    text = re.sub(r"CODE(?:,? (?:and |or )?CODE)+", "CODE", text)  # a list of names is read at a glance
    return [part.strip() for part in re.split(r"(?<=[.;:!?])\s+(?=[A-Z\"(])", text) if len(part.split()) >= 4]


def of_document(text):
    """Sentences of Markdown: paragraphs, items and cells, without code and headings."""
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    lines = [line for line in text.split("\n") if not line.startswith(("    ", "\t", "#", "$"))]
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*|]|\d+\.) ?)", "\n".join(lines)):
        cells = block.split(" | ") if block.lstrip().startswith("|") else [block]
        for cell in cells:
            yield from sentences(cell.strip("-*| \n"))


def of_comments(text):
    """Sentences of comments. Each item of a list begins on a line of its own."""
    for comment in COMMENT.findall(text):
        comment = re.sub(r"\n\s*\*? ?", "\n", comment)
        for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.|[\w/.]+:) )", comment):
            yield from sentences(block)


def of_messages(text):
    """Sentences in string literals of at least 30 letters and five words."""
    for match in LITERALS.finditer(text):
        literal = "".join(re.findall(r"\"((?:\\.|[^\"\\\n])*)\"", match.group(1) or ""))
        if len(literal) >= 30 and len(literal.split()) >= 5 and not literal.startswith("\\n"):
            yield from sentences(literal.replace("\\n", " "))


def pages(root):
    """Returns {page: sentences}. A module's comments are a page, and so are its messages."""
    tracked = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True, check=False).stdout
    files = tracked.split("\n") if tracked else [str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()]
    found = {}
    for file in sorted(files):
        if SKIPPED.search(file) or not (root / file).is_file():
            continue
        if file.endswith(".md"):
            found[file] = list(of_document((root / file).read_text(errors="replace")))
        elif re.search(r"^(include|src)/.*\.(c|h|cu|cuh)$", file):
            text = (root / file).read_text(errors="replace")
            found.setdefault(str(pathlib.Path(file).parent) + " (comments)", []).extend(of_comments(text))
            found.setdefault(str(pathlib.Path(file).parent) + " (messages)", []).extend(of_messages(text))
    return {page: found[page] for page in found if found[page]}


def faults(page, all_sentences):
    lengths = [len(sentence.split()) for sentence in all_sentences]
    average = sum(lengths) / len(lengths)
    if average > AVERAGE_MAX:
        yield f"{page}: {average:.1f} words a sentence on average; at most {AVERAGE_MAX}"
    for sentence, length in zip(all_sentences, lengths):
        if length > LONGEST_MAX:
            yield f"{page}: a sentence of {length} words: {sentence}"
        if BANNED.search(sentence) and not sentence.endswith("?"):
            yield f"{page}: begins with '{BANNED.search(sentence)[0]}': {sentence}"


def read_exceptions(path):
    """Returns [page, part of the fault, reason, used] for each row, or None if a row is wrong."""
    rows = []
    for line in path.read_text().splitlines() if path.exists() else []:
        row = [field.strip() for field in line.split(" | ")]
        if not line.strip() or line.startswith("#"):
            continue
        if len(row) != 3 or not all(row):
            print(f"check-readability: {path}: expected 'PAGE | TEXT | REASON', not: {line}", file=sys.stderr)
            return None
        rows.append([*row, False])
    return rows


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print the average of each page")
    parser.add_argument("root", nargs="?", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent)
    arguments = parser.parse_args()
    exceptions = read_exceptions(arguments.root / "scripts/readability-exceptions")
    if exceptions is None:
        return 2
    found = 0
    for page, all_sentences in pages(arguments.root).items():
        if arguments.list:
            print(f"{sum(len(s.split()) for s in all_sentences) / len(all_sentences):5.1f}  {page}")
        for fault in faults(page, all_sentences):
            allowed = [row for row in exceptions if row[0] == page and row[1] in fault]
            for row in allowed:
                row[3] = True
            if not allowed:
                found += 1
                print(fault)
    for row in exceptions:
        if not row[3]:
            print(f"check-readability: the exception '{row[0]} | {row[1]}' matches nothing", file=sys.stderr)
            return 2
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
