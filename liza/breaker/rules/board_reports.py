"""Discoveries and anomalies on the board: how they are added, become tasks, and are resolved. Pure.

A discovery is a fault outside the scope of a task. Its id, such as ``d-3``, is on the board. An anomaly is a problem
with the work itself. Its id, such as ``a-2``, is its position in the list: entries are only added.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from liza.breaker.rules.breaker_patterns import are_similar
from liza.model.errors import Refused, UnknownId, UsageError
from liza.model.model import FINAL_STATUSES, URGENCIES, Anomaly, Discovery, Resolution, State, Urgency
from liza.model.paths import is_person
from liza.model.statuses import SESSION_FAILED, check_anomaly
from liza.model.value_classes import replace

DISCOVERY = "discovery"
"""Kind of report that adds a discovery. All other kinds add an anomaly."""
RESOLVE = "resolve"
"""Word that resolves a report, in the position of a kind."""
SEVERITIES = ("low", "medium", "high", "critical")
MAX_TEXT = 4000
"""Maximum number of characters of a text of a report: each verb writes the whole board."""
MAX_DETAILS = 12
MAX_REPORTS = 20
"""Maximum number of anomalies of a run, and of open discoveries of an agent during a task. People have no limit."""
_DETAILS = ("urgency", "severity", "recommendation")
_TEXT = "text"
"""Name under which an anomaly keeps its text, beside its details."""
_DISCOVERY_ID = re.compile(r"d-([0-9]{1,9})")
_ANOMALY_ID = re.compile(r"a-([0-9]{1,9})")
_DISCOVERY_HINT = 'liza report discovery "what is wrong, and where" --urgency deferred'


def add_discovery(state: State, discovery: Discovery, details: Mapping[str, str]) -> tuple[State, str]:
    """Add a discovery; return the board and the new id.

    ``discovery`` has who, during which task, when and what. ``details`` has ``urgency``, which is required,
    ``severity`` and ``recommendation``. Raises UsageError, Refused for an agent with MAX_REPORTS open ones.
    """
    _check_size(discovery.description, details)
    mine = (discovery.by, discovery.during)
    _check_count(discovery.by, sum(entry.is_open and (entry.by, entry.during) == mine for entry in state.discovered))
    unknown = sorted(details.keys() - set(_DETAILS))
    if unknown:
        raise UsageError(f"a discovery has no detail {unknown[0]}, only {', '.join(_DETAILS)}", "liza report --help")
    urgency, severity = details.get("urgency", ""), details.get("severity", discovery.severity)
    if urgency not in URGENCIES:
        was = f"it is {urgency!r}" if urgency else "it is missing"
        raise UsageError(f"a discovery has an urgency, {' or '.join(URGENCIES)}; {was}", _DISCOVERY_HINT)
    if severity not in SEVERITIES:
        expected = ", ".join(SEVERITIES)
        raise UsageError(f"the severity of a discovery is {severity!r}, expected one of {expected}", _DISCOVERY_HINT)
    if not discovery.description.strip():
        raise UsageError("a discovery needs a text", _DISCOVERY_HINT)
    numbered = replace(
        discovery,
        id=_next_id(state),
        urgency=urgency,
        severity=severity,
        recommendation=details.get("recommendation", ""),
    )
    return replace(state, discovered=(*state.discovered, numbered)), numbered.id


def _next_id(state: State) -> str:
    """Return ``d-N`` above every id on the board."""
    matches = (_DISCOVERY_ID.fullmatch(discovery.id) for discovery in state.discovered)
    return f"d-{max((int(match[1]) for match in matches if match), default=0) + 1}"


def add_anomaly(state: State, anomaly: Anomaly) -> State:
    """Add an anomaly report.

    Raises UsageError if the kind is unknown, or a detail that it needs is missing or too long; Refused for a run that
    has reported MAX_REPORTS.
    """
    check_anomaly(anomaly)
    _check_size("", anomaly.details)
    _check_count(anomaly.reporter, sum(entry.reporter == anomaly.reporter for entry in state.anomalies))
    return replace(state, anomalies=(*state.anomalies, anomaly))


def add_failed_session(state: State, failed: Anomaly) -> State:
    """Add a session's failure, unless an open anomaly of this kind has a similar text: retries have the same cause."""
    texts = [_text_of(entry) for entry in open_anomalies(state).values() if entry.type == SESSION_FAILED]
    if any(are_similar((text, _text_of(failed)), state.config.breaker.similarity) for text in texts):
        return state
    return replace(state, anomalies=(*state.anomalies, failed))


def _text_of(anomaly: Anomaly) -> str:
    return str(anomaly.details.get(_TEXT, ""))


