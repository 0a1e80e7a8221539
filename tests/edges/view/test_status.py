"""What `status`, `agents` and `watch` say of a crew: what stands now, and not what stood once."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import asdict, replace

from liza.alarms.alarm_log import log_new_alarms
from liza.alarms.current_alarms import MAX_NEWS_AGE
from liza.alarms.watch import watch
from liza.briefs.note import note
from liza.commands.watch import format_change
from liza.crew.crew import Crew
from liza.model.alarm_table import alarm_class
from liza.model.model import State, Status, SupervisorExit
from liza.model.paths import Paths
from liza.model.spending import TokenUsage
from liza.printing import render_crew, render_task
from liza.programs.liveness import RunningSession
from liza.programs.session import run_directory
from liza.programs.session.run_directory import AgentWait, RunRecord
from liza.system.locks import Lock
from liza.system.processes import identify_self
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules import claims
from liza.tasks.task import unblock
from liza.view.agents import list_agents
from liza.view.status import status
from tests.campaign.small_board import FIRST
from tests.conftest import FakeClock
from tests.edges.view.test_agent_states_shown import NO_RECORD
from tests.journeys.crews import BIN
from tests.namespaces import unshared

CLAIM = {
    "status": Status.CLAIMED,
    "assigned_to": "coder-1",
    "run": "coder-1.1",
    "worktree": "s1",
    "base_commit": "a" * 40,
}


@pytest.fixture
def crew(tmp_path: Path, clock: FakeClock) -> Crew:
    made = Crew(Paths(tmp_path), clock)
    made.board.create(FIRST + "    runs: 1\nconfig:\n  integration_command: make test\n")
    return made


def change(crew: Crew, made: Callable[[State], State]) -> None:
    with crew.change("human:ann", "note") as tx:
        tx.state = made(tx.state)


def claim(crew: Crew) -> None:
    lease = crew.clock.now() + timedelta(minutes=5)
    change(crew, lambda state: state.with_task(replace(state.tasks[0], lease_expires=lease, **CLAIM)))


def edit(crew: Crew, old: str, new: str) -> None:
    """An edit from outside, made a while ago: nobody has to wait until it stands still."""
    text = crew.paths.state.read_text()
    assert old in text
    crew.paths.state.write_text(text.replace(old, new))
    past = time.time() - 60
    os.utime(crew.paths.state, (past, past))


def alerts(crew: Crew) -> list[tuple[str, str]]:
    return [(one["kind"], one["next"]) for one in status(crew).fields()["alerts"]]


def row(crew: Crew) -> tuple[str, str | None]:
    (found,) = list_agents(crew)
    assert asdict(found.row) == status(crew).fields()["agents"][0]
    return found.row.status, found.row.why


def test_a_stopped_supervisor_gives_one_reason_and_alarm_until_replaced(crew: Crew) -> None:
    assert (row(crew), alerts(crew)) == (("OFFLINE", "no supervisor runs"), [])
    why = "3 sessions crashed within 5 minutes"
    run_directory.write_supervisor_exit(crew.paths, "coder-1", SupervisorExit(time=crew.clock.now(), reason=why))
    # While it still holds its lock it is about to go.
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert row(crew) == ("OFFLINE", f"its supervisor left: {why}")
    assert alerts(crew) == [("supervisor_left", "liza up")]
    assert [row.kind for row in next(watch(crew)).raised] == ["supervisor_left"]
    run_directory.clear_supervisor_exit(crew.paths, "coder-1")
    assert (row(crew), alerts(crew)) == (("OFFLINE", "no supervisor runs"), [])


def test_an_unreadable_reason_is_reported_and_hides_nothing_else(crew: Crew) -> None:
    run_directory.write_supervisor_exit(crew.paths, "coder-1", SupervisorExit(time=crew.clock.now(), reason="x"))
    (crew.paths.runs / "coder-1" / "left.json").write_text("nonsense")
    assert "left.json cannot be read" in str(row(crew)[1])
    assert alerts(crew)[0][0] == "supervisor_left"


@pytest.mark.parametrize("record", [b"", b"[1]", b"\xff"])
def test_alarms_are_logged_again_after_damage_to_their_record(crew: Crew, record: bytes) -> None:
    claim(crew)
    record_of_run = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now(), task="t1")
    crew.run_dir("coder-1.1").create(record_of_run)
    logged = crew.paths.tx / "alerts"
    assert [alarm.kind for alarm in log_new_alarms(crew, crew.board.read())] == ["supervisor_gone"]
    assert log_new_alarms(crew, crew.board.read()) == ()
    logged.write_bytes(record)
    assert [alarm.kind for alarm in log_new_alarms(crew, crew.board.read())] == ["supervisor_gone"]
    assert log_new_alarms(crew, crew.board.read()) == ()


@pytest.mark.parametrize("name", ["alerts", "early-alerts"])
@pytest.mark.parametrize("replace_record", [Path.mkdir, os.mkfifo])
def test_an_irregular_alarm_record_is_replaced_and_ends_no_alarm(
    crew: Crew, name: str, replace_record: Callable[[Path], None]
) -> None:
    claim(crew)
    record_of_run = RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now(), task="t1")
    crew.run_dir("coder-1.1").create(record_of_run)
    for _ in range(2):
        (crew.paths.tx / "alerts").unlink(missing_ok=True)
        replace_record(crew.paths.tx / name)
        assert [alarm.kind for alarm in log_new_alarms(crew, crew.board.read())] == ["supervisor_gone"]
        assert log_new_alarms(crew, crew.board.read()) == ()
    assert crew.paths.alerts.read_text().count("supervisor_gone") == 2


def test_a_killed_supervisors_task_is_an_alarm_and_no_work(crew: Crew) -> None:
    claim(crew)
    by_hand = row(crew)
    assert (by_hand[0], alerts(crew)) == ("WORKING", [])
    assert "t1 by hand" in str(by_hand[1])
    begun = crew.run_dir("coder-1.1")
    begun.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now(), task="t1"))
    assert row(crew) == ("OFFLINE", "it holds t1, and no supervisor runs: liza up")
    assert alerts(crew) == [("supervisor_gone", "liza up")]
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert (row(crew), alerts(crew)) == (("WORKING", None), [])


def test_a_waiting_note_of_no_supervisor_hides_no_work(crew: Crew) -> None:
    claim(crew)
    begun, now = crew.run_dir("coder-1.1"), crew.clock.now()
    begun.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=now, task="t1"))

    def waits(until: datetime) -> str:
        run_directory.write_wait(crew.paths, "coder-1", AgentWait(reason="a limit", until=until))
        return str(row(crew)[0])

    soon, never = now + timedelta(hours=2), datetime(9999, 12, 31, 23, 59, tzinfo=UTC)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert [waits(until) for until in (soon, never)] == ["WAITING", "WORKING"]
        living = RunningSession(shim=identify_self(), child=identify_self(), time=now)
        (begun.path / "session.json").write_bytes(msgspec.json.encode(living))
        assert waits(soon) == "WORKING"


def test_a_working_agent_shows_activity_duration_and_first_its_question(crew: Crew, clock: FakeClock) -> None:
    def does() -> tuple[str | None, int | None]:
        (found,) = list_agents(crew)
        return found.row.doing, found.row.seconds

    claim(crew)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        run_directory.write_setup_note(crew.paths, run_directory.SetupNote(run="coder-1.1", started=clock.now()))
        clock.advance(40)
        assert does() == ("set-up", 40)
        run_directory.remove_setup_note(crew.paths, "coder-1")
        begun = crew.run_dir("coder-1.1")
        begun.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1"))
        assert does() == (None, None)
        living = RunningSession(shim=identify_self(), child=identify_self(), time=clock.now())
        (begun.path / "session.json").write_bytes(msgspec.json.encode(living))
        clock.advance(240)
        assert does() == ("working", 240)
        assert status(crew).fields()["waiting"] == []
        begun.write_question("Allow it? (y/n)")
        asked = clock.now().timestamp() - 720
        os.utime(begun.path / "asks", (asked, asked))
        assert does() == ("waits for you", 720)
        (first,) = status(crew).fields()["waiting"]
        assert (first["kind"], first["seconds"], first["next"]) == ("question", 720, "liza attach coder-1")
        assert first["message"] == "coder-1.1 shows Allow it? (y/n)"
    assert does() == (None, None)


def test_agents_of_status_are_sorted_by_role(crew: Crew) -> None:
    for name in ("code-reviewer-1", "coder-10", "planner-1", "coder-2"):
        change(crew, lambda state, name=name: claims.ensure_agent(state, name))
    ids = [one["id"] for one in status(crew).fields()["agents"]]
    assert ids == ["planner-1", "coder-1", "coder-2", "coder-10", "code-reviewer-1"]
    assert [one.row.id for one in list_agents(crew)] == ids


def test_outside_damage_is_an_alarm_only_while_it_lasts(
    crew: Crew,
) -> None:
    claim(crew)
    whole = crew.paths.state.read_text()
    edit(crew, "status: CLAIMED", "status: MERGED")
    assert ("invalid_state", "liza validate") in alerts(crew)
    edit(crew, "status: MERGED", "status: CLAIMED")
    assert crew.paths.state.read_text().count("CLAIMED") == whole.count("CLAIMED")
    assert alerts(crew) == []


def test_a_removed_task_is_an_alarm_until_it_is_back(crew: Crew) -> None:
    text = crew.paths.state.read_text()
    second = text[text.index('  - id: "t2"') : text.index("agents:")]
    edit(crew, second, "")
    assert alerts(crew) == [("external_edit", "liza history -p")]
    edit(crew, "agents:", f"{second}agents:")
    assert alerts(crew) == []


def test_overwriting_with_an_old_copy_is_news_for_a_day(crew: Crew, clock: FakeClock) -> None:
    old = crew.paths.state.read_text()
    claim(crew)
    edit(crew, crew.paths.state.read_text(), old)
    assert ("overwritten", "liza history -p") in alerts(crew)
    clock.advance(MAX_NEWS_AGE.total_seconds())
    assert "overwritten" not in [kind for kind, _ in alerts(crew)]


def test_watch_reports_an_unreadable_board_once_and_its_return(crew: Crew) -> None:
    seen = watch(crew)
    change(crew, lambda state: replace(state, config=replace(state.config, integration_command="")))
    first = next(seen)
    assert ([row.kind for row in first.raised], first.ended, first.count) == (["untested_merges"], (), 1)
    good = crew.paths.state.read_text()
    edit(crew, "tasks:", "tasks: [")
    (lost,) = next(seen).raised
    assert lost.kind == "board_unreadable"
    assert "liza restore --last-good" in lost.next
    edit(crew, "tasks: [", "tasks: {")
    edit(crew, "tasks: {", "tasks:")
    assert crew.paths.state.read_text() == good
    (back,) = next(seen).raised
    assert (back.kind, back.next) == ("board_back", "liza status")
    change(crew, lambda state: replace(state, config=replace(state.config, integration_command="true")))
    over = next(seen)
    assert ([row.kind for row in over.ended], over.raised, over.count) == (["untested_merges"], (), 0)
    assert format_change(
        over, (over.ended[0].since or crew.clock.now()) + timedelta(minutes=4), colour=False
    ).splitlines() == [
        f"over {first.raised[0].message} (after 4 min)",
        "no alarm",
    ]
    seen.close()


def test_watch_of_a_crew_without_alarms_reports_that_at_once(crew: Crew) -> None:
    seen = watch(crew)
    quiet = next(seen)
    assert (quiet.raised, quiet.ended, format_change(quiet, crew.clock.now(), colour=False)) == ((), (), "no alarm")
    seen.close()


@pytest.mark.parametrize("name", ["session.json", "exit.json"])
def test_session_with_unreadable_files_is_not_over(crew: Crew, name: str) -> None:
    claim(crew)
    directory = crew.run_dir("coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=crew.clock.now()))
    directory.write_gauge(run_directory.Gauge(calls=3, used=TokenUsage(input=5)))
    (directory.path / name).write_text("{no")
    state = crew.board.read()
    assert state.tasks[0].run not in gather_evidence(crew, state).dead
    assert "coder-1" in gather_evidence(crew, state).offline
    (row,) = status(crew).fields()["agents"]
    assert row["status"] == "OFFLINE"


def test_a_failed_coder_may_take_its_task_after_an_answer(crew: Crew) -> None:
    blocked = {"status": Status.BLOCKED, "blocked_reason": "5 sessions crashed", "blocked_questions": ("What now?",)}
    failed = ("coder-1", "coder-2")
    change(crew, lambda state: state.with_task(replace(state.tasks[0], failed_by=failed, **blocked)))
    result = unblock(crew, crew.board.read().tasks[0].id, ["the other library"])
    assert (result.status, result.next) == (Status.UNCLAIMED, "liza up")
    assert result.message.endswith("; no coder runs")
    assert crew.board.read().tasks[0].failed_by == ()


def test_a_failed_coder_may_take_its_task_after_a_note(crew: Crew) -> None:
    task = crew.board.read().tasks[0]
    change(crew, lambda state: state.with_task(replace(task, failed_by=("coder-1",), iteration=3)))
    note(crew, "use the other library", task.id)
    task = crew.board.read().tasks[0]
    assert (task.failed_by, task.iteration) == ((), 0)


def test_an_answer_about_a_review_names_who_decides_next(crew: Crew) -> None:
    task = crew.board.read().tasks[0]
    silent = {"reviews_without_verdict": 2, "blocked_reason": "no verdict", "blocked_questions": ("Who?",)}
    done = {"assigned_to": "coder-1", "worktree": "s1", "base_commit": "a" * 40, "review_commit": "b" * 40}
    change(crew, lambda state: state.with_task(replace(task, status=Status.BLOCKED, **silent, **done)))
    with Lock(crew.paths.supervisor_lock("coder-1")):
        result = unblock(crew, task.id, ["I do"])
    assert (result.status, result.next) == (Status.READY_FOR_REVIEW, f'liza verdict approve --task {task.id} "…"')
    assert result.message.endswith("; it waits for your verdict")


@pytest.mark.parametrize(
    ("program", "gauge", "measured"),
    [
        ("script:./agent.sh", None, False),
        ("script:./agent.sh", run_directory.Gauge(calls=1), True),
        ("script:./agent.sh", run_directory.Gauge(unmeasured="a pipe"), False),
        ("claude", None, True),
        ("codex", None, True),
        (None, None, True),
    ],
)
def test_a_working_agent_whose_program_reports_no_figures_is_unmeasured(
    crew: Crew, clock: FakeClock, program: str | None, gauge: run_directory.Gauge | None, measured: bool
) -> None:
    claim(crew)
    run = crew.run_dir("coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1"))
    living = RunningSession(shim=identify_self(), child=identify_self(), time=clock.now())
    (run.path / "session.json").write_bytes(msgspec.json.encode(living))
    agent = crew.board.read().agents["coder-1"]
    change(crew, lambda state: state.with_agent("coder-1", replace(agent, program=program, status="WORKING")))
    if gauge is not None:
        run.write_gauge(gauge)
    with Lock(crew.paths.supervisor_lock("coder-1")):
        (found,) = status(crew).fields()["agents"]
        shown = render_task.format_agent({**found, "notes": [], "work": [], "record": NO_RECORD}, colour=False)
        assert "unmeasured" not in render_crew.format_agents(list_agents(crew), colour=False)
    assert (found["unmeasured"] is None) is measured
    assert ("unmeasured" in shown) is not measured
    assert status(crew).fields()["agents"][0]["unmeasured"] is None, "nobody supervises it now"


def test_an_agents_state_is_marked_as_reported_or_observed(crew: Crew, clock: FakeClock) -> None:
    claim(crew)
    run = crew.run_dir("coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1"))
    agent = crew.board.read().agents["coder-1"]
    change(crew, lambda state: state.with_agent("coder-1", replace(agent, program="claude", status="WORKING")))

    def shown() -> tuple[str | None, str | None, str | None]:
        with Lock(crew.paths.supervisor_lock("coder-1")):
            (row,) = status(crew).fields()["agents"]
        return row["phase"], row["state_source"], row["reported_by"]

    assert shown() == (None, None, None)
    living = RunningSession(shim=identify_self(), child=identify_self(), time=clock.now())
    (run.path / "session.json").write_bytes(msgspec.json.encode(living))
    assert shown() == (None, "observed", None)
    run.write_turn(run_directory.Turn(time=clock.now(), phase="idle"))
    assert shown() == ("idle", "reported", "hook")
    for source in (run_directory.TurnSource.API, run_directory.TurnSource.ACP):
        run.write_turn(run_directory.Turn(time=clock.now(), phase="busy", source=source))
        assert shown() == ("busy", "reported", source.value)


FULL_DISKS = {
    "full": ("size=8m", "cat /dev/zero > fill", "is full: 0 KB are free", "df -h {}"),
    "no inode": (
        "size=99m,nr_inodes=200",
        "while touch f$((n += 1)); do :; done",
        "can have no more files",
        "df -i {}",
    ),
    "read-only": ("size=99m", "mount -o remount,ro ..", "is read-only", "findmnt -T {}"),
}


@pytest.mark.sample(1)
@pytest.mark.needs("unshare")
@pytest.mark.parametrize(("options", "fill", "says", "command"), FULL_DISKS.values(), ids=FULL_DISKS)
def test_status_names_a_disk_to_which_nothing_can_be_written(
    repo: Path, tmp_path: Path, options: str, fill: str, says: str, command: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    root = disk / "r"
    make = f"mount -t tmpfs -o {options} none {disk} && cp -r {repo} {root} && cd {root} && {BIN}/liza init g --no-test"
    words = [*unshared("-Urm"), "sh", "-c", f"({make}) >&2 && cd {root} && ({fill}) 2> /dev/null; {BIN}/liza status"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=90, check=False)
    path = root / ".liza"
    assert f"! the disk of {path} {says}" in done.stdout, done
    assert f"\n    {command.format(path)}\n" in done.stdout


def test_json_has_since_class_and_waits_of_alarms_and_context(crew: Crew, clock: FakeClock) -> None:
    claim(crew)
    run = crew.run_dir("coder-1.1")
    run.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=clock.now(), task="t1"))
    begun = clock.now()
    (raised,) = log_new_alarms(crew, crew.board.read())
    clock.advance(90)
    found = status(crew).fields()
    (alarm,) = found["alerts"]
    assert (alarm["kind"], alarm["since"], alarm["seconds"]) == (raised.kind, begun, 90)
    assert alarm["class"] == alarm_class(raised.kind)
    assert found["waits"] == len(found["waiting"]) == 1
    agent = crew.board.read().agents["coder-1"]
    change(crew, lambda state: state.with_agent("coder-1", replace(agent, context_percent=61)))
    assert status(crew).fields()["agents"][0]["context"] is None, "no session runs"
    living = RunningSession(shim=identify_self(), child=identify_self(), time=clock.now())
    (run.path / "session.json").write_bytes(msgspec.json.encode(living))
    with Lock(crew.paths.supervisor_lock("coder-1")):
        assert status(crew).fields()["agents"][0]["context"] == 61
        assert "working 0 s, context 61%" in render_crew.format_agents(list_agents(crew), colour=False)
