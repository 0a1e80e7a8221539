"""Sessions at a real OpenTelemetry collector: each once, whatever fails in between."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from liza.model.errors import Missing
from liza.model.spending import LedgerEntry, TokenUsage
from liza.system import installation
from liza.system.locks import try_lock_path
from liza.usage import otel_export
from tests.conftest import FakeClock


class Collector:
    """An OTLP/HTTP collector. ``status`` is the answer to requests for spans."""

    def __init__(self) -> None:
        self.spans: list[str] = []
        self.ids: list[bytes] = []
        self.sums: list[dict[str, float]] = []
        self.status = 200
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                status = collector.take(self.path, body)
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *words: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self.thread.start()
        self.address = f"http://127.0.0.1:{self.server.server_port}"

    def take(self, path: str, body: bytes) -> int:
        if path == "/v1/metrics":
            metrics = ExportMetricsServiceRequest.FromString(body).resource_metrics[0].scope_metrics[0].metrics
            self.sums.append({each.name: sum(_value(point) for point in each.sum.data_points) for each in metrics})
            assert all(each.sum.is_monotonic and each.sum.aggregation_temporality == 2 for each in metrics)
            return 200
        if self.status == 200:
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                for span in resource.scope_spans[0].spans:
                    attributes = {each.key: each.value for each in span.attributes}
                    self.spans.append(attributes["gen_ai.agent.id"].string_value)
                    self.ids.append(span.span_id)
        return self.status


def _value(point: object) -> float:
    return float(getattr(point, point.WhichOneof("value")))  # type: ignore[attr-defined]


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    made = Collector()
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", made.address)
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    yield made
    made.server.shutdown()
    made.server.server_close()


def sessions(clock: FakeClock, *runs: str) -> list[LedgerEntry]:
    used = TokenUsage(input=100, output=10, cost=0.25)
    return [
        LedgerEntry(run=run, time=clock.now(), kind="work", program="p", outcome="finished", seconds=5.0, used=used)
        for run in runs
    ]


def export(directory: Path, entries: list[LedgerEntry]) -> int:
    import os

    return otel_export.export_usage(directory, "/crew", entries, [], os.environ)


def test_each_session_is_sent_once_and_the_sums_are_those_of_all(
    tmp_path: Path, clock: FakeClock, collector: Collector
) -> None:
    assert export(tmp_path, sessions(clock, "coder-1.1", "coder-1.2")) == 2
    assert export(tmp_path, sessions(clock, "coder-1.1", "coder-1.2")) == 0
    assert export(tmp_path, sessions(clock, "coder-1.1", "coder-1.2", "coder-2.1")) == 1
    assert collector.spans == ["coder-1.1", "coder-1.2", "coder-2.1"]
    assert [sums["liza_usage_cost_usd"] for sums in collector.sums] == [0.5, 0.5, 0.75]
    assert collector.sums[-1]["liza_usage_tokens"] == 330.0
    assert collector.sums[-1]["liza_usage_sessions"] == 3.0


def test_what_the_collector_did_not_take_is_sent_again(
    tmp_path: Path, clock: FakeClock, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel_export, "MAX_SPANS", 1)
    collector.status = 400
    with pytest.raises(Missing, match="did not accept"):
        export(tmp_path, sessions(clock, "coder-1.1", "coder-1.2"))
    collector.status = 200
    assert export(tmp_path, sessions(clock, "coder-1.1", "coder-1.2")) == 2
    assert collector.spans == ["coder-1.1", "coder-1.2"]


def test_a_damaged_cursor_and_a_new_ledger_send_all_with_the_same_ids(
    tmp_path: Path, clock: FakeClock, collector: Collector
) -> None:
    export(tmp_path, sessions(clock, "coder-1.1"))
    for damage in (b"{", b'{"sessions":7}', b'{"sessions":-1,"first":"coder-1.1"}', b'{"sessions":1,"first":"other"}'):
        (tmp_path / "otel.json").write_bytes(damage)
        assert export(tmp_path, sessions(clock, "coder-1.1")) == 1
    assert len(collector.spans) == 5
    assert len(set(collector.ids)) == 1


def test_two_processes_do_not_send_at_the_same_time(tmp_path: Path, clock: FakeClock, collector: Collector) -> None:
    with try_lock_path(tmp_path / "otel.lock", 0o600):
        assert export(tmp_path, sessions(clock, "coder-1.1")) == 0
    assert export(tmp_path, sessions(clock, "coder-1.1")) == 1


def test_without_a_collector_or_without_the_extra_the_reason_is_named(
    tmp_path: Path, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(Missing, match="no collector is named in OTEL_EXPORTER_OTLP_ENDPOINT"):
        otel_export.export_usage(tmp_path, "/crew", [], [], {})
    assert not otel_export.is_enabled({})
    assert otel_export.is_enabled({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    monkeypatch.setattr(otel_export, "is_installed", lambda: False)
    assert not otel_export.is_enabled({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    with pytest.raises(Missing, match="the extra otel is not installed") as raised:
        otel_export.export_usage(tmp_path, "/crew", [], [], {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9"})
    assert raised.value.hint == installation.extra_command("otel")
    assert re.search(r" install .*'opentelemetry-sdk>=[\d.]+'", raised.value.hint)
