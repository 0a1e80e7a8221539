"""The clean filter as a function: adding a block and taking it out changes no text at all."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liza.git import filter_program as _filter
from liza.text.brief_marks import begin_mark, end_mark, strip_blocks
from liza.text.quoting import render_block
from tests.conftest import KEY, hidden_block

BLOCK = hidden_block("coder-1.7")
OTHER_KEY = "fedcba9876543210"
OTHER = hidden_block("code-reviewer-2.10", OTHER_KEY)
KEYS = (KEY, OTHER_KEY)

_PIECES = st.sampled_from(
    [
        b"",
        b"\n",
        b"\r\n",
        b"text",
        b"# Title\n",
        b"```\n",
        b"<!-- liza:begin run=coder-1.7 -->",
        b"<!-- liza:end run=coder-1.7 -->\n",
        b"<!-- liza:begin run=coder-1.7 key=abcdefabcdefabcd -->\n",
        b"-->",
        b"\xef\xbb\xbf",
        b"\xff\x00",
        "ü\n".encode(),
    ]
)
TEXTS = st.one_of(st.binary(max_size=60), st.lists(_PIECES, max_size=12).map(b"".join))


def render(text: bytes, brief: str = "[liza] do this") -> bytes:
    return render_block(f"BEGIN\n{brief}\nEND\n", "coder-1.7", KEY, text)


@given(TEXTS)
def test_adding_and_removing_a_block_restores_every_byte(text: bytes) -> None:
    assert strip_blocks(render(text), KEYS) == strip_blocks(text, KEYS) == text


@given(TEXTS, TEXTS)
def test_blocks_of_two_runs_both_go_wherever_they_are(before: bytes, after: bytes) -> None:
    before = before + b"\n" if before and not before.endswith(b"\n") else before
    after = after.lstrip(b" \t\r\n")
    assert strip_blocks(render(before + OTHER + after), KEYS) == before + after


_TEXT = b"# Rules\n\n- be kind\n"
_WHOLE = render(_TEXT)


@pytest.mark.parametrize(
    ("edited", "left"),
    [
        pytest.param(b"# Title\n" + _WHOLE, b"# Title\n" + _TEXT, id="line above"),
        pytest.param(b"# Title\n\n" + _WHOLE, b"# Title\n\n" + _TEXT, id="paragraph above"),
        pytest.param(_WHOLE + b"- more\n", _TEXT + b"- more\n", id="line below"),
        pytest.param(_WHOLE.replace(b"\n", b"\r\n"), _TEXT.replace(b"\n", b"\r\n"), id="CRLF"),
        pytest.param(render(_TEXT.replace(b"\n", b"\r\n")).replace(b"\r\n", b"\n"), _TEXT, id="LF"),
        pytest.param(_WHOLE.replace(b"\n\n", b"\n"), _TEXT.replace(b"\n\n", b"\n"), id="no blank lines"),
        pytest.param(b"\xef\xbb\xbf" + _WHOLE, b"\xef\xbb\xbf" + _TEXT, id="byte order mark added"),
        pytest.param(render(b"\xef\xbb\xbf" + _TEXT)[3:], _TEXT, id="byte order mark removed"),
        pytest.param(_WHOLE.replace(b"\n<", b"\n  <"), _TEXT, id="marks indented"),
        pytest.param(_WHOLE.replace(b"-->\n", b"-->  \n"), _TEXT, id="blanks after the marks"),
        pytest.param(_WHOLE.replace(b"<!-- ", b"<!--").replace(b" -->", b"-->"), _TEXT, id="marks without blanks"),
        pytest.param(render(b"") + b"new\n", b"new\n", id="empty file"),
        pytest.param(_TEXT, _TEXT, id="block removed"),
    ],
)
def test_tool_changes_around_a_block_leave_none_of_it(edited: bytes, left: bytes) -> None:
    assert strip_blocks(edited, KEYS) == left


@pytest.mark.parametrize(
    "brief", ["x", "a `b` and ```` c", "trailing  \t", "\ttab", "# head\n\n\n\n* item\n```sh\nx\n```"]
)
def test_the_block_is_a_fence_between_blank_lines(brief: str) -> None:
    lines = render(_TEXT, brief).decode().split("\n")
    fence = lines[4].removesuffix("text")
    assert lines[0] == begin_mark("coder-1.7", KEY)
    assert set(fence) == {"`"}
    assert lines[4:].index(fence) == brief.count("\n") + 2, "no line of the brief closes it"
    end = lines.index(end_mark("coder-1.7", KEY))
    assert lines[1] == lines[3] == lines[end - 3] == lines[end - 1] == lines[end + 1] == ""
    assert [line for line in lines if line != line.rstrip() or "\t" in line] == []
    assert render(b"").endswith(b"-->\n")


def test_a_block_has_the_line_ends_of_its_file() -> None:
    whole = render(b"\xef\xbb\xbf" + _TEXT.replace(b"\n", b"\r\n"))
    assert whole.startswith(b"\xef\xbb\xbf<!--")
    assert whole.count(b"\n") == whole.count(b"\r\n")


def test_a_block_without_its_end_is_ordinary_text() -> None:
    text = BLOCK.partition(b"<!-- liza:end")[0] + b"work\n" + OTHER.partition(b"\n")[2] + b"more work"
    assert strip_blocks(text, KEYS) == text


def test_text_that_shows_marks_is_the_projects_own() -> None:
    for text in (
        b"<!-- liza:begin run=X -->\nan example\n<!-- liza:end run=X -->\n",
        b"```\n<!-- liza:begin run=coder-1.7 -->\n```\n<!-- liza:end run=coder-1.7 -->\n",
        hidden_block("coder-1.7", "abcdefabcdefabcd"),
        f"a key={KEY} without a mark, <!-- liza:begin run=coder-1.7\nkey={KEY} -->\n".encode(),
    ):
        assert strip_blocks(text, (*KEYS, "")) == text
        assert strip_blocks(render(text), KEYS) == text


def test_the_filter_program_equals_its_function_and_starts_bare(tmp_path: Path) -> None:
    (tmp_path / ".git" / "info").mkdir(parents=True)
    (tmp_path / ".git" / "info" / "attributes").write_text(f"/AGENTS.md filter=x liza-key={KEY}\n*.png binary\n")
    words = [sys.executable, "-I", "-S", _filter.__file__]
    given_text = b"\xff" + OTHER + BLOCK + b"no newline"
    for directory, left in ((tmp_path, b"\xff" + OTHER + b"no newline"), (tmp_path / ".git", given_text)):
        done = subprocess.run(words, input=given_text, capture_output=True, check=True, cwd=directory, env={})
        assert done.stdout == left
