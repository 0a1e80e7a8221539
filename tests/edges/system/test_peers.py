"""Who calls, of a command that runs in a child of a server: a real server that forks, and real clients."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from liza.system import peers
from tests.namespaces import unshared

ASK = """
import json, os, sys
from pathlib import Path
from liza.system import ancestors, locks, processes
root, parent = Path(sys.argv[1]), os.getppid()
print(json.dumps({
    "of_a_child": ancestors.find_outermost_run(root),
    "is_killed_with_the_run": parent in tuple(processes.iter_run_pids("coder-1.7", root)),
    "command": locks.read_command(parent),
}))
"""
SERVER = (
    f"ASK = {ASK!r}"
    + """
import json, os, socket, subprocess, sys
from liza.model.errors import Refused
from liza.system import ancestors, peers, proc_stat

def answer(connection, sent):
    os.environ.clear()
    os.environ.update(sent)
    try:
        peers.act_for(connection)
    except Refused as error:
        return {"refused": error.message}
    proc_stat.show_command(["liza", "submit"])
    words = ["env", "-u", "LIZA_RUN", sys.executable, "-c", ASK, sys.argv[1]]
    said = json.loads(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    return {"run": ancestors.find_outermost_run(sys.argv[1]), **said}

listener = socket.socket(socket.AF_UNIX)
listener.bind("socket")
listener.listen()
print("listens", flush=True)
for line in sys.stdin:
    connection, _ = listener.accept()
    if os.fork() == 0:
        sent = json.loads(line)
        print(json.dumps(answer(connection, sent)), flush=True)
        os._exit(0)
    connection.close()
    os.wait()
"""
)
CONNECT = "import socket, sys; line = socket.socket(socket.AF_UNIX); line.connect('socket'); "
WAIT = CONNECT + "print(flush=True); sys.stdin.read()"
ORPHAN = f"""
import os, pathlib, sys, time
from liza.system import ancestors
parent = os.getpid()
if os.fork():
    os._exit(0)
os.setsid()
while os.getppid() == parent:
    time.sleep(0.01)
pathlib.Path("directly").write_text(str(ancestors.find_outermost_run("/project")))
{WAIT}
"""
_ADOPT_ORPHANS = 36  # PR_SET_CHILD_SUBREAPER of the kernel's linux/prctl.h
IN_SESSION = {"LIZA_RUN": "coder-1.7", "LIZA_ROOT": "/project"}


class Server:
    """A process that forks a child for each connection, which says whom it acts for."""

    def __init__(self, directory: Path, *prefix: str) -> None:
        self.directory = directory
        words = [*prefix, sys.executable, "-c", SERVER, IN_SESSION["LIZA_ROOT"]]
        self.process = subprocess.Popen(
            words,
            cwd=directory,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self.read_line() == "listens\n"

    def read_line(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline()

    def answer(self, **sent: str) -> dict[str, Any]:
        """Accept the next connection, and return what its child found; ``sent``: the environment of the client."""
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(sent) + "\n")
        self.process.stdin.flush()
        return dict(json.loads(self.read_line()))

    def ask_from(self, *words: str, environ: dict[str, str], **sent: str) -> dict[str, Any]:
        """Answer a client that ``words`` start, which lives until it is answered."""
        with subprocess.Popen(
            words, cwd=self.directory, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as client:
            assert client.stdout is not None
            assert client.stdin is not None
            assert client.stdout.readline() == "\n"
            answer = self.answer(**sent)
            client.stdin.close()
        return answer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    yield server
    server.process.communicate()


def test_a_client_outside_every_session_is_outside(server: Server) -> None:
    found = server.ask_from(sys.executable, "-c", WAIT, environ={})
    assert (found["run"], found["of_a_child"], found["is_killed_with_the_run"]) == (None, None, False)


def test_a_command_is_killed_with_the_run_of_its_caller(server: Server) -> None:
    found = server.ask_from(sys.executable, "-c", WAIT, environ=IN_SESSION, **IN_SESSION)
    assert (found["is_killed_with_the_run"], found["command"]) == (True, ["liza", "submit"])


@pytest.mark.sample(1)
@pytest.mark.parametrize("sent", [{}, {"_LIZA_CALLER_0": "planner-1.1 /project"}, {"LIZA_RUN": "", "LIZA_ROOT": ""}])
def test_a_session_without_its_variables_and_its_commands_are_recognized(server: Server, sent: dict[str, str]) -> None:
    ask = f"env -i '{sys.executable}' -c \"{WAIT}\"; true"
    found = server.ask_from("sh", "-c", ask, environ=IN_SESSION, **sent)
    assert (found["run"], found["of_a_child"]) == ("coder-1.7", "coder-1.7")


def test_a_process_with_a_changed_environment_stays_in_its_session(server: Server) -> None:
    found = server.ask_from(sys.executable, "-c", "import os; os.environ.clear(); " + WAIT, environ=IN_SESSION)
    assert found["run"] == "coder-1.7"


def test_the_outermost_session_counts_despite_forged_variables(server: Server) -> None:
    inner = f"LIZA_RUN=planner-1.1 sh -c \"LIZA_RUN=coder-1.7 '{sys.executable}' -c '$WAIT'; true\"; true"
    found = server.ask_from("sh", "-c", inner, environ={**IN_SESSION, "WAIT": WAIT.replace("'", '"')})
    assert (found["run"], found["of_a_child"]) == ("coder-1.7", "coder-1.7")


@pytest.mark.campaign
def test_each_reused_connection_of_a_process_is_its_own(server: Server) -> None:
    reuse = CONNECT + "number = line.fileno(); line.close(); " + WAIT + "; assert line.fileno() == number"
    with subprocess.Popen(
        [sys.executable, "-c", reuse],
        cwd=server.directory,
        env=IN_SESSION,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as client:
        assert client.stdout is not None
        client.stdout.readline()
        assert [server.answer()["run"], server.answer()["run"]] == ["coder-1.7", "coder-1.7"]
        assert server.ask_from(sys.executable, "-c", WAIT, environ={})["run"] is None
        client.communicate()
    assert client.returncode == 0


@pytest.mark.parametrize("kept", ["", "import os; os.fork() or sys.stdin.read(); "])
def test_a_process_that_ends_before_its_lookup_is_refused(server: Server, kept: str) -> None:
    """Also if a child of it keeps the connection open."""
    client = subprocess.Popen([sys.executable, "-c", CONNECT + kept], cwd=server.directory, stdin=subprocess.PIPE)
    os.waitid(os.P_PID, client.pid, os.WEXITED | os.WNOWAIT)
    assert "has ended" in server.answer()["refused"], "a zombie"
    client.communicate()


@pytest.mark.sample(1)
@pytest.mark.parametrize("adopts", [False, True])
def test_an_orphan_is_at_the_socket_what_it_is_directly(server: Server, adopts: bool) -> None:
    """The shim of a session adopts its orphans. Those of init are of no session: nothing shows it."""
    session = ["import ctypes, subprocess, sys", f"ctypes.CDLL(None).prctl({_ADOPT_ORPHANS}, {int(adopts)})"]
    session += ["subprocess.run(['env', '-i', sys.executable, *sys.argv[1:]])", "sys.stdin.read()"]
    found = server.ask_from(sys.executable, "-c", "; ".join(session), "-c", ORPHAN, environ=IN_SESSION)
    assert found["run"] == ("coder-1.7" if adopts else None)
    assert str(found["run"]) == (server.directory / "directly").read_text()


@pytest.mark.sample(1)
@pytest.mark.needs("unshare")
@pytest.mark.parametrize(("flags", "namespace"), [("-Urpf", "pid"), ("-Urm", "mnt"), ("-Ur", "user"), ("-Urn", "user")])
def test_a_connection_from_another_namespace_is_refused(server: Server, flags: str, namespace: str) -> None:
    found = server.ask_from(*unshared(flags), sys.executable, "-c", WAIT, environ=dict(os.environ))
    assert found == {"refused": f"the process that called has another {namespace} namespace"}


@pytest.mark.needs("unshare")
def test_a_process_that_cannot_be_seen_is_refused(tmp_path: Path) -> None:
    server = Server(tmp_path, *unshared())
    found = server.ask_from(sys.executable, "-c", WAIT, environ={})
    assert "another pid namespace" in found["refused"]
    server.process.communicate()


@pytest.mark.needs("unshare")
def test_a_process_in_its_own_user_namespace_is_no_person(tmp_path: Path) -> None:
    outside = []
    with contextlib.chdir(tmp_path), socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        listener.listen()
        for words in ((), unshared("-Ur")):
            client = subprocess.Popen(
                [*words, sys.executable, "-c", WAIT], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            connection, _ = listener.accept()
            with connection, client:
                outside.append(peers.PeerSession(peers.read_peer(connection)).is_outside_sessions(tmp_path))
                client.kill()
    assert outside == [True, False]
