"""doctor: what stands in the way of a crew here, and, with fix, settle what the dead left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liza.programs import presets
from liza.repo import brief_filter
from liza.repo.pins import Pins
from liza.repo.runner import Git
from liza.repo.survey import Survey, survey
from liza.rules import invariants
from liza.rules.errors import LizaError, NoCrew
from liza.rules.model import Config
from liza.rules.paths import Paths
from liza.verbs import detect, sessions
from liza.verbs.crew import Crew, find_crew
from liza.verbs.init import fit
from liza.verbs.recover import recover

BY = "doctor"


@dataclass(frozen=True)
class Finding:
    """One line of the report. ``ok`` is False where a crew cannot work like this; ``hint`` is then a command."""

    about: str
    text: str
    ok: bool = True
    hint: str = ""


@dataclass(frozen=True)
class Report:
    """Everything that was looked at; ``settled`` is what was put right."""

    findings: tuple[Finding, ...]
    settled: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return all(one.ok for one in self.findings)


def doctor(directory: Path, *, fix: bool = False) -> Report:
    """Look at the repository, the programs, the project and, where there is one, the crew."""
    found: list[Finding] = []
    settled: tuple[str, ...] = ()
    crew = _crew(directory)
    if crew is not None and fix:
        settled += _pins_again(crew)
    place = _asked(found, "git", lambda: _repository(directory, crew))
    config = Config()
    if crew is not None:
        board = _asked(found, "board", lambda: _board(crew))
        if board is not None:
            config = crew.board.read().config
            if fix:
                settled += tuple(one.what for one in recover(crew, BY)) + _forgotten_briefs(crew)
            found += _leftovers(crew)
    if place is not None:
        running = _running(crew)
        found += running or _programs(place.root, config)
        found += _project(place.root, config)
    return Report(tuple(found), settled)


def _pins_again(crew: Crew) -> tuple[str, ...]:
    """Pins that are gone are taken anew, but not from the repository: by now anybody can have written there."""
    if crew.paths.pins.exists():
        return ()
    git = Git(crew.paths.root)
    Pins.of_person(git).with_key(git, brief_filter.KEY).save(crew.paths.pins)
    return ("the pinned configuration was gone: what the repository's own configuration names will not run",)


def _asked(found: list[Finding], about: str, ask: Callable[[], tuple[str, Survey | None]]) -> Survey | None:
    """One question; what it refuses with is a finding."""
    try:
        text, place = ask()
    except LizaError as wrong:
        found.append(Finding(about, wrong.message, False, wrong.hint))
        return None
    found.append(Finding(about, text))
    return place


def _repository(directory: Path, crew: Crew | None) -> tuple[str, Survey | None]:
    place = fit(directory, None if crew is None else crew.git.pins)
    changed = f"{place.dirty_count} files changed (left alone; " if place.dirty_count else "clean ("
    told = f"{place.git_version} · on {place.branch}, {changed}agents start from {str(place.head)[:12]})"
    return told, place


def _crew(directory: Path) -> Crew | None:
    try:
        return find_crew(directory)
    except NoCrew:
        return None


def _board(crew: Crew) -> tuple[str, Survey | None]:
    state = crew.board.read()
    broken = invariants.check(state)
    if broken:
        raise LizaError(f"{len(broken)} rules are broken, the first: {broken[0]}", "liza validate")
    told = f"revision {state.revision}, {len(state.tasks)} tasks, every rule holds"
    return told, survey(crew.paths.root, crew.git.pins)


def _leftovers(crew: Crew) -> list[Finding]:
    """What `--fix` would settle, or has to leave."""
    found = []
    for task in crew.board.read().tasks:
        if task.reservation is not None:
            found.append(
                Finding("claim", f"{task.id} is reserved as {task.reservation.run}", True, "liza doctor --fix")
            )
    planted = Pins.load(crew.paths.pins).planted(crew.git) if crew.paths.pins.exists() else ()
    found += [
        Finding("git", f"executable configuration came after init, and is kept from running: {one}") for one in planted
    ]
    found += [Finding("board", f"config: {one}") for one in crew.board.unknown_config()]
    return found


def _forgotten_briefs(crew: Crew) -> tuple[str, ...]:
    """Bindings of runs whose session is over and settled."""
    gone = []
    for run in brief_filter.runs(crew.git):
        if sessions.over(crew.run_dir(run)):
            brief_filter.unbind(crew.git, run)
            brief_filter.unhide(crew.git, run)
            gone.append(f"the brief of {run} was still bound; taken away")
    return tuple(gone)


def _programs(root: Path, config: Config) -> list[Finding]:
    try:
        table = presets.load(Paths(root))
    except LizaError as wrong:
        return [Finding("programs", wrong.message, False, wrong.hint)]
    found = [Finding("programs", notice) for notice in table.notices]
    here = [(row.name, version) for row in table.rows.values() if row.command and (version := presets.installed(row))]
    found += [Finding(name, version) for name, version in here]
    chosen = {role: presets.choose(None, {}, role, config, table) for role in ("planner", "coder", "code-reviewer")}
    for name in sorted({choice.preset.name for choice in chosen.values()}):
        preset = next(choice.preset for choice in chosen.values() if choice.preset.name == name)
        if presets.find(preset) is None:
            hint = preset.install or f"liza up --program {name}:./agent.sh"
            found.append(
                Finding(name, f"is what the crew would run, and {preset.command!r} is not installed", False, hint)
            )
    return found


def _running(crew: Crew | None) -> list[Finding]:
    """What a crew that is up runs, whatever the tables say."""
    if crew is None:
        return []
    agents = crew.board.read().agents
    return [Finding(name, f"runs {agent.program}") for name, agent in agents.items() if crew.supervised(name)]


def _project(root: Path, config: Config) -> list[Finding]:
    if config.integration_command:
        return [Finding("tests", f"{config.integration_command} (config.integration_command; `liza edit` changes it)")]
    tests, setup = detect.tests(root), detect.set_up(root)
    told = f"{tests.command} ({', '.join(tests.because)})" if tests else "none found; `liza init --test CMD` names one"
    found = [Finding("tests", told)]
    if setup is not None:
        found.append(Finding("set-up", f"{setup.command} ({', '.join(setup.because)})"))
    return found
