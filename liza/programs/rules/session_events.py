"""What happened in a session of an agent program, in one form for all programs. Pure.

A reader of `programs/events` makes these events of a program's output; `liza logs` prints them.
"""

from __future__ import annotations

import difflib
import heapq
import shlex
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, TypeAlias

from liza.model.spending import TokenUsage
from liza.model.value_classes import Value, field, replace

_SHELLS = {"bash", "sh", "zsh"}
_MAX_SPLIT = 10_000
"""Characters of a command that is split into words: the time grows with the square."""
_MAX_COMPARISONS = 1_000_000
"""Pairs of lines that are compared to count an edit exactly; 0.1 s at most."""
GUARD_MARK = "[liza]"
"""Beginning of the reason that a guard of Liza gives."""
_FIRST = datetime.min.replace(tzinfo=UTC)


class Outcome(StrEnum):
    """How a tool call ended. REFUSED: the program did not run it. ENDED: it does not tell whether a command failed."""

    OK = "ok"
    ENDED = "ended"
    FAILED = "failed"
    REFUSED = "refused"


class SessionBegan(Value):
    """The program has begun a conversation, or continues one. ``model`` may be empty."""

    conversation: str
    model: str = ""


class Prompted(Value):
    """A prompt that reaches the model: the brief, or a message of a person or of Liza."""

    text: str


class ModelText(Value):
    """Text of the model."""

    text: str


class ModelThought(Value):
    """Text in which the model thinks, if the program shows it."""

    text: str


class FileEdit(Value):
    """A file that a tool call changes: ``added`` and ``removed`` lines; None if the program does not tell them."""

    path: str
    added: int | None = None
    removed: int | None = None


class ToolCalled(Value):
    """The model calls a tool. ``call`` is the id of the call, ``arguments`` what the program names so."""

    call: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    edits: tuple[FileEdit, ...] = ()

    @property
    def command(self) -> str:
        """The command that it runs; empty if it is no command. Some programs name the shell that runs it, too."""
        command = self.arguments.get("command") or self.arguments.get("cmd") or ""
        text = shlex.join(map(str, command)) if isinstance(command, list) else str(command)
        if len(text) > _MAX_SPLIT:
            return text
        try:
            words = shlex.split(text)
        except ValueError:
            return text
        match words:
            case [shell, "-c" | "-lc", script] if shell.rpartition("/")[2] in _SHELLS:
                return script
        return text


class ToolReturned(Value):
    """A tool call has ended. ``exit_code``: of a command, if the program reports it."""

    call: str
    text: str = ""
    outcome: Outcome = Outcome.OK
    exit_code: int | None = None

    @property
    def is_failure(self) -> bool:
        """Whether it was refused, or is known to have failed."""
        return self.outcome in (Outcome.FAILED, Outcome.REFUSED) or bool(self.exit_code)


class CallsRefused(Value):
    """The program tells afterwards that it refused these calls."""

    calls: tuple[str, ...]


class SubagentEnded(Value):
    """A sub-agent that a call started has ended. ``subagent`` is its own id, ``tokens`` what it used, if known."""

    call: str
    subagent: str
    tokens: int | None = None


class TurnEnded(Value):
    """The program reports what it used: ``usage`` as `programs/usage` reads it, None if it does not tell.

    ``request`` is the name of the request, if its record has one: several records can be about one request.
    """

    usage: TokenUsage | None = None
    request: str = ""


class Failed(Value):
    """The program or its model reports an error: why there is no answer, or why the session ends."""

    text: str


class UsageLimited(Value):
    """The model refuses to answer because a usage limit is reached; the program may try again by itself."""

    text: str


class Noticed(Value):
    """The program reports an event that a person may want to know, such as a compaction."""

    text: str


class Unknown(Value):
    """An object that the reader of the format does not know: its text as it was printed."""

    text: str


class Printed(Value):
    """A line of text. ``is_beside``: the program has a known format, and this line is beside its events."""

    text: str
    is_beside: bool = False


SessionEvent: TypeAlias = (
    SessionBegan
    | Prompted
    | ModelText
    | ModelThought
    | ToolCalled
    | ToolReturned
    | CallsRefused
    | SubagentEnded
    | TurnEnded
    | Failed
    | UsageLimited
    | Noticed
    | Unknown
    | Printed
)


