"""Alarms about changes to the repository and the settings made outside of Liza. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator

from liza.config.rules import settings
from liza.config.rules.settings import UnconfirmedSetting
from liza.merging.rules.repository_drift import RepositoryDrift
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.model import State


def repository_alarms(
    state: State, seen: RepositoryDrift, unconfirmed: Iterable[UnconfirmedSetting] | None
) -> Iterator[Alarm]:
    """Yield an alarm for each change, with the command that resolves it."""
    yield from settings_alarms(unconfirmed)
    if seen.moved is not None:
        branch = state.config.integration_branch
        ways = seen.ways or f"git log --first-parent refs/heads/{shlex.quote(branch)}"
        yield Alarm(AlarmKind.INTEGRATION_MOVED, branch, seen.moved, ways)


def settings_alarms(unconfirmed: Iterable[UnconfirmedSetting] | None) -> Iterator[Alarm]:
    """Yield an alarm for each setting that is not in effect. None: no setting was ever confirmed."""
    for key, message, command in settings.describe_unconfirmed(unconfirmed):
        yield Alarm(AlarmKind.UNCONFIRMED_SETTING, key, message, command)
