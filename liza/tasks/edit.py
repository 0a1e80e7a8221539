"""edit, lock: change the board by hand, in an editor, as a text or by a command; the changes are checked."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from liza.board.contract import Board
from liza.board.text import document
from liza.board.text.document import Document
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew.caller import RunCaller, identify_caller, require_person
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import board_history
from liza.model import invariants
from liza.model.configuration import Config
from liza.model.errors import BoardInconsistent, BoardUnreadable, LizaError, Missing, Refused, UsageError
from liza.model.model import SpecChange
from liza.model.paths import Paths
from liza.model.value_classes import Value, replace
from liza.system.locks import Lock
from liza.system.program_path import run_command
from liza.tasks.draft_specs import find_existing_specs
from liza.tasks.next_steps import find_next_step, with_next_step
from liza.tasks.rules import edits
from liza.tasks.rules.edits import Editor, apply_edit
from liza.text.redaction import describe_secrets

_COPY, _BASE, _GOAL_COPY = "state.yaml", "base.yaml", "goal.txt"


def edit(crew: Crew, what: str, kept: Path | None = None) -> Result:
    """Open the board, or the goal's text, in an editor. ``kept`` is a copy that an earlier edit kept.

    Raises UsageError, Refused, Missing, BoardInconsistent: then nothing was written, and the copy is kept.
    """
    by = require_person(crew, planner=False)
    if what == "goal":
        return _goal(crew, by)
    if what != "board":
        raise UsageError(f"{what!r} cannot be edited: board or goal", "liza edit goal")
    directory = _copy_board(crew.board) if kept is None else _find_copy(kept)
    copy, base = directory / _COPY, (directory / _BASE).read_bytes().decode()
    _open_editor(copy, "liza edit")
    typed = copy.read_bytes().decode("utf-8", "replace")
    if typed == base:
        shutil.rmtree(directory)
        return Result(
            "unchanged", None, None, "liza status", {"warnings": _warnings(typed)}, _edit_message(typed, "unchanged")
        )
    try:
        apply_person_edit(crew, by, base, typed)
    except LizaError as error:
        raise type(error)(f"{error.message}\nyour copy is kept in {copy}", f"liza edit --from {copy}") from error
    shutil.rmtree(directory)
    details = {"revision": crew.board.read().revision, "warnings": _warnings(typed)}
    return Result("changed", None, None, "liza status", details, _edit_message(typed, "changed"), _remarks(base, typed))


def _remarks(before: str, after: str) -> tuple[str, ...]:
    """Return remarks about the lines that were typed."""
    lines = set(before.splitlines())
    return describe_secrets("", "\n".join(line for line in after.splitlines() if line not in lines))


def _edit_message(typed: str, result: str) -> str:
    return "\n".join([result, *(f"warning: {text}" for text in _warnings(typed))])


def _warnings(typed: str) -> list[str]:
    """Warnings about unknown configuration keys: they break no rule but have no effect."""
    try:
        return [settings.describe_unknown_key(key) for key in document.find_unknown_config(typed)]
    except BoardUnreadable:
        # The board was unreadable before and the person changed nothing: a changed text is checked before this.
        return []


def apply_person_edit(crew: Crew, by: str, base: str, typed: str) -> None:
    """Merge the changes from ``base`` to ``typed`` into the board, entry by entry. Raises LizaError."""
    before = _config(base)
    changed = settings.changed_settings(before, document.load_state(typed, "your copy").config)
    try:
        crew.board.read()
    except BoardUnreadable:
        if crew.board.read_text() != base:
            raise
        crew.board.replace_text(by, typed)
    else:
        crew.board.transform_text(by, lambda now: merge_edits(base, typed, now))
    confirmed_settings.confirm_settings(crew.paths, changed, before)


def _config(base: str) -> Config:
    """Settings before the edit; the defaults if that board cannot be read."""
    try:
        return document.load_state(base).config
    except BoardUnreadable:
        return Config()


def _copy_board(board: Board) -> Path:
    text = board.read_text().encode()
    directory = Path(tempfile.mkdtemp(prefix="liza-edit-"))
    (directory / _COPY).write_bytes(text)
    (directory / _BASE).write_bytes(text)
    return directory


def _find_copy(kept: Path) -> Path:
    if not kept.is_file() or not (kept.parent / _BASE).is_file():
        raise Missing(f"{kept} is not a copy that liza edit kept", "liza edit")
    return kept.parent


def _goal(crew: Crew, by: str) -> Result:
    spec = crew.board.read().goal.spec_ref
    if not spec.startswith(".liza/specs/"):
        raise Refused(
            f"the goal is {spec}, a file of the repository: edit it and commit it", f"git add {spec} && git commit"
        )
    crew.update_pages()
    path = crew.paths.root / spec
    before = path.read_bytes() if path.exists() else b""
    _open_editor(path, "liza edit goal")
    after = path.read_bytes() if path.exists() else b""
    if after == before:
        return Result("unchanged", None, None, find_next_step(crew, crew.board.read(), "").command, {"path": str(path)})
    change = SpecChange(timestamp=crew.clock.now(), spec=spec, change="edited", triggered_by=by)
    with crew.change(by, "edit goal") as tx:
        tx.state = replace(tx.state, spec_changes=(*tx.state.spec_changes, change))
    remarks = _remarks(before.decode(errors="replace"), after.decode(errors="replace"))
    step = find_next_step(crew, crew.board.read(), "a planner goes on", "planner")
    result = Result("changed", None, None, step.command, {"path": str(path)}, "changed", remarks)
    return with_next_step(result, step)


def edit_goal(crew: Crew) -> Result:
    """Open description and document of the goal in an editor. The document must exist.

    Raises UsageError, Refused, Missing; then nothing was written.
    """
    by = require_person(crew, planner=False)
    goal = crew.board.read().goal
    with tempfile.TemporaryDirectory(prefix="liza-edit-") as directory:
        path = Path(directory) / _GOAL_COPY
        path.write_text(edits.format_goal(goal))
        _open_editor(path, "liza edit --goal")
        description, spec = edits.parse_goal(path.read_text())
    if (description, spec) == (goal.description, goal.spec_ref):
        return Result("unchanged", None, None, "liza status")
    if spec != goal.spec_ref and not find_existing_specs(crew, [spec]):
        branch = crew.board.read().config.integration_branch
        raise Refused(f"the document {spec} is not committed on {branch}: commit it first", "liza sync")
    change = SpecChange(timestamp=crew.clock.now(), spec=spec, change="is the goal's document", triggered_by=by)
    with crew.change(by, "edit goal") as tx:
        # Another change of the goal, such as its status, stays.
        edited = replace(tx.state.goal, description=description, spec_ref=spec)
        tx.state = replace(tx.state, goal=edits.note_edit(tx.state.goal, edited, by, crew.clock.now()))
        if spec != goal.spec_ref:
            tx.state = replace(tx.state, spec_changes=(*tx.state.spec_changes, change))
    details, remarks = {"description": description, "spec_ref": spec}, _remarks(goal.description, description)
    if description != goal.description and _has_text(crew.paths, spec, goal.description):
        message = f"changed; {spec} has the former sentence"
        return Result("changed", None, None, "liza edit goal", details, message, remarks)
    return Result("changed", None, None, "liza status", details, remarks=remarks)


def _has_text(paths: Paths, spec: str, text: str) -> bool:
    """Whether a document of the goal that belongs to Liza has the text. Planners read the document, too."""
    path = paths.root / spec
    return spec.startswith(".liza/specs/") and path.is_file() and text in path.read_text(errors="replace")


def _open_editor(path: Path, command: str) -> None:
    """Open a file in the person's editor. ``command``: the command of Liza that was typed, for the hint."""
    editor = os.environ.get("VISUAL") or os.environ.get("EDITOR")
    if not editor and not sys.stdin.isatty():
        raise UsageError("there is no terminal, and EDITOR is not set", f"EDITOR='code --wait' {command}")
    process = subprocess.run(["/bin/sh", "-c", f'{editor or "vi"} "$1"', "liza-edit", str(path)], check=False)
    if process.returncode != 0:
        raise Refused(
            f"the editor {editor or 'vi'!r} exited with status {process.returncode}; nothing was written", command
        )


