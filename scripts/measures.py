#!/usr/bin/env python3
"""Measures the layout of src, and fails if a measure exceeds its limit.

  usage: scripts/measures.py [--list] [ROOT]     --list names the files behind each count

  modules          directories of src
  files            C and CUDA sources and headers
  code lines       lines of these files that are neither blank nor comment
  median .c        lines of the median .c file
  lone headers     headers that only one source file uses, except tables of rows (X macros)
  repeated names   files whose name begins with the name of one of their directories
  large            directories with too many files
  climbs           calls in `ballast plan` from one file back to an earlier one (plan_walk.py)"""
import argparse
import glob
import os
import re
import statistics
import sys

import plan_walk

# The largest allowed values; the median also has a smallest one. Lower the limit of code lines when src gets smaller.
LIMITS = {'modules': 20, 'files': 550, 'code lines': 92000, 'median .c': 400, 'lone headers': 0,
          'repeated names': 0, 'large': 0, 'climbs': 5}
MEDIAN_MIN = 150
DIRECTORY_FILES = 25
# A file named after its directory does not count, nor its header, nor a replacement for a missing library.
LARGE_SLACK = 3


def code_lines(text):
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|//[^\n]*|/\*.*?\*/'
    text = re.sub(pattern, lambda match: match[0] if match[0][0] in '"\'' else '', text, flags=re.S)
    return sum(1 for line in text.split('\n') if line.strip())


def is_table(text):
    """Whether a header is a table of rows: an X macro without functions."""
    return re.search(r'#define \w+_(?:LIST|TABLE)\(X\)', text) is not None or re.search(r'^X?[A-Z_]+\(.*\)$', text, re.M)


def serves(texts):
    """Returns {header: sources that include it, directly or through another header}."""
    includes = {}
    for path, text in texts.items():
        here = os.path.dirname(path)
        names = re.findall(r'^#include "([^"]+)"', text, re.M)
        includes[path] = {place for name in names for place in (os.path.join('src', name), os.path.join(here, name))
                          if place in texts}
    users = {path: set() for path in texts if path.endswith(('.h', '.cuh'))}
    for source in texts:
        if source in users:
            continue
        waiting, seen = [source], set()
        while waiting:
            fresh = includes[waiting.pop()] - seen
            seen |= fresh
            waiting += fresh
        for header in seen:
            users[header].add(source)
    return users


def measure(root):
    """Returns {name of a measure: (value, the files that it counts)}."""
    paths = sorted(path for ending in ('c', 'h', 'cu', 'cuh')
                   for path in glob.glob(os.path.join(root, f'src/**/*.{ending}'), recursive=True))
    texts = {os.path.relpath(path, root): open(path, encoding='utf-8').read() for path in paths}
    lone = [f'{header}: {" ".join(sorted(users)) or "no file"}' for header, users in serves(texts).items()
            if len(users) < 2 and not is_table(texts[header])]
    repeated = [path for path in texts
                if any(os.path.basename(path).startswith(part + '_') for part in path.split('/')[1:-1])]
    by_directory = {}
    for path in texts:
        by_directory.setdefault(os.path.dirname(path), []).append(path)
    large = [f'{name}: {len(inside)}' for name, inside in sorted(by_directory.items())
             if len(inside) > DIRECTORY_FILES + LARGE_SLACK]
    sizes = {path: code_lines(text) for path, text in texts.items()}
    lengths = [text.count('\n') for path, text in texts.items() if path.endswith('.c')]
    _, climbs = plan_walk.walk(root)
    return {'modules': (len({path.split('/')[1] for path in texts}), []),
            'files': (len(texts), []),
            'code lines': (sum(sizes.values()), []),
            'median .c': (int(statistics.median(lengths)), []),
            'lone headers': (len(lone), lone),
            'repeated names': (len(repeated), repeated),
            'large': (len(large), large),
            'climbs': (len(climbs), [f'{caller} calls {name}' for (_, caller), (_, name) in climbs])}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--list', action='store_true', help='name the files behind each count')
    parser.add_argument('root', nargs='?', default=os.path.join(os.path.dirname(os.path.abspath(__file__)), '..'))
    arguments = parser.parse_args()
    failed = False
    for name, (value, counted) in measure(arguments.root).items():
        bad = value > LIMITS[name] or name == 'median .c' and value < MEDIAN_MIN
        limit = f'{MEDIAN_MIN} to {LIMITS[name]}' if name == 'median .c' else f'at most {LIMITS[name]}'
        print(f'{name:15} {value:7}   {limit}{"   FAILS" if bad else ""}')
        if bad or arguments.list:
            for line in counted:
                print(f'                {line}')
        failed |= bad
    return 1 if failed else 0


if __name__ == '__main__':
    sys.exit(main())
