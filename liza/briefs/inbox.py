"""An agent's inbox: messages are stored durably until there is evidence that they were read.

``.liza/run/<agent>/inbox/<id>.json`` is pending; ``inbox/done/<id>.json`` was acknowledged, with time and evidence, or
was withdrawn after a delivery attempt.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import msgspec

from liza.briefs import delivery_log
from liza.briefs.rules.message_rules import (
    LIZA,
    MAX_PENDING,
    NOTE_SOURCE,
    PRIORITIES,
    PRIORITIES_OF_0_1_0,
    DeliveryEvent,
    Message,
    MessageChannel,
    MessageStage,
    PromptPriority,
    age_key,
    left_to_hook,
    may_have_priority,
    sort_unacknowledged,
)
from liza.model.errors import LizaError, NotRegularFile, QueueFull, UsageError
from liza.model.paths import Paths
from liza.model.value_classes import Value, replace
from liza.programs.session import run_directory
from liza.system import atomic, crash_points, file_growth
from liza.system.locks import lock_path
from liza.text.quoting import MESSAGE_PREFIX, quote_line, quote_lines

MAX_MESSAGE_BYTES = 8000  # maximum size of one message
MAX_PER_HOOK = 20
"""Maximum number of messages in one reply of a hook; the next hook takes more."""
WITHDRAWN = "taken back"
LOCK_LIMIT = 5.0  # seconds; each holder needs milliseconds, and a stopped one must not hold up other agents


def queue_message(
    paths: Paths,
    agent: str,
    text: str,
    sender: str,
    now: datetime,
    priority: str = PromptPriority.NORMAL,
    *,
    source: str = NOTE_SOURCE,
    task: str | None = None,
    mark: str = "",
) -> Message:
    """Store a message for the agent, and wake those that deliver it. ``mark`` becomes a part of its id, see
    ``find_marked``.

    Raises UsageError for an unknown priority or an empty text, QueueFull, OSError if the disk fails.
    """
    check_priority(priority)
    check_text(text)
    inbox = _make_inbox(paths, agent)
    names = list_names(paths, agent)
    if sender != LIZA and len(names) >= MAX_PENDING:
        raise QueueFull(
            f"{agent} has {len(names)} messages that it has not read; the limit is {MAX_PENDING}",
            f"liza agents {agent}",
        )
    second = f"{now:%Y%m%dT%H%M%S}-"
    for number in itertools.count(_next_number(names, second)):
        name = f"{second}{number:03d}-{f'{mark}-' if mark else ''}{priority[0]}"
        message = Message(id=name, priority=priority, text=text, sender=sender, created=now, source=source, task=task)
        is_done = (inbox / "done" / f"{name}.json").exists()
        if not is_done and atomic.write_if_absent(inbox / f"{name}.json", _encode(message)):
            crash_points.point("inbox", "queued")
            # If this fails, the message is delivered at the next check, and must not be queued twice.
            with suppress(OSError):
                file_growth.wake_watchers(paths, agent)
            return message
    raise AssertionError("numbers do not end")


def store_message(paths: Paths, agent: str, message: Message) -> bool:
    """Store a message that came from another host, and wake those that deliver it; False if it has come before.

    Raises OSError, LizaError.
    """
    with lock_inbox(paths, agent) as inbox:
        is_done = (inbox / "done" / f"{message.id}.json").exists()
        is_new = not is_done and atomic.write_if_absent(inbox / f"{message.id}.json", _encode(message))
    if is_new:
        with suppress(OSError):
            file_growth.wake_watchers(paths, agent)
    return is_new


def find_marked(paths: Paths, agent: str, mark: str) -> Message | None:
    """Return the message with this mark, pending or done; None without one. Call it while the inbox is locked.

    Ids have the mark, so it is stored with the message in one step, and no other file is read. Raises OSError,
    LizaError if the message cannot be read.
    """
    inbox = inbox_path(paths, agent)
    for directory in (inbox, inbox / "done"):
        for path in directory.glob(f"*-{mark}-*.json"):
            message = read_message(path)
            if isinstance(message, LizaError):
                raise message
            if message is not None:
                return message
    return None


def check_text(text: str) -> None:
    """Raise UsageError for an empty message."""
    if not text.strip():
        raise UsageError("the message is empty", 'liza note --to coder-1 --now "…"')


def check_priority(priority: str) -> None:
    """Raise UsageError for an unknown priority."""
    if priority not in PRIORITIES:
        raise UsageError(
            f"unknown priority {priority!r}; valid: {', '.join(PRIORITIES)}", 'liza note --to coder-1 --now "…"'
        )


def list_names(paths: Paths, agent: str) -> tuple[str, ...]:
    """Return the ids of the pending messages, unsorted, without reading the files."""
    try:
        entries = os.listdir(inbox_path(paths, agent))  # noqa: PTH208 - no path is made for each name
    except FileNotFoundError:
        return ()
    return tuple(name.removesuffix(".json") for name in entries if name.endswith(".json"))


def _next_number(names: Iterable[str], second: str) -> int:
    """Return the number after those of the pending messages of this second: only done ones may still have it."""
    numbers = (name[len(second) :].partition("-")[0] for name in names if name.startswith(second))
    return max((int(number) for number in numbers if number.isdecimal()), default=-1) + 1


def count_ahead(names: Iterable[str], own: str) -> int:
    """Return how many messages are delivered before ``own``, by their ids: no file is read.

    An id of version 0.1.0 does not tell its priority, and counts as a normal one.
    """
    letters = [priority[0] for priority in PRIORITIES]

    def sort_key(name: str) -> tuple[int, str, int, str]:
        letter = name[-1:] if name[-2:-1] == "-" and name[-1:] in letters else PromptPriority.NORMAL[0]
        return letters.index(letter), name.partition("-")[0], *age_key(name)

    own_key = sort_key(own)
    return sum(sort_key(name) < own_key for name in names)


def list_pending(paths: Paths, agent: str) -> tuple[Message, ...]:
    """Return the messages that are not acknowledged, the most urgent first.

    Files that are no messages are skipped: agents can write here, and an invalid file must not block other messages or
    the brief.
    """
    return sort_unacknowledged(_read_all(inbox_path(paths, agent)))


def list_done(paths: Paths, agent: str) -> tuple[Message, ...]:
    """Return the messages that were acknowledged, or withdrawn after a delivery attempt, oldest first; skip other
    files."""
    return tuple(_read_all(inbox_path(paths, agent) / "done"))


def list_unreadable(paths: Paths, agent: str) -> tuple[LizaError, ...]:
    """Return an error for each file of an inbox that is no message, with a command that removes it."""
    inbox = inbox_path(paths, agent)
    results = (read_message(file) for directory in (inbox, inbox / "done") for file in _files(directory))
    return tuple(result for result in results if isinstance(result, LizaError))


def update_message(paths: Paths, agent: str, message: Message) -> None:
    """Store the delivery state of a message; an acknowledgement or a hook's claim made meanwhile is kept. Raises
    OSError."""
    with lock_inbox(paths, agent) as inbox:
        stored = read_message(inbox / f"{message.id}.json")
        if stored is not None:
            offered = stored.offered if isinstance(stored, Message) else None
            atomic.write(inbox / f"{message.id}.json", _encode(replace(message, offered=offered)))


def claim_for_typing(paths: Paths, agent: str, message: str, run: str, now: datetime) -> bool:
    """Claim this message for typing into the run's terminal; from then on no hook of the run delivers it.

    Return whether it was claimed: it must be the first that waits, and no hook may have just claimed it. Raises
    OSError, LizaError.
    """
    with lock_inbox(paths, agent) as inbox:
        waiting = [queued for queued in sort_unacknowledged(_read_all(inbox)) if queued.stage is MessageStage.QUEUED]
        first = waiting[0] if waiting else None
        if first is None or first.id != message:
            return False
        if left_to_hook(first, now) > 0:
            return False
        atomic.write(inbox / f"{message}.json", _encode(replace(first, run=run, typing=True)))
        return True


def claim_for_hook(
    paths: Paths,
    agent: str,
    run: str,
    now: datetime,
    *,
    priorities: frozenset[PromptPriority] = frozenset(PRIORITIES),
    taken: Collection[str] = (),
) -> tuple[Message, ...]:
    """Claim for the run's hook pending messages that were not typed into its terminal, at most MAX_PER_HOOK.

    ``priorities``: only those with one of them. ``taken``: ids that another channel of the run has
    delivered. Raises OSError, LizaError.
    """
    names = [name for name in list_names(paths, agent) if may_have_priority(name, priorities)]
    if not names:
        return ()
    with lock_inbox(paths, agent) as inbox:
        waiting = (read_message(inbox / f"{name}.json") for name in names)
        free = [
            message
            for message in sort_unacknowledged([message for message in waiting if isinstance(message, Message)])
            if not (message.typing and message.run == run)
            and message.id not in taken
            and not message.is_notice
            and message.priority in priorities
        ][:MAX_PER_HOOK]
        offered = tuple(
            replace(message, offered=now, tried=now, attempts=message.attempts + 1, run=run) for message in free
        )
        for message in offered:
            atomic.write(inbox / f"{message.id}.json", _encode(message))
        log_events(paths, agent, offered, DeliveryEvent.ATTEMPTED, MessageChannel.HOOK, now)
        return offered


def list_prompted(paths: Paths, agent: str, run: str, prompt: str) -> tuple[Message, ...]:
    """Return the pending messages that a turn with this prompt has read.

    These are messages typed into the run's terminal, if the prompt contains the text or the terminal showed that the
    program accepted it; and messages that a hook offered, if the prompt contains the text as the hook formatted it.
    Blanks are not compared.
    """
    squeezed = _squeeze(prompt)
    return tuple(
        message
        for message in list_pending(paths, agent)
        if (message.typing and message.run == run and (message.carried or _squeeze(message.text) in squeezed))
        or (message.offered is not None and _squeeze(quote_lines(message.text, MAX_MESSAGE_BYTES)) in squeezed)
    )


def _squeeze(text: str) -> str:
    return "".join(text.split())


def acknowledge(
    paths: Paths, agent: str, ids: tuple[str, ...], run: str, by: str, now: datetime, channel: MessageChannel
) -> int:
    """Record that these messages were read; ``by`` is the evidence, ``channel`` the way that they took. Idempotent.

    Return how many of them were pending. Raises OSError, LizaError.
    """
    acknowledged: list[Message] = []
    if not ids:
        return 0
    pending = set(list_names(paths, agent))
    with lock_inbox(paths, agent) as inbox:
        for name in dict.fromkeys(ids):
            # An id may come from a runtime: only names of the directory become a path.
            message = read_message(inbox / f"{name}.json") if name in pending else None
            if not isinstance(message, Message):
                continue
            read = replace(message, acknowledged=now, by=by, run=run, attempts=max(message.attempts, 1))
            # The copy in done/ first: a crash in between leaves both, and no message is lost.
            atomic.write(inbox / "done" / f"{message.id}.json", _encode(read))
            crash_points.point("inbox", "acknowledged")
            (inbox / f"{message.id}.json").unlink(missing_ok=True)
            acknowledged.append(read)
    log_events(paths, agent, acknowledged, DeliveryEvent.SUCCEEDED, channel, now, by)
    return len(acknowledged)


def log_events(
    paths: Paths,
    agent: str,
    messages: Iterable[Message],
    event: DeliveryEvent,
    channel: MessageChannel,
    now: datetime,
    detail: str = "",
) -> None:
    """Append one event for each of the messages to the agent's log of deliveries.

    A log that cannot be written, such as a planted pipe, stops no delivery: `liza logs --deliveries` names it.
    """
    entries = [delivery_log.make_entry(message, event, channel, now, detail) for message in messages]
    with suppress(OSError, NotRegularFile):
        delivery_log.append_entries(paths, agent, entries)


def remove_message(paths: Paths, agent: str, message: str) -> None:
    """Delete a message, as if it had never been stored. Raises OSError."""
    (inbox_path(paths, agent) / f"{message}.json").unlink(missing_ok=True)


def withdraw_messages(paths: Paths, agent: str, sender: str, only: Collection[str] | None = None) -> None:
    """Withdraw this sender's messages to a session that is over; tried ones move to done, which keeps their count.

    ``only``: just those with these ids. Raises OSError, LizaError.
    """
    if not list_pending(paths, agent):
        return
    with lock_inbox(paths, agent) as inbox:
        for message in _read_all(inbox):
            if message.sender == sender and (only is None or message.id in only):
                if message.is_started:
                    atomic.write(inbox / "done" / f"{message.id}.json", _encode(replace(message, by=WITHDRAWN)))
                (inbox / f"{message.id}.json").unlink()


def format_messages(messages: tuple[Message, ...]) -> str:
    """Format the messages for an agent; empty without messages."""
    return "".join(
        f"{MESSAGE_PREFIX}{quote_line(message.sender, 60)}: {quote_lines(message.text, MAX_MESSAGE_BYTES)}\n"
        for message in messages
    )


def _read_all(directory: Path) -> list[Message]:
    return [message for message in map(read_message, _files(directory)) if isinstance(message, Message)]


def _files(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.json"))


def read_message(file: Path) -> Message | LizaError | None:
    """Read a message; return an error if it is invalid, None if it was acknowledged meanwhile."""
    try:
        message = run_directory.read_struct(file, Message)
    except LizaError as error:
        return error
    if message is None:
        return None
    priority = PRIORITIES_OF_0_1_0.get(message.priority)
    if priority is not None:
        message = replace(message, priority=priority)
    if message.priority not in PRIORITIES or message.id != file.stem or message.attempts < 0:
        return LizaError(f"{file} is not a message written by liza", f"rm {file}")
    return message


@contextmanager
def lock_inbox(paths: Paths, agent: str) -> Iterator[Path]:
    """Hold the lock of an inbox, and yield its directory. Raises OSError, LizaError."""
    inbox = _make_inbox(paths, agent)
    with lock_path(inbox / ".lock", LOCK_LIMIT, 0o600):
        yield inbox


def _make_inbox(paths: Paths, agent: str) -> Path:
    inbox = inbox_path(paths, agent)
    for directory in (paths.runs, inbox.parent, inbox, inbox / "done"):
        atomic.make_directory(paths.root, directory)
        if directory.is_symlink():
            raise LizaError(f"{directory} is a link; messages are stored only below the crew's root", f"rm {directory}")
    return inbox


def inbox_path(paths: Paths, agent: str) -> Path:
    """Return the directory of an agent's pending messages."""
    return paths.runs / agent / "inbox"


