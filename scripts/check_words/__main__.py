"""Fails if the tree uses a word for which the field has another.

    scripts/check-words.sh [ROOT]

scripts/check_words/terms lists the words, each with its scope and the term to use. `names` are identifiers, options, keys
and file names. `prose` is comments, messages, help, documents and the text of the report page, without code in
backticks. The check reads each file that git tracks, or each file of ROOT if that is no work tree, except data. The
exit status is 0 if no word is found, 1 if one is, and 2 if the list is wrong. An exception that matches nothing is an
error.
"""
import fnmatch
import functools
import pathlib
import re
import subprocess
import sys

CODE = {".c", ".h", ".cu", ".cuh", ".cpp", ".js", ".css", ".html", ".proto", ".in"}
SCRIPT = {".sh", ".py", ".cmake", ".yml", ".yaml", ".txt", ""}
TEXT = {".md"}
LIST = "scripts/check_words/terms"
SKIPPED = (LIST, "LICENSE*", "clusters/*", "tests/fixtures/*", "tests/fuzz/corpus/*", "build*", ".*", "*/.*")
TOKEN = re.compile(r"""(?P<include>^\s*\#\s*include.*?$)
                     |(?P<comment>/\*.*?\*/|(?<![:\w"'])//[^\n]*|<!--.*?-->)
                     |(?P<string>"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|`(?:\\.|[^`\\])*`)
                     |(?P<name>[A-Za-z_]\w*)""", re.X | re.S | re.M)
SCRIPT_TOKEN = re.compile(r"""(?P<comment>(?:^|(?<=\s))\#[^\n]*|(?P<quotes>\"{3}|\'{3}).*?(?P=quotes))
                            |(?P<string>"(?:\\.|[^"\\])*"|'[^']*')
                            |(?P<name>[A-Za-z_]\w*)""", re.X | re.S | re.M)
# Parts of prose that are code.
VARIABLE = re.compile(r"\$\{?\w+|\{[^{}\n]*\}|`[^`\n]*`")
CODE_SPAN = re.compile(r"(`+)(?:(?!`|\n\s*\n).)+\1(?!`)", re.S)
# Tokens that are names in any context: identifiers of several words, options and keys.
NAME = re.compile(r"--[a-z][\w-]*|[A-Za-z]\w*_\w*|(?<![A-Za-z])[a-z]+(?:[A-Z][a-z]+)+")
KEY = re.compile(r"(?:--)?[A-Za-z_][\w.-]*")
CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Term:
    """A row of the list: patterns to avoid, their scope and files, and the term to use."""

    def __init__(self, words, scope, term, where):
        self.words, self.scope, self.term, self.where = words, scope, term, where
        alternatives = "|".join(word.replace(" ", "[ _-]") + ("(?!-)" if word[0] == "-" else "") for word in words)
        self.in_names = re.compile(rf"(?<![a-z0-9])(?:{alternatives})(?![a-z0-9])")
        self.in_prose = re.compile(rf"(?<![a-z0-9_-])(?:{'|'.join(words)})(?![a-z0-9_-])".replace(" ", r"[\s*/]+"))

    def pattern(self, kind):
        return self.in_names if kind == "names" else self.in_prose


class Exemption:
    """A row that allows a word in some files, in texts that match a pattern."""

    def __init__(self, word, files, pattern, line):
        self.word, self.files, self.pattern, self.line = word, files, re.compile(pattern), line
        self.used = False

    def allows(self, term, path, text):
        if self.word not in ("*", *term.words) or not fnmatch.fnmatch(path, self.files):
            return False
        if not self.pattern.search(text):
            return False
        self.used = True
        return True