EntryKey = tuple[str, str]


def merge_edits(base: str, mine: str, now: str) -> str:
    """Apply the changes from ``base`` to ``mine`` to ``now``, entry by entry; comments and order stay as typed.

    Raises Refused if an entry changed on both sides (the message shows both), BoardUnreadable if a text is not a board.
    """
    if now in (base, mine):
        return mine
    documents = [document.read_document(text) for text in (base, mine, now)]
    if any(text.is_whole for text in documents):
        raise Refused("the board changed meanwhile, and its text cannot be split into entries", "liza edit")
    old, typed, current = (_entries(text) for text in documents)
    merged: dict[EntryKey, str] = {}
    for key in current:
        text = _merge_entry(key, old.get(key), typed.get(key), current[key])
        if text is not None:
            merged[key] = text
    for key in typed:
        if key not in current and key in old and typed[key] != old[key]:
            raise _conflict_error(key, typed[key], "(gone)")
    return "".join(_insert_added(merged, old, typed))


def _entries(board: Document) -> dict[EntryKey, str]:
    return {name: part.text for name, part in zip(board.names, board.parts, strict=True)}


def _merge_entry(key: EntryKey, old: str | None, typed: str | None, now: str) -> str | None:
    if typed == old:
        return now
    if now in (old, typed):
        return typed
    raise _conflict_error(key, typed if typed is not None else "(taken out)", now)


