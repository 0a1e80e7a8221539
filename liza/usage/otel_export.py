"""Send ended sessions and usage to an OpenTelemetry collector, over OTLP/HTTP. Needs the extra ``liza[otel]``.

The only module that imports OpenTelemetry. It starts no thread and sets no global provider: one call sends what is new
and returns. The person's variables (``OTEL_EXPORTER_OTLP_ENDPOINT``, ``OTEL_EXPORTER_OTLP_HEADERS``, …) say where to.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from liza.api.rules.prometheus_text import Family, usage_families
from liza.model.errors import Missing, NotRegularFile
from liza.model.model import FrozenStruct
from liza.model.spending import LedgerEntry
from liza.model.value_classes import decodable
from liza.system import atomic, installation, untrusted_files
from liza.system.locks import try_lock_path
from liza.usage.rules.session_spans import SessionSpan, session_spans

if TYPE_CHECKING:
    from opentelemetry.sdk.metrics.export import Metric, MetricsData
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan

ENDPOINT_VARIABLES = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
MAX_SPANS = 500
"""Maximum number of spans in one request."""
_SCOPE = "liza"


class ExportCursor(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``otel.json``: how many sessions of the ledger were sent. ``first``: the run of the first one, since a ledger
    that begins with another run is a new one."""

    sessions: int = 0
    first: str | None = None


def is_enabled(environ: Mapping[str, str]) -> bool:
    """Return whether the person has named a collector and installed the extra."""
    return any(environ.get(name) for name in ENDPOINT_VARIABLES) and is_installed()


def is_installed() -> bool:
    """Return whether the extra is installed."""
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


def export_usage(
    liza_directory: Path,
    crew: str,
    ended: Sequence[LedgerEntry],
    living: Sequence[LedgerEntry],
    environ: Mapping[str, str],
) -> int:
    """Send the sessions that were not sent before, and the sums of all; return the number of these sessions.

    ``ended`` are the entries of the ledger in its order. Another process that sends at the moment sends them all: then
    this returns 0. Raises Missing if the extra is not installed or no collector is named or none accepts the data.
    """
    if not is_installed():
        raise Missing("the extra otel is not installed", installation.extra_command("otel"))
    if not any(environ.get(name) for name in ENDPOINT_VARIABLES):
        raise Missing(
            f"no collector is named in {ENDPOINT_VARIABLES[0]}", f"export {ENDPOINT_VARIABLES[0]}=http://localhost:4318"
        )
    path = liza_directory / "otel.json"
    with try_lock_path(liza_directory / "otel.lock", 0o600) as is_locked:
        if not is_locked:
            return 0
        fresh = ended[_count_sent(path, ended) :]
        resource = _resource(crew)
        for begin in range(0, len(fresh), MAX_SPANS):
            part = fresh[begin : begin + MAX_SPANS]
            _send_spans(session_spans(part, crew), resource)
            # After each request: what was sent is not sent again if the next one fails.
            sent = len(ended) - len(fresh) + begin + len(part)
            cursor = ExportCursor(sessions=sent, first=ended[0].run)
            atomic.write(path, msgspec.json.encode(cursor) + b"\n")
        _send_metrics(usage_families([*ended, *living]), ended, resource)
        return len(fresh)


def _count_sent(path: Path, ended: Sequence[LedgerEntry]) -> int:
    """Return how many entries were sent; 0 for another ledger or a damaged file: a span that is sent twice is one."""
    try:
        cursor = msgspec.json.decode(untrusted_files.read_record(path), type=decodable(ExportCursor))
    except (OSError, NotRegularFile, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return 0
    is_same = bool(ended) and cursor.first == ended[0].run and 0 <= cursor.sessions <= len(ended)
    return cursor.sessions if is_same else 0


def _resource(crew: str) -> Resource:
    from opentelemetry.sdk.resources import Resource

    return Resource.create({"service.name": "liza", "service.namespace": Path(crew).name})


def _send_spans(spans: Sequence[SessionSpan], resource: Resource) -> None:
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    exporter = OTLPSpanExporter()
    try:
        _check(exporter.export([_readable_span(span, resource) for span in spans]))
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]


def _readable_span(span: SessionSpan, resource: Resource) -> ReadableSpan:
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

    return ReadableSpan(
        name=span.name,
        context=SpanContext(span.trace_id, span.span_id, is_remote=False, trace_flags=TraceFlags(TraceFlags.SAMPLED)),
        resource=resource,
        attributes=span.attributes,
        status=Status(StatusCode.UNSET) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=span.start,
        end_time=span.end,
        instrumentation_scope=InstrumentationScope(_SCOPE),
    )


def _send_metrics(families: Sequence[Family], ended: Sequence[LedgerEntry], resource: Resource) -> None:
    """Send sums since the first session: a collector counts none twice, however often they are sent."""
    from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

    begin = min((entry.time.timestamp() - entry.seconds for entry in ended), default=time.time())
    exporter = OTLPMetricExporter()
    try:
        _check(exporter.export(_metrics_data(families, round(begin * 1e9), time.time_ns(), resource)))
    finally:
        exporter.shutdown()


def _metrics_data(families: Sequence[Family], begin: int, now: int, resource: Resource) -> MetricsData:
    from opentelemetry.sdk.metrics.export import MetricsData, ResourceMetrics, ScopeMetrics
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

    metrics = [_metric(family, begin, now) for family in families if family.samples]
    scope = ScopeMetrics(scope=InstrumentationScope(_SCOPE), metrics=metrics, schema_url="")
    return MetricsData([ResourceMetrics(resource=resource, scope_metrics=[scope], schema_url="")])


def _metric(family: Family, begin: int, now: int) -> Metric:
    from opentelemetry.sdk.metrics.export import AggregationTemporality, Metric, NumberDataPoint, Sum

    points = [NumberDataPoint(dict(labels), begin, now, value) for labels, value in family.samples]
    data = Sum(points, AggregationTemporality.CUMULATIVE, is_monotonic=True)
    return Metric(name=family.name.removesuffix("_total"), description=family.help, unit="", data=data)


def _check(result: Any) -> None:
    """Raise Missing if the collector did not accept the data. The library has logged the reason on stderr."""
    if result.name != "SUCCESS":
        raise Missing("the OpenTelemetry collector did not accept the data", f"echo ${ENDPOINT_VARIABLES[0]}")
