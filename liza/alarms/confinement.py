"""Why agents do not run in a box although they should where that is possible: recorded at the start of a supervisor,
shown by `status`, which starts no box to find it out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

import msgspec

from liza.box import support
from liza.model.alarm_table import Alarm, AlarmKind
from liza.model.configuration import Config, Confinement
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.model.value_classes import FrozenStruct
from liza.programs.session.run_directory import read_struct
from liza.system import atomic


class Unconfined(FrozenStruct, frozen=True, kw_only=True):
    """``unconfined.json``: why this machine cannot make a box, and the command that helps."""

    cause: str
    remedy: str


def check_support(paths: Paths, config: Config) -> None:
    """Record why this machine cannot make boxes, for `status`. Raises Missing as ``choose_box_program``."""
    machine = None if config.confinement is Confinement.OFF else support.find_support()
    if machine is None or machine.works or machine.is_load:
        with suppress(OSError):
            paths.unconfined.unlink()
    else:
        reason = Unconfined(cause=machine.cause, remedy=machine.remedy or support.OFF_COMMAND)
        # On a full disk the reason is not shown; that has an alarm of its own.
        with suppress(LizaError, OSError):
            atomic.make_directory(paths.root, paths.runs)
            atomic.write(paths.unconfined, msgspec.json.encode(reason) + b"\n", sync=False)
    support.choose_box_program(config.confinement)


def find_alarms(paths: Paths, config: Config) -> Iterator[Alarm]:
    """Yield the alarm that agents run without boxes although no person chose that, or cannot start."""
    reason = None if config.confinement is Confinement.OFF else read_struct(paths.unconfined, Unconfined)
    if reason is not None:
        is_required = config.confinement is Confinement.REQUIRED
        result = "cannot start in boxes" if is_required else "do not run in boxes and can do what you can"
        kind = AlarmKind.UNCONFINED
        yield kind.alarm("confinement", result=result, cause=reason.cause, step=reason.remedy)
