"""Random verbs of all roles on a board in files and on one in PostgreSQL: the same answers, refusals and texts."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule, run_state_machine_as_test
from msgspec.structs import replace

from liza.board import archived_entries
from liza.board.contract import Board, Transaction
from liza.board.file_store.file_board import FileBoard
from liza.board.postgresql.postgres_board import PostgresBoard
from liza.board.text import document
from liza.model.derived import update_derived_fields
from liza.model.errors import LizaError
from liza.model.model import State
from liza.model.paths import Paths
from liza.system.clock import SystemClock
from tests.conftest import variant
from tests.postgresql import PostgreSQL
from tests.unit.board.line_edits import LineEdit, edited, line_edits
from tests.unit.machine.crew_machine import PERSON, CrewMachine, Predict, indexes

GOAL = "goal:\n  id: goal\n  description: a goal\n  status: IN_PROGRESS\n"
FIRST = f"# The board of a test.\nversion: 1\nrevision: 1\nmood: good # no field of the model\n{GOAL}"
SHORT = 5
"""Examples of the test in ``bin/test``, which are the same each time."""
_crews = count(1)


class TwoStores(CrewMachine):
    """Each verb of ``CrewMachine`` is played on both boards, too. Two objects for each board take turns."""

    server: ClassVar[PostgreSQL]
    database: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.directory = Path(tempfile.mkdtemp())
        self.turn = 0
        paths = Paths(self.directory)
        address = self.server.address(self.database, crew=f"crew-{next(_crews)}")
        self.files: list[Board] = [FileBoard(paths, SystemClock()) for _ in range(2)]
        self.rows = [PostgresBoard(paths, SystemClock(), address) for _ in range(2)]
        for board in (self.files[0], self.rows[0]):
            board.create(FIRST)

        self.texts = {1: self.files[0].read_text()}

    def both(self, action: Callable[[Board], object]) -> None:
        """Do the same on both boards, and compare what comes of it."""
        self.turn = 1 - self.turn
        answers = [_answer(action, board) for board in (self.files[self.turn], self.rows[self.turn])]
        assert answers[0] == answers[1]
        text = self.files[1 - self.turn].read_text()
        assert text == self.rows[1 - self.turn].read_text()
        self.texts.setdefault(document.load_state(text).revision, text)

    def play(self, predict: Predict, change: Any, *args: Any, on: State | None = None, **named: Any) -> bool:
        before = self.state
        is_allowed = super().play(predict, change, *args, on=on, **named)
        self.both(lambda board: _play_on(board, on or before, change, args, named))
        return is_allowed

    @rule(index=indexes, kind=st.sampled_from(["comment", "key", "first", "again"]))
    def person_edits_the_text(self, index: int, kind: str) -> None:
        mark = f'  - id: "{self.task_at(index)}"\n'

        def rewritten(text: str) -> str:
            if kind == "first":
                head, _, rest = text.partition("tasks:\n")
                before, found, after = rest.partition(mark)
                entry, section, others = after.partition("  - id:") if "  - id:" in after else (after, "", "")
                return text if not found or not section else f"{head}tasks:\n{mark}{entry}{before}{section}{others}"
            added = {"comment": f"  # about it\n{mark}", "key": f"{mark}    color: blue\n", "again": mark}[kind]
            return text if "color: blue" in text and kind == "key" else text.replace(mark, added)

        self.both(lambda board: board.transform_text(PERSON, rewritten))

    @rule(edit=line_edits)
    def person_edits_lines(self, edit: LineEdit) -> None:
        self.both(lambda board: board.transform_text(PERSON, lambda text: edited(text, edit)))

    @rule(index=indexes, seconds=st.integers(0, 50))
    def heartbeats_change_no_revision(self, index: int, seconds: int) -> None:
        names = list(self.state.agents) or [""]

        def beat(board: Board) -> None:
            with board.heartbeat(names[index % len(names)]) as tx:
                agent = tx.state.agents.get(names[index % len(names)])
                if agent is not None:
                    moment = self.model.now + timedelta(seconds=seconds)
                    tx.state = tx.state.with_agent(names[index % len(names)], replace(agent, heartbeat=moment))

        self.both(beat)

    @rule(name=st.sampled_from(["PAUSE", "CHECKPOINT", "HALT"]), text=st.sampled_from(["", "why\n"]))
    def signals_are_set_and_cleared(self, name: str, text: str) -> None:
        self.both(lambda board: board.raise_signal(name, text) if text else board.clear_signal(name))
        self.both(lambda board: {signal.name: signal.text for signal in board.signals().values()})

    def teardown(self) -> None:
        try:
            self.both(_summarize)
            for board in (self.files[0], self.rows[0]):
                assert {line.revision: text for line, text in board.texts()} == self.texts
        finally:
            for board in self.rows:
                board.close()
            shutil.rmtree(self.directory, ignore_errors=True)


def _answer(action: Callable[[Board], object], board: Board) -> object:
    try:
        return action(board)
    except LizaError as refusal:
        return type(refusal), refusal.message, refusal.hint


def _play_on(board: Board, state: State, change: Any, args: Any, named: Any) -> object:
    """Play a verb on the board; return its answer and the revision. ``state`` is the board as the machine has it."""
    with board.transaction(PERSON, change.__name__) as tx:
        result = change(replace(state, revision=tx.state.revision), *args, **named)
        after, returned = result if isinstance(result, tuple) else (result, None)
        _move(tx, after)
        tx.state = update_derived_fields(after)
    return returned, tx.revision


def _move(tx: Transaction, after: State) -> None:
    """Move to the archive what a verb took from the board."""
    gone = {task.id for task in tx.before.tasks} - {task.id for task in after.tasks}
    if gone:
        tx.moved = archived_entries.movable_texts(tx.document, gone)


def _summarize(board: Board) -> object:
    """All that a board has, without the times of its journal."""
    records = [replace(record, time="") for record in board.records()]
    tasks = [task.id for task in board.archived_tasks()]
    return board.read(), records, tasks, board.count_archived(()), board.unknown_config()


@pytest.mark.parametrize(("examples", "steps"), [(SHORT, 30), variant(250, 40, name="10,000 verbs")])
def test_random_verbs_have_the_same_results_on_both_stores(
    postgresql: PostgreSQL, database: str, examples: int, steps: int
) -> None:
    TwoStores.server, TwoStores.database = postgresql, database
    is_short = examples == SHORT
    run_state_machine_as_test(
        TwoStores,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=is_short,
            phases=[Phase.generate] if is_short else list(Phase),  # To shrink a failure takes minutes.
        ),
    )
