"""Read what a screen shows, by calling verbs. A part that fails is ``Unread``; the others are read."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from liza.crew.crew import Crew
from liza.merging import gate_log
from liza.merging.queue import show_queue
from liza.model.errors import LizaError
from liza.model.gates import GateOutcome, GateRun
from liza.printing.columns import format_value
from liza.printing.render_task import format_task, list_facts, list_handoff, list_texts
from liza.programs.rules.session_events import describe_unknown
from liza.tasks import archive
from liza.tasks.diff import diff
from liza.tasks.rules import claims
from liza.text.redaction import redact
from liza.ui.rules.drawing import draw
from liza.ui.rules.picture_view import PictureView
from liza.ui.rules.snapshot import ScreenName, SessionPage, Snapshot, TaskPage, Unread, Wanted
from liza.usage.program_accounts import show_accounts
from liza.view import history, session_log
from liza.view import logs as run_logs
from liza.view.metrics import usage_by
from liza.view.rules.structs import Picture
from liza.view.status import look
from liza.view.task_rows import show_task

Part = TypeVar("Part")
NEWS = {ScreenName.NOW: 40, ScreenName.HISTORY: 500}
"""Number of the newest events that a screen shows."""
COST_GROUPS = ("task", "agent", "program", "model", "account", "day")
"""Tables of the screen Costs."""
MAX_SESSION_LINES = 500
"""Lines of its output that the screen Session reads."""


def gather(crew: Crew, wanted: Wanted, feed: str = "", picture: Picture | Unread | None = None) -> Snapshot:
    """Return the crew as it is now, with the parts that are wanted. ``picture``: if it was read already."""
    is_shown = wanted.screen.__eq__
    return Snapshot(
        time=crew.clock.now(),
        wanted=wanted,
        picture=_read(lambda: look(crew)) if picture is None else picture,
        latest=_read(lambda: history.recall_events(crew, None, NEWS[wanted.screen])) if wanted.screen in NEWS else None,
        queue=_read(lambda: show_queue(crew)) if is_shown(ScreenName.QUEUE) else None,
        costs=_read(lambda: usage_by(crew, COST_GROUPS)) if is_shown(ScreenName.COSTS) else None,
        accounts=_read(show_accounts) if is_shown(ScreenName.AGENTS) else None,
        task=_read(lambda: _read_task(crew, wanted.subject)) if is_shown(ScreenName.TASK) else None,
        session=_read(lambda: _read_session(crew, wanted.subject)) if is_shown(ScreenName.SESSION) else None,
        feed=feed,
    )


def format_once(crew: Crew, columns: int, rows: int) -> str:
    """Return the first screen as text, with all its rows."""
    drawing = draw(gather(crew, Wanted()), PictureView(columns=columns, rows=rows))
    return "\n".join(line.text.rstrip() for line in (*drawing.header, *drawing.body))


def _read_task(crew: Crew, task_id: str) -> TaskPage:
    shown = show_task(crew, task_id)
    task = claims.get_task(archive.with_archived(crew.board, crew.board.read(), task_id), task_id)
    tests = _read(lambda: _read_tests(crew, task_id))
    handoff = () if shown["handoff"] is None else tuple(list_handoff(shown["handoff"]))
    notes = tuple(("note", note) for note in shown["notes"])
    return TaskPage(
        task,
        format_task(shown, True),
        _read(lambda: diff(crew, task_id)),
        tests,
        texts=(*list_texts(shown), *handoff, *notes),
        facts=tuple((label, format_value(value)) for label, value in list_facts(shown).items()),
    )


def _read_tests(crew: Crew, task_id: str) -> tuple[GateRun, ...]:
    """Return the runs of gates on candidates of a task; the start of a run only while it runs."""
    runs = [run for run in gate_log.refresh_runs(crew) if run.subject == task_id]
    newest = {(run.candidate, run.gate): run for run in runs}
    return tuple(run for run in runs if run.outcome != GateOutcome.RUNNING or run in newest.values())


def _read_session(crew: Crew, name: str) -> SessionPage:
    """Return the newest session of an agent, or a run."""
    agent = crew.board.read().agents.get(name)
    if agent is not None and not agent.runs:
        return SessionPage("", ())
    run = name if "." in name else run_logs.find_newest_run(crew, name)
    events, _ = session_log.read_recent(crew, [run], MAX_SESSION_LINES, None)
    notes = run_logs.read_notes(crew, run)
    denials = [
        f"denied {count} times by the rule {rule}; the last: {last}" for rule, (count, last) in notes.denials.items()
    ]
    unread = describe_unknown(events)
    record = crew.run_dir(run).read_record()
    task = record.task if record is not None and record.task else ""
    return SessionPage(run, tuple(events), task, (*denials, *filter(None, (notes.silence, unread))))


def _read(verb: Callable[[], Part]) -> Part | Unread:
    """Return the result of a verb. A fault of a verb must not take the rest of the picture away."""
    try:
        return verb()
    except LizaError as error:
        return Unread(redact(error.message), error.hint)
    except OSError as error:
        return Unread(redact(str(error)), "liza doctor")
    except Exception as error:  # noqa: BLE001
        return Unread(redact(f"{type(error).__name__}: {error}"), "liza bug-report")
