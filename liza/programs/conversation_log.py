"""The conversation log of a run: the file in which its program itself logs prompts, texts, calls and results."""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from liza.model.errors import LizaError
from liza.model.paths import BOXES
from liza.programs import event_readers, liveness, reported_figures
from liza.programs.presets.preset import Preset
from liza.programs.reported_figures import is_id, value_at
from liza.programs.rules.session_events import LoggedEvent, TimeSource, Unknown
from liza.programs.session.log_file import parse_object
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system import untrusted_files

MAX_BYTES = 4 << 20
"""Maximum bytes of a log that are read, from its end."""
_MIN_LINES = 10
"""Lines of a log after which one of them should have had an event."""
_ROUNDING = timedelta(seconds=1)
"""The time of a session's end has whole seconds."""


def find_log(directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> Path | None:
    """Return the file of the run's conversation; None if it is not known, or its lines cannot be read.

    ``environ`` names the directories of the program as its session had them (``run_account.session_environ``).
    """
    logs = _find_logs(preset, find_conversation(directory, preset), environ)
    return next(iter(logs), None)


def read_conversation(
    directory: RunDir, record: RunRecord, preset: Preset, environ: Mapping[str, str], most: int
) -> list[list[LoggedEvent]]:
    """Return the events in the last ``most`` lines of the run's conversation, and those of each of its sub-agents.

    Only those of this run: a conversation can have several. A file that cannot be read has none. If no line has an
    event, the last one is unknown: the form has changed.
    """
    conversation = find_conversation(directory, preset)
    end = liveness.read_end(directory.path)
    latest = None if end is None else end.time + _ROUNDING
    read: list[list[LoggedEvent]] = []
    for log in _find_logs(preset, conversation, environ):
        lines = _read_end(log)[-most:]
        read.append(list(_read_events(log, lines, record, preset, latest, "")))
        subagents = {path: path.stem for path in find_subagent_files(preset, log, conversation)}
        for name in _find_subagents(lines, preset):
            subagents.update(dict.fromkeys(_find_logs(preset, name, environ), name))
        for path, name in subagents.items():
            read.append(list(_read_events(path, _read_end(path)[-most:], record, preset, latest, name)))
    return read


def _find_logs(preset: Preset, conversation: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    return find_log_files(preset, conversation, environ) if preset.journal.events else ()


def find_conversation(
    directory: RunDir, preset: Preset, read_printed: Callable[[], str | None] | None = None
) -> str | None:
    """Return the program's id of the conversation; None if it is unknown or no valid id.

    A hook or the runtime reported it, else the output has it, else a command of the session recorded it.
    ``read_printed``: what a caller has found in the output, which is then not read.
    """
    if read_printed is None:
        read_printed = partial(reported_figures.read_session_id, preset.usage, directory.output_path)
    with suppress(LizaError, OSError):
        turn = directory.read_turn()
        conversation = (turn.session if turn else None) or read_printed() or directory.read_conversation()
        return conversation if conversation and is_id(conversation) else None
    return None


def _find_subagents(lines: Sequence[tuple[int, str]], preset: Preset) -> list[str]:
    """Return the ids of the conversations of sub-agents that lines name."""
    if not preset.journal.subagent_ids:
        return []
    objects = [parsed for _, line in lines if (parsed := parse_object(line)) is not None]
    values = (value_at(parsed, path) for parsed in objects for path in preset.journal.subagent_ids)
    names = [name for value in values for name in (value if isinstance(value, list) else [value])]
    return list(dict.fromkeys(name for name in names if isinstance(name, str)))


def _read_events(
    path: Path,
    lines: Sequence[tuple[int, str]],
    record: RunRecord,
    preset: Preset,
    latest: datetime | None,
    subagent: str,
) -> Iterator[LoggedEvent]:
    has_events = False
    for number, (offset, line) in enumerate(lines, 1):
        read = event_readers.read_record(preset, line)
        if read.time is not None and (read.time < record.started or (latest is not None and read.time > latest)):
            continue
        events = read.events
        if number == len(lines) >= _MIN_LINES and not has_events and not events:
            events = (Unknown(line),)
        for event in events:
            has_events = True
            parent = read.parent or subagent
            yield LoggedEvent(record.agent, record.run, read.time, event, parent, TimeSource.RECORD, str(path), offset)


def _read_end(path: Path) -> list[tuple[int, str]]:
    """Return the complete lines in the end of a file, each with its offset in bytes."""
    try:
        with untrusted_files.open_to_read(path) as file:
            offset = max(0, file.seek(0, os.SEEK_END) - MAX_BYTES)
            file.seek(offset)
            data = file.read(MAX_BYTES)
    except (LizaError, OSError):
        return []
    lines = []
    # The first line may be the end of a longer one, and the last one may be incomplete.
    is_whole = offset == 0
    for line in data.splitlines(keepends=True):
        if is_whole and line.endswith(b"\n"):
            lines.append((offset, line.decode(errors="replace")))
        offset, is_whole = offset + len(line), True
    return lines


SHORT_ID_LENGTH = 8


def find_log_files(preset: Preset, conversation: str | None, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of a conversation; none if the id is invalid."""
    form = preset.journal
    if not form.file or conversation is None or not is_id(conversation):
        return ()
    config = _find_config_directory(preset, environ)
    if config is None:
        return ()
    values = {"{config}": config, "{id}": conversation, "{short}": conversation[:SHORT_ID_LENGTH]}
    pattern = form.file
    for name, value in values.items():
        pattern = pattern.replace(name, glob.escape(value))
    # Path.glob does not accept absolute patterns.
    paths = (Path(path) for path in sorted(glob.glob(pattern)))  # noqa: PTH207
    return tuple(path for path in paths if not _leads_out_of_box(path))


def _find_config_directory(preset: Preset, environ: Mapping[str, str]) -> str | None:
    """Return the program's configuration directory: that of a variable, or the one below HOME."""
    if own := environ.get(preset.config_dir_env) if preset.config_dir_env else None:
        return own
    config = Path("~") / preset.journal.config
    for row in preset.state:
        if (named := environ.get(row.variable) if row.variable else None) and config.is_relative_to(row.path):
            return str(Path(named) / config.relative_to(row.path))
    home = environ.get("HOME")
    return None if home is None else str(Path(home) / preset.journal.config)


def _leads_out_of_box(path: Path) -> bool:
    """Return whether a path leads through a directory of a box that is a link."""
    boxes = next((parent for parent in path.parents if parent.name == BOXES), None)
    return boxes is not None and any(parent.is_symlink() for parent in path.parents if parent.is_relative_to(boxes))


def find_subagent_files(preset: Preset, log: Path, conversation: str | None) -> tuple[Path, ...]:
    """Return the files of the sub-agents of a conversation with this log; none if the id is invalid."""
    form = preset.journal
    if not form.subagents or conversation is None or not is_id(conversation):
        return ()
    pattern = form.subagents.replace("{dir}", glob.escape(str(log.parent))).replace("{id}", glob.escape(conversation))
    paths = (Path(path) for path in glob.glob(pattern))  # noqa: PTH207
    return tuple(path for path in paths if not _leads_out_of_box(path))
