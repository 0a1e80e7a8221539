"""What a session finds in its worktree, and git does not: its brief, and the hooks that its program reads there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.crew.liza_path import liza_path
from liza.programs.brief import brief_context, brief_writer, instructions_file
from liza.programs.hooks import hook_install as hooks
from liza.programs.hooks.hook_install import InstalledHooks
from liza.programs.messages import inbox
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.repo.hiding import brief_filter
from liza.repo.runner import Git
from liza.rules.model import State
from liza.rules.paths import agent_of
from liza.rules.sessions.decide import CurrentWork
from liza.rules.tasks import planning
from liza.system import crash_points


@dataclass(frozen=True)
class LaunchInputs:
    """What the command line has to say: the prompt, and words and variables for the hooks."""

    prompt: str
    hooks: InstalledHooks


class WorktreeFiles:
    """Fits out the worktrees of one agent's sessions; ``say`` hears notices."""

    def __init__(self, crew: Crew, preset: Preset, say: Callable[[str], None]) -> None:
        self.crew = crew
        self.preset = preset
        self.notify = say

    def install(self, state: State, held: CurrentWork, directory: RunDir, place: Path) -> LaunchInputs:
        """Lay hooks and brief down, and keep both out of commits. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(place.name)
        installed = self._install_hooks(git, directory, place)
        crash_points.point("launch", "hooked")
        prompt, file = self._write_brief(git, state, held, directory, place, installed.files)
        self._hide_from_git(git, place, held.run, (*installed.files, *file), directory)
        return LaunchInputs(prompt, installed)

    def rewrite_brief(self, state: State, held: CurrentWork, directory: RunDir, place: Path) -> None:
        """The brief of a living session once more, with what came for it meanwhile. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(place.name)
        laid = hooks.list_hook_files(directory)
        _, file = self._write_brief(git, state, held, directory, place, laid)
        self._hide_from_git(git, place, held.run, (*laid, *file), directory)

    def _install_hooks(self, git: Git, directory: RunDir, place: Path) -> InstalledHooks:
        installed = hooks.install_hooks(self.preset, place, directory, liza_path())
        if {*installed.files} - {*brief_filter.find_bindable(git, installed.files)}:
            hooks.remove_hooks(place, directory)
            installed = InstalledHooks(reason=f"another filter works on {installed.files[0]}")
        if installed.reason is not None:
            self.notify(f"{directory.run} goes without hooks: {installed.reason}")
        return installed

    def _write_brief(
        self, git: Git, state: State, held: CurrentWork, directory: RunDir, place: Path, others: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """The prompt for the command line, and the file with the block; none where it had to go into the prompt."""
        text = brief_writer.compose_brief(self._brief_context(state, held, directory, place))
        directory.write_brief(text.assignment, text.beacon_fields, text.prompt, text.block)
        names = brief_filter.find_bindable(git, self.preset.instructions)
        brief_filter.bind_filter(self.crew.git, (*names, *others), held.run)
        written = instructions_file.write_block(place, replace(self.preset, instructions=names), directory, text.block)
        if written.file is not None and not brief_filter.find_bindable(git, (written.file,)):
            instructions_file.remove_block(place, directory)
            written = instructions_file.BlockPlacement(None, f"another filter works on {written.file}")
        if written.file is None:
            if self.preset.instructions:
                self.notify(f"{held.run} gets its brief by prompt: {written.reason}")
            return f"{text.prompt}\n\n{text.block}", ()
        if written.file not in names:
            # One of the names is a link: git knows the block under the name of the file that it leads to.
            brief_filter.bind_filter(self.crew.git, (*names, written.file, *others), held.run)
        return text.prompt, (written.file,)

    def _hide_from_git(self, git: Git, place: Path, run: str, files: Iterable[str], directory: RunDir) -> None:
        """A file that git knows is filtered; one that it does not is hidden while it holds nothing but ours."""
        hidden = []
        for file in files:
            if brief_filter.is_tracked(git, file):
                brief_filter.refresh_index_entry(git, file)
            elif file in hooks.list_created_files(directory) or not brief_filter.read_without_blocks(place / file):
                hidden.append(file)
        if hidden:
            brief_filter.hide_files(self.crew.git, hidden, run)

    def _brief_context(
        self, state: State, held: CurrentWork, directory: RunDir, place: Path
    ) -> brief_context.BriefContext:
        trigger = next((one for one in planning.find_triggers(state) if one.name == state.planning.trigger), None)
        branch = state.config.integration_branch
        return brief_context.BriefContext(
            state=state,
            run=held.run,
            now=self.crew.clock.now(),
            root=self.crew.paths.root,
            liza=liza_path(),
            worktree=place,
            assignment=directory.assignment_path,
            task=state.task(held.task) if held.task else None,
            integration_tip=self.crew.git.out("rev-parse", f"refs/heads/{branch}"),
            is_set_up=bool(state.config.sandbox_setup),
            wake_trigger=state.planning.trigger or "",
            wake_ids=state.planning.ids,
            wake_facts=trigger.facts if trigger else "",
            messages=inbox.list_pending(self.crew.paths, agent_of(held.run)),
            earlier_commits=self._earlier_commits(state, held, place),
        )

    def _earlier_commits(self, state: State, held: CurrentWork, place: Path) -> tuple[str, ...]:
        """What earlier runs committed on the task's branch, newest first. Raises GitFailed."""
        task = state.task(held.task) if held.task and held.kind == "work" else None
        if task is None or task.base_commit is None or not any(one.run != held.run for one in task.history if one.run):
            return ()
        git = self.crew.worktrees.slot_git(place.name)
        own = f"{task.base_commit}..HEAD"
        return git.lines("log", "--no-color", "--first-parent", "--format=%h %s", "-n10", own)


def remove_worktree_files(crew: Crew, record: RunRecord) -> None:
    """Take away what ``fit`` laid down for a run. Repeatable. Raises LizaError, OSError."""
    if record.worktree:
        # By its name: the record is where an agent could write another place.
        place, directory = crew.paths.slot(Path(record.worktree).name), crew.run_dir(record.run)
        hooks.remove_hooks(place, directory)
        instructions_file.remove_block(place, directory)
        if crew.worktrees.exists(place.name):
            # Whoever took it away may have died before git saw it.
            for name in {
                *hooks.list_hook_files(directory),
                *filter(None, [instructions_file.find_block_file(place, directory)]),
            }:
                brief_filter.refresh_index_entry(crew.worktrees.slot_git(place.name), name)
    brief_filter.unbind_filter(crew.git, record.run)
    brief_filter.unhide_files(crew.git, record.run)