class TimeSource(StrEnum):
    """Where the time of an event comes from."""

    ARRIVAL = "arrival"
    """Its line arrived then, to one or two seconds."""
    RECORD = "record"
    """The program wrote this time into the record."""


class LoggedEvent(Value):
    """An event of a run. ``time`` is None if it was not recorded; ``time_source`` says what it is the time of.

    ``parent``: the sub-agent, by the call that started it or by its own id; empty for the main agent. ``path`` and
    ``offset``: the file in which its line is, and the first byte of the line.
    """

    agent: str
    run: str
    time: datetime | None
    event: SessionEvent
    parent: str = ""
    time_source: TimeSource = TimeSource.ARRIVAL
    path: str = ""
    offset: int = 0


_ONLY_IN_OUTPUT = (SessionBegan, CallsRefused, Failed, UsageLimited, Noticed, Printed, Unknown)
"""Events that a conversation log lacks."""


def merge_sources(output: Sequence[LoggedEvent], log: Sequence[LoggedEvent]) -> list[LoggedEvent]:
    """Return the events of one run out of its program's output and its conversation log, by time.

    The log is the better source: it has times of its own and the calls that the program rejected. Both may name one
    call differently, so that of the output only what the log lacks is used. Its price is kept: a log has none. An
    output that is all text is a terminal's.
    """
    if not any(isinstance(entry.event, ModelText | ToolCalled) for entry in log):
        return [*output, *(entry for entry in log if isinstance(entry.event, Unknown))]
    if all(isinstance(entry.event, Printed) for entry in output):
        output = ()
    costs = [entry.event.usage.cost for entry in output if isinstance(entry.event, TurnEnded) and entry.event.usage]
    rest = [entry for entry in output if isinstance(entry.event, _ONLY_IN_OUTPUT)]
    if not _has_usage(log):
        rest = [entry for entry in output if isinstance(entry.event, (*_ONLY_IN_OUTPUT, TurnEnded))]
    begun = [entry for entry in rest if isinstance(entry.event, SessionBegan)]
    later = [entry for entry in rest if not isinstance(entry.event, SessionBegan)]
    return begun + merge_sessions([fold_usage(log, costs[-1] if costs else None), later])


def merge_sessions(sessions: Iterable[Sequence[LoggedEvent]]) -> list[LoggedEvent]:
    """Return the events of several files or sessions by time; those of one of them stay in their order."""
    return list(heapq.merge(*map(_with_times, sessions), key=lambda entry: entry.time or _FIRST))


def _has_usage(entries: Iterable[LoggedEvent]) -> bool:
    return any(isinstance(entry.event, TurnEnded) and entry.event.usage is not None for entry in entries)


def _with_times(entries: Iterable[LoggedEvent]) -> Iterator[LoggedEvent]:
    """Yield the entries in their order, with no time before that of an earlier one."""
    latest = None
    for entry in entries:
        latest = entry.time if latest is None or (entry.time is not None and entry.time > latest) else latest
        yield replace(entry, time=latest)


def fold_usage(entries: Iterable[LoggedEvent], cost: float | None = None) -> list[LoggedEvent]:
    """Return the entries with the usage of a turn's requests summed up at its last one, each request once.

    ``cost`` is the price of the whole, in US dollars. Sub-agents are left out: their calls tell what they used.
    """
    folded: list[LoggedEvent] = []
    requests: dict[str, TokenUsage] = {}
    last: int | None = None
    for entry in entries:
        if isinstance(entry.event, TurnEnded):
            if entry.event.usage is None or entry.parent:
                continue
            requests[entry.event.request or str(len(requests))] = entry.event.usage
            if last is not None:
                del folded[last]
            last = len(folded)
            entry = replace(entry, event=TurnEnded(_add_usages(requests.values())))
        elif isinstance(entry.event, Prompted) and not entry.parent:
            requests, last = {}, None
        folded.append(entry)
    if last is not None and cost is not None:
        folded[last] = replace(folded[last], event=TurnEnded(replace(_add_usages(requests.values()), cost=cost)))
    return folded


