"""The socket of a session: real shims, real boxes, and clients that an agent could write."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from liza.api import identity
from liza.box import support
from liza.box.box import Box, Mount, MountKind
from liza.box.run_mounts import SESSION_SOCKET
from liza.model.model import Status
from liza.programs.liveness import EndedSession, RunningSession
from liza.programs.session import session_process
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.session.session_process import describe_verbs
from liza.system import command_socket, processes
from liza.system.clock import SystemClock
from tests.command_servers import VARIABLE
from tests.conftest import LONG, until, variant, worktree_of
from tests.edges.api_worker import Api
from tests.edges.cli.test_command_server import Server, is_alive, running
from tests.journeys.crews import BIN, Crew, started

pytestmark = pytest.mark.needs("bwrap")
RUN = "coder-1.1"
RAW = """\
import array, os, socket, sys

def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.settimeout(20)
    connection.connect("/run/liza.sock")
    return connection

def request(*words, variables=(), streams="12"):
    parts = [streams, "strict", str(len(words) + 1), "liza", *words, *variables]
    data = "\\0".join(parts).encode()
    return len(data).to_bytes(4, "big") + data

def call(data, descriptors=(1, 2)):
    connection = connect()
    connection.sendall(b"\\0")
    assert connection.recv(5) == b"ready"
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", descriptors))]
    sent = connection.sendmsg([data], rights)
    connection.sendall(data[sent:])
    answer = connection.recv(32)
    print(answer, flush=True)
