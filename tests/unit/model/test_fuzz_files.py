"""Whatever bytes lie in the journal, the seal, the mark and a file of tasks: an answer, or an error of Liza's own."""

from __future__ import annotations

import shutil
import tempfile
import tracemalloc
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from liza.board import recorded_mark, revision_texts, revisions
from liza.board.file_store import revision_journal, write_intent
from liza.board.file_store.file_board import FileBoard
from liza.model.errors import LizaError, UsageError
from liza.model.model import HumanNote
from liza.model.paths import Paths
from liza.tasks.task import parse_tasks
from tests.conftest import FakeClock
from tests.edges.board.test_board_store import FIRST

CORPUS = Path(__file__).parents[2] / "data/fuzz"
SHORT = settings(max_examples=25, suppress_health_check=list(HealthCheck))
LONG = settings(max_examples=800, suppress_health_check=list(HealthCheck))


def _corpus(kind: str) -> list[Path]:
    return sorted(CORPUS.glob(f"{kind}-*"))


LINES = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([path.read_bytes() for path in _corpus("journal")]),
    st.builds(
        lambda number: revisions.format_record(revisions.RevisionRecord(number, sha256="x")),
        st.integers(-3, 1 << 70),
    ),
    st.builds(lambda number: revisions.format_record(revisions.RevisionRecord(void=number)), st.integers(-3, 9)),
    st.sampled_from([b"\n", b"# torn: ", b"- ", b"- {}\n", b"\r\n", b"- []\n", b'- {"revision": 1.5}\n']),
)


@st.composite
def scraps(draw: st.DrawFn) -> bytes:
    """A journal with its end cut off somewhere."""
    data = b"".join(draw(st.lists(LINES, max_size=8)))
    return data[: len(data) - draw(st.integers(0, 60))] if data else data


