"""The notes at ``refs/notes/liza``: statements about commits, one per line. Read, add, join and share them.

A note only gains lines: two notes of one commit are joined by the sorted union of their lines, as git's own strategy
``cat_sort_uniq`` does. Each commit of the ref is signed with the person's key if there is one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Final, NamedTuple

from liza.git import git_refs
from liza.git.git_remote import FETCH_OPTIONS, PUSH_OPTIONS, GitRemote
from liza.git.rules.note_commits import FETCH_COMMAND, NOTES_REF, NotesCommit, SignatureState
from liza.git.runner import COMMIT, Git, GitResult
from liza.model.errors import GitFailed
from liza.system import crash_points

_LAST_REF = "refs/liza/notes"
"""Where this clone left the notes: lines that others remove from ``refs/notes/liza`` come back."""
_DRAFT_REF = "refs/liza/notes-draft"
_FETCHED_REF = "refs/liza/notes-fetched"
_FAST_IMPORT = ("fast-import", "--quiet", "--done", "--date-format=raw", "--force")
_MAX_TRIES = 5
SIGN_LIMIT: Final = 20.0  # seconds: a program for keys may ask a person who is not there
READ_LIMIT: Final = 600.0  # seconds: each signature is checked by a process of its own
_KEY_SETTINGS = r"^(user\.signingkey|commit\.gpgsign|gpg\.ssh\.defaultkeycommand)$"


class SigningFailed(GitFailed):
    """The person's key could not sign: it is locked, or its program is missing. Nothing was written. Exit code 3."""

    code = "signing-failed"


class NotesTip(NamedTuple):
    """The notes as they were read: the commits of both refs, and the path and the object of each note."""

    tip: str | None
    last: str | None
    entries: dict[str, tuple[str, str]]


def read_tip(git: Git) -> NotesTip:
    """Return the notes of this clone. Raises GitFailed."""
    tip, last = git_refs.find_commits(git, NOTES_REF, _LAST_REF)
    return NotesTip(tip, last, {} if tip is None else _list_entries(git, tip))


def list_notes(git: Git, tip: str = NOTES_REF) -> dict[str, str]:
    """Return the object of each note, by the commit that it is about; none without the ref. Raises GitFailed."""
    return {commit: blob for commit, (_, blob) in _list_entries(git, tip).items()}


