"""The server of the worker API on real sockets: who may call, what it refuses, how it starts and ends."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from liza.api import api_server, identity
from liza.crew.crew import find_crew
from liza.model.model import Agent
from liza.programs.session.run_directory import RunDir
from liza.recovery.doctor import doctor
from liza.system.locks import lock_path
from tests.conftest import until, worktree_of
from tests.edges.api_worker import JSON, Api, Worker, connect_unix, now, serving
from tests.journeys.crews import started

PROBLEM = "application/problem+json"


@pytest.fixture(scope="module")
def shared(module_world: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    """A server for the tests that do not end it."""
    with serving(tmp_path_factory.mktemp("api")) as api:
        yield api


@pytest.fixture(scope="module")
def worker(shared: Api) -> Worker:
    return shared.worker("coder-7.1")


@pytest.fixture
def api(tmp_path: Path) -> Iterator[Api]:
    with serving(tmp_path) as one:
        yield one


def test_the_socket_is_for_its_user_only(shared: Api) -> None:
    assert stat.S_IMODE(shared.paths.api_socket.stat().st_mode) == 0o600
    assert stat.S_IMODE(shared.paths.runs.stat().st_mode) == 0o700


LIFECYCLE = {"event": "ready", "run_id": "coder-7.1", "timestamp": "2026-03-01T15:00:00Z"}
DEEP = b'{"kind":"k","text":"t","details":{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}}"
HEALTH = {"status": "healthy", "current_state": "idle", "last_activity": "2026-03-01T15:00:00Z"}
FUTURE = {**LIFECYCLE, "timestamp": "2990-03-01T15:00:00Z"}
NO_ZONE = {**LIFECYCLE, "timestamp": "2026-03-01T15:00:00"}
OTHER_RUN = {**LIFECYCLE, "run_id": "coder-8.1"}
EXTENSION = {"extend_seconds": 900, "reason": "the tests take long"}
MILLION = b'{"extend_seconds":' + b"9" * 900_000 + b"}"
BAD: dict[str, tuple[str, str, Any, int, str, str]] = {
    "unknown field": ("POST", "/v1/lifecycle", {**LIFECYCLE, "colour": 1}, 400, "invalid-request", "colour"),
    "wrong type": ("POST", "/v1/lifecycle", {**LIFECYCLE, "session_id": 5}, 400, "invalid-request", "$.session_id"),
    "missing field": ("POST", "/v1/lifecycle", {"event": "ready"}, 400, "invalid-request", "run_id"),
    "unknown event": ("POST", "/v1/lifecycle", {**LIFECYCLE, "event": "asleep"}, 400, "invalid-request", "$.event"),
    "time without a zone": (
        "POST", "/v1/lifecycle", NO_ZONE, 400, "invalid-request", "$.timestamp",
    ),
    "time in the future": (
        "POST", "/v1/lifecycle", FUTURE, 422, "future-time", "2990",
    ),
    "time before the first year in UTC": (
        "POST", "/v1/lifecycle", {**LIFECYCLE, "timestamp": "0001-01-01T00:00:00+14:00"}, 422, "usage", "0001",
    ),
    "no run": ("POST", "/v1/lifecycle", {**LIFECYCLE, "run_id": "../../etc"}, 400, "invalid-request", "$.run_id"),
    "another agent's run": ("POST", "/v1/lifecycle", OTHER_RUN, 403, "not-yours", "coder-8.1"),
    "another run in the path": ("POST", "/v1/runs/coder-8.1/submit", {}, 403, "not-yours", "coder-7.1"),
    "no JSON": ("POST", "/v1/lifecycle", b"{", 400, "invalid-request", "truncated"),
    "no UTF-8": ("POST", "/v1/runs/coder-7.1/exit", b'{"code":"\xff"}', 400, "invalid-request", ""),
    "half a surrogate": ("POST", "/v1/runs/coder-7.1/exit", b'{"code":"\\ud800"}', 400, "invalid-request", ""),
    "nested deeply": ("POST", "/v1/runs/coder-7.1/report", DEEP, 400, "invalid-request", ""),
    "a number with a million digits": (
        "POST", "/v1/runs/coder-7.1/heartbeat", MILLION, 400, "invalid-request", "",
    ),
    "an array without an end": ("POST", "/v1/lifecycle", b"[", 400, "invalid-request", "array"),
    "a number and more": ("POST", "/v1/runs/coder-7.1/exit", b"7\t>", 400, "invalid-request", "int"),
    "an array": ("POST", "/v1/runs/coder-7.1/exit", [], 400, "invalid-request", "array"),
    "more than 1 MB": ("POST", "/v1/runs/coder-7.1/exit", b" " * (1 << 20) + b"{}", 413, "too-large", "1 MB"),
    "10 MB": ("POST", "/v1/runs/coder-7.1/exit", b" " * (4 << 20), 413, "too-large", "1 MB"),
    "unknown path": ("POST", "/v1/lifecycles", {}, 404, "unknown-path", "/v1/lifecycles"),
    "unknown method": ("DELETE", "/v1/lifecycle", None, 405, "unknown-method", "DELETE"),
    "a body that is not asked for": ("GET", "/v1/health", b"{}", 400, "invalid-request", "no body"),
    "no task": ("POST", "/v1/runs/coder-7.1/submit", {}, 403, "not-yours", "coder-7.1 has no task"),
    "a verdict by a coder": (
        "POST", "/v1/runs/coder-7.1/verdict", {"verdict": "approve", "reason": "x"}, 409, "refused", "code-reviewer",
    ),
}  # fmt: skip


@pytest.mark.sample(1)
@pytest.mark.parametrize(("method", "path", "body", "status", "code", "words"), BAD.values(), ids=BAD)
@pytest.mark.parametrize("tcp", [False, True], ids=["unix", "tcp"])
def test_bad_input_gets_a_problem_that_names_it(
    shared: Api, worker: Worker, tcp: bool, method: str, path: str, body: Any, status: int, code: str, words: str
) -> None:
    reply = shared.call(method, path, body, token=worker.token, tcp=tcp)
    if tcp and path.endswith("/verdict"):
        status, code, words = 403, "refused", "Unix socket"  # only there it is known whose process calls
    assert (reply.status, reply.headers["content-type"], reply.data["code"]) == (status, PROBLEM, code), reply.data
    assert words in f"{reply.data['detail']} {reply.data['field']}"
    assert reply.data["status"] == status
    assert shared.get("/v1/health").status == 200


PAGES = {
    "fetch": {"Origin": "https://evil.example"},
    "fetch of a file": {"Origin": "null"},
    "a form": {"Sec-Fetch-Site": "cross-site", "Content-Type": "text/plain"},
    "an image": {"Sec-Fetch-Site": "same-site"},
    "a rebound name": {"Host": "evil.example"},
    "a rebound name with the port": {"Host": "127.0.0.1.evil.example:80"},
}


@pytest.mark.parametrize("headers", PAGES.values(), ids=PAGES)
def test_a_request_from_a_web_page_is_refused_even_authenticated(
    shared: Api, worker: Worker, headers: dict[str, str]
) -> None:
    reply = shared.post("/v1/lifecycle", LIFECYCLE, token=worker.token, tcp=True, headers=headers)
    assert (reply.status, reply.data.get("code")) == (403, "web-page")


def test_a_simple_post_is_refused(shared: Api, worker: Worker) -> None:
    for media_type in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        reply = shared.post("/v1/lifecycle", LIFECYCLE, token=worker.token, headers={"content-type": media_type})
        assert (reply.status, reply.data["code"]) == (415, "not-json")


def test_only_the_bearer_token_of_a_run_opens_its_operations(shared: Api, worker: Worker) -> None:
    directory = shared.open_run("coder-6.1")
    once = identity.issue_token(directory, now())
    for token in ("", "x", "coder-7.1:x", once, worker.token[:-1], worker.token.replace("7", "6", 1), "\xff"):
        for tcp in (False, True):
            reply = shared.post("/v1/lifecycle", LIFECYCLE, token=token, tcp=tcp)
            assert (reply.status, reply.data["code"]) == (401, "unauthorized"), token
            assert reply.headers["www-authenticate"].startswith("Bearer ")
    assert worker.report("started").data["applied"] is True


def test_a_token_opens_no_other_run(shared: Api, worker: Worker) -> None:
    other = shared.worker("coder-8.1")
    for path, body in (
        ("/v1/lifecycle", {**LIFECYCLE, "run_id": other.run}),
        (f"/v1/runs/{other.run}/exit", {"code": "1"}),
        (f"/v1/runs/{worker.run}/health", {**HEALTH, "run_id": other.run}),
    ):
        reply = worker.post(path, body)
        assert (reply.status, reply.data.get("code")) == (403, "not-yours"), path
    assert worker.get(f"/v1/runs/{other.run}/stream").status == 403
    assert RunDir(shared.paths, other.run).closing_code() is None


def test_a_one_time_token_is_used_once(shared: Api) -> None:
    token = identity.issue_token(shared.open_run("coder-5.1"), now())
    first, second = (shared.post("/v1/identity", {"token": token}, tcp=True) for _ in range(2))
    assert (first.status, first.data["role"], first.data["run_id"]) == (200, "coder", "coder-5.1")
    assert (second.status, second.data["code"]) == (401, "token-refused")


ASK = """
import http.client, json, socket, sys
path, port, token, run = sys.argv[1:]
c = http.client.HTTPConnection("127.0.0.1", int(port))
if path:
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(path)
headers = {"content-type": "application/json", "authorization": f"Bearer {token}"}
for _ in range(2):
    c.request("POST", f"/v1/runs/{run}/report", json.dumps({"kind": "finding", "text": "t"}), headers)
    reply = c.getresponse()
    print(reply.status, json.loads(reply.read()).get("code"))
