"""Read, verify and render the statements about landed commits. Only git is asked, so that any clone can do it."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import msgspec

from liza.crew.crew import Crew, find_crew
from liza.git import branch_moves, git_refs, notes_ref
from liza.git.rules.note_commits import NOTES_REF
from liza.git.runner import COMMIT, Git
from liza.landing.rules import evidence_faults, evidence_sheet
from liza.landing.rules.evidence_faults import CommitFacts, LandedEvidence
from liza.merging.rules import statements
from liza.model.errors import GitFailed, NoCrew, UnknownId
from liza.model.model import Status

_READ_LIMIT = 600.0  # seconds: the whole history of a large repository is listed


def open_clone(directory: Path) -> tuple[Git, Crew | None]:
    """Return git in a clone, and its crew if it has one. Raises NoCrew if it is no repository, Missing."""
    try:
        crew = find_crew(directory)
    except NoCrew:
        git = Git(directory)
        with suppress(GitFailed):
            return Git(Path(git.out("rev-parse", "--show-toplevel"))), None
        raise
    return crew.git, crew


def verify_branch(directory: Path, branch: str | None = None) -> dict[str, Any]:
    """Check that each commit that landed on ``branch``, by default the current one, has a true statement.

    ``faults`` has a sentence for each that has not. In a clone without a crew git alone is asked. Raises UnknownId,
    NoCrew, Missing, GitFailed.
    """
    git, crew = open_clone(directory)
    evidence = read_evidence(git, *_find_branch(git, branch))
    faults = list(evidence_faults.find_evidence_faults(evidence, None if crew is None else _read_approved(crew)))
    landed = evidence_faults.list_landed(evidence)
    return {
        "branch": evidence.branch,
        "commit": evidence.tip,
        "landed": len(landed),
        "signatures": evidence_sheet.count_signatures(evidence, landed),
        "faults": faults,
    }


def _read_approved(crew: Crew) -> dict[str, str]:
    """Return the approved commits of merged tasks by merge commit."""
    tasks = [task for task in crew.board.read().tasks if task.status is Status.MERGED]
    return {task.merge_commit: task.review_commit for task in tasks if task.merge_commit and task.review_commit}


def render_branch(directory: Path, branch: str | None = None) -> str:
    """Return one page of Markdown about what a landing on ``branch`` would bring, or else about the last landing.

    Raises UnknownId, NoCrew, Missing, GitFailed.
    """
    git, crew = open_clone(directory)
    name, tip = _find_branch(git, branch)
    new: frozenset[str] = frozenset()
    if crew is not None:
        state = crew.board.read()
        integration = branch_moves.branch_tip(git, state.config.integration_branch)
        if integration is not None and name != state.config.integration_branch:
            new = frozenset(git.lines("rev-list", integration, f"^{tip}", "--"))
            tip = integration if new else tip
    evidence = read_evidence(git, name, tip)
    landed = evidence_faults.list_landed(evidence)
    chosen = [commit for commit in landed if commit in new] if new else evidence_sheet.find_last(evidence, landed)
    return evidence_sheet.compose_sheet(evidence, chosen)


def render_commits(git: Git, branch: str, tip: str, commits: Iterable[str]) -> str:
    """Return the page about these commits, which ``tip`` contains. Raises GitFailed."""
    evidence, wanted = read_evidence(git, branch, tip), set(commits)
    chosen = [commit for commit in evidence_faults.list_landed(evidence) if commit in wanted]
    return evidence_sheet.compose_sheet(evidence, chosen)


def _find_branch(git: Git, branch: str | None) -> tuple[str, str]:
    name = branch or git_refs.current_branch(git)
    tip = git.find_commit("HEAD" if name is None else git_refs.HEADS + name)
    # A fresh clone has no branches of its own but one: those of its remote count, too.
    tip = tip or (None if name is None else git.find_commit(f"refs/remotes/origin/{name}"))
    if tip is None:
        raise UnknownId(f"there is no branch {name or 'HEAD'!r}", shlex.join(["git", "branch", "--all"]))
    return name or tip[:12], tip


def read_evidence(git: Git, branch: str, tip: str) -> LandedEvidence:
    """Return the notes of this clone, and what git says of the commits that they are about. Raises GitFailed."""
    history = notes_ref.read_history(git)
    present = notes_ref.list_notes(git)
    blobs = {blob for each in history for blob in each.changed.values() if blob is not None}
    objects = notes_ref.read_objects(git, {*blobs, *present.values()})
    texts = {blob: notes_ref.split_lines(text) for blob, text in objects.items()}
    lines = {commit: texts.get(blob, ()) for commit, blob in present.items()}
    notes, removed = evidence_faults.trace_lines(history, texts, lines)
    named = {*notes, *_list_named(lines)}
    commits = _read_commits(git, tip, named)
    chain = _walk(commits, tip, first_parent=True)
    has_notes = git.find_commit(NOTES_REF) is not None
    reachable = frozenset(_walk(commits, tip))
    return LandedEvidence(branch, tip, has_notes, notes, removed, commits, reachable, chain)


def _list_named(lines: dict[str, tuple[str, ...]]) -> set[str]:
    """Return the commits that verdicts and landings name."""
    named = set()
    for line in (line for note in lines.values() for line in note):
        statement = statements.decode_line(line)
        with suppress(msgspec.DecodeError):
            verdict = None if statement is None else statement.read_verdict()
            landing = None if statement is None else statement.read_landing()
            named |= {each.commit for each in (verdict.reviewed, verdict.tested) if each} if verdict else set()
            named |= {each.commit for each in landing.brought} if landing else set()
    return {commit for commit in named if COMMIT.fullmatch(commit)}


def _read_commits(git: Git, tip: str, named: Iterable[str]) -> dict[str, CommitFacts]:
    """Return what git says of ``tip``, of the named commits that exist, and of all that they contain."""
    words = ("log", "--ignore-missing", "--no-show-signature", "-z", "--format=%H%x01%T%x01%P%x01%s", "--stdin")
    tips = "".join(f"{commit}\n" for commit in (tip, *sorted(named)))
    output = git.with_timeout(_READ_LIMIT).raw(*words, stdin=tips).decode("utf-8", "replace")
    rows = (row.split("\1", 3) for row in output.split("\0") if row)
    return {commit: CommitFacts(tree, tuple(parents.split()), subject) for commit, tree, parents, subject in rows}


def _walk(commits: dict[str, CommitFacts], tip: str, *, first_parent: bool = False) -> tuple[str, ...]:
    """Return the commits that ``tip`` contains, itself first."""
    seen: dict[str, None] = {}
    waiting = [tip]
    while waiting:
        commit = waiting.pop()
        if commit in seen or commit not in commits:
            continue
        seen[commit] = None
        parents = commits[commit].parents
        waiting += parents[:1] if first_parent else parents
    return tuple(seen)
