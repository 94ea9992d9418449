#!/usr/bin/env python3
"""Runs the shell examples of documentation pages, and compares what they print with what the pages show.

  usage: BALLAST=build/ballast scripts/run-examples.py PAGE.md...     --list prints the commands and runs none

An example is a line "    $ COMMAND" of an indented block; lines that end in a backslash continue it. The lines under it, up
to the next command, are its output: the words must be there in this order, and numbers may differ. A line of "…" stands
for any lines. A command that shows "ballast: error:" must fail; any other must succeed.

Each page runs in a directory of its own, which holds what pages take for granted: model, data, chat.jsonl, pairs.jsonl, a
finished run, and its model with a chat template. SHORTER cuts lengths so that a page takes seconds."""
import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), '..')
# Names that pages use for the reader's own files, and what stands in for them.
STANDS_FOR = [(r'\bmodels/[\w.-]+', 'chat-model')]
SHORTER = [(r'--steps \d+', '--steps 4'), (r'--epochs [\d.]+', '--steps 4'), (r'--tokens 80', '--tokens 8'),
           (r'--batches \d+', '--batches 1'), (r'--serve \d+', '--serve 0'), (r'--valid-every \d+', '--valid-every 2')]
# Commands that no test machine runs, and commands whose output depends on trained weights, with the reason.
NOT_RUN = [(r'^(srun|sbatch)\b', 'needs Slurm'), (r'^make\b', 'builds')]
NOT_COMPARED = [(r'^ballast generate\b', 'the text of a model that was trained for longer')]


def examples(page):
    """(line, command, expected lines) of each example."""
    found, lines = [], open(page, encoding='utf-8').read().split('\n')
    number = 0
    while number < len(lines):
        start = number
        if not lines[number].startswith('    $ '):
            number += 1
            continue
        command = lines[number][6:]
        while command.endswith('\\'):
            number += 1
            command = command[:-1].rstrip() + ' ' + lines[number].strip()
        number += 1
        expected = []
        while number < len(lines) and lines[number].startswith('    ') and not lines[number].startswith('    $ '):
            expected.append(lines[number][4:])
            number += 1
        found.append((start + 1, command, expected))
    return found


def shape(line):
    """A line without its numbers, sizes and spaces, which differ between machines."""
    return re.sub(r'\s+', ' ', re.sub(r'[\d.,]*\d(?:e[+-]?\d+)?(?:[KMGT]i?B?)?', '#', line)).strip()


def difference(expected, printed):
    """The first expected line that is not in what was printed, from where the one before it was; None: all are."""
    shapes, place = [shape(line) for line in printed.split('\n')], 0
    for line in expected:
        if not line.strip() or line.strip() == '…':
            continue
        pattern = '.*'.join(re.escape(part) for part in shape(line).split('…'))
        while place < len(shapes) and not re.fullmatch(pattern, shapes[place]):
            place += 1
        if place == len(shapes):
            return line
        place += 1
    return None


def prepare(ballast, place):
    """A small model with a tokenizer and a chat template, texts, and a finished run."""
    def run(*words):
        subprocess.run([ballast, *words], cwd=place, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    os.mkdir(os.path.join(place, 'data'))
    pages = sorted(glob.glob(os.path.join(ROOT, 'docs', '**', '*.md'), recursive=True)) + glob.glob(
        os.path.join(ROOT, 'src', '*', '*.h'))
    text = '\n'.join(open(page, encoding='utf-8').read() for page in pages)
    for name, part in (('train.txt', text), ('valid.txt', text[:20000])):
        with open(os.path.join(place, 'data', name), 'w', encoding='utf-8') as file:
            file.write(part)
    with open(os.path.join(place, 'chat.jsonl'), 'w', encoding='utf-8') as file:
        file.write('{"prompt": "Two and two?", "completion": " Four."}\n' * 16)
    with open(os.path.join(place, 'pairs.jsonl'), 'w', encoding='utf-8') as file:
        file.write('{"prompt": "Two and two?", "chosen": " Four.", "rejected": " Five."}\n' * 16)
    size = '--arch llama --hidden 192 --layers 4 --heads 6 --kv-heads 3 --ffn 512 --vocab 2048 --context 128 --tied'
    run('init', 'model', *size.split(), '--tokenizer-data', 'data/train.txt')
    run('plan', 'model', '-o', 'plan.json')
    run('train', 'model', 'data', '-o', 'run', '--steps', '4')
    shutil.copytree(os.path.join(place, 'model'), os.path.join(place, 'chat-model'))
    with open(os.path.join(place, 'chat-model', 'chat_template.jinja'), 'w', encoding='utf-8') as file:
        file.write('{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}')


def run_page(ballast, page, prepared):
    place = tempfile.mkdtemp()
    shutil.copytree(prepared, place, dirs_exist_ok=True)
    os.symlink(os.path.join(ROOT, 'clusters'), os.path.join(place, 'clusters'))
    environment = dict(os.environ, PATH=os.path.dirname(ballast) + ':' + os.environ['PATH'])
    failed = 0
    for line, command, expected in examples(page):
        reason = next((why for pattern, why in NOT_RUN if re.search(pattern, command)), None)
        if reason:
            print(f'{page}:{line}: not run ({reason}): {command}')
            continue
        for pattern, instead in STANDS_FOR + SHORTER:
            command = re.sub(pattern, instead, command)
        out = re.search(r' -o (\w+)(?= |$)', command)  # a page may make a run that is there
        if out and os.path.isdir(os.path.join(place, out[1])):
            shutil.rmtree(os.path.join(place, out[1]))
        if command.startswith('ballast init model'):
            shutil.rmtree(os.path.join(place, 'model'), ignore_errors=True)
        done = subprocess.run(['sh', '-c', command], cwd=place, env=environment, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        must_fail = any('ballast: error:' in one for one in expected)
        compared = not any(re.search(pattern, command) for pattern, _ in NOT_COMPARED)
        missing = difference(expected, done.stdout) if compared else None
        if (done.returncode != 0) != must_fail or missing is not None:
            failed += 1
            print(f'{page}:{line}: {command}\n  status {done.returncode}'
                  + (f', and lacks the line: {missing}' if missing is not None else '') + f'; it printed:\n{done.stdout}')
    shutil.rmtree(place)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='print the commands and run none')
    parser.add_argument('pages', nargs='+')
    arguments = parser.parse_args()
    if arguments.list:
        for page in arguments.pages:
            for line, command, _ in examples(page):
                print(f'{page}:{line}: {command}')
        return 0
    ballast = os.path.abspath(os.environ.get('BALLAST', 'build/ballast'))
    with tempfile.TemporaryDirectory() as prepared:
        prepare(ballast, prepared)
        failed = sum(run_page(ballast, page, prepared) for page in arguments.pages)
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
