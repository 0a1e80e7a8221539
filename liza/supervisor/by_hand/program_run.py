"""Run a program by hand: in a slot with the brief of its task, elsewhere with the general context of the crew."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

from liza.crew.briefs import checkout_brief
from liza.crew.caller import identify_run, require_person
from liza.crew.crew import Crew
from liza.crew.liza_path import liza_path
from liza.programs.presets import preset_table
from liza.programs.presets.acp_settings import Transport
from liza.programs.presets.preset import Preset
from liza.rules.errors import Refused, UsageError
from liza.rules.owned_work import find_current_work
from liza.rules.value_classes import Value
from liza.supervisor.by_hand import slot_session
from liza.supervisor.by_hand.person_child import run_child
from liza.supervisor.by_hand.slot_session import SlotSession
from liza.supervisor.launch import Launcher
from liza.system import files

_TYPED = "liza run"


class RunRequest(Value):
    """What a person typed, and where: the program, as for ``up --program``, the arguments that it gets, the environment
    and the directory."""

    program: str
    args: tuple[str, ...]
    environ: Mapping[str, str]
    cwd: Path


def run_program(crew: Crew, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run the program until it ends, in the caller's terminal or with the caller's pipes; return its exit status.

    Raises Refused inside a session, in a slot without a task, and if a supervisor runs the slot's agent; UsageError for
    an unknown program; ProgramMissing; WriteFailed; LizaError.
    """
    require_person(crew, planner=False)
    preset = _resolve(crew, request)
    preset_table.require_executable(preset, typed=_TYPED)
    slots = crew.paths.slots.resolve()
    run = _run_in_slot if request.cwd.resolve().is_relative_to(slots) else _run_in_checkout
    with files.convert_os_errors():
        return run(crew, preset, request, notify)


def _resolve(crew: Crew, request: RunRequest) -> Preset:
    preset = preset_table.load_presets(crew.paths).resolve(request.program, _TYPED, request.cwd)
    if preset.via is Transport.ACP:
        name = preset.name
        raise UsageError(f"{request.program} has no terminal: it is driven over ACP", f"{_TYPED} {name}")
    return preset


def _run_in_slot(crew: Crew, preset: Preset, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run it with the brief of the slot's task, as the claim's run. The claim stays when it ends."""
    environ, cwd = request.environ, request.cwd
    caller = identify_run(crew, environ, cwd)
    agent = caller.agent
    named = environ.get("LIZA_AGENT_ID")
    if named not in (None, agent):
        raise Refused(f"this worktree is {agent}'s, and LIZA_AGENT_ID is {named}", "unset LIZA_AGENT_ID")
    slot = cwd.resolve().relative_to(crew.paths.slots.resolve()).parts[0]
    with slot_session.holding_agent(crew, agent):
        state = crew.board.read()
        work = find_current_work(state, agent)
        if work is None or work.run != caller.run:
            raise Refused(f"{agent} holds no work in this worktree any more", f"liza claim ID --agent {agent}")
        work = slot_session.take_run(crew, state, work, slot)
        launcher = Launcher(crew, preset, environ, notify)
        session = SlotSession(crew, launcher, crew.paths.slot(slot), work)
        status = 1
        try:
            prepared = session.prepare(interactive=_is_terminal(), args=request.args)
            with slot_session.renewing_lease(crew, work.run, notify):
                status = run_child(
                    prepared.argv,
                    cwd,
                    prepared.env,
                    stdin_text=prepared.stdin_text,
                    started=session.record_start,
                )
        finally:
            session.finish(status)
    _tell_next(crew, work.task, agent, notify)
    return status


def _tell_next(crew: Crew, task: str | None, agent: str, notify: Callable[[str], None]) -> None:
    """Say that the work is still held, and how it goes on."""
    work = find_current_work(crew.board.read(), agent)
    if work is not None and work.task == task:
        notify(f"{agent} still holds {task}: start a program again, or liza submit, or liza task release {task}")


def _run_in_checkout(crew: Crew, preset: Preset, request: RunRequest, notify: Callable[[str], None]) -> int:
    """Run it as the person's own program: its own options and permissions, and the context in its instructions file."""
    env = {**request.environ, **preset.env}
    env["PATH"] = f"{liza_path().parent}:{env['PATH']}" if env.get("PATH") else os.defpath
    argv = (str(preset_table.require_executable(preset)), *preset.args, *request.args)
    with checkout_brief.written(crew, preset, notify) as brief:
        if brief.placement.file is None:
            notify(f"{preset.name} starts without Liza's context: {brief.placement.reason}")
        return run_child(argv, request.cwd, env, descriptors=(brief.lock_descriptor,))


def _is_terminal() -> bool:
    """Whether the caller's input and output are a terminal. In a pipe a program runs without one, with its prompt."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty()
