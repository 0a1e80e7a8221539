"""How long a supervisor rests after sessions that came to nothing, and what it counts against their program."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from liza.config import confirmed_settings
from liza.crew.crew import Crew
from liza.model.backoff import ClockWatch, FailureStreak
from liza.model.errors import BoardUnreadable, GitFailed, LizaError, LockTimeout, Missing, ProgramMissing, WriteFailed
from liza.model.paths import Paths
from liza.model.session_ends import SessionOutcome
from liza.model.value_classes import replace
from liza.programs.session import run_directory
from liza.programs.session._shim import MAX_LOG_SIZE
from liza.programs.session.outcomes import SessionEnd
from liza.programs.session.session_process import StartFailed
from liza.supervisor import action_runner, jobs
from liza.supervisor.action_runner import ActionRunner
from liza.supervisor.launch import SetUpDue
from liza.supervisor.memory import Memory, UnusableProgram
from liza.supervisor.rules import actions
from liza.supervisor.rules.session_facts import JobKind
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock, git, until

RUN = "coder-1.1"


@pytest.fixture
def made(tmp_path: Path, clock: FakeClock) -> ActionRunner:
    """The steps of a supervisor whose sessions the test lets end as it likes."""
    crew = Crew(Paths(tmp_path), clock)
    crew.board.create(FIRST)
    launcher: Any = SimpleNamespace(crew=crew, preset=None, environ={}, start=None, open_set_up_box=lambda set_up: None)
    memory = Memory(ClockWatch(clock.now(), clock.monotonic()))
    return ActionRunner("coder-1", launcher, memory, lambda event: None, lambda text: None)


def rest_after(made: ActionRunner, kind: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """Seconds to rest after a session that ended so."""
    made.memory.streak = replace(made.memory.streak, rest_until=0.0)
    monkeypatch.setattr(action_runner, "conclude_session", lambda *_: SessionEnd(SessionOutcome(kind), "why"))
    made.carry_out(actions.ConcludeSession(RUN))
    return made.memory.streak.rest_seconds(made.crew.clock.monotonic())


def test_sessions_held_up_wait_longer_and_never_stop_their_supervisor(
    made: ActionRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [rest_after(made, "held up", monkeypatch) for _ in range(4)] == [5.0, 10.0, 20.0, 40.0]
    assert made.memory.streak.crashes == ()
    assert rest_after(made, "crashed", monkeypatch) == 80.0
    assert len(made.memory.streak.crashes) == 1
    assert rest_after(made, "finished", monkeypatch) == 0.0
    assert rest_after(made, "held up", monkeypatch) == 5.0


def test_a_session_ended_for_a_loop_is_no_program_crash(made: ActionRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    assert [rest_after(made, "looped", monkeypatch) for _ in range(3)] == [5.0, 10.0, 20.0]
    assert made.memory.streak.crashes == ()


@pytest.mark.parametrize("error", [BoardUnreadable("broken"), WriteFailed("full"), LockTimeout("held")])
def test_a_session_that_could_not_start_is_no_program_crash(made: ActionRunner, error: LizaError) -> None:
    def start(run: str) -> None:
        raise error

    made.launcher.start = start  # type: ignore[method-assign,assignment]
    with pytest.raises(type(error)):
        made.carry_out(actions.StartSession(RUN))
    assert made.memory.streak == FailureStreak()


def test_a_session_refused_for_missing_integration_is_no_program_crash(made: ActionRunner, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "commit", "-q", "--allow-empty", "-m", "first")
    confirmed_settings.create_pins(Paths(tmp_path))

    def start(run: str) -> None:
        raise GitFailed("ambiguous argument 'refs/heads/integration'")

    made.launcher.start = start  # type: ignore[method-assign,assignment]
    with pytest.raises(Missing, match="the branch integration is gone"):
        made.carry_out(actions.StartSession(RUN))
    assert made.memory.streak.crashes == ()
    git(tmp_path, "branch", "integration")
    made.carry_out(actions.StartSession(RUN))
    assert len(made.memory.streak.crashes) == 1


def test_a_missing_program_is_no_crash_and_not_tried_again(made: ActionRunner) -> None:
    def start(run: str) -> None:
        raise ProgramMissing("claude is not installed", "npm install -g claude")

    made.launcher.start = start  # type: ignore[method-assign,assignment]
    made.carry_out(actions.StartSession(RUN))
    assert made.memory.streak.crashes == ()
    assert made.memory.unusable == UnusableProgram("claude is not installed (next: npm install -g claude)")


def test_an_unstarted_session_counts_against_its_supervisor_and_waits(made: ActionRunner, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    confirmed_settings.create_pins(Paths(tmp_path))
    said: list[str] = []
    made.notify = said.append
    made.launcher.start = lambda run: StartFailed(reason="tmux is not installed")  # type: ignore[method-assign]
    made.carry_out(actions.StartSession(RUN))
    assert len(made.memory.streak.crashes) == 1
    assert made.memory.streak.rest_until > made.crew.clock.monotonic()
    assert said == [f"{RUN} did not start: tmux is not installed"]


def test_hanging_set_up_is_ended_at_its_limit_with_reason(
    made: ActionRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".liza" / "state.yaml").write_text(f"{FIRST}config:\n  integration_timeout: 1\n")
    said: list[str] = []
    made.notify = said.append
    made.launcher.set_up_environment = lambda run, slot: dict(os.environ)  # type: ignore[method-assign]
    monkeypatch.setattr(jobs, "LOOK", 0.01)
    crew = made.crew
    crew.paths.slot("t1").mkdir(parents=True)
    hangs = f"head -c {MAX_LOG_SIZE + 1} /dev/zero; tail -f /dev/null"
    made.launcher.start = lambda run: SetUpDue(RUN, "t1", hangs)  # type: ignore[method-assign]
    made.carry_out(actions.StartSession(RUN))
    until(lambda: made.memory.job is not None and made.memory.job.end_event is not None, "the set-up goes on")
    assert (crew.paths.logs / "setup-t1.log").stat().st_size < MAX_LOG_SIZE
    made.finish_job()
    limit = "the limit of config.integration_timeout"
    assert limit in said[-1]
    waits = run_directory.read_wait(crew.paths, "coder-1")
    assert waits is not None
    assert limit in waits.reason


def test_a_child_that_ends_during_its_kill_counts_as_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["/bin/sh", "-c", "trap '' TERM; echo deaf; while :; do read x < pipe; done"]
    os.mkfifo(tmp_path / "pipe")
    job = jobs.start_job(
        jobs.JobSpec(JobKind.MERGE, "t1", words, tmp_path, tmp_path / "log", os.environ), lambda event: None
    )
    until(lambda: job.read_tail() == "deaf", "it does not begin")
    kill = os.killpg

    def late(group: int, number: int) -> None:
        if number == signal.SIGKILL:
            kill(group, number)
            until(lambda: job.end_event is not None, "it goes on")
        kill(group, number)

    monkeypatch.setattr(os, "killpg", late)
    monkeypatch.setattr(jobs, "GRACE", 0.0)
    job.stop()
    assert job.process.returncode == -signal.SIGKILL
