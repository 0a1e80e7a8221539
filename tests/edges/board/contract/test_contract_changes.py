"""What every store promises of reading and of changing a board."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from liza.board import revisions
from liza.board.contract import Board
from liza.board.text.document import load_state
from liza.model.errors import BoardInconsistent, LizaError, NoCrew, Refused
from liza.model.model import Status
from tests.edges.board.contract.changes import FIRST, beat, describe, messages, replace, say, task_of

# ── the first board ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_created_board_is_read_by_others(board: Board, other: Board) -> None:
    assert other.read() == board.read()
    assert other.read_text() == FIRST
    assert [task.id for task in other.read().tasks] == ["t1", "t2", "t3"]


def test_a_second_board_is_refused(board: Board, other: Board) -> None:
    with pytest.raises(Refused):
        other.create(FIRST.replace("The first", "Another"))
    assert other.read_text() == FIRST


def test_a_board_that_breaks_a_rule_is_not_created(open_anew: Callable[[], Board]) -> None:
    with pytest.raises(BoardInconsistent, match="t1"):
        open_anew().create(FIRST.replace("    color: blue\n", "    depends_on: [t1]\n"))
    with pytest.raises(NoCrew):
        open_anew().read()


def test_a_first_board_is_numbered_above_an_earlier_history(open_anew: Callable[[], Board]) -> None:
    open_anew().create(FIRST, above=41)
    assert open_anew().read().revision == 42
    assert [record.revision for record in open_anew().records()] == [42]


def test_a_missing_board_is_named(open_anew: Callable[[], Board]) -> None:
    for read in (open_anew().read, open_anew().read_text):
        with pytest.raises(NoCrew):
            read()


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_change_is_the_next_revision_for_everyone(board: Board, other: Board) -> None:
    with board.transaction("human:ann", "describe", task="t1") as tx:
        describe(tx, "New words")
    assert tx.revision == 2
    assert tx.state == board.read() == other.read()
    assert task_of(other.read(), "t1").description == "New words"


def test_an_exception_writes_nothing_and_frees_the_board(board: Board, other: Board) -> None:
    def fail() -> None:
        with board.transaction("human", "describe") as tx:
            describe(tx, "never")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert other.read_text() == FIRST
    assert say(other, "next") == 2


def test_a_block_that_changes_nothing_writes_nothing(board: Board) -> None:
    with board.transaction("human", "note") as tx:
        tx.state = replace(tx.state)
    assert tx.revision is None
    assert board.read().revision == 1
    assert len(list(board.records())) == 1


def test_a_change_that_adds_a_violation_is_refused(board: Board, other: Board) -> None:
    with pytest.raises(BoardInconsistent, match="t1"), board.transaction("human", "x", task="t1") as tx:
        tx.state = tx.state.with_task(replace(task_of(tx.state, "t1"), depends_on=("t1",)))
    assert other.read_text() == FIRST


def test_one_thread_opens_no_second_transaction(board: Board) -> None:
    with board.transaction("human", "note"), pytest.raises(RuntimeError), board.transaction("human", "note"):
        pass
    assert say(board, "later") == 2


def test_a_block_sees_what_others_wrote_before_it(board: Board, other: Board) -> None:
    say(board, "first")
    say(other, "second")
    with board.transaction("human", "look") as tx:
        assert messages(tx.before) == ["first", "second"]
        assert tx.document.state == tx.before


def test_a_change_touches_only_the_text_of_its_entry(board: Board, other: Board) -> None:
    with board.transaction("human", "describe", task="t2") as tx:
        describe(tx, "New words", "t2")
    wanted = FIRST.replace("revision: 1\n", "revision: 2\n").replace("The second", "New words")
    assert board.read_text() == other.read_text() == wanted


def test_entries_can_be_added_moved_and_removed(board: Board, other: Board) -> None:
    with board.transaction("human", "reorder") as tx:
        first, second, third = tx.state.tasks
        added = replace(second, id="t9", description="New")
        tx.state = replace(tx.state, tasks=(third, added, first))
    assert [task.id for task in other.read().tasks] == ["t3", "t9", "t1"]
    assert "# about t1" in other.read_text()
    assert load_state(other.read_text()) == board.read()


# ── heartbeats ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_heartbeat_is_read_by_all_without_a_revision(board: Board, other: Board) -> None:
    beat(board, 7)
    heartbeat = other.read().agents["coder-1"].heartbeat
    assert heartbeat is not None
    assert heartbeat.second == 7
    assert other.read().revision == 1
    assert len(list(other.records())) == 1


def test_a_failed_heartbeat_writes_nothing(board: Board, other: Board) -> None:
    def fail() -> None:
        with board.heartbeat("coder-1") as tx:
            tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], iterations_total=9))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert other.read_text() == FIRST


# ── texts that people write ──────────────────────────────────────────────────────────────────────────────────────────


def test_comments_order_and_unknown_keys_of_a_text_survive(board: Board, other: Board) -> None:
    edited = FIRST.replace("tasks:\n", "tasks: # the list\n").replace("    color: blue\n", "    smell: none\n")
    board.replace_text("human:ann", edited)
    say(other, "after it")
    text = board.read_text()
    assert text.startswith(edited.replace("revision: 1\n", "revision: 3\n"))
    record = list(board.records())[1]
    assert (record.revision, record.actor, record.event) == (2, "human:ann", "edit")


def test_a_text_that_adds_a_violation_is_refused(board: Board, other: Board) -> None:
    with pytest.raises(BoardInconsistent):
        board.replace_text("human", FIRST.replace("    color: blue\n", "    depends_on: [t1]\n"))
    with pytest.raises(LizaError):
        board.replace_text("human", "tasks: [unclosed")
    assert other.read_text() == FIRST


def test_the_same_text_again_is_no_revision(board: Board) -> None:
    board.replace_text("human", FIRST)
    assert board.read().revision == 1


def test_a_text_is_transformed_from_its_newest_form(board: Board, other: Board) -> None:
    say(other, "meanwhile")
    board.transform_text("human", lambda text: text.replace("The second", "Transformed"))
    assert task_of(other.read(), "t2").description == "Transformed"
    assert messages(other.read()) == ["meanwhile"]


def test_a_transformation_that_fails_writes_nothing(board: Board, other: Board) -> None:
    def fail(text: str) -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        board.transform_text("human", fail)
    assert other.read_text() == FIRST
    assert say(other, "next") == 2


def test_unknown_settings_are_named(board: Board) -> None:
    assert board.unknown_config() == ()
    board.replace_text("human", FIRST + "config:\n  colour: red\n")
    assert board.unknown_config() == ("colour",)


def test_a_valid_board_is_not_restored(board: Board) -> None:
    assert board.restore("human", lambda: pytest.fail("the board is valid")) is None
    assert board.read_text() == FIRST
    assert board.take_alerts() == []


# ── revisions ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_name_actor_and_event_newest_first(board: Board, other: Board) -> None:
    with board.transaction("coder-1.1", "block", task="t1") as tx:
        blocked = replace(task_of(tx.state, "t1"), status=Status.BLOCKED, blocked_reason="x", blocked_questions=("y",))
        tx.state = tx.state.with_task(blocked)
    newest, first = other.records()
    assert (newest.revision, newest.actor, newest.event, newest.task) == (2, "coder-1.1", "block", "t1")
    assert (newest.from_, newest.to) == ("UNCLAIMED", "BLOCKED")
    assert (first.revision, first.event) == (1, "init")
    assert newest.time >= first.time


def test_every_revision_can_be_rebuilt_across_heartbeats(board: Board, other: Board) -> None:
    texts = {1: board.read_text()}
    for number in range(2, 8):
        beat(board, number)
        say(board, f"note {number}")
        texts[number] = board.read_text()
    rebuilt = {line.revision: text for line, text in other.texts()}
    assert rebuilt == texts
    assert {line.revision: line.sha256 for line, _ in other.texts()} == {
        number: revisions.sha(text.encode()) for number, text in texts.items()
    }
    assert other.last_good_text() == texts[7]


@pytest.mark.parametrize(
    ("above", "added"),
    [
        ("  # about t1\n", "  # of a person\n"),
        ('  - id: "t1"\n', "  # of a person\n"),
        ('  - id: "t1"\n', "# at the margin\n\n"),
        ('  - id: "t2"\n', "  # of a person\n"),
        ('  - id: "t2"\n', "\n      # deeper\n  # of a person\n"),
        ("agents:\n", "  # at the end\n\n"),
        ("  coder-1:\n", "  # of a person\n"),
        ("goal:\n", "  # deeper\n# of a person\n"),
    ],
)
def test_every_revision_can_be_rebuilt_around_comments_of_a_person(
    board: Board, other: Board, above: str, added: str
) -> None:
    other.read()
    texts = [board.read_text()]
    board.transform_text("human", lambda text: text.replace(above, added + above))
    texts.append(board.read_text())
    for number, writer in enumerate((other, board, other)):
        with writer.transaction("human", "describe") as tx:
            describe(tx, f"words {number}")
        texts.append(board.read_text())
        with writer.transaction("human", "describe") as tx:
            describe(tx, f"words {number}", "t2")
            tx.state = tx.state.with_agent("coder-1", replace(tx.state.agents["coder-1"], runs=number + 1))
        texts.append(other.read_text())
    assert [text for _, text in other.texts()] == texts
    assert added in texts[-1]


def test_texts_begin_with_the_asked_revision_or_its_base(board: Board) -> None:
    for number in range(2, 7):
        say(board, f"note {number}")
    numbers = [line.revision for line, _ in board.texts(5)]
    assert numbers == sorted(numbers)
    assert {5, 6} <= set(numbers)
    base = {line.revision: text for line, text in board.texts()}[4]
    assert [line.revision for line, _ in board.texts(5, (4, base))] == [5, 6]
