"""watch: report each alarm once, until it clears."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from liza.alarms import deliveries
from liza.alarms.child_run import ChildRunner
from liza.alarms.current_alarms import find_alarms
from liza.alarms.notice_senders import NoticeSenders
from liza.alarms.notice_targets import NoticeTarget, configured_targets
from liza.alarms.rules import notice_rules
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.model.alarm_kinds import Alarm, AlarmKind
from liza.model.errors import LizaError, Missing, NoCrew, UsageError
from liza.model.model import State
from liza.model.quiet_hours import QuietHours, parse_quiet_hours
from liza.model.value_classes import Value
from liza.tasks.evidence import gather_evidence
from liza.view.change_stream import watch_changes
from liza.view.rules.structs import AlarmRow


def _no_notices(alarms: Sequence[Alarm]) -> None:
    return


class AlarmChange(Value):
    """What one look found: alarms that were raised since the last look, and those that ended. ``count``: of present
    alarms."""

    raised: tuple[AlarmRow, ...] = ()
    ended: tuple[AlarmRow, ...] = ()
    count: int = 0


def watch(
    crew: Crew,
    notify: Callable[[Sequence[Alarm]], None] = _no_notices,
) -> Iterator[AlarmChange]:
    """Yield what the first look found, and each change after it; an alarm that clears and returns is raised again.

    ``notify`` is called at each look with all present alarms; while the board cannot be read, with those of the last
    look and that error.

    A board that cannot be read is an alarm, and so is its return. ``since`` of an alarm is the time at which this
    command first saw it. Raises NoCrew if the board is gone.
    """
    reported: dict[tuple[str, str, str], AlarmRow] = {}
    alarms: tuple[Alarm, ...] = ()
    is_unreadable, is_first = False, True
    for _ in watch_changes(crew):
        try:
            state = crew.board.read()
            alarms = find_alarms(crew, state, gather_evidence(crew, state))
        except NoCrew:
            raise
        except LizaError as error:
            if not is_unreadable:
                unreadable = Alarm(error.code.replace("-", "_"), "board", error.message, error.hint or "liza doctor")
                notify((*alarms, unreadable))
                yield AlarmChange((_alarm_row(crew, unreadable),), count=len(alarms) + 1)
            is_unreadable, is_first = True, False
            continue
        notify(alarms)
        current = {(alarm.kind, alarm.about, alarm.next): alarm for alarm in alarms}
        raised = {key: _alarm_row(crew, alarm) for key, alarm in current.items() if key not in reported}
        ended = tuple(row for key, row in reported.items() if key not in current)
        reported = {key: reported.get(key) or raised[key] for key in current}
        back = [_back_row(crew, state)] if is_unreadable else []
        if raised or ended or back or is_first:
            yield AlarmChange((*back, *raised.values()), ended, len(current))
        is_unreadable = is_first = False


def _back_row(crew: Crew, state: State) -> AlarmRow:
    message = f"the board can be read again, at revision {state.revision}"
    return _alarm_row(crew, Alarm(AlarmKind.BOARD_BACK, "board", message, "liza status"))


def _alarm_row(crew: Crew, alarm: Alarm) -> AlarmRow:
    return AlarmRow(alarm.kind, alarm.about, alarm.message, alarm.next, alarm.waiting_since, crew.clock.now())


_HELP = "liza watch --help"


class NotifyPlan(Value):
    """Targets that were checked, and the hours in which nothing is sent to them."""

    targets: tuple[NoticeTarget, ...]
    quiet: QuietHours | None = None


def open_targets(crew: Crew, texts: Sequence[str], command: str | None, quiet: str | None) -> NotifyPlan:
    """Check the targets, or without any those of ``config.notify``. Only a person may send notices.

    Raises UsageError for a target or hours of no valid form or if there is no target, Missing for a target that cannot
    be used, Refused for a session.
    """
    require_person(crew, planner=False)
    settings = crew.board.read().config.notify
    targets = [NoticeTarget(text) for text in texts]
    if command is not None and command.strip():
        targets.append(NoticeTarget(command, is_command=True))
    if not texts and command is None:
        targets, quiet = list(configured_targets(settings)), quiet or settings.quiet
    if not targets:
        raise UsageError("there is no target: neither --notify, --exec nor config.notify names one", _HELP)
    hours = parse_quiet_hours(quiet) if quiet is not None else None
    if quiet is not None and hours is None:
        raise UsageError(f"{quiet!r} is not a time of day: 22:00-07:00", _HELP)
    runner = ChildRunner()
    for target in targets:
        deliveries.check_target(target, runner, deliveries.Limits())
    return NotifyPlan(tuple(targets), hours)


def start_senders(crew: Crew, plan: NotifyPlan) -> NoticeSenders:
    """Return the senders of the targets, which start as a context manager."""
    return NoticeSenders(crew, plan.targets, plan.quiet)


def send_trial(crew: Crew, plan: NotifyPlan) -> Iterator[str]:
    """Send a test to each target and yield a line for each; also in quiet hours. A success ends the alarm of a target.

    Raises Missing at the end if a target failed.
    """
    notice = notice_rules.build_notice(Alarm("test", "crew", "this is a test of liza watch --notify", "liza status"))
    runner, failed = ChildRunner(), []
    for target in plan.targets:
        reason = deliveries.deliver(target, notice, crew.paths.root, runner, deliveries.Limits())
        yield f"{target.label}: {reason or 'sent'}"
        if reason is None:
            deliveries.forget_failure(crew.paths, target.key)
        else:
            failed.append(target.label)
    if failed:
        raise Missing(f"not every target could be notified: {', '.join(failed)}", _HELP)
