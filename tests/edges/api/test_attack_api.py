"""What an agent or a stopped process can do to the server of the worker API."""

from __future__ import annotations

import fcntl
import hashlib
import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from liza.briefs import inbox
from tests.edges.api_worker import Api, now, serving
from tests.journeys.crews import BIN


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as one:
        yield one


def _held(path: Path) -> Any:
    path.parent.mkdir(parents=True, exist_ok=True)
    file = path.open("ab")
    fcntl.flock(file, fcntl.LOCK_EX)
    return file


@pytest.mark.campaign
def test_a_locked_inbox_does_not_stop_the_other_runs(api: Api) -> None:
    worker, other = api.worker("coder-1.1"), api.worker("coder-2.1")
    message = inbox.queue_message(api.paths, "coder-1", "x", "ann", now())
    lock = _held(inbox.inbox_path(api.paths, "coder-1") / ".lock")

    def acknowledge() -> None:
        with suppress(Exception):
            api.post("/v1/acknowledge", {"run_id": "coder-1.1", "ids": [message.id]}, token=worker.token)

    for _ in range(4):
        threading.Thread(target=acknowledge, daemon=True).start()
    time.sleep(1)
    began = time.monotonic()
    done = threading.Event()

    def ask() -> None:
        with suppress(Exception):
            if api.get("/v1/health").status == 200:
                done.set()

    threading.Thread(target=ask, daemon=True).start()
    try:
        assert done.wait(10), f"no answer after {time.monotonic() - began:.0f} s"
        assert other.report("ready").status == 200
    finally:
        lock.close()


def test_a_directory_as_port_file_leaves_other_runs_their_files(tmp_path: Path) -> None:
    from liza.api import serve
    from liza.model.paths import Paths

    paths = Paths(tmp_path)
    paths.runs.mkdir(parents=True)
    runs = [f"coder-{number}.1" for number in range(1, 9)]
    paths.worker_port("coder-4.1").mkdir()
    with suppress(OSError):
        serve.write_worker_ports(paths, runs, 4711)
    missing = [run for run in runs if run != "coder-4.1" and serve.read_port(paths.worker_port(run)) != 4711]
    assert missing == []


@pytest.mark.campaign
def test_no_file_of_a_session_turns_it_into_another_run(api: Api) -> None:
    directory = api.open_run("code-reviewer-1.1", kind="review")
    token = "code-reviewer-1.1:mine"
    line = {"digest": hashlib.sha256(token.encode()).hexdigest(), "issued": now().isoformat()}
    (directory.path / "bearer.json").write_text(json.dumps(line))
    program = f"""
import http.client, socket, json
c = http.client.HTTPConnection("localhost")
c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect({str(api.paths.api_socket)!r})
headers = {{"content-type": "application/json", "authorization": "Bearer {token}"}}
c.request("POST", "/v1/runs/code-reviewer-1.1/report", json.dumps({{"kind": "finding", "text": "t"}}), headers)
r = c.getresponse()
print(r.status, r.read().decode())
"""
    # As a tool of the session coder-1.1 calls it.
    environment = {**os.environ, "LIZA_RUN": "coder-1.1", "LIZA_ROOT": str(api.paths.root)}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True).stdout
    assert said.startswith(("401", "403")), said


@pytest.mark.campaign
def test_the_stream_of_one_run_does_not_block_others(api: Api) -> None:
    worker, other = api.worker("coder-1.1"), api.worker("coder-2.1")
    worker.report("ready")
    other.report("ready")
    inbox.queue_message(api.paths, "coder-1", "x", "ann", now())
    lock = _held(inbox.inbox_path(api.paths, "coder-1") / ".lock")

    opened = []
    for _ in range(4):
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=5)
        connection.request("GET", "/v1/runs/coder-1.1/stream", headers={"authorization": f"Bearer {worker.token}"})
        opened.append((connection, connection.getresponse()))
        time.sleep(0.3)
    try:
        connection = http.client.HTTPConnection("127.0.0.1", api.port, timeout=8)
        connection.request("GET", "/v1/runs/coder-2.1/stream", headers={"authorization": f"Bearer {other.token}"})
        assert connection.getresponse().status == 200
    finally:
        lock.close()