"""
"""What an agent could write instead of the client."""


class Session(NamedTuple):
    """How a session ended, and what it printed."""

    code: int | None
    output: str


class Boxes:
    """Sessions of coder-1.1, which has claimed the task `one`, each in a box without the files of Liza."""

    def __init__(self, crew: Crew, directory: Path) -> None:
        self.crew, self.directory = crew, directory
        self.private = directory / "liza"
        self.private.mkdir(parents=True)
        self.outside = dict(os.environ)
        """The environment of the supervisor."""
        self.run = RunDir(crew.paths, RUN)
        self.living: RunningSession | None = None

    def start(self, script: str, **env: str) -> RunningSession:
        """Start a shell script in the box of a new session."""
        worktree = str(worktree_of(self.crew.root, "one"))
        record = RunRecord(
            agent="coder-1", run=RUN, kind="work", started=SystemClock().now(), task="one", worktree=worktree
        )
        self.run.create(record)
        own = {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": os.environ["HOME"],
            "LIZA_RUN": RUN,
            "LIZA_TASK": "one",
            "LIZA_ROOT": str(self.crew.root),
            "LIZA_AGENT_ID": "coder-1",
        }
        verbs = describe_verbs(self.crew.paths, self.outside, own, "THREAD_ID", is_confined=True)
        inside = {**own, "LIZA_CONFINED": "yes", VARIABLE: str(SESSION_SOCKET), "LIZA_API": str(SESSION_SOCKET), **env}
        (self.directory / "raw.py").write_text(RAW)
        mounts = (
            Mount(MountKind.EMPTY, Path("/run")),
            Mount(MountKind.READ_ONLY, self.directory.parents[1]),  # The directory of the tests may be in /dev/shm.
            Mount(MountKind.WRITABLE, self.crew.paths.liza, self.private),
            Mount(MountKind.WRITABLE, self.directory),
            Mount(MountKind.WRITABLE, SESSION_SOCKET, self.run.path / "session.sock"),
        )
        program = support.find_program()
        assert program is not None
        argv = Box(program, mounts, self.directory).wrap(["sh", "-c", textwrap.dedent(script)])
        living = session_process.start(self.run.path, argv, self.crew.root, inside, None, verbs)
        assert isinstance(living, RunningSession), living
        self.living = living
        return living

    def wait(self) -> Session:
        end = session_process.wait_for_end(self.run.path, LONG)
        assert isinstance(end, EndedSession), self.run.output_tail()
        assert end.strays == 0
        assert not (self.run.path / "session.sock").exists()
        return Session(end.code, self.run.output_tail())

    def play(self, script: str, **env: str) -> Session:
        self.start(script, **env)
        return self.wait()

    def note(self, name: str) -> Path:
        """A file that the session writes."""
        return self.directory / name


@pytest.fixture
def boxes(tmp_path: Path) -> Iterator[Boxes]:
    with started(tmp_path) as crew:
        crew.work_by_hand("one")
        boxes = Boxes(crew, tmp_path / "box")
        yield boxes
        session_process.stop(boxes.run.path, RUN, crew.root, grace=0)
        assert tuple(processes.iter_run_pids(RUN, crew.root)) == ()


@pytest.fixture(params=["served", variant("direct")])
def either(request: pytest.FixtureRequest, boxes: Boxes) -> Boxes:
    """With a command server outside, and without one."""
    if request.param == "direct":
        boxes.outside[VARIABLE] = "0"
    return boxes


def test_a_command_from_a_box_runs_outside_as_its_run(either: Boxes) -> None:
    session = either.play(
        """
        echo half | liza heartbeat --extend 15m --reason "the tests take long" || exit 1
        liza task show one --json > task.json || exit 2
        liza nonsense; test $? = 2 || exit 3
        printf '{}' | liza hook claude SessionStart || exit 4
        liza submit || exit 5
        """
    )
    assert session.code == 0, session.output
    task = either.crew.task("one")
    assert task.status is Status.READY_FOR_REVIEW
    assert [(event.event, event.run) for event in task.history][-2:] == [("extend lease", RUN), ("submit", RUN)]
    assert '"id": "one"' in either.note("task.json").read_text()


@pytest.mark.campaign
def test_a_command_takes_streams_and_terminal_variables_from_the_box(either: Boxes) -> None:
    session = either.play(
        """
        COLUMNS=60 liza heartbeat --help > narrow; COLUMNS=100 liza heartbeat --help > wide
        echo "{id: two, description: d}" | liza task add --file - 2> said; echo $? > code
        liza status >&-; echo $? > closed
        """
    )
    assert session.code == 0
    narrow, wide = (either.note(name).read_text().splitlines() for name in ("narrow", "wide"))
    assert len(narrow) > len(wide) > 5
    assert either.note("code").read_text() == "1\n", either.note("said").read_text()
    assert either.note("closed").read_text() == "0\n"


@pytest.mark.sample(2)
@pytest.mark.parametrize("variable", ["TZ=:{0}/pipe", "TZ={0}/pipe", "TZ=../../..{0}/pipe", "LANG={0}/de"])
def test_no_variable_of_the_box_names_a_file_opened_outside(either: Boxes, variable: str) -> None:
    value = variable.format(either.directory)
    session = either.play(
        f"""
        mkfifo pipe; mkdir de; mkfifo de/LC_CTYPE
        timeout 30 python3 -c "from raw import *; call(request('task', 'show', 'one', variables=['{value}']))"
        """
    )
    assert "b'exit 0'" in session.output


def test_no_box_decides_what_runs_outside_or_for_whom(either: Boxes) -> None:
    script = """
        mkdir evil
        for name in git sh less vi python3; do
            printf '#!/bin/sh\\ntouch "%s/ran-$$"\\n' "$PWD" > evil/$name; chmod +x evil/$name
        done
        mkdir -p home/.config/git fake/.liza; printf '[core]\\n fsmonitor = %s/evil/sh\\n' "$PWD" > home/.gitconfig
        export HOME=$PWD/home GIT_DIR=$PWD/fake GIT_CONFIG_GLOBAL=$PWD/home/.gitconfig PAGER=$PWD/evil/less
        export EDITOR=$PWD/evil/vi VISUAL=$PWD/evil/vi PYTHONPATH=$PWD LIZA_RUN=coder-2.7 LIZA_TASK=two
        export LIZA_ROOT=$PWD/fake LIZA_AGENT_ID=coder-2 LIZA_PERSON=yes
        LIZA=$(command -v liza)
        PATH=$PWD/evil:$PATH; cd fake
        $LIZA heartbeat --extend 15m --reason "as another" && $LIZA diff one && $LIZA edit; echo $? > ../code
        $LIZA submit
        """
    session = either.play(script)
    assert session.code == 0, session.output
    assert either.note("code").read_text() == "1\n"  # edit is for a person
    assert list(either.directory.glob("ran-*")) == []
    assert [event.run for event in either.crew.task("one").history][-2:] == [RUN, RUN]
    assert either.crew.status("one") == "READY_FOR_REVIEW"


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    "words",
    [
        "up",
        "task release one",
        "lock -- touch ran",
        "config set slots.max 1",
        "edit goal",
        "-- up",
        "merge one",
        "logs",
    ],
)
def test_a_command_without_the_flag_is_refused(boxes: Boxes, words: str) -> None:
    quoted = ", ".join(repr(word) for word in words.split())
    session = boxes.play(f'python3 -c "from raw import *; call(request({quoted}))"')
    assert "b'exit 1'" in session.output
    assert "for a person" in session.output
    assert not (boxes.directory / "ran").exists()
    assert not (boxes.crew.root / "ran").exists()


def test_a_path_that_an_agent_names_is_not_opened_outside(boxes: Boxes) -> None:
    (boxes.crew.root / "secret.yaml").write_text("id: secret\n")
    session = boxes.play(
        """
        for words in "task add --file secret.yaml" "status --short fake" "validate secret.yaml"; do
            liza $words; echo "code $?"
        done
        """
    )
    assert session.output.count("runs outside of your box") == session.output.count("code 2") == 3
    assert "use - and hand in the text on stdin" in session.output
    assert "liza task add --file - < secret.yaml" in session.output


def test_lock_runs_its_command_inside_and_hands_in_the_copy(either: Boxes) -> None:
    discovery = "{id: d-1, by: coder-1, during: one, description: slow, severity: low, urgency: deferred}"
    before = either.crew.paths.state.read_text()
    session = either.play(
        f"""
        board=$LIZA_ROOT/.liza/state.yaml
        liza lock -- sh -c 'echo $$ > pid; sed -i "s/^discovered: .*/discovered: [{discovery}]/" '$board || exit 1
        liza lock -- sed -i 's/priority: 3/priority: 1/; s/READY/MERGED/; s/  status: CLAIMED/  status: MERGED/' $board
        echo "refused $?"
        liza lock -- sh -c 'exit 7'; echo "own $?"
        liza lock -- nothing-of-this-name; echo "missing $?"
        liza lock -- rm $board; echo "removed $?"
        """
    )
    assert session.code == 0, session.output
    assert "tasks.one.status: a session may change only agents, handoff, discovered, anomalies" in session.output
    assert {"refused 1", "own 7", "missing 5", "removed 4"} <= set(session.output.splitlines())
    state = either.crew.state()
    assert [(entry.id, entry.by, entry.description) for entry in state.discovered] == [("d-1", "coder-1", "slow")]
    after = either.crew.paths.state.read_text()
    assert [line for line in after.splitlines() if line.startswith("#")] == before.splitlines()[:3]
    assert either.crew.status("one") == "CLAIMED"
    assert either.crew.json("history", "--all")["revisions"][0]["by"] == RUN


@pytest.mark.campaign
def test_an_edit_of_an_older_board_is_merged_or_conflicts(boxes: Boxes) -> None:
    note = "{agent: coder-1, run: coder-1.1, summary: half, next_action: rest}"
    boxes.start(
        f"""
        liza edit --print > board
        touch printed; while test ! -e changed; do sleep 0.05; done
        sed "s/^handoff: .*/handoff: {{one: {note}}}/" board | liza edit --from -; echo "first $?"
        sed "s/^handoff: .*/handoff: {{one: {note.replace("half", "more")}}}/" board | liza edit --from -
        echo "second $?"
        echo "nonsense: [" | liza edit --from -; echo "third $?"
        sed "s/^revision: .*/revision: 999/" board | liza edit --from -; echo "fourth $?"
        """
    )
    until(boxes.note("printed").exists, "the board was printed")
    boxes.crew.add("two")
    boxes.note("changed").touch()
    session = boxes.wait()
    assert {"first 0", "second 1", "third 4", "fourth 2"} <= set(session.output.splitlines()), session.output
    assert "handoff.one: another process changed it meanwhile" in session.output
    state = boxes.crew.state()
    assert (state.handoff["one"].summary, state.task("two") is not None) == ("half", True)


@pytest.mark.parametrize("count", [8, variant(50)])
def test_many_verbs_at_once_are_all_answered(either: Boxes, count: int) -> None:
    session = either.play(
        f"""
        for n in $(seq {count}); do (liza guard test "echo $n" > out-$n 2>&1; echo $? > code-$n) & done; wait
        """
    )
    assert session.code == 0
    codes = [path.read_text() for path in either.directory.glob("code-*")]
    assert codes == ["0\n"] * count, [path.read_text() for path in either.directory.glob("out-*")]


@pytest.mark.campaign
def test_a_killed_client_ends_its_command(either: Boxes) -> None:
    either.start(
        """
        liza status --watch > watched & pid=$!
        while test ! -s watched; do sleep 0.05; done
        touch begun; while test ! -e go; do sleep 0.05; done
        kill -9 $pid; touch killed; while test ! -e over; do sleep 0.05; done
        """
    )
    until(either.note("begun").exists, "the command has begun")

    def commands() -> list[str]:
        lines = [processes_line(pid) for pid in processes.iter_run_pids(RUN, either.crew.root)]
        return [line for line in lines if "status --watch" in line and "bwrap" not in line and "sh -c" not in line]

    assert len(commands()) == 2, commands()  # the client, and the command outside
    either.note("go").touch()
    until(either.note("killed").exists, "the client is killed")
    until(lambda: commands() == [], "the command has ended")
    either.note("over").touch()
    assert either.wait().code == 0


def processes_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
    except OSError:
        return ""


@pytest.fixture
def server(tmp_path: Path, boxes: Boxes) -> Iterator[Server]:
    with running(boxes.crew.root, tmp_path / "s") as server:
        boxes.outside[VARIABLE] = str(server.socket)
        yield server


@pytest.mark.campaign
def test_a_command_runs_by_itself_after_the_server_ended(boxes: Boxes, server: Server) -> None:
    boxes.start(
        """
        liza status > first || exit 1
        touch begun; while test ! -e go; do sleep 0.05; done
        liza heartbeat --extend 15m --reason "the server is gone" || exit 2
        """
    )
    until(boxes.note("begun").exists, "the first command was answered")
    os.kill(server.pid, signal.SIGKILL)
    until(lambda: not is_alive(server.pid), "the server is gone")
    boxes.note("go").touch()
    session = boxes.wait()
    assert session.code == 0, session.output
    assert boxes.crew.heard("one")[-1] == "extend lease"


def test_without_a_socket_a_command_fails_as_with_a_lock(boxes: Boxes) -> None:
    call = (
        "import sys; import liza.client as c; c.SOCKET_LIMIT = 0.3; sys.argv = ['liza', *sys.argv[1:]]; "
        "sys.exit(c.main())"
    )
    session = boxes.play(
        f"""
        export {VARIABLE}=$PWD/none
        {BIN}/python -c "{call}" heartbeat --json; echo "code $?"
        {BIN}/python -c "{call}" hook x y; echo "tool $?"
        """
    )
    assert '"code": "lock-timeout"' in session.output
    assert "did not answer within" in session.output
    assert {"code 75", "tool 75"} <= set(session.output.splitlines())


@pytest.mark.campaign
def test_garbage_and_silent_clients_disturb_neither_shim_nor_commands(boxes: Boxes) -> None:
    script = r"""
