"""`liza web` at a terminal, in the example crew or another one."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from liza.board.file_store.file_board import FileBoard
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.journeys.crews import BIN
from tests.terminal_stand_in import TerminalStandIn

EXAMPLE_TIME = datetime(2026, 11, 20, 10, 0, 30, tzinfo=UTC)
"""When visits of the example crew begin: half a minute after the last revision of its board."""
_RUN = """\
import sys
from datetime import UTC, datetime, timedelta
from liza.system.clock import SystemClock
shift = timedelta(seconds=float(sys.argv[1]))
SystemClock.now = lambda self: datetime.now(UTC).replace(microsecond=0) - shift
from liza.cli.entry_points import run_command
sys.exit(run_command(sys.argv[2:]))
"""
_ADDRESS = re.compile(r"(http://127\.0\.0\.1:\d+)/\S*#t=([\w-]+)")
_LIMIT = 30.0


class Web:
    """A running `liza web`: its crew, its terminal and its address."""

    def __init__(self, root: Path, terminal: TerminalStandIn, port: int) -> None:
        self.root, self.terminal, self.port = root, terminal, port
        self.board = FileBoard(Paths(root), SystemClock())
        self._used: set[str] = set()

    @property
    def origin(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        return self.terminal.process.pid

    def take_address(self) -> str:
        """Return an address with a code that nobody has used; press Enter for another one if there is none."""
        if not self._unused:
            self.terminal.type("\r")
            self.terminal.wait_for(lambda: self._unused)
        match = self._unused[-1]
        self._used.add(match[2])
        return match[0]

    @property
    def _unused(self) -> list[re.Match[str]]:
        return [match for match in _ADDRESS.finditer(self.terminal.text) if match[2] not in self._used]

    def describe(self, text: str, task_id: str = "invoice-pdf") -> None:
        """Change the description of a task on the board."""
        self.change_task(task_id, description=text)

    def change_task(self, task_id: str, **fields: object) -> None:
        """Change fields of a task on the board."""
        with self.board.transaction("human:ana", "edit") as tx:
            tx.state = tx.state.with_task(msgspec.structs.replace(tx.state.task(task_id), **fields))


@contextmanager
def open_shop(root: Path) -> Iterator[None]:
    """Make the example crew in an empty directory; a process of its own holds it open."""
    holder = subprocess.Popen(
        [sys.executable, "-m", "tests.browser.example_shop", root],
        cwd=Path(__file__).parents[2], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    assert holder.stdin is not None
    assert holder.stdout is not None
    try:
        assert holder.stdout.readline() == b"ready\n"
        yield
    finally:
        holder.stdin.close()
        holder.wait(_LIMIT)


@contextmanager
def running_web(root: Path, port: int = 0, command: Sequence[str] = (str(BIN / "liza"),)) -> Iterator[Web]:
    """Yield a `liza web` that serves, at a terminal of its own."""
    port = port or find_free_port()
    with TerminalStandIn([*command, "web", "--port", str(port)], root, (200, 40)) as terminal:
        terminal.wait_for(lambda: _ADDRESS.search(terminal.text) or terminal.process.poll() is not None)
        assert terminal.process.poll() is None, terminal.text
        yield Web(root, terminal, port)


def at_example_time() -> tuple[str, ...]:
    """Return the words that run Liza in the time of the example board, from now on."""
    shift = (datetime.now(UTC) - EXAMPLE_TIME).total_seconds()
    return sys.executable, "-c", _RUN, str(shift)


def find_free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port