def read_list(path):
    terms, exceptions = [], []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        row = [field.strip() for field in re.split(r"\s\|\s", line)]
        if not line.strip() or line.startswith("#"):
            continue
        if row[0] == "term" and len(row) in (4, 5) and row[2] in ("names", "prose", "both"):
            words = [word.strip() for word in row[1].split(",")]
            terms.append(Term(words, row[2], row[3], row[4] if len(row) == 5 else "*"))
        elif row[0] == "except" and len(row) == 5 and row[4]:
            exceptions.append(Exemption(row[1], row[2], row[3], number))
        else:
            print(f"check-words: {path}:{number}: expected 'term | WORDS | SCOPE | TERM [| FILES]' or "
                  "'except | WORD | FILES | PATTERN | REASON'", file=sys.stderr)
            sys.exit(2)
    return terms, exceptions


def names_in(text):
    return [(match.start(), "names", match[0]) for match in NAME.finditer(text)]


def blank(match):
    return " " * len(match[0])


def pieces_of_code(token, text):
    for match in token.finditer(text):
        group = match.lastgroup
        if group == "name":
            yield match.start(), "names", match[0]
        elif group == "string" and KEY.fullmatch(match[0][1:-1]):
            yield match.start(), "names", match[0][1:-1]
        elif group in ("string", "comment"):
            yield match.start(), "prose", NAME.sub(blank, VARIABLE.sub(blank, match[0]))
            yield from ((match.start() + at, kind, name) for at, kind, name in names_in(match[0]))


def pieces(path, text):
    """Yields (offset, kind, text) for each name and each stretch of prose."""
    suffix = pathlib.PurePath(path).suffix
    if suffix in TEXT:
        yield from names_in(text)
        yield 0, "prose", NAME.sub(blank, CODE_SPAN.sub(blank, text))
    else:
        yield from pieces_of_code(TOKEN if suffix in CODE else SCRIPT_TOKEN, text)


def files_of(root):
    listed = subprocess.run(["git", "-C", root, "ls-files"], capture_output=True, text=True)
    paths = listed.stdout.splitlines() if listed.returncode == 0 and listed.stdout else sorted(
        str(path.relative_to(root)) for path in root.rglob("*") if path.is_file())
    for path in paths:
        if any(fnmatch.fnmatch(path, pattern) for pattern in SKIPPED) or not (root / path).is_file():
            continue
        if pathlib.PurePath(path).suffix in CODE | SCRIPT | TEXT:
            yield path


def lower(text):
    return CAMEL.sub("_", text).lower()


def check(root, terms, exceptions):
    found = 0
    suspects = {kind: re.compile("|".join(term.pattern(kind).pattern for term in terms if term.scope in (kind, "both")))
                for kind in ("names", "prose")}
    suspect = functools.lru_cache(None)(lambda kind, text: suspects[kind].search(lower(text)))
    for path in files_of(root):
        text = (root / path).read_text(errors="replace")
        for offset, kind, piece in [(0, "names", path), *pieces(path, text)]:
            for term in terms if suspect(kind, piece) else ():
                if term.scope not in (kind, "both") or not fnmatch.fnmatch(path, term.where):
                    continue
                for match in term.pattern(kind).finditer(lower(piece) if kind == "names" else piece.lower()):
                    around = piece if kind == "names" else piece[max(0, match.start() - 40):match.end() + 40]
                    if any([exception.allows(term, path, around) for exception in exceptions]):
                        continue
                    line = text.count("\n", 0, offset + (match.start() if kind == "prose" else 0)) + 1
                    print(f"{path}:{line}: '{match[0]}' in {kind}: use {term.term}: {' '.join(around.split())}")
                    found += 1
    return found


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parent.parent.parent)
    terms, exceptions = read_list(root / LIST)
    found = check(root, terms, exceptions)
    unused = [exception for exception in exceptions if not exception.used]
    for exception in unused:
        print(f"check-words: {LIST}:{exception.line}: the exception for '{exception.word}' in {exception.files} "
              "matches nothing; remove it", file=sys.stderr)
    if found:
        print(f"check-words: {found} words to replace ({LIST})", file=sys.stderr)
    return 2 if unused else 1 if found else 0


sys.exit(main())
