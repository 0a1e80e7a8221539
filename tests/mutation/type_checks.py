"""Which survivors mypy refuses: `bin/test` would notice them too.

One run of mypy checks many survivors, at most one of each module, because most of its time is the start. An error
counts for the survivor of the module that it is in.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.mutation.mutants import Mutant


class TypesNotChecked(Exception):
    """mypy failed, or it refuses the modules without a change."""


def rounds_of(survivors: Sequence[Mutant]) -> list[list[Mutant]]:
    """Return the survivors in rounds with at most one of each module."""
    by_path: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in survivors:
        by_path[mutant.path].append(mutant)
    most = max(map(len, by_path.values()), default=0)
    return [[group[number] for group in by_path.values() if number < len(group)] for number in range(most)]


def refused_paths(output: str) -> set[str]:
    """Return the files in which mypy found an error."""
    return set(re.findall(r"^([^\s:]+\.py):\d+: error: ", output, re.MULTILINE))


def refused(
    root: Path, survivors: Sequence[Mutant], texts: dict[str, str], cache: Path, directory: Path
) -> Iterator[Mutant]:
    """Yield the survivors that mypy refuses. ``cache`` is its directory for that. Raises TypesNotChecked."""
    rounds = rounds_of(survivors)
    if rounds and _errors(root, cache, []):
        raise TypesNotChecked("mypy refuses the modules without a change")
    for mutants in rounds:
        options = []
        for number, mutant in enumerate(mutants):
            changed = directory / f"types-{number}.py"
            changed.write_text(mutant.applied(texts[mutant.path]))
            options += ["--shadow-file", mutant.path, str(changed)]
        paths = _errors(root, cache, options)
        yield from (mutant for mutant in mutants if mutant.path in paths)


def _errors(root: Path, cache: Path, options: Sequence[str]) -> set[str]:
    command = [sys.executable, "-m", "mypy", "--cache-dir", str(cache), "--no-error-summary", *options]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    paths = refused_paths(result.stdout)
    if result.returncode not in (0, 1) or (result.returncode == 1 and not paths):
        raise TypesNotChecked(f"mypy failed:\n{result.stdout}{result.stderr}")
    return paths