def prove_journal(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.yaml"
        path.write_bytes(data)
        before = list(revision_journal.iter_newest_first(path))
        assert revision_journal.highest_revision(path) >= 0
        fresh = revisions.RevisionRecord(revision_journal.highest_revision(path) + 1, actor="after", sha256="z")
        revision_journal.append_record(path, fresh)
        assert revision_journal.last_record(path) == fresh
        assert list(revision_journal.iter_newest_first(path))[1:] == before
        kept = path.read_bytes()
        assert kept.endswith(revisions.format_record(fresh))
        assert kept.startswith(data[: data.rfind(b"\n") + 1])


@SHORT
@given(scraps())
def test_any_bytes_in_the_journal_lose_no_other_entry(data: bytes) -> None:
    prove_journal(data)


@pytest.mark.campaign
@LONG
@given(scraps())
def test_a_journal_of_any_bytes_in_the_long_run(data: bytes) -> None:
    prove_journal(data)


@pytest.mark.parametrize("path", _corpus("journal"), ids=lambda path: path.name)
def test_journals_that_were_found_odd_once_are_read_for_ever(path: Path) -> None:
    prove_journal(path.read_bytes())


def test_a_long_damaged_journal_line_is_skipped_at_once(tmp_path: Path) -> None:
    path = tmp_path / "log.yaml"
    path.write_bytes(revisions.format_record(revisions.RevisionRecord(1)) + b"\0" * (16 << 20))
    assert [record.revision for record in revision_journal.iter_newest_first(path)] == [1]


# ── a board whose seal, mark and journal hold anything ───────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("crew")
    board = FileBoard(Paths(root), FakeClock())
    board.create(FIRST)
    for word in ("one", "two"):
        _say(board, word)
    return root


def _say(board: FileBoard, word: str) -> None:
    with board.transaction("human", "note") as tx:
        note = HumanNote(timestamp=FakeClock().now(), message=word)
        tx.state = msgspec.structs.replace(tx.state, human_notes=(*tx.state.human_notes, note))


@st.composite
def damage(draw: st.DrawFn) -> tuple[str, str, bytes, int]:
    """Which file, how, with which bytes, and where."""
    file = draw(st.sampled_from(["tx/seal", "tx/next", "tx/recorded", "log.yaml"]))
    odd = st.sampled_from([path.read_bytes() for kind in ("seal", "journal") for path in _corpus(kind)])
    data = draw(st.one_of(st.binary(max_size=30), odd, st.sampled_from([b'[1, "x"]', b'{"revision": 9}'])))
    return file, draw(st.sampled_from(["replace", "cut", "inside"])), data, draw(st.integers(0, 400))


def prove_files(root: Path, done: list[tuple[str, str, bytes, int]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "crew"
        shutil.copytree(root, copy)
        paths = Paths(copy)
        for file, how, data, place in done:
            path = paths.liza / file
            was = path.read_bytes() if path.exists() else b""
            path.write_bytes(
                {"replace": data, "cut": was[:place], "inside": was[:place] + data + was[place + len(data) :]}[how]
            )
        typed = paths.state.read_bytes()
        board = FileBoard(paths, FakeClock())
        try:
            assert [note.message for note in board.read().human_notes] == ["one", "two"]
            _say(board, "after")
        except LizaError:
            assert paths.state.read_bytes() == typed
            return
        fresh = FileBoard(paths, FakeClock())
        assert [note.message for note in fresh.read().human_notes] == ["one", "two", "after"]
        assert write_intent.read_intent(paths.write_intent) is not None
        list(revision_texts.rebuild_texts(revision_journal.iter_lines(paths.journal)))
        recorded_mark.list_waiting(paths, revision_journal.iter_newest_first(paths.journal))


@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(st.lists(damage(), min_size=1, max_size=3))
def test_damaged_intents_marks_and_journals_break_nothing(crew: Path, done: list[tuple[str, str, bytes, int]]) -> None:
    prove_files(crew, done)


@pytest.mark.campaign
@settings(max_examples=400, suppress_health_check=list(HealthCheck))
@given(st.lists(damage(), min_size=1, max_size=3))
def test_damaged_seals_marks_and_journals_in_the_long_run(crew: Path, done: list[tuple[str, str, bytes, int]]) -> None:
    prove_files(crew, done)


@pytest.mark.parametrize("path", [*_corpus("seal"), *_corpus("journal")], ids=lambda path: path.name)
def test_damaged_files_from_earlier_runs_of_fuzzing_break_nothing(crew: Path, path: Path) -> None:
    for file in ("tx/seal", "tx/next", "tx/recorded"):
        prove_files(crew, [(file, "replace", path.read_bytes(), 0)])


def test_a_whole_text_that_lost_a_byte_is_no_revision(crew: Path, tmp_path: Path) -> None:
    shutil.copytree(crew, tmp_path / "crew")
    path = Paths(tmp_path / "crew").journal
    path.write_bytes(path.read_bytes().replace(b"The first", b"The burst", 1))
    assert 1 not in {line.revision for line, _ in revision_texts.rebuild_texts(revision_journal.iter_lines(path))}


# ── a file of tasks ──────────────────────────────────────────────────────────────────────────────────────────────────

WORDS = st.sampled_from(
    ["- ", "id: ", "a", "desc: ", "description: ", "depends_on: ", "priority: ", "9" * 400, "[", "]", "{", "}", ", ",
     "\n", "  ", "&x ", "*x", "<<: ", "tasks:", "|", ">", '"', "'", "#", "\t", "\x00", "\ud800", "\u2028", "---\n",
     "draft: ", "true", "~", "!!python/object:os.system ", "? ", ": "]
)  # fmt: skip
TASKS = st.one_of(
    st.text(max_size=60),
    st.lists(WORDS, max_size=25).map("".join),
    st.sampled_from([path.read_bytes().decode("utf-8", "surrogateescape") for path in _corpus("tasks")]),
)


def prove_tasks(text: str) -> None:
    try:
        found = parse_tasks(text)
    except UsageError:
        return
    assert all(isinstance(one.id, str) for one in found)


@settings(max_examples=150, suppress_health_check=list(HealthCheck))
@given(TASKS)
def test_any_file_of_tasks_is_tasks_or_a_usage_error(text: str) -> None:
    prove_tasks(text)


@pytest.mark.campaign
@settings(max_examples=4000, suppress_health_check=list(HealthCheck))
@given(TASKS)
def test_any_file_of_tasks_in_the_long_run(text: str) -> None:
    prove_tasks(text)


@pytest.mark.parametrize("path", _corpus("tasks"), ids=lambda path: path.name)
def test_odd_task_files_from_earlier_fuzzing_use_no_memory(path: Path) -> None:
    tracemalloc.start()
    try:
        prove_tasks(path.read_bytes().decode("utf-8", "surrogateescape"))
        assert tracemalloc.get_traced_memory()[1] < 64 << 20
    finally:
        tracemalloc.stop()