def read_notes(git: Git, notes: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Return the lines of notes of ``list_notes``. Raises GitFailed."""
    texts = read_objects(git, notes.values())
    return {commit: split_lines(texts.get(blob, "")) for commit, blob in notes.items()}


def read_objects(git: Git, blobs: Iterable[str]) -> dict[str, str]:
    """Return the texts of objects, by their ids; a missing one is left out. Raises GitFailed."""
    wanted = list(dict.fromkeys(blobs))
    if not wanted:
        return {}
    output = git.raw("cat-file", "--batch", stdin="".join(f"{blob}\n" for blob in wanted))
    texts: dict[str, str] = {}
    start = 0
    for blob in wanted:
        end = output.index(b"\n", start)
        words = output[start:end].split()
        start = end + 1
        if len(words) == 3:
            size = int(words[2])
            texts[blob] = output[start : start + size].decode("utf-8", "replace")
            start += size + 1
    return texts


def add_lines(
    git: Git, lines: Mapping[str, Iterable[str]], now: datetime, present: NotesTip | None = None
) -> str | None:
    """Add lines to the notes of commits, by commit. Return the commit of the notes; None if nothing was new.

    What this clone wrote before and others have removed comes back. ``present``: the notes as they were read before.
    Raises SigningFailed, GitFailed.
    """
    for _ in range(_MAX_TRIES):
        notes, present = present or read_tip(git), None
        others = () if notes.last is None else (notes.last,)
        number = f"{len(lines)} commit{'' if len(lines) == 1 else 's'}"
        message = f"Add evidence about {number}" if lines else "Bring back evidence that was removed"
        commit = _write(git, notes, others, lines, message, now)
        if commit == notes.tip:
            return None
        if commit is not None and _move(git, commit, notes.tip):
            return commit
    raise _explain_unmoved(git, "written")


def restore_lines(git: Git, now: datetime) -> NotesTip:
    """Bring back what this clone wrote and others have removed. Return the notes. Raises SigningFailed, GitFailed."""
    notes = read_tip(git)
    if notes.last in (None, notes.tip):
        return notes
    add_lines(git, {}, now, notes)
    return read_tip(git)


def _explain_unmoved(git: Git, what: str) -> GitFailed:
    """Return why the ref could not be moved."""
    if git_refs.refs_below(git, NOTES_REF) and git.find_commit(NOTES_REF) is None:
        return GitFailed(f"{NOTES_REF} names no commit", f"git update-ref -d {NOTES_REF} && liza doctor --fix")
    return GitFailed(f"{NOTES_REF} moved {_MAX_TRIES} times while it was {what}", f"git log {NOTES_REF}")


def join_notes(git: Git, other: str, now: datetime) -> None:
    """Add the lines of the notes at the commit ``other``. Raises SigningFailed, GitFailed."""
    for _ in range(_MAX_TRIES):
        notes = read_tip(git)
        commit = _write(git, notes, (other,), {}, f"Join the evidence of {other[:10]}", now)
        if commit is None or commit == notes.tip or _move(git, commit, notes.tip):
            return
    raise _explain_unmoved(git, "joined")


def share_notes(remote: GitRemote, now: datetime) -> bool:
    """Bring the notes of the remote here, and those of this clone there; nothing is overwritten, on either side.

    Return whether the remote has notes now. Raises SigningFailed, Refused, Missing, GitFailed.
    """
    git = remote.git
    result: GitResult | None = None
    for _ in range(_MAX_TRIES):
        theirs = remote.list_refs(NOTES_REF).get(NOTES_REF)
        if theirs is not None and git.find_commit(NOTES_REF) != theirs:
            fetched = remote.call("fetch", *FETCH_OPTIONS, patterns=[f"+{NOTES_REF}:{_FETCHED_REF}"])
            if fetched.code != 0:
                raise remote.explain(fetched, FETCH_COMMAND)
            join_notes(git, git.find_commit(_FETCHED_REF) or theirs, now)
        mine = git.find_commit(NOTES_REF)
        if mine == theirs:
            return mine is not None
        crash_points.point("notes", "joined")
        result = remote.call("push", *PUSH_OPTIONS, patterns=[f"{mine}:{NOTES_REF}"])
        if result.code == 0:
            return True
    assert result is not None
    raise remote.explain(result, f"git push {remote.name} {NOTES_REF}", f"git push {remote.name} {NOTES_REF}")


def has_signing_key(git: Git) -> bool:
    """Return whether the person has configured a key to sign with. Raises GitFailed."""
    result = git.run("config", "--show-scope", "--get-regexp", "-z", _KEY_SETTINGS, codes=(0, 1))
    fields = result.stdout.decode("utf-8", "replace").split("\0")
    for scope, row in zip(fields[::2], fields[1::2], strict=False):
        key, _, value = row.partition("\n")
        if scope == "command":  # what Liza itself sets
            continue
        if key != "commit.gpgsign" or value.strip().lower() in ("", "true", "yes", "on", "1"):
            return True
    return False


def _list_entries(git: Git, tip: str) -> dict[str, tuple[str, str]]:
    """Return the path and the object of each note. Any fan-out of directories is read."""
    result = git.run("ls-tree", "-r", "-z", "--full-tree", tip, codes=(0, 128))
    rows = (row.partition("\t") for row in result.stdout.decode("utf-8", "replace").split("\0") if row)
    entries = {}
    for facts, _, path in rows:
        commit = path.replace("/", "")
        if COMMIT.fullmatch(commit) and facts.split()[1] == "blob":
            entries[commit] = (path, facts.split()[2])
    return entries


def split_lines(text: str) -> tuple[str, ...]:
    """Return the lines of a note, each once."""
    # Git's own `notes append` and `notes merge` can repeat a line.
    return tuple(dict.fromkeys(filter(None, text.split("\n"))))


def _join(*texts: Iterable[str]) -> str:
    lines = sorted({line for text in texts for line in text})
    return "".join(f"{line}\n" for line in lines)


def _write(
    git: Git, notes: NotesTip, others: Iterable[str], lines: Mapping[str, Iterable[str]], message: str, now: datetime
) -> str | None:
    """Return a commit with the ``notes``, ``others`` and these lines; the tip of the ``notes`` if that has them all."""
    tip, entries = notes.tip, notes.entries
    others = [other for other in others if other != tip]
    # What ``tip`` contains, and has removed since, comes back without another parent.
    foreign = [other for other in others if tip is None or not git_refs.is_contained(git, other, tip)]
    if len(foreign) == 1 and (tip is None or git_refs.is_contained(git, tip, foreign[0])):
        tip, others, foreign = foreign[0], [tip] if tip is not None else [], []
        entries = _list_entries(git, tip)
    added = [{commit: split_lines(_join(new)) for commit, new in lines.items()}]
    for other in others:
        theirs = {name: blob for name, blob in list_notes(git, other).items() if entries.get(name, ("", ""))[1] != blob}
        added.append(read_notes(git, theirs))
    touched = {commit for texts_of in added for commit in texts_of}
    present = read_notes(git, {commit: entries[commit][1] for commit in touched if commit in entries})
    texts = {}
    for commit in sorted(touched):
        text = _join(present.get(commit, ()), *(texts_of.get(commit, ()) for texts_of in added))
        if text != _join(present.get(commit, ())):
            texts[commit] = text
    if not texts and not foreign:
        return tip
    draft = _import(git, tip, foreign, texts, entries, message, now)
    return _sign(git, draft, tip, foreign, message) if has_signing_key(git) else draft


def _import(
    git: Git,
    tip: str | None,
    foreign: Iterable[str],
    texts: Mapping[str, str],
    entries: Mapping[str, tuple[str, str]],
    message: str,
    now: datetime,
) -> str:
    """Write the objects with one git, and return the commit, which the draft ref keeps."""
    name, email = (re.sub(r"[<>\x00-\x1f]", "", part) for part in git.identity())
    commands = [f"reset {_DRAFT_REF}\ncommit {_DRAFT_REF}\nmark :1\n"]
    commands.append(f"committer {name} <{email}> {int(now.timestamp())} +0000\n{_data(message)}")
    commands += [f"from {tip}\n"] if tip is not None else []
    commands += [f"merge {other}\n" for other in foreign]
    for commit, text in texts.items():
        path = f"{commit[:2]}/{commit[2:]}"
        old = entries.get(commit, (path, ""))[0]
        commands += [f"D {old}\n"] if old != path else []
        commands.append(f"M 100644 inline {path}\n{_data(text)}")
    return git.out(*_FAST_IMPORT, stdin="".join([*commands, "get-mark :1\ndone\n"]))


def _data(text: str) -> str:
    return f"data {len(text.encode('utf-8', 'surrogateescape'))}\n{text}\n"


def _sign(git: Git, draft: str, tip: str | None, foreign: Iterable[str], message: str) -> str:
    """Return the commit again, signed. Raises SigningFailed."""
    parents = [word for parent in filter(None, (tip, *foreign)) for word in ("-p", parent)]
    signing = git.with_identity().with_timeout(SIGN_LIMIT)
    try:
        return signing.out("commit-tree", f"{draft}^{{tree}}", *parents, "-S", "-F", "-", stdin=f"{message}\n")
    except GitFailed as error:
        raise SigningFailed(f"the evidence cannot be signed: {error.message}", "liza doctor --fix") from error


def _move(git: Git, commit: str, expected: str | None) -> bool:
    """Move the ref from ``expected`` to ``commit``; return False if it has moved."""
    crash_points.point("notes", "written")
    rows = (f"update {NOTES_REF} {commit} {expected or '0' * len(commit)}", f"update {_LAST_REF} {commit}")
    return (
        git.run("update-ref", "--stdin", stdin="".join(f"{row}\n" for row in (*rows, f"delete {_DRAFT_REF}"))).code == 0
    )


_STATES = {"G": "GOOD", "U": "UNTRUSTED", "X": "EXPIRED", "Y": "EXPIRED", "R": "REVOKED", "B": "BAD", "E": "UNKNOWN"}


def read_history(git: Git) -> tuple[NotesCommit, ...]:
    """Return the commits of the notes, each after its parents; none without the ref. Raises GitFailed."""
    words = ("--topo-order", "--reverse", "-c", "--raw", "--no-abbrev", "--no-renames", "--root")
    form = "--format=%x01%H%x02%P%x02%G?%x02%GS%x02"
    checking = git.with_timeout(READ_LIMIT)
    result = checking.run("log", *words, form, NOTES_REF, "--", codes=(0, 128))
    blocks = result.stdout.decode("utf-8", "replace").split("\1")[1:]
    fields = [block.split("\2") for block in blocks]
    headers = read_objects(git, (row[0] for row in fields if row[2] in ("N", "")))
    return tuple(_parse_commit(row, headers.get(row[0], "")) for row in fields)


def _parse_commit(row: list[str], text: str) -> NotesCommit:
    commit, parents, mark, signer, raw = row
    # Of a signature of ssh git says nothing if no file of allowed signers is configured.
    is_signed = "\ngpgsig" in text.partition("\n\n")[0]
    state = SignatureState[_STATES[mark]] if mark in _STATES else SignatureState.UNKNOWN if is_signed else None
    changed: dict[str, str | None] = {}
    for line in raw.splitlines():
        facts, tab, path = line.partition("\t")
        if tab and facts.startswith(":"):
            blob = facts.split()[-2]
            name = path.rpartition("\t")[2].replace("/", "")
            if COMMIT.fullmatch(name) and (blob.strip("0") or name not in changed):
                changed[name] = blob if blob.strip("0") else None
    return NotesCommit(commit, state or SignatureState.UNSIGNED, signer.strip(), tuple(parents.split()), changed)
