"""A session can be read: the lines of each program become the same events, and those become rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from liza.cli.render.render_session import SessionStyle, format_followed, format_session
from liza.programs.events import event_readers
from liza.programs.events.event_readers import READERS, UnknownObject
from liza.programs.presets import preset_files, preset_table
from liza.rules.paths import Paths
from liza.rules.sessions.session_events import (
    LoggedEvent,
    ModelText,
    Outcome,
    Printed,
    RefusedCall,
    SessionEvent,
    ToolCalled,
    ToolReturned,
    Unknown,
    count_edit,
    find_refused_calls,
)

STREAMS = Path(__file__).parents[1] / "data" / "streams"
PROGRAMS = [path.stem for path in sorted(STREAMS.glob("*.jsonl"))]
NOON = datetime(2026, 11, 22, 12, tzinfo=UTC)


def read(events_format: str, *objects: dict[str, Any]) -> list[SessionEvent]:
    return [event for entry in objects for event in event_readers.read_object(events_format, entry)]


def logged(events: list[SessionEvent], parent: str = "") -> list[LoggedEvent]:
    return [LoggedEvent("coder-1", "coder-1.1", NOON, event, parent) for event in events]


def rows(events: list[SessionEvent], **style: Any) -> list[str]:
    return [row[10:] for row in format_session(logged(events), SessionStyle(None, **style))]


def recorded(name: str) -> Iterator[SessionEvent]:
    for line in (STREAMS / f"{name}.jsonl").read_text().splitlines():
        parsed = event_readers.parse_object(line)
        assert parsed is not None
        yield from event_readers.read_object(name, parsed)


def claude(author: str, *parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": author, "message": {"role": author, "content": list(parts)}}


def called(call: str, tool: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call, "name": tool, "input": arguments}


def returned(call: str, text: str, *, is_error: bool = False) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call, "content": text, "is_error": is_error}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_recorded_session_of_each_program_is_read_without_an_unknown_line(name: str) -> None:
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


def test_each_format_that_a_row_names_has_a_reader_and_each_reader_a_row() -> None:
    text = (Path(preset_files.__file__).parent / "presets.toml").read_text()
    named = {line.partition('"')[2].rstrip('"') for line in text.splitlines() if line.startswith("events = ")}
    assert named | {"acp"} == set(READERS)


@pytest.mark.parametrize("events_format", READERS)
@pytest.mark.parametrize(
    "entry",
    [{}, {"type": "brand_new"}, {"type": 7}, {"type": "result", "message": []}, {"kind": "x"}, {"type": "assistant"}],
)
def test_what_a_reader_does_not_know_is_unknown_or_nothing_and_never_an_error(
    events_format: str, entry: dict[str, Any]
) -> None:
    try:
        event_readers.read_object(events_format, entry)
    except UnknownObject:
        return


@pytest.mark.parametrize("line", ["", "text", "{", "[1]", '{"a": 1', "{" * 100_000, "7"])
def test_a_line_that_is_no_object_is_text(line: str) -> None:
    assert event_readers.parse_object(line) is None


def test_an_unknown_object_is_shown_in_short_and_a_line_of_text_as_it_is() -> None:
    assert rows([Unknown('{"type": "new", "a": "' + "x" * 500)])[0].startswith('unknown  {"type": "new"')
    assert len(rows([Unknown("x" * 500)])[0]) < 200
    assert list(format_session(logged([Printed("as it  is")]), SessionStyle(40))) == ["as it  is"]
    (cut,) = format_session(logged([Printed("x" * 9_000)]), SessionStyle(40))
    assert cut.endswith("… 9,000 characters: --raw")


def test_a_failed_command_has_its_exit_code_and_the_last_line_of_its_output() -> None:
    item = {"id": "i1", "type": "command_execution", "command": "/bin/bash -lc 'make test'", "status": "failed"}
    done = {"type": "item.completed", "item": {**item, "exit_code": 2, "aggregated_output": "a\nno rule for test\n"}}
    assert rows(read("codex", done)) == ["runs     make test · exit 2: no rule for test"]


def test_a_refused_call_says_so_and_why() -> None:
    events = read(
        "claude",
        claude("assistant", called("c1", "Bash", command="git push")),
        claude("user", returned("c1", "This command requires approval", is_error=True)),
        {"type": "result", "permission_denials": [{"tool_use_id": "c1"}], "is_error": False},
    )
    assert rows(events) == ["runs     git push · refused: This command requires approval"]
    declined = {"id": "i1", "type": "command_execution", "command": "rm -rf x", "status": "declined"}
    assert rows(read("codex", {"type": "item.completed", "item": declined})) == ["runs     rm -rf x · refused"]


def test_refused_calls_are_found_with_their_command_and_reason() -> None:
    events = read(
        "claude",
        claude("assistant", called("c1", "Bash", command="ls"), called("c2", "Bash", command="curl x")),
        claude("user", returned("c1", "a"), returned("c2", "This needs approval\nmore", is_error=True)),
        {"type": "result", "permission_denials": [{"tool_use_id": "c2"}]},
    )
    assert find_refused_calls(events) == (RefusedCall("curl x", "This needs approval"),)
    assert find_refused_calls([]) == ()


def test_a_refusal_in_a_line_of_text_beside_the_events_is_read(tmp_path: Path) -> None:
    codex = preset_table.load_presets(Paths(tmp_path), tmp_path).resolve("codex")
    line = (
        "2026-11-26T17:00:22.29Z ERROR codex_core::tools::router: error=exec_command failed: CreateProcess { message: "
        """"Rejected(\\"`/bin/bash -lc 'rm -rf x'` rejected: rm -f style commands are not permitted\\")" }"""
    )
    events = event_readers.read_line(codex, line)
    assert rows(list(events)) == ["runs     rm -rf x · refused: rm -f style commands are not permitted"]
    assert event_readers.read_line(codex, "WARNING: x") == (Printed("WARNING: x"),)


def test_an_edit_is_a_path_with_the_lines_that_it_adds_and_removes() -> None:
    replaced = called("c1", "Edit", file_path="src/a.py", old_string="a\nb\n", new_string="a\nc\nd\n")
    written = called("c2", "Write", file_path="b.txt", content="1\n2\n3\n")
    assert rows(read("claude", claude("assistant", replaced, written))) == [
        "edits    src/a.py +2 −1",
        "edits    b.txt +3 −0",
    ]
    assert count_edit("", "") == (0, 0)
    changes = {"id": "i", "type": "file_change", "status": "completed", "changes": [{"path": "a"}, {"path": "b"}]}
    assert rows(read("codex", {"type": "item.completed", "item": changes})) == ["edits    a, b · ok"]


def test_a_sub_agent_is_folded_into_the_row_of_its_call() -> None:
    main = read("claude", claude("assistant", called("c1", "Task", description="look for callers")))
    inner = logged(read("claude", claude("assistant", called("c2", "Grep", pattern="f("))), parent="c1")
    end = logged(read("claude", claude("user", returned("c1", "three callers"))))
    entries = [*logged(main), *inner, *end]
    (folded,) = format_session(entries, SessionStyle(None))
    assert "Task look for callers · 1 event of its sub-agent: --subagents · ok" in folded
    assert len(list(format_session(entries, SessionStyle(None, with_subagents=True)))) == 2


def test_rows_are_wrapped_under_their_text_and_control_a_terminal_in_no_way() -> None:
    (row,) = format_session(logged([ModelText("one two three\x1b[2J four\n\nfive " * 4)]), SessionStyle(40))
    lines = row.splitlines()
    assert all(len(line) <= 40 for line in lines)
    assert all(line.startswith(" " * 19) for line in lines[1:])
    assert "\x1b" not in row


def test_a_followed_session_prints_a_call_at_once_and_a_result_only_if_it_failed() -> None:
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
