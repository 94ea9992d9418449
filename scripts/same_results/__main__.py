"""Compares two builds of Ballast. CONTRIBUTING.md explains when to use it.

    scripts/same-results.sh OLD_BUILD NEW_BUILD [FILTER]

Both programs run the same commands on the models of tests/fixtures/models. FILTER is a regular expression that selects
cases by name ("llama bf16 lora avx2"). The exit status is 0 if all arithmetic is equal, 1 if it is not, 2 if the
command line is wrong.

    JOBS=N      groups of cases that run at once (default: number of processors)
    WORK=DIR    work directory, which is kept (default: a temporary one, kept only if something differs)
    NAMES=FILE  name map (default: scripts/same_results/names)

Every difference belongs to one class:

    bits     losses, norms, weights, optimizer states, texts, exit statuses: the comparison fails
    plan     policies and predicted times: listed with both simulated step times
    message  wording of a refusal: listed
    format   format versions and fields that only the new build writes: listed
"""
import concurrent.futures
import os
import pathlib
import re
import shutil
import sys
import tempfile
import time

from cases import VARIANTS, Case, Inputs
from differences import Names, Refusal, has_kind
from report import print_failure, report
from runs import KEEP, Build, Group, instruction_sets, measure_links


def select_cases(inputs, sets, wanted):
    """Groups of cases. Families have all variants; other fixtures have one, with the best instruction set."""
    groups = []
    for model in inputs.configs:
        for dtype in ("fp32", "bf16"):
            for isa in sets:
                every = model in inputs.families
                names = [variant for variant in VARIANTS
                         if every or (variant.name == "plain" and dtype == "fp32" and isa == sets[-1])]
                groups.append([Case(inputs, model, dtype, isa, variant) for variant in names
                               if wanted.search(f"{model} {dtype} {variant.name} {isa}")])
    return [group for group in groups if group]


def run_groups(groups, place, builds, names):
    jobs = int(os.environ.get("JOBS") or len(os.sched_getaffinity(0)))
    results, begin = {}, time.monotonic()
    costs = measure_links(builds[0], place / "links", [case for cases in groups for case in cases])
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = [pool.submit(Group(place, builds, names, cases, costs[cases[0].isa]).run) for cases in groups]
        for number, done in enumerate(concurrent.futures.as_completed(running), 1):
            for result in done.result():
                results[result.case] = result
                if has_kind(result.differences, "bits"):
                    print_failure(result)
            print(f"same-results: {number} of {len(groups)} groups, {len(results)} cases, "
                  f"{time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return [results[case] for cases in groups for case in cases]


def compare_builds(folders, wanted, place):
    """Whether all arithmetic is equal."""
    names = Names(pathlib.Path(os.environ.get("NAMES") or pathlib.Path(__file__).parent / "names"))
    builds = [Build(side, folder, names) for side, folder in zip(("old", "new"), folders)]
    inputs = Inputs(place / "inputs")
    sets = instruction_sets(builds[0], inputs, place / "sets")
    groups = select_cases(inputs, sets, wanted)
    if not groups:
        raise Refusal(f"no case matches {wanted.pattern}")
    results = run_groups(groups, place, builds, names)
    report(results)
    return not any(has_kind(result.differences, "bits") for result in results)


def refuse(message):
    print(f"same-results: {message}", file=sys.stderr)
    return 2


def main(arguments):
    if len(arguments) not in (2, 3):
        return refuse("usage: scripts/same-results.sh OLD_BUILD NEW_BUILD [FILTER]")
    if KEEP and os.path.exists(os.environ["WORK"]):
        return refuse(f"WORK={os.environ['WORK']}: exists already; give a new directory")
    place = pathlib.Path(os.environ.get("WORK") or tempfile.mkdtemp(prefix="same-results-")).resolve()
    try:
        wanted = re.compile(arguments[2] if len(arguments) == 3 else "")
        status = 0 if compare_builds(arguments[:2], wanted, place) else 1
    except (Refusal, re.error) as error:
        status = refuse(error)
    if status != 1 and not KEEP:
        shutil.rmtree(place)
    return status


sys.exit(main(sys.argv[1:]))
