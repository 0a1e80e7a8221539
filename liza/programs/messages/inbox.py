"""An agent's inbox: messages that no crash loses, until somebody saw that they were read.

``.liza/run/<agent>/inbox/<id>.json`` waits; ``inbox/done/<id>.json`` was acknowledged, and says when and by what, or
was taken back after it was tried.
"""

from __future__ import annotations

import fcntl
import itertools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec.structs import replace

from liza.programs.brief.quoting import MESSAGE_PREFIX, quote_line, quote_lines
from liza.programs.session import run_directory
from liza.rules.errors import LizaError, UsageError
from liza.rules.paths import Paths
from liza.rules.sessions.message_rules import PRIORITIES, Message, MessageStage, left_to_hook, sort_unacknowledged
from liza.system import atomic, crash_points

MAX_MESSAGE_BYTES = 8000  # bytes of one message
WITHDRAWN = "taken back"


def queue_message(paths: Paths, agent: str, text: str, sender: str, now: datetime, priority: str = "normal") -> Message:
    """A message for the agent. Raises Usage for another priority or no words, OSError where the disk refuses it."""
    if priority not in PRIORITIES:
        raise UsageError(f"{priority!r} is no priority: {', '.join(PRIORITIES)}", "liza note --to coder-1 --now TEXT")
    if not text.strip():
        raise UsageError("a message needs words", 'liza note --to coder-1 --now "…"')
    place = _make_inbox(paths, agent)
    for number in itertools.count():
        name = f"{now:%Y%m%dT%H%M%S}-{number:03d}"
        message = Message(id=name, priority=priority, text=text, sender=sender, created=now)
        taken = (place / "done" / f"{name}.json").exists()
        if not taken and atomic.write_if_absent(place / f"{name}.json", _encode(message)):
            crash_points.point("inbox", "queued")
            return message
    raise AssertionError("numbers do not end")


def list_pending(paths: Paths, agent: str) -> tuple[Message, ...]:
    """What was not acknowledged, the most urgent first. What is no message is left out: a file that anybody can put
    there must not keep the agent from its others, or from its brief."""
    return sort_unacknowledged(_read_all(_inbox_path(paths, agent)))


def list_done(paths: Paths, agent: str) -> tuple[Message, ...]:
    """What was acknowledged, or taken back after it was tried, oldest first; what is no message is left out."""
    return tuple(_read_all(_inbox_path(paths, agent) / "done"))


def list_unreadable(paths: Paths, agent: str) -> tuple[LizaError, ...]:
    """What lies in an inbox and is no message, each with a way to take it out."""
    place = _inbox_path(paths, agent)
    return tuple(one for at in (place, place / "done") for one in map(_read, _files(at)) if isinstance(one, LizaError))


def update_message(paths: Paths, agent: str, message: Message) -> None:
    """How far a message came; what was acknowledged meanwhile, or taken by a hook, stays so. Raises OSError."""
    with _lock_inbox(paths, agent) as place:
        known = _read(place / f"{message.id}.json")
        if known is not None:
            taken = known.offered if isinstance(known, Message) else None
            atomic.write(place / f"{message.id}.json", _encode(replace(message, offered=taken)))


def claim_for_typing(paths: Paths, agent: str, message: str, run: str, now: datetime) -> bool:
    """Whether this message is to be typed into the run's terminal now: it is the first that waits, and no hook has just
    taken it. From here on no hook of the run brings it. Raises OSError, LizaError."""
    with _lock_inbox(paths, agent) as place:
        waiting = [one for one in sort_unacknowledged(_read_all(place)) if one.stage is MessageStage.QUEUED]
        first = waiting[0] if waiting else None
        if first is None or first.id != message:
            return False
        if left_to_hook(first, now) > 0:
            return False
        atomic.write(place / f"{message}.json", _encode(replace(first, run=run, typing=True)))
        return True


