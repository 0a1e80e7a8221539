"""Symbolic refs where Liza's own belong: none is followed, whatever it names stays as it is, and each is reported."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import chdir
from pathlib import Path

import pytest

from liza.crew.crew import Crew, find_crew
from liza.crew.current_alarms import find_alarms
from liza.crew.evidence import gather_evidence
from liza.crew.recovery import findings
from liza.crew.recovery.recover import recover_crew
from liza.repo import symbolic_refs
from liza.repo.merge import merge_refs
from liza.rules.alarm_kinds import Alarm
from liza.rules.errors import LizaError, Missing, Refused
from liza.verbs.claim import claim
from liza.verbs.down import purge
from liza.verbs.merge import merge
from liza.verbs.submit import submit
from liza.verbs.sync import sync
from liza.verbs.task import release
from liza.verbs.verdict import verdict
from tests.conftest import git, variant
from tests.edges.merge_crew import Merges
from tests.edges.test_integration import claimed, crew, made  # noqa: F401  # one preparation serves both files

MAIN, INTEGRATION, TASK = "refs/heads/main", "refs/heads/integration", "refs/heads/task/c"
NO_TASK, NO_INTEGRATION = f"{TASK} is a symbolic ref to {MAIN}", f"{INTEGRATION} is a symbolic ref to {MAIN}"
DELETE, PUT = f"git symbolic-ref --delete {TASK}", f"git update-ref --no-deref {INTEGRATION} "


def plant(crew: Crew, *refs: str, named: str = MAIN) -> None:  # noqa: F811
    for ref in refs:
        git(crew.paths.root, "symbolic-ref", ref, named)


def of_the_person(crew: Crew) -> tuple[str, bytes, str]:  # noqa: F811
    """main's tip, its log, and the state of the checkout."""
    log = crew.paths.root / ".git/logs" / MAIN
    return git(crew.paths.root, "rev-parse", MAIN), log.read_bytes(), git(crew.paths.root, "status", "-b", "--short")


def alarms_of(crew: Crew) -> list[Alarm]:  # noqa: F811
    state = crew.board.read()
    return list(find_alarms(crew, state, gather_evidence(crew, state)))


def submitted(crew: Crew) -> None:  # noqa: F811
    with chdir(crew.paths.task_link("c").resolve()):
        submit(find_crew(crew.paths.root))


def approved(crew: Crew) -> None:  # noqa: F811
    submitted(crew)
    verdict(crew, "approve", "seen", task_id="c")


def claim_again(crew: Crew) -> None:  # noqa: F811
    release(crew, "c")
    plant(crew, TASK)
    claim(crew, "coder-2", "c")


def submit_planted(crew: Crew) -> None:  # noqa: F811
    plant(crew, TASK)
    submitted(crew)


def merge_planted(crew: Crew) -> None:  # noqa: F811
    approved(crew)
    plant(crew, INTEGRATION)
    merge(crew, "c")


def sync_planted(crew: Crew) -> None:  # noqa: F811
    plant(crew, INTEGRATION)
    sync(crew, "main")


def through_own(crew: Crew) -> None:  # noqa: F811
    """Each ref that a task has on its way, and whatever recovery puts right between."""
    refs = [f"refs/liza/{kind}/c" for kind in ("review", "candidates", "tested", "laid-back")]
    plant(crew, *refs, "refs/liza/salvage/c/coder-1.1")
    approved(crew)
    assert symbolic_refs.symbolic_target(crew.git, refs[0]) is None, "submit wrote the ref itself"
    plant(crew, *refs, "refs/liza/integration")
    assert merge_refs.list_tested(crew.git) == {}, "a symbolic ref is no record"
    recover_crew(crew, "doctor")
    assert merge(crew, "c").details["merge_commit"] == git(crew.paths.root, "rev-parse", INTEGRATION)


@pytest.mark.parametrize(
    ("act", "wrong", "says", "hint"),
    [
        (claim_again, Refused, NO_TASK, DELETE),
        (submit_planted, Refused, NO_TASK, DELETE),
        variant(merge_planted, Missing, NO_INTEGRATION, PUT),
        variant(sync_planted, Missing, NO_INTEGRATION, PUT),
        variant(through_own, None, "", ""),
    ],
    ids=["claim", "submit", "merge", "sync", "own refs"],
)
def test_nothing_that_a_task_goes_through_follows_a_symbolic_ref(
    crew: Crew,  # noqa: F811
    act: Callable[[Crew], None],
    wrong: type[LizaError] | None,
    says: str,
    hint: str,
) -> None:
    claimed(crew)
    before = of_the_person(crew)
    if wrong is None:
        act(crew)
    else:
        with pytest.raises(wrong, match=says) as refused:
            act(crew)
        assert refused.value.hint.startswith(hint)
    assert of_the_person(crew) == before