from raw import *
held = []
for data in (b"", b"\0", b"\0\0", b"GET", os.urandom(2000), b"\xff" * 100):
    connection = connect(); connection.sendall(data); held.append(connection)
for data in ((1 << 31).to_bytes(4, "big") + b"x" * 100_000, (5 << 20).to_bytes(4, "big") + b"x" * (6 << 20),
             (8).to_bytes(4, "big") + b"12\0str", b"\0\0\0\1\0", request("status")[:20], b"\0" * 50,
             request("status", streams="9"), request("status", streams="11")):
    connection = connect(); connection.sendall(b"\0"); assert connection.recv(5) == b"ready"
    try:
        connection.sendall(data)
    except OSError as error:
        print("refused", error)
    held.append(connection)
for descriptors in ((1,), (1, 2, 2, 2, 2)):
    try:
        call(request("status"), descriptors)
    except OSError as error:
        print("refused", error)
call(request("status", variables=["X=" + "y" * (3 << 20)]))
"""
    boxes.directory.joinpath("junk.py").write_text(script)
    session = boxes.play(
        """
        python3 junk.py > junk.out 2>&1 & for n in $(seq 20); do liza guard test true > out || exit 1; done
        wait; tail -n 3 junk.out; liza heartbeat --extend 15m --reason "still there" || exit 2
        """
    )
    assert session.code == 0, (session.output, boxes.note("junk.out").read_text())
    assert "b'exit 0'" in boxes.note("junk.out").read_text()


def test_the_socket_serves_the_worker_api_of_its_run_only(boxes: Boxes) -> None:
    api = Api(boxes.crew)
    api.start()
    try:
        other = api.worker("coder-2.1")
        script = """
