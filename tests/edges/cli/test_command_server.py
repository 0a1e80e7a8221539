"""The command server: a real server, real clients, and what is left when one of them is killed."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from liza.system import command_socket
from tests.command_servers import BIN
from tests.conftest import git, until, variant

LIZA = str(BIN / "liza")
LIMIT = 60.0


class Server:
    """A server of its own, and the directory in which its commands run."""

    def __init__(self, socket: Path, repo: Path) -> None:
        self.socket, self.repo = socket, repo
        self.environ = {**os.environ, "LIZA_COMMAND_SERVER": str(socket)}
        assert self.run("command-server", "start").returncode == 0
        self.pid = self.state()["pid"]

    def run(self, *words: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.run_words([LIZA, *words], **options)

    def run_words(self, words: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        options = {"cwd": self.repo, "env": self.environ, **options}
        return subprocess.run(words, capture_output=True, text=True, timeout=LIMIT, check=False, **options)

    def begin(self, *words: str, **options: Any) -> subprocess.Popen[str]:
        options = {"cwd": self.repo, "env": self.environ, "stdout": subprocess.PIPE, "text": True, **options}
        return subprocess.Popen([LIZA, *words], **options)

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads(self.run("command-server", "status", "--json").stdout)
        return state

    def children(self) -> list[int]:
        path = Path(f"/proc/{self.pid}/task/{self.pid}/children")
        return [int(pid) for pid in path.read_text().split()] if path.exists() else []

    def hold_lock(self) -> tuple[subprocess.Popen[str], int]:
        """Begin a command that holds the board's lock until it is ended; return it and the pid of its process."""
        # A shell that starts the tests in the background has them ignore SIGINT.
        usual = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        words = ("lock", "--", "sh", "-c", "echo held; exec sleep 60")
        process = self.begin(*words, start_new_session=True, preexec_fn=usual)
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        (command,) = self.children()
        return process, command

    def is_lock_free(self) -> bool:
        return self.run("lock", "--", "true", env={**self.environ, "LIZA_COMMAND_SERVER": "0"}).returncode == 0


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def begin_crew(path: Path) -> Path:
    """Make a repository with a crew at ``path``."""
    path.mkdir()
    git(path, "init", "-q")
    (path / "a").write_text("a\n")
    git(path, "add", "a")
    git(path, "commit", "-qm", "one")
    environ = {**os.environ, "LIZA_COMMAND_SERVER": "0"}
    subprocess.run([LIZA, "init", "a goal", "--no-test"], cwd=path, env=environ, check=True, capture_output=True)
    return path


@contextmanager
def running(repo: Path, directory: Path) -> Iterator[Server]:
    directory.mkdir(mode=0o700)
    server = Server(directory / "socket", repo)
    try:
        yield server
    finally:
        if is_alive(server.pid):
            os.kill(server.pid, signal.SIGTERM)
            until(lambda: not is_alive(server.pid), "the end of the server")


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    return begin_crew(tmp_path / "repo")


@pytest.fixture
def own_server(repo: Path, tmp_path: Path) -> Iterator[Server]:
    """A server that the test may end."""
    with running(repo, tmp_path / "s") as server:
        yield server


