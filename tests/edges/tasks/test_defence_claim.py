"""A claim under way, a session that lives, and what a dead one left: each keeps others out, or is kept out."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.board.file_store.revision_journal import iter_newest_first
from liza.board.text import document, splitter
from liza.crew.crew import find_crew
from liza.model.errors import Refused, TakenMeanwhile
from liza.system import processes
from liza.tasks.claim import claim_task
from tests.conftest import worktree_of
from tests.journeys.crews import BIN, Crew, started


def _lapsed(crew: Crew) -> None:
    """Until the lease of task-1 has run out."""

    def over(state: object) -> bool:
        until = crew.task("task-1").lease_expires
        return until is not None and until < datetime.now(UTC)

    crew.wait(over, "the end of the lease")


@pytest.mark.campaign
def test_a_second_claimer_is_refused_while_a_worktree_is_made(tmp_path: Path) -> None:
    with started(tmp_path) as crew:
        crew.add("task-1")
        env = {**os.environ, "LIZA_FAULT": "claim.reserved:stop"}
        first = subprocess.Popen([BIN / "liza", "claim", "task-1", "--agent", "coder-1"], cwd=crew.root, env=env)
        try:
            assert os.WIFSTOPPED(os.waitpid(first.pid, os.WUNTRACED)[1])
            told = crew.liza("claim", "task-1", "--agent", "coder-2", code=1)
            assert "coder-1 is taking it as coder-1.1" in told
            first.send_signal(signal.SIGCONT)
            assert first.wait() == 0
        finally:
            first.kill()
            first.wait()
        assert crew.task("task-1").assigned_to == "coder-1"
        assert (worktree_of(crew.root, "task-1") / "README.md").exists()


@contextmanager
def _session_of(crew: Crew, run: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that bears the run's name."""
    env = {**os.environ, "LIZA_RUN": run, "LIZA_ROOT": str(crew.paths.root)}
    child = subprocess.Popen(["sleep", "600"], env=env)
    try:
        yield child
    finally:
        child.kill()
        child.wait()


def test_a_lapsed_claim_is_not_taken_from_a_living_session(tmp_path: Path) -> None:
    with started(tmp_path, lease_duration=1) as crew:
        crew.add("task-1")
        crew.gate("gate")
        program = crew.script("coder", 'echo "$$" > "$NOTES/at-work"\nread line < "$NOTES/gate"\n')
        supervisor = crew.agent("coder-1", program)
        crew.wait_note("at-work")
        supervisor.kill()
        _lapsed(crew)
        told = crew.liza("claim", "task-1", "--agent", "coder-2", code=1)
        assert "not proved dead" in told
        assert crew.task("task-1").assigned_to == "coder-1"


def test_a_takeover_first_ends_what_the_old_session_left_running(tmp_path: Path) -> None:
    with started(tmp_path, lease_duration=1) as crew:
        crew.add("task-1")
        crew.liza("claim", "task-1", "--agent", "coder-1")
        with _session_of(crew, "coder-1.1") as stray:
            assert tuple(processes.iter_run_pids("coder-1.1", crew.paths.root))
            _lapsed(crew)
            told = crew.liza("claim", "task-1", "--agent", "coder-2")
            assert "task-1 claimed, taken over from coder-1: its lease expired at " in told
            assert stray.poll() is not None or not tuple(processes.iter_run_pids("coder-1.1", crew.paths.root))


def test_a_claim_reads_the_entries_of_the_board_only_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path) as crew:
        crew.add("t1")
        opened, read = find_crew(crew.root), []
        real = splitter.split_board
        monkeypatch.setattr(document.splitter, "split_board", lambda text: read.append(text) or real(text))
        claim_task(opened, "coder-1", "t1")
        whole_boards = [text for text in read if text.startswith("#")]
        assert len(whole_boards) == 1 + 1  # the second: an agent was added


def test_a_supervisor_with_an_old_board_claims_the_next_task(
    tmp_path: Path,
) -> None:
    with started(tmp_path) as crew:
        crew.add("t1", "t2")
        opened = find_crew(crew.root)
        taken = [claim_task(opened, f"coder-{number}", "t1", or_next=True).task for number in (1, 2)]
        assert taken == ["t1", "t2"]
        reserved = [record.task for record in iter_newest_first(crew.paths.journal) if record.event == "reserve"]
        assert reserved == ["t2", "t1"]
        before = crew.state()
        with pytest.raises(TakenMeanwhile, match="it is taken, and there is no other"):
            claim_task(opened, "coder-3", "t1", or_next=True)
        assert crew.state() == before
        with pytest.raises(Refused, match="holds its lease"):
            claim_task(opened, "coder-3", "t1")
