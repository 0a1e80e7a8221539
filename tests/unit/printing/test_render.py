"""What people see: pure text out of plain values."""

from __future__ import annotations

import json
import re
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict, replace

from liza.briefs.inbox import DeliveryStatistics
from liza.cli.app import command_names, list_headings
from liza.cli.reference import build_reference as reference
from liza.commands._declare import parse_details, parse_duration, split_names
from liza.model.alarm_table import Alarm
from liza.model.configuration import Config
from liza.model.errors import UsageError
from liza.model.model import AlignmentNote, Answer, ArchiveSummary, Event, Goal, Handoff, State, Status, Task
from liza.model.spending import Costs
from liza.model.statuses import TaskWord
from liza.model.targets import CommitsAhead
from liza.printing import printing, render_crew, render_patch, render_task
from liza.printing.columns import (
    COLOURS,
    align_columns,
    cell_width,
    escape_json,
    fit_rows,
    format_local_time,
    paint,
    strip_controls,
    strip_controls_but_colours,
    wrap_text,
)
from liza.printing.render_metrics import format_metrics, format_summary
from liza.tasks.diff import TaskDiff
from liza.tasks.rules.picking import MissingParts
from liza.text.formats import format_duration, format_time
from liza.usage.costs import ToolUsage, UsageBreakdown, UsageRow
from liza.view.metrics import SprintMetrics, TimedTask
from liza.view.rules.picture import agent_line, alarm_rows, build_picture
from liza.view.rules.structs import AgentRow, CrewFacts
from tests.unit.contrast import contrast, terminal_colour

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
PAINTED = re.compile(rf"\x1b\[(0|1|38;5;({'|'.join(map(str, COLOURS.values()))}))m")
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


GOAL = Goal(id="goal", description="Customers can pay by invoice", status="IN_PROGRESS")
CONFIG = Config(integration_command="make test")


def row(task_id: str, status: Status, **fields: Any) -> dict[str, Any]:
    return asdict(task(task_id, status, **fields))


def task(task_id: str, status: Status, **fields: Any) -> Task:
    return Task(id=task_id, status=status, description=f"what {task_id} is", **fields)


def facts(*tasks: Task, goal: Goal = GOAL, handoff: Any = None, **fields: Any) -> CrewFacts:
    state = State(version=1, revision=1, goal=goal, config=CONFIG, tasks=tasks, handoff=handoff or {})
    costs = Costs(text="nothing spent yet, no limit")
    return CrewFacts(**{"now": NOW, "state": state, "costs": costs, **fields})


def draw(*tasks: Task, colour: bool = False, **fields: Any) -> str:
    return render_crew.format_status(build_picture(facts(*tasks, **fields)), colour)


def agent(agent_id: str, status: str, **fields: Any) -> AgentRow:
    return AgentRow(id=agent_id, role="coder", status=status, **fields)


def test_a_status_shows_the_last_decision_in_one_line() -> None:
    notes = tuple(AlignmentNote(timestamp=NOW, event=f"planner-1.{n}", summary=f"two\nlines {n}") for n in (1, 2))
    line = draw(goal=replace(GOAL, alignment_history=notes)).splitlines()[1]
    assert line == f"last decision (planner-1.2, {format_local_time(NOW)}): two lines 2"


def test_the_first_line_counts_waiting_alarms_and_tasks() -> None:
    alarm = Alarm("blocked", "c", "c asks", "liza answer c")
    tasks = [
        task("a", Status.MERGED),
        task("b", Status.CLAIMED),
        task("c", Status.BLOCKED, blocked_questions=("Why?",)),
    ]
    first = draw(*tasks, alarms=(alarm,), waiting=(alarm,)).splitlines()[0]
    assert first == (
        "Customers can pay by invoice   1 waits for you · 1 merged · 1 working · 1 asks    nothing spent yet, no limit"
    )


