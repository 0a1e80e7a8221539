"""The parser for what Liza writes gives the events that ruamel's parser gives, or refuses the text."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from _ruamel_yaml import CParser
from hypothesis import example, given
from hypothesis import strategies as st

from liza.board.text import machine_form, parse, plain_form, yaml_lines
from liza.board.text.machine_form import NotMachineForm
from liza.board.text.yaml_lines import Style

EXAMPLE = Path(__file__).parents[2] / ".liza.example" / "state.yaml"
BOARD = """\
# The board of this crew.
version: 1
goal:
  id: "goal"
  status: IN_PROGRESS
tasks:
  - id: "t0"
    description: |
      Write it:

        - with "care"  # no comment
    note: |-
      last line
      no end
    depends_on: ["a", b-1, 2, -3.5]
    spec_ref: "a\\"b\\\\\\u00e9\\U0001f600 # é😀"
    done_when: t0.txt (it) is/there, v1.0+x
    run: null   # nobody
    history:
      - {time: "2026-11-22T16:06:13Z", event: add, n: 7}
      # below
      - {}
    empty:
    list: []
  - id: "t1"
agents:
  coder-1:
    role: coder
  "2":
    role: x
discovered: []
last:
"""


def library_events(text: str) -> list[Any]:
    parser = CParser(text)
    events = []
    while not events or type(events[-1]).__name__ != "StreamEndEvent":
        events.append(parser.get_event())
    return events


def describe(events: list[Any]) -> list[tuple[Any, ...]]:
    """Return what an event means, and its marks where an outline uses them."""
    rows, flows = [], []
    for event in events:
        name = type(event).__name__
        start, end = event.start_mark, event.end_mark
        row: tuple[Any, ...] = ()
        if name == "ScalarEvent":
            row = (event.value, event.style or None, tuple(event.implicit), event.anchor)
            row += (start.line, start.column, end.line, end.column)
        elif name in ("MappingStartEvent", "SequenceStartEvent"):
            flows.append(bool(event.flow_style))
            row = (flows[-1], event.anchor, start.line, start.column)
        elif name in ("MappingEndEvent", "SequenceEndEvent") and flows.pop():
            row = (end.line, end.column)
        elif name == "DocumentStartEvent":
            row = (bool(event.explicit),)
        rows.append((name, *row))
    return rows


def is_read_alike(text: str) -> bool:
    """Return whether the text was read, and alike; False if it was refused."""
    try:
        events = machine_form.list_events(text)
    except NotMachineForm:
        return False
    assert describe(events) == describe(library_events(text)), text
    return True


def test_the_form_of_a_board_is_read() -> None:
    assert is_read_alike(BOARD)


KEYS = st.sampled_from([
    "a", "b_c", "null", "x-1", '"q"', '"q r"', "'s'", "1", "?", "<<", "a b", "", "~", "-a", '"":', "é",
])  # fmt: skip
VALUES = st.sampled_from([
    "", " ", "a", "a b", "a  b", "a b ", "1", "-1", "- 1", "-", "--- a", "---", "...", ".5", "1.5", "+1", "0x1f", "~",
    "null", "true", '"a"', '"a" # c', '"a"#c', '"a\\n\\t\\r\\"\\\\"', '"\\u0041\\U0001F600"', '"\\u00e9 \\U0001f600"',
    '"\\ud800"', '"\\x41"', '"\\e"', '"\\/"', '"\\', '"a', '""', '"\\u0000"', '"\\U00110000"', '" a "', '"#"',
    '"a: b"', "'a'", "a # c", "a#c", "a #c", "# c", "#", "a: b", "a:", "a:b", ":a", "a, b", "(a)", "a)", "[a", "[]",
    "[a]", "[a, b]", "[a,b]", "[a, ]", "[, a]", "[ a ]", "[a b]", '["a", 1, -x, .y]', '["a" , b]', "[a] # c", "[a]#c",
    "[a] b", "[[a]]", "[a: b]", '["a": b]', "[-]", "[- a]", "[.]", "[a#b]", "[a+b/c]", "{}", "{a: b}", "{a: b, c: d}",
    "{a: b,c: d}", "{a}", "{a: }", "{a:}", "{a:b}", '{"a": b}', '{a: "b"}', '{a: "b", c: 1}', "{a: b, }",
    "{a: {b: c}}", "{a: b} # c", "{ a: b }", "{a: -}", "{a: -b}", "{a: b: c}", "{a:  b}", "{<<: a}", "|", "|-", "|+",
    "|2", ">", "| # c", "| a", "&a b", "*a", "!t a", "!!str a", "@a", "`a`", "%a", "a\tb", "\ta", "é", "a\u2028b",
    "/a", "a/b", "a.", "a,", "(", ")", "C++", "a - b", "a -b", "- a: b", "- - a", "a?", "?a", "..", "-.inf", "--",
    "-a", "-(",
])  # fmt: skip
LINES = st.one_of(
    st.builds(
        "{}{}{}:{}{}".format,
        st.sampled_from(["", " ", "  ", "    ", "      ", "   "]),
        st.sampled_from(["", "", "", "- ", "-  ", "- - "]),
        KEYS,
        st.sampled_from([" ", "", "  "]),
        VALUES,
    ),
    st.builds("{}{}{}".format, st.sampled_from(["", "  ", "    ", "      "]), st.sampled_from(["", "- "]), VALUES),
    st.sampled_from(
        ["", "  ", "#c", "  # c", "        # c", "---", "a:", "  - a: 1", "  b: 2", "    c: |", "      text"]
    ),
)


@given(st.lists(LINES, max_size=7), st.sampled_from(["\n", "\n", "\n", "\n\n", "", "\r\n"]))
@example(["a: |", "  x", "", "b: 1"], "\n")
@example(["a: |", "  x", "# c"], "\n")
@example(["a: |", "    x", "   ", "    y"], "\n")
@example(["a: |", "  x", "      ", "  y"], "\n")
@example(["a: |", " x", "  y"], "\n")
@example(["a:", "- b"], "\n")
@example(["a: b", "  c"], "\n")
@example(["- a: |", "   x"], "\n")
@example(["- |", " x"], "\n")
@example(["  a: 1", " b: 2"], "\n")
@example(["a:", "  # c", "  b: 1", " # c", "  c: 2"], "\n")
def test_lines_are_read_as_by_the_library_or_refused(lines: list[str], end: str) -> None:
    is_read_alike("\n".join(lines) + end)


CHANGES = [*' \n:-#"\\[]{},|>&*!a1.é\t', "\n  ", ": ", "- ", " #"]


@given(st.data())
def test_a_changed_board_is_read_as_by_the_library_or_refused(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([BOARD, EXAMPLE.read_text()] if EXAMPLE.exists() else [BOARD]))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        end = at + data.draw(st.integers(0, 3))
        text = text[:at] + data.draw(st.sampled_from(CHANGES)) + text[end:]
    is_read_alike(text)


TABLE_KEYS = st.sampled_from(["a", "history", "why", "status", "scope", "null"])
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(max_size=9),
    st.sampled_from(["a\nb", "a\n\n b\n"]),
)
PLAIN = st.recursive(
    SCALARS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TABLE_KEYS, values, max_size=3),
    max_leaves=9,
)


@given(st.dictionaries(TABLE_KEYS, PLAIN, min_size=1))
def test_what_liza_writes_is_read_as_by_the_library_or_refused(value: dict[str, Any]) -> None:
    is_read_alike("".join(f"{line}\n" for line in yaml_lines.mapping_lines(value, 0, Style())))


WORDS = st.text("abz019 _.,/()+-#:\"'\\{}[]&*!|>%@é😀", max_size=20)


@given(st.dictionaries(st.sampled_from(["scope", "why", "status", "id"]), WORDS | st.integers(), min_size=1))
def test_the_texts_and_numbers_that_liza_writes_are_read(value: dict[str, Any]) -> None:
    entry = {"tasks": [{**value, "list": list(value.values()), "history": [value], "text": "one\n  two\n"}]}
    assert is_read_alike("".join(f"{line}\n" for line in yaml_lines.mapping_lines(entry, 0, Style())))


@pytest.mark.parametrize(
    ("tasks", "comment", "imports"),
    [(1, "", "False"), (4000, "", "False"), (1, " # x", "False"), (4000, " # x", "True")],
)
def test_the_library_is_imported_for_much_text_that_is_not_as_liza_writes_it(
    tasks: int, comment: str, imports: str
) -> None:
    code = (
        "import sys; from liza.board.text import document\n"
        f"text = 'version: 1\\nrevision: 1\\ngoal:\\n  id: g\\n  status: IN_PROGRESS\\ntasks:\\n' + ''.join("
        f"f'  - id: t{{n}}\\n    status: DRAFT\\n    scope: a long text{comment}\\n' for n in range({tasks}))\n"
        "print(len(document.load_state(text).tasks), '_ruamel_yaml' in sys.modules)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.split() == [str(tasks), imports]


def test_values_and_outlines_are_the_same_with_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "_ruamel_yaml", raising=False)
        patch.setattr(parse, "_machine_text", 0)
        patch.setattr(parse, "_parse_with_library", None)
        values = parse.parse_text(BOARD), parse.parse_part_by_events(BOARD, "tasks"), parse.parse_outline(BOARD)
    monkeypatch.setattr(parse, "_list_machine_events", lambda text: None)
    assert values == (parse.parse_text(BOARD), parse.parse_part_by_events(BOARD, "tasks"), parse.parse_outline(BOARD))


def is_plain_alike(text: str, key: str = "tasks") -> bool:
    """Return whether the value was read without events, and alike; False if the text was refused."""
    try:
        value = plain_form.read_plain(text, key)
    except NotMachineForm:
        return False
    assert repr(value) == repr(parse.parse_part_by_events(text, key)), text
    return True


ENTRY = """\
  - id: "t0"
    description: |
      Write it:

        - with "care"  # no comment
    note: |-
      last line
      no end
    depends_on: ["a", b-1, 2, -3.5]
    failed_by: ["reviewer-1", code_reviewer-2]
    spec_ref: "a\\"b\\\\\\u00e9\\U0001f600 # é😀"
    done_when: t0.txt (it) is/there, v1.0+x
    created: 2026-11-22
    reservation:
      agent: reviewer-3
      expires: "2026-11-22T16:06:13"
    metrics: {total: 7, share: .5, none: null, no: false, text: "7", list: x}
    details: []
    history:
      - {time: "2026-11-22T16:06:13Z", event: add, run: reviewer-1.7}
      - {}
    steps:
      - one two
      - "three"
      - name: n
        more:
          - x
