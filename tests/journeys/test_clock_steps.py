"""The clock of the machine is set while a crew is at work, or the ground is taken from under a command."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.campaign.scripts import CLOCK
from tests.journeys.crews import BIN, WORK, Crew


def test_an_adopted_session_survives_a_clock_that_was_set_forward(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    crew.add("task-1")
    crew.gate("gate")
    program = crew.script("agent", f'echo here > "$NOTES/here"\nread line < "$NOTES/gate"\n{WORK}', ready=False)
    first = crew.agent("coder-1", program)
    crew.wait_note("here")
    first.kill()

    clock = crew.notes / "clock"
    clock.mkdir()
    (clock / "sitecustomize.py").write_text(CLOCK)
    (clock / "offset").write_text("3600\n")
    monkeypatch.setenv("PYTHONPATH", str(clock))
    second = crew.agent("coder-1", program)
    second.wait_said("coder-1.1 adopted")
    crew.open_gate("gate")
    assert crew.wait_status("task-1", "READY_FOR_REVIEW").run == "coder-1.1"
    assert "not ready" not in second.said()


def test_a_command_in_a_deleted_directory_is_no_bug(crew: Crew, tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    words = f"cd {gone} && rmdir {gone} && exec {BIN / 'liza'} status"
    done = subprocess.run(["sh", "-c", words], capture_output=True, text=True, check=False)
    assert "does not exist any more" in done.stderr
    assert done.returncode == 5
