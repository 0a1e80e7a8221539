"""A world under the test's control: HOME, git configuration, environment, clock and seed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.mark import ParameterSet
from hypothesis import HealthCheck, settings

from liza.box import support
from liza.text.brief_marks import begin_mark, end_mark
from tests.command_servers import VARIABLE, Usage, running_server
from tests.tools import Tools

if TYPE_CHECKING:
    from liza.board.address import BoardAddress
    from tests.postgresql import PostgreSQL

settings.register_profile(
    "liza",
    deadline=None,
    derandomize=True,
    max_examples=50,  # 100, the default, costs 3 s more CPU time in bin/test. Mutation testing uses it.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile("liza")

# A shell starts a job in the background with SIGINT ignored, and nohup ignores SIGHUP. Every child inherits that: the
# signals that tests send would not arrive.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

REAL_HOME = Path.home()
LONG = 30.0
"""Seconds after which something that was waited for does not come."""
GIT_CONFIG = """\
[user]
\tname = Test Person
\temail = test@example.invalid
[init]
\tdefaultBranch = main
[core]
\tfsync = none
[gc]
\tauto = 0
"""


def variant(*values: object, name: str | None = None) -> ParameterSet:
    """A further row of parameters of a costly test: only the campaigns run it."""
    return pytest.param(*values, marks=pytest.mark.campaign, id=name)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave rows of costly tests to the campaigns, and mix the files.

    Edges compute and journeys wait: processes that run both use the CPUs better. What runs first is taken over by no
    other process: the tests of the demo share a run of it, which takes 20 s of CPU time.
    """
    _mark_rows_beyond_the_sample(items)
    items.sort(key=lambda item: (item.path.stem != "test_demo", zlib.crc32(item.nodeid.partition("::")[0].encode())))


def _mark_rows_beyond_the_sample(items: list[pytest.Item]) -> None:
    """Mark all rows of a test with ``sample(n)`` as campaigns but ``n``, which are spread over the rows."""
    rows = defaultdict(list)
    for item in items:
        if (sample := item.get_closest_marker("sample")) and not item.get_closest_marker("campaign"):
            rows[item.nodeid.partition("[")[0], sample.args[0]].append(item)
    for (_, count), tests in rows.items():
        chosen = {number * len(tests) // count for number in range(count)}
        for number, item in enumerate(tests):
            if number not in chosen:
                item.add_marker(pytest.mark.campaign)


_USAGE = pytest.StashKey[Usage]()


@pytest.fixture(scope="session", autouse=True)
def _command_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, _tools: Tools
) -> Iterator[None]:
    """The command server of this process; tests of functions only need none."""
    if all("unit" in item.path.parts for item in request.session.items):
        yield
        return
    with running_server(tmp_path_factory.mktemp("commands")) as server, pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.conftest._server_socket", str(server.socket))
        sys.addaudithook(server.hear)
        yield
        request.config.stash[_USAGE] = server.count_usage()


_server_socket = "0"
"""LIZA_COMMAND_SERVER of tests."""


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Add what a worker of xdist counted."""
    stash = node.config.stash
    stash[_USAGE] = stash.get(_USAGE, Usage()) + node.workeroutput.get("commands", Usage())


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a run whose commands did not use the command servers: it would have tested something else."""
    usage = session.config.stash.get(_USAGE, Usage())
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        output["commands"] = tuple(usage)
    elif not usage.is_enough():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say how many commands were served. Save how many tests of which file were skipped, and why, for bin/test."""
    usage = config.stash.get(_USAGE, Usage())
    if usage.meant:
        terminalreporter.write_line(f"{usage}{'' if usage.is_enough() else ': TOO FEW'}", red=not usage.is_enough())
    cache = getattr(config, "cache", None)
    if cache is not None:
        skipped = terminalreporter.stats.get("skipped", [])
        counts = Counter((report.nodeid.partition("::")[0], report.longrepr[2]) for report in skipped)
        lines = [f"  skipped {number:3}  {file}: {why}\n" for (file, why), number in sorted(counts.items())]
        (cache.mkdir("liza") / "skipped").write_text("".join(lines).replace(": Skipped: ", ": "))


class RealHomeTouched(AssertionError):
    """A test reached for the HOME of the person who runs it."""


@pytest.fixture(scope="session", autouse=True)
def _real_home_explodes() -> None:
    """Opening anything for writing below the real HOME from this process ends the test."""
    temp = Path(os.environ.get("TMPDIR", "/tmp"))

    def guard(event: str, args: tuple[object, ...]) -> None:
        if event != "open" or not isinstance(args[0], str | bytes | os.PathLike):
            return
        mode = args[1]
        if not (isinstance(mode, str) and set(mode) & set("wax+")):
            return
        path = Path(os.fsdecode(args[0])).absolute()
        dot_files = path.is_relative_to(REAL_HOME) and path.relative_to(REAL_HOME).parts[:1]
        if dot_files and dot_files[0].startswith(".") and dot_files[0] not in _CACHES and not path.is_relative_to(temp):
            raise RealHomeTouched(f"{path} is in the real HOME")

    sys.addaudithook(guard)


_CACHES = {".cache", ".pyenv", ".local", ".venv"}


@pytest.fixture(scope="session", autouse=True)
def _tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tools]:
    """The programs of the tests. Fixtures of modules have the PATH of a test that names none."""
    tools = Tools(tmp_path_factory.mktemp("tools"), os.environ)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", tools.require([]))
        yield tools


@pytest.fixture(scope="session")
def tools(_tools: Tools) -> Tools:
    """The programs of the tests, for those that find a program themselves."""
    return _tools


@pytest.fixture(scope="session")
def postgresql(_tools: Tools) -> Iterator[PostgreSQL]:
    """The PostgreSQL of this process, on a Unix socket."""
    from tests.postgresql import PostgreSQL, run_server  # 0.2 s for psycopg, and not every system has it

    with run_server(PostgreSQL(_tools.find("postgresql"))) as server:
        yield server


@pytest.fixture
def database(postgresql: PostgreSQL) -> Iterator[str]:
    """The name of a database of ``postgresql`` with the tables of a board, and no crew."""
    name = postgresql.create_database()
    yield name
    postgresql.drop_database(name)


@pytest.fixture
def url(postgresql: PostgreSQL, database: str) -> str:
    """The URL of the board of a crew in ``database``."""
    return postgresql.url(database)


@pytest.fixture
def address(postgresql: PostgreSQL, database: str) -> BoardAddress:
    """What ``url`` says."""
    return postgresql.address(database)


@pytest.fixture
def usual_path(_tools: Tools) -> str:
    """A PATH without the programs of the environment: ``liza`` is not found."""
    return str(_tools.usual)


@pytest.fixture(autouse=True)
def _own_world(
    request: pytest.FixtureRequest,
    _tools: Tools,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The world of a test. A test with real agent programs keeps the PATH of the person."""
    names = [name for mark in request.node.iter_markers("needs") for name in mark.args]
    real = request.node.get_closest_marker("real") is not None
    monkeypatch.setenv("PATH", _tools.path if real else _tools.require(names))
    support.find_support.cache_clear()  # The PATH of the last test may have had no bubblewrap.
    set_world(tmp_path_factory.mktemp("home"), monkeypatch)


