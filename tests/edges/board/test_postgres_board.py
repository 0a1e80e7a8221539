"""The board in a real PostgreSQL: what is special to it. What it shares with the file is in the contract suite."""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from liza.board import archived_entries
from liza.board.address import BoardAddress
from liza.board.contract import Transaction
from liza.board.events import BoardChanged, SignalChanged, WatchEvent
from liza.board.postgresql import connection, crew_lock, server_watch, signal_rows
from liza.board.postgresql.connection import ServerConnection
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.board.postgresql.signal_rows import CrewMarks
from liza.board.rules import archiving
from liza.board.text import document
from liza.model.errors import (
    BoardInconsistent,
    BoardUnavailable,
    BoardUnreadable,
    HostFenced,
    LockTimeout,
    NoCrew,
    Refused,
)
from liza.model.model import Handoff, HumanNote, State, Status
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.campaign.small_board import FIRST
from tests.conftest import LONG, FakeClock, until
from tests.postgresql import PostgreSQL

replace = msgspec.structs.replace
NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def opened(address: BoardAddress, tmp_path: Path) -> Iterator[Callable[[], PostgresBoard]]:
    """Open the board as another process would."""
    boards: list[PostgresBoard] = []

    def open_board() -> PostgresBoard:
        boards.append(PostgresBoard(Paths(tmp_path), SystemClock(), address))
        return boards[-1]

    yield open_board
    for board in boards:
        board.close()


@pytest.fixture
def board(opened: Callable[[], PostgresBoard]) -> PostgresBoard:
    made = opened()
    made.create(FIRST)
    return made


@pytest.fixture
def sql(postgresql: PostgreSQL, database: str) -> Iterator[ServerConnection]:
    """A connection of the owner."""
    connection = postgresql.connect(database)
    yield connection
    connection.close()


def say(board: PostgresBoard, text: str) -> int | None:
    with board.transaction("human", "note") as tx:
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, HumanNote(timestamp=NOW, message=text)))
    return tx.revision


def describe(tx: Transaction, text: str, task: str = "t1") -> None:
    found = tx.state.task(task)
    assert found is not None
    tx.state = tx.state.with_task(replace(found, description=text))


def beat(board: PostgresBoard, second: int) -> None:
    with board.heartbeat("coder-1") as tx:
        agent = tx.state.agents["coder-1"]
        tx.state = tx.state.with_agent("coder-1", replace(agent, heartbeat=NOW.replace(second=second)))


def messages(state: State) -> list[str]:
    return [note.message for note in state.human_notes]


# ── texts and rows ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_comments_order_and_unknown_keys_survive(board: PostgresBoard, opened: Callable[[], PostgresBoard]) -> None:
    edited = FIRST.replace("tasks:\n", "# above\nmood: good\ntasks: # the list\n").replace(
        '  - id: "t2"\n', '  # about t2\n  - id: "t2"\n    color: blue\n'
    )
    board.replace_text("human", edited)
    other = opened()
    assert other.read_text() == edited.replace("revision: 1\n", "revision: 2\n")
    with other.transaction("human", "describe", task="t2") as tx:
        describe(tx, "New words", "t2")
    wanted = edited.replace("revision: 1\n", "revision: 3\n").replace("The second", "New words")
    assert board.read_text() == other.read_text() == wanted


def test_a_change_writes_the_rows_that_it_changes_only(board: PostgresBoard, sql: ServerConnection) -> None:
    with board.transaction("human", "describe", task="t2") as tx:
        describe(tx, "New words", "t2")
    assert sql.fetch_all(
        "SELECT name, value->>'description' FROM liza.entry WHERE section = 'tasks' AND change = 2"
    ) == [("t2", "New words")]
    assert sql.fetch_one("SELECT count(*) FROM liza.entry WHERE change = 2") == (2,)  # also the revision
    assert sql.fetch_one("SELECT revision, change, journaled FROM liza.crew") == (2, 2, 2)


