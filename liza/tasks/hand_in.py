"""edit --from -: hand in a whole text of the board; what changed in it is checked and merged under the lock."""

from __future__ import annotations

from liza.board.text import document
from liza.crew.caller import RunCaller, identify_caller
from liza.crew.crew import Crew
from liza.crew.result import Result, make_result
from liza.git import board_history
from liza.model.errors import Refused, UsageError
from liza.tasks.edit import apply_person_edit
from liza.tasks.rules.session_edits import Editor, apply_edit

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
    """Return the board of a revision, from board, spool or history. Raises Refused, UsageError, GitFailed."""
    text = crew.board.read_text()
    newest = document.load_state(text).revision
    if revision == newest:
        return text
    if revision > newest:
        raise UsageError(f"there is no revision {revision} of the board: the newest is {newest}", "liza edit --print")
    for number, spooled in crew.board.spool.rebuild_texts():
        if number == revision:
            return spooled
    limit = newest - revision + 1
    for entry in board_history.list_revisions(crew.git, None, limit) if limit <= MAX_AGE else ():
        if entry.revision == revision:
            return board_history.read_board_at(crew.git, entry.commit)
    raise Refused(f"the board of revision {revision} is too old to merge: the newest is {newest}", "liza edit --print")
