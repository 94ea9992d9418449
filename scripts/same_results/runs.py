"""Runs the programs: every case of a group by the old build, then by the new one with the same stored costs."""
import collections
import difflib
import json
import os
import pathlib
import re
import shutil
import subprocess

from cases import CAPS, MEMORY, STEP, read_json
from differences import Difference, Refusal, compare_places, error_of, has_kind

COMMAND_LIMIT_S = 600
REFUSALS = (2, 3)  # exit statuses of bad input, and of a step that does not fit
KEEP = bool(os.environ.get("WORK"))


class Build:
    """A program, and the names of options that it knows."""

    def __init__(self, side, folder, names):
        self.side, self.program, self.names = side, pathlib.Path(folder).resolve() / "ballast", names
        if not os.access(self.program, os.X_OK):
            raise Refusal(f"{folder}: has no program `ballast`; give a CMake build directory")
        text = subprocess.run([self.program, "help", "options"], capture_output=True, text=True, check=True).stdout
        self.known = set(re.findall(r"^\| `(--[a-z0-9-]+)", text, re.M))
        self.values = {option: set(re.findall(r"[\w-]+", choices)) for option, choices in
                       re.findall(r"^\| `(--[a-z0-9-]+) ([^`]*)`", text, re.M)}

    def translate(self, arguments):
        """The arguments with the names that this build knows."""
        result, option = [], ""
        for word in arguments:
            if word.startswith("--"):
                option = word
                result.append(self.pick(self.names.options.get(word, [word]), self.known))
            else:
                choices = self.values.get(result[-1], set()) if result else set()
                result.append(self.pick(self.names.values.get((option, word), [word]), choices))
        return result

    @staticmethod
    def pick(candidates, known):
        """The newest name that is known; the newest of all if none is, so that the program refuses it by name."""
        return next((name for name in reversed(candidates) if name in known), candidates[-1])

    def run(self, place, name, arguments, environment):
        """Runs a command in `place`, and leaves its output in out.NAME.json and its messages in err.NAME."""
        place.mkdir(parents=True, exist_ok=True)
        command = [str(self.program)] + self.translate(arguments)
        with open(place / f"out.{name}.json", "wb") as out, open(place / f"err.{name}", "wb") as err:
            try:
                status = subprocess.run(command, cwd=place, env=environment, stdin=subprocess.DEVNULL, stdout=out,
                                        stderr=err, timeout=COMMAND_LIMIT_S, check=False).returncode
            except subprocess.TimeoutExpired:
                status = f"none after {COMMAND_LIMIT_S} s"
        with open(place / "commands", "a") as log:
            log.write(f"{' '.join(command)}\n")
        return status


def environment(cache, isa):
    """Returns the environment without settings that would change results or plans."""
    variables = {key: value for key, value in os.environ.items() if not key.startswith(("BALLAST_", "OMP_"))}
    variables.update(XDG_CACHE_HOME=str(cache), OMP_WAIT_POLICY="passive")
    return {**variables, "BALLAST_MAX_ISA": "avx2"} if isa == "avx2" else variables


def instruction_sets(build, inputs, place):
    """Returns AVX2 and the machine's best instruction set, by their names in recipes."""
    found = []
    for isa in ("avx2", None):
        arguments = ["eval", str(inputs.model(inputs.families[0])), str(inputs.place / "text.txt"), "--batches", "1",
                     "--json", *STEP]
        if build.run(place, "eval", arguments, environment(place / "cache", isa)) == 0:
            found.append(build.names.latest(read_json(place / "out.eval.json"))["recipe"]["isa"])
    if not found:
        raise Refusal(f"{build.program}: `eval` fails: {(place / 'err.eval').read_text()}")
    return list(dict.fromkeys(found))


def take_over(old, place):
    """Copies the half run of the old build, which the new build resumes."""
    shutil.copytree(old / "half", place / "run")
    shutil.copy(old / "out.train.json", place)


def run_commands(build, case, place, environment, old=None):
    """[(command, status)], up to the first command that fails. `old`: where the old build ran the case."""
    statuses = []
    (place / "disk").mkdir(parents=True)
    for name, arguments in case.commands():
        if name == "train" and old and (old / "half").exists():
            take_over(old, place)
            status = 0
        else:
            status = build.run(place, name, arguments, environment)
        statuses.append((name, status))
        if status != 0:
            break
        if name == "train" and case.variant.name == "taken-over" and not old:
            shutil.copytree(place / "run", place / "half")
    return statuses


def settle(cache):
    """Marks stored costs as free of noise, so that no program measures them again."""
    def quiet(value):
        if isinstance(value, dict):
            return {key: 0 if key == "noise" else quiet(inner) for key, inner in value.items()}
        is_measurement = isinstance(value, list) and len(value) == 2 and all(isinstance(x, float) for x in value)
        return [value[0], 0.0] if is_measurement else value
    for path in profiles(cache):
        path.write_text(json.dumps(quiet(read_json(path))))


def profiles(cache):
    return sorted((cache / "ballast").glob("profile-*.json"))