def test_entries_in_between_moved_and_removed_are_read_by_all(
    board: PostgresBoard, opened: Callable[[], PostgresBoard]
) -> None:
    other = opened()
    other.read()
    item = '  - id: "{}"\n    status: DRAFT\n'
    for number in range(40):  # more than fit between two places
        board.transform_text(
            "human", lambda text, n=number: text.replace('  - id: "t2"', item.format(f"n{n}") + '  - id: "t2"')
        )
        assert other.read_text() == board.read_text()
    wanted = ["t1", *(f"n{number}" for number in range(40)), "t2"]
    assert [task.id for task in opened().read().tasks] == wanted
    head, *entries, last = board.read_text().partition("agents:")[0].split("  - id: ")
    mixed = "  - id: ".join([head, last, *entries[5:]])
    board.transform_text("human", lambda text: text.replace("  - id: ".join([head, *entries, last]), mixed))
    assert [task.id for task in other.read().tasks] == [wanted[-1], *wanted[5:-1]]
    assert other.read_text() == board.read_text() == opened().read_text()


def test_deleted_rows_go_and_a_reader_that_missed_them_reads_all(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], sql: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liza.board.postgresql.crew_statements._SWEEP_AGE", 2)
    late = opened()
    say(board, "gone")
    assert messages(late.read()) == ["gone"]
    for number in range(5):
        with board.transaction("human", "note") as tx:
            tx.state = replace(tx.state, human_notes=(), handoff={f"t{number}": Handoff(agent="coder-1", summary="x")})
    assert sql.fetch_one("SELECT count(*) FROM liza.entry WHERE body IS NULL AND section = 'human_notes'") == (0,)
    assert late.read_text() == board.read_text() == opened().read_text()
    HostsTable(sql, "shop").begin("h1", uuid4(), uuid4(), "boot", "")
    sql.execute("UPDATE liza.host SET seen_change = 7")
    for number in range(5):
        with board.transaction("human", "note") as tx:
            tx.state = replace(tx.state, handoff={f"u{number}": Handoff(agent="coder-1", summary="x")})
    assert sql.fetch_one("SELECT min(change) FROM liza.entry WHERE body IS NULL") == (8,)


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (f't1: {{agent: coder-1, summary: "{"x" * (2 << 20)}"}}', "handoff/t1: it has 2.0 MB, wanted at most 1 MB"),
        ('t1: {agent: coder-1, summary: "a \\0 b"}', "handoff/t1: it has a NUL"),
        ('"t\\0": {agent: coder-1}', "handoff/t.*: it has a NUL"),
        ('"t\\ud83d": {agent: coder-1}', "not YAML"),
    ],
    ids=["2 MB", "NUL", "NUL in a name", "surrogate"],
)
def test_text_that_cannot_be_stored_is_refused_by_the_rule(board: PostgresBoard, entry: str, reason: str) -> None:
    with pytest.raises(BoardInconsistent, match=reason):
        board.replace_text("human", f"{FIRST}handoff:\n  {entry}\n")
    with board.transaction("human", "hand over") as tx:
        tx.state = replace(tx.state, handoff={"t1": Handoff(agent="coder-1", summary="half \ud83d")})
    assert "half \\\\ud83d" in board.read_text()  # as in a file


def test_two_tasks_with_one_owner_are_refused_by_the_database(
    board: PostgresBoard, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liza.board.new_violations.find_added", lambda before, after: ())
    refused = pytest.raises(BoardInconsistent, match="an agent would own two tasks; nothing was written")
    with refused, board.transaction("human", "claim") as tx:
        owned = {"status": Status.CLAIMED, "assigned_to": "coder-1"}
        tx.state = replace(tx.state, tasks=tuple(replace(task, **owned) for task in tx.state.tasks))
    say(board, "the next one")
    assert board.read().revision == 2


# ── the journal ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_every_revision_can_be_rebuilt_across_heartbeats(
    board: PostgresBoard, opened: Callable[[], PostgresBoard]
) -> None:
    boards = [board, opened(), opened()]
    texts = {1: board.read_text()}
    for number in range(150):
        beat(boards[(number + 1) % 3], number % 60)
        revision = say(boards[number % 3], f"note {number}")
        assert revision is not None
        texts[revision] = boards[number % 2].read_text()
    assert {line.revision: text for line, text in board.texts()} == texts
    assert [record.revision for record in opened().records()] == sorted(texts, reverse=True)
    base = (140, texts[140])
    assert [line.revision for line, _ in board.texts(base=base)] == list(range(141, 152))
    assert board.last_good_text() == texts[151]


