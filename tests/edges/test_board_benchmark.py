"""The benchmark of the board leaves nothing behind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import until

BENCHMARK = Path(__file__).parent.parent.parent / "benchmarks" / "board.py"


def test_the_benchmark_of_the_board_works_below_the_temporary_directory_and_empties_it_on_sigterm(
    tmp_path: Path,
) -> None:
    scratch, cwd = tmp_path / "scratch", tmp_path / "cwd"
    scratch.mkdir()
    cwd.mkdir()
    environment = {**os.environ, "TMPDIR": str(scratch)}
    words = [sys.executable, str(BENCHMARK), "quick"]
    with subprocess.Popen(words, cwd=cwd, env=environment, stdout=subprocess.DEVNULL) as benchmark:
        until(lambda: list(scratch.glob("liza-bench-*/.liza/state.yaml")), "it has a board")
        benchmark.terminate()
    assert list(scratch.iterdir()) == list(cwd.iterdir()) == []
