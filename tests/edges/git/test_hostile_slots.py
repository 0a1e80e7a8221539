"""Wherever an agent has a slot, or a directory of the crew, lead: nothing is written there, and nothing grows."""

from __future__ import annotations

import os
import resource
import shutil
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.briefs import instructions_file
from liza.config.confirmed_settings import load_pins
from liza.crew.crew import find_crew
from liza.git import hiding, slot_records
from liza.git.runner import Git
from liza.git.salvage import salvage_if_needed
from liza.model.errors import GitFailed, LizaError, NotRegularFile
from liza.model.paths import Paths
from liza.programs.presets import preset_table
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.text.brief_marks import begin_mark, strip_blocks
from tests.conftest import KEY, git, hidden_block, worktree_of
from tests.edges import hostile
from tests.edges.hostile import Place, copied, fingerprint, sweep
from tests.edges.project.test_hostile_repository import made  # noqa: F401  # one preparation serves both files


@pytest.fixture
def place(made: Place, tmp_path: Path) -> Place:  # noqa: F811
    return copied(made, tmp_path / "copy")


def instead(path: Path, target: Path) -> None:
    """A link to ``target`` where ``path`` was."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
    path.symlink_to(target)


def moved(path: Path, target: Path) -> None:
    """All that was at ``path`` is at ``target`` now, and a link leads there."""
    shutil.move(path, target)
    path.symlink_to(target)


def another_repository(place: Place) -> None:
    (place.slot / ".git").unlink()
    git(place.slot, "init", "-q")
    git(place.slot, "config", "filter.x.clean", str(place.spell))


LEADS: dict[str, Callable[[Place], object]] = {
    "git file to another repository": lambda p: (p.slot / ".git").write_text(f"gitdir: {p.elsewhere}/.git\n"),
    "git file is a link": lambda p: instead(p.slot / ".git", p.elsewhere / ".git"),
    "git file is a repository": another_repository,
    "gitdir of the slot": lambda p: (p.admin / "gitdir").write_text(f"{p.elsewhere}/.git\n"),
    "records of the slot are elsewhere": lambda p: moved(p.admin, p.elsewhere / "admin"),
    "links are elsewhere": lambda p: instead(p.slot.parent / "tasks", p.elsewhere),
    "links were moved": lambda p: moved(p.slot.parent / "tasks", p.elsewhere / "away"),
    "slots are elsewhere": lambda p: instead(p.slot.parent, p.elsewhere),
    "the slot is elsewhere": lambda p: instead(p.slot, p.elsewhere),
    "the slot of merges is elsewhere": lambda p: instead(p.slot.parent / "merge", p.elsewhere),
    "the crew is elsewhere": lambda p: moved(p.root / ".liza", p.elsewhere / "crew"),
    "logs are elsewhere": lambda p: instead(p.root / ".liza" / "logs", p.elsewhere),
    "a log is elsewhere": lambda p: instead(p.root / ".liza" / "logs" / "merge-task-2.log", p.elsewhere / "canary"),
    "alerts are elsewhere": lambda p: instead(p.root / ".liza" / "alerts.log", p.elsewhere / "canary"),
    "runs are elsewhere": lambda p: instead(p.root / ".liza" / "run", p.elsewhere),
    "the work tree is elsewhere": lambda p: p.config("core.worktree", str(p.elsewhere)),
    "the repository has no work tree": lambda p: p.config("core.bare", "true"),
    "excludes are elsewhere": lambda p: instead(p.root / ".git" / "info" / "exclude", p.elsewhere / "canary"),
    "a bound file is elsewhere": lambda p: instead(p.slot / "README.md", p.elsewhere / "canary"),
    "another's objects": lambda p: (p.root / ".git" / "objects" / "info" / "alternates").write_text(
        f"{p.elsewhere}/.git/objects\n"
    ),
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)
CORE = ("git file to another repository", "links are elsewhere", "the crew is elsewhere",
        "a log is elsewhere", "the work tree is elsewhere")  # fmt: skip


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in CORE else (pytest.mark.campaign,)) for name in LEADS]
)
@pytest.mark.campaign
def test_no_write_follows_a_link_or_file_of_an_agent(place: Place, name: str) -> None:
    LEADS[name](place)
    canary = fingerprint(place.elsewhere)
    tips = git(place.elsewhere, "for-each-ref")
    refused = sweep(place)
    print(name, refused)
    assert fingerprint(place.elsewhere) == canary
    assert git(place.elsewhere, "for-each-ref") == tips
    assert place.ran() == []


@pytest.mark.campaign
def test_a_replaced_commit_is_merged_as_it_was_reviewed(place: Place) -> None:
    reviewed = git(place.root, "rev-parse", "task/task-2")
    evil = git(place.root, "commit-tree", git(place.root, "rev-parse", "main^{tree}"), "-p", f"{reviewed}^", "-m", "x")
    git(place.root, "replace", reviewed, evil)
    assert "eighteen" not in git(place.root, "show", "task/task-2:a.txt"), "the trap itself does not work"
    assert place.crew.git.out("show", "task/task-2:a.txt").count("eighteen") == 1
    (place.root / ".git" / "info" / "grafts").write_text(f"{reviewed}\n")
    assert place.crew.git.ok("merge-base", "--is-ancestor", f"{reviewed}^", reviewed)


ODD = (
    "-x", "--force", "a\nb", "tab\there", 'quo"te', "sp ace", "\udcff\udcfe", "é" * 125, "HEAD", ":(top)x", "*", "\\",
    "refs", ".gitmodules ", "a" * 250, "ABC", "abc",
)  # fmt: skip


@pytest.mark.campaign
def test_files_with_extreme_names_are_saved_wiped_and_restored(place: Place) -> None:
    for name in ODD:
        (place.slot / name).write_text(f"{name!r}\n")
    (place.slot / "loop").symlink_to("loop")
    (place.slot / "out").symlink_to(place.elsewhere / "canary")
    os.mkfifo(place.slot / "fifo")
    git(place.slot, "branch", "-f", "a-branch")
    git(place.slot, "update-ref", "refs/heads/-x", "HEAD")
    git(place.slot, "update-ref", "refs/heads/HEAD", "HEAD")
    canary = fingerprint(place.elsewhere)
    assert sweep_but_purge(place) == {}
    slot = worktree_of(place.root, "task-1")
    assert {name for name in ODD if (slot / name).read_text() == f"{name!r}\n"} == {*ODD}
    assert (slot / "out").readlink() == place.elsewhere / "canary"
    assert fingerprint(place.elsewhere) == canary


def sweep_but_purge(place: Place) -> dict[str, str]:
    return {
        name: why
        for step in hostile._STEPS
        if (name := step.__name__) != "_purge" and (why := refusal(step, place)) is not None
    }


def refusal(step: Callable[[Place], None], place: Place) -> str | None:
    try:
        step(place)
    except LizaError as error:
        return error.message
    return None


@pytest.mark.parametrize("megabytes", [8, pytest.param(300, marks=pytest.mark.campaign)])
def test_what_is_large_is_saved_without_being_held_in_memory(repo: Path, megabytes: int) -> None:
    noise = os.urandom(1 << 20)
    with (repo / "large").open("wb") as file:
        for _ in range(megabytes):
            file.write(noise)
    with (repo / "sparse").open("wb") as file:
        file.truncate(megabytes * 7 << 20)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ref = salvage_if_needed(Git(repo), "task-1", "coder-1.1")
    assert ref is not None
    assert git(repo, "cat-file", "-s", f"{ref}:sparse") == str(megabytes * 7 << 20)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    children = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    print(f"{megabytes} MB saved: this process grew by {grown >> 10} MB, the largest git held {children >> 10} MB")
    assert grown < 64 << 10
    assert children < 800 << 10


@pytest.mark.parametrize(
    "plant",
    [
        lambda path, top: path.symlink_to(top / "canary"),
        lambda path, top: path.symlink_to("nowhere"),
        lambda path, top: path.symlink_to(path.name),
        lambda path, top: os.mkfifo(path),
        lambda path, top: path.mkdir(),
        lambda path, top: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2 << 30),
    ],
    ids=["outside", "dangling", "loop", "fifo", "directory", "2 GB"],
)
def test_unsuitable_instructions_file_gets_no_brief_but_the_prompt_does(
    tmp_path: Path, plant: Callable[[Path, Path], object]
) -> None:
    (tmp_path / "canary").write_text("sings\n")
    there = tmp_path / "slot"
    there.mkdir()
    paths = Paths(tmp_path)
    directory = RunDir(paths, "coder-1.1")
    directory.create(RunRecord(agent="coder-1", run="coder-1.1", kind="work", started=NOW))
    plant(there / "AGENTS.md", tmp_path)
    preset = preset_table.load_presets(paths, home=tmp_path).resolve("codex")
    written = instructions_file.write_block(there, preset, directory, "block\n")
    assert written.file is None
    assert written.reason
    assert instructions_file.remove_block(there, directory) is None
    assert (tmp_path / "canary").read_text() == "sings\n"


@pytest.mark.campaign
def test_a_file_full_of_marks_is_read_only_once(tmp_path: Path) -> None:
    begins = f"{begin_mark('coder-1.1', KEY)}\n".encode() * 100_000
    for text in (begins, begins.replace(b"\n", b""), begins.replace(b"<!--", b"")):
        assert strip_blocks(text, (KEY,)) == text
    assert strip_blocks(hidden_block("coder-1.1") * 100_000, (KEY,)) == b""
    lines = "".join(f"# liza:begin run=coder-{n}.1\n" for n in range(100_000))
    (tmp_path / "exclude").write_text(lines)
    assert hiding.read_sections(tmp_path / "exclude") == {}
    hiding.write_section(tmp_path / "exclude", "mine", ("/x",))
    assert hiding.read_sections(tmp_path / "exclude") == {"mine": ("/x",)}
    hiding.remove_section(tmp_path / "exclude", "mine")
    assert (tmp_path / "exclude").read_text() == lines
    os.truncate(tmp_path / "exclude", 1 << 30)
    with pytest.raises(NotRegularFile, match="more than 16 MB"):
        hiding.read_sections(tmp_path / "exclude")


def test_a_run_directory_that_is_a_link_is_refused(place: Place) -> None:
    crew = find_crew(place.root)
    (crew.paths.runs / "coder-9").symlink_to(place.elsewhere)
    with pytest.raises(LizaError, match="is a link"):
        crew.run_dir("coder-9.1").create(RunRecord(agent="coder-9", run="coder-9.1", kind="work", started=NOW))
    assert not (place.elsewhere / "coder-9.1").exists()


def test_lost_pins_stop_everything_until_a_person_mends_them(place: Place) -> None:
    from liza.recovery.doctor import doctor

    place.crew.paths.pins.unlink()
    for step in (hostile._diff, hostile._merge, hostile._release):
        assert "confirmed settings" in str(refusal(step, place))
    assert doctor(place.root, fix=True).repaired


NO_FILES: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "a directory": lambda path: (path / "x").mkdir(parents=True),
    "a link": lambda path: path.symlink_to("/dev/zero"),
    "2 GB": lambda path: os.truncate(os.open(path, os.O_CREAT | os.O_RDWR), 2 << 30),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_irregular_pins_are_refused_by_name_with_a_remedy(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "pins.json"
    NO_FILES[kind](path)
    with pytest.raises(NotRegularFile, match=r"is not a regular file|has more than 1 MB") as caught:
        load_pins(path)
    assert caught.value.hint == f"mv {path} {path}.odd"


@pytest.mark.parametrize("kind", NO_FILES)
def test_owner_that_is_no_file_is_rewritten_from_the_branch(tmp_path: Path, kind: str) -> None:
    (tmp_path / "HEAD").write_text("ref: refs/heads/task/task-1\n")
    for owner in (slot_records.SlotOwner("task-1", "coder-1.1", done=True), None):
        NO_FILES[kind](tmp_path / "liza")
        with pytest.raises(GitFailed, match="cannot be read") as caught:
            slot_records.read_owner(tmp_path)
        assert caught.value.hint == "liza doctor --fix"
        assert slot_records.find_owner(tmp_path) == slot_records.SlotOwner("task-1", "unknown", done=True)
        slot_records.write_owner(tmp_path, owner)
        assert slot_records.read_owner(tmp_path) == owner
        (tmp_path / "liza").unlink(missing_ok=True)
