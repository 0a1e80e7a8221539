"""A crew whose person has named an OpenTelemetry collector: each ended session arrives there, and delays nothing."""

from __future__ import annotations

import pytest

from tests.edges.test_otel_export import Collector
from tests.edges.test_otel_export import collector as collector
from tests.journeys.crews import WORK, Crew


@pytest.mark.campaign
def test_an_ended_session_is_sent_to_the_collector(crew: Crew, collector: Collector) -> None:
    crew.add("task-1")
    supervisor = crew.agent("coder-1", crew.script("agent", WORK))
    crew.wait(lambda _: collector.spans and collector.sums, "the span")
    assert collector.spans == ["coder-1.1"]
    assert supervisor.stop() == 0
    assert crew.liza("metrics", "--export") == "0 sessions sent\n"


@pytest.mark.campaign
def test_a_collector_that_is_not_there_changes_nothing_but_the_log(crew: Crew, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")
    crew.add("task-1")
    supervisor = crew.agent("coder-1", crew.script("agent", WORK))
    crew.wait_status("task-1", "READY_FOR_REVIEW")
    log = crew.paths.logs / "otel.log"
    crew.wait(lambda _: log.exists() and "did not accept the data" in log.read_text(), "the reason in the log")
    assert supervisor.stop() == 0
    assert "the OpenTelemetry collector did not accept the data" in crew.liza("metrics", "--export", code=5)
