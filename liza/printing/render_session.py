"""Print the events of sessions: the time, what happened, and its text; also as Markdown."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Final

from liza.model.spending import TokenUsage
from liza.model.value_classes import Value, replace
from liza.printing import printing
from liza.printing.columns import cell_width, paint, strip_controls, wrap_text
from liza.printing.render_crew import agent_colour
from liza.programs.rules.session_events import (
    GUARD_MARK,
    CallResults,
    Failed,
    FileEdit,
    LoggedEvent,
    ModelText,
    ModelThought,
    Noticed,
    Outcome,
    Printed,
    Prompted,
    SessionBegan,
    SubagentEnded,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    Unknown,
    UsageLimited,
    find_results,
)
from liza.text.formats import count_noun
from liza.text.redaction import MAX_KEY, redact

_MAX_BRIEF = 160
"""Characters of a prompt, a thought, an unknown object or a tool's arguments that are shown."""
_MAX_BESIDE = 2
"""Lines of text beside the events that are shown in a row; more are folded."""
_MAX_REASON = 200
"""Characters of a tool's output that are shown if it failed."""
_MAX_LINE = 4_000
"""Characters of a line of text that are shown."""
_TIME_WIDTH, _WORD_WIDTH = 8, 7
_COLOURS: Final[Mapping[str, str]] = {
    "failed": "red",
    "limit": "red",
    "thinks": "dim",
    "prompt": "dim",
    "tokens": "dim",
    "prints": "dim",
}
_MAIN_ARGUMENTS = (
    "file_path",
    "filePath",
    "path",
    "pattern",
    "query",
    "url",
    "description",
    "title",
    "prompt",
    "message",
)
"""The arguments of tools that say most; the first that is given is shown."""


class SessionStyle(Value):
    """``width``: cells of a row; None: rows are not wrapped. ``name_width``: cells of the agent's name in each row; 0:
    no names. ``with_times``: also lines of text have the time."""

    width: int | None
    with_colours: bool = False
    name_width: int = 0
    with_subagents: bool = False
    with_times: bool = False

    def paint_name(self, agent: str) -> str:
        """Return the beginning of a row of this agent; empty without names."""
        name = f"{agent:<{self.name_width}} | " if self.name_width else ""
        return paint(name, agent_colour(agent), self.with_colours)


class _Row(Value):
    """What is printed of an event: a word for its kind, its text, and how a call failed; empty if it did not."""

    word: str
    text: str
    failure: str = ""


class _Session(Value):
    """What is known of a session beside the event that is printed: results of calls, and its sub-agents."""

    results: CallResults
    subagents: Mapping[str, str]

    def describe(self, entry: LoggedEvent, call: ToolCalled) -> _Row:
        """Return the row of a call, with its end if that is known."""
        row = _describe_call(call)
        result = self.results.find(call.call, entry.parent)
        end = "" if result is None else f" · {describe_end(result)}"
        is_failure = result is not None and result.is_failure
        folded = "" if entry.parent else self.subagents.get(call.call, "")
        return _Row(row.word, row.text + folded + ("" if is_failure else end), end if is_failure else "")


def format_session(events: Iterable[LoggedEvent], style: SessionStyle) -> Iterator[str]:
    """Yield the rows of sessions that are read at once: each call with its result."""
    logged = list(events)
    session = _Session(find_results(logged), {} if style.with_subagents else _fold_subagents(logged))
    called = {(entry.parent, entry.event.call) for entry in logged if isinstance(entry.event, ToolCalled)}
    shown = {call for parent, call in called if not parent} | {
        entry.event.subagent for entry in logged if isinstance(entry.event, SubagentEnded)
    }
    for before, entry in zip([None, *logged], _fold_lines(logged), strict=False):
        if isinstance(entry.event, ToolReturned) and (entry.parent, entry.event.call) in called:
            continue
        is_repeated = before is not None and before.event == entry.event
        if is_repeated and isinstance(entry.event, Failed | UsageLimited | SessionBegan):
            # Some programs report one failure as that of the request and as that of the turn, or their begin twice.
            continue
        if entry.parent and entry.parent not in shown and not style.with_subagents:
            # No call of the session names this sub-agent.
            shown.add(entry.parent)
            folded = session.subagents.get(entry.parent, "").removeprefix(" · ") or "a sub-agent: --subagents"
            yield from _format_event(replace(entry, event=Noticed(folded), parent=""), session, style)
            continue
        yield from _format_event(entry, session, style)


def _fold_lines(logged: list[LoggedEvent]) -> list[LoggedEvent]:
    """Return the events with lines of text beside them folded: the first of several, with their number."""
    folded: list[LoggedEvent] = []
    for is_beside, group in groupby(
        logged, key=lambda entry: isinstance(entry.event, Printed) and entry.event.is_beside
    ):
        entries = list(group)
        first = entries[0].event
        if is_beside and isinstance(first, Printed) and len(entries) > _MAX_BESIDE:
            text = f"{first.text[:_MAX_BRIEF]} … {len(entries) - 1} more lines: --raw"
            entries = [replace(entries[0], event=Printed(text, is_beside=True))]
        folded += entries
    return folded


def _fold_subagents(logged: list[LoggedEvent]) -> Mapping[str, str]:
    """Return what to print of the sub-agent that a call started, by the id of the call."""
    counts = Counter(entry.parent for entry in logged if entry.parent and isinstance(entry.event, ToolCalled))
    ends = {entry.event.call: entry.event for entry in logged if isinstance(entry.event, SubagentEnded)}
    folded = {}
    for call in {*counts, *ends}:
        end = ends.get(call)
        number = counts[call] or (counts[end.subagent] if end is not None else 0)
        tokens = f", {end.tokens:,} tokens" if end is not None and end.tokens is not None else ""
        folded[call] = f" · {count_noun(number, 'call')}{tokens} of its sub-agent: --subagents"
    return folded