"""


def test_a_session_cannot_become_another_run_by_a_token_digest(shared: Api) -> None:
    run = "coder-9.1"
    token = f"{run}:mine"
    line = {"digest": hashlib.sha256(token.encode()).hexdigest(), "issued": now().isoformat()}
    (shared.open_run(run).path / "bearer.json").write_text(json.dumps(line))
    words = [sys.executable, "-c", ASK, str(shared.paths.api_socket), str(shared.port), token, run]
    answers = {}
    for session in ("coder-3.1", run):
        environment = {**os.environ, "LIZA_RUN": session, "LIZA_ROOT": str(shared.paths.root)}
        result = subprocess.run(words, env=environment, capture_output=True, text=True, check=True)
        answers[session] = result.stdout.splitlines()
    assert answers["coder-3.1"] == ["403 not-yours"] * 2
    assert not [answer for answer in answers[run] if answer.startswith(("401", "403"))], answers


LOSE = """
import http.client, json, pathlib, socket, sys, time
path, token, bearer_file = sys.argv[1:]
def call(body, path_of, **headers):
    c = http.client.HTTPConnection("localhost")
    c.sock = socket.socket(socket.AF_UNIX)
    c.sock.connect(path)
    c.request("POST", path_of, json.dumps(body), {"content-type": "application/json", **headers})
    return c