def _encode(message: Message) -> bytes:
    return msgspec.json.encode(message) + b"\n"


class DeliveryStatistics(Value):
    """How messages were delivered: at the first try, after a retry, by the brief, not at all; and the time to the
    acknowledgement in seconds, of all messages that were read."""

    attempted: int
    first_try: int
    after_retry: int
    escalated_to_brief: int
    failed: int
    waiting: int
    unreadable: tuple[str, ...]
    average_attempts: float | None
    average_seconds: float | None
    median_seconds: float | None


def delivery_statistics(paths: Paths, agents: Collection[str]) -> DeliveryStatistics:
    """Count the messages of these agents. A failed attempt stays counted if the message was read or withdrawn later."""
    done = [message for agent in agents for message in list_done(paths, agent)]
    waiting = [message for agent in agents for message in list_pending(paths, agent)]
    read = [message for message in done if message.acknowledged is not None]
    attempts = [message.attempts for message in read]
    seconds = sorted(
        (message.acknowledged - message.created).total_seconds() for message in read if message.acknowledged
    )
    return DeliveryStatistics(
        attempted=len(done) + sum(message.is_started for message in waiting),
        first_try=sum(message.attempts == 1 and message.stage is MessageStage.QUEUED for message in read),
        after_retry=sum(message.attempts > 1 and message.stage is MessageStage.QUEUED for message in read),
        escalated_to_brief=sum(message.stage is not MessageStage.QUEUED for message in [*done, *waiting]),
        failed=sum(message.stage is MessageStage.TOLD for message in [*done, *waiting]),
        waiting=len(waiting),
        unreadable=tuple(str(error) for agent in agents for error in list_unreadable(paths, agent)),
        average_attempts=round(sum(attempts) / len(attempts), 2) if attempts else None,
        average_seconds=round(sum(seconds) / len(seconds), 1) if seconds else None,
        median_seconds=seconds[len(seconds) // 2] if seconds else None,
    )
