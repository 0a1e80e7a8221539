"""The conversation log of a run: the file in which its program itself logs prompts, texts, calls and results."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

from liza.programs.accounts.run_account import session_environ
from liza.programs.events import event_readers
from liza.programs.presets.preset import Preset
from liza.programs.session import session_process
from liza.programs.session.log_file import parse_object
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.programs.usage import usage_report
from liza.programs.usage.meter import find_log_files
from liza.rules.errors import LizaError
from liza.rules.sessions.session_events import LoggedEvent, TimeSource, Unknown
from liza.system import untrusted_files

MAX_BYTES = 4 << 20
"""Maximum bytes of a log that are read, from its end."""
_MIN_LINES = 10
"""Lines of a log after which one of them should have had an event."""
_ROUNDING = timedelta(seconds=1)
"""The time of a session's end has whole seconds."""
_MAX_HEAD = 64 << 10
"""Bytes of the output in which the id of the conversation is searched."""


def find_logs(directory: RunDir, preset: Preset, environ: Mapping[str, str]) -> tuple[Path, ...]:
    """Return the files of the run's conversation, those of its sub-agents included; none if they cannot be read."""
    if not preset.journal.events:
        return ()
    try:
        turn = directory.read_turn()
        conversation = (turn.session if turn else None) or _printed_id(directory, preset)
        return find_log_files(
            preset, conversation or directory.read_conversation(), session_environ(directory, preset, environ)
        )
    except (LizaError, OSError):
        return ()


def read_events(path: Path, record: RunRecord, directory: RunDir, preset: Preset, most: int) -> Iterator[LoggedEvent]:
    """Yield the events in the last ``most`` lines of a log that are of this run: a conversation can have several.

    Nothing is yielded of a file that cannot be read. If no line has an event, the last one is
    unknown: the form has changed.
    """
    end = session_process.read_end(directory.path)
    latest = None if end is None else end.time + _ROUNDING
    lines, has_events = _read_end(path)[-most:], False
    for number, (offset, line) in enumerate(lines, 1):
        read = event_readers.read_record(preset, line)
        if read.time is not None and (read.time < record.started or (latest is not None and read.time > latest)):
            continue
        events = read.events
        if number == len(lines) >= _MIN_LINES and not has_events and not events:
            events = (Unknown(line),)
        for event in events:
            has_events = True
            yield LoggedEvent(
                record.agent, record.run, read.time, event, read.parent, TimeSource.RECORD, str(path), offset
            )


def _printed_id(directory: RunDir, preset: Preset) -> str | None:
    with untrusted_files.open_to_read(directory.output_path) as file:
        head = file.read(_MAX_HEAD).decode(errors="replace")
    parsed = (parse_object(line) for line in head.splitlines())
    ids = (usage_report.find_session_id(preset.usage, event) for event in parsed if event is not None)
    return next((conversation for conversation in ids if conversation), None)


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
