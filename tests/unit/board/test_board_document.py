"""Text to values and back: what is read, where entries begin, and which lines a change touches."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Literal, get_origin

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liza.board import revision_texts
from liza.board.text import changes, document, parse, splitter
from liza.board.text.splice import sorted_comments
from liza.board.text.values import FREE_FORM_KEYS, TIME_KEYS, from_plain, to_plain
from liza.model.configuration import Config
from liza.model.errors import BoardTooNew, BoardUnreadable
from liza.model.model import Agent, Anomaly, Discovery, Event, Handoff, Reservation, State, Status, Task

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
replace = msgspec.structs.replace

BOARD = """\
# a board kept by hand
version: 1
revision: 3

goal:
  id: g1          # the goal
  status: IN_PROGRESS
tasks:
  # the first one
  - id: "t1"   # an id
    status: CLAIMED # taken
    depends_on: [t2]
    assigned_to: null
    colour: red # nobody's key
    description: |
      - id: looks like a task
      tasks:
        # looks like a comment

  # the second one
  - id: t2
    status: DRAFT
    base_commit: 12e4567

agents:
  reviewer-1:
    role: code_reviewer
    status: IDLE
anomalies: []
config:
  lease_duration: 200
  lease_durations: 3
"""


def changed_lines(before: str, after: str) -> list[str]:
    lines = difflib.unified_diff(before.splitlines(), after.splitlines(), lineterm="", n=0)
    return [line for line in lines if line[:2] not in ("--", "++", "@@")]


def splice(text: str, after: State) -> str:
    """The text after a change, with everything proved that must always hold."""
    known = document.read_document(text)
    made = changes.change_document(known, after)
    assert document.load_state(made.text) == from_plain(to_plain(after), State)
    again = document.read_document(made.text)
    assert [(p.kind, p.section, p.text) for p in again.parts] == [(p.kind, p.section, p.text) for p in made.parts]
    stepwise = document.read_document(made.text, previous=known)
    assert [(p.kind, p.section, p.text) for p in stepwise.parts] == [(p.kind, p.section, p.text) for p in made.parts]
    entries = revision_texts.diff_entries(known, made, ())
    if entries is not None:
        assert revision_texts.apply_changes(known, entries) == made.text
    return made.text


def test_board_with_unknown_keys_is_read_by_the_models_names() -> None:
    state = document.load_state(BOARD)
    first, second = state.tasks
    assert first.depends_on == ("t2",)
    assert first.description == "- id: looks like a task\ntasks:\n  # looks like a comment\n"
    assert second.base_commit == "12e4567"
    assert state.agents["code-reviewer-1"].role == "code-reviewer"
    assert state.config.lease_duration == 200
    assert document.find_unknown_config(BOARD) == ("lease_durations",)


def test_a_status_change_keeps_the_comment_on_its_line() -> None:
    state = document.load_state(BOARD)
    after = state.with_task(replace(state.tasks[0], status=Status.BLOCKED))
    assert changed_lines(BOARD, splice(BOARD, after)) == [
        "-    status: CLAIMED # taken",
        "+    status: BLOCKED # taken",
    ]


def test_a_key_at_its_default_is_replaced_and_never_doubled() -> None:
    state = document.load_state(BOARD)
    text = splice(BOARD, state.with_task(replace(state.tasks[0], assigned_to="coder-1")))
    assert changed_lines(BOARD, text) == ["-    assigned_to: null", '+    assigned_to: "coder-1"']


def test_a_value_reset_to_its_default_keeps_its_comment() -> None:
    text = BOARD.replace("    status: DRAFT\n", "    status: DRAFT\n    iteration: 4 # many\n")
    state = document.load_state(text)
    made = splice(text, state.with_task(replace(state.tasks[1], iteration=0)))
    assert changed_lines(text, made) == ["-    iteration: 4 # many", "+    # many"]


def test_history_grows_by_lines_after_the_last_event() -> None:
    text = BOARD
    for number in range(3):
        state = document.load_state(text)
        task = state.tasks[1]
        event = Event(time=NOW, event="claim", run=f"coder-1.{number}")
        text = splice(text, state.with_task(replace(task, history=(*task.history, event))))
    made = splice(
        text,
        (state := document.load_state(text)).with_task(
            replace(state.tasks[1], history=(*state.tasks[1].history, Event(time=NOW, event="submit")))
        ),
    )
    assert all(line.startswith("+") for line in changed_lines(text, made))
    assert len(changed_lines(text, made)) <= 4


def test_a_whole_transition_is_a_diff_of_few_lines() -> None:
    state = document.load_state(BOARD)
    task = replace(
        state.tasks[1],
        status=Status.CLAIMED,
        assigned_to="coder-1",
        run="coder-1.7",
        worktree="s1",
        lease_expires=NOW,
        iteration=1,
        history=(Event(time=NOW, event="claim", agent="coder-1", run="coder-1.7"),),
    )
    assert len(changed_lines(BOARD, splice(BOARD, replace(state.with_task(task), revision=4)))) <= 15


def test_new_entries_new_sections_and_sections_that_were_empty() -> None:
    state = document.load_state(BOARD)
    after = replace(
        state,
        tasks=(*state.tasks, Task(id="12e4567", status=Status.UNCLAIMED, description="Say: hello # there")),
        agents={**state.agents, "coder-1": Agent(role="coder", status="IDLE", runs=1)},
        anomalies=(Anomaly(timestamp=NOW, type="trade_off", details={"n": 5, "s": "5", "list": ["true", True, None]}),),
        discovered=(Discovery(id="d1", description="two\nlines"),),
        handoff={"t1": Handoff(agent="coder-1", summary="done: all", next_steps=("a", "b"))},
    )
    text = splice(BOARD, after)
    assert not [line for line in changed_lines(BOARD, text) if line.startswith("-") and line != "-anomalies: []"]
    assert document.load_state(text).anomalies[0].details == {"n": 5, "s": "5", "list": ["true", True, None]}
    assert splice(text, replace(after, anomalies=(*after.anomalies, after.anomalies[0])))


def test_entries_leave_and_the_last_of_a_section_too() -> None:
    state = document.load_state(BOARD)
    text = splice(BOARD, replace(state, tasks=state.tasks[1:]))
    assert "# the second one" in text
    assert document.load_state(splice(text, replace(document.load_state(text), tasks=()))).tasks == ()
    assert document.load_state(splice(BOARD, replace(state, tasks=state.tasks[::-1]))).tasks == state.tasks[::-1]


ODD = {
    "windows line endings": BOARD.replace("\n", "\r\n"),
    "no newline at the end": BOARD.rstrip("\n"),
    "items not indented": """version: 1