def _insert_added(merged: dict[EntryKey, str], old: dict[EntryKey, str], typed: dict[EntryKey, str]) -> list[str]:
    """Return the texts in order; an added entry follows the entry after which it was typed."""
    order = list(merged)
    previous: EntryKey | None = None
    for key in typed:
        if key not in merged and key not in old:
            merged[key] = typed[key]
            order.insert(order.index(previous) + 1 if previous is not None else 0, key)
        if key in merged:
            previous = key
    return [merged[key] for key in order]


def _conflict_error(key: EntryKey, mine: str, now: str) -> Refused:
    name = " ".join(word for word in key if word)
    return Refused(
        f"{name} was changed by another process meanwhile; nothing was written.\nyours:\n{mine}now:\n{now}".rstrip(),
        "liza edit",
    )


MAX_AGE = 1000
"""Revisions for which the board that a text was made from is searched."""
_TEXT_NAME = "the text on stdin"


def hand_in(crew: Crew, text: str) -> Result:
    """Merge the changes of a text of the board: a person's, or those that the calling run could make by verbs.

    Its key ``revision`` says from which board it was made. Raises Refused that names the key, UsageError,
    BoardUnreadable, BoardInconsistent, GitFailed; then nothing was written.
    """
    caller = identify_caller(crew)
    typed = document.load_state(text, _TEXT_NAME)
    base = _find_base(crew, typed.revision)
    if isinstance(caller, RunCaller):
        editor = Editor(caller.run, caller.task, crew.clock.now())
        base_state = document.load_state(base)
        with crew.change(caller.run, "edit", caller.task) as tx:
            tx.state = apply_edit(base_state, typed, tx.before, editor)
        return make_result(tx.before, tx.state, caller.task, "continue your task", revision=tx.state.revision)
    before = crew.board.read()
    apply_person_edit(crew, caller, base, text)
    after = crew.board.read()
    return make_result(before, after, None, "liza status", revision=after.revision)


def _find_base(crew: Crew, revision: int) -> str:
    """Return the board of a revision, from board, journal or history. Raises Refused, UsageError, GitFailed."""
    text = crew.board.read_text()
    newest = document.load_state(text).revision
    if revision == newest:
        return text
    if revision > newest:
        raise UsageError(f"there is no revision {revision} of the board: the newest is {newest}", "liza edit --print")
    for line, kept in crew.board.texts(revision):
        if line.revision == revision:
            return kept
    limit = newest - revision + 1
    for entry in board_history.list_revisions(crew.git, None, limit) if limit <= MAX_AGE else ():
        if entry.revision == revision:
            return board_history.read_board_at(crew.git, entry.commit)
    raise Refused(f"the board of revision {revision} is too old to merge: the newest is {newest}", "liza edit --print")


MAX_SHOWN = 3
_OUTSIDE_PREFIX = "changed outside liza: "


class LockedRun(Value):
    """Exit status of a command that ran with the lock, and the first new error of the board, if any."""

    exit_status: int
    board_error: LizaError | None = None


def lock(crew: Crew, command: Sequence[str]) -> LockedRun:
    """Run ``command`` with the board's lock held; the exit status is 128 + n if signal n killed it.

    Its changes count as an edit from outside: they are kept and checked. Raises LockTimeout, Missing, Refused inside a
    session.
    """
    require_person(crew, planner=False)
    crew.board.require_files("liza lock")
    with suppress(BoardInconsistent):
        # Reading records earlier edits from outside first, so that they are not attributed to this command.
        crew.board.read()
    newest = next(crew.board.records(), None)
    before = 0 if newest is None else newest.revision
    with Lock(crew.paths.state_lock):
        status = run_command(command)
    return LockedRun(status, _find_damage(crew, before))


def _find_damage(crew: Crew, before: int) -> LizaError | None:
    """Return the errors that are new since revision ``before``.

    They are read from the journal, because another process may have checked the board first.
    """
    try:
        state = crew.board.read()
        crew.log_board_alerts()
        records = takewhile(lambda record: record.revision > before, crew.board.records())
        alerts = [alert.removeprefix(_OUTSIDE_PREFIX) for record in records for alert in record.alerts]
    except LizaError as error:
        return error
    if not alerts:
        return None
    shown = alerts[:MAX_SHOWN] + [f"and {len(alerts) - MAX_SHOWN} more"] * (len(alerts) > MAX_SHOWN)
    is_broken = not {str(violation) for violation in invariants.check_board(state)}.isdisjoint(alerts)
    rules = "a rule" if len(alerts) == 1 else f"{len(alerts)} rules"
    message = f"the changes of the command are kept, and break {rules} that held before:"
    return BoardInconsistent("\n    ".join([message, *shown]), "liza edit" if is_broken else "liza history -p")