def test_every_view_counts_the_same_number_of_waiting_alarms() -> None:
    waiting = tuple(Alarm("blocked", f"t{n}", f"t{n} asks", "liza answer") for n in range(3))
    news = Alarm("untested_merges", "config", "merged without a test: a", "liza edit")
    picture = build_picture(facts(task("t0", Status.BLOCKED), alarms=(*waiting, news), waiting=waiting))
    text = render_crew.format_status(picture, False)
    assert "   3 wait for you · 1 asks    " in text.splitlines()[0]
    assert text.partition("\n\nt0")[0].count("\n! ") == 3
    assert render_crew.format_short(picture) == "3 wait · 0/1"


@pytest.mark.parametrize(
    ("costs", "text"),
    [
        (Costs(), ""),
        (Costs(sessions=2, silent=2, unpriced=2), " · $?"),
        (Costs(unreadable="line 12 of usage.jsonl"), " · $?"),
        (Costs(sessions=2, money=0.754), " · $0.75"),
        (Costs(sessions=2, money=11.08), " · $11"),
        (Costs(sessions=2, money=11.08, unpriced=1), " · $11+"),
    ],
)
def test_the_short_line_shows_no_cost_that_is_not_known(costs: Costs, text: str) -> None:
    tasks = [task("a", Status.MERGED), task("b", Status.CLAIMED), task("c", Status.ABANDONED)]
    assert render_crew.format_short(build_picture(facts(*tasks, costs=costs))) == f"0 wait · 1/2{text}"


def test_metrics_are_sentences_with_units_and_tables() -> None:
    told = UsageRow(sessions=2, seconds=1234, tokens=5600, estimated=100, money=0.755)
    silent = UsageRow(sessions=12, seconds=7)
    metrics = SprintMetrics(
        sprint="sprint-1",
        goal_status="IN_PROGRESS",
        goal_seconds=7500,
        waiting_seconds=720,
        counts={"total": 6, "merged": 3, "approved": 3, "rejected": 1},
        by_status={"CLAIMED": 1, "MERGED": 3, "READY_FOR_REVIEW": 2},
        approval_rate=0.75,
        untested_merges=1,
        tasks=(
            TimedTask("invoice-model", "MERGED", 240, 2, 0),
            TimedTask("x", "BLOCKED", 90, 1, 720),
            TimedTask("y", "UNCLAIMED", None, 0, 0),
        ),
        anomalies={"spec_gap": 2},
        usage=UsageBreakdown(
            by_task={"invoice-model": told, "planning": silent},
            by_program={"script:/bin/a.sh -x": told},
            by_outcome={"finished": silent},
        ),
        messages=DeliveryStatistics(1, 1, 0, 0, 0, 0, (), 1.0, 2.5, 1.25),
        warnings=("look",),
    )
    lines = format_metrics(metrics).splitlines()
    archived = format_metrics(replace(metrics, archived=67)).splitlines()
    assert [line for line in archived if line not in lines] == ["without 67 archived tasks: liza task list --archived"]
    assert lines == [
        "sprint-1: 3 of 6 tasks merged (3 merged · 1 working · 2 in review)",
        "the goal has taken 2 h 5 min; something waited for you during 12 min of it",
        "reviews: 3 approved, 1 rejected",
        "1 merge without a test",
        "1 message to agents: 1 read at the first try, 0 later, 0 put into the brief, 0 not acknowledged, 0 waiting; "
        "read after 1.2 s (median), 2.5 s (average), in 1.0 tries (average)",
        "reported by agents: 2 spec gap",
        "warning: look",
        "",
        "task           state   time   claims  waited for you",
        "invoice-model  merged  4 min  2",
        "x              asks    90 s   1       12 min",
        "y              to do          0",
        "",
        "task           sessions  time    tokens            money",
        "invoice-model  2         20 min  5,600 (estimate)  $0.76",
        "planning       12        7 s",
        "",
        "program              sessions  time    tokens            money",
        "script:/bin/a.sh -x  2         20 min  5,600 (estimate)  $0.76",
        "",
        "outcome   sessions  time",
        "finished  12        7 s",
    ]
    used = UsageRow(sessions=1, seconds=60, tokens=120, money=0.25)
    reported = replace(metrics.usage, by_model={"m-1": used}, by_tool={"shell": ToolUsage(3, 1, 90)})
    more = [line for line in format_metrics(replace(metrics, usage=reported)).splitlines() if line not in lines]
    assert more == [
        "model  sessions  time  tokens  money",
        "m-1    1         60 s  120     $0.25",
        "tool   calls  failed  time",
        "shell  3      1       90 s",
    ]