@pytest.fixture(scope="module")
def module_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The world of a fixture that the tests of a module share. It is made before the world of a test."""
    with pytest.MonkeyPatch.context() as patch:
        set_world(tmp_path_factory.mktemp("home"), patch)
        yield


def set_world(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A HOME of its own, a git configuration of its own, UTC, and no GIT_, CI or LIZA_ but the command server.

    Commands run as they do for a person: with buffered streams, and with modules that are compiled once.
    """
    (home / ".gitconfig").write_text(GIT_CONFIG)
    monkeypatch.delenv("CI", raising=False)
    for name in [name for name in os.environ if name.startswith(("LIZA_", "GIT_", "XDG_"))]:
        monkeypatch.delenv(name)
    for name in ("PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(VARIABLE, _server_socket)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(home / ".gitconfig"))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")


class FakeClock:
    """A clock that moves when it is told to."""

    def __init__(self) -> None:
        self._now = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
        self._monotonic = 1000.0

    def now(self) -> datetime:
        return self._now

    def monotonic(self) -> float:
        return self._monotonic

    def advance(self, seconds: float) -> None:
        self._now += timedelta(seconds=seconds)
        self._monotonic += seconds


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def until(holds: Callable[[], object], what: str) -> None:
    """Wait for a condition; fail with ``what`` when it does not come.

    What takes long to look at, as a command does, is looked at less often: the looks take a fifth of the time.
    """
    end = time.monotonic() + LONG
    while True:
        began = time.monotonic()
        if holds():
            return
        assert time.monotonic() < end, what
        time.sleep(max(0.01, 4 * (time.monotonic() - began)))


def worktree_of(root: Path, task: str) -> Path:
    """The path that ``liza path`` prints: a link beside the slots of the crew of ``root``."""
    record = root / ".liza" / "worktrees.json"
    slots = json.loads(record.read_text())["place"] if record.exists() else root.with_name(f"{root.name}.worktrees")
    return Path(slots, "tasks", task)


def git(directory: Path, *words: str) -> str:
    """git in a directory, as a person would run it; its output without the last newline."""
    done = subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, text=True)
    return done.stdout.rstrip("\n")


def commit_all(directory: Path, message: str, files: Mapping[str, str] = {}) -> str:
    """Write ``files``, texts by name, and commit every change of a directory, as a person would; the new commit."""
    for name, text in files.items():
        (directory / name).write_text(text)
    git(directory, "add", "-A")
    git(directory, "commit", "-q", "-m", message)
    return git(directory, "rev-parse", "HEAD")


def make_repository(root: Path, files: Mapping[str, str]) -> None:
    """Make a repository in a new directory, with one commit on main. ``files``: texts by name."""
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    commit_all(root, "first", files)


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    """A repository with one commit on main."""
    root = tmp_path / "repo"
    make_repository(root, {"README.md": "# A project\n"})
    return root


def make_remote(base: Path) -> Path:
    """Make a bare repository ``shop.git`` with one commit on main."""
    remote, project = base / "shop.git", base / "project"
    git(base, "init", "-q", "--bare", "-b", "main", str(remote))
    git(base, "clone", "-q", str(remote), str(project))
    commit_all(project, "A shop", {"README.md": "# Shop\n"})
    git(project, "push", "-q", "origin", "HEAD:main")
    return remote


@pytest.fixture
def remote(tmp_path: Path) -> Path:
    """The bare repository of a shop, with one commit on main."""
    return make_remote(tmp_path)


KEY = "0123456789abcdef"
"""The key of the blocks of tests, in place of a random one."""


def hidden_block(run: str, key: str = KEY) -> bytes:
    """A short block, as in a file."""
    return f"{begin_mark(run, key)}\ndo this\n{end_mark(run, key)}\n".encode()
