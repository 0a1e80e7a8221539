"""Worktrees lie outside the repository: nothing in the person's checkout finds them, and they find nothing of it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

import pytest

from liza.alarms.current_alarms import find_alarms
from liza.box import slot_directories
from liza.crew.crew import Crew, find_crew
from liza.crew.recorder import record_history
from liza.merging.merge import merge
from liza.model.errors import Refused, UnknownId
from liza.project.baseline import InitOptions
from liza.project.init import init
from liza.recovery import slots
from liza.recovery.doctor import doctor
from liza.recovery.restore import find_crew_or_lost, restore
from liza.supervisor.down import purge
from liza.tasks.claim import claim
from liza.tasks.diff import find_worktree
from liza.tasks.evidence import gather_evidence
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.submit import submit
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import commit_all, git, variant, worktree_of


def begun(root: Path, **options: object) -> Crew:
    init(root, InitOptions(**{"goal": "It is there", "no_test": True, **options}))  # type: ignore[arg-type]
    return find_crew(root)


def drafted(crew: Crew) -> Path:
    add(crew, [TaskFields("first", "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", "first")
    there = crew.paths.slot("s1")
    (there / "draft.txt").write_text("half\n")
    return there


def test_slots_beside_the_repository_are_private_and_linked(repo: Path) -> None:
    crew = begun(repo)
    there = drafted(crew)
    place = repo.with_name("repo.worktrees")
    assert there.parent == crew.paths.slots == place
    assert place.stat().st_mode & 0o777 == 0o700
    assert worktree_of(repo, "first").resolve() == there
    assert [entry.name for entry in crew.paths.task_links.iterdir()] == ["first"]


def find_files(root: Path) -> set[str]:
    """The files that a tool finds which follows links, without git's own."""
    walk = os.walk(root, followlinks=True)
    return {f"{directory}/{name}" for directory, _, names in walk for name in names if "/.git" not in directory}


def test_a_tool_following_links_finds_only_files_and_the_board(repo: Path) -> None:
    before = find_files(repo)
    there = drafted(begun(repo))
    assert (there / "draft.txt").exists()
    assert {path for path in find_files(repo) if not path.startswith(f"{repo}/.liza/")} == before


