"""A whole crew copied from files into a real PostgreSQL and back: the same bytes, or nothing at all."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from uuid import uuid4

import pytest

from liza.board import crew_moves
from liza.board.address import BoardAddress
from liza.board.crew_copy import CrewCopy, find_difference
from liza.board.file_store.file_board import FileBoard
from liza.board.postgresql import crew_rows
from liza.board.postgresql.hosts_table import HostsTable
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.model.errors import BoardInconsistent, NoCrew, Refused
from liza.model.model import HumanNote
from liza.model.paths import Paths
from liza.model.value_classes import replace
from liza.system.clock import SystemClock
from tests.postgresql import PostgreSQL

EXAMPLE = Path(__file__).parents[3] / ".liza.example" / "state.yaml"
ROOTS = ("a" * 40, "b" * 40)


@pytest.fixture
def paths(tmp_path: Path) -> Paths:
    return Paths(tmp_path / "files")


@pytest.fixture
def copy(paths: Paths) -> CrewCopy:
    """The files of a crew with a history, comments and keys that no rule reads."""
    files = FileBoard(paths, SystemClock())
    text = EXAMPLE.read_text().replace("sprint:\n", "own_key: [1,  2]   # mine\nsprint:\n", 1)
    files.create(text)
    add_note(files, "first")
    with files.heartbeat("coder-1") as tx:
        name, agent = next((name, agent) for name, agent in tx.state.agents.items() if agent.lease_expires is not None)
        renewed = replace(agent, lease_expires=datetime(2027, 1, 1, tzinfo=UTC))
        tx.state = replace(tx.state, agents={**tx.state.agents, name: renewed})
    files.raise_signal("PAUSE", "2026-01-01T12:00:00Z human:ann\nmoving\n")
    return crew_moves.read_files(paths, {"goal.md": "# The goal\n"})


def add_note(board: FileBoard | PostgresBoard, message: str) -> None:
    note = HumanNote(timestamp=datetime(2026, 1, 1, tzinfo=UTC), message=message)
    with board.transaction("human:ann", "note") as tx:
        tx.state = replace(tx.state, human_notes=(*tx.state.human_notes, note))


def open_board(address: BoardAddress, tmp_path: Path) -> PostgresBoard:
    return PostgresBoard(Paths(tmp_path / "clone"), SystemClock(), address)


def test_a_crew_comes_back_as_it_went(address: BoardAddress, copy: CrewCopy, tmp_path: Path) -> None:
    crew_moves.import_crew(address, copy, ROOTS)
    assert crew_moves.read_repository(address) == ROOTS
    back = crew_moves.export_crew(address)
    assert find_difference(copy, back) is None
    target = Paths(tmp_path / "back")
    crew_moves.write_files(target, back)
    assert "own_key: [1,  2]   # mine" in target.state.read_text()
    assert FileBoard(target, SystemClock()).read_text() == copy.text
    assert (target.specs / "goal.md").read_text() == "# The goal\n"


def test_an_edit_keeps_comments_and_unknown_keys(address: BoardAddress, copy: CrewCopy, tmp_path: Path) -> None:
    crew_moves.import_crew(address, copy, ROOTS)
    board = open_board(address, tmp_path)
    edited = copy.text.replace("# mine", "# still mine").replace("[1,  2]", "[1,  3]")
    board.replace_text("human:ann", edited)
    board.close()
    back = crew_moves.export_crew(address).text
    revision = board.read().revision
    assert back == edited.replace(f"revision: {revision - 1}", f"revision: {revision}", 1)


def test_the_history_goes_on_in_both_stores(address: BoardAddress, copy: CrewCopy, tmp_path: Path) -> None:
    crew_moves.import_crew(address, copy, ROOTS)
    board = open_board(address, tmp_path)
    add_note(board, "on the server")
    revisions = [record.revision for record in board.records()]
    assert revisions == [len(copy.lines) + 1, *reversed([line.revision for line in copy.lines])]
    # Each revision can be rebuilt, also the one after a heartbeat that the journal does not have.
    assert [line.revision for line, _ in board.texts()] == sorted(revisions)
    board.close()
    target = Paths(tmp_path / "back")
    crew_moves.write_files(target, crew_moves.export_crew(address))
    files = FileBoard(target, SystemClock())
    add_note(files, "in the file")
    assert [line.revision for line, _ in files.texts()] == [*sorted(revisions), revisions[0] + 1]
    assert files.take_alerts() == []


def test_archived_tasks_are_grouped_by_month(address: BoardAddress, copy: CrewCopy, tmp_path: Path) -> None:
    def entry(name: str, month: int) -> str:
        event = f'      - {{time: "2026-{month:02}-03T10:00:00Z", event: drop, agent: "human:ann"}}\n'
        return f'  - id: "{name}"  # kept\n    status: ABANDONED\n    history:\n{event}'

    archived = {"c": entry("c", 2), "a": entry("a", 1), "b": entry("b", 2)}
    crew_moves.import_crew(address, replace(copy, archived=archived), ROOTS)
    target = Paths(tmp_path / "back")
    crew_moves.write_files(target, crew_moves.export_crew(address))
    assert sorted(path.name for path in target.archive.iterdir()) == ["2026-01.yaml", "2026-02.yaml"]
    assert (target.archive / "2026-02.yaml").read_text().endswith(archived["c"] + archived["b"])
    assert FileBoard(target, SystemClock()).archived_ids() == ["a", "c", "b"]


def test_an_import_that_was_killed_is_completed(address: BoardAddress, copy: CrewCopy, tmp_path: Path) -> None:
    crew_moves.import_crew(address, copy, ROOTS)
    crew_moves.import_crew(address, copy, ROOTS)
    board = open_board(address, tmp_path)
    add_note(board, "somebody works with it already")
    board.close()
    with pytest.raises(Refused, match="has a crew shop already"):
        crew_moves.import_crew(address, copy, ROOTS)


def test_what_postgresql_cannot_hold_is_not_imported(address: BoardAddress, copy: CrewCopy) -> None:
    text = copy.text.replace('"invoice-model"', '"invoice-model"\n    note: "' + "x" * (2 << 20) + '"', 1)
    with pytest.raises(BoardInconsistent, match="invoice-model"):
        crew_moves.import_crew(address, replace(copy, text=text), ROOTS)
    assert crew_moves.read_repository(address) is None


def test_a_supervised_crew_stays_in_the_database(
    address: BoardAddress, copy: CrewCopy, paths: Paths, postgresql: PostgreSQL, database: str
) -> None:
    crew_moves.import_crew(address, copy, ROOTS)
    with crew_moves.connected(address) as connection:
        hosts, incarnation = HostsTable(connection, "shop"), uuid4()
        hosts.begin("h2", incarnation, uuid4(), "boot", "")
        hosts.take_agent("coder-1", "h2", incarnation)
        with pytest.raises(Refused, match="coder-1 on h2"):
            crew_moves.take_crew(address, lambda copy: None)
        hosts.leave("h2", incarnation)
    assert crew_moves.take_crew(address, lambda copy: None).startswith("shop.exported-")
    with pytest.raises(NoCrew, match="no crew shop"):
        crew_moves.export_crew(address)


def test_a_failed_write_leaves_the_crew_where_it_is(address: BoardAddress, copy: CrewCopy) -> None:
    def fail(_: CrewCopy) -> None:
        raise BoardInconsistent("the disk is full")

    crew_moves.import_crew(address, copy, ROOTS)
    with pytest.raises(BoardInconsistent, match="the disk is full"):
        crew_moves.take_crew(address, fail)
    assert find_difference(copy, crew_moves.export_crew(address)) is None


def test_a_crew_is_renamed_in_each_table(postgresql: PostgreSQL, database: str) -> None:
    connection = postgresql.connect(database)
    query = "SELECT table_name FROM information_schema.columns WHERE table_schema = 'liza' AND column_name = 'crew'"
    tables = {name for (name,) in connection.fetch_all(query)}
    connection.close()
    assert tables == set(crew_rows.TABLES)