"""


def test_an_entry_as_liza_writes_it_is_read_without_events() -> None:
    assert is_plain_alike(ENTRY)
    assert is_plain_alike('  coder-1:\n    role: reviewer\n    "status": IDLE\n', "agents") is False
    assert is_plain_alike("  coder-1:\n    role: reviewer\n    status: IDLE\n", "agents")
    assert is_plain_alike("revision: 7\n", "")


KEY_NAMES = ["a", "b", "metrics", "details", "run", "role", "created", "for", "null"]
PLAIN_LINES = st.one_of(
    LINES,
    st.builds(
        "{}{}{}:{}{}".format,
        st.sampled_from(["", "  ", "    ", "      "]),
        st.sampled_from(["", "", "- "]),
        st.sampled_from(KEY_NAMES),
        st.sampled_from([" ", "", "  "]),
        st.one_of(VALUES, st.sampled_from(["2026-01-01", "reviewer-1", "{run: reviewer-1, a: null, b: 1}"])),
    ),
)


@given(
    st.lists(PLAIN_LINES, max_size=7), st.sampled_from(["\n", "\n", "\n\n", ""]), st.sampled_from(["", "tasks", "for"])
)
@example(["a: |", "  x", "# c"], "\n", "")
@example(["a: |", "    x", "   ", "    y"], "\n", "")
@example(["a:", "- b"], "\n", "")
@example(["a:", "  - b", " c: 1"], "\n", "")
@example(["a:", "    b: 1", "  c: 2"], "\n", "")
@example(["metrics:", "  a: 1"], "\n", "")
@example(["- a: 1", "  b:", "  - c"], "\n", "")
@example(["a: 1", "  b: 1"], "\n", "")
def test_lines_are_read_without_events_as_with_them_or_refused(lines: list[str], end: str, key: str) -> None:
    is_plain_alike("\n".join(lines) + end, key)


@given(st.data())
def test_a_changed_entry_is_read_without_events_as_with_them_or_refused(data: st.DataObject) -> None:
    text = ENTRY
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(text)))
        size = data.draw(st.sampled_from([0, 0, 1, 1, 2, 9]))
        text = text[:at] + data.draw(st.sampled_from(CHANGES)) + text[at + size :]
    is_plain_alike(text)