def claim_for_hook(paths: Paths, agent: str, run: str, now: datetime) -> tuple[Message, ...]:
    """What waits and was not put into the run's terminal, for its hook to bring. Raises OSError, LizaError."""
    if not list_pending(paths, agent):
        return ()
    with _lock_inbox(paths, agent) as place:
        free = [one for one in sort_unacknowledged(_read_all(place)) if not (one.typing and one.run == run)]
        for one in free:
            atomic.write(place / f"{one.id}.json", _encode(replace(one, offered=now)))
        return tuple(free)


def list_typed(paths: Paths, agent: str, run: str) -> tuple[Message, ...]:
    """What was put into the run's terminal, and is not acknowledged."""
    return tuple(one for one in list_pending(paths, agent) if one.typing and one.run == run)


def acknowledge(paths: Paths, agent: str, ids: tuple[str, ...], run: str, by: str, now: datetime) -> None:
    """These were read: ``by`` says what showed it. Repeatable. Raises OSError, LizaError."""
    if not ids:
        return
    with _lock_inbox(paths, agent) as place:
        for message in _read_all(place):
            if message.id not in ids:
                continue
            read = replace(message, acknowledged=now, by=by, run=run, attempts=max(message.attempts, 1))
            atomic.write(place / "done" / f"{message.id}.json", _encode(read))
            crash_points.point("inbox", "acknowledged")
            (place / f"{message.id}.json").unlink(missing_ok=True)


def remove_message(paths: Paths, agent: str, message: str) -> None:
    """Take a message out of the inbox, as if it had never been put there. Raises OSError."""
    (_inbox_path(paths, agent) / f"{message}.json").unlink(missing_ok=True)


def withdraw_messages(paths: Paths, agent: str, sender: str) -> None:
    """Take back what this sender meant for a session that is over; what was tried is kept for the count of that.
    Raises OSError, LizaError."""
    if not list_pending(paths, agent):
        return
    with _lock_inbox(paths, agent) as place:
        for message in _read_all(place):
            if message.sender == sender:
                if message.is_started:
                    atomic.write(place / "done" / f"{message.id}.json", _encode(replace(message, by=WITHDRAWN)))
                (place / f"{message.id}.json").unlink()


def format_messages(messages: tuple[Message, ...]) -> str:
    """The messages as an agent reads them; empty without any."""
    return "".join(
        f"{MESSAGE_PREFIX}{quote_line(one.sender, 60)}: {quote_lines(one.text, MAX_MESSAGE_BYTES)}\n"
        for one in messages
    )


def _read_all(place: Path) -> list[Message]:
    return [message for message in map(_read, _files(place)) if isinstance(message, Message)]


def _files(place: Path) -> list[Path]:
    return sorted(place.glob("*.json"))


def _read(file: Path) -> Message | LizaError | None:
    """The message, or what is wrong with it; None for one that was acknowledged between the two looks."""
    try:
        message = run_directory.read_struct(file, Message)
    except LizaError as error:
        return error
    if message is None:
        return None
    if message.priority not in PRIORITIES or message.id != file.stem or message.attempts < 0:
        return LizaError(f"{file} is no message that liza wrote", f"rm {file}")
    return message


@contextmanager
def _lock_inbox(paths: Paths, agent: str) -> Iterator[Path]:
    place = _make_inbox(paths, agent)
    handle = os.open(place / ".lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield place
    finally:
        os.close(handle)


def _make_inbox(paths: Paths, agent: str) -> Path:
    place = _inbox_path(paths, agent)
    for directory in (paths.runs, place.parent, place, place / "done"):
        atomic.make_directory(paths.root, directory)
        if directory.is_symlink():
            raise LizaError(f"{directory} is a link, and messages are kept in the crew's own", f"rm {directory}")
    return place


def _inbox_path(paths: Paths, agent: str) -> Path:
    return paths.runs / agent / "inbox"


def _encode(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"
