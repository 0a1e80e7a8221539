"""A budget that is misspelt, and one that is used up: a person sees both, and is told what to do about it."""

from __future__ import annotations

import json
import re
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from liza.briefs.note import note as send_note
from liza.crew.crew import Crew
from liza.model.backoff import ClockWatch
from liza.model.configuration import Budget
from liza.model.errors import BoardUnreadable, Refused
from liza.model.model import Status
from liza.model.paths import Paths
from liza.model.spending import LedgerEntry, TokenUsage
from liza.printing import render_crew
from liza.printing.columns import strip_controls
from liza.programs.liveness import RunningSession
from liza.programs.presets.preset import Preset, UsageFormat
from liza.programs.session.run_directory import Gauge, RunRecord
from liza.recovery.validate import validate
from liza.supervisor.action_runner import ActionRunner
from liza.supervisor.memory import Memory, SessionMemory
from liza.supervisor.rules import actions
from liza.supervisor.rules.session_facts import ActivityWatch, BudgetState, SessionTimes
from liza.supervisor.situation import compute_budget_state
from liza.system import processes
from liza.system.locks import Lock
from liza.tasks.edit import edit
from liza.tasks.pause import pause, resume
from liza.tasks.rules import planning
from liza.usage import ledger
from liza.usage.meter import TELL_AT, MeterThread
from liza.view.status import look, status
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock

MISSPELT = "config:\n  budget:\n    money_per_spirnt: 1.6\n    dollars: 3\n"
FIRST_OF_TWO = "config.budget.money_per_spirnt is no setting and limits nothing; did you mean money_per_sprint?"


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    made = Crew(Paths(tmp_path), clock)
    made.board.create(FIRST + "    runs: 1\n")
    return made


def typing(crew: Crew, monkeypatch: pytest.MonkeyPatch, more: str) -> None:
    """What a person adds at the end of the board in an editor."""
    typed = crew.paths.root / "typed"
    typed.write_text(more)
    monkeypatch.setenv("VISUAL", f'sh -c \'cat "{typed}" >> "$1"\' typing')


def allow(crew: Crew, budget: Budget) -> None:
    with crew.change("human:ann", "edit") as tx:
        tx.state = replace(tx.state, config=replace(tx.state.config, budget=budget))


def hold(crew: Crew) -> None:
    """coder-1 holds t1, as coder-1.1."""
    lease = crew.clock.now() + timedelta(minutes=5)
    with crew.change("coder-1", "claim", "t1") as tx:
        held = {"status": Status.CLAIMED, "assigned_to": "coder-1", "run": "coder-1.1", "worktree": "s1"}
        held |= {"base_commit": "a" * 40, "lease_expires": lease}
        tx.state = tx.state.with_task(replace(tx.state.tasks[0], **held))


def note(crew: Crew, seconds: float, used: TokenUsage | None = None, run: str = "coder-1.1") -> None:
    """A session of t1 is over, and stands in the ledger."""
    spent = LedgerEntry(
        run=run,
        time=crew.clock.now(),
        kind="work",
        program="x",
        outcome="over",
        seconds=seconds,
        task="t1",
        sprint=crew.board.read().sprint.id,
        used=used,
    )
    ledger.append_entry(crew.paths, spent)


