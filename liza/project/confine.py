"""confine: find the box of a slot, in which a person looks around as an agent does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from liza.box import support, terminal_filter
from liza.box.box import Mount, MountKind
from liza.crew.caller import require_person
from liza.crew.crew import Crew
from liza.git import slot_records
from liza.git.rules.slot_states import slot_variables
from liza.model.errors import LizaError, Missing, Refused, UnknownId, UsageError
from liza.model.model import Confinement, State
from liza.model.state_words import describe_task
from liza.model.value_classes import Value, replace
from liza.project import command_box, commands
from liza.system import boxed_calls


class BoxedCommand(Value):
    """A command line that runs in the box of a slot, its environment and its directory outside of the box."""

    slot: str
    argv: tuple[str, ...]
    environ: Mapping[str, str]
    directory: Path


def confine(crew: Crew, words: Sequence[str], directory: Path, shell: str) -> BoxedCommand:
    """Return what runs a command in the box of a slot. Nothing that lives in the slot is changed.

    ``words``: the task or agent whose worktree it is, unless ``directory`` is in one; then the command, else ``shell``.
    Raises UsageError, Refused, UnknownId, Missing, GitFailed, OSError.
    """
    require_person(crew, planner=False)
    machine = support.find_support()
    if not machine.works:
        raise Missing(f"this machine cannot make a box: {machine.cause}", machine.remedy or "liza doctor")
    state = crew.board.read()
    slot, command = _choose_slot(crew, state, words, directory)
    config = replace(state.config, confinement=Confinement.REQUIRED)
    box = command_box.open_box(crew.paths, crew.worktrees.slot_git(slot), config)
    assert box is not None
    # Liza imports commits of sessions only, and a person must not hold a lock of git that a session needs.
    git = Mount(MountKind.READ_ONLY, box.own.git)
    # What an agent wrote must not type into the person's terminal.
    descriptor = None if support.forbids_typing() else terminal_filter.open_filter()
    box = replace(box, box=replace(box.box, mounts=(*box.box.mounts, git), filter_descriptor=descriptor))
    outside = commands.command_environment(crew.paths.root, state.config.environment)
    # It is a person's: a merger that looks for orphans of tests must not end it.
    environ = {name: value for name, value in outside.items() if name != "LIZA_RUN"} | slot_variables(slot)
    argv = tuple(box.wrap(command or (shell,)))
    inside = {**box.environment(environ), boxed_calls.CONFINED: boxed_calls.LOOKS}
    return BoxedCommand(slot, argv, inside, crew.paths.slot(slot))


def _choose_slot(crew: Crew, state: State, words: Sequence[str], directory: Path) -> tuple[str, tuple[str, ...]]:
    """Return the slot, and the command without the name of a task or an agent."""
    name = words[0] if words else ""
    task = state.task(name)
    if task is not None:
        if task.worktree is None or not crew.worktrees.exists(task.worktree):
            raise Refused(f"{describe_task(name, task.status)}: it has no worktree", f"liza task show {name}")
        return task.worktree, tuple(words[1:])
    if name in state.agents:
        slots = crew.worktrees.slots_of(name)
        if not slots:
            raise Refused(f"{name} has no worktree yet", "liza slots")
        return slots[0], tuple(words[1:])
    around = (_slot_at(crew, path) for path in (directory, *directory.parents))
    slot = next((slot for slot in around if slot is not None), None)
    if slot is None:
        if name:
            raise UnknownId(f"{name!r} is no task and no agent, and {directory} is no worktree", "liza slots")
        raise UsageError("confine needs a task or an agent, or to be typed in a worktree", "liza slots")
    return slot, tuple(words)


def _slot_at(crew: Crew, path: Path) -> str | None:
    try:
        name = slot_records.find_slot_name(path, crew.paths.slots)
        return name if name is not None and crew.worktrees.exists(name) else None
    except LizaError:
        return None
