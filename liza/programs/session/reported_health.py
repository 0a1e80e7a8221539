"""``health.json`` in a run's directory: what the runtime of the run says of its own health."""

from __future__ import annotations

import msgspec

from liza.model.model import AwareDatetime, FrozenStruct
from liza.programs.rules.health_rules import HealthStatus, WorkerState
from liza.programs.session.run_directory import RunDir, read_struct
from liza.system import atomic

_HEALTH_FILE = "health.json"


class ReportedHealth(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """``health.json``: what the runtime of the run last said of itself, at ``time``. ``context_usage``: 0 to 1."""

    time: AwareDatetime
    status: HealthStatus
    state: WorkerState
    last_activity: AwareDatetime
    context_usage: float | None = None
    error: str | None = None
    question: str | None = None


def write_reported_health(run_dir: RunDir, health: ReportedHealth) -> None:
    """Record what the runtime of a run says of its own health. Raises OSError."""
    atomic.write(run_dir.path / _HEALTH_FILE, msgspec.json.encode(health) + b"\n")


def read_reported_health(run_dir: RunDir) -> ReportedHealth | None:
    """Return what the runtime of a run said of its own health; None if it said nothing. Raises LizaError."""
    return read_struct(run_dir.path / _HEALTH_FILE, ReportedHealth)
