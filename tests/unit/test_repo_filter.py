"""The clean filter as a function: adding a block and taking it out changes no text at all."""

from __future__ import annotations

import subprocess
import sys

from hypothesis import given
from hypothesis import strategies as st

from liza.repo.hiding import _filter
from liza.repo.hiding.brief_filter import strip_blocks
from tests.conftest import add_block

BLOCK = b"<!-- liza:begin run=coder-1.7 -->\n[liza] do this\n<!-- liza:end run=coder-1.7 -->\n"
OTHER = b"<!-- liza:begin run=code-reviewer-2.10 -->\nx\n<!-- liza:end run=code-reviewer-2.10 -->\n"

_PIECES = st.sampled_from(
    [
        b"",
        b"\n",
        b"\r\n",
        b"text",
        b"# Title\n",
        b"<!-- liza:begin run=coder-1.7 -->",
        b"<!-- liza:begin run=coder-1.8 -->\n",
        b"<!-- liza:begin run=X -->\n",
        b"<!-- liza:end run=X -->\n",
        b"-->",
        b"\xff\x00",
        "ü\n".encode(),
    ]
)
TEXTS = st.one_of(st.binary(max_size=60), st.lists(_PIECES, max_size=12).map(b"".join))


@given(TEXTS)
def test_a_block_added_and_taken_out_gives_every_text_back_byte_by_byte(text: bytes) -> None:
    assert strip_blocks(add_block(text, BLOCK)) == strip_blocks(text) == text


@given(TEXTS, TEXTS)
def test_blocks_of_two_runs_both_go_wherever_lines_begin(before: bytes, after: bytes) -> None:
    middle = before + b"\n" if before and not before.endswith(b"\n") else before
    # A stray begin of the same run before it would pair with this end: that is not this case.
    middle = middle.replace(b"code-reviewer-2.10", b"")
    assert strip_blocks(add_block(middle + OTHER + after, BLOCK)) == middle + after


def test_crlf_written_into_the_block_by_an_editor_goes_with_it() -> None:
    assert strip_blocks(BLOCK.replace(b"\n", b"\r\n") + b"one\r\ntwo") == b"one\r\ntwo"


def test_a_block_without_its_end_is_text_and_nothing_after_it_is_lost() -> None:
    text = b"<!-- liza:begin run=coder-1.7 -->\nwork\n<!-- liza:end run=coder-1.8 -->\nmore work"
    assert strip_blocks(text) == text


def test_marks_of_no_run_or_in_the_middle_of_a_line_are_text() -> None:
    for text in (
        b"<!-- liza:begin run=X -->\nan example\n<!-- liza:end run=X -->\n",
        b"see <!-- liza:begin run=coder-1.7 -->\n<!-- liza:end run=coder-1.7 -->\n",
    ):
        assert strip_blocks(text) == text


def test_the_program_is_the_function_and_starts_without_site_or_environment() -> None:
    words = [sys.executable, "-I", "-S", _filter.__file__]
    done = subprocess.run(words, input=b"\xff" + OTHER + BLOCK + b"no newline", capture_output=True, check=True)
    assert done.stdout == strip_blocks(b"\xff" + OTHER + BLOCK + b"no newline")
    assert done.stdout.endswith(b"no newline")