def test_a_misspelt_limit_is_accepted_and_named_with_its_correction(
    crew: Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    typing(crew, monkeypatch, MISSPELT)
    said = edit(crew, "board")
    assert said.result == "changed"
    first, second = said.details["warnings"]
    assert first.startswith(FIRST_OF_TWO)
    assert second.startswith("config.budget.dollars is no setting and limits nothing")
    assert "(config.budget has money_per_task, money_per_sprint, tokens_per_task" in second
    assert said.message == f"changed\nwarning: {first}\nwarning: {second}"
    typing(crew, monkeypatch, "")
    assert (edit(crew, "board").result, edit(crew, "board").details["warnings"]) == ("unchanged", [first, second])


def test_a_misspelt_limit_is_a_warning_until_it_is_corrected(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    typing(crew, monkeypatch, MISSPELT)
    edit(crew, "board")
    warnings = validate(crew.paths.root)["warnings"]
    assert [one.split(";")[0].split(" (")[0] for one in warnings] == [
        "config.budget.money_per_spirnt is no setting and limits nothing",
        "config.budget.dollars is no setting and limits nothing",
    ]
    assert f"! {FIRST_OF_TWO}" in render_crew.format_status(look(crew), colour=False)


def test_a_number_in_place_of_limits_names_possible_limits(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    typing(crew, monkeypatch, "config:\n  budget: 1.0\n")
    with pytest.raises(BoardUnreadable, match="wanted a mapping with some of: money_per_task, money"):
        edit(crew, "board")


@pytest.mark.parametrize("wrong", ["no file", "not as expected"])
def test_an_unmeasurable_session_goes_on_with_one_warning(
    crew: Crew, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, wrong: str
) -> None:
    hold(crew)
    directory = crew.run_dir("coder-1.1")
    record = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1")
    directory.create(record)
    metering = MeterThread(crew, Preset(name="x", usage=UsageFormat(input=("tokens",))), directory, record, {})
    if wrong == "no file":
        directory.output_path.symlink_to(directory.output_path.name)
    else:
        monkeypatch.setattr(metering, "measure_once", lambda: json.loads("?"))
    for _ in range(TELL_AT + 1):
        metering.measure()
    (told,) = crew.paths.alerts.read_text().splitlines()
    assert "unmeasured  coder-1.1: its calls and tokens cannot be measured: " in told
    assert told.endswith("Next: liza logs coder-1.1")
    gauge = metering.directory.read_gauge()
    assert gauge is not None
    assert gauge.unmeasured
    monkeypatch.setattr(metering, "measure_once", lambda: None)
    this = processes.identify_self()
    living = RunningSession(shim=this, child=this, time=clock.now())
    (directory.path / "session.json").write_bytes(msgspec.json.encode(living))
    crew.paths.locks.mkdir(exist_ok=True)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        (row,) = [one for one in status(crew).fields()["agents"] if one["id"] == "coder-1"]
    assert row["why"].startswith("its calls and tokens cannot be measured: ")
    metering.measure()
    assert directory.read_gauge() == Gauge()


def test_session_exceeds_its_limit_once_its_output_shows_it(crew: Crew, clock: FakeClock) -> None:
    hold(crew)
    allow(crew, Budget(seconds_per_task=8, tokens_per_task=100))
    directory = crew.run_dir("coder-1.1")
    record = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1")
    directory.create(record)
    began = clock.monotonic()
    memory = Memory(ClockWatch(clock.now(), began))
    times = SessionTimes(started=began, first_seen=began, last_heartbeat=began)
    memory.session = SessionMemory("coder-1.1", times, ActivityWatch(changed_at=began))
    told = Preset(name="x", usage=UsageFormat(input=("tokens",)))
    memory.session.meter_thread = MeterThread(crew, told, directory, record, {})

    def now() -> BudgetState:
        return compute_budget_state(crew.paths, crew.board.read(), "coder-1", memory, clock.monotonic())

    clock.advance(7)
    assert now() == BudgetState(None, 1.0)
    directory.output_path.write_text('{"tokens": 200}\n')
    clock.advance(0.9)
    assert now().over_budget is None
    clock.advance(0.1)
    assert now() == BudgetState("t1 has used 8 of 8 seconds")
    memory.session.meter_thread.measure_once()
    assert now() == BudgetState("t1 has used 200 of 100 tokens")
    note(crew, 3, run="coder-1.0")
    memory.session = None
    assert now() == BudgetState()
    note(crew, 5, run="coder-1.1")
    assert now() == BudgetState("t1 has used 8 of 8 seconds")


def test_status_gives_reason_of_a_signal_without_secrets_or_escapes(crew: Crew, clock: FakeClock) -> None:
    def shown() -> list[str]:
        text = render_crew.format_status(look(crew), colour=False)
        starts = ("PAUSE", "CHECKPOINT", "ABORT", "! the crew is paused")
        return [strip_controls(line) for line in text.splitlines() if line.startswith(starts)]

    launcher: Any = SimpleNamespace(crew=crew, preset=None)
    memory = Memory(ClockWatch(clock.now(), clock.monotonic()))
    steps = ActionRunner("coder-1", launcher, memory, lambda event: None, lambda text: None)
    steps.carry_out(actions.PauseCrew("nine has used 60 of 8 seconds"))
    told = "nine has used 60 of 8 seconds: raise the limit of config.budget, then: liza resume"
    assert shown() == [f"! the crew is paused: {told}"]
    pause(crew, "the spec changes")
    assert shown() == ["PAUSE is set: the spec changes: liza resume"]
    crew.paths.signal("PAUSE").write_text("by\x1b[2J hand\nwith sk-ant-api03-" + "a1B2" * 24 + "\n")
    assert shown() == ["PAUSE is set: by hand with [redacted: API key]: liza resume"]
    crew.paths.signal("PAUSE").write_text("")
    crew.paths.signal("CHECKPOINT").mkdir()
    assert shown() == ["CHECKPOINT is set: liza resume", "PAUSE is set: liza resume"]


def test_a_note_of_a_person_starts_planning_rounds_anew(crew: Crew, clock: FakeClock) -> None:
    with crew.change("planner-1", "handoff") as tx:
        tasks = tuple(replace(task, status=Status.ABANDONED) for task in tx.state.tasks)
        tx.state = replace(tx.state, tasks=tasks, planning=replace(tx.state.planning, rounds=3))
    reason = planning.checkpoint_reason(crew.board.read())
    assert reason is not None
    launcher: Any = SimpleNamespace(crew=crew, preset=None)
    memory = Memory(ClockWatch(clock.now(), clock.monotonic()))
    steps = ActionRunner("planner-1", launcher, memory, lambda event: None, lambda text: None)
    steps.carry_out(actions.SetCheckpoint(reason))
    assert status(crew).fields()["reasons"] == {"CHECKPOINT": f"{reason}; then: liza resume"}
    assert resume(crew).details["cleared"] == ["CHECKPOINT"]
    with crew.change("planner-1", "handoff") as tx:
        assert tx.state.planning.rounds == 0
        tx.state = replace(tx.state, planning=replace(tx.state.planning, rounds=3))
    send_note(crew, "go on")
    steps.carry_out(actions.SetCheckpoint(reason))
    assert status(crew).fields()["signals"] == []


def test_resume_works_while_money_is_left_for_unfinished_work(crew: Crew) -> None:
    pause(crew, "lunch")
    assert resume(crew).result == "changed"
    allow(crew, Budget(money_per_task=1.0, seconds_per_sprint=1000))
    note(crew, 30, TokenUsage(cost=2.0))
    pause(crew, "lunch")
    assert resume(crew).result == "changed"


@pytest.mark.parametrize(
    ("budget", "why", "setting"),
    [
        (Budget(seconds_per_task=8), "t1 has used 60 of 8 seconds", "seconds_per_task 120"),
        (Budget(money_per_sprint=0.5), "the sprint has used $2.00 of $0.50", "money_per_sprint 4"),
    ],
)
def test_a_crew_without_remaining_budget_is_not_resumed(crew: Crew, budget: Budget, why: str, setting: str) -> None:
    hold(crew)
    allow(crew, budget)
    note(crew, 60, TokenUsage(cost=2.0))
    assert resume(crew).result == "unchanged"
    pause(crew, why)
    with pytest.raises(Refused, match=re.escape(why)) as refused:
        resume(crew)
    assert refused.value.hint == f"liza config set budget.{setting} && liza resume"
    assert crew.paths.signal("PAUSE").exists()
    allow(crew, replace(budget, seconds_per_task=90, money_per_sprint=9.0))
    assert resume(crew).result == "changed"
    assert not crew.paths.signal("PAUSE").exists()
