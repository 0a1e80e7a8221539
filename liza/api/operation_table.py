"""The operations of the API. Each calls one function of a surface, or a verb."""

from __future__ import annotations

import sys
from functools import cache
from typing import Any, Final

from liza.api import openapi
from liza.api.callers import Access
from liza.api.calls import Call, Operation
from liza.api.current_run import require_current_run
from liza.api.metrics_text import format_metrics
from liza.api.verb_operations import VERB_OPERATIONS
from liza.api.worker_operations import WORKER_OPERATIONS
from liza.model.errors import RunIsOver


def _openapi(call: Call) -> bytes:
    return _document()


@cache
def _document() -> bytes:
    return openapi.format_document(openapi.make_document(OPERATIONS))


def _metrics(call: Call) -> bytes:
    return format_metrics(call.crew, call.server).encode()


def _is_stream_over(call: Call) -> bool:
    """Return whether the run has ended. Raises UnknownId if there is no such run."""
    try:
        require_current_run(call.run_dir)
    except RunIsOver:
        return True
    return False


OPERATIONS: Final[tuple[Operation, ...]] = (
    *WORKER_OPERATIONS,
    *VERB_OPERATIONS,
    Operation(
        "stream",
        "GET",
        "/v1/runs/{run}/stream",
        "Prompts and questions for the run, as server-sent events",
        Access.RUN,
        _is_stream_over,
        str,
        'id: 20261122T120000-000\nevent: prompt\ndata: {"id":"20261122T120000-000","content":"Round half up"}\n\n',
        media_type="text/event-stream",
        is_stream=True,
    ),
    Operation(
        "metrics",
        "GET",
        "/metrics",
        "Figures of the crew and of the server, as Prometheus text",
        Access.READER,
        _metrics,
        str,
        'liza_tasks{status="MERGED"} 12\n',
        media_type="text/plain; version=0.0.4; charset=utf-8",
    ),
    Operation(
        "openapi",
        "GET",
        "/openapi.json",
        "This document",
        Access.PUBLIC,
        _openapi,
        dict[str, Any],
        {"openapi": "3.1.0"},
    ),
)


if __name__ == "__main__":
    sys.stdout.buffer.write(_document())
