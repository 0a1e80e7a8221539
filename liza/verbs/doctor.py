"""doctor: what stands in the way of a crew here, and, with fix, settle what the dead left."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from liza.crew import layout, run_state
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew
from liza.crew.drift.accept import accept_drift
from liza.crew.project import project_report, proof_runner
from liza.crew.recovery.findings import ACTOR, Finding, list_findings
from liza.crew.recovery.recover import recover_crew
from liza.programs.presets import preset_table
from liza.repo.config_pins import Pins
from liza.repo.hiding import brief_filter
from liza.repo.runner import Git
from liza.repo.slots import slots_directory
from liza.repo.survey import Survey
from liza.rules import invariants
from liza.rules.errors import LizaError, Missing, NoCrew, Refused, SharedPathBlocked
from liza.rules.model import Config, State
from liza.rules.paths import ROLES, Paths
from liza.verbs.init import check_repository


@dataclass(frozen=True)
class DoctorReport:
    """Everything that was looked at; ``settled`` is what was put right."""

    findings: tuple[Finding, ...]
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.findings)


def doctor(directory: Path, *, fix: bool = False, tests: bool = False, accepted: Sequence[str] = ()) -> DoctorReport:
    """Look at the repository, the programs, the project and, where there is one, the crew.

    With ``fix`` what the dead left is settled first; with ``tests`` the tests run and are proved once more; what is
    ``accepted`` by name is from now on as a person wants it. Raises LizaError for what can be neither settled nor left.
    """
    found: list[Finding] = []
    settled: tuple[str, ...] = ()
    crew = _find_crew_or_report(found, directory)
    if crew is not None and fix:
        settled += _replace_pins(crew)
    damaged = None if crew is None else _damaged(crew)
    if damaged is not None:
        # What reads the repository would only say the same, once more each.
        return DoctorReport((*found, damaged), settled)
    if accepted:
        settled += accept_drift(crew or find_crew(directory), accepted)
    place = _check_or_report(found, "git", lambda: _repository(directory, crew))
    state = None if crew is None else _board(found, crew)
    if crew is not None and state is not None:
        if fix:
            settled += _recover_crew(crew)
            state = crew.board.read()
        found += list_findings(crew, state)
    if place is not None:
        # Of a board that cannot be read nobody knows what its crew runs, and how it tests.
        if crew is None:
            git = replace(Git(place.root), pins=Pins.from_user_config(Git(place.root)))
            found += _programs(place.root, Config(), {}, before=True)
            found += project_report.project_findings(Paths(place.root, _choose_slots(found, place.root)), git, Config())
        elif state is not None:
            found += _prove_tests(crew) if tests else []
            config = crew.board.read().config
            found += [
                *_programs(place.root, config, _programs_of_agents(crew, state)),
                *project_report.project_findings(crew.paths, crew.git, config),
            ]
    return DoctorReport(tuple(found), settled)


def _choose_slots(found: list[Finding], root: Path) -> Path | None:
    """Where `liza init` would put the worktrees; None where it finds no place."""
    try:
        return slots_directory.choose_directory(root, None, os.environ).directory
    except Refused as wrong:
        found.append(Finding("worktrees", wrong.message, False, wrong.hint))
        return None


def _prove_tests(crew: Crew) -> list[Finding]:
    """Run the proof once more. What it shows goes onto the board and is told from there; what kept it is told here."""
    try:
        proof_runner.prove_now(crew, ACTOR)
    except LizaError as wrong:
        return [Finding("tests", wrong.message, False, wrong.hint)]
    return []


def _recover_crew(crew: Crew) -> tuple[str, ...]:
    """What could be put right. Without integration, or where something stands in the place of a lock, nothing can:
    that is a finding of its own."""
    try:
        settled = tuple(one.message for one in recover_crew(crew, ACTOR))
    except (Missing, SharedPathBlocked):
        settled = ()
    return settled + _unbind_briefs(crew)


def _replace_pins(crew: Crew) -> tuple[str, ...]:
    """Pins that are gone, or damaged, are taken anew, but not from the repository: by now anybody can have written
    there."""
    if layout.has_pins(crew):
        return ()
    require_person(crew, planner=False)
    layout.refuse_survivors(crew, layout.AGAIN)
    # First of all: where the board cannot be read either, everything is left for the command that restores it.
    goal = crew.board.read_as_written().goal.description
    had_page = (crew.paths.root / layout.GOAL_FILE).exists()
    how = _move_damaged_pins(crew.paths.pins)
    new = layout.recreate_layout(crew)
    told = [f"the pinned configuration {how}: what the repository's own configuration names will not run"]
    if not had_page:
        kept = layout.restore_goal_file(new, goal)
        told.append(f"{layout.GOAL_FILE} was gone: {'as the history has it' if kept else 'a new page'}")
    return *told, *layout.restore_confirmed_settings(new)


def _move_damaged_pins(pins: Path) -> str:
    """Keep pins that cannot be read under another name; what became of them, in words. Raises OSError."""
    if not pins.exists():
        return "was gone"
    kept = pins.with_name(f"{pins.name}.broken")
    pins.replace(kept)
    return f"was damaged and is kept as {kept.name}"


def _damaged(crew: Crew) -> Finding | None:
    """That a part of .liza was deleted, where its board can be read; a GitFailed is told by whoever reads the pins."""
    with suppress(LizaError, OSError):
        told = layout.damage(crew, crew.board.read())
        return None if told is None else Finding("crew", told, False, layout.AGAIN)
    return None


def _check_or_report(found: list[Finding], about: str, ask: Callable[[], tuple[str, Survey]]) -> Survey | None:
    """One question; what it refuses with is a finding."""
    try:
        text, place = ask()
    except LizaError as wrong:
        found.append(Finding(about, wrong.message, False, wrong.hint))
        return None
    found.append(Finding(about, text))
    return place


def _repository(directory: Path, crew: Crew | None) -> tuple[str, Survey]:
    place = check_repository(directory, None if crew is None else crew.git.pins)
    dirty = place.dirty_count
    changed = f"{_count_noun(dirty, 'file', 'files')} changed (left alone; " if dirty else "clean ("
    told = f"{place.git_version} · on {place.branch}, {changed}agents start from {str(place.head)[:12]})"
    return told, place


def _find_crew_or_report(found: list[Finding], directory: Path) -> Crew | None:
    try:
        return find_crew(directory)
    except NoCrew as none:
        found.append(Finding("crew", none.message, True, none.hint))
        return None


def _board(found: list[Finding], crew: Crew) -> State | None:
    """The board, also where a rule of it is broken; None where it cannot be read."""
    try:
        state = crew.board.read()
    except LizaError as wrong:
        found.append(Finding("board", wrong.message, False, wrong.hint))
        return None
    broken = invariants.check_board(state)
    if broken:
        text = f"{_count_noun(len(broken), 'rule is', 'rules are')} broken, the first: {broken[0]}"
        found.append(Finding("board", text, False, "liza validate"))
    else:
        told = f"revision {state.revision}, {_count_noun(len(state.tasks), 'task', 'tasks')}, every rule holds"
        found.append(Finding("board", told))
    return state


def _unbind_briefs(crew: Crew) -> tuple[str, ...]:
    """Bindings of runs whose session is over and settled."""
    gone = []
    for run in brief_filter.list_bound_runs(crew.git):
        if run_state.is_session_over(crew.run_dir(run)):
            brief_filter.unbind_filter(crew.git, run)
            brief_filter.unhide_files(crew.git, run)
            gone.append(f"the brief of {run} was still bound; taken away")
    return tuple(gone)


def _programs_of_agents(crew: Crew, state: State) -> dict[str, tuple[str, bool]]:
    """Of each agent that a supervisor was ever started for: what it runs, and whether one is at work."""
    return {name: (agent.program, crew.is_supervised(name)) for name, agent in state.agents.items() if agent.program}


def _programs(
    root: Path, config: Config, ran: Mapping[str, tuple[str, bool]], *, before: bool = False
) -> list[Finding]:
    """What is installed, and what is used and is not there; ``before``: no crew is there yet, and nobody chose."""
    try:
        table = preset_table.load_presets(Paths(root))
    except LizaError as wrong:
        return [Finding("programs", wrong.message, False, wrong.hint)]
    found = [Finding("programs", notice) for notice in table.notices]
    at_work = {name: program for name, (program, lives) in ran.items() if lives}
    if at_work:
        found += [Finding(name, f"runs {program}") for name, program in at_work.items()]
    else:
        rows = (row for row in table.rows.values() if row.command)
        found += [Finding(row.name, version) for row in rows if (version := preset_table.read_version(row))]
    used = {program: f"is what {name} runs" for name, (program, _) in ran.items()}
    defaults: set[str] = set()
    if not ran:
        chosen = [preset_table.choose_program(None, {}, role, config, table) for role in ROLES]
        used = {choice.spec: "is what the crew would run" for choice in chosen}
        defaults = {choice.spec for choice in chosen if before and choice.source == table.built_in.source}
    lacking = {spec: one for spec in sorted(used) if (one := _find_missing_program(table, spec, used[spec]))}
    return found + [_suggest_another(one, found) if spec in defaults else one for spec, one in lacking.items()]


def _suggest_another(lacking: Finding, there: Sequence[Finding]) -> Finding:
    """The default program is not there, and another may still be chosen: that is no error before there is a crew."""
    name = next((one.about for one in there if one.about != "programs"), "script:./agent.sh")
    return replace(lacking, ok=True, hint=f'{lacking.hint}; or another: liza init "…" --program {name}')


def _find_missing_program(table: preset_table.Presets, spec: str, used: str) -> Finding | None:
    """That a program which is used is not there; None where it is."""
    try:
        preset = table.resolve(spec)
    except LizaError as wrong:
        return Finding("programs", f"{spec} {used}: {wrong.message}", False, wrong.hint)
    if preset_table.find_executable(preset) is not None:
        return None
    hint = preset.install or f"liza up --program {preset.name}:./agent.sh"
    return Finding(preset.name, f"{used}, and {preset.command!r} is not installed", False, hint)


def _count_noun(number: int, one: str, more: str) -> str:
    return f"1 {one}" if number == 1 else f"{number} {more}"