def test_a_metrics_summary_has_long_tasks_and_no_empty_columns() -> None:
    silent = UsageRow(sessions=12, seconds=7)
    metrics = SprintMetrics(
        counts={"total": 9, "merged": 8},
        tasks=tuple(TimedTask(f"t{n}", "MERGED", 10 * n or None, 1, 0) for n in range(9)),
        usage=UsageBreakdown(
            by_task={"t8": replace(silent, money=2.5)},
            by_agent={f"coder-{n}": replace(silent, seconds=n) for n in range(9)},
            by_outcome={"finished": silent, "crashed": replace(silent, tokens=5600, money=0.5)},
        ),
    )
    last = "all tasks, programs, models and days: liza metrics --all"
    lines = format_summary(metrics).splitlines()
    assert lines == [
        "8 of 9 tasks merged",
        "24 sessions ran 14 s in all · 5,600 tokens · $0.50",
        "",
        "task  time  claims  money",
        "t8    80 s  1       $2.50",
        *(f"t{n}    {n}0 s  1" for n in (7, 6, 5, 4, 3)),
        "",
        "agent    sessions  time",
        *(f"coder-{n}  12        {n} s" for n in (8, 7, 6, 5, 4)),
        "",
        last,
    ]
    assert format_summary(SprintMetrics(counts={"total": 0, "merged": 0})).splitlines() == [
        "0 of 0 tasks merged",
        "",
        last,
    ]


def test_a_task_whose_agent_is_off_is_counted_as_stopped() -> None:
    tasks = [
        task("a", Status.CLAIMED, assigned_to="coder-1"),
        task("b", Status.CLAIMED, assigned_to="coder-2"),
        task("c", Status.DRAFT),
    ]
    agents = (agent("coder-1", "OFFLINE", why="no supervisor runs"), agent("coder-2", "WORKING", state="working"))
    missing = {"c": MissingParts(("spec x.md is not committed on integration",), "git add")}
    text = draw(*tasks, agents=agents, missing=missing)
    assert "   2 working (1 stopped) · 1 to do    " in text.splitlines()[0]
    assert "a  working  coder-1  coder-1 is off" in text
    assert "c  to do             draft: spec x.md is not committed on integration" in text
    assert "coder-1  off" in text


def test_every_status_is_counted_once_in_plain_words() -> None:
    text = draw(*(task(f"t{n}", status) for n, status in enumerate(Status)))
    counted = sum(int(number) for number in re.findall(r"(\d+) [a-z]", text.splitlines()[0].partition("   ")[2]))
    assert counted == len(Status)
    assert not [status for status in Status if status in text]


@given(st.lists(st.sampled_from(Status), max_size=30), st.integers(0, 5), st.lists(st.booleans(), max_size=6))
def test_a_picture_has_each_task_and_each_alarm_once(
    statuses: list[Status], archived: int, waiting: list[bool]
) -> None:
    tasks = [task(f"t{number}", status, assigned_to="coder-1") for number, status in enumerate(statuses)]
    alarms = [Alarm("stale_draft" if waits else "disk_full", f"t{n}", "m", "liza") for n, waits in enumerate(waiting)]
    known = facts(*tasks, alarms=tuple(alarms), waiting=tuple(a for a in alarms if a.kind == "stale_draft"))
    summary = ArchiveSummary(counts={"MERGED": archived})
    picture = build_picture(replace(known, state=replace(known.state, archived=summary)))
    assert [row.task for row in picture.tasks] == tasks
    assert sum(picture.counts.values()) == len(tasks) + archived
    assert picture.total == sum(picture.counts.values()) - picture.counts.get(TaskWord.GIVEN_UP, 0)
    assert sorted(row.about for row in (*picture.waits, *picture.news)) == sorted(alarm.about for alarm in alarms)
    assert len(picture.waits) == sum(waiting)


