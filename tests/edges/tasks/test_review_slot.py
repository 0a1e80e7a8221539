"""The slot of a reviewer at the start of a session: emptied by the claim, and again once something has run in it."""

from __future__ import annotations

import os
from contextlib import chdir

import pytest
from msgspec import structs

from liza.crew.crew import Crew, find_crew
from liza.model.derived import find_current_work
from liza.programs.presets import preset_table, program_choice
from liza.supervisor.launch import Launcher
from liza.tasks.claim import claim_review
from liza.tasks.submit import submit
from tests.conftest import git
from tests.edges.merging.test_integration import claimed, crew, made  # noqa: F401  # one preparation serves both files

REVIEWER = "code-reviewer-1"


@pytest.mark.sample(1)
@pytest.mark.parametrize("cause", [None, "session", "set-up"])
def test_a_review_slot_is_emptied_only_after_possible_use(
    crew: Crew,  # noqa: F811
    cause: str | None,
) -> None:
    claimed(crew)
    with chdir(crew.paths.task_link("c").resolve()):
        submit(find_crew(crew.paths.root))
    run = claim_review(crew, REVIEWER, "c").details["run"]
    slot = crew.paths.slot(REVIEWER)
    assert git(slot, "rev-parse", "HEAD") == crew.board.read().task("c").review_commit
    (slot / "left.txt").write_text("by whatever ran here\n")
    if cause == "session":
        crew.run_dir(run).path.mkdir(parents=True)
    state = crew.board.read()
    if cause == "set-up":
        state = structs.replace(state, config=structs.replace(state.config, sandbox_setup="true"))
    presets = preset_table.load_presets(crew.paths)
    program = program_choice.choose_program("script:/bin/true", os.environ, "code-reviewer", state.config, presets)
    work = find_current_work(state, REVIEWER)
    assert work is not None
    Launcher(crew, program.preset, dict(os.environ))._prepare_worktree(state, work)
    assert (slot / "left.txt").exists() == (cause is None)
