"""Rows of a crew on several hosts: the board in PostgreSQL and the board in files, in one run.

``python -m benchmarks.host_rows write|watch ROOT NUMBER SECONDS TASKS`` is one client, as ``writer_rows`` has it.
"""

from __future__ import annotations

import json
import queue
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path
from typing import Any
from uuid import uuid4

from benchmarks.command_rows import VARIABLE, command_server
from benchmarks.options import Options
from benchmarks.projects import commit_work, end_processes, project, recorded_elsewhere
from benchmarks.rows import Row, percentile, summarize
from benchmarks.sample_boards import WallClock, board_text, flip
from benchmarks.timing import run_process
from liza.board.address import write_address
from liza.board.opening import open_board
from liza.board.postgresql.connection import connect
from liza.board.postgresql.hosts_table import HostsTable
from liza.model.errors import LockTimeout
from liza.model.paths import Paths
from tests.conftest import make_remote
from tests.journeys.crews import BIN, Crew
from tests.postgresql import PostgreSQL, run_server
from tests.tools import DIRECTORIES

FILES = "the board in files"
HOSTS, LEASES = 100, 100
SLOW_COMMIT = """
CREATE FUNCTION liza.wait_a_little() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN PERFORM pg_sleep(0.005); RETURN NULL; END $$;
CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON liza.journal DEFERRABLE INITIALLY DEFERRED
FOR EACH ROW EXECUTE FUNCTION liza.wait_a_little()"""
_CREWS = count(1)


def write_until(root: Path, number: int, seconds: float, tasks: int) -> None:
    """One client: wait at the gate, then change the board as often as possible for ``seconds``."""
    board = open_board(Paths(root), WallClock())
    board.read()
    _wait_at_gate()
    taken, end = [], time.perf_counter() + seconds
    while (start := time.perf_counter()) < end:
        try:
            flip(board, f"task-{number % tasks}")  # type: ignore[arg-type]
        except LockTimeout:
            continue
        taken.append((time.perf_counter() - start) * 1000)
    print(*(f"{value:.2f}" for value in taken))


def watch_until(root: Path) -> None:
    """Print the moment of each event until stdin ends."""
    events: queue.Queue[Any] = queue.Queue()
    with open_board(Paths(root), WallClock()).watch() as watch:
        watch.subscribe(events)
        print("ready", flush=True)
        while True:
            events.get()
            print(time.monotonic(), flush=True)


def _wait_at_gate() -> None:
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.read()


class Place:
    """Where crews of one store are made."""

    def __init__(self, scratch: Path, server: PostgreSQL | None, database: str = "") -> None:
        self._scratch, self._server, self._database = scratch, server, database

    def make(self, tasks: int) -> Path:
        """Make a crew with a board, and return its root."""
        root = Path(tempfile.mkdtemp(prefix="hosts-", dir=self._scratch))
        paths = Paths(root)
        paths.liza.mkdir()
        if self._server is not None:
            write_address(paths.board_address, self._server.address(self._database, crew=f"crew-{next(_CREWS)}"))
        open_board(paths, WallClock()).create(board_text(tasks))
        return root


class Load:
    """What clients did together. ``roots``: the crew of each client."""

    def __init__(self, roots: list[Path], seconds: float, tasks: int) -> None:
        clients = [_start("write", root, number, seconds, tasks) for number, root in enumerate(roots)]
        try:
            for client in clients:
                _wait_until_ready(client)
            for client in clients:
                assert client.stdin is not None
                client.stdin.close()
                client.stdin = None
            outputs = [client.communicate()[0] for client in clients]
        finally:
            for client in clients:
                client.kill()
                client.wait()
        self.taken = [float(word) for output in outputs for word in output.split()]
        self.rate = len(self.taken) / seconds


