"""The circuit breaker on disk: what a check records and sets, and who may resolve a trip."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from datetime import timedelta
from pathlib import Path

import pytest

from liza.alarms import alarm_log
from liza.board.file_store.file_board import FileBoard
from liza.breaker import breaker
from liza.breaker.breaker import check_breaker, clear_signals
from liza.breaker.rules.breaker_trips import BREAKER_AUTHOR
from liza.commands.breaker import format_breaker
from liza.crew.crew import Crew
from liza.crew.logged_alarms import alerts_lock
from liza.model.configuration import BreakerSettings
from liza.model.errors import LockTimeout, Refused, UsageError
from liza.model.model import Agent, Event, PlanningClaim, State
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.model.value_classes import replace
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.system.locks import Lock
from liza.tasks.pause import CheckpointRequest, checkpoint, pause, resume
from liza.usage import costs, ledger
from tests.conftest import FakeClock
from tests.unit.boards import task

PLANNER = "planner-1.1"


@pytest.fixture
def crew(repo: Path, clock: FakeClock) -> Crew:
    init(repo, InitOptions(goal="x", no_test=True, program="script:/bin/true"))
    return Crew(Paths(repo), clock)


def configure(crew: Crew, **settings: object) -> None:
    with crew.change("human:ann", "edit") as tx:
        made = BreakerSettings(**settings)  # type: ignore[arg-type]
        tx.state = replace(tx.state, config=replace(tx.state.config, breaker=made))


def reject(crew: Crew, count: int) -> None:
    """A task with that many more rejections, one per second."""
    now = crew.clock.now()
    new = tuple(
        Event(time=now - timedelta(seconds=number), event="reject", detail="token ghp_abcdefghijklmnopqrstuvwxyz012345")
        for number in reversed(range(count))
    )
    with crew.change("coder-1.1", "plan") as tx:
        old = tx.state.task("task-1")
        if old is None:
            tx.state = replace(tx.state, tasks=(task("task-1", review_cycles_total=1, history=new),))
        else:
            tx.state = tx.state.with_task(replace(old, history=old.history + new))


def check(crew: Crew, clock: FakeClock) -> State:
    """As a supervisor does at a change of the board."""
    clock.advance(alarm_log.MIN_INTERVAL + 1)
    alarm_log.check_alarms(crew, crew.board.read(), float("-inf"))
    return crew.board.read()


def trip(crew: Crew, clock: FakeClock, severity: str = "halt") -> State:
    configure(crew, review_loop=3, severity={"review_loop": severity})
    reject(crew, 3)
    return check(crew, clock)


def test_a_halt_pauses_the_crew_until_a_person_resolves_it(crew: Crew, clock: FakeClock) -> None:
    state = trip(crew, clock)
    assert state.circuit_breaker.status == "TRIGGERED"
    assert tuple(crew.board.signals()) == ("PAUSE",)
    assert crew.board.signals()["PAUSE"].reason.startswith("circuit breaker, review_loop: task-1 had 3 rejections")
    assert "ghp_abc" not in crew.paths.state.read_text().split("circuit_breaker:")[1]
    with pytest.raises(Refused, match="circuit breaker, review_loop"):
        resume(crew)
    result = breaker.resolve(crew, "the task is too large")
    assert result.details == {"resolved": ["review_loop"], "cleared": ["PAUSE"]}
    assert tuple(crew.board.signals()) == ()
    revision = crew.board.read().revision
    clock.advance(60)
    assert check(crew, clock).revision == revision
    reject(crew, 2)
    assert check(crew, clock).circuit_breaker.status == "OK"
    clock.advance(5)
    reject(crew, 1)
    assert check(crew, clock).circuit_breaker.status == "TRIGGERED"
    with pytest.raises(UsageError):
        breaker.resolve(crew, " ")


def test_nothing_is_recorded_twice_for_the_same_events(crew: Crew, clock: FakeClock) -> None:
    state = trip(crew, clock)
    assert check(crew, clock).revision == state.revision
    assert check_breaker(Crew(crew.paths, clock), state, "")
    assert crew.board.read().revision == state.revision


def test_a_person_can_take_over_a_checkpoint_of_the_breaker(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock, "checkpoint")
    assert crew.board.signals()["CHECKPOINT"].author == BREAKER_AUTHOR
    assert checkpoint(crew, CheckpointRequest(why="")).result == "changed"
    assert crew.board.signals()["CHECKPOINT"].author.startswith("human:")
    assert checkpoint(crew, CheckpointRequest(why="")).result == "unchanged"
    assert breaker.resolve(crew, "the task is too large").details["cleared"] == []
    assert tuple(crew.board.signals()) == ("CHECKPOINT",)
    resume(crew)


def test_a_signal_lost_in_a_crash_is_set_again(crew: Crew, clock: FakeClock) -> None:
    pause(crew, "lunch")
    state = trip(crew, clock)
    assert crew.board.signals()["PAUSE"].reason == "lunch"
    crew.board.clear_signal("PAUSE")
    check_breaker(crew, state, "")
    assert "circuit breaker" in crew.board.signals()["PAUSE"].reason
    crew.board.clear_signal("PAUSE")
    pause(crew, "lunch")
    assert breaker.resolve(crew, "cause").details["cleared"] == []
    assert tuple(crew.board.signals()) == ("PAUSE",)
    assert resume(crew).result == "changed"


def test_a_warning_stops_nothing(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock, "warn")
    assert tuple(crew.board.signals()) == ()
    assert breaker.show_breaker(crew.board)["status"] == "TRIGGERED"
    pause(crew)
    assert resume(crew).result == "changed"


@pytest.mark.sample(1)
@pytest.mark.parametrize(("severity", "is_allowed"), [("warn", True), ("checkpoint", True), ("halt", False)])
def test_a_planner_resolves_what_is_no_halt(crew: Crew, clock: FakeClock, severity: str, is_allowed: bool) -> None:
    trip(crew, clock, severity)
    with crew.change("human:ann", "plan") as tx:
        state = tx.state.with_agent("planner-1", Agent(role="planner", status="PLANNING", runs=1))
        tx.state = replace(state, planning=PlanningClaim(run=PLANNER, trigger="BLOCKED_TASKS"))
    session = Crew(crew.paths, clock, authenticated_run=PLANNER)
    if is_allowed:
        assert breaker.resolve(session, "cause").details["resolved"] == ["review_loop"]
        assert crew.board.read().circuit_breaker.history[0].resolved_by == "planner-1"
        assert tuple(crew.board.signals()) == ()
    else:
        with pytest.raises(Refused, match="only a person"):
            breaker.resolve(session, "cause")
        assert tuple(crew.board.signals()) == ("PAUSE",)


def test_a_coder_resolves_nothing(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock, "warn")
    session = Crew(crew.paths, clock, authenticated_run="coder-1.1")
    with pytest.raises(Refused):
        breaker.resolve(session, "cause")


def test_a_resolution_waits_for_a_check_under_way(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock)
    with Lock(alerts_lock(crew.paths)), pytest.raises(LockTimeout):
        breaker.resolve(crew, "cause")
    assert tuple(crew.board.signals()) == ("PAUSE",)


def test_money_without_a_merge_halts_the_crew(crew: Crew, clock: FakeClock) -> None:
    configure(crew, cost_without_merge=5.0)
    entry = LedgerEntry(
        run="coder-1.1",
        time=clock.now(),
        kind="work",
        program="x",
        outcome="done",
        seconds=1.0,
        used=TokenUsage(input=1, output=1, cost=5.5),
    )
    ledger.append_entry(crew.paths, entry)
    (made,) = check(crew, clock).circuit_breaker.history
    assert (made.trigger, made.detail) == ("no_merges", "0 sessions and $5.50 without a merge")
    assert tuple(crew.board.signals()) == ("PAUSE",)


def test_a_failing_check_is_an_alarm_and_hides_no_other(crew: Crew, clock: FakeClock) -> None:
    configure(crew, cost_without_merge=5.0)
    crew.paths.usage.parent.mkdir(exist_ok=True)
    crew.paths.usage.write_text("not JSON\n")
    clock.advance(alarm_log.MIN_INTERVAL + 1)
    kinds = {alarm.kind for alarm in alarm_log.check_alarms(crew, crew.board.read(), float("-inf")).alarms}
    assert {"breaker_unchecked", "untested_merges"} <= kinds
    crew.paths.usage.unlink()
    reject(crew, 6)
    assert check(crew, clock).circuit_breaker.status == "TRIGGERED"


def test_a_trip_is_an_alarm_of_the_check_recording_it(crew: Crew, clock: FakeClock) -> None:
    configure(crew, review_loop=3)
    reject(crew, 3)
    clock.advance(alarm_log.MIN_INTERVAL + 1)
    kinds = [alarm.kind for alarm in alarm_log.check_alarms(crew, crew.board.read(), float("-inf")).alarms]
    assert "breaker_tripped" in kinds
    assert crew.paths.alerts.read_text().count("breaker_tripped") == 1


def test_agents_cannot_turn_off_the_breaker_by_settings(crew: Crew, clock: FakeClock) -> None:
    configure(crew, review_loop=3)
    text = crew.paths.state.read_text()
    crew.paths.state.write_text(text.replace("review_loop: 3", "review_loop: 0"))
    assert "review_loop: 0" in crew.paths.state.read_text()
    reject(crew, 3)
    assert check(crew, clock).circuit_breaker.status == "TRIGGERED"


def test_the_breaker_is_shown_with_its_evidence_and_its_history(crew: Crew, clock: FakeClock) -> None:
    assert format_breaker(breaker.show_breaker(crew.board), False) == "circuit breaker: OK"
    trip(crew, clock)
    shown = format_breaker(breaker.show_breaker(crew.board), False)
    assert "halt  review_loop" in shown
    assert shown.count("  evidence: ") == 3
    assert 'liza resume "…"' in shown
    breaker.resolve(crew, "the task is too large")
    assert "the task is too large" in format_breaker(breaker.show_breaker(crew.board), False)


RESOLVE = """
import sys
from pathlib import Path
from liza.crew.crew import Crew
from liza.system.clock import SystemClock
from liza.model.paths import Paths
from liza.breaker import breaker
breaker.resolve(Crew(Paths(Path(sys.argv[1])), SystemClock()), "cause")
"""


def kill_resolution(crew: Crew) -> None:
    """A resolution that is killed between the board and the signals."""
    words = [sys.executable, "-c", RESOLVE, str(crew.paths.root)]
    killed = subprocess.run(words, env={**os.environ, "LIZA_FAULT": "breaker.resolved"}, timeout=60)
    assert killed.returncode == -9
    assert tuple(crew.board.signals()) == ("PAUSE",)
    assert breaker.show_breaker(crew.board)["status"] == "OK"


def test_the_next_check_clears_the_signal_of_a_killed_resolution(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock)
    kill_resolution(crew)
    check_breaker(crew, crew.board.read(), "")
    assert tuple(crew.board.signals()) == ()


def test_repeating_a_killed_resolution_completes_it_once(crew: Crew, clock: FakeClock) -> None:
    trip(crew, clock)
    kill_resolution(crew)
    result = breaker.resolve(crew, "another cause")
    assert (result.result, result.details) == ("changed", {"resolved": [], "cleared": ["PAUSE"]})
    assert [trip.root_cause for trip in crew.board.read().circuit_breaker.history] == ["cause"]
    with pytest.raises(Refused, match="no trip of the circuit breaker is open"):
        breaker.resolve(crew, "cause")


def _pause_for_lunch(crew: Crew) -> int:
    pause(Crew(crew.paths, crew.clock), "lunch")
    return 0


def test_no_resolution_or_simultaneous_check_loses_a_persons_pause(
    crew: Crew, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The person pauses right after the look at the signals, in a thread that must wait for the change."""
    state = trip(crew, clock)
    look = FileBoard.signals
    persons: list[threading.Thread] = []

    def pause_after_look() -> None:
        def wrapped(board: FileBoard) -> object:
            seen = look(board)
            monkeypatch.undo()
            persons.append(threading.Thread(target=_pause_for_lunch, args=(crew,)))
            persons[-1].start()
            persons[-1].join(0.3)
            return seen

        monkeypatch.setattr(FileBoard, "signals", wrapped)

    crew.board.clear_signal("PAUSE")
    pause_after_look()
    check_breaker(crew, state, "")
    persons[0].join()
    assert crew.board.signals()["PAUSE"].reason == "lunch"
    crew.board.clear_signal("PAUSE")
    check_breaker(crew, state, "")
    pause_after_look()
    clear_signals(crew)
    persons[1].join()
    assert crew.board.signals()["PAUSE"].reason == "lunch"


@pytest.mark.campaign
def test_a_held_signals_lock_never_keeps_a_crew_from_stopping(crew: Crew, clock: FakeClock) -> None:
    state = trip(crew, clock)
    crew.board.clear_signal("PAUSE")
    with crew.board.lock_signals():
        assert pause(crew, "lunch").result == "changed"
        crew.board.clear_signal("PAUSE")
        check_breaker(crew, state, "")
        assert tuple(crew.board.signals()) == ("PAUSE",)
        with pytest.raises(LockTimeout):
            breaker.resolve(crew, "cause")
    assert breaker.resolve(crew, "cause").details == {"resolved": [], "cleared": ["PAUSE"]}


def test_resume_keeps_the_signal_of_a_simultaneous_trip(
    crew: Crew, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pause(crew, "lunch")
    read_budget = costs.crew_over_budget_reason

    def trip_meanwhile(paths: Paths, state: State) -> str | None:
        trip(Crew(paths, clock), clock)
        return read_budget(paths, state)

    monkeypatch.setattr(costs, "crew_over_budget_reason", trip_meanwhile)
    with pytest.raises(Refused, match="circuit breaker, review_loop"):
        resume(crew)
    assert tuple(crew.board.signals()) == ("PAUSE",)
