"""A long journal is continued in a new file: no record is lost at any point, and readers have what they need."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from liza.board import revision_journal
from liza.board.revision_journal import RevisionRecord
from liza.model.paths import Paths
from tests.campaign.small_board import FIRST, child, killed, messages, opened, passed, recorded, repository, say


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = tmp_path / "p"
    repository(root)
    opened(root).create(FIRST)
    for number in range(20):
        say(opened(root), f"note {number}")
    recorded(root)
    monkeypatch.setattr(revision_journal, "MAX_SIZE", 2000)
    monkeypatch.setattr(revision_journal, "ROTATION_INTERVAL", 1)
    monkeypatch.setattr(revision_journal, "_TAIL_SIZE", 600)
    return root


def all_revisions(root: Path) -> set[int]:
    """Those of the journal and of its older files."""
    journal = Paths(root).journal
    files = [journal, *journal.parent.glob("log-*.yaml")]
    return {record.revision for path in files for record in revision_journal.iter_newest_first(path)}


def own(root: Path) -> list[int]:
    return [record.revision for record in revision_journal.iter_newest_first(Paths(root).journal)]


def test_a_long_journal_moves_to_an_older_file_and_its_end_stays(root: Path) -> None:
    say(opened(root), "last")
    assert all_revisions(root) == set(range(1, 23))
    assert 1 < len(own(root)) < 10
    assert own(root)[0] == 22
    assert revision_journal.highest_revision(Paths(root).journal) == 22
    say(opened(root), "and on")
    assert opened(root).read().revision == 23


def test_records_that_the_spool_needs_stay(root: Path) -> None:
    journal, next_path = Paths(root).journal, Paths(root).tx / "log.next"
    assert revision_journal.rotate(journal, next_path, lowest=3) is None
    assert own(root) == list(range(21, 0, -1))
    older = revision_journal.rotate(journal, next_path, lowest=15)
    assert older is not None
    assert set(range(15, 22)) <= set(own(root))
    assert all_revisions(root) == set(range(1, 22))


def test_a_record_with_its_void_is_kept_or_moved_as_one(root: Path) -> None:
    journal = Paths(root).journal
    revision_journal.append_record(journal, RevisionRecord(void=21, time="x"))
    revision_journal.rotate(journal, Paths(root).tx / "log.next", lowest=99)
    assert revision_journal.last_record(journal) is not None
    assert own(root)[0] == 20
    assert revision_journal.highest_revision(journal) == 21


@pytest.mark.campaign
def test_a_kill_at_any_point_of_a_rotation_loses_no_record(root: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: say(opened(copy), "last"), tmp_path / "trace")
    assert {"linked.journal#1", "renamed.journal#1"} <= set(points)
    for point in points:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert killed(child(lambda: say(opened(copy), "last"), point)), point
        say(opened(copy), "next")
        assert messages(opened(copy).read())[-1] == "next"
        assert set(range(1, opened(copy).read().revision + 1)) == all_revisions(copy) | {22}, point
        assert own(copy)[0] == opened(copy).read().revision
        assert opened(copy).last_good_text()


@pytest.mark.campaign
def test_a_full_disk_at_any_point_of_a_rotation_leaves_no_file_and_the_next_one_succeeds(
    root: Path, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(root, copy, symlinks=True)
    points = passed(lambda: _rotate(copy), tmp_path / "trace")
    for point in points[: points.index("renamed.journal#1")]:
        shutil.rmtree(copy)
        shutil.copytree(root, copy, symlinks=True)
        assert child(lambda: _rotate(copy), f"{point}:full") == 4, point
        assert not (Paths(copy).tx / "log.next").exists(), point
        _check_next_rotation(copy)


def test_the_link_of_a_rotation_that_was_killed_gets_no_later_record(root: Path) -> None:
    own_link = Paths(root).liza / "log-mine.yaml"
    own_link.hardlink_to(Paths(root).journal)
    assert killed(child(lambda: _rotate(root), "linked.journal"))
    _check_next_rotation(root)
    assert own_link.exists()


def _rotate(root: Path) -> None:
    revision_journal.rotate(Paths(root).journal, Paths(root).tx / "log.next", lowest=99)


def _check_next_rotation(root: Path) -> None:
    """Revisions follow before the next rotation, which so has another name for the older file."""
    journal = Paths(root).journal
    for number in range(22, 25):
        revision_journal.append_record(journal, RevisionRecord(number, time="x", event="note", sha256="0" * 64))
    _rotate(root)
    older = list(journal.parent.glob("log-[0-9]*.yaml"))
    assert len(older) == 1
    assert own(root)[0] == 24
    assert all_revisions(root) == set(range(1, 25))
    assert not older[0].samefile(journal)


def test_a_board_is_restored_after_a_rotation(root: Path) -> None:
    say(opened(root), "last")
    Paths(root).state.write_text("nonsense: [")
    board = opened(root)
    restored = board.restore("human", board.last_good_text)
    assert restored is not None
    assert messages(restored.state)[-1] == "last"
