"""doctor --accept: what was done outside of Liza, and is as a person wants it."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, ref_drift
from liza.repo.config_pins import Pins
from liza.rules import settings
from liza.rules.errors import UsageError
from liza.rules.reports.drift_alarms import ALL_SETTINGS


def accept_drift(crew: Crew, names: Sequence[str]) -> tuple[str, ...]:
    """Accept what these names stand for in the alarms; a line for each. Raises Refused, Usage, and Missing where there
    are no pins to keep it in."""
    require_person(crew, planner=False)
    Pins.load(crew.paths.pins)
    return tuple(line for name in names for line in _accept_name(crew, name))


def _accept_name(crew: Crew, name: str) -> tuple[str, ...]:
    written = crew.board.read_as_written()
    if name == ALL_SETTINGS:
        confirmed_settings.confirm_all_settings(crew.paths, written)
        return ("every setting on the board counts",)
    known = settings.confirmable_values(written.config)
    if name in known:
        confirmed_settings.confirm_settings(crew.paths, {name: known[name]}, written.config)
        return (f"config.{name} counts as it stands on the board: {known[name]!r}",)
    ref = ref_drift.find_moved_ref(crew, written, name)
    if ref is not None:
        confirmed_settings.accept_ref(crew.paths, ref, crew.clock.now())
        return (f"what sessions did to {name} until now is accepted",)
    raise UsageError(
        f"{name!r} is nothing to accept: {', '.join((ALL_SETTINGS, *known))}, or a ref that an alarm names",
        "liza status",
    )
