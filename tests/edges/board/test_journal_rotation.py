"""A long journal loses its beginning: what the history has. Readers keep what they need at any point."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec
import pytest

from liza.board import revision_texts
from liza.board.file_store import revision_journal
from liza.board.revisions import RevisionRecord
from liza.model.paths import Paths
from tests.campaign.small_board import (
    FIRST,
    child,
    killed,
    messages,
    opened,
    passed,
    recorded,
    repository,
    say,
    texts_of,
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "p"
    repository(root)
    opened(root).create(FIRST)
    monkeypatch.setattr(revision_texts, "FULL_TEXT_INTERVAL", 4)
    for number in range(20):
        say(opened(root), f"note {number}")
    recorded(root)
    monkeypatch.setattr(revision_journal, "MAX_SIZE", 6000)
    monkeypatch.setattr(revision_journal, "ROTATION_INTERVAL", 1)
    monkeypatch.setattr(revision_journal, "_TAIL_SIZE", 2000)
    return root


def own(root: Path) -> list[int]:
    return [record.revision for record in revision_journal.iter_newest_first(Paths(root).journal)]


def test_a_long_journal_keeps_its_end_from_a_whole_text(root: Path) -> None:
    say(opened(root), "last")
    assert 1 < len(own(root)) < 15
    assert own(root)[0] == 22
    assert [*texts_of(Paths(root))] == own(root)[::-1]
    assert revision_journal.highest_revision(Paths(root).journal) == 22
    say(opened(root), "and on")
    assert opened(root).read().revision == 23
    assert recorded(root).keys() == set(range(1, 24))


@pytest.mark.parametrize(("mark", "first"), [(3, 1), (18, 16), (21, 20)])
def test_revisions_that_are_not_recorded_stay_in_the_journal(root: Path, mark: int, first: int) -> None:
    paths = Paths(root)
    revision_journal.rotate(paths.journal, paths.tx / "log.next", recorded=mark)
    assert own(root) == list(range(21, first - 1, -1))
    assert not (paths.tx / "log.next").exists()


def test_a_void_revision_is_not_the_beginning(root: Path) -> None:
    journal = Paths(root).journal
    line = next(revision_journal.iter_lines(journal))
    revision_journal.append_record(journal, msgspec.structs.replace(line, revision=22, text="x" * 800, entries=()))
    revision_journal.append_record(journal, RevisionRecord(void=22, time="x"))
    revision_journal.rotate(journal, Paths(root).tx / "log.next", recorded=99)
    assert own(root)[0] == 21
    assert [*texts_of(Paths(root))] == own(root)[::-1]


@pytest.mark.campaign
def test_a_kill_during_a_rotation_loses_no_text(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: say(opened(copy), "last"), tmp_path / "trace")
    assert "renamed.journal#1" in points
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: say(opened(copy), "last"), point)), point
        say(opened(copy), "next")
        assert messages(opened(copy).read())[-1] == "next"
        assert own(copy)[0] == opened(copy).read().revision
        assert [*texts_of(Paths(copy))] == own(copy)[::-1]
        assert recorded(copy).keys() | {22} == set(range(1, own(copy)[0] + 1)), point


@pytest.mark.campaign
def test_a_rotation_on_a_full_disk_leaves_no_file(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: _rotate(copy), tmp_path / "trace")
    for point in points[: points.index("renamed.journal#1")]:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert child(lambda: _rotate(copy), f"{point}:full") == 4, point
        assert not (Paths(copy).tx / "log.next").exists(), point
        assert len(own(copy)) == 21
        _rotate(copy)
        assert len(own(copy)) < 15


def _rotate(root: Path) -> None:
    revision_journal.rotate(Paths(root).journal, Paths(root).tx / "log.next", recorded=99)


def test_a_board_is_restored_after_a_rotation(root: Path) -> None:
    say(opened(root), "last")
    Paths(root).state.write_text("nonsense: [")
    board = opened(root)
    restored = board.restore("human", board.last_good_text)
    assert restored is not None
    assert messages(restored.state)[-1] == "last"
