"""The page of Markdown about landed commits, from their statements alone. What they do not say is "not recorded". Pure.

Texts of statements come from agents, and anyone can write a note: cells are escaped as those of a pull request.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from liza.landing.rules.evidence_faults import LandedEvidence
from liza.landing.rules.markdown_table import format_cell, format_table_rows
from liza.merging.rules.statements import StatedVerdict
from liza.model.history_events import HistoryEvent
from liza.text.formats import count_noun, format_duration

NOT_RECORDED: Final = "not recorded"
VERIFY: Final = "`git fetch origin refs/notes/liza:refs/notes/liza && liza land --verify`"
MAX_ROWS: Final = 60
"""Maximum number of landed tasks of a page; `git notes --ref liza show COMMIT` has each of them."""
_SHORT = 12


def find_last(evidence: LandedEvidence, landed: Sequence[str]) -> tuple[str, ...]:
    """Return what the last landing on the branch brought; without one, all that landed."""
    for commit in evidence.chain:
        records = [record for record in evidence.read(commit).landings if record.branch == evidence.branch]
        if records:
            brought = [resource.commit for record in records for resource in record.brought]
            return tuple(commit for commit in landed if commit in brought)
    return tuple(landed)


def count_signatures(evidence: LandedEvidence, commits: Iterable[str]) -> dict[str, int]:
    """Return how many notes of these commits are signed in each way; a note counts as its weakest line."""
    counts: dict[str, int] = {}
    for commit in commits:
        state = _describe_signature(evidence, commit)
        counts[state] = counts.get(state, 0) + 1
    return counts


def _describe_signature(evidence: LandedEvidence, commit: str) -> str:
    lines = evidence.notes.get(commit, ())
    if not lines:
        return NOT_RECORDED
    weakest = min(lines, key=lambda line: line.signature.strength)
    return f"{weakest.signature} by {weakest.signer}" if weakest.signature.strength == 2 else str(weakest.signature)


def compose_sheet(evidence: LandedEvidence, commits: Sequence[str]) -> str:
    """Return the page about these commits, oldest first."""
    rows = [(commit, verdict) for commit in commits for verdict in evidence.read(commit).verdicts]
    lines = [
        f"# Evidence for {format_cell(evidence.branch)}",
        "",
        f"{count_noun(len(rows), 'task')} at {evidence.tip}. Each row is from the note of its landed commit "
        f"(`refs/notes/liza`); to check it: {VERIFY}.",
        "",
    ]
    if not rows:
        return "\n".join([*lines[:2], "No landed commit has a statement.", ""])
    shown = rows[:MAX_ROWS]
    lines += format_table_rows(
        ("task", "what", "landed", "reviewed", "tested", "result", "approved by"), map(_ids, shown)
    )
    lines += format_table_rows(
        ("task", "written by", "rejections", "failed merges", "retries", "from claim to merge", "cost", "signature"),
        (_work(evidence, *row) for row in shown),
    )
    lines += [f"and {count_noun(len(rows) - len(shown), 'more task')}", ""] if len(rows) > len(shown) else []
    lines += format_table_rows(("tested", "gate", "result", "runs", "time", "log"), _gates(shown))
    return "\n".join(lines)


def _ids(row: tuple[str, StatedVerdict]) -> tuple[str, ...]:
    commit, verdict = row
    approvals = [review for review in verdict.reviews if review.verdict == HistoryEvent.APPROVE]
    by = " ".join(filter(None, (approvals[-1].by, _bracket(approvals[-1].assisted_by)))) if approvals else ""
    return (
        f"`{verdict.task}`" if verdict.task.replace("-", "").replace("_", "").isalnum() else format_cell(verdict.task),
        format_cell(verdict.title),
        commit[:_SHORT],
        format_cell(verdict.reviewed.commit[:_SHORT]),
        format_cell(verdict.tested.commit[:_SHORT]) if verdict.tested is not None else NOT_RECORDED,
        format_cell(verdict.how_tested),
        format_cell(by) or NOT_RECORDED,
    )


def _work(evidence: LandedEvidence, commit: str, verdict: StatedVerdict) -> tuple[str, ...]:
    times = verdict.times
    begun, merged = times.claimed or times.submitted, times.merged
    authors = ", ".join(verdict.assisted_by) or verdict.author
    return (
        format_cell(verdict.task),
        format_cell(authors) or NOT_RECORDED,
        str(verdict.rejections),
        str(verdict.failed_merges),
        NOT_RECORDED if verdict.retries is None else str(verdict.retries),
        NOT_RECORDED if begun is None or merged is None else format_duration((merged - begun).total_seconds()),
        _format_cost(verdict),
        format_cell(_describe_signature(evidence, commit)),
    )


def _format_cost(verdict: StatedVerdict) -> str:
    cost = verdict.cost
    if cost is None:
        return NOT_RECORDED
    parts = [] if cost.dollars is None else [f"${cost.dollars:.2f}"]
    estimated = "about " if cost.estimated_tokens else ""
    parts += [] if cost.tokens is None else [f"{estimated}{cost.tokens} tokens"]
    notes = [f"{cost.unpriced} of {len(cost.sessions)} without a price"] if cost.unpriced else []
    notes += [f"{len(cost.unfinished)} not ended"] if cost.unfinished else []
    text = ", ".join(parts) or NOT_RECORDED
    return f"{text} in {count_noun(len(cost.sessions), 'session')}{_bracket(', '.join(notes), ' ')}"


def _gates(rows: Iterable[tuple[str, StatedVerdict]]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each gate of each tested commit: tasks of a batch have it in common."""
    seen = set()
    for _, verdict in rows:
        tested = verdict.tested.commit if verdict.tested is not None else ""
        for gate in verdict.gates:
            if (tested, gate.name) in seen:
                continue
            seen.add((tested, gate.name))
            log = "" if gate.log is None else f"sha256:{gate.log.digest.get('sha256', '')[:16]}"
            facts = (tested[:_SHORT], gate.name, str(gate.result), str(gate.runs), format_duration(gate.seconds), log)
            yield tuple(format_cell(fact) or NOT_RECORDED for fact in facts)


def _bracket(text: str, before: str = "") -> str:
    return f"{before}({text})" if text else ""
