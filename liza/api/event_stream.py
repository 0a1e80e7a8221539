"""The stream of a run: prompts and questions as server-sent events.

Which prompts are sent is decided by `briefs/prompt_stream.py`, which also records it: nothing is sent twice
to a runtime that names the last event it received, and nothing is lost while no stream is open. A new stream of a run
replaces the one before. An event is made when the reader has taken the one before: a slow reader costs no memory.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
from collections.abc import Awaitable, Callable, Collection, Iterator, MutableMapping
from concurrent.futures import Executor
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from liza.api.identity import CredentialsEvent
from liza.briefs.prompt_stream import PromptStream
from liza.briefs.rules.message_rules import Message
from liza.model.errors import LizaError
from liza.model.paths import split_run
from liza.model.value_classes import AwareDatetime, Value
from liza.programs.session.run_directory import RunDir
from liza.text.undecoded import encode_json

KEEP_ALIVE_SECONDS: Final = 15.0
"""Seconds of silence before a comment is sent: it shows both sides whether the connection works."""
QUESTION_SECONDS: Final = 60.0
"""Seconds between two questions for the health of a run."""
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class PromptEventMetadata(msgspec.Struct, frozen=True, kw_only=True):
    """As in the request of the prompt. ``sender`` is ``from`` in JSON."""

    sender: str = msgspec.field(name="from")
    task_id: str | None = None


class PromptEvent(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event ``prompt``. Acknowledge ``id`` when the prompt was taken over."""

    id: str
    content: str
    priority: str
    source: str
    metadata: PromptEventMetadata
    created: AwareDatetime


class HealthQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """The data of an event ``health``: answer it with POST /v1/runs/{run}/health and this ``question``."""

    question: str


class _Subscription:
    """An open stream. ``wake`` is set if the run may have a new event, or if the stream is to end."""

    def __init__(self) -> None:
        self.wake = asyncio.Event()
        self._is_over = False

    def end(self) -> None:
        self._is_over = True
        self.wake.set()

    def is_over(self) -> bool:
        """Whether the client has gone, a new stream of the run was opened, or the server stops."""
        return self._is_over


class StreamHub:
    """The open streams of a server, by run. Used only in the thread of the event loop."""

    def __init__(self, executor: Executor, credentials: Executor, on_question: Callable[[str], None]) -> None:
        """``credentials`` runs what may wait for a command of the person. ``on_question`` is called with a run that was
        asked for its health."""
        self.executor, self.credentials, self.on_question = executor, credentials, on_question
        self._open: dict[str, _Subscription] = {}
        self._is_stopping = False

    @property
    def count(self) -> int:
        return len(self._open)

    @contextmanager
    def subscribe(self, run: str) -> Iterator[_Subscription]:
        """Open the stream of a run; an earlier one of the run ends."""
        former = self._open.get(run)
        if former is not None:
            former.end()
        subscription = self._open[run] = _Subscription()
        if self._is_stopping:
            subscription.end()
        try:
            yield subscription
        finally:
            if self._open.get(run) is subscription:
                del self._open[run]

    def wake(self, agent: str | None = None) -> None:
        """Have the streams of an agent, or all streams, look for new events."""
        for run, subscription in self._open.items():
            if agent is None or split_run(run)[0] == agent:
                subscription.wake.set()

    def stop(self) -> None:
        """End all streams: the server stops."""
        self._is_stopping = True
        for subscription in self._open.values():
            subscription.end()


class StreamLinks(Value):
    """What a stream calls of the server.

    ``is_over``: whether the run has ended; it is called in another thread. ``respond`` returns the response to an error
    before the first event. ``find_rotated`` looks for other credentials; None for a run without an account.
    """

    is_over: Callable[[], bool]
    respond: Callable[[Exception], Any]
    find_rotated: FindRotated | None = None


