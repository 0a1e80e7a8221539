"""`bin/test --mutation`: change the rules in small ways, and report the changes that no test in tests/unit notices."""

from __future__ import annotations

import argparse
import itertools
import os
import shutil
import sys
import tempfile
import tomllib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutation import executed_lines, mutants, trials, type_checks
from tests.mutation.generator import mutants_of
from tests.mutation.mutants import Accepted, Mutant, Result
from tests.unit.sources import pure_modules

ROOT = Path(__file__).parents[2]
STORE = ROOT / ".liza-mutation"
"""Saved records of which test executes which line."""
ACCEPTED = ROOT / "tests" / "data" / "accepted_mutants.toml"
MIN_PERCENT = 90.0
OK, BELOW, USAGE = 0, 1, 2


def arguments(words: Sequence[str]) -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(prog="bin/test --mutation", description=__doc__)
    parser.add_argument("--sample", type=int, default=400, metavar="N", help="number of mutants (default: 400)")
    parser.add_argument("--seed", type=int, default=1, help="seed of the sample (default: 1)")
    parser.add_argument("--all", action="store_true", help="all mutants; takes hours")
    parser.add_argument("--only", nargs="+", default=[], metavar="PATH", help="only modules below these paths")
    parser.add_argument(
        "--processes", type=int, default=os.cpu_count() or 2, help="number of processes (default: CPUs)"
    )
    return parser.parse_args(words)


def modules(only: Sequence[str]) -> list[str]:
    """Return the paths of the modules that are changed. Raises SystemExit if there are none."""
    paths = [str(path.relative_to(ROOT)) for path in pure_modules(ROOT)]
    prefixes = [prefix.removesuffix("/") for prefix in only]
    chosen = [
        path
        for path in paths
        if not only or any(path == prefix or path.startswith(f"{prefix}/") for prefix in prefixes)
    ]
    if not chosen:
        sys.stderr.write(f"no module of the rules is below {' '.join(only)}\n")
        raise SystemExit(USAGE)
    return chosen


def accepted_entries() -> list[Accepted]:
    """Return the survivors that need no test."""
    return [
        Accepted(entry["path"], entry["function"], tuple(entry["before"]), tuple(entry["after"]), entry["reason"])
        for entry in tomllib.loads(ACCEPTED.read_text()).get("mutant", [])
    ]


def renew_records(processes: int, directory: Path) -> Iterator[executed_lines.Record]:
    """Yield the records of all unit tests, after recording those that are not saved."""
    files = sorted((ROOT / "tests" / "unit").rglob("test_*.py"))
    wanted = executed_lines.checksums(ROOT, files)
    saved = executed_lines.load(STORE, wanted)
    missing = [file for file in wanted if file not in saved]
    if missing:
        print(f"recording which lines {len(missing)} test files execute", flush=True)
    renewed: dict[str, list[executed_lines.Record]] = defaultdict(list)
    for record in trials.record(ROOT, missing, processes, directory):
        for file in missing if record.test == executed_lines.IMPORT else [record.test.partition("::")[0]]:
            renewed[file].append(record)
    for file, records in renewed.items():
        executed_lines.save(STORE, file, wanted[file], records)
    yield from itertools.chain.from_iterable((saved | renewed).values())


def run(options: argparse.Namespace, directory: Path) -> dict[Mutant, Result]:
    """Try the mutants that the options name. Raises SystemExit if an accepted survivor is not there any more."""
    paths = modules(options.only)
    texts = {
        str(path.relative_to(ROOT)): path.read_text()
        for top in ("liza", "tests/unit")
        for path in (ROOT / top).rglob("*.py")
    }
    every = [mutant for path in paths for mutant in mutants_of(path, texts[path])]
    accepted = [entry for entry in accepted_entries() if entry.path in paths or not (ROOT / entry.path).exists()]
    for entry in (outdated := mutants.outdated(every, accepted)):
        sys.stderr.write(f"{ACCEPTED.name}: {entry.path}: {entry.function}: no such mutant: {entry.after}\n")
    if outdated:
        raise SystemExit(USAGE)
    counted = mutants.without_accepted(every, accepted)
    chosen = mutants.sample(counted, None if options.all else options.sample, options.seed, texts)
    print(
        f"{len(chosen)} of {len(counted)} mutants, seed {options.seed}; {len(every) - len(counted)} are accepted",
        flush=True,
    )
    coverage = executed_lines.Coverage(list(renew_records(options.processes, directory)), texts)
    results: dict[Mutant, Result] = {}
    for mutant, result in trials.Trials(ROOT, coverage, texts, options.processes, directory).run(chosen):
        results[mutant] = result
        if sys.stderr.isatty():
            sys.stderr.write(f"\r{len(results)} of {len(chosen)}")
    survivors = [mutant for mutant in chosen if results[mutant] is Result.SURVIVED]
    for mutant in type_checks.refused(ROOT, survivors, texts, STORE / "mypy", directory):
        results[mutant] = Result.REFUSED
    return {mutant: results[mutant] for mutant in chosen}


def main(words: Sequence[str]) -> int:
    """Run the command and return its exit status."""
    directory = Path(tempfile.mkdtemp(prefix="liza-mutation-"))
    try:
        results = run(arguments(words), directory)
    except (trials.TestsFailed, type_checks.TypesNotChecked) as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    for line in mutants.report(results):
        print(line)
    return OK if mutants.scores(results)[""].percent >= MIN_PERCENT else BELOW


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
