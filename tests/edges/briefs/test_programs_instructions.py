"""The block in real files of a real worktree: put in, replaced, taken away, and never anywhere else."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from liza.briefs.instructions_file import remove_block, write_block
from liza.model.paths import Paths
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.text.quoting import BLOCK_BEGIN, BLOCK_END, render_block

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
PRESET = Preset(name="x", instructions=("AGENTS.override.md", "AGENTS.md", "CLAUDE.md"), creates="AGENTS.md")


def block(run: str) -> str:
    return f"{BLOCK_BEGIN.format(run=run)}\n[liza] do it – now\n{BLOCK_END.format(run=run)}\n"


def written(run: RunDir, text: bytes = b"") -> bytes:
    """The file with the block of a run above ``text``."""
    return render_block(block(run.run), run.run, run.block_key(), text)


class Place:
    def __init__(self, root: Path) -> None:
        self.root = root.resolve()
        self.tree = self.root / ".worktrees" / ".slots" / "s1"
        self.tree.mkdir(parents=True)

    def run(self, run: str = "coder-1.1") -> RunDir:
        made = RunDir(Paths(self.root), run)
        made.create(RunRecord(agent=made.agent, run=run, kind="work", started=NOW))
        return made

    def snapshot(self) -> dict[str, tuple[bytes, int]]:
        files = [path for path in self.tree.rglob("*") if path.is_file()]
        return {str(path.relative_to(self.tree)): (path.read_bytes(), path.stat().st_mode) for path in files}


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


ORIGINALS = [
    b"# Rules\n\nBe kind.\n",
    b"no last newline",
    b"",
    b"\r\nwindows\r\nlines\r\n",
    b"\xef\xbb\xbfmark of an editor\n",
    b"\xff\xfe\x00 no text at all \x00",
    b"<!-- liza:begin run=coder-1.1 -->\na block that lost its end\n",
    b"<!-- liza:end run=coder-1.1 -->\nan end that lost its block\n",
    b"> <!-- liza:begin run=coder-1.1 -->\nquoted\n> <!-- liza:end run=coder-1.1 -->\n",
    b"x\n" * 200_000,
]


@pytest.mark.parametrize("original", ORIGINALS)
def test_adding_and_removing_the_block_restores_bytes_and_mode(place: Place, original: bytes) -> None:
    file = place.tree / "AGENTS.md"
    file.write_bytes(original)
    file.chmod(0o640)
    before = place.snapshot()
    run = place.run()
    assert write_block(place.tree, PRESET, run, block(run.run)).file == "AGENTS.md"
    assert file.read_bytes() == written(run, original)
    assert remove_block(place.tree, run) == "AGENTS.md"
    assert place.snapshot() == before
    assert remove_block(place.tree, run) is None
    assert place.snapshot() == before


def test_the_first_existing_instructions_file_is_used(place: Place) -> None:
    first, second = place.run(), place.run("coder-1.2")
    assert write_block(place.tree, PRESET, first, block(first.run)).file == "AGENTS.md"
    assert remove_block(place.tree, first) == "AGENTS.md"
    assert place.snapshot() == {}
    (place.tree / "CLAUDE.md").write_text("c")
    assert write_block(place.tree, PRESET, second, block(second.run)).file == "CLAUDE.md"
    assert list(place.snapshot()) == ["CLAUDE.md"]


def test_text_that_the_agent_wrote_beside_the_block_stays(place: Place) -> None:
    run = place.run()
    write_block(place.tree, PRESET, run, block(run.run))
    with (place.tree / "AGENTS.md").open("a") as file:
        file.write("a rule that was agreed on\n")
    remove_block(place.tree, run)
    assert (place.tree / "AGENTS.md").read_text() == "a rule that was agreed on\n"


def test_a_block_of_an_earlier_run_is_replaced_and_removed(place: Place) -> None:
    first, second = place.run(), place.run("coder-1.2")
    write_block(place.tree, PRESET, first, block(first.run))
    write_block(place.tree, PRESET, second, block(second.run))
    assert (place.tree / "AGENTS.md").read_bytes() == written(second)
    assert remove_block(place.tree, first) is None
    assert (place.tree / "AGENTS.md").read_bytes() == written(second)
    assert remove_block(place.tree, second) == "AGENTS.md"
    assert place.snapshot() == {}


def test_an_empty_file_of_the_project_stays_without_its_block(place: Place) -> None:
    (place.tree / "AGENTS.md").write_bytes(b"")
    first, second = place.run(), place.run("coder-1.2")
    write_block(place.tree, PRESET, first, block(first.run))
    write_block(place.tree, PRESET, second, block(second.run))
    remove_block(place.tree, second)
    assert (place.tree / "AGENTS.md").read_bytes() == b""


def test_writing_twice_is_writing_once(place: Place) -> None:
    run = place.run()
    for _ in range(2):
        write_block(place.tree, PRESET, run, block(run.run))
        assert (place.tree / "AGENTS.md").read_bytes() == written(run)
    remove_block(place.tree, run)
    assert place.snapshot() == {}


def test_a_link_to_a_file_inside_is_followed_and_stays(place: Place) -> None:
    (place.tree / "docs").mkdir()
    (place.tree / "docs" / "rules.md").write_text("rules\n")
    (place.tree / "CLAUDE.md").symlink_to("docs/rules.md")
    run = place.run()
    assert write_block(place.tree, PRESET, run, block(run.run)).file == "docs/rules.md"
    assert (place.tree / "CLAUDE.md").is_symlink()
    assert (place.tree / "CLAUDE.md").read_text().endswith("rules\n")
    assert remove_block(place.tree, run) == "docs/rules.md"
    assert (place.tree / "docs" / "rules.md").read_text() == "rules\n"


def _outside(place: Place) -> Path:
    target = place.root / "bashrc"
    target.write_text("alias x=y\n")
    return target


def test_a_link_that_ends_outside_is_never_written_through(place: Place) -> None:
    target = _outside(place)
    (place.tree / "AGENTS.md").symlink_to(target)
    run = place.run()
    placement = write_block(place.tree, PRESET, run, block(run.run))
    assert placement.file is None
    assert "leads out of the worktree" in str(placement.reason)
    assert target.read_text() == "alias x=y\n"
    assert remove_block(place.tree, run) is None


def test_no_block_is_written_through_a_directory_link_outside(place: Place) -> None:
    (place.root / "outside").mkdir()
    (place.tree / ".github").symlink_to(place.root / "outside")
    run = place.run()
    preset = Preset(name="x", instructions=(".github/copilot-instructions.md",))
    placement = write_block(place.tree, preset, run, block(run.run))
    assert "leads out of the worktree" in str(placement.reason)
    assert list((place.root / "outside").iterdir()) == []


@pytest.mark.parametrize("kind", ["dangling", "loop", "directory", "fifo", "git", "submodule", "parent is a file"])
def test_an_irregular_instructions_file_is_left_alone(place: Place, kind: str) -> None:
    file, preset = place.tree / "AGENTS.md", PRESET
    if kind == "dangling":
        file.symlink_to("nowhere.md")
    elif kind == "loop":
        file.symlink_to("AGENTS.md")
    elif kind == "directory":
        file.mkdir()
    elif kind == "fifo":
        os.mkfifo(file)
    elif kind == "submodule":
        (place.tree / "docs" / "rules").mkdir(parents=True)
        (place.tree / "docs" / ".git").write_text("gitdir: ../.git/modules/docs\n")
        file.symlink_to("docs/rules/agents.md")
        (place.tree / "docs" / "rules" / "agents.md").write_text("rules\n")
    elif kind == "git":
        (place.tree / ".git").mkdir()
        (place.tree / ".git" / "config").write_text("[core]\n")
        file.symlink_to(".git/config")
    else:
        (place.tree / "docs").write_text("a file")
        preset = Preset(name="x", instructions=("docs/AGENTS.md",))
    run = place.run()
    before = sorted(path.name for path in place.tree.iterdir())
    placement = write_block(place.tree, preset, run, block(run.run))
    assert placement.file is None
    assert placement.reason
    assert sorted(path.name for path in place.tree.iterdir()) == before


def test_program_that_reads_no_file_gets_the_brief_by_prompt(place: Place) -> None:
    placement = write_block(place.tree, Preset(name="x", instructions=()), place.run(), block("coder-1.1"))
    assert placement.file is None
    assert "reads no instructions file" in str(placement.reason)


def test_a_file_that_became_a_link_outside_is_not_touched(
    place: Place,
) -> None:
    run = place.run()
    write_block(place.tree, PRESET, run, block(run.run))
    target = _outside(place)
    target.write_text(block(run.run))
    (place.tree / "AGENTS.md").unlink()
    (place.tree / "AGENTS.md").symlink_to(target)
    assert remove_block(place.tree, run) is None
    assert target.read_text() == block(run.run)


def test_a_missing_file_or_unwritten_block_needs_no_removal(place: Place) -> None:
    run = place.run()
    assert remove_block(place.tree, run) is None
    write_block(place.tree, PRESET, run, block(run.run))
    (place.tree / "AGENTS.md").unlink()
    assert remove_block(place.tree, run) is None
