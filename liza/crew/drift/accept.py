"""`liza doctor --accept`: accept changes that were made outside of Liza."""

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
    """Accept the drift that these names mean in the alarms. Return one line for each. Raises Refused, UsageError, and
    Missing if there are no pins to record it in.
    """
    require_person(crew, planner=False)
    Pins.load(crew.paths.pins)
    return tuple(line for name in names for line in _accept_name(crew, name))


def _accept_name(crew: Crew, name: str) -> tuple[str, ...]:
    state = crew.board.read_as_written()
    if name == ALL_SETTINGS:
        confirmed_settings.confirm_all_settings(crew.paths, state)
        return ("every setting on the board counts",)
    values = settings.confirmable_values(state.config)
    if name in values:
        confirmed_settings.confirm_settings(crew.paths, {name: values[name]}, state.config)
        return (f"config.{name} counts with its value on the board: {values[name]!r}",)
    ref = ref_drift.find_moved_ref(crew, state, name)
    if ref is not None:
        confirmed_settings.accept_ref(crew.paths, ref, crew.clock.now())
        return (f"what sessions did to {name} until now is accepted",)
    programs = Pins.load(crew.paths.pins).find_added(crew.git).get(name)
    if programs is not None:
        confirmed_settings.accept_configuration(crew.paths, name, programs)
        return (f"git configuration {name} counts as it is now: {', '.join(map(repr, programs))}",)
    accepted = ", ".join((ALL_SETTINGS, *values))
    what = "a ref or a key of git's configuration that an alarm names"
    raise UsageError(f"{name!r} cannot be accepted; expected one of {accepted}, or {what}", "liza status")
