#!/usr/bin/env python3
"""Proves that a commit only renames: both sides compile to the same code.

    scripts/same-objects.py OLD_COMMIT [NEW_COMMIT] [-- CMAKE_ARGUMENT...]

Compiles every C and C++ source of both commits to assembly, with -g0 and with a fixed __LINE__ and __FILE__, and
compares the files token by token. Two symbols may differ if they replace each other throughout the file. String
literals may differ, because BUG_IF and assert print their conditions; changed ones are listed for a reader to judge.
Anything else fails.

The default NEW_COMMIT is HEAD. Files that a commit renames are compared with their old path, as git detects it.
The exit status is 0 if all files are equal, 1 if not.

JOBS=N sets the number of compilers that run at once. With ccache as CMAKE_C_COMPILER_LAUNCHER a source that does not
change is compiled once.
"""
import concurrent.futures
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

FLAGS = ["-S", "-g0", "-w", "-D__LINE__=0", '-D__FILE__=""', "-Wno-builtin-macro-redefined"]
TOKEN = re.compile(r'"(?:\\.|[^"\\])*"|[A-Za-z_.$%][\w.$@]*|\d\w*|\S')
SYMBOL = re.compile(r"[A-Za-z_.][\w.$@]*$")
IGNORED = re.compile(r"\s*(\.file|\.ident|\.section\s+\.rodata\.str|\.align|\.size|#)")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, **options)


def compile_commands(tree, cmake_arguments):
    """Configures the tree and makes its generated sources. Returns (path, directory, command) of each object."""
    build = tree / "build"
    run("cmake", "-G", "Ninja", "-S", tree, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
        "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON", *cmake_arguments, stdout=subprocess.DEVNULL)
    made = run("ninja", "-C", build, "-t", "targets", "rule", "CUSTOM_COMMAND", stdout=subprocess.PIPE).stdout.split()
    run("ninja", "-C", build, *[name for name in made if name.endswith((".c", ".h", ".cc"))], stdout=subprocess.DEVNULL)
    entries = json.loads((build / "compile_commands.json").read_text())
    return [(os.path.relpath(entry["file"], tree), entry["directory"], shlex.split(entry["command"]))
            for entry in entries if not entry["file"].endswith(".cu")]


def assemble(path, directory, words):
    at = words.index("-o")
    kept = [word for word in words[:at] + words[at + 2:] if word not in ("-c", "-g")]
    output = pathlib.Path(directory) / (words[at + 1] + ".s")
    output.parent.mkdir(parents=True, exist_ok=True)
    run(*kept, *FLAGS, "-o", output, cwd=directory)
    return path, output.read_text()


def assembly_of(commit, tree, cmake_arguments, names):
    """Lists of assembly texts by source, under the old names of the sources. `tree` is made and removed: both commits
    are compiled in one place, because tests contain its path."""
    run("git", "worktree", "add", "--quiet", "--detach", tree, commit)
    try:
        commands = sorted(compile_commands(tree, cmake_arguments), key=lambda one: (one[0], one[2]))
        with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count()))) as pool:
            found = {}
            for path, text in pool.map(lambda one: assemble(*one), commands):
                found.setdefault(names.get(path, path), []).append(text)
            return found
    finally:
        run("git", "worktree", "remove", "--force", tree)


def lines_of(text):
    return [line for line in text.splitlines() if not IGNORED.match(line)]


def compare(old, new, texts):
    """The first difference between two assembly texts, or None. Adds pairs of changed string literals to `texts`."""
    old, new = lines_of(old), lines_of(new)
    there, back = {}, {}
    for before, after in zip(old, new):
        if before == after and not SYMBOL.search(before):
            continue
        left, right = TOKEN.findall(before), TOKEN.findall(after)
        if len(left) != len(right):
            return f"{before.strip()} | {after.strip()}"
        for a, b in zip(left, right):
            if a[0] == '"' and b[0] == '"':
                if a != b:
                    texts.add((a, b))
            elif SYMBOL.match(a) and SYMBOL.match(b):
                if there.setdefault(a, b) != b or back.setdefault(b, a) != a:
                    return f"{a} is {there[a]} and {b}"
            elif a != b:
                return f"{before.strip()} | {after.strip()}"
    return None if len(old) == len(new) else f"{len(old)} and {len(new)} lines"


def renamed_paths(old, new):
    """New path to old path, without suffix, of the files that git sees as renamed."""
    listed = run("git", "diff", "--name-status", "-M5%", "--diff-filter=R", old, new, stdout=subprocess.PIPE).stdout
    return {after: before for _, before, after in (line.split("\t") for line in listed.splitlines())}


def main(arguments):
    cmake_arguments = []
    if "--" in arguments:
        at = arguments.index("--")
        arguments, cmake_arguments = arguments[:at], arguments[at + 1:]
    if len(arguments) not in (1, 2) or arguments[0].startswith("-"):
        sys.exit(__doc__)
    old, new = arguments[0], arguments[1] if len(arguments) == 2 else "HEAD"
    with tempfile.TemporaryDirectory() as folder:
        tree = pathlib.Path(folder) / "tree"
        before = assembly_of(old, tree, cmake_arguments, {})
        after = assembly_of(new, tree, cmake_arguments, renamed_paths(old, new))
    texts, failed, compared = set(), 0, 0
    for path in sorted(before.keys() | after.keys()):
        left, right = before.get(path, []), after.get(path, [])
        differences = [compare(a, b, texts) for a, b in zip(left, right)]
        if len(left) != len(right):
            differences.append(f"{len(left)} and {len(right)} objects")
        for difference in filter(None, differences):
            print(f"{path}: {difference}")
        compared, failed = compared + len(left), failed + any(differences)
    for before, after in sorted(texts):
        print(f"text: {before} -> {after}")
    print(f"{compared} objects compared, {failed} sources differ, {len(texts)} strings changed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