@pytest.fixture(scope="module")
def server(module_world: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that several tests use."""
    path = tmp_path_factory.mktemp("served")
    with running(begin_crew(path / "repo"), path / "s") as server:
        yield server


def test_a_served_command_has_the_output_of_a_direct_one(server: Server) -> None:
    direct = {**server.environ, "LIZA_COMMAND_SERVER": "0"}
    for words in (
        ("task", "list", "--json"),
        ("agents",),
        ("nope",),
        ("task", "show", "none"),
        ("--help",),
        ("ready",),
    ):
        served, alone = server.run(*words), server.run(*words, env=direct)
        assert (served.returncode, served.stdout, served.stderr) == (alone.returncode, alone.stdout, alone.stderr)
    assert server.run("task", "add", "--id", "b", "--desc", "d", "--done", "e", "--scope", "a").returncode == 0
    assert "b" in server.run("task", "list", env=direct).stdout


def test_a_served_command_has_the_environment_of_its_client(server: Server, tmp_path: Path) -> None:
    script = "umask; pwd; ulimit -n; cat; echo $MARK; trap"
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)

    def prepare() -> None:
        os.umask(0o027)
        resource.setrlimit(resource.RLIMIT_NOFILE, (200, limits[1]))

    environ = {**server.environ, "MARK": "a\udcff b"}
    done = subprocess.run(
        [LIZA, "lock", "--", "sh", "-c", script], cwd=server.repo, env=environ, input=b"typed\n", capture_output=True,
        timeout=LIMIT, check=True, preexec_fn=prepare,
    )  # fmt: skip
    assert done.stdout == f"0027\n{server.repo}\n200\ntyped\n".encode() + b"a\xff b\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_a_signal_to_the_client_ends_its_command_freeing_locks(server: Server, number: signal.Signals) -> None:
    process, command = server.hold_lock()
    os.kill(process.pid, number)
    code = process.wait(LIMIT)
    assert code in (-number, 128 + number)
    until(lambda: not is_alive(command), "the end of the command")
    until(server.is_lock_free, "a free lock")


def test_a_killed_command_is_reported_as_killed(server: Server) -> None:
    process, command = server.hold_lock()
    os.kill(command, signal.SIGKILL)
    assert process.wait(LIMIT) == -signal.SIGKILL


@pytest.mark.campaign
def test_a_command_outlives_a_killed_server_and_reports_its_end(own_server: Server) -> None:
    gate = own_server.repo.parent / "gate"
    os.mkfifo(gate)
    process = own_server.begin("lock", "--", "sh", "-c", f"echo held; cat {gate}; exit 3")
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    os.kill(own_server.pid, signal.SIGKILL)
    until(lambda: not is_alive(own_server.pid), "the end of the server")
    gate.write_text("")
    assert process.wait(LIMIT) == 3
    assert own_server.run("status").returncode == 0, "a stale socket is not used"


@pytest.mark.campaign
def test_a_command_runs_directly_when_a_signal_stopped_the_server(own_server: Server) -> None:
    os.kill(own_server.pid, signal.SIGSTOP)
    try:
        assert own_server.run("task", "add", "--id", "b", "--desc", "d", "--done", "e", "--scope", "a").returncode == 0
    finally:
        os.kill(own_server.pid, signal.SIGCONT)
    until(lambda: own_server.children() == [], "the end of the commands")
    assert own_server.run("task", "list", "--json").stdout.count('"id": "b"') == 1


@pytest.mark.campaign
def test_messages_and_ps_show_the_command_and_not_the_server(server: Server) -> None:
    process, command = server.hold_lock()
    assert b"liza\0lock\0" in Path(f"/proc/{command}/cmdline").read_bytes()
    refused = server.run("task", "add", "--id", "c", "--desc", "d", "--done", "e", "--scope", "a")
    assert refused.returncode == 75
    assert "liza lock" in refused.stderr
    process.terminate()
    process.wait(LIMIT)


@pytest.mark.parametrize("closed", [(0, 1, 2), variant((0,)), variant((1,)), variant((2,))])
def test_a_command_runs_with_closed_streams(server: Server, closed: tuple[int, ...]) -> None:
    code = f"import os; [os.close(n) for n in {closed}]; os.execv({LIZA!r}, ['liza', 'pause', 'for {closed}'])"
    done = subprocess.run([sys.executable, "-c", code], cwd=server.repo, env=server.environ, timeout=LIMIT, check=False)
    assert done.returncode == 0
    assert str(closed) in server.run("status").stdout


@pytest.mark.parametrize(
    "environ", [{"BIG": "x" * 100_000, **{f"BIG{n}": "x" * 100_000 for n in range(19)}}, {"PYTHONOPTIMIZE": "1"}]
)
def test_a_command_with_an_unusual_environment_runs(server: Server, environ: dict[str, str]) -> None:
    assert server.run("status", env={**server.environ, **environ}).returncode == 0


def test_a_command_runs_in_a_directory_that_was_deleted(server: Server, tmp_path: Path) -> None:
    said = []
    for socket in (str(server.socket), "0"):
        gone = tmp_path / "gone"
        gone.mkdir()
        words = ["sh", "-c", f'rmdir "{gone}"; exec {LIZA} status']
        done = server.run_words(words, cwd=gone, env={**server.environ, "LIZA_COMMAND_SERVER": socket})
        said.append((done.returncode, done.stderr))
    assert said[0] == said[1]


def test_an_argument_that_is_not_utf8_is_refused_as_directly(server: Server) -> None:
    words = [LIZA.encode(), b"note", b"\xff"]
    for socket in (str(server.socket), "0"):
        environ = {**server.environ, "LIZA_COMMAND_SERVER": socket}
        done = subprocess.run(words, cwd=server.repo, env=environ, capture_output=True, timeout=LIMIT, check=False)
        assert (done.returncode, b"is not UTF-8 text" in done.stderr) == (2, True)


@pytest.mark.sample(1)
@pytest.mark.parametrize("mode", [0o755, 0o700])
def test_a_socket_that_others_may_use_is_not_used(own_server: Server, mode: int) -> None:
    own_server.socket.parent.chmod(mode)
    if mode == 0o700:
        own_server.socket.chmod(0o666)
    state = own_server.state()
    assert state["pid"] is None
    assert "another user" in state["why"]
    assert "another user" in own_server.run("doctor").stdout
    assert own_server.run("status").returncode == 0
    own_server.socket.chmod(0o700)


def test_a_link_in_place_of_the_socket_is_not_used(server: Server) -> None:
    link = server.socket.with_name("link")
    link.symlink_to(server.socket)
    environ = {**server.environ, "LIZA_COMMAND_SERVER": str(link)}
    assert "link" in json.loads(server.run("command-server", "status", "--json", env=environ).stdout)["why"]


def copy_liza(tmp_path: Path, *left_out: str) -> Callable[[str], list[str]]:
    """Copy the package; return how to run a line of code with the copy."""
    ignored = shutil.ignore_patterns("__pycache__", *left_out)
    shutil.copytree(Path(command_socket.__file__).parent.parent, tmp_path / "copy" / "liza", ignore=ignored)
    path = f"import sys; sys.path.insert(0, {str(tmp_path / 'copy')!r}); "
    return lambda code: [sys.executable, "-c", path + code]


RUN = "sys.argv[0] = 'liza'; from liza.client import main; sys.exit(main())"
SERVE = "from pathlib import Path; from liza.cli.server import server; server.run_server(Path(sys.argv[1]))"


@pytest.mark.campaign
def test_a_server_whose_installation_changed_runs_no_command_and_ends(repo: Path, tmp_path: Path) -> None:
    code = copy_liza(tmp_path)
    directory = tmp_path / "s"
    directory.mkdir(mode=0o700)
    environ = {**os.environ, "LIZA_COMMAND_SERVER": str(directory / "socket")}
    with subprocess.Popen([*code(SERVE), directory / "socket"], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n"
        with (tmp_path / "copy" / "liza" / "__init__.py").open("a") as file:
            file.write("\n__version__ = '9.9.9'\n")
        shown = subprocess.check_output([*code(RUN), "--version"], cwd=repo, env=environ, text=True, timeout=LIMIT)
        assert shown == "liza 9.9.9\n"
        assert process.wait(LIMIT) == 0
    assert not (directory / "socket").exists()


@pytest.mark.parametrize("count", [20, variant(200)])
def test_many_commands_at_once_are_answered(server: Server, count: int) -> None:
    processes = [server.begin("task", "list", "--json") for _ in range(count)]
    outputs = {process.communicate(timeout=LIMIT)[0] for process in processes}
    assert [process.returncode for process in processes] == [0] * count
    assert len(outputs) == 1


def test_neither_served_commands_nor_sessions_start_a_server(server: Server, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    environ = {name: value for name, value in os.environ.items() if name != "LIZA_COMMAND_SERVER"}
    environ |= {"HOME": str(home), "LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(server.repo)}
    server.run("up", "--help", env=environ)
    assert list(home.rglob("commands-*")) == []


MEASURE = """
import os, sys, threading, traceback
reads = set()
lookup = os._Environ.__getitem__
def record(self, key):
    # GitPython copies all variables for a git that cannot start, and sysconfig describes an unused place for packages.
    readers = {os.path.basename(frame.filename) for frame in traceback.extract_stack()}
    if not readers & {"cmd.py", "sysconfig.py"}:
        reads.add(os.fsdecode(key))
    return lookup(self, key)
os._Environ.__getitem__ = record
from liza.cli import app
import liza.cli.server.server
app.load_all_commands()
print(sorted(reads))
print(threading.active_count(), sorted(os.listdir("/proc/self/fd")))
"""


def test_importing_everything_starts_no_thread_and_opens_no_file() -> None:
    environ = {"PATH": os.environ["PATH"], "HOME": os.environ["HOME"]}
    done = subprocess.run(
        [sys.executable, "-c", MEASURE], env=environ, stdin=subprocess.DEVNULL, capture_output=True, text=True,
        check=True, timeout=LIMIT,
    )  # fmt: skip
    reads, counts = done.stdout.splitlines()
    prefixes = tuple(name.decode() for name in command_socket.READ_AT_IMPORT)
    assert [name for name in eval(reads) if not name.startswith(prefixes)] == []
    assert counts == "1 ['0', '1', '2', '3']", "3 is the directory that is listed"


@pytest.mark.campaign
def test_liza_works_without_the_package_of_the_server(repo: Path, tmp_path: Path) -> None:
    code = copy_liza(tmp_path, "server", "command_server.py")
    for word in ("status", "--help", "doctor"):
        words = [*code(RUN), word]
        done = subprocess.run(words, cwd=repo, capture_output=True, text=True, timeout=LIMIT, check=False)
        assert done.stderr == ""
        assert done.stdout


@pytest.mark.campaign
def test_a_server_stays_small_over_a_thousand_commands(server: Server) -> None:
    for _ in range(1000):
        assert server.run("heartbeat").returncode == 1
    status = Path(f"/proc/{server.pid}/status").read_text()
    assert int(status.partition("VmRSS:")[2].split()[0]) < 90_000
