"""A session can be read: the lines of each program become the same events, and those become rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest

from liza.model.paths import Paths
from liza.model.spending import TokenUsage
from liza.model.value_classes import replace
from liza.printing.render_session import SessionStyle, format_followed, format_session
from liza.programs import event_readers
from liza.programs.event_readers import READERS, UnknownObject
from liza.programs.presets import preset_table
from liza.programs.presets.preset import EventFormat, Preset
from liza.programs.rules.session_events import (
    Failed,
    FailedCall,
    LoggedEvent,
    ModelText,
    Noticed,
    Outcome,
    Printed,
    Prompted,
    SessionBegan,
    SessionEvent,
    TimeSource,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Unknown,
    count_edit,
    find_last_failure,
    find_refused_calls,
    fold_usage,
    merge_sessions,
    merge_sources,
)
from liza.programs.session.log_file import parse_object
from liza.view.rules.trajectory import Observation, build_trajectory

STREAMS = Path(__file__).parents[2] / "data" / "streams"
CONVERSATIONS = STREAMS.with_name("conversations")
PROGRAMS = [path.stem for path in sorted(STREAMS.glob("*.jsonl"))]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def read(events_format: str, *objects: dict[str, Any]) -> list[SessionEvent]:
    return [event for entry in objects for event in event_readers.read_object(events_format, entry)]


def logged(events: list[SessionEvent], parent: str = "") -> list[LoggedEvent]:
    return [LoggedEvent("coder-1", "coder-1.1", NOON, event, parent) for event in events]


def rows(events: list[SessionEvent], **style: Any) -> list[str]:
    return [row[10:] for row in format_session(logged(events), SessionStyle(None, **style))]


def row_of(program: str) -> Preset:
    return preset_table.load_presets(Paths(Path("/nowhere")), Path("/nowhere")).resolve(program)


def recorded(program: str) -> Iterator[SessionEvent]:
    for line in (STREAMS / f"{program}.jsonl").read_text().splitlines():
        yield from event_readers.read_line(row_of(program), line).events


def conversation(program: str, file: str = "") -> list[LoggedEvent]:
    entries = []
    for line in (CONVERSATIONS / f"{program}{file}.jsonl").read_text().splitlines():
        read = event_readers.read_record(row_of(program), line)
        entries += [
            LoggedEvent("coder-1", "coder-1.1", read.time, event, read.parent, TimeSource.RECORD)
            for event in read.events
        ]
    return entries


def claude(author: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": author, "message": {"role": author, "content": list(parts)}}


def called(call: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def returned(call: str, text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_session_of_each_program_has_no_unknown_line(name: str) -> None:
    events = list(recorded(name))
    calls = [event for event in events if isinstance(event, ToolCalled)]
    results = [event for event in events if isinstance(event, ToolReturned)]
    assert [event.arguments["command"].split("'")[-2:][0].split()[-1] for event in calls] == ["+%N", "two", "two"]
    end = Outcome.ENDED if name in ("gemini", "qwen") else Outcome.OK
    assert [(event.call, event.outcome) for event in results] == [(event.call, end) for event in calls]
    assert [row for row in rows(events) if row.startswith("runs")] == [
        f"runs     echo one; date +%N · {end}",
        f"runs     echo two · {end}",
        f"runs     echo two · {end}",
    ]


def test_formats_in_rows_and_readers_match_each_other() -> None:
    text = (Path(preset_table.__file__).parent / "presets.toml").read_text()
    named = {line.partition('"')[2].rstrip('"') for line in text.splitlines() if line.startswith("events = ")}
    assert named | {"acp"} == set(READERS) == {*get_args(EventFormat)} - {""}


@pytest.mark.parametrize("events_format", READERS)
@pytest.mark.parametrize(
    "entry",
    [{}, {"type": "brand_new"}, {"type": 7}, {"type": "result", "message": []}, {"kind": "x"}, {"type": "assistant"}],
)
def test_an_unknown_event_is_never_a_readers_error(events_format: str, entry: dict[str, Any]) -> None:
    try:
        event_readers.read_object(events_format, entry)
    except UnknownObject:
        return


@pytest.mark.parametrize("line", ["", "text", "{", "[1]", '{"a": 1', "{" * 100_000, "7"])
def test_a_line_that_is_no_object_is_text(line: str) -> None:
    assert parse_object(line) is None


def test_unknown_objects_are_shown_short_and_text_lines_whole() -> None:
    assert rows([Unknown('{"type": "new", "a": "' + "x" * 500)])[0].startswith('unknown  {"type": "new"')
    assert len(rows([Unknown("x" * 500)])[0]) < 200
    assert list(format_session(logged([Printed("as it  is")]), SessionStyle(40))) == ["as it  is"]
    (cut,) = format_session(logged([Printed("x" * 9_000)]), SessionStyle(40))
    assert cut.endswith("… 9,000 characters: --raw")


def test_a_command_of_any_length_is_a_row() -> None:
    (row,) = rows([ToolCalled("c", "Bash", {"command": "x" * 3_000_000})])
    assert row == "runs     " + "x" * 640 + " …"


def test_a_failed_command_has_exit_code_and_last_line() -> None:
    item = {"id": "i1", "type": "command_execution", "command": "/bin/bash -lc 'make test'", "status": "failed"}
    done = {"type": "item.completed", "item": {**item, "exit_code": 2, "aggregated_output": "a\nno rule for test\n"}}
    assert rows(read("items", done)) == ["runs     make test · exit 2: no rule for test"]


def test_a_refused_call_has_its_reason() -> None:
    events = read(
        "blocks",
        claude("assistant", called("c1", "Bash", command="git push")),
        claude("user", returned("c1", "This command requires approval", is_error=True)),
        {"type": "result", "permission_denials": [{"tool_use_id": "c1"}], "is_error": False},
    )
    assert rows(events) == ["runs     git push · refused: This command requires approval"]
    declined = {"id": "i1", "type": "command_execution", "command": "rm -rf x", "status": "declined"}
    assert rows(read("items", {"type": "item.completed", "item": declined})) == ["runs     rm -rf x · refused"]


def test_refused_calls_are_found_with_their_command_and_reason() -> None:
    events = read(
        "blocks",
        claude("assistant", called("c1", "Bash", command="ls"), called("c2", "Bash", command="curl x")),
        claude("user", returned("c1", "a"), returned("c2", "This needs approval\nmore", is_error=True)),
        {"type": "result", "permission_denials": [{"tool_use_id": "c2"}]},
    )
    assert find_refused_calls(logged(events)) == (FailedCall("curl x", "This needs approval"),)
    assert find_refused_calls([]) == ()


def test_a_call_liza_denied_is_not_refused_by_the_program() -> None:
    events = read(
        "blocks",
        claude("assistant", called("c1", "Bash", command="git push")),
        claude("user", returned("c1", "[liza] not run: nothing is pushed here", is_error=True)),
        {"type": "result", "permission_denials": [{"tool_use_id": "c1"}]},
    )
    assert find_refused_calls(logged(events)) == ()


def test_a_refusal_in_text_beside_events_is_read() -> None:
    line = (
        "2026-11-26T17:00:22.29Z ERROR codex_core::tools::router: error=exec_command failed: CreateProcess { message: "
        """"Rejected(\\"`/bin/bash -lc 'rm -rf x'` rejected: rm -f style commands are not permitted\\")" }"""
    )
    events = event_readers.read_line(row_of("codex"), line).events
    assert rows(list(events)) == ["runs     rm -rf x · refused: rm -f style commands are not permitted"]
    assert event_readers.read_line(row_of("codex"), "WARNING: x").events == (Printed("WARNING: x", is_beside=True),)


def test_an_edit_has_a_path_with_added_and_removed_lines() -> None:
    replaced = called("c1", "Edit", file_path="src/a.py", old_string="a\nb\n", new_string="a\nc\nd\n")
    written = called("c2", "Write", file_path="b.txt", content="1\n2\n3\n")
    assert rows(read("blocks", claude("assistant", replaced, written))) == [
        "edits    src/a.py +2 −1",
        "edits    b.txt +3 −0",
    ]
    assert count_edit("", "") == (0, 0)
    assert count_edit("a\nb\n" * 30_000, "a\nb\n" * 30_000 + "c") == (1, 0), "a large edit"
    changes = {"id": "i", "type": "file_change", "status": "completed", "changes": [{"path": "a"}, {"path": "b"}]}
    assert rows(read("items", {"type": "item.completed", "item": changes})) == ["edits    a, b · ok"]


def test_a_sub_agent_is_folded_into_its_calls_row() -> None:
    main = read("blocks", claude("assistant", called("c1", "Task", description="look for callers")))
    inner = logged(read("blocks", claude("assistant", called("c2", "Grep", pattern="f("))), parent="c1")
    end = logged(read("blocks", claude("user", returned("c1", "three callers"))))
    entries = [*logged(main), *inner, *end]
    (folded,) = format_session(entries, SessionStyle(None))
    assert "Task look for callers · 1 call of its sub-agent: --subagents · ok" in folded
    assert len(list(format_session(entries, SessionStyle(None, with_subagents=True)))) == 2


def test_rows_wrap_under_their_text_without_terminal_controls() -> None:
    (row,) = format_session(logged([ModelText("one two three\x1b[2J four\n\nfive " * 4)]), SessionStyle(40))
    lines = row.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert all(line.startswith(" " * 19) for line in lines[1:])
    assert "\x1b" not in row


def test_a_followed_session_prints_calls_at_once_and_failed_results() -> None:
    call, good = ToolCalled("c1", "Bash", {"command": "ls"}), ToolReturned("c1", "a")
    bad = ToolReturned("c2", "no such file", Outcome.FAILED)
    assert [row[10:] for row in format_followed(logged([call, good, bad]), SessionStyle(None))] == [
        "runs     ls",
        "result   failed: no such file",
    ]


def test_the_lines_of_the_acp_sidecar_are_read() -> None:
    events = read(
        "acp",
        {"type": "text", "text": "I begin."},
        {"type": "tool_call", "id": "1", "tool": "execute", "title": "ls", "input": {"command": "ls"}},
        {"type": "permission", "id": "1", "tool": "execute", "allowed": False, "rule": "r", "reason": "no"},
        {"type": "tool_result", "id": "1", "status": "failed", "output": "no", "ms": 2},
        {"type": "failure", "kind": "quota", "message": "the limit is reached"},
        {"type": "exit", "code": 0},
    )
    assert rows(events) == ["says     I begin.", "runs     ls · refused: no", "failed   the limit is reached"]


ENDS = {
    # Each line: how the program tells of a command that failed, and of one that it may have refused.
    "claude": ("exit 1: cat: no-such-file: No such file or directory", "failed: Contains simple_expansion"),
    "codex": (
        "exit 1: cat: no-such-file: No such file or directory",
        "refused: rm -f style commands are not permitted. Use a safer approach",
    ),
    "copilot": ("exit 1: cat: no-such-file: No such file or directory", "ok"),
    "gemini": ("exit 1: Output: cat: no-such-file: No such file or directory", "ended"),
    "pi": ("exit 1: cat: no-such-file: No such file or directory", "ok"),
    "qwen": ("exit 1: Output: cat: no-such-file: No such file or directory", "ok"),
}


@pytest.mark.parametrize("program", ENDS)
def test_each_programs_conversation_log_has_each_command_with_its_end(program: str) -> None:
    entries = conversation(program)
    assert all(entry.time is not None for entry in entries)
    shown = [row[10:] for row in format_session(merge_sources([], entries), SessionStyle(None))]
    failed, refused = ENDS[program]
    ran = [row for row in shown if row.startswith("runs")]
    assert ran[0].rpartition(" · ")[0] == "runs     echo one"
    assert ran[1] == f"runs     cat no-such-file · {failed}"
    assert ran[2].endswith(f"fi · {refused}")
    assert "says     All of it is done." in shown
    assert [row for row in shown if row.startswith("prompt")] == [next(row for row in shown if "do the" in row)]
    tokens = {"claude": 6_000, "copilot": 0}.get(program, 4_000)
    assert [row for row in shown if row.startswith("tokens")] == (
        [f"tokens   {tokens:,} in ({tokens // 10} cached), {tokens // 20} out"] if tokens else []
    )


def test_a_sub_agent_with_its_own_log_is_folded_in() -> None:
    entries = merge_sessions([conversation("claude"), conversation("claude", "-subagent")])
    shown = list(format_session(entries, SessionStyle(None)))
    (folded,) = [row for row in shown if "Agent look for callers" in row]
    assert "1 call, 1,050 tokens of its sub-agent: --subagents · ok" in folded
    assert not any("echo inner" in row for row in shown)
    assert any("echo inner · ok" in row for row in format_session(entries, SessionStyle(None, with_subagents=True)))


def at(second: int, event: SessionEvent) -> LoggedEvent:
    return LoggedEvent("coder-1", "coder-1.1", NOON + timedelta(seconds=second), event)


def test_log_is_merged_with_output_and_no_call_is_doubled() -> None:
    used = TokenUsage(input=900, cached=0, output=9, cost=0.5)
    call = ToolCalled("item_1", "shell", {"command": "ls"})
    output = [at(1, SessionBegan("c")), at(2, call), at(2, Printed("WARNING")), at(5, Failed("no more"))]
    log = [at(0, Prompted("work")), at(1, ToolCalled("call_1", "shell", {"command": "ls"})), at(3, ModelText("done"))]
    merged = merge_sources([*output, at(6, TurnEnded(used))], log)
    assert [entry.event for entry in merged] == [
        SessionBegan("c"),
        Prompted("work"),
        log[1].event,
        Printed("WARNING"),
        ModelText("done"),
        Failed("no more"),
        TurnEnded(used),
    ]
    assert merge_sources(output, []) == output
    assert merge_sources(output, [at(0, Prompted("work"))]) == output
    terminal = [at(1, Printed("─────")), at(2, Printed("> "))]
    assert merge_sources(terminal, log) == log


def test_the_usage_of_a_turn_counts_each_request_once() -> None:
    ten = TokenUsage(input=10, cached=1, output=1)
    entries = [
        at(0, Prompted("a")),
        at(1, TurnEnded(ten, "r1")),
        at(1, TurnEnded(ten, "r1")),
        at(2, TurnEnded(ten, "r2")),
        replace(at(2, TurnEnded(ten, "s1")), parent="c1"),
        at(3, Prompted("b")),
        at(4, TurnEnded(ten)),
        at(5, TurnEnded(ten)),
    ]
    folded = [entry.event for entry in fold_usage(entries, 0.25)]
    twice = TokenUsage(input=20, cached=2, output=2)
    assert folded == [Prompted("a"), TurnEnded(twice), Prompted("b"), TurnEnded(replace(twice, cost=0.25))]


def test_a_session_becomes_a_trajectory_linking_results_to_calls() -> None:
    entries = merge_sessions([conversation("claude"), conversation("claude", "-subagent")])
    trajectory = build_trajectory(fold_usage(entries), "claude")
    assert trajectory is not None
    assert [step.step_id for step in trajectory.steps] == [1, 2, 3, 4, 5, 6, 7]
    assert [step.source for step in trajectory.steps] == ["user", *["agent"] * 6]
    for step in trajectory.steps:
        calls = [call.tool_call_id for call in step.tool_calls or ()]
        results = step.observation.results if step.observation else []
        assert [result.source_call_id for result in results] == calls
    (inner,) = trajectory.subagent_trajectories or ()
    (ref,) = [ref for step in trajectory.steps if step.observation for ref in refs_of(step.observation)]
    assert ref == inner.trajectory_id
    assert [step.message for step in inner.steps] == ["SUBWORK look", "", "three callers"]
    assert trajectory.final_metrics is not None
    assert (trajectory.final_metrics.total_prompt_tokens, trajectory.final_metrics.total_steps) == (6_000, 7)
    assert build_trajectory([], "claude") is None


def refs_of(observation: Observation) -> list[str]:
    return [ref.trajectory_id for result in observation.results for ref in result.subagent_trajectory_ref or ()]


SECRET = "ghp_" + "a1B2" * 9


@pytest.mark.parametrize(
    "event",
    [
        ModelText(f"the token is {SECRET}"),
        Prompted("x" * 150 + f" {SECRET}"),
        ToolCalled("c", "Bash", {"command": f"curl -H {SECRET}"}),
        ToolCalled("c", "Grep", {"pattern": SECRET}),
        ToolReturned("c", f"first\nlast {SECRET}", Outcome.FAILED),
        ToolReturned("c", f"{SECRET}\nlast", Outcome.REFUSED),
        Failed(SECRET),
        Unknown(f'{{"a": "{SECRET}"}}'),
        Printed(SECRET),
        Printed(SECRET, is_beside=True),
    ],
)
def test_no_row_shows_a_secret_or_a_part_of_one(event: SessionEvent) -> None:
    shown = "\n".join(format_session(logged([event]), SessionStyle(None)))
    assert SECRET[:12] not in shown


def test_a_usage_limit_and_a_programs_retries_are_no_failures() -> None:
    tries = '{"type":"error","message":"Reconnecting... 1/5 (stream disconnected before completion)"}'
    assert event_readers.read_line(row_of("codex"), tries).events == (
        Noticed("Reconnecting... 1/5 (stream disconnected before completion)"),
    )
    limit = '{"type":"turn.failed","error":{"message":"exceeded retry limit, last status: 429 Too Many Requests"}}'
    (event,) = event_readers.read_line(row_of("codex"), limit).events
    assert rows([event]) == ["limit    exceeded retry limit, last status: 429 Too Many Requests"]
    broken = '{"type":"turn.failed","error":{"message":"stream disconnected before completion"}}'
    assert isinstance(event_readers.read_line(row_of("codex"), broken).events[0], Failed)


def test_the_last_failed_call_is_found_with_its_last_output() -> None:
    entries = conversation("codex")
    failed = FailedCall(
        "if [ x$LIZA_TASK = xone ]; then rm -rf /etc/x; fi",
        "rm -f style commands are not permitted. Use a safer approach",
    )
    assert find_last_failure(entries) == failed
    assert find_last_failure(entries[:8]) == FailedCall(
        "cat no-such-file", "exit 1: cat: no-such-file: No such file or directory"
    )
    assert find_last_failure([]) is None


def test_lines_beside_events_are_folded_and_guard_denials_are_recognized() -> None:
    lines = [Printed(f"line {number}", is_beside=True) for number in range(5)]
    assert rows([*lines, ModelText("x")]) == ["prints   line 0 … 4 more lines: --raw", "says     x"]
    hooked = ToolReturned(
        "c1", "PreToolUse:Bash hook error: [/x/liza hook]: [liza] not run: nothing is pushed", Outcome.FAILED
    )
    call = ToolCalled("c1", "Bash", {"command": "git push"})
    assert rows([call, hooked]) == ["runs     git push · failed: [liza] not run: nothing is pushed"]
    assert find_refused_calls(logged([call, replace(hooked, outcome=Outcome.REFUSED)])) == ()
