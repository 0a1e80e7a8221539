"""A symbolic ref in place of a branch that Liza moves: its target stays."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir, suppress
from pathlib import Path

import pytest

from liza.crew.crew import Crew, find_crew
from liza.landing.sync import sync
from liza.merging.merge import merge
from liza.model.errors import Refused
from liza.supervisor.down import purge
from liza.tasks.submit import submit
from liza.tasks.verdict import verdict
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges
from tests.edges.merging.test_integration import claimed, crew, made  # noqa: F401  # one preparation serves both files

MAIN, INTEGRATION = "refs/heads/main", "refs/heads/integration"


def plant(crew: Crew, *refs: str, named: str = MAIN) -> None:  # noqa: F811
    for ref in refs:
        git(crew.paths.root, "symbolic-ref", ref, named)


def of_the_person(crew: Crew) -> tuple[str, bytes, str]:  # noqa: F811
    """main's tip, its log, and the state of the checkout."""
    log = crew.paths.root / ".git/logs" / MAIN
    return git(crew.paths.root, "rev-parse", MAIN), log.read_bytes(), git(crew.paths.root, "status", "-b", "--short")


def submitted(crew: Crew) -> None:  # noqa: F811
    with chdir(crew.paths.task_link("c").resolve()):
        submit(find_crew(crew.paths.root))


def approved(crew: Crew) -> None:  # noqa: F811
    submitted(crew)
    verdict(crew, "approve", "seen", task_id="c")


def merge_planted(crew: Crew) -> None:  # noqa: F811
    approved(crew)
    plant(crew, INTEGRATION)
    merge(crew, "c")


def sync_planted(crew: Crew) -> None:  # noqa: F811
    plant(crew, INTEGRATION)
    sync(crew, "main")


@pytest.mark.parametrize("act", [merge_planted, variant(sync_planted)], ids=["merge", "sync"])
def test_a_symbolic_integration_branch_moves_no_branch_of_a_person(
    crew: Crew,  # noqa: F811
    act: Callable[[Crew], None],
) -> None:
    claimed(crew)
    before = of_the_person(crew)
    with suppress(Refused):  # a sync sees that integration was moved
        act(crew)
    assert of_the_person(crew) == before


def test_a_purge_deletes_a_symbolic_integration_but_not_its_target(crew: Crew) -> None:  # noqa: F811
    before = of_the_person(crew)
    plant(crew, INTEGRATION)
    assert INTEGRATION in purge(crew).deleted_refs
    assert git(crew.paths.root, "for-each-ref", "--format=%(refname)", INTEGRATION) == ""
    assert of_the_person(crew) == before


def test_a_commit_by_tests_on_a_persons_branch_is_reported(
    crew: Crew,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "notes").mkdir()
    merges = Merges(crew.paths.root, tmp_path / "notes")
    merges.approved("d")
    git(merges.root, "switch", "-q", "-c", "mine")
    merges.tests(f"[ -e d.txt ] || exit 0\ngit symbolic-ref HEAD {MAIN} && git commit -q --allow-empty -m planted")
    merge(merges.crew, "d")
    assert git(merges.root, "log", "-1", "--format=%s", MAIN) == "planted"
    assert f"the tests of d moved {MAIN}. " in merges.alerts()
