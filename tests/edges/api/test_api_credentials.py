"""Credentials of a worker over the real server: with its identity, and others on its stream before they end."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from liza.api import identity
from liza.programs.presets import preset_table
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.usage import account_files
from liza.usage.account_choice import AccountChooser
from liza.usage.run_account import run_account_path
from tests.conftest import until, variant
from tests.edges.api_worker import Api, Stream, Worker, now, serving
from tests.journeys.crews import bytes_of_files, bytes_of_history, bytes_of_processes

RUN = "coder-1.1"
FIRST, SECOND = "xyzzy-first-7c1", "xyzzy-second-9d2"


def write_accounts(text: str) -> None:
    path = account_files.accounts_path(Path(os.environ["HOME"]))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o600)


def source(path: Path, secret: str) -> str:
    """A command that prints the secret, which is in no file."""
    path.write_text(secret[::-1] + "\n")
    return json.dumps(["rev", str(path)])


def start_run(api: Api) -> RunDir:
    """A run with an account, as a supervisor starts it."""
    directory = api.open_run(RUN)
    record = RunRecord(agent="coder-1", run=RUN, kind="work", started=now(), program="script", has_account=True)
    directory.create(record)
    preset = preset_table.load_presets(api.paths).rows["script"]
    AccountChooser(preset, os.environ, print).take(now()).record(directory)
    return directory


def identify(api: Api) -> tuple[Worker, list[dict[str, str]]]:
    reply = api.post("/v1/identity", {"token": identity.issue_token(start_run(api), now())})
    assert reply.status == 200, reply.data
    return Worker(api, RUN, reply.data["token"]), reply.data["credentials"]


def changes(stream: Stream) -> list[dict[str, object]]:
    return [event["data"] for event in stream.events if event.get("event") == "credentials"]


@pytest.mark.campaign
def test_a_worker_at_its_limit_is_streamed_another_credential(tmp_path: Path) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    (tmp_path / "crew").mkdir()
    with serving(tmp_path / "crew") as api:
        write_accounts(
            f"[accounts.script.a]\ncommand = {source(stores / 'a', FIRST)}\nsets = 'KEY'\n"
            f"[accounts.script.b]\ncommand = {source(stores / 'b', SECOND)}\nsets = 'KEY'\n"
        )
        worker, credentials = identify(api)
        assert [(each["name"], each["value"]) for each in credentials] == [("KEY", FIRST)]
        stream = worker.stream()
        report = {"run_id": RUN, "state": "limited", "name": "KEY", "reason": "429"}
        assert worker.post("/v1/credentials", report).data == {"applied": True}
        until(lambda: changes(stream), "the other credential")
        (change,) = changes(stream)
        assert (change["id"], change["reason"]) == ("credentials-1", "429")
        assert change["credentials"] == [{"type": "api_key", "name": "KEY", "value": SECOND, "expires_at": None}]
        # A report that crossed the change is about the earlier credential.
        assert worker.post("/v1/credentials", report).data == {"applied": False}
        stream.close()
        again = worker.stream()
        until(lambda: changes(again), "it comes again")
        ids = {"run_id": RUN, "ids": ["credentials-1"]}
        assert worker.post("/v1/acknowledge", ids).data == {"acknowledged": 1}
        assert worker.post("/v1/acknowledge", ids).data == {"acknowledged": 0}
        assert changes(again) == [change]
        files = [*bytes_of_files(api.crew.root, Path(os.environ["HOME"])), *bytes_of_history(api.crew.root)]
        places = [*files, *bytes_of_processes()]
        assert [place for place, data in places if FIRST.encode() in data or SECOND.encode() in data] == []


@pytest.mark.campaign
def test_an_unreadable_secret_is_a_problem_and_keeps_the_token(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        write_accounts("[accounts.script.a]\ncommand = 'echo x'\nsets = 'KEY'\n")
        token = identity.issue_token(start_run(api), now())
        write_accounts("[accounts.script.a]\ncommand = 'false'\nsets = 'KEY'\n")
        reply = api.post("/v1/identity", {"token": token})
        assert (reply.status, reply.data["code"]) == (503, "missing")
        assert reply.data["detail"] == "account script/a: command false exited with 1"
        write_accounts("[accounts.script.b]\nlogin = true\n")
        reply = api.post("/v1/identity", {"token": token})
        assert (reply.status, reply.data["code"]) == (503, "no-account")
        write_accounts("[accounts.script.a]\ncommand = 'echo x'\nsets = 'KEY'\n")
        reply = api.post("/v1/identity", {"token": token})
        assert (reply.status, reply.data["credentials"][0]["value"]) == (200, "x")


@pytest.mark.campaign
def test_a_command_that_hangs_keeps_no_prompt_from_the_stream(tmp_path: Path) -> None:
    with serving(tmp_path) as api:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        write_accounts("[accounts.script.a]\ncommand = 'echo x'\nsets = 'KEY'\n")
        worker, _ = identify(api)
        write_accounts(
            "[accounts.script.a]\ncommand = 'echo x'\nsets = 'KEY'\n"
            f"[accounts.script.b]\ncommand = ['cat', '{gate}']\nsets = 'KEY'\n"
        )
        stream = worker.stream()
        limited = {"run_id": RUN, "state": "limited", "name": "KEY"}
        assert worker.post("/v1/credentials", limited).status == 200
        prompt = {"run_id": RUN, "content": "while it waits", "priority": "urgent"}
        assert api.post("/v1/prompt", prompt).status == 200
        stream.wait(1)
        assert changes(stream) == []
        gate.write_text("y\n")
        until(lambda: changes(stream), "the other credential")


@pytest.mark.campaign
@pytest.mark.parametrize(
    "body",
    [
        {"run_id": RUN, "state": "lost"},
        variant({"run_id": RUN}),
        variant({"run_id": RUN, "state": "expires", "until": "2026-03-01T15:00:00"}),
        variant({"run_id": RUN, "state": "limited", "reason": "x" * 1001}),
        {"run_id": RUN, "state": "limited", "value": "secret"},
    ],
)
def test_a_wrong_report_is_a_problem(tmp_path: Path, body: dict[str, object]) -> None:
    with serving(tmp_path) as api:
        reply = api.worker(RUN).post("/v1/credentials", body)
        assert (reply.status, reply.data["code"]) == (400, "invalid-request")


@pytest.mark.campaign
def test_a_worker_with_an_unrecorded_account_gets_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "crew").mkdir()
    with serving(tmp_path / "crew") as api:
        write_accounts(f"[accounts.script.a]\ncommand = {source(tmp_path / 'a', FIRST)}\nsets = 'KEY'\n")
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))  # of the supervisor, and not of the server
        token = identity.issue_token(start_run(api), now())
        reply = api.post("/v1/identity", {"token": token})
        monkeypatch.delenv("XDG_STATE_HOME")
        assert (reply.status, reply.data.get("code"), reply.data.get("hint")) == (
            503,
            "missing",
            "liza down && liza up",
        )
        assert "not on record" in reply.data["detail"]
        AccountChooser(preset_table.load_presets(api.paths).rows["script"], os.environ, print).take(now()).record(
            api.open_run(RUN)
        )
        again = api.post("/v1/identity", {"token": token})
        assert [each["value"] for each in again.data.get("credentials", [])] == [FIRST], again.data


@pytest.mark.parametrize("other", ["script", variant("claude")])
def test_no_file_of_a_session_decides_whose_secret_it_gets(tmp_path: Path, other: str) -> None:
    stores = tmp_path / "stores"
    stores.mkdir()
    (tmp_path / "crew").mkdir()
    with serving(tmp_path / "crew") as api:
        write_accounts(
            f"[accounts.script.a]\ncommand = {source(stores / 'a', FIRST)}\nsets = 'KEY'\n"
            f"[accounts.{other}.b]\ncommand = {source(stores / 'b', SECOND)}\nsets = 'KEY'\n"
        )
        directory = start_run(api)
        token = identity.issue_token(directory, now())
        stolen = {"account": f"{other}/b", "read": now().isoformat()}
        (directory.path / "account.json").write_text(json.dumps(stolen))
        record = directory.path / "run.json"
        record.write_text(json.dumps({**json.loads(record.read_text()), "program": other}))
        reply = api.post("/v1/identity", {"token": token})
        assert [each["value"] for each in reply.data.get("credentials", [])] == [FIRST], reply.data
        path = run_account_path(directory)
        assert api.paths.root not in path.parents
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
