"""What the branches of tasks have changed, read from a real repository, and who is told of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from liza.git import git_refs
from liza.git.runner import Git
from liza.model.configuration import OverlapRule
from liza.model.errors import Refused
from liza.tasks.claim import claim, claim_task
from liza.tasks.evidence import LazyChanges, gather_evidence
from liza.tasks.rules import picking
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import commit_all, git
from tests.edges.merge_crew import Merges

list_changes = git_refs.list_branch_changes


def commit(root: Path, *names: str) -> str:
    for name in names:
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text(f"{name} {len(git(root, 'log', '--format=%H'))}\n")
    return commit_all(root, "work")


@pytest.fixture
def branches(repo: Path) -> Callable[..., dict[str, frozenset[str]]]:
    git(repo, "branch", "integration")
    git(repo, "switch", "-qc", "task/a")
    commit(repo, "src/a.py", "ä name\nof two lines")
    git(repo, "switch", "-q", "integration")
    commit(repo, "other.txt")
    git(repo, "switch", "-q", "task/a")
    git(repo, "merge", "-q", "--no-edit", "integration")
    git(repo, "switch", "-qc", "task/b")
    git(repo, "rm", "-q", "src/a.py")
    commit(repo, "b.txt")
    git(repo, "switch", "-q", "integration")
    targets = ["refs/heads/integration", "refs/heads/gone"]
    return lambda below=(), **tips: git_refs.list_branch_changes(Git(repo), tips, targets, {"b": below})


def test_a_branch_has_the_files_of_its_own_commits(branches: Callable[..., dict[str, frozenset[str]]]) -> None:
    own = frozenset({"src/a.py", "ä name\nof two lines"})
    assert branches(a="refs/heads/task/a", b="refs/heads/task/b") == {"a": own, "b": own | {"b.txt"}}
    assert branches(b="refs/heads/task/b", gone="refs/heads/task/c", merged="refs/heads/integration") == {
        "b": own | {"b.txt"}
    }
    assert branches() == {}


def test_a_branch_has_no_file_of_the_branch_below_it(branches: Callable[..., dict[str, frozenset[str]]]) -> None:
    tips = {"a": "refs/heads/task/a", "b": "refs/heads/task/b"}
    assert branches(below=["a", "gone"], **tips)["b"] == frozenset({"b.txt", "src/a.py"})


def test_a_commit_in_review_needs_no_branch(repo: Path, branches: Callable[..., dict[str, frozenset[str]]]) -> None:
    tip = git(repo, "rev-parse", "task/b").strip()
    git(repo, "branch", "-D", "task/b")
    assert branches(b=tip, gone="0" * 40)["b"] >= {"b.txt"}


def test_unmoved_branches_are_compared_once(
    repo: Path, branches: Callable[..., dict[str, frozenset[str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = branches(a="refs/heads/task/a", gone="refs/heads/task/c")
    with monkeypatch.context() as patch:
        patch.setattr(git_refs, "_read_changes", None)
        assert branches(a="refs/heads/task/a") == first
    git(repo, "switch", "-q", "task/a")
    commit(repo, "new.txt")
    assert branches(a="refs/heads/task/a")["a"] == first["a"] | {"new.txt"}
    git(repo, "update-ref", "refs/heads/integration", "task/a~1")
    assert branches(a="refs/heads/task/a") == {"a": frozenset({"new.txt"})}


def test_git_is_asked_only_if_an_open_task_has_work(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Mapping[str, str]] = []

    def read(git: Git, tips: Mapping[str, str], *more: Any) -> dict[str, frozenset[str]]:
        asked.append(tips)
        return list_changes(git, tips, *more)

    monkeypatch.setattr(git_refs, "list_branch_changes", read)
    fields = TaskFields("b", "Write", "it is there", "src/", "README.md")
    add(crew.crew, [fields])
    state = crew.crew.board.read()
    picking.pick_task(state, "coder-1", crew.crew.clock.now(), gather_evidence(crew.crew, state))
    assert asked == []
    there = crew.claimed("a")
    asked.clear()
    changes = gather_evidence(crew.crew, crew.crew.board.read()).changed
    assert (changes.get("a"), changes.get("b")) == (frozenset({"a.txt"}), None)
    assert asked == [{"a": "refs/heads/task/a"}]
    crew.submitted(there)
    assert dict(LazyChanges(crew.crew, crew.crew.board.read())) == {"a": frozenset({"a.txt"})}
    assert asked[-1] == {"a": git(there, "rev-parse", "HEAD").strip()}


def test_under_hold_no_race_starts_two_tasks_on_one_file(crew: Merges) -> None:
    crew.configure(overlap=OverlapRule.HOLD)
    there = crew.claimed("a")
    commit_all(there, "beyond its scope", {"shared.txt": "x\n"})
    first, second = (TaskFields(name, "Write", "it is there", "shared.txt", "README.md") for name in ("b", "c"))
    add(crew.crew, [first])
    with pytest.raises(Refused, match=r"coder-2 cannot claim b: it waits for a: both have shared\.txt"):
        claim(crew.crew, "coder-2", "b")
    crew.submitted(there)
    with pytest.raises(Refused, match="it waits for a"):
        claim(crew.crew, "coder-2")
    verdict(crew.crew, "approve", "fine", task_id="a")
    assert crew.merge("a") == ""
    add(crew.crew, [second])
    with ThreadPoolExecutor(2) as pool:
        wanted = [("coder-2", "b"), ("coder-3", "c")]
        outcomes = list(pool.map(lambda pair: try_claim(crew, *pair), wanted))
    assert sorted(outcomes) == ["", outcomes[0] or outcomes[1]]
    assert "both have shared.txt" in "".join(outcomes)


def try_claim(crew: Merges, agent: str, task: str) -> str:
    """Claim a task; return what it was refused with, or nothing."""
    try:
        claim_task(crew.crew, agent, task)
    except Refused as error:
        return error.message
    return ""
