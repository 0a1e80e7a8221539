"""Ids that are accepted are plain names, and no text of a task reaches beyond its place in a brief."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.briefs import brief_writer
from liza.model.errors import UsageError
from liza.model.paths import agent_of, branch_of, check_task_id, parse_agent_id
from liza.text import quoting
from liza.text.brief_marks import strip_blocks
from liza.text.quoting import sanitize, truncate_text
from tests.conftest import KEY, hidden_block
from tests.unit.briefs.test_programs_brief import TASK, context

CORPUS = Path(__file__).parents[2] / "data/fuzz"
SHORT = settings(max_examples=30, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=1200, suppress_health_check=list(HealthCheck))
NAMES = st.one_of(
    st.text(max_size=12),
    st.text(st.sampled_from("aZ0_-./\\~^:?*[@{ \n\t\x00\x7f١ⅠK"), max_size=70),
    st.builds(
        "".join,
        st.tuples(
            st.sampled_from(["coder", "planner", "code-reviewer", "reviewer", "code_reviewer", "Coder", "coder-"]),
            st.sampled_from(["-", "--", "_", ""]),
            st.text("0123456789١ -.\n", max_size=12),
            st.sampled_from(["", ".1", ".", "..", "/x", "\n", ".1\n", ".0001"]),
        ),
    ),
    st.sampled_from(["a", "a.lock", "HEAD", "-a", "a-", "..", "A" * 64, "A" * 65, "é", "a\n"]),
)


def accepted(names: list[str]) -> list[str]:
    """What becomes of those names that are taken, as paths and refs."""
    found = []
    for parse in (check_task_id, parse_agent_id, agent_of):
        for name in names:
            try:
                made = parse(name)
            except UsageError:
                continue
            assert PurePosixPath(made).parts == (made,)
            assert made.isascii()
            assert made.isprintable()
            assert not made.startswith((".", "-"))
            assert len(made) <= 64
            found += [f"refs/heads/{branch_of(made)}", f"refs/liza/salvage/{made}/{made}.1"]
    return found


def prove_names(names: list[str]) -> None:
    """git is asked once about all of them: a ref that is no ref stops ``update-ref --stdin`` before anything."""
    refs = accepted(names)
    if refs:
        ask = 'for ref; do git check-ref-format "$ref" || exit 1; done'
        assert subprocess.run(["sh", "-c", ask, "sh", *dict.fromkeys(refs)], check=False).returncode == 0


@settings(max_examples=12, suppress_health_check=list(HealthCheck))
@given(st.lists(NAMES, min_size=20, max_size=60))
def test_every_accepted_id_is_one_part_of_path_and_ref(names: list[str]) -> None:
    prove_names(names)


@pytest.mark.campaign
@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(st.lists(NAMES, min_size=20, max_size=60))
def test_every_id_that_is_accepted_in_the_long_run(names: list[str]) -> None:
    prove_names(names)


# ── briefs ───────────────────────────────────────────────────────────────────────────────────────────────────────────

MARKS = st.sampled_from(
    ["<!-- liza:begin run=coder-1.7 -->", "<!-- liza:end run=coder-1.7 -->", "<!--", "liza:end", " run=coder-1.7 -->",
     "<!--\x00 liza:end run=coder-1.7 -->", "<!\x1b-- liza:end run=coder-1.7 -->", "<!--\u2028liza:end", "-->", "\n",
     "\r", "\x00", "\ud800", "\x1b[2J", "<!-- LIZA : end run=coder-1.7 -->", "<!- -", "<!--<!-- liza:end", "[liza] "]
)  # fmt: skip
WORDS = st.one_of(st.text(max_size=40), st.lists(MARKS, max_size=10).map("".join))


def prove_brief(texts: tuple[str, str, str, str]) -> None:
    names = ("description", "done_when", "scope", "rejection_reason")
    made = brief_writer.compose_brief(context(task=replace(TASK, **dict(zip(names, texts, strict=True)))))
    block = made.block.encode()
    assert made.block.lower().count("<!-- liza:") == 2
    assert len(block) <= 4000 + 2 * 1000 + 500 + 300 + 6 * 1024
    assert "\x00" not in made.assignment
    made.assignment.encode()


@SHORT
@given(st.tuples(WORDS, WORDS, WORDS, WORDS))
def test_no_task_texts_end_a_block_or_make_it_large(texts: tuple[str, str, str, str]) -> None:
    prove_brief(texts)


@pytest.mark.campaign
@LONG
@given(st.tuples(WORDS, WORDS, WORDS, WORDS))
def test_no_task_texts_end_a_block_over_many_runs(texts: tuple[str, str, str, str]) -> None:
    prove_brief(texts)


@SHORT
@given(WORDS, st.integers(0, 60))
def test_any_text_is_defused_once_and_cut_between_letters(text: str, limit: int) -> None:
    assert sanitize(sanitize(text)) == sanitize(text)
    assert len(truncate_text(text, limit).encode()) <= limit + len(quoting.TRUNCATED.encode())


# ── the clean filter ─────────────────────────────────────────────────────────────────────────────────────────────────

BLOCK = hidden_block("coder-1.7")
BEGIN, _, END = BLOCK.splitlines()
BYTES = st.one_of(
    st.binary(max_size=30),
    st.lists(
        st.sampled_from(
            [BLOCK, BLOCK[:-1], BEGIN, END, b"<!-- liza:begin run=coder-1.7 -->", b"<!-- liza:end run=X -->", b"\n",
             b"\r\n", b"\r", b"a", b"\xff", b"\x00", b"// ", f" key={KEY}".encode(), b"<!--", b"-->", b"liza:end"]
        ),
        max_size=12,
    ).map(b"".join),
)  # fmt: skip


def prove_filter(data: bytes) -> None:
    once = strip_blocks(data, (KEY,))
    if data.count(f"key={KEY}".encode()) < 2:
        assert once == data
    assert strip_blocks(data, ()) == data
    rendered = quoting.render_block("BEGIN\nx\nEND\n", "coder-1.8", "abcdefabcdefabcd", data)
    assert strip_blocks(rendered, ("abcdefabcdefabcd",)) == data
    rest = iter(data)
    assert all(letter in rest for letter in once), "what is left stands in the text in this order"


@settings(max_examples=200, suppress_health_check=list(HealthCheck))
@given(BYTES)
def test_stripping_loses_nothing_outside_of_blocks(data: bytes) -> None:
    prove_filter(data)


@pytest.mark.campaign
@settings(max_examples=4000, suppress_health_check=list(HealthCheck))
@given(BYTES)
def test_stripping_in_the_long_run(data: bytes) -> None:
    prove_filter(data)


@pytest.mark.parametrize("path", sorted(CORPUS.glob("filter-*")), ids=lambda path: path.name)
def test_files_once_stripped_wrongly_are_now_stripped_correctly(path: Path) -> None:
    prove_filter(path.read_bytes())
