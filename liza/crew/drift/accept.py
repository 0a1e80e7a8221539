"""doctor --accept: what was done outside of Liza, and is as a person wants it."""

from __future__ import annotations

from collections.abc import Sequence

from liza.crew.caller import human_or
from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, ref_drift
from liza.repo.config_pins import Pins
from liza.rules import settings
from liza.rules.errors import Usage
from liza.rules.reports.intrusions import ALL


def accept(crew: Crew, names: Sequence[str]) -> tuple[str, ...]:
    """Accept what these names stand for in the alarms; a line for each. Raises Refused, Usage, and Missing where there
    are no pins to keep it in."""
    human_or(crew, planner=False)
    Pins.load(crew.paths.pins)
    return tuple(line for name in names for line in _accept(crew, name))


def _accept(crew: Crew, name: str) -> tuple[str, ...]:
    written = crew.board.as_written()
    if name == ALL:
        confirmed_settings.confirm_all(crew.paths, written)
        return ("every setting on the board counts",)
    known = settings.values(written.config)
    if name in known:
        confirmed_settings.confirm(crew.paths, {name: known[name]}, written.config)
        return (f"config.{name} counts as it stands on the board: {known[name]!r}",)
    ref = ref_drift.named(crew, written, name)
    if ref is not None:
        confirmed_settings.review(crew.paths, ref, crew.clock.now())
        return (f"what sessions did to {name} until now is accepted",)
    raise Usage(
        f"{name!r} is nothing to accept: {', '.join((ALL, *known))}, or a ref that an alarm names", "liza status"
    )
