"""What is wrong with the statements about landed commits: missing, removed, unsigned, or not as the commits are. Pure.

A statement is trusted for nothing that git can say itself: which commits exist, their trees and their parents.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import msgspec

from liza.git.rules.note_commits import FETCH_COMMAND, NOTES_REF, NotesCommit, SignatureState
from liza.merging.rules import statements
from liza.merging.rules.statements import GateResult, GateStatement, InTotoStatement, StatedLanding, StatedVerdict
from liza.model.history_events import HistoryEvent
from liza.model.tested import describe_tested
from liza.model.value_classes import Value
from liza.text.formats import count_noun

_OF_LIZA: Final = re.compile(r"(?:Merge [A-Za-z0-9][A-Za-z0-9_-]{0,63}: |Land the epic |Undo [A-Za-z0-9_-]+: )")
"""Subjects of commits that Liza lands with a statement."""
_DISTRUSTED = (SignatureState.BAD, SignatureState.REVOKED)


class CommitFacts(Value):
    """What git says of a commit."""

    tree: str
    parents: tuple[str, ...]
    subject: str


class NotedLine(Value):
    """A line of a note: its statement, None for any other line, and the commit of the notes that brought it first.

    ``is_weaker``: earlier commits of the notes have a stronger signature.
    """

    line: str
    statement: InTotoStatement | None
    signature: SignatureState
    signer: str
    is_weaker: bool


class LandedEvidence(Value):
    """The notes, and what git says of the commits that ``tip``, the tip of ``branch``, contains and that they name.

    ``notes``: by commit. ``removed``: how many lines of a note were removed, by commit. ``reachable``: the commits that
    ``tip`` contains. ``chain``: its first-parent history, newest first. ``has_notes``: whether the ref exists.
    """

    branch: str
    tip: str
    has_notes: bool
    notes: Mapping[str, tuple[NotedLine, ...]]
    removed: Mapping[str, int]
    commits: Mapping[str, CommitFacts]
    reachable: frozenset[str]
    chain: tuple[str, ...]

    def read(self, commit: str) -> NoteParts:
        """Return the statements of a note by their predicates, and what of it cannot be read."""
        verdicts: list[StatedVerdict] = []
        landings: list[StatedLanding] = []
        results: list[GateStatement] = []
        faults: list[str] = []
        for noted in self.notes.get(commit, ()):
            statement = noted.statement
            if statement is None:
                faults.append("has a line that is no statement of in-toto")
                continue
            if commit not in [subject.commit for subject in statement.subject]:
                faults.append(f"has a statement about another commit, {_name_subject(statement)}")
                continue
            try:
                verdicts += filter(None, (statement.read_verdict(),))
                landings += filter(None, (statement.read_landing(),))
                results += filter(None, (statement.read_test_result(),))
            except msgspec.DecodeError as error:
                faults.append(f"has a statement that cannot be read: {error}")
        return NoteParts(tuple(verdicts), tuple(landings), tuple(results), tuple(dict.fromkeys(faults)))


class NoteParts(Value):
    """The statements of a note by their predicates; ``faults``: clauses about its other lines."""

    verdicts: tuple[StatedVerdict, ...]
    landings: tuple[StatedLanding, ...]
    results: tuple[GateStatement, ...]
    faults: tuple[str, ...]


def trace_lines(
    history: Sequence[NotesCommit], texts: Mapping[str, tuple[str, ...]], tip: Mapping[str, tuple[str, ...]]
) -> tuple[dict[str, tuple[NotedLine, ...]], dict[str, int]]:
    """Return each note of ``tip`` with the origin of its lines, and how many lines of each note were removed.

    ``history``: each commit after its parents. ``texts``: the lines of the notes that they changed, by object.
    """
    origin: dict[tuple[str, str], NotesCommit] = {}
    before: dict[str, int] = {}  # the strongest signature among the ancestors of each commit
    own = {each.commit: each.signature.strength for each in history}
    for each in history:
        before[each.commit] = max(
            (max(own[parent], before[parent]) for parent in each.parents if parent in own), default=0
        )
        for commit, blob in each.changed.items():
            for line in texts.get(blob or "", ()):
                origin.setdefault((commit, line), each)
    removed: dict[str, int] = {}
    for commit, line in origin:
        if line not in tip.get(commit, ()):
            removed[commit] = removed.get(commit, 0) + 1
    notes = {
        commit: tuple(_trace(line, origin.get((commit, line)), before) for line in lines)
        for commit, lines in tip.items()
    }
    return notes, removed


def _trace(line: str, origin: NotesCommit | None, before: Mapping[str, int]) -> NotedLine:
    statement = statements.decode_line(line)
    if origin is None:
        return NotedLine(line, statement, SignatureState.UNSIGNED, "", is_weaker=any(before.values()))
    return NotedLine(
        line, statement, origin.signature, origin.signer, origin.signature.strength < before[origin.commit]
    )


def list_landed(evidence: LandedEvidence) -> tuple[str, ...]:
    """Return the commits with a verdict or a landing that the branch has, or that a squash on it brought, oldest first.

    A commit of a squash need not be in this clone.
    """
    own = [commit for commit in evidence.notes if commit in evidence.reachable]
    brought = [
        resource.commit for commit in own for each in evidence.read(commit).landings for resource in each.brought
    ]
    order = {commit: number for number, commit in enumerate(reversed(evidence.chain))}
    landed = dict.fromkeys((*own, *(commit for commit in brought if commit in evidence.notes)))
    return tuple(sorted(landed, key=lambda commit: (order.get(commit, -1), commit)))


def find_evidence_faults(evidence: LandedEvidence, board: Mapping[str, str] | None) -> Iterator[str]:
    """Yield a sentence for each fault. ``board``: the approved commits by merge commit, as the board of a crew has
    them; None in a clone without a crew."""
    approved = board or {}
    if not evidence.has_notes and board is None:
        yield f"{NOTES_REF} is not in this clone: {FETCH_COMMAND}"
        return
    for commit, count in sorted(evidence.removed.items()):
        lines = "1 statement was" if count == 1 else f"{count} statements were"
        yield f"the note of {commit[:12]} was rewritten: {lines} removed or replaced"
    landed = list_landed(evidence)
    yield from _find_missing(evidence, landed, approved)
    for commit in landed:
        for clause in _find_note_faults(evidence, commit, approved.get(commit)):
            yield f"the note of {commit[:12]} {clause}"
    weaker = [commit for commit in landed if _is_weaker(evidence.notes[commit])]
    if weaker:
        states = " or ".join(sorted({line.signature for commit in weaker for line in evidence.notes[commit]}))
        notes = f"{count_noun(len(weaker), 'note')}, from that of {weaker[0][:12]} on"
        yield f"{states}, though earlier notes have a better signature: {notes}; a forged note looks the same"


def _is_weaker(lines: Sequence[NotedLine]) -> bool:
    """Return whether a whole note has a weaker signature than earlier ones, as those of a person who signs no more."""
    return all(line.is_weaker and line.signature not in _DISTRUSTED for line in lines)


def _find_missing(evidence: LandedEvidence, landed: Iterable[str], approved: Mapping[str, str]) -> Iterator[str]:
    required: dict[str, str] = {}
    for commit in landed:
        for record in evidence.read(commit).landings:
            required |= {resource.commit: f"{commit[:12]} brought it" for resource in record.brought}
    required |= {commit: "the board has its task" for commit in approved if commit in evidence.reachable}
    numbers = [number for number, commit in enumerate(evidence.chain) if commit in evidence.notes]
    for commit in evidence.chain[: max(numbers, default=0)]:
        facts = evidence.commits[commit]
        if _OF_LIZA.match(facts.subject):
            required.setdefault(commit, f"its subject is {facts.subject[:60]!r}")
    for commit, why in required.items():
        if not evidence.notes.get(commit):
            yield f"{commit[:12]} landed without a statement: {why}"


def _find_note_faults(evidence: LandedEvidence, commit: str, approved: str | None) -> Iterator[str]:
    parts = evidence.read(commit)
    yield from parts.faults
    yield from _find_signature_faults(evidence.notes[commit])
    if len(parts.verdicts) > 1:
        yield f"has {len(parts.verdicts)} verdicts: a commit has one"
    for verdict in parts.verdicts:
        yield from _find_verdict_faults(evidence, commit, verdict)
        if approved is not None and verdict.reviewed.commit != approved:
            yield f"says that {verdict.reviewed.commit[:12]} was reviewed, and the board {approved[:12]}"
    if approved is not None and not parts.verdicts:
        yield "has no verdict, and the board has its task"


def _find_signature_faults(lines: Sequence[NotedLine]) -> Iterator[str]:
    states = {line.signature for line in lines}
    for state in _DISTRUSTED:
        if state in states:
            yield f"is {state}"
    weaker = next((line.signature for line in lines if line.is_weaker and line.signature not in _DISTRUSTED), None)
    if weaker is not None and not _is_weaker(lines):
        yield f"has a statement that is {weaker}, and earlier notes have a better signature: it may be forged"


def _find_verdict_faults(evidence: LandedEvidence, commit: str, verdict: StatedVerdict) -> Iterator[str]:
    reviewed = verdict.reviewed.commit
    reviews = [review for review in verdict.reviews if review.verdict == HistoryEvent.APPROVE]
    if not any(review.commit is not None and review.commit.commit == reviewed for review in reviews):
        yield f"has no approval of {reviewed[:12]}, the commit that it calls reviewed"
    if commit not in evidence.commits:
        return  # a squash landed its work, and this clone does not have it
    if reviewed not in evidence.commits:
        yield f"names the reviewed commit {reviewed[:12]}, which does not exist here"
    elif reviewed not in evidence.commits[commit].parents[1:]:
        yield f"calls {reviewed[:12]} reviewed, which did not come in by {commit[:12]}"
    if verdict.tested is not None:
        yield from _find_test_faults(evidence, commit, verdict, verdict.tested.commit)


def _find_test_faults(evidence: LandedEvidence, commit: str, verdict: StatedVerdict, tested: str) -> Iterator[str]:
    if tested not in evidence.commits:
        yield f"names the tested commit {tested[:12]}, which does not exist here"
        return
    if not _is_first_parent(evidence, commit, tested):
        yield f"calls {tested[:12]} tested, whose files are not those of {commit[:12]} and whose history lacks it"
    results = {result.result for result in evidence.read(tested).results}
    if not results:
        yield f"says {verdict.how_tested!r}, and the note of {tested[:12]} has no result of a test"
    elif GateResult.FAILED in results:
        yield f"says {verdict.how_tested!r}, and a test of {tested[:12]} failed"
    elif verdict.how_tested == describe_tested(True, ()) and GateResult.PASSED not in results:
        yield f"says {verdict.how_tested!r}, and each result for {tested[:12]} has a warning"


def _is_first_parent(evidence: LandedEvidence, commit: str, tip: str) -> bool:
    """Return whether ``tip`` has the tree of ``commit``, or has it in its first-parent history."""
    if evidence.commits[commit].tree == evidence.commits[tip].tree:
        return True
    current: str | None = tip
    while current is not None and current in evidence.commits:
        if current == commit:
            return True
        current = next(iter(evidence.commits[current].parents), None)
    return False


def _name_subject(statement: InTotoStatement) -> str:
    return ", ".join(subject.commit[:12] or "none" for subject in statement.subject) or "none"
