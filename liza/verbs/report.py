"""report: record an anomaly."""

from __future__ import annotations

from collections.abc import Mapping

from liza.crew.caller import identify_caller
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.rules.model import Anomaly
from liza.rules.tasks import coding


def report(crew: Crew, kind: str, text: str, details: Mapping[str, str]) -> Result:
    """Write an anomaly on the board. Raises UsageError, Refused, NotOwner."""
    caller = identify_caller(crew)
    by, task = (caller, None) if isinstance(caller, str) else (caller.run, caller.task)
    entry = Anomaly(timestamp=crew.clock.now(), task=task, reporter=by, type=kind, details={"text": text, **details})
    with crew.change(by, "report", task) as tx:
        tx.state = coding.report_anomaly(tx.state, entry)
    return make_result(tx.before, tx.state, task, "continue your task")
