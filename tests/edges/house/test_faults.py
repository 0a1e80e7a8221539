"""The fault points themselves: a kill that comes where it was asked for, and no cost and no effect without."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PASSES = """
from liza.system import crash_points as faults
for number in range(3):
    faults.point("board", "renamed")
    print(number, flush=True)
"""


def passing(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", PASSES],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        start_new_session=True,
        timeout=30,
    )


@pytest.mark.parametrize(
    ("fault", "code", "said"),
    [
        ("", 0, "0\n1\n2\n"),
        ("another.point", 0, "0\n1\n2\n"),
        ("board.renamed", -9, ""),
        ("board.renamed#3", -9, "0\n1\n"),
        ("board.renamed#2:group", -9, "0\n"),
        ("board.renamed#4", 0, "0\n1\n2\n"),
    ],
)
def test_a_process_dies_at_the_named_point_and_time_only(fault: str, code: int, said: str) -> None:
    done = passing(LIZA_FAULT=fault)
    assert (done.returncode, done.stdout) == (code, said)


def test_a_step_can_fail_as_on_a_full_disk() -> None:
    done = passing(LIZA_FAULT="board.renamed#2:full")
    assert done.returncode == 1
    assert done.stdout == "0\n"
    assert "No space left on device" in done.stderr


def test_every_point_that_is_passed_can_be_written_down(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    assert passing(LIZA_FAULT_TRACE=str(trace)).returncode == 0
    assert [line.split()[1] for line in trace.read_text().splitlines()] == ["board.renamed"] * 3