@pytest.mark.campaign
def test_down_ends_no_process_that_only_a_file_names(api: Api) -> None:

    with subprocess.Popen(["sleep", "60"]) as bystander:
        try:
            # As an agent can: the content is changed in place, and the server keeps its lock.
            with api.paths.server_lock.open("r+") as file:
                file.write(f"{bystander.pid} x                                        ")
            said = subprocess.run([BIN / "liza", "down"], cwd=api.crew.root, capture_output=True, text=True)
            assert bystander.poll() is None, (said.returncode, said.stdout, said.stderr)
        finally:
            bystander.kill()


@pytest.mark.campaign
def test_a_directory_in_place_of_the_servers_lock_leaves_status(tmp_path: Path) -> None:

    from tests.journeys.crews import BIN, started

    with started(tmp_path) as crew:
        crew.paths.server_lock.parent.mkdir(exist_ok=True)
        crew.paths.server_lock.mkdir()
        said = subprocess.run([BIN / "liza", "status", "--json"], cwd=crew.root, capture_output=True, text=True)
        assert '"tasks"' in said.stdout, said.stderr


@pytest.mark.campaign
def test_down_ends_a_server_whose_request_waits_for_a_lock(api: Api) -> None:

    worker = api.worker("coder-1.1")
    message = inbox.queue_message(api.paths, "coder-1", "x", "ann", now())
    lock = _held(inbox.inbox_path(api.paths, "coder-1") / ".lock")

    def acknowledge() -> None:
        with suppress(Exception):
            api.post("/v1/acknowledge", {"run_id": "coder-1.1", "ids": [message.id]}, token=worker.token)

    threading.Thread(target=acknowledge, daemon=True).start()
    time.sleep(1)
    began = time.monotonic()
    said = subprocess.run([BIN / "liza", "down"], cwd=api.crew.root, capture_output=True, text=True)
    assert api.process is not None
    seconds = time.monotonic() - began
    try:
        assert api.process.wait(5) is not None
        assert (said.returncode, seconds < 8) == (0, True), (said, seconds)
    finally:
        lock.close()


def test_a_coder_approves_nothing_with_a_token_it_forged(api: Api) -> None:
    """As test_a_coder_approves_nothing_in_any_environment, over the worker API."""
    slot = api.crew.work_by_hand("task-1")
    api.crew.liza("submit", cwd=slot)
    api.crew.prepare("claim", "task-1", "--agent", "code-reviewer-1")
    run = api.crew.task("task-1").review_run
    assert run is not None
    api.open_run(run, "task-1", kind="review")
    program = f"""
import hashlib, http.client, json, os, socket
token = "{run}:mine"
file = os.environ["LIZA_ROOT"] + "/.liza/run/code-reviewer-1/{run}/bearer.json"
digest = hashlib.sha256(token.encode()).hexdigest()
open(file, "w").write(json.dumps({{"digest": digest, "issued": "2026-01-01T00:00:00Z"}}))
c = http.client.HTTPConnection("localhost"); c.sock = socket.socket(socket.AF_UNIX)
c.sock.connect(os.environ["LIZA_ROOT"] + "/.liza/run/api.sock")
c.request("POST", "/v1/runs/{run}/verdict", json.dumps({{"verdict": "approve", "reason": "mine"}}),
          {{"content-type": "application/json", "authorization": "Bearer " + token}})
r = c.getresponse(); print(r.status, r.read().decode())
"""
    coder = api.crew.task("task-1").history[0].run or "coder-1.1"
    environment = {**os.environ, "LIZA_RUN": coder, "LIZA_TASK": "task-1", "LIZA_ROOT": str(api.paths.root)}
    said = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)
    assert said.stdout.startswith("403"), (said.stdout, said.stderr)
    assert api.crew.status("task-1") == "READY_FOR_REVIEW"


@pytest.mark.campaign
def test_status_works_with_a_directory_in_place_of_a_port(api: Api) -> None:

    api.paths.api_port.unlink()
    api.paths.api_port.mkdir()
    said = subprocess.run([BIN / "liza", "status", "--json"], cwd=api.crew.root, capture_output=True, text=True)
    assert '"tasks"' in said.stdout, said.stderr
