"""The project's own commands, as they end in ways that are not their own."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from liza.verbs import commands


@pytest.mark.parametrize(("kills", "code"), [(0, 0), (1, 0), (9, -signal.SIGKILL)])
def test_a_command_that_somebody_killed_is_run_once_more_and_only_a_second_kill_is_its_outcome(
    tmp_path: Path, kills: int, code: int
) -> None:
    command = f"echo run >> runs; [ $(wc -l < runs) -gt {kills} ] || kill -9 $$; exit 0"
    done = commands.run(command, tmp_path, tmp_path / "logs" / "log", 60, tmp_path)
    assert done.code == code
    assert len((tmp_path / "runs").read_text().splitlines()) == min(kills, 1) + 1
