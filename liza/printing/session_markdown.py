"""Print sessions as Markdown, for a person who reviews what an agent did."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from liza.printing import printing
from liza.printing.render_session import clean, describe_call, describe_edit, describe_end, describe_usage
from liza.programs.rules.session_events import (
    CallResults,
    Failed,
    LoggedEvent,
    ModelText,
    ModelThought,
    Noticed,
    Prompted,
    SessionBegan,
    ToolCalled,
    TurnEnded,
    UsageLimited,
    find_results,
)

_MAX_OUTPUT_LINES = 20
"""Lines of a command's output that are printed, from its end."""


def format_markdown(events: Sequence[LoggedEvent]) -> str:
    """Return the sessions, each below a heading with its run. What sub-agents did is left out."""
    parts: list[str] = []
    for run in dict.fromkeys(entry.run for entry in events):
        own = [entry for entry in events if entry.run == run and not entry.parent]
        results = find_results(own)
        parts += [f"# {run}", *(part for entry in own for part in _format_event(entry, results))]
    return clean("\n\n".join(parts)) + "\n" if parts else ""


def _format_event(entry: LoggedEvent, results: CallResults) -> Iterator[str]:
    time_text = f"{printing.time_of_day(entry.time)} " if entry.time is not None else ""
    match entry.event:
        case SessionBegan(model=model) if model:
            yield f"Model: {model}"
        case Prompted(text=text):
            yield f"## {time_text}Prompt\n\n{_fence(text, 'text')}"
        case ModelText(text=text):
            yield text.strip()
        case ModelThought(text=text) if text.strip():
            yield "\n".join(f"> {line}" for line in text.strip().splitlines())
        case ToolCalled() as call:
            yield from _format_call(entry, call, results)
        case TurnEnded(usage=usage) if usage is not None:
            yield f"*{describe_usage(usage)}*"
        case Failed(text=text):
            yield f"**{time_text}failed:** {text.strip()}"
        case UsageLimited(text=text):
            yield f"**{time_text}limit:** {text.strip()}"
        case Noticed(text=text):
            yield f"*{time_text}{text.strip()}*"


def _format_call(entry: LoggedEvent, call: ToolCalled, results: CallResults) -> Iterator[str]:
    result = results.find(call.call, entry.parent)
    end = "" if result is None else f" · {describe_end(result)}"
    if call.command:
        output = [] if result is None else result.text.strip().splitlines()
        shown = ["…", *output[-_MAX_OUTPUT_LINES:]] if len(output) > _MAX_OUTPUT_LINES else output
        yield _fence("\n".join([f"$ {call.command}", *shown]), "console") + (f"\n{end.strip(' ·')}" if end else "")
        return
    for edit in call.edits:
        yield f"- `{describe_edit(edit)}`{end}"
    if not call.edits:
        yield f"- `{describe_call(call)}`{end}"


def _fence(text: str, language: str) -> str:
    """Return a fenced block. The fence is longer than any in the text."""
    longest = max((len(run) for run in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.strip()}\n{fence}"
