"""What a session finds in its worktree, and git does not: its brief, and the hooks that its program reads there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.crew.liza_path import liza_path
from liza.programs.brief import brief_writer
from liza.programs.hooks import hook_install as hooks
from liza.programs.hooks.hook_install import Installed
from liza.programs.messages import inbox
from liza.programs.presets.preset import Preset
from liza.programs.session.run_directory import RunDir, RunRecord
from liza.repo.hiding import brief_filter
from liza.repo.runner import Git
from liza.rules.model import State
from liza.rules.paths import agent_of
from liza.rules.sessions.decide import Holding
from liza.rules.tasks import planning
from liza.system import crash_points


@dataclass(frozen=True)
class Fitted:
    """What the command line has to say: the prompt, and words and variables for the hooks."""

    prompt: str
    hooks: Installed


class Outfit:
    """Fits out the worktrees of one agent's sessions; ``say`` hears notices."""

    def __init__(self, crew: Crew, preset: Preset, say: Callable[[str], None]) -> None:
        self.crew = crew
        self.preset = preset
        self.say = say

    def fit(self, state: State, held: Holding, directory: RunDir, place: Path) -> Fitted:
        """Lay hooks and brief down, and keep both out of commits. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(place.name)
        installed = self._hooks(git, directory, place)
        crash_points.point("launch", "hooked")
        prompt, file = self._brief(git, state, held, directory, place, installed.files)
        self._keep_out(git, place, held.run, (*installed.files, *file), directory)
        return Fitted(prompt, installed)

    def brief_again(self, state: State, held: Holding, directory: RunDir, place: Path) -> None:
        """The brief of a living session once more, with what came for it meanwhile. Raises LizaError, OSError."""
        git = self.crew.worktrees.slot_git(place.name)
        laid = hooks.laid(directory)
        _, file = self._brief(git, state, held, directory, place, laid)
        self._keep_out(git, place, held.run, (*laid, *file), directory)

    def _hooks(self, git: Git, directory: RunDir, place: Path) -> Installed:
        installed = hooks.install(self.preset, place, directory, liza_path())
        if {*installed.files} - {*brief_filter.bindable(git, installed.files)}:
            hooks.take_away(place, directory)
            installed = Installed(reason=f"another filter works on {installed.files[0]}")
        if installed.reason is not None:
            self.say(f"{directory.run} goes without hooks: {installed.reason}")
        return installed

    def _brief(
        self, git: Git, state: State, held: Holding, directory: RunDir, place: Path, others: tuple[str, ...]
    ) -> tuple[str, tuple[str, ...]]:
        """The prompt for the command line, and the file with the block; none where it had to go into the prompt."""
        text = brief_writer.compose(self._context(state, held, directory, place))
        directory.write_brief(text.assignment, text.facts, text.prompt, text.block)
        names = brief_filter.bindable(git, self.preset.instructions)
        brief_filter.bind(self.crew.git, (*names, *others), held.run)
        written = brief_writer.write(place, replace(self.preset, instructions=names), directory, text.block)
        if written.file is not None and not brief_filter.bindable(git, (written.file,)):
            brief_writer.take_away(place, directory)
            written = brief_writer.Written(None, f"another filter works on {written.file}")
        if written.file is None:
            if self.preset.instructions:
                self.say(f"{held.run} gets its brief by prompt: {written.reason}")
            return f"{text.prompt}\n\n{text.block}", ()
        if written.file not in names:
            # One of the names is a link: git knows the block under the name of the file that it leads to.
            brief_filter.bind(self.crew.git, (*names, written.file, *others), held.run)
        return text.prompt, (written.file,)

    def _keep_out(self, git: Git, place: Path, run: str, files: Iterable[str], directory: RunDir) -> None:
        """A file that git knows is filtered; one that it does not is hidden while it holds nothing but ours."""
        hidden = []
        for file in files:
            if brief_filter.is_known(git, file):
                brief_filter.settle_index(git, file)
            elif file in hooks.made(directory) or not brief_filter.text_outside(place / file):
                hidden.append(file)
        if hidden:
            brief_filter.hide(self.crew.git, hidden, run)

    def _context(self, state: State, held: Holding, directory: RunDir, place: Path) -> brief_writer.Context:
        trigger = next((one for one in planning.triggers(state) if one.name == state.planning.trigger), None)
        branch = state.config.integration_branch
        return brief_writer.Context(
            state=state,
            run=held.run,
            now=self.crew.clock.now(),
            root=self.crew.paths.root,
            liza=liza_path(),
            worktree=place,
            assignment=directory.assignment,
            task=state.task(held.task) if held.task else None,
            integration_tip=self.crew.git.out("rev-parse", f"refs/heads/{branch}"),
            set_up=bool(state.config.sandbox_setup),
            trigger=state.planning.trigger or "",
            ids=state.planning.ids,
            facts=trigger.facts if trigger else "",
            messages=inbox.pending(self.crew.paths, agent_of(held.run)),
            committed=self._committed(state, held, place),
        )

    def _committed(self, state: State, held: Holding, place: Path) -> tuple[str, ...]:
        """What earlier runs committed on the task's branch, newest first. Raises GitFailed."""
        task = state.task(held.task) if held.task and held.kind == "work" else None
        if task is None or task.base_commit is None or not any(one.run != held.run for one in task.history if one.run):
            return ()
        git = self.crew.worktrees.slot_git(place.name)
        own = f"{task.base_commit}..HEAD"
        return git.lines("log", "--no-color", "--first-parent", "--format=%h %s", "-n10", own)


def strip(crew: Crew, record: RunRecord) -> None:
    """Take away what ``fit`` laid down for a run. Repeatable. Raises LizaError, OSError."""
    if record.worktree:
        # By its name: the record is where an agent could write another place.
        place, directory = crew.paths.slot(Path(record.worktree).name), crew.run_dir(record.run)
        hooks.take_away(place, directory)
        brief_writer.take_away(place, directory)
        if crew.worktrees.stands(place.name):
            # Whoever took it away may have died before git saw it.
            for name in {*hooks.laid(directory), *filter(None, [brief_writer.laid(place, directory)])}:
                brief_filter.settle_index(crew.worktrees.slot_git(place.name), name)
    brief_filter.unbind(crew.git, record.run)
    brief_filter.unhide(crew.git, record.run)
