"""report: record a discovery or an anomaly, and resolve one."""

from __future__ import annotations

from typing import Annotated

import msgspec

from liza.breaker.rules import board_reports
from liza.crew.caller import identify_caller, require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.model.model import Anomaly, Discovery, Resolution
from liza.model.value_classes import Line, Text, WorkerRequest, replace


class ReportRequest(WorkerRequest, frozen=True, kw_only=True):
    """Record a problem or a fact that others must know. The run continues."""

    kind: Annotated[str, msgspec.Meta(min_length=1, max_length=200)]
    text: Text
    details: dict[Annotated[str, msgspec.Meta(max_length=200)], Line] = msgspec.field(default_factory=dict)


def report(crew: Crew, request: ReportRequest) -> Result:
    """Write a discovery or an anomaly on the board. Raises UsageError, Refused, NotOwner.

    The kind ``discovery`` has the details ``urgency``, ``severity`` and ``recommendation``. The result has the ``id``.
    """
    caller = identify_caller(crew)
    by, task = (caller, None) if isinstance(caller, str) else (caller.run, caller.task)
    now = crew.clock.now()
    with crew.change(by, "report", task) as tx:
        if request.kind == board_reports.DISCOVERY:
            agent = caller if isinstance(caller, str) else caller.agent
            entry = Discovery(id="", by=agent, during=task, description=request.text, created=now)
            tx.state, report_id = board_reports.add_discovery(tx.state, entry, request.details)
        else:
            kept = board_reports.make_details(request.text, request.details)
            anomaly = Anomaly(timestamp=now, task=task, reporter=by, type=request.kind, details=kept)
            tx.state = board_reports.add_anomaly(tx.state, anomaly)
            report_id = board_reports.anomaly_id(len(tx.state.anomalies) - 1)
    is_person = isinstance(caller, str)
    result = make_result(tx.before, tx.state, task, "liza status" if is_person else "continue your task", id=report_id)
    return replace(result, message=f"{report_id} is on the board")


def resolve(crew: Crew, report_id: str, why: str) -> Result:
    """Close a discovery or an anomaly with a reason, for people and the current planner.

    Raises Refused, UnknownId, UsageError.
    """
    by = require_person(crew, planner=True)
    resolution = Resolution(by=by, timestamp=crew.clock.now(), why=why)
    with crew.change(by, "resolve report") as tx:
        tx.state = board_reports.resolve_report(tx.state, report_id, resolution)
    result = make_result(tx.before, tx.state, None, "liza status", id=report_id)
    return replace(result, message=f"{report_id} is resolved")