def test_a_crew_that_is_off_is_shown_with_its_command() -> None:
    agents = tuple(agent(f"coder-{n}", "OFFLINE", why="no supervisor runs") for n in range(1, 5))
    text = draw(task("t", Status.UNCLAIMED), agents=agents, up="liza up --coders 4")
    assert text.splitlines()[1:] == ["the crew is off: liza up --coders 4", "", "t  to do  what t is"]


def test_an_empty_crew_gets_the_first_command() -> None:
    assert "liza up" in draw()


def test_the_reason_of_a_task_completes_its_word() -> None:
    merge = Event(time=NOW, event="merge failed", detail="conflict with integration in shop.py\nmore")
    approved = Event(time=NOW, event="approve")
    tasks = [
        task("a", Status.BLOCKED, blocked_questions=("Which address?",)),
        task("b", Status.REJECTED, rejection_reason="rounds down"),
        task("c", Status.INTEGRATION_FAILED, history=(merge,)),
        task("d", Status.APPROVED, history=(approved,), merge_hold="after the release"),
        task("e", Status.CLAIMED, assigned_to="coder-1"),
        task("f", Status.UNCLAIMED, depends_on=("e",)),
        task("g", Status.SUPERSEDED, superseded_by=("h", "i")),
    ]
    lines = draw(*tasks, handoff={"e": Handoff(agent="coder-1", next_action="write the tests")}).splitlines()[2:]
    assert [re.split(r"  +", line)[-1] for line in lines] == [
        "Which address?",
        "rejected: rounds down",
        "does not merge: conflict with integration in shop.py",
        "approved, held: after the release",
        "handed over: write the tests",
        "needs e: what f is",
        "superseded by h, i",
    ]


def test_an_idle_agent_shows_one_reason_and_alarms_a_command() -> None:
    blocked = Alarm("blocked", "t", "t is blocked", 'liza task unblock t --answer "…"', NOW - timedelta(seconds=750))
    untested = Alarm("untested_merges", "config", "merged without a test: a", "liza edit")
    agents = (agent("coder-1", "IDLE", why="no task is claimable"),)
    text = draw(task("t", Status.BLOCKED), agents=agents, waiting=(blocked,), alarms=(blocked, untested))
    assert text.splitlines()[1:] == [
        "",
        "! t is blocked (for 12 min)",
        '    liza task unblock t --answer "…"',
        "",
        "t  asks  what t is",
        "",
        "coder-1  idle  no task is claimable",
        "",
        "! merged without a test: a",
        "    liza edit",
    ]


def test_the_age_of_an_alarm_is_that_in_the_log() -> None:
    alarm = Alarm("supervisor_left", "coder-1", "the supervisor of coder-1 left", "liza up")
    times = {("supervisor_left", "coder-1"): NOW - timedelta(minutes=5)}
    (row,) = alarm_rows(facts(alarms=(alarm,), alarm_times=times))
    assert (row.since, row.seconds, row.waiting_since) == (NOW - timedelta(minutes=5), 300, None)


def test_the_reason_of_a_pause_is_printed_once() -> None:
    reason = "the sprint has spent $12.00 of $10.00"
    agents = (agent("coder-1", "IDLE", why="PAUSE is set; liza resume removes it"),)
    paused = {"signals": {"PAUSE": reason}, "agents": agents}
    assert f"PAUSE is set: {reason}: liza resume" in draw(**paused)
    alarm = Alarm("budget_used", "PAUSE", f"the crew is paused: {reason}", "liza edit; liza resume")
    stale = Alarm("stale_pause", "PAUSE", "PAUSE has been set for 31 minutes", "liza resume")
    for waiting in (alarm, stale):
        text = draw(**paused, waiting=(waiting,), alarms=(waiting,))
        assert text.count(reason) == 1
        assert "PAUSE is set" not in text


