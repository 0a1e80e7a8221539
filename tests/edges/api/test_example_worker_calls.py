"""Parts of `examples/worker.py` on their own, with a real server where they talk to one."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from liza.api import identity
from liza.programs.session.run_directory import read_reported_health
from tests.conftest import until
from tests.edges.api_worker import now, serving

_WORKER = Path(__file__).parents[3] / "examples" / "worker.py"


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(_WORKER.parent)
    spec = importlib.util.spec_from_file_location("example_worker", _WORKER)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b": open\n\n", []),
        (b'id: 1\nevent: prompt\ndata: {"a": 1}\n\n', [{"id": "1", "event": "prompt", "data": '{"a": 1}'}]),
        (b"id:1\r\nevent:prompt\r\ndata:x\r\n\r\n", [{"id": "1", "event": "prompt", "data": "x"}]),
        (b"id: 1\ndata: a\n\n: keep-alive\n\ndata: b\n\n", [{"id": "1", "data": "a"}, {"data": "b"}]),
        (b"data: cut off", []),
        (b"data: a: b\n\n", [{"data": "a: b"}]),
    ],
)
def test_it_reads_the_events_of_the_server(example: Any, stream: bytes, events: list[Any]) -> None:
    assert list(example.parse_events(stream.splitlines(keepends=True))) == events


@pytest.mark.campaign
def test_the_example_worker_reports_health_and_who_refused(
    example: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving(tmp_path) as api:
        run = api.open_run("coder-1.1")
        monkeypatch.chdir(api.paths.runs)
        monkeypatch.setenv("LIZA_TOKEN", identity.issue_token(run, now()))
        worker = example.Worker()
        worker.report("ready")
        api.kill()
        api.start()
        worker.handle("health", {"question": "coder-1.1-1"})
        health = read_reported_health(run)
        assert health is not None
        assert (health.status, health.state, health.question) == ("healthy", "idle", "coder-1.1-1")
        assert health.last_activity.isoformat() == worker.health["last_activity"]
        prompt = {"run_id": "coder-1.1", "content": "hello", "priority": "urgent"}
        assert api.post("/v1/prompt", prompt).status == 200
        worker.context = []
        until(worker.take_prompts, "the prompt")
        assert worker.context == [{"type": "prompt", "content": "hello"}]
        until(lambda: not list(api.paths.runs.glob("coder-1/inbox/*.json")), "the acknowledgment")
        with pytest.raises(example.Refused, match="coder-1"):
            worker.post("runs/coder-1.1/submit")