from raw import *
import http.client, json

def ask(method, path, body=None, token=None):
    connection = http.client.HTTPConnection("localhost", timeout=20)
    connection.sock = connect()
    head = {"Content-Type": "application/json", **({"Authorization": "Bearer " + token} if token else {})}
    connection.request(method, "/v1/" + path, None if body is None else json.dumps(body), head)
    answer = connection.getresponse()
    data = json.load(answer)
    print(method, path, answer.status, data.get("code"), flush=True)
    return data

me = ask("POST", "identity", {"token": sys.argv[1]})
context = {"run_id": "coder-1.1", "mode": "full"}
ask("POST", "context", context, me["token"])
ask("POST", "context", {"run_id": "coder-2.1", "mode": "full"}, me["token"])
ask("POST", "context", {"run_id": "coder-2.1", "mode": "full"}, sys.argv[2])
ask("POST", "prompt", {"agent_id": "coder-1", "content": "x"})
ask("POST", "identity", {"token": "x" * 900_000})
"""
        boxes.directory.joinpath("worker.py").write_text(script)
        boxes.run.create(RunRecord(agent="coder-1", run=RUN, kind="work", started=SystemClock().now(), task="one"))
        token = identity.issue_token(boxes.run, SystemClock().now())
        session = boxes.play(f"python3 worker.py '{token}' '{other.token}'")
    finally:
        api.kill()
    lines = session.output.splitlines()
    assert lines[:4] == [
        "POST identity 200 None", "POST context 200 None", "POST context 403 not-yours", "POST context 403 not-yours"
    ], session.output  # fmt: skip
    assert lines[4].startswith("POST prompt 401")
    assert session.code == 0, session.output


def test_a_value_of_the_supervisor_is_written_to_no_file(boxes: Boxes) -> None:
    boxes.outside["SECRET_OF_A_PERSON"] = "r4nd0m-value"
    session = boxes.play("liza status; cat /proc/*/environ 2>/dev/null | tr '\\0' '\\n'; env")
    assert "r4nd0m-value" not in session.output
    found = subprocess.run(
        ["grep", "-rl", "r4nd0m-value", boxes.crew.root], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""


def test_no_other_user_can_connect(boxes: Boxes) -> None:
    boxes.start("touch begun; while test ! -e go; do sleep 0.05; done")
    until(boxes.note("begun").exists, "the session has begun")
    assert command_socket.is_private(os.fsencode(boxes.run.path / "session.sock"), 0o140000)
    boxes.note("go").touch()
    boxes.wait()


def test_a_verb_of_a_moved_repository_reports_the_move(boxes: Boxes) -> None:
    boxes.start("touch begun; while test ! -e go; do sleep 0.05; done; liza status; echo code $?")
    until(boxes.note("begun").exists, "the session has begun")
    aside = boxes.crew.root.with_name("aside")
    boxes.crew.root.rename(aside)
    try:
        boxes.note("go").touch()
        until(lambda: (aside / ".liza/run/coder-1" / RUN / "exit.json").exists(), "the session is over")
    finally:
        aside.rename(boxes.crew.root)
    assert "No such file or directory" in boxes.wait().output
    assert "code 5" in boxes.run.output_tail()


def test_a_process_outside_of_the_box_is_not_answered(boxes: Boxes) -> None:
    boxes.start("touch ready; sleep 1000")
    until(lambda: boxes.note("ready").exists(), "the session")
    with contextlib.chdir(boxes.run.path), socket.socket(socket.AF_UNIX) as connection:
        connection.connect("session.sock")
        connection.settimeout(LONG)
        with contextlib.suppress(ConnectionError):
            connection.sendall(b"\0")
            assert connection.recv(5) == b""