def test_a_working_agent_shows_its_work_and_for_how_long() -> None:
    program = "script:/a/long/way/to/the/place/of/agent.sh -x"
    base = {"status": "WORKING", "current_task": "t", "program": program, "role": "coder"}
    later = NOW + timedelta(days=400)
    rows = [
        AgentRow(**base, id="coder-1", state="working", doing="working", seconds=250, context=61),
        AgentRow(**base, id="coder-2", state="starting", doing="set-up", seconds=40),
        AgentRow(**base, id="coder-3", state="stuck", doing="waits for you", seconds=725),
        AgentRow(**base, id="coder-4"),
        AgentRow(**{**base, "status": "WAITING"}, id="coder-5", state="stalled", until=later, why="x waits: a limit"),
        AgentRow(**base, id="coder-6", state="stuck", evidence="coder-6.1 makes no progress"),
    ]
    lines = render_crew.format_agents([agent_line(row, ()) for row in rows], False).splitlines()
    assert [re.split(r"  +", line)[1] for line in lines] == [
        "working 4 min, context 61%",
        "working 40 s",
        "waits for you 12 min",
        "working",
        f"waits until {later.astimezone():%Y-%m-%d %H:%M}",
        "stuck",
    ]
    assert [re.split(r"  +", line)[4:] for line in lines] == [
        [],
        ["set-up"],
        [],
        [],
        ["a limit"],
        ["coder-6.1 makes no progress"],
    ]
    assert "  script:…/agent.sh -x" in lines[0]


def test_the_end_shows_how_far_integration_is_ahead_and_next() -> None:
    goal = Goal(id="goal", description="g", status="COMPLETED")
    ahead = CommitsAhead("integration", "main", commits=3)

    def end(ahead: CommitsAhead) -> str:
        return draw(goal=goal, ahead=ahead).splitlines()[1]

    assert end(ahead) == "the goal is completed; integration is 3 commits ahead of main: liza land --merge"
    own = end(replace(ahead, own=2))
    assert own.endswith("integration is 3 commits ahead of main: liza sync && liza land --merge")
    url = "https://forge.example/shop/pull/7"
    opened = end(replace(ahead, request=url))
    assert opened.endswith(f"integration is 3 commits ahead of main (pull request {url}): liza land --pr")
    assert "integration is 1 commit ahead" in end(replace(ahead, commits=1))


def test_lines_wrap_below_their_column_and_commands_stay_whole() -> None:
    line = "coder-1  IDLE  its supervisor left because of a long and very sad story"
    assert wrap_text(line, 40).splitlines() == [
        "coder-1  IDLE  its supervisor left",
        "               because of a long and",
        "               very sad story",
    ]
    command = '    liza task unblock invoice-mail --answer "billing@shop.example"'
    assert wrap_text(command, 40) == command
    told = "all stopped; work is in ../shop.worktrees and on task/*. Go on: liza up --coders 2 --program script:./a.sh"
    assert wrap_text(told, 40, 10).splitlines() == [
        "all stopped; work is in",
        "          ../shop.worktrees and on",
        "          task/*. Go on:",
        "          liza up --coders 2 --program script:./a.sh",
    ]
    assert ESCAPE.sub("", wrap_text(paint(line, "red", True), 40)) == wrap_text(line, 40)


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0, "0 s"),
        (119, "119 s"),
        (120, "2 min"),
        (3599, "59 min"),
        (3600, "1 h"),
        (7500, "2 h 5 min"),
        (200000, "2 days"),
    ],
)
def test_spans_of_time_have_units(seconds: int, told: str) -> None:
    assert format_duration(seconds) == told


def test_times_are_of_the_clock_of_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Kolkata")
    time.tzset()
    try:
        assert format_local_time(NOW) == format_local_time("2026-01-01T12:00:00Z") == "2026-01-01 17:30:00"
        assert printing.time_of_day(NOW) == "17:30:00"
    finally:
        monkeypatch.undo()
        time.tzset()


def test_colours_appear_only_on_request_and_keep_the_columns() -> None:
    tasks = [task("a", Status.MERGED), task("long-name", Status.CLAIMED, assigned_to="coder-1")]
    plain, coloured = draw(*tasks), draw(*tasks, colour=True)
    assert "\x1b" not in plain
    assert "\x1b" in coloured
    assert ESCAPE.sub("", coloured) == plain


