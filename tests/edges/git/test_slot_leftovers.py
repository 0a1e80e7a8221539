"""What the set-up leaves is hidden in its slot and kept between gates; what tests leave goes before the next gate."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from liza.git import hiding, slot_setup
from liza.git.runner import Git
from liza.model.configuration import Gate, QueueSettings
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add
from liza.tasks.verdict import verdict
from tests.conftest import commit_all, git, variant
from tests.edges.merge_crew import Merges, prepared

LEAVE = "mkdir -p .venv/lib && touch .venv/pyvenv.cfg .venv/lib/a loose 'odd [name]*.txt' && git init -q nested"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with prepared(tmp_path_factory, ignored="built/\ntarget/\n*.cache\n") as root:
        return root


def slot_git(crew: Merges, there: Path) -> Git:
    return crew.crew.worktrees.slot_git(there.name)


def set_up(crew: Merges, there: Path, command: str) -> dict[str, str]:
    """Run a set-up in the slot of a task, as a supervisor does. Return the variables of a session there."""
    crew.configure(sandbox_setup=command)
    config = crew.crew.board.read().config
    assert slot_setup.bring(crew.root, slot_git(crew, there), config)
    slot_setup.begin_setup(slot_git(crew, there))
    subprocess.run(["sh", "-c", command], cwd=there, check=True)
    slot_setup.mark_setup_done(crew.root, slot_git(crew, there), config)
    git_dir = slot_git(crew, there).git_dir
    assert git_dir is not None
    return hiding.session_variables(git_dir)


def status(directory: Path, variables: Mapping[str, str] | None = None) -> list[str]:
    words = ["git", "status", "--porcelain", "--untracked-files=all"]
    done = subprocess.run(
        words, cwd=directory, env={**os.environ, **(variables or {})}, capture_output=True, check=True
    )
    return done.stdout.decode().splitlines()


def test_git_in_sessions_does_not_add_what_set_ups_left(crew: Merges) -> None:
    there = crew.claimed("a")
    (there / "half.txt").write_text("before the set-up\n")
    shared = {name: (crew.root / ".git" / name).read_bytes() for name in ("config", "info/exclude")}
    variables = set_up(crew, there, LEAVE)
    (there / "after.txt").write_text("work\n")
    assert status(there, variables) == ["?? after.txt", "?? half.txt"]
    assert sorted(crew.crew.worktrees.list_changes(there.name)) == ["after.txt", "half.txt"]
    for words in (["add", "."], ["commit", "-q", "-m", "work"], ["add", "-A"]):
        subprocess.run(["git", *words], cwd=there, env={**os.environ, **variables}, check=True)
    assert set(git(there, "ls-files").split()) >= {"a.txt", "half.txt", "after.txt"}
    assert ".venv" not in git(there, "ls-files")
    crew.submitted(there)

    for name in (".venv", "loose"):
        (crew.root / name).touch()
    assert {"?? .venv", "?? loose"} <= set(status(crew.root))
    assert shared == {name: (crew.root / ".git" / name).read_bytes() for name in shared}


@pytest.mark.campaign
def test_files_of_the_set_up_stay_and_are_no_work(crew: Merges, monkeypatch: pytest.MonkeyPatch) -> None:
    there = crew.claimed("a")
    for name, value in set_up(crew, there, LEAVE).items():
        monkeypatch.setenv(name, value)
    crew.submitted(there)
    verdict(crew.crew, "approve", "fine", task_id="a")
    crew.configure(sandbox_setup=None)
    assert crew.merge("a") == ""
    assert crew.claimed("b") == there
    assert all((there / name).exists() for name in (".venv/lib/a", "loose", "nested/.git"))
    assert git(crew.root, "for-each-ref", "refs/liza/salvage") == ""
    assert git(there, "show", "--name-only", "--format=") == "b.txt"


def test_the_ignored_names_of_the_person_stay_ignored(
    crew: Merges, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    (tmp_path / "config" / "git").mkdir(parents=True)
    (tmp_path / "config" / "git" / "ignore").write_text("*.swp")
    there = crew.claimed("a")
    variables = set_up(crew, there, "touch loose")
    (there / "x.swp").touch()
    (there / "work.txt").touch()
    assert status(there, variables) == ["?? work.txt"]
    assert crew.crew.worktrees.list_changes(there.name) == ("work.txt",)


def test_a_hidden_name_that_a_commit_tracks_is_shown_again(crew: Merges) -> None:
    there = crew.claimed("a")
    variables = set_up(crew, there, LEAVE)
    subprocess.run(["git", "add", "-f", ".venv/lib/a"], cwd=there, env={**os.environ, **variables}, check=True)
    git(there, "commit", "-q", "-m", "an environment of its own")
    slot_setup.bring(crew.root, slot_git(crew, there), crew.crew.board.read().config)
    assert slot_setup.hidden_names(slot_git(crew, there)) == ("loose", "nested/", "odd [name]*.txt")
    (there / ".venv" / "lib" / "b").touch()
    assert "?? .venv/lib/b" in status(there, variables)


def test_a_copied_file_that_git_does_not_ignore_is_hidden(crew: Merges) -> None:
    (crew.root / "secrets.json").write_text("{}\n")
    crew.configure(sandbox_copy=("secrets.json",))
    add(crew.crew, [TaskFields("a", "Write", "it is there", "a.txt", "README.md")])
    claim(crew.crew, "coder-1", "a")
    there = crew.crew.paths.task_link("a").resolve()
    assert (there / "secrets.json").exists()
    assert crew.crew.worktrees.list_changes(there.name) == ()


def count_set_ups(crew: Merges, tmp_path: Path, command: str, **settings: object) -> Path:
    count = tmp_path / "set-ups"
    crew.configure(sandbox_setup=f"{command} && echo x >> {count}", **settings)
    return count


@pytest.mark.parametrize("parallel", [1, variant(2)])
def test_what_tests_left_does_not_make_the_next_gate_green(crew: Merges, tmp_path: Path, parallel: int) -> None:
    """The first candidate is green and leaves ignored and untracked files; so does the first gate of the second."""
    count = count_set_ups(crew, tmp_path, "mkdir -p built && touch built/lib")
    crew.tests("test -f built/lib && touch left.cache left.txt && mkdir empty")
    crew.approved("a")
    assert crew.merge("a") == ""
    needs = "test -f built/lib && ! test -e left.cache && ! test -e left.txt && ! test -e empty"
    crew.configure(
        integration_command=needs,
        gates=(Gate(name="second", command=f"{needs} && touch left.cache"), Gate(name="third", command=needs)),
        queue=QueueSettings(parallel=parallel),
    )
    crew.approved("b")
    assert crew.merge("b") == ""
    assert crew.status("b") == "MERGED"
    assert len(count.read_text().split()) == parallel


@pytest.mark.campaign
def test_a_dependency_dropped_by_a_candidate_is_missing_in_tests(crew: Merges, tmp_path: Path) -> None:
    """The set-up installs what a tracked list names into an ignored directory, which a set-up never empties."""
    commit_all(crew.root, "needs", {"needs.txt": "left\nright\n"})
    git(crew.root, "branch", "-f", "integration", "HEAD")
    crew.configure(sandbox_setup_files=("needs.txt",))
    count = count_set_ups(crew, tmp_path, "mkdir -p built && for name in $(cat needs.txt); do touch built/$name; done")
    crew.tests("test -f built/left")
    crew.approved("a")
    crew.merge("a")

    def drop(there: Path) -> None:
        (there / "needs.txt").write_text("right\n")
        git(there, "commit", "-q", "-am", "one less")

    crew.approved("b", work=drop)
    crew.merge("b")
    crew.approved("c")
    crew.merge("c")
    assert [crew.status(task) for task in ("a", "b", "c")] == ["MERGED", "INTEGRATION_FAILED", "MERGED"]
    assert len(count.read_text().split()) >= 3


@pytest.mark.campaign
def test_caches_are_kept_when_everything_else_goes(crew: Merges, tmp_path: Path) -> None:
    count_set_ups(crew, tmp_path, "mkdir -p built", sandbox_keep=("target/", "**/built/.cache/"))
    crew.tests(
        "mkdir -p target built/.cache docs/target; "
        "touch target/a built/.cache/b docs/target/c built/d docs/e.cache; exit 1"
    )
    crew.approved("a")
    crew.merge("a")
    crew.tests("exit 0")
    crew.approved("b")
    crew.merge("b")
    slot = crew.crew.paths.slot("merge")
    assert [(slot / name).exists() for name in ("target/a", "built/.cache/b", "docs/target/c")] == [True] * 3
    assert [(slot / name).exists() for name in ("built/d", "docs/e.cache")] == [False] * 2


@pytest.mark.campaign
@pytest.mark.parametrize(
    "damage",
    ["rm -r built", variant("mv built/lib . && rm -r built && mkdir x && mv lib x")],
)
def test_a_set_up_whose_result_the_tests_removed_runs_again(crew: Merges, tmp_path: Path, damage: str) -> None:
    count = count_set_ups(crew, tmp_path, "mkdir -p built && touch built/lib")
    crew.tests(f"test -f built/lib && {damage}")
    crew.approved("a", "b")
    assert [crew.merge("a"), crew.merge("b")] == ["", ""]
    assert crew.status("b") == "MERGED"
    assert len(count.read_text().split()) == 2


@pytest.mark.campaign
def test_a_directory_losing_its_tracked_files_is_set_up_again(crew: Merges, tmp_path: Path) -> None:
    (crew.root / "gen").mkdir()
    (crew.root / "gen" / "kept.txt").touch()
    commit_all(crew.root, "gen")
    git(crew.root, "branch", "-f", "integration", "HEAD")
    count = count_set_ups(crew, tmp_path, "mkdir -p gen && touch gen/lib")
    crew.tests("test -f gen/lib")
    crew.approved("a")
    crew.merge("a")

    def empty(there: Path) -> None:
        git(there, "rm", "-q", "gen/kept.txt")
        git(there, "commit", "-q", "-m", "empty")

    crew.approved("b", work=empty)
    crew.merge("b")
    assert [crew.status(task) for task in ("a", "b")] == ["MERGED", "MERGED"]
    assert len(count.read_text().split()) == 2


@pytest.mark.campaign
def test_read_only_directories_and_links_of_tests_do_no_harm(crew: Merges, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside" / "precious").touch()
    count_set_ups(crew, tmp_path, "mkdir -p built")
    crew.tests(
        f"test ! -e left.cache && ln -s {tmp_path}/outside left.cache && "
        "mkdir -p ro/x && touch ro/x/y && chmod 500 ro ro/x"
    )
    crew.approved("a", "b")
    assert [crew.merge("a"), crew.merge("b")] == ["", ""]
    assert crew.status("b") == "MERGED"
    assert (tmp_path / "outside" / "precious").exists()
