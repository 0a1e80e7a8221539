"""`liza up` with the server of the worker API: it is there, comes back, goes with the crew, and no work needs it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from liza.api import api_server
from liza.crew.crew import find_crew
from tests.conftest import variant
from tests.edges.api_worker import Api
from tests.journeys.crews import APPROVE, BIN, LIMIT, WORK, Crew, started

WAITS = 'echo "$$" > "$NOTES/at-$LIZA_RUN"\nread line < "$NOTES/gate"\n'
ONLY_CODERS = ("--planners", "0", "--reviewers", "0")


@pytest.fixture
def crew(tmp_path: Path) -> Iterator[Crew]:
    """As that of other journeys, with the server of the worker API."""
    with started(tmp_path, api=True) as made:
        yield made


def answers(crew: Crew) -> bool:
    with suppress(OSError, http.client.HTTPException):
        return Api(crew).get("/v1/health").status == 200
    return False


def wait_served(crew: Crew) -> int:
    """Until the server answers; its pid."""
    crew.wait(lambda _: answers(crew), "the worker API answers")
    pid = api_server.describe(find_crew(crew.root)).pid
    assert isinstance(pid, int)
    return pid


def server_row(crew: Crew) -> Any:
    return crew.json("status")["server"]


def up(crew: Crew, *words: str, **env: str) -> subprocess.Popen[bytes]:
    """``liza up`` in the foreground, with its output in the notes."""
    with (crew.notes / "up.log").open("ab") as out:
        process = subprocess.Popen(
            [str(BIN / "liza"), "up", *words],
            cwd=crew.root,
            env={**os.environ, **env},
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
        )
    crew.children.append(process)
    return process


@pytest.mark.campaign
def test_a_detached_crew_is_served_again_after_each_kill(crew: Crew) -> None:
    crew.gate("gate")
    crew.add("task-1")
    crew.liza("up", "-d", *ONLY_CODERS, "--coders", "2", "--program", crew.script("agent", WAITS + WORK))
    crew.wait_note("at-coder-1.1" if crew.wait_status("task-1", "CLAIMED").run == "coder-1.1" else "at-coder-2.1")
    pid, port = wait_served(crew), server_row(crew)["port"]
    for _ in range(3):
        os.kill(pid, signal.SIGKILL)
        crew.wait(lambda _, old=pid: server_row(crew)["pid"] not in (None, old), "another server")
        assert (wait_served(crew) != pid, server_row(crew)["port"]) == (True, port)
        pid = wait_served(crew)
    crew.open_gate("gate")
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert "served at" in crew.liza("doctor")
    crew.liza("down")
    assert server_row(crew)["running"] is False
    assert crew.living() == []
    assert not crew.paths.api_socket.exists()
    assert not list(crew.paths.runs.glob("worker-*.port"))


@pytest.mark.parametrize(
    "how", ["ctrl-c", variant("kill -9 of up, and down"), variant("kill -9 of everything but the server")]
)
def test_the_server_goes_with_its_crew(crew: Crew, how: str) -> None:
    process = up(crew, *ONLY_CODERS, "--program", crew.script("agent", WORK))
    wait_served(crew)
    crew.wait(lambda _: find_crew(crew.root).is_supervised("coder-1"), "the supervisor runs")
    if how == "ctrl-c":
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=LIMIT) == 0
        assert crew.living() == []
        return
    supervisor = int(crew.paths.supervisor_lock("coder-1").read_text().split()[0])
    # So that neither sees the death of the other.
    process.send_signal(signal.SIGSTOP)
    if how == "kill -9 of everything but the server":
        os.kill(supervisor, signal.SIGKILL)
    process.kill()
    process.wait()
    if how == "kill -9 of up, and down":
        assert "stopped coder-1" in crew.liza("down")
    crew.wait(lambda _: not crew.living(), "everything has ended")
    assert not crew.paths.api_socket.exists()


@pytest.mark.campaign
def test_a_crew_whose_server_cannot_start_works_with_one_warning(crew: Crew) -> None:
    crew.paths.runs.mkdir(mode=0o700, exist_ok=True)
    crew.paths.api_socket.mkdir()
    crew.add("task-1", "task-2")
    script = crew.script("agent", f'case "$LIZA_RUN" in coder-*)\n{WORK};;\n*)\n{APPROVE};;\nesac\n')
    process = up(crew, "--planners", "0", "--program", script)
    for task in ("task-1", "task-2"):
        crew.wait_status(task, "MERGED")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LIMIT) == 0
    said = (crew.notes / "up.log").read_text()
    assert len(re.findall("the worker API cannot be served, work continues: .*cannot be replaced", said)) == 1


WITHOUT_PACKAGES = """\
import importlib.abc, sys
class Hidden(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("starlette", "uvicorn"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Hidden())
"""


def test_a_crew_works_without_the_packages_of_the_server(crew: Crew, tmp_path: Path) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(WITHOUT_PACKAGES)
    crew.add("task-1")
    words = ("--planners", "0", "--coders", "2", "--reviewers", "0")
    process = up(crew, *words, "--program", crew.script("agent", WORK), PYTHONPATH=str(hiding))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    assert server_row(crew)["running"] is False
    assert "starlette, uvicorn is not installed" in crew.liza("doctor", PYTHONPATH=str(hiding))
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LIMIT) == 0
    said = (crew.notes / "up.log").read_text()
    assert said.count("the worker API is not served: starlette, uvicorn is not installed") == 1


BROKEN_PACKAGE = WITHOUT_PACKAGES.replace(
    "find_spec(self, name, path=None, target=None):\n",
    """\
find_spec(self, name, path=None, target=None):
        if "serve" not in sys.argv:
            return None
""",
)


@pytest.mark.campaign
def test_a_server_with_a_broken_package_is_reported_with_remedy(crew: Crew, tmp_path: Path) -> None:
    hiding = tmp_path / "hiding"
    hiding.mkdir()
    (hiding / "sitecustomize.py").write_text(BROKEN_PACKAGE)
    crew.add("task-1")
    script = crew.script("agent", WORK)
    process = up(crew, *ONLY_CODERS, "--coders", "2", "--program", script, PYTHONPATH=str(hiding))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    crew.wait(lambda _: server_row(crew)["failure"]["count"] > 1, "another start has failed")
    reason = "a package of the server cannot be imported"
    step = "--force-reinstall starlette uvicorn httptools"
    for text in (crew.liza("status"), crew.liza("doctor")):
        assert (reason in text, step in text) == (True, True), text
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=LIMIT) == 0
    assert (crew.notes / "up.log").read_text().count(reason) == 1


WORKER = """\
import http.client, json, os, socket, subprocess, sys, time
from datetime import datetime, timezone
from pathlib import Path

root, run = Path(os.environ["LIZA_ROOT"]), os.environ["LIZA_RUN"]
token = None

def call(path, **body):
    while True:
        try:
            port = int((root / ".liza" / "run" / f"worker-{run}.port").read_text())
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            if path.endswith("/verdict"):  # only there it is known whose process calls
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.connect(os.path.relpath(root / ".liza" / "run" / "api.sock"))
            headers = {"content-type": "application/json"}
            if token:
                headers["authorization"] = f"Bearer {token}"
            connection.request("POST", path, json.dumps(body), headers)
            reply = connection.getresponse()
            answer = json.loads(reply.read())
            assert reply.status == 200, (path, answer)
            return answer
        except (OSError, http.client.HTTPException):
            time.sleep(0.05)  # the server is started again

def report(event):
    return call("/v1/lifecycle", event=event, run_id=run, timestamp=datetime.now(timezone.utc).isoformat())

me = call("/v1/identity", token=os.environ.pop("LIZA_TOKEN"))
token = me["token"]
report("ready")
sections = {one["type"]: one["content"] for one in call("/v1/context", run_id=run)["sections"]}
report("busy")
tool = call("/v1/authorize", run_id=run, tool="Bash", input={"command": "git push origin main"})
assert not tool["allowed"], tool
notes = Path(sys.argv[1])
if me["role"] == "coder":
    with open(notes / "gate") as gate:  # the test kills the server
        gate.readline()
    Path(f"{me['task_id']}.txt").write_text("work")
    subprocess.run("git add -A && git commit -q -m work", shell=True, check=True)
    turn = {"type": "turn_complete", "timestamp": datetime.now(timezone.utc).isoformat(), "usage": {"input_tokens": 7}}
    call("/v1/telemetry", run_id=run, events=[turn])
    done = call(f"/v1/runs/{run}/submit")
else:
    done = call(f"/v1/runs/{run}/verdict", verdict="approve", reason="read it")
(notes / f"{me['role']}.json").write_text(json.dumps([sorted(sections), done]) + "\\n")
report("idle")
"""


@pytest.mark.campaign
def test_standard_library_workers_finish_tasks_while_the_server_is_killed(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(WORKER)
    crew.gate("gate")
    crew.add("task-1")
    program = crew.script("agent", f'exec {sys.executable} "{tmp_path}/worker.py" "$NOTES"\n', ready=False)
    crew.liza("up", "-d", "--planners", "0", "--program", program)
    crew.wait(lambda state: crew.paths.run("coder-1.1").joinpath("turn.json").exists(), "the worker reports")
    pid = wait_served(crew)
    os.kill(pid, signal.SIGKILL)
    crew.open_gate("gate")
    task = crew.wait_status("task-1", "MERGED")
    sections, done = json.loads(crew.wait_note("coder.json"))
    assert {"role", "work"} <= set(sections)
    assert done["status"] == "READY_FOR_REVIEW"
    assert task.approved_by == "code-reviewer-1"
    crew.liza("down")
    assert crew.living() == []


LISTENER = (
    WORKER.partition("sections =")[0]
    + """\
port = int((root / ".liza" / "run" / f"worker-{run}.port").read_text())
stream = http.client.HTTPConnection("127.0.0.1", port)
stream.request("GET", f"/v1/runs/{run}/stream", headers={"authorization": f"Bearer {token}"})
silences = 0  # the server sends a comment after 15 s without an event
for line in stream.getresponse():
    silences += line.startswith(b": keep-alive")
    if b"You are still" in line:
        (Path(sys.argv[1]) / "reminded").write_text(f"{silences}\\n")
        break
time.sleep(600)
"""
)


@pytest.mark.campaign
def test_a_reminder_of_liza_reaches_an_idle_worker_at_once(crew: Crew, tmp_path: Path) -> None:
    (tmp_path / "worker.py").write_text(LISTENER)
    crew.configure(idle_after=1)
    crew.add("task-1")
    program = crew.script("agent", f'exec {sys.executable} "{tmp_path}/worker.py" "$NOTES"\n', ready=False)
    crew.liza("up", "-d", *ONLY_CODERS, "--program", program)
    assert crew.wait_note("reminded") == "0\n"
    crew.liza("down")
