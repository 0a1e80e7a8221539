"""One supervisor of a crew checks for alarms, and no alarm is lost by that."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from liza.alarms import alarm_log
from liza.alarms.alarm_log import check_alarms
from liza.crew.crew import Crew
from liza.model.alarm_table import AlarmKind
from liza.model.model import Agent
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.system.locks import Lock
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.view.status import status
from tests.campaign import forks
from tests.conftest import FakeClock, git

NEVER = float("-inf")


@pytest.fixture
def crew(repo: Path, clock: FakeClock) -> Crew:
    init(repo, InitOptions(goal="x", no_test=True, program="script:/bin/true"))
    return Crew(Paths(repo), clock)


def _count_searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The revision of each search for alarms from now on."""
    searched: list[int] = []
    find = alarm_log.find_alarms
    monkeypatch.setattr(
        alarm_log,
        "find_alarms",
        lambda crew, state, *rest: (searched.append(state.revision), find(crew, state, *rest))[1],
    )
    return searched


def _check(crew: Crew, changed_at: float = NEVER) -> list[str]:
    """What another supervisor of the crew reports now."""
    other = Crew(crew.paths, crew.clock)
    alarms = check_alarms(other, other.board.read(), changed_at).alarms
    return [alarm.kind for alarm in alarms if alarm.kind != AlarmKind.UNTESTED_MERGES]  # there is no test command


def _move_integration(crew: Crew) -> None:
    commit = git(crew.paths.root, "commit-tree", "-m", "x", "-p", "main", "main^{tree}")
    git(crew.paths.root, "branch", "-f", "integration", commit)


def test_alarms_are_evaluated_once_for_a_burst_of_revisions(
    crew: Crew, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = _count_searches(monkeypatch)
    for _ in range(5):
        _check(crew)
    for revision in (2, 3):
        with crew.change("human:ann", "note") as tx:
            tx.state = tx.state.with_agent("coder-9", Agent(role="coder", status="OFFLINE", runs=revision))
        _check(crew)
    assert searched == [1]
    assert check_alarms(crew, crew.board.read(), NEVER).next_check == alarm_log.MIN_INTERVAL
    clock.advance(alarm_log.MIN_INTERVAL)
    for _ in range(5):
        _check(crew)
    assert searched == [1, 3]


def _register(crew: Crew, *agents: str) -> None:
    with crew.change("human:ann", "note") as tx:
        for agent in agents:
            tx.state = tx.state.with_agent(agent, Agent(role="coder", status="OFFLINE", program="codex"))


def _fail_task(crew: Crew) -> None:
    """Add a task that coder-1, the only coder on the board, has failed."""
    _register(crew, "coder-1")
    fields = TaskFields("t1", "Write", "it is there", "t1.txt", "README.md")
    add(crew, (fields,))
    with crew.change("human:ann", "note") as tx:
        task = tx.state.task("t1")
        assert task is not None
        tx.state = tx.state.with_task(replace(task, failed_by=("coder-1",)))


def test_a_task_waits_before_its_missing_coder_is_reported_once(crew: Crew, clock: FakeClock) -> None:
    _fail_task(crew)
    assert AlarmKind.NEEDS_ANOTHER_CODER in {row["kind"] for row in status(crew).fields()["alerts"]}
    assert _check(crew) == []
    for _ in range(3):
        assert check_alarms(crew, crew.board.read(), NEVER).next_check == alarm_log.MIN_INTERVAL
        clock.advance(alarm_log.MIN_INTERVAL)
    assert _check(crew) == [AlarmKind.NEEDS_ANOTHER_CODER]
    # A supervisor that starts later holds nothing back that was reported.
    lock = crew.paths.supervisor_lock("coder-1")
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    os.utime(lock, (clock.now().timestamp(),) * 2)
    for _ in range(5):
        clock.advance(alarm_log.MIN_INTERVAL)
        assert _check(crew, changed_at=clock.monotonic()) == []


def test_a_starting_crew_reports_no_lack_of_a_starting_coder(crew: Crew, clock: FakeClock) -> None:
    _fail_task(crew)
    clock.advance(60)
    lock = crew.paths.supervisor_lock("coder-1")
    lock.parent.mkdir(exist_ok=True)
    lock.touch()
    os.utime(lock, (clock.now().timestamp(),) * 2)
    assert _check(crew) == []
    _register(crew, "coder-2")
    clock.advance(60)
    assert _check(crew) == []


def test_a_notified_supervisor_raises_a_repository_alarm_at_once(crew: Crew, clock: FakeClock) -> None:
    assert _check(crew) == []
    clock.advance(1)
    _move_integration(crew)
    assert _check(crew, changed_at=clock.monotonic()) == ["integration_moved"]
    assert _check(crew, changed_at=clock.monotonic()) == []


def test_an_unnotified_change_is_an_alarm_after_the_interval(crew: Crew, clock: FakeClock) -> None:
    assert _check(crew) == []
    _move_integration(crew)
    assert _check(crew) == []
    clock.advance(alarm_log.STAMP_INTERVAL + 1)
    assert _check(crew) == ["integration_moved"]


def test_alarms_that_depend_on_time_are_searched_at_each_poll(
    crew: Crew, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    searched = _count_searches(monkeypatch)
    _check(crew)
    clock.advance(crew.board.read().config.poll_interval + 1)
    _check(crew)
    assert searched == [1, 1]


DEEP = b'{"x":' + b"[" * 200_000
OTHER_START = b'{"revision":1,"stamp":[],"looked_at":9e9,"found_at":9e9}'


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "record", [b"", b"[1]", b"{}", DEEP, OTHER_START], ids=["empty", "list", "none", "deep", "start"]
)
def test_a_damaged_or_old_alarm_record_hides_no_alarm(crew: Crew, record: bytes) -> None:
    assert _check(crew) == []
    _move_integration(crew)
    (crew.paths.tx / "alarm-check").write_bytes(record)
    (crew.paths.tx / "repository").write_bytes(record)
    assert _check(crew) == ["integration_moved"]


def test_while_another_supervisor_checks_nothing_is_recorded_as_checked(crew: Crew, clock: FakeClock) -> None:
    _move_integration(crew)
    with Lock(crew.paths.locks / "alerts.lock"):
        assert _check(crew) == []
    assert _check(crew) == ["integration_moved"]


def test_a_supervisor_killed_while_it_checks_loses_no_alarm(crew: Crew) -> None:
    _move_integration(crew)
    assert forks.run(lambda: _check(crew), "alarms.logged") == -signal.SIGKILL
    assert crew.paths.alerts.read_text().count("integration_moved") == 1
    assert _check(crew) == ["integration_moved"]
    assert (crew.paths.tx / "alarm-check").exists()
