"""One call of an operation: what its function gets, and what an operation is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from liza.api.callers import Access, ApiCaller
from liza.api.problems import RequestProblem
from liza.api.telemetry import TelemetryLogs
from liza.crew.crew import Crew
from liza.guards.authorize import GuardsCache
from liza.model.value_classes import Mutable, Value, field
from liza.programs.session.run_directory import RunDir


class ServerFacts(Mutable, eq=False):
    """What the server knows about itself. ``requests``: answered requests by operation and status."""

    port: int | None = None
    started: float = field(default_factory=time.monotonic)
    requests: dict[tuple[str, int], int] = field(default_factory=dict)
    streams: int = 0
    telemetry: TelemetryLogs = field(default_factory=TelemetryLogs)
    guards: GuardsCache = field(default_factory=GuardsCache)

    open_questions: dict[str, float] = field(default_factory=dict)
    """Monotonic time of the oldest question for the health of a run that it has not answered."""

    def ask(self, run: str) -> None:
        """Note that a run was asked for its health."""
        self.open_questions.setdefault(run, time.monotonic())

    def seconds_unanswered(self, run: str) -> float:
        asked = self.open_questions.get(run)
        return 0.0 if asked is None else time.monotonic() - asked

    def uptime(self) -> float:
        return round(time.monotonic() - self.started, 1)


class WouldWait(Exception):
    """Raised in the thread of the event loop by a function that may take long. It is called again in another thread."""


class Call(Value):
    """``crew`` carries the caller's run. ``request`` is of the operation's type; ``run``: of the path, of the request,
    or else of the caller. ``session``: the run whose session the caller of ``identity`` is in."""

    crew: Crew
    caller: ApiCaller
    server: ServerFacts
    request: Any = None
    path_run: str | None = None
    session: str | None = None
    may_wait: bool = True
    """False in the thread of the event loop: raise LockTimeout or WouldWait instead of waiting."""

    @property
    def run(self) -> str:
        """The run that the call is about. Raises RequestProblem if it names none."""
        run = self.path_run or getattr(self.request, "run_id", None) or self.caller.run
        if run is None:
            raise RequestProblem(400, "invalid-request", "the request names no run", field="$.run_id")
        return run

    @property
    def run_dir(self) -> RunDir:
        return self.crew.run_dir(self.run)


class Operation(Value):
    """An operation: ``function`` returns an ``answer``. ``is_slow``: it runs git or changes the board. ``needs_peer``:
    only at the Unix socket, where it is known whose process calls.

    ``request`` is None for an operation without a body. The examples are in the OpenAPI document.
    """

    name: str
    method: str
    path: str
    summary: str
    access: Access
    function: Callable[[Call], Any]
    answer: type[Any]
    answer_example: Any
    request: type[Any] | None = None
    request_example: Any = None
    media_type: str = "application/json"
    is_slow: bool = False
    needs_peer: bool = False
    is_stream: bool = False
    """The answer is the event stream of the run; ``function`` returns whether the run is over."""
    max_inline: int = 0
    """Size of the largest body, in bytes, that is answered in the thread of the event loop; 0: none."""
    wakes_stream: bool = False
    """After the call, the stream of the run looks for new events."""