def copy_costs(old, new):
    (new / "ballast").mkdir(parents=True, exist_ok=True)
    for path in profiles(old):
        shutil.copy(path, new / "ballast")


def adopt_costs(old, new):
    """Where the new build names this machine otherwise (other versions of kernels or keys), its own files get the old
    build's values. Returns whether there is such a file."""
    theirs = {path: read_json(path) for path in profiles(old)}
    own = [path for path in profiles(new) if path.name not in {path.name for path in theirs}]
    for path in own:
        mine = read_json(path)
        like = lambda other: difflib.SequenceMatcher(None, str(other.get("machine")), str(mine.get("machine"))).ratio()
        source = max(theirs.values(), key=like, default={})
        for section, values in mine.items():
            if isinstance(values, dict):
                values.update({key: value for key, value in source.get(section, {}).items() if key in values})
        path.write_text(json.dumps(mine))
    return bool(own)


Result = collections.namedtuple("Result", "case differences refusal step_times place")


def compare_statuses(old, new):
    for (name, before), (_, after) in zip(old, new):
        if before != after:
            yield Difference("bits", name, f"exit status {before} -> {after}")


def step_time(place):
    """The step time that `plan` predicted, as text."""
    try:
        seconds = read_json(place / "out.plan.json")["step_s"]
    except (OSError, ValueError, KeyError):
        return "unknown"
    return f"{seconds * 1e3:.3f} ms" if seconds else "not simulated"


def measure_links(build, place, cases):
    """Stores costs of messages, which only jobs of several ranks measure, with one job per kind and instruction set.
    Returns {instruction set: directory}."""
    costs = {case.isa: place / case.isa for case in cases}
    measured = set()
    for case in cases:
        job = case.isa, case.variant.name
        if case.has_ranks and job not in measured:
            here = place / case.name.replace(" ", "-")
            statuses = run_commands(build, case, here, environment(costs[case.isa], case.isa))
            measured |= {job} if statuses[-1][1] == 0 else set()
    for cache in costs.values():
        settle(cache)
    return costs


class Group:
    """The cases of one model, data type and instruction set. They share stored costs and run one after the other."""

    def __init__(self, place, builds, names, cases, costs):
        self.place = place / f"{cases[0].family}-{cases[0].dtype}-{cases[0].isa}"
        self.builds, self.names, self.cases, self.costs = builds, names, cases, costs
        self.cache = {build.side: self.place / f"cache-{build.side}" for build in builds}

    def surroundings(self, build):
        return environment(self.cache[build.side], self.cases[0].isa)

    def place_of(self, case, side):
        return self.place / case.variant.name / side

    def measure(self, case):
        """Has the old build measure the costs of a case, and finds the cap of a capped one."""
        build, place = self.builds[0], self.place_of(case, "measure")
        run = lambda command: build.run(place, *command, self.surroundings(build))
        (place / "disk").mkdir(parents=True)
        for command in [*case.init(), case.plan()]:
            status = run(command)
        if case.variant.name == "capped" and status == 0:
            plan = self.names.latest(read_json(place / "out.plan.json"))
            for share in CAPS:
                size = int(plan["tiers"][0]["program_bytes"] * share) >> 10
                case.cap = ["--device-memory", f"{size}K", "--disk", "disk:64M"]
                if run(case.plan()) == 0:
                    break
        shutil.rmtree(place)

    def run_build(self, build):
        environment, statuses = self.surroundings(build), {}
        for case in self.cases:
            old = self.place_of(case, "old") if build.side == "new" else None
            statuses[case] = run_commands(build, case, self.place_of(case, build.side), environment, old)
        return statuses

    def run(self):
        """The results of all cases."""
        old, new = self.builds
        copy_costs(self.costs, self.cache["old"])
        for case in self.cases:
            self.measure(case)
        settle(self.cache["old"])
        old_statuses = self.run_build(old)
        settle(self.cache["old"])
        copy_costs(self.cache["old"], self.cache["new"])
        new_statuses = self.run_build(new)
        if adopt_costs(self.cache["old"], self.cache["new"]):
            for case in self.cases:
                shutil.rmtree(self.place_of(case, "new"))
            new_statuses = self.run_build(new)
        return [self.compare(case, old_statuses[case], new_statuses[case]) for case in self.cases]

    def compare(self, case, old_statuses, new_statuses):
        old, new = self.place_of(case, "old"), self.place_of(case, "new")
        shutil.rmtree(old / "half", ignore_errors=True)
        found, refusal = list(compare_statuses(old_statuses, new_statuses)), None
        name, status = old_statuses[-1]
        if not found and status != 0:
            refusal, other = (error_of(place / f"err.{name}", place, self.names) for place in (old, new))
            if status not in REFUSALS:
                found.append(Difference("bits", name, f"both builds fail with status {status}: {refusal}"))
            elif refusal != other:
                found.append(Difference("message", name, f"{refusal} -> {other}"))
        found += compare_places(old, new, self.names)
        times = [step_time(self.place_of(case, side)) for side in ("old", "new")]
        if not has_kind(found, "bits") and not KEEP:
            shutil.rmtree(self.place / case.variant.name)
        return Result(case, found, refusal, times, self.place / case.variant.name)