def test_every_colour_is_read_on_white_and_on_black() -> None:
    assert set(COLOURS) == {"dim", "red", "green", "yellow", "blue", "cyan"}
    for name, number in COLOURS.items():
        assert 16 <= number <= 255, f"{name}: a terminal chooses the first 16 colours"
        colour = terminal_colour(number)
        assert min(contrast(colour, (255, 255, 255)), contrast(colour, (0, 0, 0))) >= 4, name


def test_a_repainted_screen_has_only_the_terminals_rows() -> None:
    lines = ["x" * 25, *map(str, range(9))]
    assert fit_rows(lines, 10, 12) == lines
    assert fit_rows(lines, 10, 6) == [*lines[:3], "… 7 more "]
    assert fit_rows(lines, 80, 4) == [*lines[:3], "… 7 more lines: liza status"]


def test_a_task_shows_what_was_asked_answered_and_done() -> None:
    found = row(
        "t",
        Status.CLAIMED,
        done_when="pytest passes",
        answers=(Answer(question="Which?", answer="this"),),
        history=(Event(time=NOW, event="claim", run="coder-1.1", commit="a" * 40),),
    )
    text = render_task.format_task(
        {**found, "branch": "task/t", "directory": None, "waits_for": (), "handoff": None, "notes": ["n"]}, False
    )
    assert "done when   pytest passes" in text
    assert "Which? → this" in text
    assert "2026-01-01 12:00:00  claim  coder-1.1  aaaaaaaaaa" in text
    assert "note: n" in text


def test_a_patch_is_unchanged_and_untracked_files_are_named() -> None:
    patch = "diff --git a/x b/x\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b"
    found = TaskDiff("t", "CLAIMED", "b", "c", None, ("new.txt",), (), patch)
    assert render_patch.format_diff(found, False) == f"{patch}\nuntracked: new.txt"
    assert ESCAPE.sub("", render_patch.format_diff(found, True)) == render_patch.format_diff(found, False)
    assert (
        render_patch.format_diff(TaskDiff("t", "CLAIMED", "b", "c", None, (), (), ""), False) == "t changes nothing yet"
    )


def test_validation_names_entry_field_value_and_what_is_wanted() -> None:
    broken = {"entry": "t", "field": "priority", "found": "12", "wanted": "1 to 9"}
    found = {"path": "p", "valid": False, "tasks": 1, "archived": 0, "violations": [broken], "warnings": []}
    found["next"] = "liza edit"
    assert render_crew.format_validation(found) == "t: priority is 12, wanted 1 to 9\nnext: liza edit"
    sound = {**found, "valid": True, "violations": []}
    assert render_crew.format_validation(sound) == "p: 1 task, no violation"
    many = {**sound, "tasks": 2, "archived": 67}
    assert render_crew.format_validation(many) == "p: 2 tasks and 67 archived ones, no violation"


@pytest.mark.parametrize(
    ("status", "label"),
    [
        (Status.READY_FOR_REVIEW, "commit in review"),
        (Status.APPROVED, "approved commit"),
        (Status.MERGED, "approved commit"),
        (Status.BLOCKED, "submitted commit"),
        (Status.REJECTED, "submitted commit"),
    ],
)
def test_only_a_task_under_review_has_a_commit_in_review(status: Status, label: str) -> None:
    task = {**row("t", status, review_commit="a" * 40), "handoff": None, "notes": []}
    for wanted, commit in ((False, "a" * 10), (True, "a" * 40)):
        text = render_task.format_task(task, False, with_all=wanted)
        [line] = [line for line in text.splitlines() if line.endswith(f" {commit}")]
        assert line.startswith(label)


@given(st.lists(st.lists(st.text(max_size=12), min_size=3, max_size=3), max_size=6))
def test_columns_are_aligned_with_any_text(rows: list[list[str]]) -> None:
    rows = [[cell.replace("\n", " ").replace("\r", " ") for cell in cells] for cells in rows]
    lines = align_columns([[*cells, "|"] for cells in rows])
    ends = {cell_width(line) for line in lines.split("\n")} if rows else set()
    assert len(ends) <= 1


