"""Read what happened in sessions: what their programs printed and logged as events, in one form for all programs."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from liza.crew.crew import Crew
from liza.model.errors import LizaError
from liza.programs import conversation_log, event_readers
from liza.programs.presets import command_line, preset_table
from liza.programs.presets.preset import Preset
from liza.programs.rules import session_events
from liza.programs.rules.session_events import LoggedEvent, Printed, TimeSource
from liza.programs.session import run_archive
from liza.programs.session.run_directory import RunRecord
from liza.programs.terminal import tmux
from liza.tasks import archive
from liza.usage.run_account import session_environ
from liza.view import all_logs, logs
from liza.view.all_logs import FollowedFiles, OutputLine
from liza.view.rules.trajectory import Trajectory, build_trajectory


def read_recent(
    crew: Crew, names: Sequence[str], most: int, since: datetime | None
) -> tuple[list[LoggedEvent], dict[str, int]]:
    """Return the events in the last ``most`` lines of each agent's newest run, or of each named run, by time; and for
    each run the end of the file that `follow` reads, in bytes.

    Their texts still have secrets: most of them are never shown, and redaction takes 0.3 s for 4 MB.
    Raises NotRegularFile, Refused if a named run has no output.
    """
    lines, offsets = all_logs.read_recent_lines(crew, names, most, since, _decode)
    read: list[list[LoggedEvent]] = []
    for run in offsets:
        output = list(read_events(crew, (line for line in lines if line.run == run)))
        preset = find_row(crew, run)
        if preset is not None and preset.usage.combine == "sum":
            output = session_events.fold_usage(output)
        followed = _find_followed(crew, run)
        if followed is not None and followed != crew.run_dir(run).output_path:
            offsets[run] = followed.stat().st_size
        log = [entry for entry in _read_log(crew, run, most) if since is None or (entry.time or since) >= since]
        read.append(session_events.merge_sources(output, log))
    return session_events.merge_sessions(read), offsets


def read_trajectories(crew: Crew, names: Sequence[str], most: int, since: datetime | None) -> list[Trajectory]:
    """Return the sessions of `read_recent` in the interchange format; those without events are left out."""
    events, runs = read_recent(crew, names, most, since)
    built = []
    for run in runs:
        record = _read_record(crew, run)
        program = record.program if record is not None and record.program else "unknown"
        built.append(build_trajectory([entry for entry in events if entry.run == run], program))
    return [trajectory for trajectory in built if trajectory is not None]


def follow(crew: Crew, names: Sequence[str] | None, offsets: dict[str, int]) -> Iterator[LoggedEvent]:
    """Yield the events of new lines after these offsets, of these runs and of the agents' next runs; None: of all
    agents, also of those that come later.

    Of a session in a terminal its program's log is followed, else the output.
    """
    return read_events(crew, all_logs.follow_lines(crew, names, offsets, FollowedFiles(_decode, _find_followed)))


def _find_followed(crew: Crew, run: str) -> Path | None:
    """Return the file that is followed; None if it does not exist yet."""
    preset, directory = find_row(crew, run), crew.run_dir(run)
    if preset is None or not preset.journal.events or not (directory.path / tmux.ADDRESS_FILE).exists():
        return directory.output_path
    return conversation_log.find_log(directory, preset, session_environ(directory, preset, os.environ))


def _decode(data: bytes) -> str:
    """Return the text. A private key, the only secret of several lines, is removed: lines are shown one by one."""
    return logs.redacted_text(data) if b"PRIVATE KEY" in data else data.decode("utf-8", "replace")


def read_events(crew: Crew, lines: Iterable[OutputLine]) -> Iterator[LoggedEvent]:
    """Yield the events in lines of outputs and logs, in their order."""
    find_preset = cache(lambda run: find_row(crew, run))
    find_start = cache(lambda run: _find_start(crew, run))
    for line in lines:
        preset, output = find_preset(line.run), str(crew.run_dir(line.run).output_path)
        path = line.path or output
        if preset is None:
            yield LoggedEvent(line.agent, line.run, line.time, Printed(line.text), path=path, offset=line.offset)
            continue
        is_output = path == output
        read = event_readers.read_line(preset, line.text) if is_output else event_readers.read_record(preset, line.text)
        if read.time is not None and read.time < find_start(line.run):
            # A record of an earlier session of the same conversation.
            continue
        source = TimeSource.ARRIVAL if read.time is None else TimeSource.RECORD
        for event in read.events:
            yield LoggedEvent(
                line.agent, line.run, read.time or line.time, event, read.parent, source, path, line.offset
            )


def _find_start(crew: Crew, run: str) -> datetime:
    record = _read_record(crew, run)
    return datetime.min.replace(tzinfo=UTC) if record is None else record.started


def _read_log(crew: Crew, run: str, most: int) -> list[LoggedEvent]:
    """Return the events in the conversation log of a run, by time; none if its program has none that can be read."""
    preset, directory = find_row(crew, run), crew.run_dir(run)
    record = directory.read_record() if preset is not None else None
    if preset is None or record is None:
        return []
    environ = session_environ(directory, preset, os.environ)
    read = conversation_log.read_conversation(directory, record, preset, environ, most)
    return session_events.merge_sessions(read)


def find_row(crew: Crew, run: str) -> Preset | None:
    """Return the row of the run's program; None if its output has no known format, or the row is gone."""
    try:
        record = _read_record(crew, run)
        if record is None:
            return None
        preset = preset_table.load_presets(crew.paths).resolve(record.spec or record.program)
    except LizaError:
        return None
    preset = command_line.shape_preset(preset, terminal=False)
    return preset if preset.events else None


def _read_record(crew: Crew, run: str) -> RunRecord | None:
    """Return the record of a run, archived or not; None if the run has no record. Raises LizaError."""
    archive = run_archive.archive_path(crew.paths, run)
    return crew.run_dir(run).read_record() or (run_archive.read_record(archive, run) if archive.exists() else None)


def find_runs_of_task(crew: Crew, name: str) -> tuple[str, ...]:
    """Return the runs that have worked on a task or reviewed it and have printed something, in their order.

    Empty if there is no such task.
    """
    task = archive.find_task(crew.board, crew.board.read(), name)
    if task is None:
        return ()
    runs = dict.fromkeys([event.run for event in task.history if event.run] + [task.run, task.review_run])
    return tuple(run for run in runs if run is not None and _has_output(crew, run))


def _has_output(crew: Crew, run: str) -> bool:
    return crew.run_dir(run).output_path.exists() or run_archive.archive_path(crew.paths, run).exists()
