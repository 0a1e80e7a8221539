"""What every store promises of archived tasks."""

from __future__ import annotations

import pytest

from liza.board.contract import Board
from liza.model.errors import LizaError
from liza.model.model import Status
from tests.edges.board.contract.changes import FIRST, MERGED, move, say, task_of
from tests.edges.board.contract.stores import Store


@pytest.fixture
def archive(board: Board) -> Board:
    """A board that has two archived tasks: t3, then t4."""
    board.replace_text("human", FIRST.replace("agents:\n", MERGED + "agents:\n"))
    move(board, "t3")
    move(board, "t4")
    return board


def test_an_archived_task_leaves_the_board_with_its_text(archive: Board, other: Board) -> None:
    state = other.read()
    assert [task.id for task in state.tasks] == ["t1", "t2"]
    assert "The third" not in other.read_text()
    assert other.archived_ids() == ["t3", "t4"]
    entry = other.archived(("t3", "t1", "nothing"))["t3"]
    assert entry.task is not None
    assert (entry.task.description, entry.error) == ("The third", "")
    assert any(b"The third # left" in data for data in other.read_archive().values())


def test_a_revision_names_the_tasks_that_it_archived(archive: Board) -> None:
    newest, before, *_ = archive.records()
    assert (newest.archived, before.archived) == (("t4",), ("t3",))
    texts = {line.revision: text for line, text in archive.texts()}
    assert ["The fourth" in texts[record.revision] for record in (newest, before)] == [False, True]


def test_archived_tasks_come_newest_first(archive: Board, other: Board) -> None:
    assert [task.id for task in other.archived_tasks()] == ["t4", "t3"]


def test_archived_tasks_are_counted(archive: Board, other: Board) -> None:
    assert dict(other.count_archived(()).statuses) == {"ABANDONED": 1, "MERGED": 1}
    assert dict(other.count_archived(("t3",)).statuses) == {"MERGED": 1}
    assert other.read().archived.total == 2


def test_a_merge_commit_finds_its_archived_task(archive: Board, other: Board) -> None:
    (task,) = other.find_merged(("a" * 40, "c" * 40))
    assert (task.id, task.status) == ("t4", Status.MERGED)
    assert other.find_merged(()) == ()


def test_an_archive_without_damage_has_no_faults(archive: Board, other: Board) -> None:
    assert other.find_archive_damage(other.read()) is None
    assert list(other.find_faulty_entries()) == []


def test_archived_tasks_can_be_asked_inside_a_transaction(archive: Board) -> None:
    with archive.transaction("human", "look") as tx:
        assert set(archive.archived(("t3", "t4"))) == {"t3", "t4"}
        assert archive.archived_ids() == ["t3", "t4"]
        assert archive.find_archive_damage(tx.before) is None
    assert say(archive, "next") == archive.read().revision


def test_a_move_that_fails_archives_nothing(board: Board, other: Board) -> None:
    def fail() -> None:
        with board.transaction("human", "archive") as tx:
            tx.state = tx.state.with_task(task_of(tx.state, "t1"))
            tx.moved = {"t3": "  - id: t3\n"}
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert other.archived_ids() == []
    assert other.read_text() == FIRST


def test_an_empty_archive_has_nothing(board: Board) -> None:
    assert (board.archived_ids(), list(board.archived_tasks()), dict(board.read_archive())) == ([], [], {})


def test_the_history_gives_back_lost_entries(archive: Board, other: Board, store: Store) -> None:
    recorded = {name: data.decode() for name, data in archive.read_archive().items()}
    recorded["2020-01.yaml"] = next(iter(recorded.values())).replace("t3", "t8")
    if "restore_archive" in store.refused:
        with pytest.raises(LizaError, match=store.refused["restore_archive"]):
            other.restore_archive("human", recorded)
        return
    restored = other.restore_archive("human", recorded)
    assert restored.names == ("2020-01.yaml",)
    assert restored.ids == {"t3", "t4", "t8"}
    assert set(other.archived(("t8", "t4"))) == {"t8", "t4"}
    assert other.restore_archive("human", recorded).names == ()


def test_no_host_holds_agents_of_a_new_board(board: Board) -> None:
    assert dict(board.held_agents()) == {}


def test_a_verb_of_files_is_refused_elsewhere_by_name(board: Board, store: Store) -> None:
    if "require_files" in store.refused:
        with pytest.raises(LizaError, match=store.refused["require_files"]):
            board.require_files("liza lock")
    else:
        board.require_files("liza lock")
