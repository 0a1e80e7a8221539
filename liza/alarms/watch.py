"""watch: report each alarm once, until it clears."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from datetime import datetime

from liza.alarms.current_alarms import find_alarms
from liza.alarms.notices import NoticePlan, NoticeProcess, NoticeTarget, configured_plan, require_target
from liza.board.repeated_looks import watch_changes
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.alarm_table import Alarm, AlarmKind, AlarmRow
from liza.model.errors import LizaError, NoCrew, UsageError
from liza.model.setting_limits import parse_hours
from liza.model.value_classes import Value
from liza.tasks.evidence import gather_evidence


class AlarmChange(Value):
    """What one look found: alarms that were raised since the last look, and those that ended. ``count``: of present
    alarms."""

    raised: tuple[AlarmRow, ...] = ()
    ended: tuple[AlarmRow, ...] = ()
    count: int = 0


def watch(crew: Crew) -> Iterator[AlarmChange]:
    """Yield what the first look found, and each change after it; an alarm that clears and returns is raised again.

    A board that cannot be read is an alarm, and so is its return. ``since`` of an alarm is the time at which this
    command first saw it. Raises NoCrew if the board is gone.
    """
    reported: dict[tuple[str, str, str], AlarmRow] = {}
    alarms: tuple[Alarm, ...] = ()
    is_unreadable, is_first = False, True
    for _ in watch_changes(crew.board):
        try:
            state = crew.board.read()
            alarms = find_alarms(crew, state, gather_evidence(crew, state))
        except NoCrew:
            raise
        except LizaError as error:
            if not is_unreadable:
                kind, step = error.code.replace("-", "_"), error.hint or "liza doctor"
                unreadable = AlarmRow(kind, "board", error.message, step, since=crew.clock.now())
                yield AlarmChange((unreadable,), count=len(alarms) + 1)
            is_unreadable, is_first = True, False
            continue
        current = {(alarm.kind, alarm.about, alarm.next): alarm for alarm in alarms}
        now = crew.clock.now()
        raised = {key: _alarm_row(alarm, now) for key, alarm in current.items() if key not in reported}
        ended = tuple(row for key, row in reported.items() if key not in current)
        reported = {key: reported.get(key) or raised[key] for key in current}
        returned = (AlarmKind.BOARD_BACK.alarm("board", revision=state.revision),) if is_unreadable else ()
        back = [_alarm_row(alarm, now) for alarm in returned]
        if raised or ended or back or is_first:
            yield AlarmChange((*back, *raised.values()), ended, len(current))
        is_unreadable = is_first = False


def _alarm_row(alarm: Alarm, now: datetime) -> AlarmRow:
    return AlarmRow(alarm.kind, alarm.about, alarm.message, alarm.next, alarm.waiting_since, now)


_HELP = "liza watch --help"


def open_targets(
    crew: Crew, texts: Sequence[str], command: str | None, quiet: str | None, *, is_trial: bool
) -> NoticeProcess:
    """Check the targets, or without any those of ``config.notify``; return the process that sends, not yet started.

    Only a person may send notices. Raises UsageError for a target or hours of no valid form or if there is no target,
    Missing for a target that cannot be used, Refused for a session.
    """
    require_person(crew, planner=False)
    targets = [NoticeTarget(text) for text in texts]
    if command is not None and command.strip():
        targets.append(NoticeTarget(command, is_command=True))
    plan = NoticePlan(tuple(targets), quiet, is_trial)
    if not texts and command is None:
        configured = configured_plan(crew.board.read().config.notify)
        plan = NoticePlan(configured.targets, quiet or configured.quiet, is_trial)
    if not plan.targets:
        raise UsageError("there is no target: neither --notify, --exec nor config.notify names one", _HELP)
    if plan.quiet is not None and parse_hours(plan.quiet) is None:
        raise UsageError(f"{plan.quiet!r} is not a time of day: 22:00-07:00", _HELP)
    for target in plan.targets:
        require_target(target, os.environ)
    return NoticeProcess(crew.paths, os.environ, plan)