def make_details(text: str, given: Mapping[str, str]) -> dict[str, str]:
    """Return the details of an anomaly: its text, and the given ones. Raises UsageError for a detail ``text``."""
    if _TEXT in given:
        raise UsageError(f"a detail of a report cannot be named {_TEXT}: its text has this name", "liza report --help")
    return {_TEXT: text, **given}


def _check_size(text: str, details: Mapping[str, str]) -> None:
    """Raise UsageError if a text of a report is too long, or if it has too many details."""
    for name, value in {"text": text, **details}.items():
        if max(len(name), len(str(value))) > MAX_TEXT:
            message = f"the {name[:40]} of a report has {len(str(value))} characters; it can have {MAX_TEXT}"
            raise UsageError(message, "liza report --help")
    if len(details) > MAX_DETAILS:
        raise UsageError(f"a report has {len(details)} details; it can have {MAX_DETAILS}", "liza report --help")


def _check_count(reporter: str, count: int) -> None:
    """Raise Refused if an agent has reported enough: a loop of reports would fill the board and wake planners."""
    if count >= MAX_REPORTS and not is_person(reporter):
        raise Refused(
            f"{reporter} has made {count} such reports: put the others into the hand-off",
            'liza handoff "what is done" --next "the first thing to do"',
        )


def open_discoveries(state: State) -> tuple[Discovery, ...]:
    """Return the discoveries that are neither a task nor resolved, the immediate ones first."""
    remaining = [discovery for discovery in state.discovered if discovery.is_open]
    return tuple(sorted(remaining, key=lambda discovery: discovery.urgency != Urgency.IMMEDIATE))


def open_anomalies(state: State) -> dict[str, Anomaly]:
    """Return the anomalies that are not resolved, by id. A failed session of a closed task needs no resolution."""
    return {
        anomaly_id(index): anomaly
        for index, anomaly in enumerate(state.anomalies)
        if anomaly.resolved is None and not _is_past(state, anomaly)
    }


def _is_past(state: State, anomaly: Anomaly) -> bool:
    """Return whether a failed session concerns a task that is closed, or in the archive."""
    if anomaly.type != SESSION_FAILED or anomaly.task is None:
        return False
    task = state.task(anomaly.task)
    return task is None or task.status in FINAL_STATUSES


def anomaly_id(index: int) -> str:
    """Return the id of the anomaly at this index of the list."""
    return f"a-{index + 1}"


def convert_discovery(state: State, discovery_id: str, task_id: str) -> State:
    """Record that ``task_id`` was added because of a discovery. Raises Refused, UnknownId."""
    discovery = _get_open_discovery(state, discovery_id)
    return _with_discovery(state, replace(discovery, converted_to_task=task_id))


def resolve_report(state: State, report_id: str, resolution: Resolution) -> State:
    """Close a discovery or an anomaly without a task, with the reason. Raises Refused, UnknownId, UsageError."""
    if not resolution.why.strip():
        raise UsageError(f"{report_id} is resolved with a reason", f'liza report resolve {report_id} "why"')
    if not _ANOMALY_ID.fullmatch(report_id):
        return _with_discovery(state, replace(_get_open_discovery(state, report_id), resolved=resolution))
    anomalies = list(state.anomalies)
    index = int(report_id[2:]) - 1
    if not 0 <= index < len(anomalies):
        raise _unknown(report_id)
    previous = anomalies[index].resolved
    if previous is not None:
        raise _resolved_before(report_id, previous)
    anomalies[index] = replace(anomalies[index], resolved=resolution)
    return replace(state, anomalies=tuple(anomalies))


def _get_open_discovery(state: State, discovery_id: str) -> Discovery:
    discovery = next((entry for entry in state.discovered if entry.id == discovery_id), None)
    if discovery is None:
        raise _unknown(discovery_id)
    if discovery.converted_to_task is not None:
        task = discovery.converted_to_task
        raise Refused(f"{discovery_id} is the task {task} already", f"liza task show {task}")
    if discovery.resolved is not None:
        raise _resolved_before(discovery_id, discovery.resolved)
    return discovery


def _unknown(report_id: str) -> UnknownId:
    return UnknownId(f"there is no discovery or anomaly {report_id}", "liza status")


def _resolved_before(report_id: str, resolution: Resolution) -> Refused:
    return Refused(f"{report_id} was resolved by {resolution.by}: {resolution.why}", "liza status")


def _with_discovery(state: State, changed: Discovery) -> State:
    entries = (changed if entry.id == changed.id else entry for entry in state.discovered)
    return replace(state, discovered=tuple(entries))