lost = call({"token": token}, "/v1/identity")
while not pathlib.Path(bearer_file).exists():
    time.sleep(0.01)
lost.close()
reply = call({"token": token}, "/v1/identity").getresponse()
bearer = json.loads(reply.read())["token"]
event = {"event": "ready", "run_id": bearer.partition(":")[0], "timestamp": "2026-03-01T15:00:00Z"}
used = call(event, "/v1/lifecycle", authorization=f"Bearer {bearer}").getresponse()
print(reply.status, used.status, call({"token": token}, "/v1/identity").getresponse().status)
"""


def test_a_worker_that_lost_its_identity_answer_asks_again(shared: Api) -> None:
    directory = shared.open_run("coder-4.1")
    token = identity.issue_token(directory, now())
    words = [sys.executable, "-c", LOSE, str(shared.paths.api_socket), token, str(directory.path / "bearer.json")]
    session = {**os.environ, "LIZA_RUN": "coder-4.1", "LIZA_ROOT": str(shared.paths.root)}
    result = subprocess.run(words, env=session, capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["200", "200", "401"]


def test_a_session_but_no_person_needs_a_socket_token(shared: Api) -> None:
    assert shared.get("/v1/agents").status == 200
    assert shared.get("/v1/agents", tcp=True).status == 401
    assert shared.post("/v1/runs/coder-7.1/exit", {"code": "0"}).status == 401
    ask = (
        "import os,socket,sys\nos.chdir(sys.argv[1])\ns=socket.socket(socket.AF_UNIX)\ns.connect('api.sock')\n"
        "s.sendall(b'GET /v1/agents HTTP/1.1\\r\\nHost: localhost\\r\\nConnection: close\\r\\n\\r\\n')\n"
        "print(s.recv(12).decode())"
    )
    session = {**os.environ, "LIZA_RUN": "coder-7.1", "LIZA_ROOT": str(shared.crew.root)}
    outside = subprocess.run(
        [sys.executable, "-c", ask, str(shared.paths.runs)], capture_output=True, text=True, check=True
    )
    child = f"import subprocess,sys; subprocess.run(['env','-u','LIZA_RUN',sys.executable,'-c',{ask!r},sys.argv[1]])"
    below = subprocess.run(
        [sys.executable, "-c", child, str(shared.paths.runs)], env=session, capture_output=True, text=True, check=True
    )
    # The caller removed the variable for itself: its parent has it.
    assert (outside.stdout.strip(), below.stdout.strip()) == ("HTTP/1.1 200", "HTTP/1.1 401")


def test_requests_that_are_not_http_get_a_problem(shared: Api) -> None:
    for words, status in (
        (b"hello\r\n\r\n", b"400"),
        (b"GET / HTTP/1.1\r\nHost: x\r\n" + b"a: b\r\n" * 20_000, b"431"),
        (b"GET /v1/health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 100_000 + b"\r\n\r\n", b"431"),
    ):
        with connect_unix(shared.paths.api_socket) as client:
            client.sendall(words)
            answer = client.recv(1 << 16)
        assert answer.startswith(b"HTTP/1.1 " + status), answer
        assert PROBLEM.encode() in answer


def test_many_requests_in_one_write_are_not_counted_together(shared: Api) -> None:
    request = b"GET /v1/health HTTP/1.1\r\nHost: x\r\na: " + b"b" * 1000 + b"\r\n\r\n"
    with connect_unix(shared.paths.api_socket) as client:
        client.sendall(request * 80 + request[:-2])
        client.sendall(b"\r\n" + request.replace(b"Host", b"Connection: close\r\nHost"))
        answers = client.makefile("rb").read()
    assert answers.count(b"HTTP/1.1 200") == 82, answers[-300:]


def test_a_client_that_disconnects_within_its_body_logs_nothing(shared: Api) -> None:
    with connect_unix(shared.paths.api_socket) as client:
        client.sendall(b"POST /v1/lifecycle HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")
    assert shared.get("/v1/health").status == 200
    assert "Traceback" not in shared.log.read_text()


def test_a_hundred_silent_clients_do_not_keep_others_waiting(shared: Api) -> None:
    silent = [connect_unix(shared.paths.api_socket) for _ in range(100)]
    for index, client in enumerate(silent):
        client.sendall((b"", b"POST /v1/lifecycle HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\n{")[index % 2])
    try:
        assert shared.get("/v1/health").status == 200
    finally:
        for client in silent:
            client.close()


def test_the_openapi_document_is_the_committed_one(shared: Api) -> None:
    copy = Path(__file__).parents[3] / "specs" / "worker-api.openapi.json"
    reply = shared.get("/openapi.json")
    assert reply.data == json.loads(copy.read_text()), "python -m liza.api.operations > specs/worker-api.openapi.json"


@pytest.mark.campaign
def test_a_second_server_is_refused_and_the_first_continues(api: Api) -> None:
    second = api.crew.run("serve")
    assert (second.returncode, "has a server already" in second.stderr) == (1, True)
    assert api.get("/v1/health").status == 200


@pytest.mark.campaign
@pytest.mark.parametrize("how", ["kill", "stop"])
def test_the_next_server_takes_over_socket_port_and_tokens(api: Api, how: str) -> None:
    worker, port = api.worker(), api.port
    getattr(api, how)()
    assert api.paths.api_socket.exists() == (how == "kill")
    api.start()
    assert api.port == port
    assert worker.report("ready").data["applied"] is True
    assert api.stop() == 0
    assert not api.paths.api_socket.exists()


@pytest.mark.campaign
def test_a_file_at_the_socket_is_replaced_but_no_directory(api: Api) -> None:
    api.stop()
    api.paths.api_socket.write_text("no socket")
    api.start()
    api.stop()
    api.paths.api_socket.mkdir()
    refused = api.crew.run("serve")
    assert (refused.returncode, "cannot be replaced" in refused.stderr) == (5, True)


@pytest.mark.campaign
def test_a_port_that_another_process_took_is_replaced(api: Api) -> None:
    port = api.port
    api.stop()
    with socket.socket() as other:
        other.bind(("127.0.0.1", port))
        other.listen()
        api.start()
        assert api.port != port
        assert api.get("/v1/health", tcp=True).status == 200


def test_each_living_run_has_a_port_file_until_it_ends(api: Api) -> None:
    api.crew.work_by_hand("task-1")
    run = "coder-1.1"
    directory = api.open_run(run, "task-1")
    wake(api)
    until(lambda: api.paths.worker_port(run).exists(), "the port file")
    assert api.paths.worker_port(run).read_text() == f"{api.port}\n"
    directory.mark_concluded("done")
    wake(api)
    until(lambda: not api.paths.worker_port(run).exists(), "the port file is removed")


def wake(api: Api) -> None:
    from liza.system import file_growth

    file_growth.wake_watchers(api.paths, "coder-1")


@pytest.mark.campaign
def test_a_repository_at_a_deep_path_has_a_socket(tmp_path: Path) -> None:
    deep = tmp_path.joinpath(*["d" * 60] * 4)
    deep.mkdir(parents=True)
    with started(tmp_path) as crew:
        moved = deep / "project"
        crew.root.rename(moved)
        crew.root = moved
        assert len(os.fsencode(crew.paths.api_socket)) > 200
        crew.run("status")  # the repository was moved: the first command repairs its paths
        one = Api(crew)
        try:
            one.start()
            assert one.get("/v1/health").status == 200
            assert one.get("/v1/health", tcp=True).status == 200
            assert one.stop() == 0
        finally:
            if one.process is not None:
                one.process.kill()
                one.process.wait()


@pytest.mark.campaign
def test_a_server_whose_crew_was_deleted_ends_and_creates_nothing(api: Api) -> None:
    assert api.process is not None
    api.crew.root.joinpath(".liza").rename(api.crew.root.parent / "gone")
    assert api.process.wait(timeout=30) == 0
    assert not api.paths.liza.exists()


def test_ctrl_c_ends_it_also_while_a_stream_is_open(api: Api) -> None:
    assert api.process is not None
    stream = api.worker().stream()
    api.process.send_signal(signal.SIGINT)
    assert api.process.wait(timeout=30) == 0
    until(lambda: stream.is_over, "the stream ends")


def test_a_task_is_done_through_the_api_alone(api: Api) -> None:
    worktree = api.crew.work_by_hand("task-1")
    coder = api.worker("coder-1.1", "task-1")
    assert coder.report("ready").data == {"applied": True, "state": "ready", "reason": None}
    (worktree / "left.txt").write_text("x\n")
    refused = coder.post("/v1/runs/{run}/submit")
    assert (refused.status, refused.data["code"]) == (409, "refused")
    assert "left.txt" in refused.data["detail"]
    api.crew.git("add", "-A", cwd=worktree)
    api.crew.git("commit", "-q", "-m", "rest", cwd=worktree)
    assert coder.post("/v1/runs/{run}/heartbeat", EXTENSION).data["result"] == "changed"
    assert "until" in (api.crew.task("task-1").history[-1].detail or "")
    done = coder.post("/v1/runs/{run}/submit")
    assert (done.status, done.data["status"]) == (200, "READY_FOR_REVIEW")
    again = coder.post("/v1/runs/{run}/submit")
    assert (again.status, again.data["result"]) == (200, "unchanged")
    assert RunDir(api.paths, "coder-1.1").closing_code() == "0"
    api.crew.prepare("claim", "task-1", "--agent", "code-reviewer-1")
    run = api.crew.task("task-1").review_run
    assert run is not None
    reviewer = api.worker(run, "task-1")
    comment = {"path": "task-1.txt", "line": 7, "text": "rounds down"}
    rejection = {"verdict": "reject", "reason": "1. wrong", "comments": [comment]}
    reply = reviewer.post("/v1/runs/{run}/verdict", rejection)
    assert (reply.status, reply.data["code"]) == (422, "usage")
    assert "task-1.txt has 1 line at the reviewed commit" in reply.data["detail"]
    verdict = reviewer.post("/v1/runs/{run}/verdict", {"verdict": "approve", "reason": "read it, ran it"})
    assert (verdict.status, verdict.data["status"]) == (200, "APPROVED")
    assert api.crew.task("task-1").approved_by == "code-reviewer-1"


@pytest.mark.campaign
def test_an_api_rejection_comments_on_lines_of_the_reviewed_commit(api: Api) -> None:
    api.crew.work_by_hand("task-1")
    api.crew.prepare("submit", cwd=worktree_of(api.crew.root, "task-1"))
    api.crew.prepare("claim", "task-1", "--agent", "code-reviewer-1")
    run = api.crew.task("task-1").review_run
    assert run is not None
    reviewer = api.worker(run, "task-1")
    comment = {"path": "task-1.txt", "line": 1, "text": "rounds down"}
    invalid, missing = (400, "invalid-request"), (422, "usage")
    for wrong, answer in (
        ({"line": 0}, invalid),
        ({"text": ""}, invalid),
        ({"colour": 1}, invalid),
        ({"path": "a\nb"}, missing),
        ({"path": "a\0b"}, missing),
        ({"path": "../task-1.txt"}, missing),
    ):
        body = {"verdict": "reject", "reason": "1. wrong", "comments": [{**comment, **wrong}]}
        reply = reviewer.post("/v1/runs/{run}/verdict", body)
        assert (reply.status, reply.data["code"]) == answer, wrong
    praise = {"verdict": "approve", "reason": "ran it", "comments": [comment]}
    assert reviewer.post("/v1/runs/{run}/verdict", praise).data["code"] == "usage"
    rejection = {"verdict": "reject", "reason": "1. wrong", "comments": [comment]}
    assert reviewer.post("/v1/runs/{run}/verdict", rejection).data["status"] == "REJECTED"
    (kept,) = api.crew.task("task-1").review_comments
    assert (kept.path, kept.line, kept.text, kept.quote) == ("task-1.txt", 1, "rounds down", "x")


@pytest.mark.campaign
def test_a_run_that_lost_its_task_is_refused(api: Api) -> None:
    api.crew.work_by_hand("task-1")
    coder = api.worker("coder-1.1", "task-1")
    api.crew.prepare("task", "release", "task-1")
    for word, body in (("submit", {}), ("block", {"reason": "why", "questions": ["what?"]})):
        reply = coder.post(f"/v1/runs/{{run}}/{word}", body)
        assert (reply.status, reply.data["code"]) == (403, "not-yours"), word
    assert find_crew(api.crew.root).board.read().task("task-1").status == "UNCLAIMED"  # type: ignore[union-attr]


@pytest.mark.campaign
def test_an_unreadable_board_is_a_problem_for_one_request_only(api: Api) -> None:
    good = api.paths.state.read_bytes()
    api.paths.state.write_bytes(b"goal: [\n")
    bad = api.get("/v1/agents")
    assert (bad.status, bad.data["code"]) == (503, "board-unreadable")
    assert api.get("/v1/health").status == 200
    api.paths.state.write_bytes(good)
    assert api.get("/v1/agents").status == 200


@pytest.mark.campaign
def test_a_worker_can_request_its_context_tools_and_health(api: Api) -> None:
    api.crew.work_by_hand("task-1")
    coder = api.worker("coder-1.1", "task-1")
    coder.report("ready")
    context = coder.post("/v1/context", {"run_id": "coder-1.1"})
    assert (context.status, context.data["mode"]) == (200, "full"), context
    types = [section["type"] for section in context.data["sections"]]
    assert {"role", "work", "directive"} <= set(types)
    assert "task-1" in "".join(section["content"] for section in context.data["sections"])
    push = {"run_id": "coder-1.1", "tool": "Bash", "input": {"command": "cd x && git -C . push -f"}}
    denied = coder.post("/v1/authorize", push)
    assert (denied.status, denied.data["allowed"]) == (200, False)
    assert denied.data["reason"]
    assert denied.data["rule"]
    look = {"run_id": "coder-1.1", "tool": "Bash", "input": {"command": "git status"}}
    assert coder.post("/v1/authorize", look).data["allowed"] is True
    report = {
        "run_id": "coder-1.1", "status": "degraded", "current_state": "busy", "context_usage": 0.5,
        "last_activity": now().isoformat(), "error": "the model is slow",
    }  # fmt: skip
    assert coder.post("/v1/runs/{run}/health", report).data == {"recorded": True}
    health = api.get("/v1/runs/coder-1.1/health").data
    assert (health["run_id"], health["context_usage"], health["source"]) == ("coder-1.1", 0.5, "reported")
    (agent,) = coder.get("/v1/agents").data["agents"]
    assert (agent["id"], agent["task_id"], agent["state"]) == ("coder-1", "task-1", "stalled")
    assert api.get("/v1/agents").data == {"agents": [agent]}
    unknown = api.get("/v1/runs/coder-9.9/health")
    assert (unknown.status, unknown.data["code"]) == (404, "unknown-id")


def test_a_whole_number_is_an_integer_however_it_is_written(shared: Api, worker: Worker) -> None:
    usage = {"input_tokens": 5.0, "output_tokens": 1e3, "cost_usd": 1}
    turn = {"type": "turn_complete", "id": "whole", "timestamp": now().isoformat(), "usage": usage}
    reply = worker.post("/v1/telemetry", {"run_id": worker.run, "events": [turn]})
    assert (reply.status, reply.data) == (200, {"recorded": 1, "repeated": 0})
    turn["usage"] = {"input_tokens": 5.5}
    reply = worker.post("/v1/telemetry", {"run_id": worker.run, "events": [turn]})
    assert (reply.status, reply.data["field"]) == (400, "$.events[0].usage.input_tokens")


def test_a_locked_run_delays_no_other_run(shared: Api) -> None:
    held, other = shared.worker("coder-31.1"), shared.worker("coder-32.1")

    def body(worker: Worker, name: str) -> dict[str, Any]:
        turn = {"type": "turn_complete", "id": name, "timestamp": now().isoformat(), "usage": {"input_tokens": 1}}
        return {"run_id": worker.run, "events": [turn]}

    headers = {**JSON, "authorization": f"Bearer {held.token}"}
    with contextlib.closing(shared.connect()) as connection:
        # The first request of a connection is answered in a thread, the next ones in the event loop.
        connection.request("POST", "/v1/telemetry", json.dumps(body(held, "a")), headers)
        assert json.load(connection.getresponse()) == {"recorded": 1, "repeated": 0}
        with lock_path(RunDir(shared.paths, held.run).path / ".telemetry.lock"):
            connection.request("POST", "/v1/telemetry", json.dumps(body(held, "b")), headers)
            assert other.post("/v1/telemetry", body(other, "a")).data == {"recorded": 1, "repeated": 0}
        assert json.load(connection.getresponse()) == {"recorded": 1, "repeated": 0}


@pytest.mark.campaign
def test_telemetry_repeated_after_a_kill_is_counted_once(api: Api) -> None:
    coder = api.worker()
    turn = {"type": "turn_complete", "id": "turn-1", "timestamp": now().isoformat(), "usage": {"input_tokens": 5}}
    body = {"run_id": coder.run, "events": [turn]}
    assert coder.post("/v1/telemetry", body).data == {"recorded": 1, "repeated": 0}
    api.kill()
    api.start()
    body["events"] = [turn, {**turn, "id": "turn-2"}]
    assert coder.post("/v1/telemetry", body).data == {"recorded": 1, "repeated": 1}


@pytest.mark.campaign
def test_the_doctor_names_each_fault_of_the_addresses(shared: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    paths, server = shared.paths, shared.process
    assert server is not None

    def hints() -> list[str]:
        return [finding.hint for finding in doctor(paths.root).findings if finding.about == "api"]

    assert hints() == [""]
    monkeypatch.setattr(api_server, "ANSWER_LIMIT", 0.2)
    os.kill(server.pid, signal.SIGSTOP)
    try:
        assert hints() == [f"kill -9 {server.pid}"]
    finally:
        os.kill(server.pid, signal.SIGCONT)
    port = paths.api_port.read_text()
    paths.api_port.write_text("x")
    assert hints() == [f"kill {server.pid}"]
    paths.api_port.write_text(port)
    assert hints() == [""]


@pytest.mark.campaign
def test_a_server_whose_socket_was_removed_or_replaced_ends(api: Api) -> None:
    assert api.process is not None
    with socket.socket(socket.AF_UNIX) as impostor, contextlib.chdir(api.paths.runs):
        api.paths.api_socket.unlink()
        impostor.bind(api.paths.api_socket.name)
        assert api.process.wait(30) == 0
    api.start()
    assert api.get("/v1/health").status == 200


@pytest.mark.campaign
def test_a_run_started_after_its_claim_gets_its_port_file(api: Api) -> None:
    api.crew.work_by_hand("task-1")
    with api.crew.board.transaction("test", "agents") as tx:
        tx.state = tx.state.with_agent("coder-2", Agent(role="coder", status="WORKING", runs=1))
    api.open_run("coder-2.1")
    wake(api)
    # The server has looked at the runs: that of the claim has no session yet.
    until(lambda: api.paths.worker_port("coder-2.1").exists(), "the port file of another run")
    assert not api.paths.worker_port("coder-1.1").exists()
    api.open_run("coder-1.1", "task-1")
    until(lambda: api.paths.worker_port("coder-1.1").exists(), "the port file")
