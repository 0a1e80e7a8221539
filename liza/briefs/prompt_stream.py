"""Deliver an agent's messages to a runtime that listens on the stream of its run.

``delivered.txt`` in the run's directory has one id per line, in the order of delivery. An id is written before its
message is sent: after a crash the runtime has got it or not, and gets it again unless it says which message it got
last. What it acknowledges is never sent again.
"""

from __future__ import annotations

import os
from datetime import datetime

from liza.briefs import inbox
from liza.briefs.inbox import lock_inbox
from liza.briefs.rules.message_rules import (
    DeliveryEvent,
    Message,
    MessageChannel,
    left_to_hook,
    list_unreceived,
    select_for_stream,
)
from liza.model.value_classes import replace
from liza.programs.rules.lifecycle_rules import parse_state
from liza.programs.session.run_directory import RunDir
from liza.system import crash_points, untrusted_files

_DELIVERED_FILE = "delivered.txt"
_APPEND = os.O_RDWR | os.O_APPEND | os.O_CREAT


class PromptStream:
    """One connection of a run's stream: ``last_received`` is the last message that the runtime got, if it knows one.

    A run has one stream at a time; the newest connection counts. Raises what reading the run's files raises.
    """

    def __init__(self, run_dir: RunDir, last_received: str | None = None) -> None:
        self._run_dir = run_dir
        self._delivered = dict.fromkeys(read_delivered(run_dir))
        self._again = dict.fromkeys(list_unreceived(tuple(self._delivered), last_received))

    def next_prompts(self, now: datetime) -> tuple[Message, ...]:
        """Return the messages to send now, in order; none if nothing is new. Raises LizaError, OSError."""
        if self._is_closed():
            return ()
        pending = inbox.list_pending(self._run_dir.paths, self._run_dir.agent)
        by_id = {message.id: message for message in pending}
        again = tuple(by_id[name] for name in self._again if name in by_id)
        self._again = {}
        fresh: tuple[Message, ...] = ()
        if self._select(pending, now):
            # Hooks and terminals claim messages under the same lock.
            with lock_inbox(self._run_dir.paths, self._run_dir.agent):
                fresh = self._select(inbox.list_pending(self._run_dir.paths, self._run_dir.agent), now)
                self._record(tuple(message.id for message in fresh))
        sent = tuple(replace(message, run=self._run_dir.run) for message in (*again, *fresh))
        paths, agent = self._run_dir.paths, self._run_dir.agent
        inbox.log_events(paths, agent, sent, DeliveryEvent.ATTEMPTED, MessageChannel.STREAM, now)
        return (*again, *fresh)

    def _select(self, pending: tuple[Message, ...], now: datetime) -> tuple[Message, ...]:
        run, turn = self._run_dir.run, self._run_dir.read_turn()
        state = parse_state(turn.phase) if turn is not None else None
        free = tuple(
            message
            for message in pending
            if message.id in self._delivered
            or (left_to_hook(message, now) <= 0 and not (message.typing and message.run == run))
        )
        return select_for_stream(free, self._delivered, state)

    def _is_closed(self) -> bool:
        """Whether the session ends: what waits is for the next one."""
        return (
            self._run_dir.closing_code() is not None
            or self._run_dir.read_stop() is not None
            or self._run_dir.is_concluded()
        )

    def _record(self, names: tuple[str, ...]) -> None:
        """Append ids to the list of the run."""
        if not names:
            return
        descriptor = untrusted_files.open_regular(self._run_dir.path / _DELIVERED_FILE, _APPEND)
        with os.fdopen(descriptor, "ab", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            # A crash may have left a part of a line. It becomes a line of its own, which names no message.
            begin = b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""
            file.write(begin + "".join(f"{name}\n" for name in names).encode())
        crash_points.point("stream", "recorded")
        self._delivered.update(dict.fromkeys(names))


def read_delivered(run_dir: RunDir) -> tuple[str, ...]:
    """Return the ids of the messages that were delivered to the stream of a run, in order. Raises OSError,
    NotRegularFile."""
    data = untrusted_files.read_if_exists(run_dir.path / _DELIVERED_FILE) or b""
    return tuple(dict.fromkeys(line for line in data.decode(errors="replace").split("\n")[:-1] if line))
