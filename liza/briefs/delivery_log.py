"""``.liza/run/<agent>/deliveries.jsonl``: one line for each event of the delivery of a message.

The state of a message is in its own file; this log has its history, for a person. It is truncated to its last part when
it is too long.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from liza.briefs.rules.message_rules import DeliveryEvent, Message, MessageChannel
from liza.model.errors import LizaError
from liza.model.paths import Paths
from liza.model.value_classes import AwareDatetime, FrozenStruct, decodable
from liza.programs.session import log_file
from liza.system import untrusted_files

MAX_SIZE = 1 << 20  # bytes: some 6,000 events
SIZE_AFTER_CUT = 1 << 19


class DeliveryEntry(FrozenStruct, frozen=True, kw_only=True, omit_defaults=True):
    """One event. ``attempt`` counts the tries of the message, from 1. ``detail``: the evidence, or the reason."""

    time: AwareDatetime
    event: DeliveryEvent
    message: str
    channel: MessageChannel
    attempt: int
    run: str | None = None
    detail: str = ""


def make_entry(
    message: Message, event: DeliveryEvent, channel: MessageChannel, time: AwareDatetime, detail: str = ""
) -> DeliveryEntry:
    """Return the entry for an event of ``message``, as it is after the event."""
    return DeliveryEntry(
        time=time,
        event=event,
        message=message.id,
        channel=channel,
        attempt=max(message.attempts, 1),
        run=message.run,
        detail=detail,
    )


def append_entries(paths: Paths, agent: str, entries: Iterable[DeliveryEntry]) -> None:
    """Append events in one write. Raises OSError, NotRegularFile."""
    text = "".join(f"{msgspec.json.encode(entry).decode()}\n" for entry in entries)
    if not text:
        return
    path = log_path(paths, agent)
    log_file.cap(path, MAX_SIZE, SIZE_AFTER_CUT)
    with log_file.open_for_append(path) as log:
        log.write(text)


def read_entries(paths: Paths, agent: str) -> tuple[DeliveryEntry, ...]:
    """Return the events of the agent's messages, oldest first; those of a log that was cut begin later.

    Raises LizaError if a line is no event, OSError, NotRegularFile.
    """
    path = log_path(paths, agent)
    lines = (untrusted_files.read_if_exists(path) or b"").split(b"\n")[:-1]
    entries = []
    for number, line in enumerate(lines):
        try:
            entries.append(msgspec.json.decode(line, type=decodable(DeliveryEntry)))
        except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError, RecursionError) as error:
            if number < 2 and lines[0].startswith(b"[liza:"):
                continue  # the notice of a cut, and the rest of a line
            raise LizaError(f"{path}:{number + 1} is no event of a delivery: {error}", f"rm {path}") from error
    return tuple(entries)


def log_path(paths: Paths, agent: str) -> Path:
    """Return the path of the log of an agent."""
    return paths.runs / agent / "deliveries.jsonl"