def _add_usages(usages: Iterable[TokenUsage]) -> TokenUsage:
    first, *more = usages
    return sum(more, first)


def count_edit(before: str, after: str) -> tuple[int, int]:
    """Return how many lines a replacement of ``before`` by ``after`` adds and removes.

    In a large edit a line that only moved counts as neither: a comparison takes time with the square of the lines.
    """
    old, new = before.splitlines(), after.splitlines()
    if len(old) * len(new) > _MAX_COMPARISONS:
        return (Counter(new) - Counter(old)).total(), (Counter(old) - Counter(new)).total()
    changes = difflib.SequenceMatcher(a=old, b=new, autojunk=False).get_opcodes()
    added = sum(end - start for change, _, _, start, end in changes if change != "equal")
    removed = sum(end - start for change, start, end, _, _ in changes if change != "equal")
    return added, removed


def describe_unknown(entries: Iterable[LoggedEvent]) -> str:
    """Return that objects of the output have kinds that are not known; empty if all are known."""
    counts = Counter(type(entry.event) is Unknown for entry in entries if not isinstance(entry.event, Printed))
    if not counts[True]:
        return ""
    return (
        f"{counts[True]} of {counts.total()} events have a form that is not known: the program has changed its output"
    )


def is_unread(entries: Iterable[LoggedEvent]) -> bool:
    """Return whether a session has objects, and none of them has a known form."""
    kinds = {type(entry.event) for entry in entries} - {Printed}
    return kinds == {Unknown}


class FailedCall(Value):
    """A tool call that the program did not run, or that failed: what was called, and the reason."""

    what: str
    reason: str


class CallResults(Value):
    """The results of tool calls, by the sub-agent and the id of the call: two agents may use one id."""

    returned: Mapping[tuple[str, str], ToolReturned]
    refused: frozenset[str]

    def find(self, call: str, parent: str = "") -> ToolReturned | None:
        """Return the result of a call; None if it is not known."""
        result = self.returned.get((parent, call))
        if result is None or call not in self.refused or result.outcome is Outcome.REFUSED:
            return result
        return replace(result, outcome=Outcome.REFUSED)


def find_results(entries: Iterable[LoggedEvent]) -> CallResults:
    """Return the results of the calls in a session. Of two results of a call the one with an exit code counts, else the
    first that tells whether it failed."""
    returned: dict[tuple[str, str], ToolReturned] = {}
    refused: set[str] = set()
    for entry in entries:
        match entry.event:
            case CallsRefused(calls=calls):
                refused.update(calls)
            case ToolReturned() as result:
                earlier = returned.get((entry.parent, result.call))
                if earlier is None or (earlier.outcome is Outcome.ENDED and earlier.exit_code is None):
                    returned[entry.parent, result.call] = result
    return CallResults(returned, frozenset(refused))


def find_last_failure(entries: Sequence[LoggedEvent]) -> FailedCall | None:
    """Return the last call of a session, with the last line of its output, if it failed; else None."""
    results = find_results(entries)
    for entry in reversed(entries):
        result = results.find(entry.event.call, entry.parent) if isinstance(entry.event, ToolCalled) else None
        if isinstance(entry.event, ToolCalled) and result is not None:
            code = f"exit {result.exit_code}: " if result.exit_code else ""
            reason = code + (result.text.strip().splitlines() or [""])[-1]
            return FailedCall(entry.event.command or entry.event.name, reason) if result.is_failure else None
    return None


def find_refused_calls(entries: Sequence[LoggedEvent]) -> tuple[FailedCall, ...]:
    """Return the calls that the program refused, in their order. A guard of Liza is not the program."""
    results = find_results(entries)
    calls = []
    for entry in entries:
        if isinstance(entry.event, ToolCalled):
            result = results.find(entry.event.call, entry.parent)
            reason = "" if result is None else result.text.strip().partition("\n")[0]
            if result is not None and result.outcome is Outcome.REFUSED and GUARD_MARK not in reason:
                calls.append(FailedCall(entry.event.command or entry.event.name, reason))
    return tuple(calls)
