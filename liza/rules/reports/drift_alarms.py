"""What others than Liza and the person's own commands did to the repository and to the settings. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from liza.rules.merging import merge_alarms
from liza.rules.merging.merge_alarms import AbsentCheckout, Alarm
from liza.rules.model import State
from liza.rules.reports.ref_moves import SessionRefMove
from liza.rules.settings import UnconfirmedSetting

ACCEPT_COMMAND = "liza doctor --accept"
ALL_SETTINGS = "settings"
"""The word for every setting that a person confirms."""


class SymbolicRef(msgspec.Struct, frozen=True):
    """A symbolic ref where only Liza's plain ones belong: its name, what that means, and the command that mends it."""

    ref: str
    message: str
    way: str


class RepositoryDrift(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to the repository outside of Liza: a line for each thing that names a program, or that stands
    for another commit, and was not there at init; the symbolic refs; the checkouts that integration was moved without;
    and how integration was moved, where it was, with the merged tasks that are not in it any more and the ways on."""

    planted: tuple[str, ...] = ()
    symbolic: tuple[SymbolicRef, ...] = ()
    away: tuple[AbsentCheckout, ...] = ()
    moved: str | None = None
    lost: tuple[str, ...] = ()
    ways: str = ""
    trespasses: tuple[SessionRefMove, ...] = ()


def repository_alarms(
    state: State, seen: RepositoryDrift, unconfirmed: Iterable[UnconfirmedSetting] | None
) -> Iterator[Alarm]:
    """An alarm for each of them, with the command that resolves it."""
    yield from settings_alarms(unconfirmed)
    for line in seen.planted:
        yield Alarm(
            "planted_configuration", line, f"it came after init, and does not run in liza: {line}", "liza doctor"
        )
    for one in seen.symbolic:
        yield Alarm("symbolic_ref", one.ref, one.message, one.way)
    yield from merge_alarms.absent_checkout_alarms(seen.away)
    if seen.moved is not None:
        branch = state.config.integration_branch
        yield Alarm("integration_moved", branch, seen.moved, seen.ways or f"git log --first-parent {branch}")
    for moved in seen.trespasses:
        yield Alarm("moved_by_session", moved.about, to_keep(moved), moved.way)


def to_keep(moved: SessionRefMove) -> str:
    """What a session did to a ref, with the command that accepts it. A session may have chosen the name."""
    return f"{moved.message}. To keep it: {ACCEPT_COMMAND} {shlex.quote(moved.about)}"


def settings_alarms(unconfirmed: Iterable[UnconfirmedSetting] | None) -> Iterator[Alarm]:
    """The settings that do not count; None: nobody ever confirmed any."""
    if unconfirmed is None:
        message = "no setting was ever confirmed by a person: whatever stands under config: counts"
        yield Alarm("unconfirmed_setting", ALL_SETTINGS, message, f"{ACCEPT_COMMAND} {ALL_SETTINGS}")
    for one in unconfirmed or ():
        yield Alarm("unconfirmed_setting", one.key, one.description, f"{ACCEPT_COMMAND} {one.key}")
