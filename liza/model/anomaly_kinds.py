"""Kinds of anomalies, and the details that each needs. Pure."""

from __future__ import annotations

from liza.model.errors import UsageError
from liza.model.model import Anomaly
from liza.text.suggestions import did_you_mean

ANOMALY_TYPES = (
    "retry_loop",
    "trade_off",
    "spec_ambiguity",
    "external_blocker",
    "assumption_violated",
    "scope_deviation",
    "workaround",
    "debt_created",
    "spec_changed",
    "hypothesis_exhaustion",
    "spec_gap",
    "review_deadlock",
    "system_ambiguity",
    "tests_weakened",
)
_NEEDED_DETAILS = {
    "retry_loop": ("count", "error_pattern"),
    "trade_off": ("what", "why", "debt_created"),
    "external_blocker": ("blocker_service",),
    "assumption_violated": ("assumption", "reality"),
    "system_ambiguity": ("protocol_section", "question"),
}


def missing_details(anomaly: Anomaly) -> tuple[str, ...]:
    """Return the names of the details that this kind of anomaly needs and that are missing or blank."""
    needed = _NEEDED_DETAILS.get(anomaly.type, ())
    return tuple(name for name in needed if not str(anomaly.details.get(name, "")).strip())


def check_anomaly(anomaly: Anomaly) -> None:
    """Raise UsageError if the kind is unknown or a detail that it needs is missing."""
    if anomaly.type not in ANOMALY_TYPES:
        raise UsageError(
            f"{anomaly.type!r} is not a kind of report; the kinds are: discovery, {', '.join(ANOMALY_TYPES)}"
            + did_you_mean(anomaly.type, ("discovery", *ANOMALY_TYPES)),
            "liza report --help",
        )
    missing = missing_details(anomaly)
    if missing:
        raise UsageError(
            f"a report of {anomaly.type} needs the details {', '.join(missing)}",
            f'liza report {anomaly.type} "…" ' + " ".join(f'--detail {name}="…"' for name in missing),
        )