revision: 1
goal: {id: g, status: IN_PROGRESS}
tasks:
- id: t1
  status: CLAIMED
  history:
  - time: "2026-01-01T12:00:00Z"
    event: add
- id: t2
  status: DRAFT
agents: {}
""",
    "a document marker": "---\n" + BOARD,
    "both document markers": "---\n" + BOARD + "...\n",
    "a byte order mark": "\ufeff" + BOARD,
    "quoted keys": BOARD.replace("tasks:\n", '"tasks":\n').replace("    status: DRAFT", "    'status': DRAFT"),
    "anchors": BOARD.replace('id: "t1"', 'id: &one "t1"').replace("DRAFT", "DRAFT\n    depends_on: [*one]"),
    "tabs in comments": BOARD.replace("# taken", "#\ttaken").replace("  # the second one", "  #\tthe second\tone"),
    "comments at the margin": BOARD.replace("  # the second one", "# the second one"),
    "a colon in a flow mapping": BOARD.replace("colour: red", "colour: {url: http://x}"),
    "tasks between brackets": """version: 1
revision: 1
goal: {id: g, status: IN_PROGRESS}
tasks: [{id: t1, status: CLAIMED, x: 1}, {id: t2, status: DRAFT}] # all
agents: {coder-1: {role: coder, status: IDLE}}
""",
    "a quoted value over several lines": BOARD.replace(
        "    status: DRAFT\n", '    status: DRAFT\n    scope: "one\n      - id: t9\n      two # no"\n'
    ),
    "a quoted value that goes to the margin": BOARD.replace(
        "    status: DRAFT\n", '    status: DRAFT\n    scope: "one\n\n      tasks:\n\n      two"\n'
    ),
    "a block scalar at the very end": BOARD + "notes: |\n  - id: t9\n  agents:",
    "a keeping block scalar": BOARD.replace("description: |\n", "description: |+\n"),
    "a key with a question mark": BOARD.replace("    status: DRAFT", "    ? status\n    : DRAFT"),
    "dash on a line of its own": BOARD.replace("  - id: t2\n", "  -\n    id: t2\n"),
    "an empty section": BOARD.replace("anomalies: []", "anomalies:\nhandoff: # none\ndiscovered: ~"),
}


@pytest.mark.parametrize("text", ODD.values(), ids=ODD.keys())
def test_oddly_typed_boards_survive_every_kind_of_change(text: str) -> None:
    state = document.load_state(text)
    assert [task.id for task in state.tasks] == ["t1", "t2"]
    before = sorted_comments(text)
    first, second = state.tasks
    for after in (
        replace(state, revision=9),
        state.with_task(replace(second, status=Status.UNCLAIMED, description="new\ntext", depends_on=("t1",))),
        state.with_task(
            replace(
                first,
                status=Status.BLOCKED,
                assigned_to="coder-1",
                history=(*first.history, Event(time=NOW, event="x")),
            )
        ),
        replace(state, tasks=(*state.tasks, Task(id="t3", status=Status.DRAFT, description="x"))),
        state.with_agent("coder-7", Agent(role="coder", status="IDLE")),
        replace(state, anomalies=(Anomaly(timestamp=NOW, type="workaround"),)),
    ):
        made = splice(text, after)
        assert sorted_comments(made) == before
        assert ("\r\n" in made) == ("\r\n" in text)
        assert "\n" not in made.replace("\r\n", "") or "\r\n" not in text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "is empty"),
        ("- a\n", "is not a mapping"),
        ("tasks: [\n", "state.yaml:2:1"),
        (BOARD.replace("goal:", "goat:"), "has no goal"),
        (BOARD.replace("DRAFT", "DRAUGHT"), "status is 'DRAUGHT', wanted one of DRAFT, UNCLAIMED, CLAIMED, "),
        (BOARD.replace("    status: DRAFT", "    status: DRAFT\n    status: DRAFT"), "the key 'status' occurs twice"),
        (BOARD + "tasks: []\n", "the key 'tasks' occurs twice"),
        (BOARD + "---\nversion: 1\n", "more than one document"),
    ],
)
def test_an_unreadable_board_is_an_error_with_its_position(text: str, said: str) -> None:
    with pytest.raises(BoardUnreadable) as caught:
        document.load_state(text)
    assert said in caught.value.message
    assert caught.value.hint


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("priority: high", "tasks[0].priority is a text, wanted a whole number"),
        ("depends_on: t1", "tasks[0].depends_on is a text, wanted a list"),
        ("created: yesterday", "tasks[0].created is no time, wanted a time such as 2026-01-01T12:00:00Z"),
        ("handoff_pending: perhaps", "tasks[0].handoff_pending is a text, wanted true or false"),
        ("merging: {expected: x}", "tasks[0].merging.candidate is missing, wanted a value"),
    ],
)
def test_a_value_of_the_wrong_kind_has_a_plain_error(typed: str, said: str) -> None:
    text = f"version: 1\nrevision: 1\ngoal: {{id: g, status: X}}\ntasks:\n  - id: t1\n    status: DRAFT\n    {typed}\n"
    with pytest.raises(BoardUnreadable) as caught:
        document.load_state(text)
    assert said in caught.value.message
    assert caught.value.hint == "liza restore --last-good"


def test_a_newer_board_is_refused_as_newer() -> None:
    for newer in (BOARD, BOARD.replace("DRAFT", "LEVITATING"), "---\n" + BOARD):
        with pytest.raises(BoardTooNew):
            document.load_state(newer.replace("version: 1", "version: 2"))


def test_plain_scalars_below_open_keys_follow_yaml_1_2() -> None:
    text = BOARD.replace(
        "anomalies: []",
        "anomalies:\n  - timestamp: 2026-01-01\n    type: x\n"
        "    details: {a: 1, b: 0x1F, c: 1.5, d: no, e: '1', f: ~, g: true}",
    )
    assert document.load_state(text).anomalies[0].details == {
        "a": 1,
        "b": 31,
        "c": 1.5,
        "d": "no",
        "e": "1",
        "f": None,
        "g": True,
    }
    assert document.load_state(text).anomalies[0].timestamp == datetime(2026, 1, 1, tzinfo=UTC)
    assert {"details", "metrics"} <= FREE_FORM_KEYS
    assert {"lease_expires", "time"} <= TIME_KEYS


def test_an_agent_in_an_old_form_is_changed_in_place() -> None:
    text = ODD["anchors"]
    state = document.load_state(text)
    after = state.with_agent("code-reviewer-1", replace(state.agents["code-reviewer-1"], runs=2))
    assert changed_lines(text, splice(text, after)) == ["+    runs: 2"]


def test_a_rewritten_entry_keeps_windows_line_endings() -> None:
    event = '    history:\n      - {time: "2026-01-01T12:00:00Z", event: claim, mine: {url: http://x}}\n'
    text = BOARD.replace("    status: DRAFT\n", "    status: DRAFT # why\n" + event).replace("\n", "\r\n")
    state = document.load_state(text)
    task = state.tasks[1]
    made = splice(text, state.with_task(replace(task, history=(replace(task.history[0], event="stop"),))))
    assert "mine: {url: http://x}" in made
    assert made.replace("\r\n", "").isprintable()


def test_only_the_changed_entry_is_parsed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    known = document.read_document(BOARD)
    asked: list[str] = []
    real = parse.parse_part

    def counted(text: str, key: str) -> Any:
        asked.append(text)
        return real(text, key)

    monkeypatch.setattr(document.parse, "parse_part", counted)
    again = document.read_document(
        BOARD.replace("DRAFT", "UNCLAIMED").replace("revision: 3", "revision: 4"), previous=known
    )
    assert len(asked) == 2
    assert again.parts[0] is known.parts[0]


def many_tasks(rows: list[tuple[int, str]]) -> str:
    tasks = "".join(f"  # about {n}\n  - id: t{n}\n    status: DRAFT\n    description: {text}\n" for n, text in rows)
    head = "version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\ntasks:\n"
    return head + tasks + "agents:\n  coder-1:\n    role: coder\n    status: IDLE\n"


@pytest.mark.parametrize(("tasks", "changed"), [(40, 8), (800, 45)])
def test_neighbours_that_changed_are_read_without_splitting_the_whole_board(
    monkeypatch: pytest.MonkeyPatch, tasks: int, changed: int
) -> None:
    wanted = ["new" if 5 <= n < 5 + changed else "old" for n in range(tasks)]
    known = document.read_document(many_tasks([(n, "old") for n in range(tasks)]))
    text = many_tasks(list(enumerate(wanted)))
    split: list[str] = []
    real = splitter.split_board
    monkeypatch.setattr(document.splitter, "split_board", lambda part: split.append(part) or real(part))
    again = document.read_document(text, previous=known)
    assert text not in split
    assert [task.description for task in again.state.tasks] == wanted


@given(st.lists(st.sampled_from(["keep", "change", "remove", "add"]), min_size=24, max_size=24))
def test_reading_changed_tasks_incrementally_equals_a_full_read(edits: list[str]) -> None:
    known = document.read_document(many_tasks([(n, "old") for n in range(24)]))
    rows: list[tuple[int, str]] = []
    for n, edit in enumerate(edits):
        rows += [] if edit == "remove" else [(n, "new" if edit == "change" else "old")]
        rows += [(100 + n, "added")] if edit == "add" else []
    text = many_tasks(rows)
    stepwise, fresh = document.read_document(text, previous=known), document.read_document(text)
    assert stepwise.state == fresh.state
    assert [(p.kind, p.section, p.text) for p in stepwise.parts] == [(p.kind, p.section, p.text) for p in fresh.parts]


# ── any board, any change ────────────────────────────────────────────────────────────────────────────────────────────

TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            "plain words",
            "a: b # c",
            "- id: x",
            "null",
            "12e4567",
            "0x1F",
            "true",
            "'",
            '"',
            "\\",
            "#",
            " x",
            "x ",
            "|",
            "a\nb",
            "a\n\nb\n",
            "\n",
            " a\nb",
            "a\nb ",
            "a\tb\n\tc",
            "\u2028",
            "\x85",
            "é😀",
            "...\n---\n",
            "a\r\nb",
            "%x",
            "@x",
            "{a",
            "[a",
            "? a",
            ": a",
        ]
    ),
    st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12),
)
IDS = st.sampled_from(["t1", "t2", "t3", "12e4567", "null", "1_000", "0o17", "True", "a-b_c"])
TASKS = st.builds(
    Task,
    id=IDS,
    status=st.sampled_from(Status),
    description=TEXTS,
    priority=st.integers(1, 5),
    scope=TEXTS,
    depends_on=st.lists(IDS, max_size=3).map(tuple),
    assigned_to=st.none() | st.just("coder-1"),
    lease_expires=st.none() | st.just(NOW),
    reservation=st.none()
    | st.builds(
        Reservation,
        agent=st.just("coder-1"),
        run=st.just("coder-1.2"),
        slot=TEXTS,
        host=TEXTS,
        boot=TEXTS,
        pid=st.integers(1, 9),
        start=TEXTS,
        expires=st.just(NOW),
    ),
    tested=st.none() | st.booleans(),
    rejection_reason=st.none() | TEXTS,
    history=st.lists(
        st.builds(Event, time=st.just(NOW), event=st.sampled_from(["claim", "no", "x y"]), detail=st.none() | TEXTS),
        max_size=3,
    ).map(tuple),
)
OPEN_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9999) | st.floats(allow_nan=False, width=32) | TEXTS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["a", "n", "no", "1", "x y", "é"]), inner, max_size=3)
    ),
    max_leaves=6,
)
STATES = st.builds(
    lambda tasks, agents, anomalies, metrics: replace(
        document.load_state("version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\n"),
        tasks=tuple({task.id: task for task in tasks}.values()),
        agents=agents,
        anomalies=tuple(anomalies),
        sprint=replace(document.load_state(BOARD).sprint, metrics=metrics),
    ),
    st.lists(TASKS, max_size=4),
    st.dictionaries(
        st.sampled_from(["coder-1", "coder-2", "planner-1"]),
        st.builds(Agent, role=st.just("coder"), status=st.just("IDLE"), runs=st.integers(0, 9)),
        max_size=3,
    ),
    st.lists(
        st.builds(
            Anomaly,
            timestamp=st.just(NOW),
            type=st.just("x"),
            details=st.dictionaries(st.sampled_from(["a", "b c"]), OPEN_VALUES, max_size=3),
        ),
        max_size=3,
    ),
    st.dictionaries(st.sampled_from(["a", "b"]), OPEN_VALUES, max_size=2),
)
MINIMAL = "version: 1\nrevision: 1\ngoal:\n  id: g\n  status: IN_PROGRESS\n"


def typed(state: State, way: int) -> str:
    """A board of that state with comments and keys of nobody's in it."""
    text = changes.change_document(document.read_document(MINIMAL), state).text
    lines = []
    for number, line in enumerate(text.splitlines()):
        if way & 1 and line.startswith("    status:"):
            line += f"  # why {number}"
        lines.append(line)
        if way & 2 and line.startswith(("tasks:", "agents:", "  coder-1:")) and line.endswith(":"):
            lines.append(f"{'    ' if line.startswith(' ') else '  '}# note {number}")
        if way & 4 and line.startswith("    status:"):
            lines.append("    mine: {url: http://x, list: [1, 2]}")
    end = "\r\n" if way & 8 else "\n"
    return end.join(lines) + ("" if way & 16 else end)


