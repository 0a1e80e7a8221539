"""Each defence switched off, one at a time: the tests that stand for it fail then, and pass with it on."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.ablation import plugin, switches
from tests.ablation.defences import TABLE

ROOT = Path(__file__).parents[2]
LIMIT = 240  # seconds for one run
CONTROL_SIZE = 20  # tests of one run with all defences on: all in one run exceed the limit on a loaded machine
NEEDS = pytest.mark.needs("bwrap", "make", "node", "setpriv", "tmux")
"""What the named tests need: they are run with the PATH of this test, and skipped tests prove nothing."""
RIGHT = {"AssertionError", "Failed", "LizaError"}
"""How a test says that something was lost or let in: its own word, or the product's."""


@dataclass(frozen=True)
class Run:
    """A run of named tests: pytest's exit code, each failure as the plugin wrote it down, and the seconds."""

    code: int
    failures: list[dict[str, object]]
    said: str
    seconds: float


def run_tests(without: str, tests: Sequence[str], place: Path) -> Run:
    """The tests in a process of their own, with the defence ``without`` switched off."""
    name = without.replace(" ", "-")
    place.mkdir(exist_ok=True)
    notes = place / f"{name}.json"
    # A short path: tests make sockets below it, whose paths have at most 107 bytes.
    base = tempfile.mkdtemp(prefix="ab")
    words = ["-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-p", "tests.ablation.plugin"]
    words += ["--without", without, "--failures", str(notes), "--basetemp", base, *tests]
    log = place / f"{name}.log"
    begun = time.monotonic()
    with log.open("wb") as out:
        child = subprocess.Popen(
            [sys.executable, "-m", "pytest", *words], cwd=ROOT, stdout=out, stderr=out, start_new_session=True
        )
        try:
            code = child.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            code = -1
        finally:
            # A test that failed half way may have left somebody waiting for it.
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
            shutil.rmtree(base, ignore_errors=True)
    failures = [json.loads(line) for line in notes.read_text().splitlines()] if notes.exists() else []
    return Run(code, failures, log.read_text(errors="replace"), time.monotonic() - begun)


def wrong_with(name: str, run: Run) -> str:
    """Why this run proves nothing about the defence; empty where every named test failed, and rightly."""
    if run.code != 1:
        return f"pytest ended with {run.code}: {run.said[-800:]}"
    failed = {str(row["test"]) for row in run.failures}
    passed = [test for test in TABLE[name].fails if not any(_is_one_of(one, test) for one in failed)]
    if passed:
        return f"without it this passes all the same: {passed[0]}"
    for row in run.failures:
        broken = str(Path(__file__).parents[1] / "ablation")
        if not RIGHT & set(map(str, row["kinds"])) or str(row["raised"]).startswith(broken):  # type: ignore[call-overload]
            return f"{row['test']} failed by {row['kinds']}: {row['said']} in {row['raised']}"
    return ""


def _is_one_of(node: str, wanted: str) -> bool:
    return node == wanted or node.startswith(f"{wanted}[")


def _row(name: str, run: Run) -> str:
    lines = [f"{name:28}  {TABLE[name].protects}  ({run.seconds:.1f} s)"]
    for row in run.failures:
        kinds, said = list(row["kinds"]), list(row["said"])  # type: ignore[call-overload]
        lines.append(f"    off: {str(row['test']).rpartition('::')[2]}: {kinds[0]} {' '.join(said)[:110]}")
    return "\n".join(lines)


@pytest.mark.parametrize(
    "names", [("run fence",), pytest.param(tuple(TABLE), marks=[pytest.mark.campaign, NEEDS])], ids=["one", "all"]
)
def test_tests_fail_without_a_defence_and_pass_with_it(names: tuple[str, ...], tmp_path: Path) -> None:
    tests = {name: TABLE[name].fails for name in names}
    on = sorted({test for row in tests.values() for test in row})
    with ThreadPoolExecutor(2) as pool:
        runs = dict(zip(names, pool.map(lambda name: run_tests(name, tests[name], tmp_path), names), strict=True))
        parts = [on[start : start + CONTROL_SIZE] for start in range(0, len(on), CONTROL_SIZE)]
        places = [tmp_path / f"control{number}" for number in range(len(parts))]
        controls = list(pool.map(lambda part, place: run_tests(plugin.NOTHING, part, place), parts, places))

    print(f"\n{len(names)} defences, each switched off alone")
    print("\n".join(_row(name, runs[name]) for name in names))
    for control in controls:
        print(f"with all of them on: code {control.code}, {control.seconds:.1f} s: {control.said.splitlines()[-1]}")
    wrong = {name: why for name in names if (why := wrong_with(name, runs[name]))}
    assert not wrong, "\n".join(f"{name}: {why}" for name, why in wrong.items())
    for control in controls:
        assert (control.code, control.failures) == (0, []), control.said[-2000:]


@pytest.mark.parametrize("name", TABLE)
def test_each_ablation_switch_and_each_test_it_names_exists(name: str) -> None:
    row = TABLE[name]
    assert row.switches
    assert row.fails
    for target in row.switches:
        module, path = target.split(":")
        switches.found(importlib.import_module(module), path)
    for test in row.fails:
        file, _, function = test.partition("::")
        assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(), test