def format_followed(events: Iterable[LoggedEvent], style: SessionStyle, run: str | None = None) -> Iterator[str]:
    """Yield the rows of sessions while they run: a result has a row of its own if its call failed.

    ``run`` was shown before: if another one follows, a row names it.
    """
    nothing_known = _Session(find_results(()), {})
    for entry in events:
        if run is not None and entry.run != run:
            run = entry.run
            yield f"\n── {run} ──"
        if isinstance(entry.event, ToolReturned) and not entry.event.is_failure:
            continue
        yield from _format_event(entry, nothing_known, style)


def _format_event(entry: LoggedEvent, session: _Session, style: SessionStyle) -> Iterator[str]:
    if entry.parent and not style.with_subagents:
        return
    time_text = f"{printing.time_of_day(entry.time) if entry.time else '':<{_TIME_WIDTH}}  "
    name = style.paint_name(entry.agent)
    if isinstance(entry.event, Printed) and not entry.event.is_beside:
        text = entry.event.text
        shown = clean(text[:MAX_KEY])[:_MAX_LINE] + (
            "" if len(text) <= _MAX_LINE else f" … {len(text):,} characters: --raw"
        )
        yield f"{time_text if style.with_times else ''}{name}{shown}"
        return
    row = _describe_event(entry, session)
    if row is None:
        return
    word = f"{'  ' if entry.parent else ''}{row.word:<{_WORD_WIDTH}}  "
    hang = cell_width(f"{time_text}{name}{word}")
    lines = [line for line in clean(row.text).splitlines() if line.strip()] or [""]
    text = paint(f"\n{' ' * hang}".join(lines), _COLOURS.get(row.word, ""), style.with_colours)
    failure = paint(clean(row.failure), _COLOURS["failed"], style.with_colours) if row.failure else ""
    shown = f"{time_text}{name}{word}{text}{failure}"
    yield shown if style.width is None else wrap_text(shown, style.width, hang)


def _describe_event(entry: LoggedEvent, session: _Session) -> _Row | None:
    match event := entry.event:
        case SessionBegan():
            return _Row("begins", " · ".join(filter(None, (event.conversation, event.model))))
        case Prompted():
            return _Row("prompt", _first_line(event.text, _MAX_BRIEF))
        case ModelText():
            return _Row("says", event.text)
        case ModelThought():
            return _Row("thinks", _first_line(event.text, _MAX_BRIEF)) if event.text.strip() else None
        case ToolCalled():
            return session.describe(entry, event)
        case ToolReturned():
            end = describe_end(event)
            return _Row("result", "", end) if event.is_failure else _Row("result", end)
        case TurnEnded() if event.usage is not None:
            return _Row("tokens", describe_usage(event.usage))
        case Failed():
            return _Row("failed", event.text)
        case UsageLimited():
            return _Row("limit", event.text)
        case Noticed():
            return _Row("note", event.text)
        case Printed():
            return _Row("prints", _first_line(event.text, _MAX_LINE)) if event.text.strip() else None
        case Unknown():
            return _Row("unknown", _first_line(event.text, _MAX_BRIEF))
    return None


def _describe_call(event: ToolCalled) -> _Row:
    if event.edits:
        return _Row("edits", ", ".join(map(describe_edit, event.edits)))
    return _Row("runs" if event.command else "uses", describe_call(event))


def describe_call(call: ToolCalled) -> str:
    """Return a call in one line: the command, or the tool with the argument that says most."""
    if call.command:
        return _first_line(call.command, 4 * _MAX_BRIEF)
    value = next((call.arguments[name] for name in _MAIN_ARGUMENTS if call.arguments.get(name)), None)
    return _first_line(f"{call.name} {'' if value is None else value}".strip(), _MAX_BRIEF)


def describe_usage(usage: TokenUsage) -> str:
    """Return tokens and price in one line."""
    cost = "" if usage.cost is None else f" · ${usage.cost:.2f}"
    return f"{usage.input:,} in ({usage.cached:,} cached), {usage.output:,} out{cost}"


def describe_edit(edit: FileEdit) -> str:
    """Return the path of an edited file, with the lines that were added and removed if they are known."""
    return edit.path if edit.added is None else f"{edit.path} +{edit.added} −{edit.removed}"


def describe_end(result: ToolReturned) -> str:
    """Return how a call ended: a word or the exit code, and the reason if it failed."""
    outcome = result.outcome
    if not result.is_failure:
        return outcome.value
    what = f"exit {result.exit_code}" if result.exit_code and outcome is not Outcome.REFUSED else outcome.value
    # The reason of a refusal is its first line, the error of a command its last one.
    part = result.text.strip()[:MAX_KEY] if outcome is Outcome.REFUSED else result.text.strip()[-MAX_KEY:]
    lines = clean(part).splitlines() or [""]
    text = lines[0] if outcome is Outcome.REFUSED else lines[-1]
    # A program names the hook that denied a call before the reason of Liza's guard.
    reason = _first_line(text[max(0, text.find(GUARD_MARK)) :], _MAX_REASON)
    return f"{what}: {reason}" if reason else what


def _first_line(text: str, most: int) -> str:
    lines = clean(text.strip()[:MAX_KEY]).splitlines() or [""]
    shown = lines[0][:most]
    return shown if shown == lines[0] and len(lines) == 1 else f"{shown} …"


def clean(text: str) -> str:
    """Return a text of an event without secrets, and without characters that control a terminal."""
    return strip_controls(redact(text))