def test_wide_letters_take_two_cells_and_escapes_none() -> None:
    assert (cell_width("abc"), cell_width("日本"), cell_width(paint("abc", "red", True)), cell_width("e\u0301")) == (
        3,
        4,
        3,
        1,
    )


@given(st.text())
def test_nothing_that_is_shown_can_steer_a_terminal(text: str) -> None:
    steering = r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]"
    assert not re.search(steering, strip_controls(text))
    assert not re.search(steering, PAINTED.sub("", strip_controls_but_colours(text)))
    assert json.loads(escape_json(json.dumps(text, ensure_ascii=False))) == text
    order = "\x1b]52;c;ZXZpbA==\x07 \x1b[2J \x1b[38;5;161mred\x1b[0m \x1b[8mhidden \u202eabc \x9b2J"
    assert strip_controls(order) == "  red hidden �abc �2J"
    assert strip_controls_but_colours(order) == "  \x1b[38;5;161mred\x1b[0m hidden �abc �2J"


@pytest.mark.parametrize(("text", "seconds"), [("90", 90), ("90s", 90), ("15m", 900), ("2h", 7200), ("1d", 86400)])
def test_durations_are_read_with_their_unit(text: str, seconds: int) -> None:
    assert parse_duration(text, "liza logs --since 15m") == seconds


@pytest.mark.parametrize("text", ["", "m", "1.5h", "-3m", "15 m", "15x", "9" * 20])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        parse_duration(text, "liza logs --since 15m")
    assert refused.value.hint == "liza logs --since 15m"


def test_a_failed_merge_with_its_coder_off_is_printed_once() -> None:
    lost = Alarm("orphaned_integration_failed", "t", "t does not merge", "liza up")
    news = Alarm("integration_failed", "t", "t does not merge", "liza task show t")
    assert draw(waiting=(lost,), alarms=(lost, news)).count("t does not merge") == 1
    assert draw(alarms=(news,)).count("t does not merge") == 1


def test_lists_and_details_are_parsed_and_need_keys() -> None:
    assert split_names(None) is None
    assert split_names("") == ()
    assert split_names(" a, b,,c ") == ("a", "b", "c")
    assert parse_details(["a=1", "b=x=y"]) == {"a": "1", "b": "x=y"}
    for wrong in ("a", "=1"):
        with pytest.raises(UsageError):
            parse_details([wrong])


def test_every_command_has_one_heading_and_an_example() -> None:
    paths = [path for _, group in list_headings() for path in group]
    assert len(paths) == len(set(paths))
    assert {path.partition(" ")[0] for path in paths} == set(command_names())
    text = reference()
    for path in paths:
        section = text.partition(f"### liza {path}\n")[2].partition("\n### ")[0]
        assert re.search(rf"```\n(.*\n)*.*liza {path}\b", section), path


def test_a_tried_program_without_a_box_is_not_called_confined() -> None:
    row = {
        "name": "mine",
        "command": "x",
        "version": "1",
        "installed": True,
        "install": "",
        "logs": "read",
        "takes_model": False,
        "is_run": True,
        "seconds": 3.5,
    }
    row["way"] = {"name": "headless", "reason": "", "others": []}
    told = render_crew.format_programs(
        {"programs": [{**row, "permissions": "prompts", "boxed": False, "confines": False}], "notices": []}
    )
    assert "works, nothing confines it, in 3.5 s" in told
    told = render_crew.format_programs(
        {"programs": [{**row, "permissions": "prompts", "boxed": False, "confines": True}], "notices": []}
    )
    assert "works, prompts, in 3.5 s" in told


@pytest.mark.parametrize("text", ["0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"])
def test_a_time_outside_utc_years_is_shown_as_it_is(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    try:
        assert format_time(datetime.fromisoformat(text)) == format_local_time(text) == text
    finally:
        monkeypatch.undo()
        time.tzset()
