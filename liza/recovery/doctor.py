"""doctor: report what prevents a crew from working here; with --fix, repair what crashed processes left."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from liza.briefs import checkout_brief
from liza.config import confirmed_settings
from liza.config.rules import settings
from liza.crew import deleted_parts, layout
from liza.crew.caller import require_person
from liza.crew.crew import Crew, find_crew, with_stop
from liza.git import hiding, slots_directory
from liza.git.runner import Git
from liza.git.survey import Survey
from liza.merging import proof_runner, statement_writer
from liza.model import invariants
from liza.model.configuration import Config
from liza.model.errors import Finding, LizaError, Missing, NoCrew, Refused, SharedPathBlocked, UsageError
from liza.model.model import State
from liza.model.paths import ROLES, Paths
from liza.model.value_classes import Value, replace
from liza.programs import liveness
from liza.programs.presets import command_line, preset_table, program_choice
from liza.programs.rules.program_spec import parse_spec
from liza.project import programs, project_report
from liza.project.baseline import InitOptions
from liza.project.init import check_repository, find_obstacles
from liza.recovery.findings import ACTOR, list_findings
from liza.recovery.recover import recover_crew
from liza.system.clock import SystemClock
from liza.tasks import archive
from liza.text.formats import count_noun
from liza.usage.program_accounts import check_accounts


class DoctorReport(Value):
    """All findings; ``repaired`` says what was repaired."""

    findings: tuple[Finding, ...]
    repaired: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(finding.ok for finding in self.findings)


def doctor(directory: Path, *, fix: bool = False, tests: bool = False, accepted: Sequence[str] = ()) -> DoctorReport:
    """Check the repository, the programs, the project and, if there is one, the crew.

    ``fix``: first repair what crashed processes left. ``tests``: run the tests and prove them again. ``accepted``:
    names of outside changes that a person accepts. Raises LizaError if something can neither be repaired nor reported.
    """
    findings: list[Finding] = []
    repaired: tuple[str, ...] = ()
    crew = _find_crew_or_report(findings, directory)
    if crew is not None and fix:
        repaired += _replace_pins(crew)
    damaged = None if crew is None else _damaged(crew)
    if damaged is not None:
        # The other checks need git, which does not start without pins: each would report the same damage.
        return DoctorReport((*findings, damaged), repaired)
    if accepted:
        repaired += accept_drift(crew or find_crew(directory), accepted)
    surveyed = _check_repository(findings, directory, crew)
    state = None if crew is None else _board(findings, crew)
    if crew is not None:
        findings += _inspect_server(crew, state)
    if crew is not None and state is not None:
        if fix:
            repaired += _recover_crew(crew)
            state = crew.board.read()
        findings += list_findings(crew, state)
    if surveyed is not None:
        # If there is a crew whose board cannot be read, its programs and tests are unknown: they are not checked.
        if crew is None:
            findings += _programs(surveyed.root, Config(), {}, before=True)
            findings += project_report.project_findings(
                Paths(surveyed.root, _choose_slots(findings, surveyed.root)), Git(surveyed.root), Config()
            )
        elif state is not None:
            findings += _prove_tests(crew) if tests else []
            config = crew.board.read().config
            findings += [
                *_programs(surveyed.root, config, _programs_of_agents(crew, state)),
                *project_report.project_findings(crew.paths, crew.git, config),
            ]
    return DoctorReport(tuple(findings), repaired)


def _choose_slots(findings: list[Finding], root: Path) -> Path | None:
    """Directory in which `liza init` would put the worktrees; None, with a finding, if no directory is suitable."""
    try:
        return slots_directory.choose_directory(root, None, os.environ).directory
    except Refused as error:
        findings.append(Finding("worktrees", error.message, False, error.hint))
        return None


def _prove_tests(crew: Crew) -> list[Finding]:
    """Run the proof again; its outcome is recorded on the board and reported from there. Returns a finding if it could
    not run."""
    try:
        proof_runner.prove_now(crew, ACTOR)
    except LizaError as error:
        return [Finding("tests", error.message, False, error.hint)]
    return []


def _recover_crew(crew: Crew) -> tuple[str, ...]:
    """Repair the crew; return what was repaired.

    Without integration, or with a lock file replaced by something else, nothing can be repaired: those are findings of
    their own.
    """
    with suppress(OSError):
        statement_writer.forget_failure(crew.paths)
    try:
        repaired = tuple(repair.message for repair in recover_crew(crew, ACTOR))
    except (Missing, SharedPathBlocked):
        repaired = ()
    with suppress(LizaError, OSError):
        # Statements that a locked key held back until their tasks were archived.
        statement_writer.complete(crew, tuple(archive.iter_archived(crew.board, crew.board.read())))
    return repaired + _unbind_briefs(crew)


def _replace_pins(crew: Crew) -> tuple[str, ...]:
    """Recreate missing or damaged pins; return what was done."""
    if deleted_parts.has_pins(crew.paths):
        return ()
    require_person(crew, planner=False)
    layout.refuse_survivors(crew.paths, deleted_parts.AGAIN)
    # Read the board before any change: if it cannot be read either, `liza restore` is needed, and this raises.
    goal = crew.board.read_as_written().goal.description
    had_page = (crew.paths.root / layout.GOAL_FILE).exists()
    reason = _move_damaged_pins(crew.paths.pins)
    recreated = layout.recreate_layout(crew)
    lines = [f"the file of confirmed settings {reason}"]
    if not had_page:
        from_history = layout.restore_goal_file(recreated, goal)
        lines.append(f"{layout.GOAL_FILE} was gone: {'as the history has it' if from_history else 'a new page'}")
    return *lines, *layout.restore_confirmed_settings(recreated)


def _move_damaged_pins(pins: Path) -> str:
    """Rename unreadable pins; return what happened to them. Raises OSError."""
    if not pins.exists():
        return "was gone"
    renamed = pins.with_name(f"{pins.name}.broken")
    pins.replace(renamed)
    return f"was damaged and is kept as {renamed.name}"


def _damaged(crew: Crew) -> Finding | None:
    """Finding for a deleted part of .liza; None if there is none or it cannot be determined: the check of the pins then
    reports the error."""
    with suppress(LizaError, OSError):
        reason = deleted_parts.describe_damage(crew.paths, crew.board.read())
        return None if reason is None else Finding("crew", reason, False, deleted_parts.AGAIN)
    return None


def _check_repository(findings: list[Finding], directory: Path, crew: Crew | None) -> Survey | None:
    """Add the findings about the repository. Return its survey, None if no crew can be in this place."""
    if crew is not None:
        try:
            _ = crew.git
        except Missing as error:
            findings.append(Finding("crew", error.message, False, error.hint))
            return None
    surveyed, errors = check_repository(directory, has_crew=crew is not None)
    if surveyed is not None and crew is None:
        obstacles = find_obstacles(Crew(Paths(surveyed.root), SystemClock()), surveyed, InitOptions())
        texts = {finding.text for finding in findings}
        errors += [error for error in obstacles if error.message not in texts]
    findings += [Finding("git", error.message, False, error.hint) for error in errors]
    if surveyed is not None and not errors:
        dirty = surveyed.dirty_count
        changed = f"{count_noun(dirty, 'file', 'files')} changed (left alone; " if dirty else "clean ("
        text = f"{surveyed.git_version} · on {surveyed.branch}, {changed}agents start from {str(surveyed.head)[:12]})"
        findings.append(Finding("git", text))
    return surveyed


def _find_crew_or_report(findings: list[Finding], directory: Path) -> Crew | None:
    try:
        return find_crew(directory)
    except NoCrew as error:
        # Unless an earlier board or another .liza is in the way, this is the state before `liza init`.
        findings.append(Finding("crew", error.message, "liza init" in error.hint, error.hint))
        return None


def _inspect_server(crew: Crew, state: State | None) -> Iterable[Finding]:
    """Findings about the server of the board; none for a board in a file."""
    if not crew.is_on_server:
        return ()
    from liza.recovery.server_findings import inspect_server

    return inspect_server(crew, state)


def _board(findings: list[Finding], crew: Crew) -> State | None:
    """Read and check the board; return it also if a rule is broken, None if it cannot be read."""
    try:
        state = crew.board.read()
    except LizaError as error:
        findings.append(Finding("board", error.message, False, with_stop(error, crew).hint))
        return None
    broken = invariants.check_board(state)
    if broken:
        text = f"{count_noun(len(broken), 'rule is', 'rules are')} broken, the first: {broken[0]}"
        findings.append(Finding("board", text, False, "liza validate"))
    else:
        text = f"revision {state.revision}, {count_noun(len(state.tasks), 'task', 'tasks')}, every rule holds"
        findings.append(Finding("board", text))
    return state


def _unbind_briefs(crew: Crew) -> tuple[str, ...]:
    """Remove the bindings of briefs of ended runs; return what was removed."""
    removed = []
    for run in hiding.list_bound_runs(crew.git):
        if checkout_brief.is_checkout_run(run):
            continue
        if liveness.is_session_over(crew.run_dir(run)):
            hiding.unbind_filter(crew.git, run)
            hiding.unhide_files(crew.git, run)
            removed.append(f"the brief of {run} was still bound; removed")
    return tuple(removed)


def _programs_of_agents(crew: Crew, state: State) -> dict[str, tuple[str, bool]]:
    """Program of each agent that ever had a supervisor on this host, and whether a supervisor runs now."""
    agents = {name: agent for name, agent in state.agents.items() if agent.host in ("", crew.host)}
    return {name: (agent.program, crew.is_supervised(name)) for name, agent in agents.items() if agent.program}


def _programs(
    root: Path, config: Config, used_programs: Mapping[str, tuple[str, bool]], *, before: bool = False
) -> list[Finding]:
    """Findings about installed programs, and about used programs that are missing.

    ``before``: there is no crew yet, so no program was chosen.
    """
    try:
        table = preset_table.load_presets(Paths(root))
    except LizaError as error:
        return [Finding("programs", error.message, False, error.hint)]
    findings = [Finding("programs", notice) for notice in table.notices]
    at_work = {name: program for name, (program, lives) in used_programs.items() if lives}
    rows, versions = [], {}
    if at_work:
        findings += [Finding(name, f"runs {program}") for name, program in at_work.items()]
    else:
        rows = [row for row in table.rows.values() if row.command]
        versions = programs.read_versions(rows)
        findings += [Finding(name, version) for name, version in versions.items()]
    used = {program: f"is what {name} runs" for name, (program, _) in used_programs.items()}
    findings += [Finding("accounts", check.text, check.ok, check.hint) for check in check_accounts(table)]
    defaults: set[str] = set()
    if not used_programs:
        chosen = [program_choice.choose_program(None, {}, role, config, table) for role in ROLES]
        used = {choice.spec: "is what the crew would run" for choice in chosen}
        defaults = {choice.spec for choice in chosen if before and choice.is_default}
    names = {parse_spec(spec).name for spec in used}
    # Before there is a crew, another program can be chosen; then the answers of all are worth their time.
    tried = [row for row in rows if row.name in names] if names & versions.keys() or not before else rows
    faults = programs.find_all_faults(tried, versions, config)
    findings += programs.list_findings(faults, () if before else names, before=before)
    missing = {spec: finding for spec in sorted(used) if (finding := _find_missing_program(table, spec, used[spec]))}
    return findings + [
        _suggest_another(finding, findings) if spec in defaults else finding for spec, finding in missing.items()
    ]


def _suggest_another(finding: Finding, findings: Sequence[Finding]) -> Finding:
    """Turn the finding that the default program is missing into a hint: before there is a crew, that is no error."""
    name = next((other.about for other in findings if other.about != "programs"), None)
    another = "" if name is None else f'; or another: liza init "…" --program {name}'
    return replace(finding, ok=True, hint=finding.hint + another)


def _find_missing_program(table: preset_table.Presets, spec: str, used: str) -> Finding | None:
    """Finding for a used program that is not installed; None if it is installed."""
    try:
        preset = command_line.started_program(table.resolve(spec))
    except LizaError as error:
        return Finding("programs", f"{spec} {used}: {error.message}", False, error.hint)
    if preset_table.find_executable(preset) is not None:
        return None
    hint = preset.install or "liza programs list"
    return Finding(preset.name, f"{used}, and {preset.command!r} is not installed", False, hint)


def accept_drift(crew: Crew, names: Sequence[str]) -> tuple[str, ...]:
    """Accept the drift that these names mean in the alarms. Return one line for each. Raises Refused, UsageError, and
    Missing if there are no pins to record it in.
    """
    require_person(crew, planner=False)
    confirmed_settings.load_pins(crew.paths.pins)
    return tuple(line for name in names for line in _accept_name(crew, name))


def _accept_name(crew: Crew, name: str) -> tuple[str, ...]:
    state = crew.board.read_as_written()
    if name == settings.ALL_SETTINGS:
        confirmed_settings.confirm_all_settings(crew.paths, state)
        return ("every setting on the board counts",)
    values = settings.confirmable_values(state.config)
    if name in values:
        confirmed_settings.confirm_settings(crew.paths, {name: values[name]}, state.config)
        return (f"config.{name} counts with its value on the board: {values[name]!r}",)
    accepted = ", ".join((settings.ALL_SETTINGS, *values))
    raise UsageError(f"{name!r} cannot be accepted; expected one of {accepted}", "liza status")
