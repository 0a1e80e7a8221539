"""Any order of closing, archiving, kills, restored boards and edits: no task is ever lost, nor in two places."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace

from liza.board.file_store import archive_files
from liza.model import invariants
from liza.model.model import FINAL_STATUSES, Status
from liza.model.paths import Paths
from liza.model.transitions import Invocation
from liza.system.clock import SystemClock
from liza.tasks import archive
from liza.tasks.rules import backlog, picking
from liza.tasks.rules.backlog import RequestContext, TaskFields
from tests.campaign.small_board import FIRST, child, crew_of, killed, opened, repository

ME = "human:me"
POINTS = st.sampled_from(
    [
        *("part#1", "part#2", "part#3", "synced.FILE#1", "renamed.FILE#1", "synced.log.yaml#1", "renamed.seal#1"),
        *("synced.next#1", "renamed.state.yaml#1", "fsynced.state.yaml#1"),
    ]
)


class Archive(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.place = Path(tempfile.mkdtemp())
        self.root = self.place / "p"
        repository(self.root)
        opened(self.root).create(FIRST)
        self.ids = ["t1", "t2"]
        self.texts = [opened(self.root).read_text()]

    def teardown(self) -> None:
        shutil.rmtree(self.place, ignore_errors=True)

    def task_ids(self) -> tuple[list[str], list[str]]:
        return [task.id for task in opened(self.root).read().tasks], archive_files.list_ids(Paths(self.root))

    @rule(number=st.integers(0, 20))
    def close(self, number: int) -> None:
        crew = crew_of(self.root)
        with crew.change(ME, "drop") as tx:
            still = [task.id for task in tx.state.tasks if task.status not in FINAL_STATUSES]
            if still:
                said = Invocation(now=crew.clock.now(), by=ME)
                tx.state = backlog.drop(tx.state, still[number % len(still)], said, "unlink")

    @rule(number=st.integers(0, 20))
    def merge(self, number: int) -> None:
        with crew_of(self.root).change(ME, "merge") as tx:
            still = [task for task in tx.state.tasks if task.status not in FINAL_STATUSES]
            if still:
                fields = {"merge_commit": "a" * 40, "review_commit": "b" * 40, "approved_by": "code-reviewer-1"}
                tx.state = tx.state.with_task(replace(still[number % len(still)], status=Status.MERGED, **fields))

    @rule(need=st.integers(0, 20))
    def add(self, need: int) -> None:
        crew = crew_of(self.root)
        task_id, needed = f"t{len(self.ids) + 1}", self.ids[need % len(self.ids)]
        with crew.change(ME, "add") as tx:
            archived = archive.find_outcomes(crew.board, tx.state, (task_id, needed))
            context = RequestContext(Invocation(now=crew.clock.now(), by=ME), frozenset({"a"}), archived)
            fields = TaskFields(task_id, "d", "w", "s", "a", depends_on=(needed,))
            tx.state = backlog.add(tx.state, [fields], context)
        self.ids.append(task_id)

    @rule(keep=st.integers(0, 2))
    def archive(self, keep: int) -> None:
        archive.archive_closed(crew_of(self.root), ME, keep)

    @rule(point=POINTS)
    def archive_and_die(self, point: str) -> None:
        point = point.replace("FILE", f"{SystemClock().now():%Y-%m}.yaml")
        code = child(lambda: archive.archive_closed(crew_of(self.root), ME), point)
        assert code == 0 or killed(code)

    @rule()
    def remember(self) -> None:
        self.texts.append(opened(self.root).read_text())

    @rule(number=st.integers(0, 20))
    def bring_back_an_old_board(self, number: int) -> None:
        """Only one that has every task that the archive lacks: what is nowhere else is not thrown away."""
        text = self.texts[number % len(self.texts)]
        archived = set(archive_files.list_ids(Paths(self.root)))
        if all(task_id in archived or f'"{task_id}"' in text for task_id in self.ids):
            opened(self.root).replace_text(ME, text)

    @invariant()
    def every_task_is_known_once(self) -> None:
        if not hasattr(self, "root"):
            return
        crew = crew_of(self.root)
        state = crew.board.read()
        on_board = [task.id for task in state.tasks]
        assert len(set(on_board)) == len(on_board)
        assert {task.id for task in state.tasks} | set(archive_files.list_ids(crew.paths)) == set(self.ids)
        assert invariants.check_board(state) == ()
        for task_id in self.ids:
            task = archive.find_task(crew.board, state, task_id)
            assert task is not None
            assert task.id == task_id
        for task in state.tasks:
            for needed in picking.unmet_dependencies(state, task):
                other = archive.find_task(crew.board, state, needed)
                assert other is not None
                assert other.status is not Status.MERGED

    @invariant()
    def after_another_move_all_numbers_agree(self) -> None:
        if not hasattr(self, "root"):
            return
        copy = self.place / "copy"
        shutil.copytree(self.root, copy, symlinks=True)
        with crew_of(copy).change(ME, "drop") as tx:
            still = [task.id for task in tx.state.tasks if task.status not in FINAL_STATUSES]
            for task_id in still:
                tx.state = backlog.drop(tx.state, task_id, Invocation(now=SystemClock().now(), by=ME), "unlink")
        archive.archive_closed(crew_of(copy), ME)
        state = opened(copy).read()
        assert state.tasks == ()
        assert state.archived.total == len(self.ids)
        assert state.sprint.metrics["total"] == len(self.ids)
        shutil.rmtree(copy)


TestArchive = pytest.mark.campaign(Archive.TestCase)
TestArchive.settings = settings(
    max_examples=12,
    stateful_step_count=12,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