@settings(max_examples=12)
@given(STATES, STATES, st.integers(0, 31))
def test_any_board_becomes_any_other_and_keeps_remaining_comments(before: State, after: State, way: int) -> None:
    text = typed(before, way)
    known = document.read_document(text)
    assert known.state == from_plain(to_plain(before), State)
    kept = replace(
        after,
        tasks=tuple({t.id: t for t in (*before.tasks, *after.tasks)}.values()),
        agents={**before.agents, **after.agents},
    )
    made = splice(text, kept)
    assert sorted(set(sorted_comments(text))) == sorted(set(sorted_comments(made)))
    assert made.count("url: http://x") == text.count("url: http://x")
    splice(text, after)


def _choices(kind: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The settings below ``kind`` that have one of some words."""
    for field in msgspec.structs.fields(kind):
        if get_origin(field.type) is Literal or (isinstance(field.type, type) and issubclass(field.type, Enum)):
            yield (*path, field.encode_name)
        elif isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            yield from _choices(field.type, (*path, field.encode_name))


@pytest.mark.parametrize("path", sorted(_choices(Config)), ids=".".join)
def test_a_setting_with_a_wrong_word_lists_the_allowed_ones(path: tuple[str, ...]) -> None:
    lines = [f"{'  ' * depth}{name}:" for depth, name in enumerate(("config", *path))]
    text = "version: 1\nrevision: 1\ngoal: {id: g, status: IN_PROGRESS}\n" + "\n".join(lines)
    with pytest.raises(BoardUnreadable, match=r"one of [a-z]+, [a-z]+"):
        document.load_state(f"{text} nonsense\n")
