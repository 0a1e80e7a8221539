"""Lost connections, killed servers, stopped and killed clients: each change is made once, or not at all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from liza.board.address import BoardAddress, parse_url, write_address
from liza.board.postgresql.connection import ServerConnection
from liza.board.postgresql.crew_statements import MAX_BYTES
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.model.errors import BoardUnavailable
from liza.model.model import HumanNote
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.campaign.small_board import FIRST
from tests.conftest import LONG, until, variant
from tests.edges.board.cutting_proxy import Cut, CuttingProxy
from tests.edges.board.postgres_reader import Where
from tests.postgresql import PORT, PostgreSQL, run_server
from tests.tools import Tools

ROOT = Path(__file__).parents[3]


@pytest.fixture
def board(address: BoardAddress, tmp_path: Path) -> Iterator[PostgresBoard]:
    made = PostgresBoard(Paths(tmp_path), SystemClock(), address)
    made.create(FIRST)
    yield made
    made.close()


@pytest.fixture
def proxy(postgresql: PostgreSQL, tmp_path: Path) -> Iterator[CuttingProxy]:
    directory = tmp_path / "s"
    directory.mkdir()
    made = CuttingProxy(directory, postgresql.sockets / f".s.PGSQL.{PORT}")
    yield made
    made.close()


@pytest.fixture
def far(board: PostgresBoard, proxy: CuttingProxy, database: str, tmp_path: Path) -> Iterator[PostgresBoard]:
    """The board of a client behind the proxy, which has read it."""
    url = f"postgresql://postgres@/{database}?host={proxy.directory}&crew=shop"
    made = PostgresBoard(Paths(tmp_path), SystemClock(), parse_url(url))
    made.read()
    yield made
    made.close()


@pytest.fixture
def sql(postgresql: PostgreSQL, database: str) -> Iterator[ServerConnection]:
    """A connection of the owner."""
    connection = postgresql.connect(database)
    yield connection
    connection.close()


def say(board: PostgresBoard, text: str, inside: Callable[[], object] = lambda: None) -> int | None:
    with board.transaction("human", text) as tx:
        note = HumanNote(timestamp=SystemClock().now(), message=text)
        tx.state = msgspec.structs.replace(tx.state, human_notes=(*tx.state.human_notes, note))
        inside()
    return tx.revision


def events(board: PostgresBoard) -> list[tuple[int, str]]:
    return [(record.revision, record.event) for record in board.records()][::-1]


def check(board: PostgresBoard) -> None:
    """Every revision can be rebuilt, and none is missing."""
    texts = list(board.texts())
    assert [line.revision for line, _ in texts] == list(range(1, len(texts) + 1))
    assert texts[-1][1] == board.read_text()


# ── lost connections ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("cut", Cut)
def test_a_change_is_made_once_wherever_its_connection_is_cut(
    far: PostgresBoard, board: PostgresBoard, proxy: CuttingProxy, cut: Cut
) -> None:
    if cut is Cut.CONNECT:
        far.close()
    proxy.cut = cut
    assert say(far, "cut") == 2
    assert proxy.cut is None
    assert say(far, "next") == 3
    assert events(board) == [(1, "init"), (2, "cut"), (3, "next")]
    check(board)


@pytest.mark.parametrize(
    ("cut", "outcomes"),
    [(Cut.LOCK, {True}), (Cut.WRITE, {False}), (Cut.COMMIT, {True, False}), (Cut.ANSWER, {True})],
)
def test_the_answer_of_a_change_in_doubt_is_true(
    far: PostgresBoard, board: PostgresBoard, proxy: CuttingProxy, cut: Cut, outcomes: set[bool]
) -> None:
    proxy.cut, proxy.on_cut = cut, lambda: say(board, "other")
    revisions = set[int | None]()
    with suppress(BoardUnavailable):
        revisions.add(say(far, "cut"))
    assert {revision for revision, event in events(board) if event == "cut"} == revisions
    assert bool(revisions) in outcomes
    assert [event for _, event in events(board)].count("other") == 1
    check(board)


def test_a_heartbeat_is_made_wherever_its_connection_is_cut(
    far: PostgresBoard, board: PostgresBoard, proxy: CuttingProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for second, cut in enumerate((Cut.WRITE, Cut.COMMIT, Cut.ANSWER)):
        # A heartbeat writes no journal; its rows name the beat.
        moment = SystemClock().now().replace(second=second)
        monkeypatch.setattr(proxy, "_find_due", _cut_at(proxy, cut, b"UPDATE crew SET revision"))
        with far.heartbeat("coder-1") as tx:
            agent = msgspec.structs.replace(tx.state.agents["coder-1"], heartbeat=moment)
            tx.state = tx.state.with_agent("coder-1", agent)
        assert board.read().agents["coder-1"].heartbeat == moment
    assert (proxy.cuts, board.read().revision) == (3, 1)


def _cut_at(proxy: CuttingProxy, cut: Cut, marker: bytes) -> Callable[[bytes], Cut | None]:
    proxy.cut = cut
    take = vars(CuttingProxy)["_take"]
    return lambda data: cut if marker in data and take(proxy, cut) else None


def test_a_session_that_the_server_ended_in_the_block_is_replaced(
    board: PostgresBoard, postgresql: PostgreSQL, database: str
) -> None:
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE state = 'idle in transaction'"
    assert say(board, "ended", lambda: postgresql.run_sql(end, database=database)) == 2
    assert events(board) == [(1, "init"), (2, "ended")]


def test_reads_go_on_after_the_server_ended_the_session(
    board: PostgresBoard, postgresql: PostgreSQL, database: str
) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    postgresql.run_sql(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", database=database)
    assert board.read().revision == 1
    assert board.archived_ids() == []


# ── clients ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def start_writer(root: Path, name: str, *numbers: float) -> subprocess.Popen[str]:
    words = [sys.executable, "-m", "tests.edges.board.postgres_writer", str(root), name, *map(str, numbers)]
    return subprocess.Popen(words, cwd=ROOT, stdout=subprocess.PIPE, text=True)


def read_line(writer: subprocess.Popen[str]) -> str:
    assert writer.stdout is not None
    return writer.stdout.readline().strip()


@pytest.mark.parametrize("signal_number", [signal.SIGSTOP, signal.SIGKILL])
def test_a_client_that_stops_in_a_change_frees_the_others(
    board: PostgresBoard, address: BoardAddress, tmp_path: Path, signal_number: signal.Signals
) -> None:
    write_address(Paths(tmp_path).board_address, address)
    limit = 1
    writer = start_writer(tmp_path, "stopped", 200, limit)
    try:
        for _ in range(20):
            while read_line(writer) != "inside":
                pass
        os.kill(writer.pid, signal_number)
        start = time.monotonic()
        say(board, "after")
        assert time.monotonic() - start < limit + 5
        check(board)
        if signal_number is signal.SIGKILL:
            return
        os.kill(writer.pid, signal.SIGCONT)
        lines = iter(lambda: read_line(writer), "")
        # The first ones may be of changes before the stop.
        outcomes = [next(line for line in lines if line != "inside") for _ in range(4)]
        lost = [outcome for outcome in outcomes if not outcome.isdecimal()]
        assert len(lost) <= 1
        assert all(outcome.startswith("unknown") for outcome in lost)
        assert {int(outcome) for outcome in outcomes if outcome.isdecimal()} <= {
            record.revision for record in board.records()
        }
    finally:
        writer.kill()
        writer.wait(LONG)
    check(board)


@pytest.mark.parametrize("where", list(Where), ids=lambda where: where.name)
@pytest.mark.parametrize("limit", [1, variant(0, name="limits of Liza")])
def test_a_client_stopped_in_a_read_delays_others_for_seconds(
    board: PostgresBoard, address: BoardAddress, sql: ServerConnection, tmp_path: Path, where: Where, limit: int
) -> None:
    write_address(Paths(tmp_path).board_address, address)
    archive = """
    INSERT INTO archived (crew, change, ord, task, body, value, status)
    SELECT 'shop', 1, number, 'old-' || number, repeat('x', 60000), NULL, '' FROM generate_series(1, 100) number"""
    sql.execute(archive)
    newer = "x" * (MAX_BYTES - 5000)
    words = [sys.executable, "-m", "tests.edges.board.postgres_reader", str(tmp_path), where.name, str(limit)]
    reader = subprocess.Popen(words, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert reader.stdin is not None
    try:
        assert read_line(reader) == "ready"
        say(board, newer)
        before = board.read().revision
        reader.stdin.write("\n")
        reader.stdin.flush()
        stat = Path(f"/proc/{reader.pid}/stat")
        until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "the client has stopped")
        start = time.monotonic()
        assert say(board, "after") == before + 1
        seconds = time.monotonic() - start
        assert seconds < (limit + 5 if limit else 10)
        os.kill(reader.pid, signal.SIGCONT)
        outcome = read_line(reader)
        print(f"\n{where}: {seconds:.1f} s, {outcome}")
        assert outcome == str(before + 2) if where is Where.ALONE else outcome.startswith("refused")
    finally:
        reader.kill()
        reader.wait(LONG)
    check(board)


# ── the server ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def own_server(_tools: Tools) -> Iterator[PostgreSQL]:
    """A server that this test may kill. It writes to the disk as a real one does."""
    with run_server(PostgreSQL(_tools.find("postgresql"))) as server:
        yield server


@pytest.mark.parametrize("times", [1, variant(10, name="10 times")])
def test_a_killed_server_loses_and_doubles_no_change(own_server: PostgreSQL, tmp_path: Path, times: int) -> None:
    paths, database = Paths(tmp_path), own_server.create_database()
    board = PostgresBoard(paths, SystemClock(), own_server.address(database))
    board.create(FIRST)
    write_address(paths.board_address, own_server.address(database))
    names = [f"client-{number}" for number in range(8)]
    writers = {name: start_writer(tmp_path, name, 100_000) for name in names}
    lines: dict[str, list[str]] = {name: [] for name in names}
    readers = [threading.Thread(target=_collect, args=(writers[name], lines[name])) for name in names]
    for reader in readers:
        reader.start()
    try:
        for _ in range(times):
            _wait_for_progress(lines)
            own_server.kill()
            own_server.start()
        _wait_for_progress(lines)
    finally:
        for writer in writers.values():
            writer.terminate()
        for reader in readers:
            reader.join(LONG)
        for writer in writers.values():
            writer.wait(LONG)
    records = [record for record in board.records() if record.event != "init"]
    written = {(record.actor, record.event): record.revision for record in records}
    assert len(written) == len(records), "a change was made twice"
    assert sorted(written.values()) == list(range(2, len(records) + 2))
    for name in names:
        outcomes = [line for line in lines[name] if line != "inside"]
        for number, outcome in enumerate(outcomes):
            revision = written.get((name, f"write {number}"))
            if outcome.isdecimal():
                assert revision == int(outcome), f"{name} was told that write {number} is revision {outcome}"
            else:
                assert revision is None, f"{name} was told that write {number} is not made"
    task = board.read().task("t1")
    assert task is not None
    assert task.iteration == len(records)
    check(board)


def _collect(writer: subprocess.Popen[str], lines: list[str]) -> None:
    assert writer.stdout is not None
    lines.extend(line.strip() for line in writer.stdout)


def _wait_for_progress(lines: dict[str, list[str]]) -> None:
    """Wait until each client has made some more changes."""

    def made() -> Counter[str]:
        return Counter({name: sum(line.isdecimal() for line in own) for name, own in lines.items()})

    before, end = made(), time.monotonic() + 2 * LONG
    while any(made()[name] < before[name] + 5 for name in lines):
        assert time.monotonic() < end, f"no progress: {before}, {made()}"
        time.sleep(0.02)
