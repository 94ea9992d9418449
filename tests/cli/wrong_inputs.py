#!/usr/bin/env python3
"""Runs each wrong command of wrong_inputs, checks that its error has a hint, and follows the hint.

    BALLAST=build/ballast tests/cli/wrong_inputs.py [--print] [--only TEXT]

A block of wrong_inputs has a line "- COMMAND", which must end with the block's status (2, or that of "status N") and print
an error and a hint; and a line "+ COMMAND", the same as a user would have it after reading the hint, which must succeed.
The hint or the error must name each word that is new in it, so that the hint alone leads there; a block may have a line
"reader WORD..." with words that only the reader knows. "file NAME TEXT" writes a file before, in which \\n is a line end.
--print shows what each command says."""
import argparse
import concurrent.futures
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).parent


def read_blocks(text):
    blocks = []
    for part in re.split(r"\n\s*\n", text):
        block = {"files": [], "reader": set(), "status": 2}
        for line in part.split("\n"):
            word, _, rest = line.partition(" ")
            if word == "-":
                block["wrong"] = rest
            elif word == "+":
                block["right"] = rest
            elif word == "file":
                name, _, content = rest.partition(" ")
                block["files"].append((name, content.encode().decode("unicode_escape")))
            elif word == "reader":
                block["reader"] = set(shlex.split(rest))
            elif word == "status":
                block["status"] = int(rest)
            elif line.strip() and not line.startswith("#"):
                sys.exit(f"wrong_inputs: cannot read: {line}")
        if "wrong" in block:
            blocks.append(block)
    return blocks


def run(ballast, place, command):
    words = [ballast if word == "ballast" else word for word in shlex.split(command)]
    done = subprocess.run(words if words[0] == ballast else [ballast, *words], cwd=place, stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, check=False, timeout=240)
    return done.returncode, done.stderr


def words_of(text):
    return set(re.split(r"[\s=,]+", text))


def fault_of(block, ballast, prepared, show):
    """What is wrong with the program's answer; None if nothing is."""
    with tempfile.TemporaryDirectory() as place:
        shutil.copytree(prepared, place, dirs_exist_ok=True, copy_function=os.link)
        for name, content in block["files"]:
            path = pathlib.Path(place, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
            path.write_text(content, encoding="latin-1")
        status, output = run(ballast, place, block["wrong"])
        errors = re.findall(r"^(?:ballast: error|hint): .*(?:\n(?!hint:|ballast:).+)*", output, re.M)
        text = "\n".join(errors)
        if show:
            print(f"- {block['wrong']}\n{text}\n", flush=True)
        if status != block["status"]:
            return f"status {status} instead of {block['status']}:\n{output}"
        if text.count("hint: ") != 1 or not text.startswith("ballast: error: "):
            return f"no error with a hint:\n{output}"
        if "right" not in block:
            return None
        named = words_of(re.sub(r"[`'\"();:?]|\.(?=\s|$)", " ", text)) | block["reader"]
        unknown = words_of(" ".join(shlex.split(block["right"]))) - words_of(" ".join(shlex.split(block["wrong"]))) - named
        if unknown:
            return f"the hint does not lead to {' '.join(sorted(unknown))}:\n{text}"
        status, output = run(ballast, place, block["right"])
        return f"+ {block['right']}\nstatus {status}:\n{output}" if status != 0 else None


def prepare(ballast, place):
    """What the commands take for granted: model, data.txt, chat.jsonl, pairs.jsonl, plan.json, run, tuned."""
    for name, content in (("data.txt", "the quick brown fox jumps over the lazy dog. " * 300),
                          ("chat.jsonl", '{"prompt": "the fox", "completion": " jumps"}\n' * 16),
                          ("pairs.jsonl", '{"prompt": "the", "chosen": " fox", "rejected": " dog"}\n' * 16)):
        pathlib.Path(place, name).write_text(content)
    size = "--arch llama --hidden 64 --layers 2 --heads 4 --kv-heads 2 --ffn 128 --vocab 280 --context 64"
    for command in (f"init model {size} --tokenizer-data data.txt", "plan model --dtype fp32 -o plan.json",
                    "train model data.txt -o run --steps 1 --dtype fp32",
                    "train model data.txt -o tuned --steps 1 --dtype fp32 --lora 4,8,all-linear"):
        status, output = run(ballast, place, command)
        if status != 0:
            sys.exit(f"ballast {command}\nstatus {status}: {output}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--print", action="store_true", help="show what each command says")
    parser.add_argument("--only", default="", help="only the commands that contain this text")
    arguments = parser.parse_args()
    ballast = os.path.abspath(os.environ["BALLAST"])
    blocks = [block for block in read_blocks((HERE / "wrong_inputs").read_text()) if arguments.only in block["wrong"]]
    failed = 0
    with tempfile.TemporaryDirectory() as prepared, concurrent.futures.ThreadPoolExecutor(2) as pool:
        prepare(ballast, prepared)
        for block, fault in zip(blocks, pool.map(lambda b: fault_of(b, ballast, prepared, arguments.print), blocks)):
            if fault:
                failed += 1
                print(f"- {block['wrong']}\n{fault}\n")
    print(f"{len(blocks)} wrong inputs, {failed} failed")
    return 1 if failed or not blocks else 0


if __name__ == "__main__":
    sys.exit(main())
