"""Write a session's brief and its program's hooks into the worktree, and hide them from git."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from liza.briefs import brief_writer, instructions_file
from liza.briefs.brief_context import gather_brief_facts
from liza.briefs.instructions_file import BlockSite, hide_from_git, place_block
from liza.crew.crew import Crew
from liza.git import hiding
from liza.git.runner import Git
from liza.model.derived import CurrentWork
from liza.model.model import State
from liza.model.narration import Detail
from liza.model.value_classes import Value
from liza.programs.hooks import hook_install as hooks
from liza.programs.hooks.hook_install import InstalledHooks
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.system import crash_points
from liza.system.installation import liza_path


class LaunchInputs(Value):
    """Inputs of the command line: the prompt, and the hooks' arguments and variables."""

    prompt: str
    hooks: InstalledHooks


class WorktreeFiles:
    """Writes the files of one agent's sessions; ``notify`` prints notices."""

    def __init__(self, crew: Crew, preset: Preset, notify: Callable[[str], None]) -> None:
        self.crew = crew
        self.preset = preset
        self.notify = notify

    def install(self, state: State, work: CurrentWork, directory: RunDir, worktree: Path) -> LaunchInputs:
        """Write the hooks and the brief, and hide both from git. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(worktree.name)
        installed, bindable = self._install_hooks(git, directory, worktree)
        crash_points.point("launch", "hooked")
        prompt, file = self._write_brief(git, state, work, directory, worktree, installed.files, bindable)
        site = BlockSite(git, self.crew.git, worktree, directory)
        hide_from_git(site, (*installed.files, *file), hooks.list_created_files(directory))
        return LaunchInputs(prompt, installed)

    def rewrite_brief(self, state: State, work: CurrentWork, directory: RunDir, worktree: Path) -> None:
        """Write the brief of a living session again, with the messages since then. Raises LizaError, OSError."""
        # That of the session: its index has the size of the file without the block.
        git = self.crew.worktrees.open_git(worktree.name)
        hook_files = hooks.list_hook_files(directory)
        bindable = hiding.find_bindable(git, self.preset.instructions)
        _, file = self._write_brief(git, state, work, directory, worktree, hook_files, bindable)
        site = BlockSite(git, self.crew.git, worktree, directory)
        hide_from_git(site, (*hook_files, *file), hooks.list_created_files(directory))

    def _install_hooks(self, git: Git, directory: RunDir, worktree: Path) -> tuple[InstalledHooks, tuple[str, ...]]:
        """Install the hooks; remove them again if git's filter cannot hide one of their files.

        Return them, and the instructions files that the filter can hide.
        """
        installed = hooks.install_hooks(self.preset, worktree, directory, liza_path())
        bindable = hiding.find_bindable(git, (*installed.files, *self.preset.instructions))
        if {*installed.files} - {*bindable}:
            hooks.remove_hooks(worktree, directory)
            installed = InstalledHooks(reason=f"another git filter is set for {installed.files[0]}")
        if installed.reason is not None:
            self.notify(f"{directory.run} runs without hooks: {installed.reason}")
        return installed, tuple(name for name in self.preset.instructions if name in bindable)

    def _write_brief(
        self,
        git: Git,
        state: State,
        work: CurrentWork,
        directory: RunDir,
        worktree: Path,
        others: tuple[str, ...],
        names: tuple[str, ...],
    ) -> tuple[str, tuple[str, ...]]:
        """Write the brief; return the prompt for the command line and the file with the block.

        ``names`` are the instructions files that git's filter can hide. Without a file, or if ``config.brief`` says so,
        the block is part of the prompt.
        """
        text = brief_writer.compose_brief(gather_brief_facts(self.crew, state, work, directory))
        directory.write_brief(text.assignment, text.beacon_fields, text.prompt, text.block, text.quoted)
        # A session that began with a file gets its messages there.
        uses_file = state.config.brief == "file" or directory.read_brief_location() is not None
        site = BlockSite(git, self.crew.git, worktree, directory)
        placement = place_block(site, self.preset, text.block, names if uses_file else (), others)
        if placement.file is None:
            if self.preset.instructions and uses_file:
                self.notify(Detail(f"{work.run} gets its brief in the prompt: {placement.reason}"))
            return f"{text.prompt}\n\n{text.block}", ()
        return text.prompt, (placement.file,)


def remove_worktree_files(crew: Crew, record: RunRecord) -> None:
    """Remove what ``WorktreeFiles.install`` wrote for a run. Idempotent. Raises LizaError, OSError."""
    if record.worktree:
        # Only the name of the record's path is used: an agent can write any path into the record.
        worktree, directory = crew.paths.slot(Path(record.worktree).name), crew.run_dir(record.run)
        hooks.remove_hooks(worktree, directory)
        instructions_file.remove_block(worktree, directory)
        if crew.worktrees.exists(worktree.name):
            # An earlier removal may have crashed before it refreshed the index.
            for name in {
                *hooks.list_hook_files(directory),
                *filter(None, [instructions_file.find_block_file(worktree, directory)]),
            }:
                hiding.refresh_index_entry(crew.worktrees.slot_git(worktree.name), name)
    hiding.unbind_filter(crew.git, record.run)
    hiding.unhide_files(crew.git, record.run)