def _start(kind: str, root: Path, *words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.host_rows", kind, str(root), *map(str, words)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _wait_until_ready(client: subprocess.Popen[str]) -> None:
    assert client.stdout is not None
    if client.stdout.readline() != "ready\n":
        raise RuntimeError("a client ended before the gate")


def measure_wake_ups(root: Path, rounds: int) -> list[float]:
    """Return the milliseconds from the end of a change until a watcher in another process hears of it."""
    board = open_board(Paths(root), WallClock())
    watcher = _start("watch", root)
    _wait_until_ready(watcher)
    assert watcher.stdout is not None
    taken = []
    try:
        for _ in range(rounds):
            begin = time.monotonic()
            flip(board, "task-1")  # type: ignore[arg-type]
            done = time.monotonic()
            # A change may have several events: those of the one before are older.
            heard = next(moment for line in watcher.stdout if (moment := float(line)) > begin)
            taken.append(max(0.0, heard - done) * 1000)
            time.sleep(0.02)
    finally:
        watcher.kill()
        watcher.wait()
    return taken


def measure_renewals(server: PostgreSQL, database: str, rounds: int) -> list[float]:
    """Return the milliseconds of one renewal, of HOSTS hosts in turn, each with LEASES agents."""
    connection = connect(server.address(database, crew="renewals"))
    table = HostsTable(connection, "renewals")
    hosts = {f"h{number}": [uuid4(), uuid4()] for number in range(HOSTS)}
    for name, (incarnation, token) in hosts.items():
        table.begin(name, incarnation, token, "boot", "")
        connection.execute("BEGIN")
        for number in range(LEASES):
            table.take_agent(f"coder-{name[1:]}{number:03}", name, incarnation)
        connection.execute("COMMIT")
    taken = []
    for _ in range(rounds):
        for name, known in hosts.items():
            token, start = uuid4(), time.perf_counter()
            if not table.renew(name, known[0], (known[1],), token, 0):
                raise RuntimeError("a renewal was refused")
            taken.append((time.perf_counter() - start) * 1000)
            known[1] = token
    connection.close()
    return taken


def measure_submits(crew: Crew, rounds: int, socket: Path) -> list[float]:
    """Return the milliseconds of `liza submit` as a process, in worktrees of a crew, through the command server."""
    taken = []
    with recorded_elsewhere(crew):
        for number in range(rounds):
            crew.prepare("claim", f"t{number}", "--agent", f"coder-{number + 1}")
            record = json.loads(crew.liza("task", "show", f"t{number}", "--json"))
            worktree = crew.paths.slot(record["worktree"])
            commit_work(worktree, f"t{number}.txt")
            env = {"LIZA_RUN": record["run"], "LIZA_TASK": f"t{number}", "LIZA_ROOT": str(crew.root)}
            taken.append(run_process([str(BIN / "liza"), "submit"], worktree, {**env, VARIABLE: str(socket)}).wall)
    return taken


def measure_pushes(clone: Path, rounds: int) -> list[float]:
    """Return the milliseconds of `git push` of a new branch to the remote."""
    words = ["git", "push", "-q", "origin"]
    return [run_process([*words, f"HEAD:refs/heads/push-{number}"], clone).wall for number in range(rounds)]


@contextmanager
def crew_of_a_host(scratch: Path, url: str) -> Iterator[Crew]:
    """A clone with a crew in PostgreSQL, beside its remote."""
    home = Path(tempfile.mkdtemp(prefix="host-", dir=scratch))
    run_process(["git", "clone", "-q", str(make_remote(home)), str(home / "shop")], home)
    (home / "notes").mkdir()
    crew = Crew(home / "shop", home / "notes")
    crew.liza("init", "Every file is there", "--board", url, "--host", "h1", "--no-test", "--confinement", "off")
    try:
        yield crew
    finally:
        end_processes(crew)
        shutil.rmtree(home, ignore_errors=True)


def _measure_submits(options: Options, url: str) -> Iterator[Row]:
    rounds = options.rounds(20)
    with (
        command_server(options) as (socket, _),
        project(options, confinement="off") as files,
        crew_of_a_host(options.scratch, url) as own,
    ):
        for crew in (files, own):
            crew.add(*(f"t{number}" for number in range(rounds)))
        beside, taken = (measure_submits(crew, rounds, socket) for crew in (files, own))
        pushes = summarize(measure_pushes(own.root, rounds))
    target = 60.0 + pushes.median
    note = f"a `git push` as a process takes {pushes.median:g} ms"
    yield Row("hosts", "submit as a process", "ms", summarize(taken), {FILES: summarize(beside)}, target, note=note)


def running_server() -> AbstractContextManager[PostgreSQL]:
    """Run a PostgreSQL with the settings that it has after its installation, on the disk of the boards in files."""
    found = [shutil.which("postgres", path=directory) for directory in DIRECTORIES["postgresql"]]
    program = next(filter(None, [shutil.which("postgres"), *found]))
    settings = {"autovacuum": "on", "shared_buffers": "128MB"}
    return run_server(PostgreSQL(Path(program), settings, room=Path(tempfile.gettempdir())))


def _measure_loads(options: Options, own: Place, files: Place) -> Iterator[Row]:
    seconds = 1.0 if options.quick else 4.0
    sizes = [(8, 50), (8, 500)] if options.quick else [(c, t) for t in (50, 500, 5000) for c in (1, 8, 64)]
    for clients, tasks in sizes:
        rows, file = (Load([place.make(tasks)] * clients, seconds, tasks) for place in (own, files))
        name = f"{clients} client{'s' * (clients > 1)}, {tasks} tasks"
        is_goal = (clients, tasks) == (8, 500)
        rivals = {FILES: summarize([file.rate])}
        target = 200.0 if is_goal else None
        yield Row("hosts", name, "transitions/s", summarize([rows.rate]), rivals, target, "higher")
        slowest, rivals = ({key: summarize([percentile(load.taken, 99)])} for key, load in (("", rows), (FILES, file)))
        yield Row("hosts", f"{name}, p99", "ms", slowest[""], rivals, 150.0 if is_goal else None)


def _measure_crews(options: Options, own: Place, slow: Place, files: Place) -> Iterator[Row]:
    seconds, tasks = (1.0 if options.quick else 4.0), 50
    for crews in (8,) if options.quick else (8, 60):
        loads = [Load([place.make(tasks) for _ in range(crews)], seconds, tasks) for place in (own, slow, files)]
        rate, rivals = summarize([loads[0].rate]), {FILES: summarize([loads[2].rate])}
        yield Row("hosts", f"{crews} crews at once", "transitions/s", rate, rivals, None, "higher")
        note = f"each commit takes 5 ms longer; p99 {percentile(loads[1].taken, 99)} ms"
        name = f"{crews} crews at once, slow commits"
        yield Row("hosts", name, "transitions/s", summarize([loads[1].rate]), {}, None, "higher", note=note)


def measure(options: Options) -> Iterator[Row]:
    with running_server() as server:
        database, slow = server.create_database(), server.create_database()
        server.run_sql(SLOW_COMMIT, database=slow)
        own, files = Place(options.scratch, server, database), Place(options.scratch, None)
        yield from _measure_loads(options, own, files)
        rounds = options.rounds(200)
        rows, file = (measure_wake_ups(place.make(500), rounds) for place in (own, files))
        yield Row("hosts", "wake-up of another process, p95", "ms", summarize(rows), {FILES: summarize(file)}, 150.0)
        yield from _measure_submits(options, server.url(server.create_database()))
        yield from _measure_crews(options, own, Place(options.scratch, server, slow), files)
        renewals = summarize(measure_renewals(server, database, options.rounds(10)))
        name = f"renewal of a host with {LEASES} agents, {HOSTS} hosts"
        yield Row("hosts", name, "ms", renewals, target=10_000.0 / HOSTS, note="each host renews every 10 s")


if __name__ == "__main__":
    if sys.argv[1] == "watch":
        watch_until(Path(sys.argv[2]))
    else:
        write_until(Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]), int(sys.argv[5]))