# ── several clients ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_crew_is_created_once(board: PostgresBoard, opened: Callable[[], PostgresBoard]) -> None:
    with pytest.raises(Refused, match="shop"):
        opened().create(FIRST)
    assert board.read().revision == 1


def test_a_database_without_the_crew_is_named(opened: Callable[[], PostgresBoard]) -> None:
    for attempt in (lambda: opened().read(), lambda: say(opened(), "x")):
        with pytest.raises(NoCrew, match="shop"):
            attempt()


def test_a_change_sees_what_was_committed_while_it_waited(
    board: PostgresBoard, opened: Callable[[], PostgresBoard]
) -> None:
    def write(writer: PostgresBoard) -> None:
        for _ in range(20):
            with writer.transaction("human", "count", task="t1") as tx:
                found = tx.state.task("t1")
                assert found is not None
                tx.state = tx.state.with_task(replace(found, iteration=found.iteration + 1))

    threads = [threading.Thread(target=write, args=(opened(),)) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    task = board.read().task("t1")
    assert task is not None
    assert (task.iteration, board.read().revision) == (120, 121)


def test_a_held_lock_ends_the_wait_with_one_sentence(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened()
    monkeypatch.setattr("liza.board.postgresql.crew_statements.LOCK_LIMIT", 0.05)
    with board.transaction("human", "note"), pytest.raises(LockTimeout, match="shop"):
        say(other, "never")
    assert board.read().revision == 1


def test_changes_are_made_in_the_order_of_their_arrival(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], sql: ServerConnection
) -> None:
    texts = [f"note {number}" for number in range(6)]
    boards = [opened() for _ in texts]
    writers = [threading.Thread(target=say, args=pair) for pair in zip(boards, texts, strict=True)]
    waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
    with board.transaction("human", "held"):
        for number, writer in enumerate(writers, 1):
            writer.start()
            until(lambda wanted=number: sql.fetch_one(waiting) == (wanted,), "the writer waits")
    for writer in writers:
        writer.join()
    assert messages(board.read()) == texts


def test_a_slow_statement_is_not_called_a_lost_server(
    board: PostgresBoard, monkeypatch: pytest.MonkeyPatch, address: BoardAddress
) -> None:
    monkeypatch.setitem(vars(connection)["_SETTINGS"], "statement_timeout", "50ms")
    slow = connection.connect(address)
    with pytest.raises(BoardUnavailable, match="did not end a statement within"):
        slow.execute("SELECT pg_sleep(5)")
    assert not slow.is_closed
    slow.close()


def test_much_that_is_new_is_read_before_the_lock(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    other = opened()
    other.read()
    monkeypatch.setattr("liza.board.postgresql.crew_statements.MAX_ROWS", 3)
    for number in range(6):
        say(board, f"note {number}")
    assert say(other, "the last") == 8
    assert messages(board.read())[-1] == "the last"


def test_a_whole_board_is_parsed_before_the_lock_is_taken(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = list[str]()
    _trace(monkeypatch, document, "read_document", steps)
    _trace(monkeypatch, crew_lock.CrewLock, "_begin", steps)
    assert say(opened(), "first") == 2
    assert steps[:2] == ["read_document", "_begin"]


def _trace(monkeypatch: pytest.MonkeyPatch, owner: object, name: str, steps: list[str]) -> None:
    traced = getattr(owner, name)

    def call(*args: object, **named: object) -> object:
        steps.append(name)
        return traced(*args, **named)

    monkeypatch.setattr(owner, name, call)


def test_a_transaction_needs_no_other_connection_for_what_is_short(board: PostgresBoard, sql: ServerConnection) -> None:
    with board.transaction("human", "note"):
        assert board.read().revision == 1
        assert board.signals() == {}
        assert board.hosts().hosts == ()
        here = "datname = current_database() AND pid <> pg_backend_pid()"
        assert sql.fetch_one(f"SELECT count(*) FROM pg_stat_activity WHERE {here}") == (1,)
    with board.transaction("human", "note"), pytest.raises(RuntimeError), board.transaction("human", "note"):
        pass


def test_a_forked_child_leaves_the_connection_of_its_parent_alone(board: PostgresBoard) -> None:
    child = os.fork()
    if child == 0:
        try:
            say(board, "of the child")
            board.close()
            os._exit(0)
        except BaseException:
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    assert say(board, "of the parent") == 3


def test_an_older_incarnation_of_a_host_changes_nothing(board: PostgresBoard) -> None:
    own, other = uuid4(), uuid4()
    hosts = HostsTable(connection.connect(board.address), "shop")
    hosts.begin("h1", own, uuid4(), "boot", "")
    board.acts_for("h1", own)
    assert say(board, "in time") == 2
    hosts.begin("h1", other, uuid4(), "boot", "")
    with pytest.raises(HostFenced, match="h1"):
        say(board, "of an older incarnation")
    with pytest.raises(HostFenced, match="h1"):
        beat(board, 1)
    assert board.read().revision == 2


# ── an unreadable board ──────────────────────────────────────────────────────────────────────────────────────────────


def test_a_board_that_was_broken_by_sql_is_restored(board: PostgresBoard, sql: ServerConnection) -> None:
    say(board, "kept")
    sql.execute("UPDATE liza.entry SET body = '  - id: [\n', change = 3 WHERE name = 't1'")
    sql.execute("UPDATE liza.crew SET change = 3")
    with pytest.raises(BoardUnreadable, match="crew shop"):
        board.read()
    with pytest.raises(BoardUnreadable):
        say(board, "never")
    restored = board.restore("human", board.last_good_text)
    assert restored is not None
    assert restored.broken_copy is not None
    assert "- id: [" in restored.broken_copy.read_text()
    assert messages(board.read()) == ["kept"]
    assert board.restore("human", board.last_good_text) is None
    assert [record.event for record in board.records()] == ["restore", "note", "init"]


def test_a_database_from_an_older_backup_is_read_anew(board: PostgresBoard, sql: ServerConnection) -> None:
    say(board, "lost")
    sql.execute("DELETE FROM liza.entry WHERE section = 'human_notes'")
    sql.execute("DELETE FROM liza.journal WHERE revision = 2")
    sql.execute("UPDATE liza.entry SET body = 'revision: 1\n', change = 1 WHERE section = 'revision'")
    sql.execute("UPDATE liza.crew SET revision = 1, change = 1, journaled = 1")
    assert board.read_text() == FIRST
    assert say(board, "again") == 2


# ── signals ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stop_is_set_although_the_lock_is_held(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liza.board.postgresql.signal_rows._SHORT_WAIT", ("SET LOCAL lock_timeout = '50ms'", {}))
    other = opened()
    with board.lock_signals() as is_held:
        assert is_held
        board.raise_signal("CHECKPOINT", "mine")
        assert list(board.signals()) == ["CHECKPOINT"]
        with other.lock_signals(is_stop=True) as is_held_too:
            assert not is_held_too
            other.raise_signal("PAUSE", "2026-01-01T00:00:00Z human\nwhy\n")
        with pytest.raises(LockTimeout), other.lock_signals():
            pass
    signals = other.signals()
    assert list(signals) == ["CHECKPOINT", "PAUSE"]
    assert (signals["PAUSE"].author, signals["PAUSE"].reason) == ("human", "why")
    assert (other.clear_signal("PAUSE"), other.clear_signal("PAUSE")) == (True, False)


# ── watching ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_watch_reports_changes_of_others_also_after_its_connection_was_lost(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], sql: ServerConnection
) -> None:
    events: queue.Queue[WatchEvent] = queue.Queue()
    listening = "SELECT pid FROM pg_stat_activity WHERE query LIKE '%string_agg(%' AND pid <> pg_backend_pid()"
    with opened().watch() as watch:
        say(board, "before the subscription")
        watch.subscribe(events)
        assert events.get(timeout=LONG) == BoardChanged()
        beat(board, 1)
        assert events.get(timeout=LONG) == BoardChanged()
        board.raise_signal("PAUSE", "why")
        assert events.get(timeout=LONG) == SignalChanged()
        sql.execute(f"SELECT pg_terminate_backend(pid) FROM ({listening}) AS sessions")
        say(board, "while nothing listens")
        assert events.get(timeout=LONG) == BoardChanged()
        say(board, "and then")
        assert events.get(timeout=LONG) == BoardChanged()
    assert events.empty()


def test_a_watch_hears_of_the_last_of_many_changes(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], sql: ServerConnection, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: queue.Queue[CrewMarks] = queue.Queue()

    def look(connection: ServerConnection, crew: str) -> CrewMarks:
        looks.put(signal_rows.read_marks(connection, crew))
        return looks.queue[-1]

    monkeypatch.setattr(server_watch, "LOOK_SECONDS", 10 * LONG)
    monkeypatch.setattr(server_watch, "LOOK_AGAIN_SECONDS", 2.0)  # A commit may take long here.
    monkeypatch.setattr(server_watch, "read_marks", look)
    with opened().watch():
        for number in range(30):
            beat(board, number)
        newest = signal_rows.read_marks(sql, "shop")
        while looks.get(timeout=LONG) != newest:
            pass


# ── the archive ──────────────────────────────────────────────────────────────────────────────────────────────────────


def archive(board: PostgresBoard, task_id: str) -> None:
    with board.transaction("human", "drop", task=task_id) as tx:
        found = tx.state.task(task_id)
        assert found is not None
        tx.state = tx.state.with_task(replace(found, status=Status.ABANDONED))
    with board.transaction("human", "archive") as tx:
        tx.moved = archived_entries.movable_texts(tx.document, [task_id])
        moved = [task for task in tx.state.tasks if task.id == task_id]
        tx.state = archiving.move_to_archive(tx.state, moved, board.count_archived([task_id]))


def test_archived_tasks_are_rows_and_files_of_the_history(
    board: PostgresBoard, opened: Callable[[], PostgresBoard], sql: ServerConnection
) -> None:
    archive(board, "t2")
    archive(board, "t1")
    other = opened()
    assert other.read().tasks == ()
    assert (other.archived_ids(), [task.id for task in other.archived_tasks()]) == (["t2", "t1"], ["t1", "t2"])
    assert other.count_archived(["t2"]).statuses == {"ABANDONED": 1}
    assert next(record.archived for record in other.records()) == ("t1",)
    [(name, data)] = other.read_archive().items()
    assert name == f"{datetime.now(UTC):%Y-%m}.yaml"
    assert [key for key, _ in archived_entries.split_text(data.decode())] == ["t2", "t1"]
    assert "UNCLAIMED # a comment" not in data.decode()
    assert other.find_archive_damage(other.read()) is None
    sql.execute("DELETE FROM liza.archived WHERE task = 't1'")
    assert other.find_archive_damage(other.read()) is not None
    restored = other.restore_archive("human", {name: data.decode()})
    assert (restored.names, restored.ids) == ((name,), {"t1", "t2"})
    assert board.read_archive() == {name: data}
    assert other.archived({"t1", "t3"})["t1"].task is not None
    assert list(other.find_faulty_entries()) == []


# ── the clock ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_clock_is_that_of_the_server(board: PostgresBoard, opened: Callable[[], PostgresBoard]) -> None:
    wrong = FakeClock()
    for asked in (board, opened()):
        now = asked.clock(wrong).now()
        assert abs(now - datetime.now(UTC)) < timedelta(seconds=5)
        assert now.microsecond == 0
    gone = PostgresBoard(board.paths, wrong, replace(board.address, url="postgresql://nobody@/none?host=/nowhere"))
    assert gone.clock(wrong).now() == NOW
