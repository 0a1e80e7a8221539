"""A benchmark that is ended leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import until

ROOT = Path(__file__).parents[3]


@pytest.mark.campaign
def test_a_benchmark_empties_its_directory_on_sigterm(tmp_path: Path) -> None:
    scratch, output, cwd = tmp_path / "scratch", tmp_path / "output", tmp_path / "cwd"
    for directory in (scratch, output, cwd):
        directory.mkdir()
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(output)}
    words = [sys.executable, "-m", "benchmarks", "board", "--quick", f"--scratch={scratch}", f"--output={output}"]
    with subprocess.Popen(words, cwd=cwd, env=environment, stdout=subprocess.DEVNULL) as benchmark:
        until(lambda: list(scratch.glob("liza-bench-*/board-*/.liza/state.yaml")), "it has a board")
        benchmark.terminate()
    assert list(scratch.iterdir()) == list(cwd.iterdir()) == []
    assert not list(output.glob("*.json"))