class EventStream:
    """The answer to one request for a stream, as an ASGI application."""

    def __init__(self, hub: StreamHub, run_dir: RunDir, last_event_id: str | None, links: StreamLinks) -> None:
        self._hub, self._run_dir, self._last_event_id = hub, run_dir, last_event_id
        self._is_run_over, self._respond = links.is_over, links.respond
        self._find_rotated = links.find_rotated
        self._questions = itertools.count(1)

    async def __call__(self, scope: object, receive: Receive, send: Send) -> None:
        with self._hub.subscribe(self._run_dir.run) as subscription:
            try:
                prompts = await self._in_thread(PromptStream, self._run_dir, self._last_event_id or None)
            except (LizaError, OSError) as error:
                await self._respond(error)(scope, receive, send)
                return
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            gone = asyncio.create_task(_wait_for_disconnect(receive, subscription))
            try:
                await self._relay(prompts, subscription, send)
            except (LizaError, OSError) as error:
                # The runtime connects again, with the last event that it has received.
                print(f"the stream of {self._run_dir.run} ended: {error}", file=sys.stderr, flush=True)  # noqa: T201
            finally:
                gone.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _relay(self, prompts: PromptStream, subscription: _Subscription, send: Send) -> None:
        loop = asyncio.get_running_loop()
        await _send_block(send, b": open\n\n")
        question_at = loop.time() + QUESTION_SECONDS
        find, wake = self._find_rotated, subscription.wake.set
        credentials = None if find is None else CredentialWatch(self._hub.credentials, find, wake)
        while not subscription.is_over():
            subscription.wake.clear()
            messages, is_run_over = await self._in_thread(self._look, prompts)
            for message in messages:
                await _send_block(send, _format_event("prompt", _prompt_event(message), message.id))
                if subscription.is_over():
                    return
            for event in () if credentials is None else credentials.poll():
                # Without an id of the stream: a client that reconnects names the last prompt, and this comes again.
                await _send_block(send, _format_event("credentials", event))
            if is_run_over:
                return
            if not await _wait(subscription.wake, KEEP_ALIVE_SECONDS):
                await _send_block(send, b": keep-alive\n\n")
            if loop.time() >= question_at:
                question_at = loop.time() + QUESTION_SECONDS
                question = HealthQuestion(question=f"{self._run_dir.run}-{next(self._questions)}")
                await _send_block(send, _format_event("health", question))
                self._hub.on_question(self._run_dir.run)

    def _look(self, prompts: PromptStream) -> tuple[tuple[Message, ...], bool]:
        """Return the prompts to send now, and whether the run is over. Raises OSError, LizaError."""
        return prompts.next_prompts(datetime.now(UTC).replace(microsecond=0)), self._is_run_over()

    async def _in_thread(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._hub.executor, function, *arguments)


_HEADERS: Final = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"connection", b"close"),
]


def _prompt_event(message: Message) -> PromptEvent:
    return PromptEvent(
        id=message.id,
        content=message.text,
        priority=message.priority,
        source=message.source,
        metadata=PromptEventMetadata(sender=message.sender, task_id=message.task),
        created=message.created,
    )


def _format_event(kind: str, data: msgspec.Struct, event_id: str | None = None) -> bytes:
    """Return an event. JSON has no line breaks, so the data is one line."""
    head = b"" if event_id is None else f"id: {event_id}\n".encode()
    return head + f"event: {kind}\n".encode() + b"data: " + encode_json(data) + b"\n\n"


async def _send_block(send: Send, block: bytes) -> None:
    await send({"type": "http.response.body", "body": block, "more_body": True})


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; return whether it was set in time."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _wait_for_disconnect(receive: Receive, subscription: _Subscription) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
    subscription.end()


FindRotated = Callable[[Collection[str]], tuple[CredentialsEvent, ...]]


class CredentialWatch:
    """Looks in another thread, one look at a time. Used only in the thread of the event loop.

    ``find`` gets the ids of the events that this stream has sent. ``wake`` is called after each look.
    """

    def __init__(self, executor: Executor, find: FindRotated, wake: Callable[[], None]) -> None:
        self._executor, self._find, self._wake = executor, find, wake
        self._look: asyncio.Future[tuple[CredentialsEvent, ...]] | None = None
        self._is_outdated = False
        self._sent: set[str] = set()

    def poll(self) -> tuple[CredentialsEvent, ...]:
        """Return what the last look found. Without one, or if it may be outdated, start another look."""
        if self._look is None:
            self._start()
            return ()
        if not self._look.done():
            self._is_outdated = True
            return ()
        events, self._look = self._look.result(), None
        self._sent.update(event.id for event in events)
        if self._is_outdated:
            self._start()
        return events

    def _start(self) -> None:
        self._is_outdated = False
        loop = asyncio.get_running_loop()
        self._look = loop.run_in_executor(self._executor, self._find_or_nothing, frozenset(self._sent))
        self._look.add_done_callback(lambda _: self._wake())

    def _find_or_nothing(self, sent: Collection[str]) -> tuple[CredentialsEvent, ...]:
        """Return nothing after an error: the worker keeps what it has, and the next look tries again."""
        try:
            return self._find(sent)
        except (LizaError, OSError):
            return ()