@pytest.mark.needs("node")
def test_node_runs_only_the_persons_tests_in_the_checkout(repo: Path) -> None:
    (repo / "test").mkdir()
    (repo / "test" / "mine.test.js").write_text("require('node:test')('mine', () => {})\n")
    commit_all(repo, "a test")
    there = drafted(begun(repo))
    assert (there / "test" / "mine.test.js").exists()
    words = ["node", "--test", "--test-reporter=tap"]
    assert "\n# tests 1\n" in subprocess.run(words, cwd=repo, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize("task", ["tasks", "s1", "merge"])
def test_a_task_may_be_named_like_a_slot(repo: Path, task: str) -> None:
    crew = begun(repo)
    add(crew, [TaskFields(task, "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", task)
    assert find_worktree(crew, task) == str(worktree_of(repo, task))
    assert worktree_of(repo, task).resolve() == crew.paths.slot("s1")
    assert [row.name for row in slots.list_slots(crew).slots] == ["s1"]
    assert any(found.about == "disk" and "in 1 worktree " in found.text for found in doctor(repo, fix=True).findings)
    assert crew.worktrees.recorded_slots() == ("s1",)


def test_a_worktree_path_is_refused_with_the_command_for_it(repo: Path) -> None:
    crew = begun(repo)
    drafted(crew)
    add(crew, [TaskFields("second", "Write", "it is there", "b.txt", "README.md")])
    with pytest.raises(UnknownId) as unknown:
        find_worktree(crew, "third")
    assert (unknown.value.exit_code, unknown.value.hint) == (1, "liza task list")
    with pytest.raises(Refused, match="second is to do: it has no worktree") as unclaimed:
        find_worktree(crew, "second")
    assert unclaimed.value.hint == "liza task show second"
    shutil.rmtree(crew.paths.slot("s1"))
    with pytest.raises(Refused) as incomplete:
        find_worktree(crew, "first")
    assert incomplete.value.hint == "liza doctor --fix"
    doctor(repo, fix=True)
    assert Path(find_worktree(crew, "first"), "README.md").exists()


def test_a_worktree_path_is_printed_on_one_line_as_bytes(repo: Path, tmp_path: Path) -> None:
    drafted(begun(repo, worktrees=tmp_path / os.fsdecode(b"caf\xe9 x")))
    words = [Path(sys.executable).with_name("liza"), "path", "first"]
    printed = subprocess.run(words, cwd=repo, capture_output=True, check=True).stdout
    assert printed == os.fsencode(tmp_path) + b"/caf\xe9 x/tasks/first\n"


def test_a_persons_directory_of_the_former_name_is_left_alone(repo: Path) -> None:
    own = repo / ".worktrees"
    git(repo, "worktree", "add", "-q", "--detach", str(own / "mine"))
    crew = begun(repo)
    drafted(crew)
    purge(find_crew(repo))
    assert (own / "mine" / "README.md").exists()
    (own / "mine").rename(repo / "mine")
    drafted(begun(repo))
    purge(find_crew(repo))
    assert own.is_dir()


@pytest.mark.campaign
def test_tests_and_git_in_the_checkout_do_not_find_worktrees(repo: Path) -> None:
    commit_all(repo, "a test", {"test_mine.py": "def test_mine():\n    pass\n"})
    there = drafted(begun(repo))
    assert (there / "test_mine.py").exists()
    words = [sys.executable, "-m", "pytest", "-q", "--collect-only", "-p", "no:cacheprovider"]
    found = subprocess.run(words, cwd=repo, capture_output=True, text=True, check=True).stdout
    assert "1 test collected" in found
    assert git(repo, "status", "--porcelain", "--ignored", "--untracked-files=all", "--", "*.py") == ""


def test_git_clean_takes_nothing_of_a_worktree(repo: Path) -> None:
    there = drafted(begun(repo))
    # With -ff it takes repositories as well.
    git(repo, "clean", "-q", "-ffdx")
    assert there.is_dir()
    assert (there / "draft.txt").read_text() == "half\n"


@pytest.mark.needs("node")
def test_a_module_only_a_person_has_makes_no_merge_green(repo: Path) -> None:
    commit_all(repo, "a program", {".gitignore": "node_modules/\n", "index.js": ""})
    (repo / "node_modules" / "onlymine").mkdir(parents=True)
    (repo / "node_modules" / "onlymine" / "index.js").write_text("")
    crew = begun(repo, no_test=False, test="node index.js")
    there = drafted(crew)
    commit_all(there, "work", {"index.js": "require('onlymine')\n"})
    with chdir(there):
        submit(find_crew())
    verdict(crew, "approve", "ok", task_id="first")
    merge(crew, "first")
    found = crew.board.read().task("first")
    assert found is not None
    assert found.status == "INTEGRATION_FAILED"
    assert any("MODULE_NOT_FOUND" in (event.detail or "") for event in found.history), found.history
    assert subprocess.run(["node", "-e", "require('onlymine')"], cwd=repo, check=False).returncode == 0


def test_slots_of_a_nested_repository_are_in_the_state_directory(
    repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = repo / "inner"
    git(repo, "clone", "-q", str(repo), str(inner))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    there = drafted(begun(inner))
    assert there.parent.parent == tmp_path / "state" / "liza" / "worktrees"
    with chdir(there):
        assert find_crew().paths.root == inner
    purge(find_crew(inner))
    assert not there.parent.exists()


@pytest.mark.campaign
def test_a_directory_in_use_by_others_is_refused(repo: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(repo), str(other))
    taken = drafted(begun(other, worktrees=tmp_path / "taken")).parent
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine\n")
    for place, why in (
        (taken, "is not empty"),
        (tmp_path / "full", "is not empty"),
        (repo / "slots", "inside the repository"),
        (tmp_path, "the repository is inside it"),
    ):
        with pytest.raises(Refused, match=why):
            begun(repo, worktrees=place)
    assert not (repo / ".liza").exists()
    (tmp_path / "free").mkdir()
    there = drafted(begun(repo, worktrees=tmp_path / "free"))
    assert there.parent == tmp_path / "free"


@pytest.mark.campaign
def test_a_purge_removes_its_directory_and_keeps_foreign_files(repo: Path, tmp_path: Path) -> None:
    place = drafted(begun(repo)).parent
    purge(find_crew(repo))
    assert not place.exists()
    assert not (repo / ".worktrees").exists()
    (tmp_path / "mine").mkdir()
    place = drafted(begun(repo, worktrees=tmp_path / "mine")).parent
    (place / "notes.txt").write_text("mine\n")
    purge(find_crew(repo))
    assert [entry.name for entry in place.iterdir()] == ["notes.txt"]


def test_a_purge_removes_what_boxes_had(repo: Path) -> None:
    crew = begun(repo)
    drafted(crew)
    slot_directories.prepare_directories(crew.paths, "s1", Path.home())
    purge(crew)
    assert not crew.paths.slots.exists()


def test_an_init_that_is_refused_leaves_no_directory(repo: Path) -> None:
    with pytest.raises(Refused, match="red"):
        begun(repo, no_test=False, test="false")
    assert not repo.with_name("repo.worktrees").exists()


@pytest.mark.campaign
def test_a_restore_after_git_clean_finds_worktrees_with_uncommitted_files(repo: Path, tmp_path: Path) -> None:
    crew = begun(repo, worktrees=tmp_path / "mine")
    there = drafted(crew)
    record_history(crew)
    git(repo, "clean", "-q", "-fdx")
    assert not (repo / ".liza").exists()
    # Said in the worktree.
    with chdir(there):
        restore(find_crew_or_lost(), last_good=True)
        again = find_crew()
    assert again.paths == crew.paths
    doctor(repo, fix=True)
    assert worktree_of(repo, "first").resolve() == there
    assert (there / "draft.txt").read_text() == "half\n"


@pytest.mark.campaign
def test_branch_named_task_is_reported_and_gives_a_claim_back(repo: Path) -> None:
    git(repo, "branch", "task")
    with pytest.raises(Refused, match="the branch task is in the way") as refused:
        begun(repo)
    assert refused.value.hint == "git branch -m task task-old"
    git(repo, *refused.value.hint.split()[1:])
    git(repo, "branch", "-D", "task-old")
    crew = begun(repo)
    add(crew, [TaskFields(name, "Write", "it is there", "a.txt", "README.md") for name in ("first", "second")])
    for name, task in (("task", "first"), ("task/second/part", "second")):
        git(repo, "branch", name)
        if name == "task":
            assert [one.hint for one in doctor(repo).findings if "is in the way" in one.text] == [
                "git branch -m task task-old"
            ]
            state = crew.board.read()
            told = [one.next for one in find_alarms(crew, state, gather_evidence(crew, state))]
            assert told[0] == "git branch -m task task-old", told
            git(repo, "pack-refs", "--all")
            assert find_alarms(crew, state, gather_evidence(crew, state))[0].kind == "branch_in_the_way"
        with pytest.raises(Refused, match=f"the branch {name} is in the way") as refused:
            claim(crew, "coder-1", task)
        found = crew.board.read().task(task)
        assert found is not None
        assert (found.status, found.assigned_to, found.reservation) == ("UNCLAIMED", None, None)
        git(repo, *refused.value.hint.split()[1:])
        claim(crew, "coder-1", task)
        with chdir(crew.paths.task_link(task)):
            git(Path.cwd(), "commit", "-q", "--allow-empty", "-m", "work")
            submit(find_crew(repo))
        git(repo, "update-ref", "-d", f"refs/heads/task/{task}") if name == "task" else None


@pytest.mark.parametrize("where", ["", "below"])
def test_a_line_break_in_the_path_is_refused_first(tmp_path: Path, where: str) -> None:
    root = tmp_path / "a\nb"
    (root / "below").mkdir(parents=True)
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "first")
    with pytest.raises(Refused, match="line break"):
        begun(root / where)
    assert not (root / ".liza").exists()
    assert [one.ok for one in doctor(root).findings if "line break" in one.text] == [False]
    assert [entry.name for entry in tmp_path.iterdir()] == ["a\nb"]


def lost(crew: Crew) -> list[tuple[str, str]]:
    state = crew.board.read()
    kinds = ("worktree_gone", "worktrees_replaced")
    return [(one.kind, one.next) for one in find_alarms(crew, state, gather_evidence(crew, state)) if one.kind in kinds]


def test_lost_worktree_of_claimed_task_is_an_alarm_until_recreated(repo: Path) -> None:
    crew = begun(repo)
    there = drafted(crew)
    assert lost(crew) == []
    shutil.rmtree(there.parent)
    assert lost(crew) == [("worktree_gone", "liza doctor --fix")]
    doctor(repo, fix=True)
    assert lost(find_crew(repo)) == []
    assert worktree_of(repo, "first").resolve() == there


@pytest.mark.campaign
@pytest.mark.parametrize("what", ["a file", "a stranger's directory"])
def test_files_in_place_of_the_worktrees_are_left_alone(repo: Path, what: str) -> None:
    crew = begun(repo)
    place = drafted(crew).parent
    shutil.rmtree(place)
    if what == "a file":
        place.write_text("theirs\n")
    else:
        git(repo, "init", "-q", str(place / "s1"))
        (place / "s1" / "theirs.txt").write_text("theirs\n")
    step = f"mv {place} {place}-old"
    assert lost(crew) == [("worktrees_replaced", f"{step} && liza doctor --fix")]
    with pytest.raises(Refused, match="cannot hold the worktrees") as refused:
        doctor(repo, fix=True)
    assert refused.value.hint == step
    assert not worktree_of(repo, "first").is_symlink()
    place.rename(f"{place}-old")
    doctor(repo, fix=True)
    assert lost(find_crew(repo)) == []
    assert (worktree_of(repo, "first") / "README.md").is_file()
    kept = Path(f"{place}-old")
    assert (kept if what == "a file" else kept / "s1" / "theirs.txt").read_text() == "theirs\n"


def with_draft(root: Path, task: str) -> Crew:
    """Begin a crew with a claimed task and an uncommitted file in its worktree."""
    init(root, InitOptions(goal="It is there", no_test=True))
    crew = find_crew(root)
    add(crew, [TaskFields(task, "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", task)
    (crew.paths.slot("s1") / f"{task}.txt").write_text(f"half of {task}\n")
    record_history(crew)
    return crew


def clean(root: Path) -> None:
    git(root, "clean", "-q", "-ffdx")


def worktree_paths(root: Path) -> list[str]:
    lines = git(root, "worktree", "list", "--porcelain").splitlines()
    return sorted(line.removeprefix("worktree ") for line in lines if line.startswith("worktree "))


def in_refs(root: Path, refs: tuple[str, ...], name: str) -> list[str]:
    """Return the content of a file in each of the refs that has it."""
    return [git(root, "show", f"{ref}:{name}") for ref in refs if name in git(root, "ls-tree", "--name-only", ref)]


def find_crew_or_lost_in(root: Path) -> Crew:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        return find_crew_or_lost()


@pytest.mark.campaign
def test_a_purge_saves_the_files_of_an_earlier_crew(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    init(repo, InitOptions(goal="It is there", no_test=True))
    done = purge(find_crew(repo))
    assert in_refs(repo, done.kept_refs, "first.txt") == ["half of first"]
    assert not [path for path in repo.parent.iterdir() if path.name.startswith("repo.worktrees")]
    assert worktree_paths(repo) == [str(repo)]


def test_a_failed_init_leaves_the_worktrees_of_an_earlier_crew(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    with pytest.raises(Refused, match="the tests are red"):
        init(repo, InitOptions(goal="It is there", test="false"))
    assert (repo.with_name("repo.worktrees") / "s1" / "first.txt").read_text() == "half of first\n"
    assert len(worktree_paths(repo)) == 2


def test_a_claim_takes_no_files_of_an_earlier_crew(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    init(repo, InitOptions(goal="It is there", no_test=True))
    crew = find_crew(repo)
    with pytest.raises(Refused, match="there is a branch task/first already") as refused:
        add(crew, [TaskFields("first", "Write", "it is there", "a.txt", "README.md")])
    git(repo, *refused.value.hint.split()[1:])
    add(crew, [TaskFields("first", "Write", "it is there", "a.txt", "README.md")])
    claim(crew, "coder-1", "first")
    assert crew.paths.slots == repo.with_name("repo.worktrees")
    assert not (crew.paths.slot("s1") / "first.txt").exists()
    assert git(repo, "show", "refs/liza/salvage/earlier.first/coder-1.1:first.txt") == "half of first"


@pytest.mark.parametrize("is_merged", [True, variant(False)])
def test_a_purge_after_a_restore_names_the_left_branch(repo: Path, is_merged: bool) -> None:
    with_draft(repo, "first")
    clean(repo)
    restore(find_crew_or_lost_in(repo), last_good=True)
    if not is_merged:
        tree = git(repo, "rev-parse", "main^{tree}")
        git(repo, "branch", "-f", "integration", git(repo, "commit-tree", "-p", "main", "-m", "more", tree))
    done = purge(find_crew(repo))
    assert done.branch == ("integration" if is_merged else None)
    assert ("refs/heads/integration" in done.kept_refs) is not is_merged
    assert "refs/liza/blackboard" in done.kept_refs


def test_another_task_first_saves_files_of_an_earlier_crew(repo: Path) -> None:
    with_draft(repo, "first")
    clean(repo)
    with_draft(repo, "second")
    assert git(repo, "show", "refs/liza/salvage/earlier.first/coder-1.1:first.txt") == "half of first"
    assert not (worktree_of(repo, "second") / "first.txt").exists()
