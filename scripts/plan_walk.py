#!/usr/bin/env python3
"""Follows a plan request through the calls of `ballast plan`, and counts calls back to earlier files (climbs).

  usage: scripts/plan_walk.py [--max-climbs N] [--list] [ROOT]

The walk starts at the function that runs the subcommand, in source order, depth first. It enters functions that take
the request: a parameter points to plan_options, plan_request, or a struct that contains one of them, also indirectly. A
climb is a call to a file through which the walk reached the caller's file, so that the two files call each other,
perhaps through others. A function that is passed as a callback counts as called where it is named. Exits with 1 if
there are more than N climbs."""
import argparse
import glob
import os
import re
import sys

START = ('src/cli/commands/plan.c', 'run')
REQUEST = {'options', 'plan_options', 'plan_request', 'session', 'plan'}


def without_comments(text):
    pattern = r'/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\''
    return re.sub(pattern, lambda match: '""' if match[0][0] in '"\'' else ' ', text, flags=re.S)


def carriers(texts):
    """Returns the structs that contain a request."""
    fields = {}
    for text in texts.values():
        for name, body in re.findall(r'^struct (\w+) \{(.*?)^\};', text, flags=re.S | re.M):
            fields[name] = set(re.findall(r'\bstruct (\w+)', body))
    found = set(REQUEST)
    while True:
        more = {name for name, used in fields.items() if used & found} - found
        if not more:
            return found
        found |= more


def functions(path, text):
    """Definitions in the committed format: name -> (parameters, names used in the body in order, is static)."""
    out = {}
    pattern = r'^(static )?(?:inline )?(?:const )?(?:enum |struct |unsigned )?\w+ \**(\w+)\(([^;{}]*?)\) \{([^\n]+\}$|.*?^\})'
    for static, name, parameters, body in re.findall(pattern, text, flags=re.S | re.M):
        out[name] = (parameters, re.findall(r'(?<![.>\w])[a-z]\w*', body), bool(static))
    return out


def walk(root):
    paths = sorted(glob.glob(os.path.join(root, 'src/**/*.[ch]'), recursive=True))
    texts = {os.path.relpath(path, root): without_comments(open(path, encoding='utf-8').read()) for path in paths}
    defined = {path: functions(path, text) for path, text in texts.items()}
    public = {name: path for path, own in defined.items() for name, entry in own.items() if not entry[2]}
    structs = carriers(texts)

    def carries(path, name):
        taken = re.findall(r'\bstruct (\w+)', defined[path][name][0])
        return any(one in structs for one in taken)

    files, calls, seen = [], [], set()
    stack = [iter([START])]
    seen.add(START)
    at = [None]
    while stack:
        target = next(stack[-1], None)
        if target is None:
            stack.pop(), at.pop()
            continue
        path, name = target
        if at[-1] and at[-1][0] != path:
            calls.append((at[-1], target))
        if target in seen and at[-1]:
            continue
        seen.add(target)
        if path not in files:
            files.append(path)
        used = [(path if one in defined[path] else public.get(one), one) for one in dict.fromkeys(defined[path][name][1])]
        stack.append(iter([one for one in used if one[0] and one != target and carries(*one)]))
        at.append(target)
    below = {path: {b[0] for a, b in calls if a[0] == path} for path in files}
    for _ in files:
        for path in files:
            below[path] |= set().union(*(below[other] for other in below[path]))
    climbs = [(a, b) for a, b in dict.fromkeys(calls)
              if files.index(b[0]) < files.index(a[0]) and a[0] in below[b[0]]]
    return files, climbs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--max-climbs', type=int)
    parser.add_argument('--list', action='store_true', help='print the files in the order of the walk, and each climb')
    parser.add_argument('root', nargs='?', default=os.path.join(os.path.dirname(__file__), '..'))
    args = parser.parse_args()
    files, climbs = walk(args.root)
    if args.list:
        print('\n'.join(files))
        for (path, caller), (upper, name) in climbs:
            print(f'climb: {path}: {caller} calls {upper}: {name}')
    print(f'the plan request enters {len(files)} files and climbs back up {len(climbs)} times')
    return 1 if args.max_climbs is not None and len(climbs) > args.max_climbs else 0


if __name__ == '__main__':
    sys.exit(main())
