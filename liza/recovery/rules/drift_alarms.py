"""Alarms about changes to the repository and the settings made outside of Liza. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

import msgspec

from liza.config.rules.settings import UnconfirmedSetting
from liza.merging.rules import merge_alarms
from liza.merging.rules.merge_alarms import AbsentCheckout
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.model import State

ACCEPT_COMMAND = "liza doctor --accept"
ALL_SETTINGS = "settings"
"""Name for all settings that need confirmation."""


class RepositoryDrift(msgspec.Struct, frozen=True, kw_only=True):
    """Changes to the repository made outside of Liza.

    ``away``: checkouts that were missing when integration moved. ``moved``: how another
    process moved integration. ``lost``: merged tasks that it does not contain any more. ``ways``: commands to continue.
    """

    away: tuple[AbsentCheckout, ...] = ()
    moved: str | None = None
    lost: tuple[str, ...] = ()
    ways: str = ""


def repository_alarms(
    state: State, seen: RepositoryDrift, unconfirmed: Iterable[UnconfirmedSetting] | None
) -> Iterator[Alarm]:
    """Yield an alarm for each change, with the command that resolves it."""
    yield from settings_alarms(unconfirmed)
    yield from merge_alarms.absent_checkout_alarms(seen.away)
    if seen.moved is not None:
        branch = state.config.integration_branch
        ways = seen.ways or f"git log --first-parent refs/heads/{shlex.quote(branch)}"
        yield Alarm(AlarmKind.INTEGRATION_MOVED, branch, seen.moved, ways)


def settings_alarms(unconfirmed: Iterable[UnconfirmedSetting] | None) -> Iterator[Alarm]:
    """Yield an alarm for each setting that is not in effect. None: no setting was ever confirmed."""
    if unconfirmed is None:
        message = "no setting was ever confirmed by a person: every value under config: is in effect"
        yield Alarm(AlarmKind.UNCONFIRMED_SETTING, ALL_SETTINGS, message, f"{ACCEPT_COMMAND} {ALL_SETTINGS}")
    for setting in unconfirmed or ():
        yield Alarm(AlarmKind.UNCONFIRMED_SETTING, setting.key, setting.description, f"{ACCEPT_COMMAND} {setting.key}")
