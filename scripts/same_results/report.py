"""Prints the differences of all cases, and their counts."""
import collections
import pathlib

from differences import has_kind


def show(text=""):
    print(text, flush=True)


def print_failure(result):
    """The first difference of each file; large files last."""
    show(f"{result.case.name}: differs; kept in {result.place}")
    files = collections.defaultdict(list)
    for found in sorted(result.differences, key=lambda found: found.file.endswith(".safetensors")):
        if found.kind == "bits":
            files[found.file].append(found.text)
    for file, texts in files.items():
        show(f"    {file}: {texts[0]}" + (f" (and {len(texts) - 1} more)" if len(texts) > 1 else ""))


def print_plans(results):
    changed = [result for result in results if has_kind(result.differences, "plan")]
    if changed:
        show("\nPlans differ:")
    for result in changed:
        texts = list(dict.fromkeys(found.text for found in result.differences if found.kind == "plan"))
        texts.sort(key=lambda text: not text.startswith("policy."))
        more = f" and {len(texts) - 3} more" if len(texts) > 3 else ""
        show(f"    {result.case.name}: {'; '.join(texts[:3])}{more}; simulated step {' -> '.join(result.step_times)}")


def print_grouped(title, rows):
    """Equal texts once, with the number of cases and the first one. `rows`: (text, case)."""
    cases = collections.defaultdict(dict)
    for text, case in rows:
        cases[text][case.name] = True
    if cases:
        show(f"\n{title}:")
    for text, names in sorted(cases.items(), key=lambda item: -len(item[1])):
        show(f"    {len(names):4} cases, first {next(iter(names))}: {text}")


def texts_of(results, kind):
    return [(f"{pathlib.Path(found.file).name}: {found.text}", result.case)
            for result in results for found in result.differences if found.kind == kind]


COLUMNS = [
    ("cases", lambda result: True),
    ("equal", lambda result: not result.refusal and not has_kind(result.differences, "bits")),
    ("different", lambda result: has_kind(result.differences, "bits")),
    ("refused alike", lambda result: result.refusal and not has_kind(result.differences, "bits")),
    ("plans differ", lambda result: has_kind(result.differences, "plan")),
    ("messages differ", lambda result: has_kind(result.differences, "message")),
    ("formats differ", lambda result: has_kind(result.differences, "format")),
]


def print_counts(results):
    rows = [("", [title for title, _ in COLUMNS])]
    for variant in [*dict.fromkeys(result.case.variant.name for result in results), "all"]:
        of_variant = [result for result in results if variant in ("all", result.case.variant.name)]
        rows.append((variant, [str(sum(bool(counts(result)) for result in of_variant)) for _, counts in COLUMNS]))
    show()
    for variant, cells in rows:
        show(f"{variant:12}" + "".join(f"{cell:>{len(title) + 2}}" for cell, (title, _) in zip(cells, COLUMNS)))


def report(results):
    print_plans(results)
    print_grouped("Messages differ", texts_of(results, "message"))
    print_grouped("Formats differ", texts_of(results, "format"))
    print_grouped("Refused alike", [(result.refusal, result.case) for result in results if result.refusal])
    print_counts(results)
