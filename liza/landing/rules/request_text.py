"""The title and the body of a pull request: tasks, verdicts and test results.

Texts of tasks come from agents. They are shown in cells of a table: no text mentions a person, refers to another issue
or closes one.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from liza.landing.rules.markdown_table import format_cell, format_table_rows
from liza.model.gates import GateRun
from liza.model.history_events import HistoryEvent
from liza.model.model import Task
from liza.model.value_classes import Value
from liza.text.formats import count_noun, format_duration
from liza.text.redaction import redact

BEGIN, END = "<!-- liza: begin -->", "<!-- liza: end -->"
MAX_TABLE = 50_000
"""Characters of the table of tasks: GitHub takes a body of 65,536."""
MAX_SHEET = 12_000
"""Characters of the page with the evidence beside a table of the maximum size."""
_TITLE = 200


class RequestFacts(Value):
    """What a pull request says: the goal, the commit, its tasks, the last runs of its gates, and the evidence."""

    goal: str
    commit: str
    tasks: tuple[Task, ...]
    gates: tuple[GateRun, ...]
    sheet: str = ""


def compose_title(facts: RequestFacts) -> str:
    """Return the title, in one line."""
    goal = " ".join(redact(facts.goal).split()) or "Work of the crew"
    text = f"{goal}: {count_noun(len(facts.tasks), 'task')}"
    return text if len(text) <= _TITLE else f"{text[: _TITLE - 1]}…"


def compose_body(facts: RequestFacts) -> str:
    """Return the section of the body that Liza writes, between two marks."""
    rows = [_task_row(task) for task in facts.tasks]
    lengths = accumulate(sum(map(len, row)) + 16 for row in rows)
    shown = [row for row, length in zip(rows, lengths, strict=True) if length <= MAX_TABLE]
    left = [f"and {count_noun(len(rows) - len(shown), 'more task')}", ""] if len(rows) > len(shown) else []
    return "\n".join(
        [
            BEGIN,
            f"{count_noun(len(facts.tasks), 'task')} at {facts.commit}.",
            "",
            *format_table_rows(("task", "what", "approved by", "rejections", "verdict"), shown),
            *left,
            *_gates(facts.gates),
            *_fold(facts.sheet),
            END,
        ]
    )


def _fold(sheet: str) -> list[str]:
    """Return the page with the evidence, folded; nothing if it does not fit into a body."""
    if not sheet or len(sheet) > MAX_SHEET:
        return []
    return ["<details><summary>Evidence</summary>", "", sheet, "", "</details>"]


def replace_section(body: str, section: str) -> str:
    """Return ``body`` with Liza's section replaced, or appended if it has none. Text of people is kept."""
    before, begin, rest = body.partition(BEGIN)
    _, end, after = rest.partition(END)
    if begin and end:
        return f"{before}{section}{after}"
    return f"{body.rstrip()}\n\n{section}" if body.strip() else section


def _task_row(task: Task) -> tuple[str, ...]:
    verdicts = [event for event in task.history if event.event == HistoryEvent.APPROVE]
    rejections = sum(event.event == HistoryEvent.REJECT for event in task.history)
    verdict = verdicts[-1].detail or "" if verdicts else ""
    return (
        f"`{task.id}`",
        format_cell(task.description),
        format_cell(task.approved_by or ""),
        str(rejections),
        format_cell(verdict),
    )


def _gates(runs: Sequence[GateRun]) -> list[str]:
    if not runs:
        return ["No gate is configured: this commit is untested."]
    rows = [(format_cell(run.gate), run.outcome.value, format_duration(run.seconds)) for run in runs]
    return format_table_rows(("gate", "result", "time"), rows)