def test_each_is_reported_by_name_with_the_command_that_has_it_plain_again(crew: Crew) -> None:  # noqa: F811
    root, left = crew.paths.root, git(crew.paths.root, "rev-parse", "refs/liza/integration")
    before = of_the_person(crew)
    odd = {"refs/heads/task/odd", "refs/liza/blackboard", "refs/liza/review/odd"}
    git(root, "update-ref", "-d", "refs/liza/blackboard")
    plant(crew, INTEGRATION, *odd)
    plant(crew, "refs/liza/candidates/nowhere", named="refs/heads/nowhere")
    alarms = {one.about: one for one in alarms_of(crew) if one.kind == "symbolic_ref"}
    assert alarms.keys() == {INTEGRATION, *odd, "refs/liza/candidates/nowhere"}
    told = [one for one in findings.list_findings(crew, crew.board.read()) if "is a symbolic ref to" in one.text]
    assert {(one.text, one.hint) for one in told} >= {(one.message, one.next) for one in alarms.values()}
    for alarm in alarms.values():
        assert alarm.next.startswith("git ")
        git(root, *alarm.next.split()[1:])
    assert not {"symbolic_ref", "integration_moved"} & {one.kind for one in alarms_of(crew)}
    assert git(root, "rev-parse", INTEGRATION) == left
    assert of_the_person(crew) == before


def test_a_purge_takes_the_symbolic_refs_and_leaves_what_they_name(crew: Crew) -> None:  # noqa: F811
    before = of_the_person(crew)
    kinds = ("salvage/x/coder-1.1", "candidates/zz", "tested/zz", "review/zz", "laid-back/zz", "specs")
    planted = [INTEGRATION, "refs/heads/task/zz", *(f"refs/liza/{kind}" for kind in kinds)]
    plant(crew, *planted)
    done = purge(crew)
    assert set(planted) <= set(done.deleted_refs)
    staying = git(crew.paths.root, "for-each-ref", "--format=%(refname)").split()
    assert staying == [MAIN, "refs/heads/task/a", "refs/heads/task/b", "refs/liza/blackboard", "refs/liza/integration"]
    assert of_the_person(crew) == before


def test_a_commit_that_tests_make_on_a_persons_branch_is_reported_by_name(
    crew: Crew,  # noqa: F811
    tmp_path: Path,
) -> None:
    (tmp_path / "notes").mkdir()
    merges = Merges(crew.paths.root, tmp_path / "notes")
    merges.approved("d")
    git(merges.root, "switch", "-q", "-c", "mine")
    merges.tests(f"git symbolic-ref HEAD {MAIN} && git commit -q --allow-empty -m planted")
    merge(merges.crew, "d")
    assert git(merges.root, "log", "-1", "--format=%s", MAIN) == "planted"
    assert f"the tests of d moved {MAIN}. " in merges.alerts()


@pytest.mark.campaign
def test_what_tests_plant_is_reported_by_name_and_moves_nothing(crew: Crew, tmp_path: Path) -> None:  # noqa: F811
    (tmp_path / "notes").mkdir()
    merges = Merges(crew.paths.root, tmp_path / "notes")
    merges.approved("d", "e")
    before = of_the_person(merges.crew)
    merges.tests(
        f'git -C "$HERE" symbolic-ref {INTEGRATION} {MAIN}; git -C "$HERE" symbolic-ref refs/liza/review/z {MAIN}'
    )
    merge(merges.crew, "d")
    assert merges.status("d") == "INTEGRATION_FAILED"
    assert f"the tests of d moved {INTEGRATION}, refs/liza/review/z" in merges.alerts()
    assert of_the_person(merges.crew) == before
    assert not (merges.root / ".git" / INTEGRATION).read_text().startswith("ref:")
    merges.tests("exit 0")
    merge(merges.crew, "e")
    files = git(merges.root, "ls-tree", "--name-only", INTEGRATION).split()
    assert "e.txt" in files
    assert "d.txt" not in files
    assert of_the_person(merges.crew) == before


def test_several_refs_are_read_as_each_is_read_alone(crew: Crew) -> None:  # noqa: F811
    root = crew.paths.root
    plain, symbolic, broken, tag, tree, missing = (f"refs/liza/review/{number}" for number in range(6))
    plant(crew, symbolic)
    plant(crew, broken, named="refs/heads/nowhere")
    git(root, "tag", "-a", "-m", "a tag", "v1", "main")
    for ref, named in ((plain, "main"), (tag, "refs/tags/v1"), (tree, "main^{tree}")):
        git(root, "update-ref", ref, git(root, "rev-parse", named))
    refs = (plain, symbolic, broken, tag, tree, missing)
    main = git(root, "rev-parse", MAIN)
    expected = [(main, None), (main, MAIN), (None, "refs/heads/nowhere"), (main, None), (None, None), (None, None)]
    values = symbolic_refs.read_refs(crew.git, *refs)
    assert [(value.commit, value.target) for value in values] == expected
    assert [(crew.git.find_commit(ref), symbolic_refs.symbolic_target(crew.git, ref)) for ref in refs] == expected
