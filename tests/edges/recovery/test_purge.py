"""What a purge takes out of the repository, and what it keeps because it is nowhere else."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from liza.commands.down import format_purge
from liza.crew.crew import Crew
from liza.git import branch_moves
from liza.model.errors import Refused
from liza.recovery import saved_specs
from liza.supervisor.down import PurgeResult, purge
from liza.system.locks import Lock
from liza.tasks.claim import claim
from liza.tasks.rules.backlog import TaskFields
from liza.tasks.task import add, release
from tests.conftest import git, variant
from tests.edges.merging.test_integration import claimed, crew, made  # noqa: F401  # one preparation serves both files
from tests.journeys.crews import BIN
from tests.namespaces import unshared


def refs(crew: Crew) -> set[str]:  # noqa: F811
    return set(git(crew.paths.root, "for-each-ref", "--format=%(refname)").split())


def merged_by_the_person(crew: Crew) -> None:  # noqa: F811
    git(crew.paths.root, "merge", "-q", "--ff-only", "integration")


@pytest.mark.campaign
def test_work_on_its_tasks_branch_is_kept_without_a_salvage(crew: Crew) -> None:  # noqa: F811
    merged_by_the_person(crew)
    claimed(crew)
    done = purge(crew)
    assert done.kept_refs == ("refs/heads/task/c", "refs/liza/blackboard")
    assert refs(crew) == {"refs/heads/main", "refs/heads/task/c", "refs/liza/blackboard"}


@pytest.mark.sample(1)
@pytest.mark.parametrize("recorded", [True, False])
def test_purge_removes_the_history_with_the_last_ref(
    crew: Crew,  # noqa: F811
    recorded: bool,
) -> None:
    merged_by_the_person(crew)
    if not recorded:
        git(crew.paths.root, "update-ref", "-d", "refs/liza/blackboard")
    done = purge(crew)
    assert done.kept_refs == ()
    assert ("refs/liza/blackboard" in done.deleted_refs) is recorded
    assert refs(crew) == {"refs/heads/main", "refs/notes/liza"}
    assert not (crew.paths.root / ".git/refs/liza").exists()
    assert not (crew.paths.root / ".git/info/attributes").exists()


@pytest.mark.campaign
def test_purge_removes_empty_salvages_and_keeps_those_with_work(
    crew: Crew,  # noqa: F811
) -> None:
    merged_by_the_person(crew)
    there = claimed(crew)
    release(crew, "c")
    claim(crew, "coder-2", "c")
    empty = "refs/liza/salvage/c/coder-1.3"
    assert git(crew.paths.root, "diff", "--name-only", f"{empty}^1", empty) == ""
    (there / "unfinished.txt").write_text("unfinished\n")
    git(there, "checkout", "-q", "--detach")
    git(there, "commit", "-q", "--allow-empty", "-m", "on no branch")
    alone = git(there, "rev-parse", "HEAD")
    release(crew, "c")
    claim(crew, "coder-3", "c")
    (there / "unfinished.txt").unlink()
    done = purge(crew)
    assert empty in done.deleted_refs
    assert done.kept_refs == ("refs/heads/task/c", "refs/liza/salvage/c/coder-2.1", "refs/liza/blackboard")
    assert git(crew.paths.root, "rev-parse", "refs/liza/salvage/c/coder-2.1^1") == alone
    assert git(crew.paths.root, "show", "refs/liza/salvage/c/coder-2.1:unfinished.txt") == "unfinished"


def test_a_salvage_without_a_branch_keeps_its_commit(
    crew: Crew,  # noqa: F811
) -> None:
    merged_by_the_person(crew)
    there = claimed(crew)
    lost = git(there, "rev-parse", "HEAD")
    release(crew, "c")
    claim(crew, "coder-2", "c")
    git(there, "reset", "-q", "--hard", "main")
    assert purge(crew).kept_refs == ("refs/liza/salvage/c/coder-1.3", "refs/liza/blackboard")
    assert git(crew.paths.root, "rev-parse", "refs/liza/salvage/c/coder-1.3^1") == lost


def test_a_persons_branch_below_task_is_neither_taken_nor_purged(
    crew: Crew,  # noqa: F811
) -> None:
    git(crew.paths.root, "branch", "task/101", "main")
    fields = TaskFields("101", "d", "w", "101.txt", "README.md")
    with pytest.raises(Refused, match="there is a branch task/101 already") as refused:
        add(crew, [fields])
    assert refused.value.hint == "git branch -m task/101 task-101"
    purge(crew)
    assert "refs/heads/task/101" in refs(crew)


def test_a_purge_after_deleting_or_moving_integration_loses_no_merge(crew: Crew) -> None:  # noqa: F811
    before = git(crew.paths.root, "rev-parse", "integration")
    git(crew.paths.root, "branch", "-D", "integration")
    done: PurgeResult = purge(crew)
    assert branch_moves.LAST_INTEGRATION_REF in done.kept_refs
    assert git(crew.paths.root, "rev-parse", branch_moves.LAST_INTEGRATION_REF) == before
    assert git(crew.paths.root, "show", f"{branch_moves.LAST_INTEGRATION_REF}:b.txt") == "x"


def test_a_purge_keeps_all_files_of_a_person(
    crew: Crew,  # noqa: F811
    tmp_path: Path,
) -> None:
    merged_by_the_person(crew)
    specs, root = crew.paths.specs, crew.paths.root
    (root / ".git" / "info" / "attributes").write_text("* text eol=lf\n")
    (specs / "deep" / "er").mkdir(parents=True)
    (specs / "deep" / "er" / "a table\nof two.csv").write_bytes(b"a,b\r\n\xff\r\n")
    (specs / "architecture" / "own.txt").write_text("own\n")
    laid = next(path for path in sorted((specs / "protocols").iterdir()) if path.is_file())
    laid.write_text("changed by hand\n")
    (tmp_path / "private").mkdir()
    (tmp_path / "private" / "secret").write_text("a secret of this machine\n")
    (specs / "elsewhere.md").symlink_to(tmp_path / "private" / "secret")
    (specs / "folder").symlink_to(tmp_path / "private")
    os.mkfifo(specs / "pipe.md")
    done = purge(crew)
    assert done.kept_refs == ("refs/liza/specs", "refs/liza/blackboard")
    assert done.unread_files == (".liza/specs/pipe.md",)
    rows = git(root, "ls-tree", "-r", "-z", "refs/liza/specs").split("\0")
    assert {row.split("\t")[1]: row.split(" ")[0] for row in rows if row} == {
        "architecture/own.txt": "100644",
        "deep/er/a table\nof two.csv": "100644",
        "elsewhere.md": "120000",
        "folder": "120000",
        f"protocols/{laid.name}": "100644",
    }
    kept = crew.git.raw("cat-file", "blob", "refs/liza/specs:deep/er/a table\nof two.csv")
    assert kept == b"a,b\r\n\xff\r\n"
    assert git(root, "show", "refs/liza/specs:folder") == str(tmp_path / "private")
    assert not crew.paths.liza.exists()


@pytest.mark.sample(1)
@pytest.mark.parametrize("linked", [False, True], ids=["a file", "a link"])
def test_a_purge_keeps_a_persons_own_program_table(
    crew: Crew,  # noqa: F811
    tmp_path: Path,
    linked: bool,
) -> None:
    root, table = crew.paths.root, crew.paths.liza / "programs.toml"
    text = 'program = "script:./agent.sh"'
    if linked:
        text = str(tmp_path / "mine.toml")
        table.symlink_to(text)
    else:
        table.write_text(text)
    done = purge(crew)
    assert done.kept_refs[-2:] == ("refs/liza/programs", "refs/liza/blackboard")
    assert {"refs/liza/programs", "refs/liza/blackboard"} <= refs(crew)
    assert git(root, "show", "refs/liza/programs:programs.toml") == text
    assert not crew.paths.liza.exists()


def test_a_purge_names_a_program_table_that_is_no_file(crew: Crew) -> None:  # noqa: F811
    os.mkfifo(crew.paths.liza / "programs.toml")
    assert purge(crew).unread_files == (".liza/programs.toml",)


def test_a_purge_names_files_left_beside_the_worktrees(crew: Crew) -> None:  # noqa: F811
    claimed(crew)
    kept = crew.paths.slots / "of-a-person"
    kept.mkdir()
    (kept / "of-another-user").touch()
    assert purge(crew).left == (str(kept),)
    assert (kept / "of-another-user").exists()


def test_a_purge_that_cannot_save_a_program_table_removes_nothing(crew: Crew) -> None:  # noqa: F811
    table = crew.paths.liza / "programs.toml"
    with table.open("wb") as file:
        file.truncate(saved_specs.MAX_FILE_SIZE + 1)
    with pytest.raises(Refused, match=r"programs\.toml cannot be saved"):
        purge(crew)
    assert table.exists()
    assert crew.paths.state.exists()


def test_purging_again_keeps_earlier_specs_below_the_newer_ones(crew: Crew) -> None:  # noqa: F811
    root, notes = crew.paths.root, crew.paths.specs / "notes.txt"
    notes.write_text("first\n")
    saved_specs.save_specs(crew)
    first = git(root, "rev-parse", "refs/liza/specs")
    saved_specs.save_specs(crew)
    assert git(root, "rev-parse", "refs/liza/specs") == first
    notes.rename(notes.with_name("other.txt"))
    purge(crew)
    assert git(root, "rev-parse", "refs/liza/specs^") == first
    assert git(root, "ls-tree", "-r", "--name-only", "refs/liza/specs") == "other.txt"
    assert git(root, "show", "refs/liza/specs^:notes.txt") == "first"


@pytest.mark.parametrize(
    ("name", "size"),
    [("huge.bin", saved_specs.MAX_FILE_SIZE + 1), (".git/config", 3)],
    ids=["too large", "no name for git"],
)
def test_a_spec_that_cannot_be_saved_stops_a_purge_early(
    crew: Crew,  # noqa: F811
    name: str,
    size: int,
) -> None:
    before, path = refs(crew), crew.paths.specs / name
    path.parent.mkdir(exist_ok=True)
    path.touch()
    os.truncate(path, size)
    with pytest.raises(Refused, match=name) as refused:
        purge(crew)
    assert refused.value.hint
    assert path.exists()
    assert crew.paths.slot("s1").is_dir()
    assert refs(crew) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
@pytest.mark.parametrize("name", ["notes.txt", "deep"])
def test_an_unreadable_spec_stops_the_purge_by_name(crew: Crew, name: str) -> None:  # noqa: F811
    path = crew.paths.specs / name
    path.touch() if "." in name else path.mkdir()
    path.chmod(0)
    with pytest.raises(Refused, match=f"{name}.* cannot be saved: Permission denied"):
        purge(crew)
    path.chmod(0o700)
    assert crew.paths.slot("s1").is_dir()


def test_a_second_purge_at_once_is_refused(crew: Crew) -> None:  # noqa: F811
    with Lock(crew.paths.locks / "purge.lock"), pytest.raises(Refused, match="another purge is under way"):
        purge(crew)
    assert crew.paths.slot("s1").is_dir()


@pytest.mark.campaign
@pytest.mark.needs("unshare")
@pytest.mark.parametrize("part", [".liza", variant(".liza/logs"), variant(".liza/pins.json")])
def test_a_purge_names_a_mount_point_and_removes_the_rest(crew: Crew, part: str) -> None:  # noqa: F811
    merged_by_the_person(crew)
    mounted = crew.paths.root / part
    again = "" if part != ".liza" else f"&& {BIN}/liza init again --no-test && {BIN}/liza down --purge"
    script = f"mount --bind {mounted} {mounted} && {BIN}/liza down --purge {again} && find .liza"
    words = [*unshared("-Urm"), "sh", "-c", script]
    done = subprocess.run(words, cwd=crew.paths.root, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"not deleted: {mounted} is a mount point" in done.stdout
    assert done.stdout.endswith("\n".join(["", ".liza", *([part] if part != ".liza" else []), ""])), done.stdout
    assert refs(crew) == {"refs/heads/main", "refs/notes/liza"}


def test_a_purge_names_in_few_lines_what_it_kept() -> None:
    refs = tuple(f"refs/liza/pins/task-{number}" for number in range(25))
    kept = ("refs/heads/task/red", "refs/heads/task/fast", "refs/liza/blackboard")
    done = PurgeResult(refs, kept, left=("/srv/mine.txt",))
    lines = format_purge(done, verbose=False).splitlines()
    assert lines == [
        "removed Liza from this repository, with 25 refs (-v lists them)",
        "kept task/red, task/fast: no other ref has their commits",
        "kept refs/liza/blackboard: the history of the board, with what was kept",
        "not deleted: /srv/mine.txt",
    ]
    every = format_purge(done, verbose=True).splitlines()
    assert every[0] == "removed Liza from this repository, with 25 refs"
    assert every[1:26] == [f"  {ref}" for ref in refs]
    assert every[26:] == lines[1:]
