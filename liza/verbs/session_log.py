"""Read what happened in sessions: the lines of their programs as events, in one form for all programs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import cache

from liza.crew.archive import archived_tasks
from liza.crew.crew import Crew
from liza.programs.events import event_readers
from liza.programs.presets import acp_session, preset_table
from liza.programs.presets.preset import Preset
from liza.programs.session import run_archive
from liza.rules.errors import LizaError
from liza.rules.sessions.session_events import LoggedEvent, Printed
from liza.verbs.all_logs import OutputLine


def read_events(crew: Crew, lines: Iterable[OutputLine]) -> Iterator[LoggedEvent]:
    """Yield the events in lines of output, in their order."""
    find_preset = cache(lambda run: _find_preset(crew, run))
    for line in lines:
        preset = find_preset(line.run)
        parent = event_readers.find_parent_call(line.text) if preset is not None else ""
        for event in event_readers.read_line(preset, line.text) if preset is not None else (Printed(line.text),):
            yield LoggedEvent(line.agent, line.run, line.time, event, parent)


def _find_preset(crew: Crew, run: str) -> Preset | None:
    """Return the row of the run's program; None if its output has no known format, or the row is gone."""
    try:
        record = crew.run_dir(run).read_record()
        if record is None:
            return None
        preset = preset_table.load_presets(crew.paths).resolve(record.spec or record.program)
    except LizaError:
        return None
    preset = acp_session.shape_preset(preset, terminal=False)
    return preset if preset.events else None


def find_runs_of_task(crew: Crew, name: str) -> tuple[str, ...]:
    """Return the runs that have worked on a task or reviewed it and have printed something, in their order.

    Empty if there is no such task.
    """
    task = archived_tasks.find_task(crew, crew.board.read(), name)
    if task is None:
        return ()
    runs = dict.fromkeys([event.run for event in task.history if event.run] + [task.run, task.review_run])
    return tuple(run for run in runs if run is not None and _has_output(crew, run))


def _has_output(crew: Crew, run: str) -> bool:
    return crew.run_dir(run).output_path.exists() or run_archive.archive_path(crew.paths, run).exists()
