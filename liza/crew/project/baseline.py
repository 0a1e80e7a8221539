"""The baseline of a crew: set-up and tests on integration as it is, in which environment, and what they prove."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from liza.crew.crew import Crew
from liza.crew.project import commands, detect, environments, proof
from liza.crew.project.project_report import find_worktree_gaps
from liza.repo.slots.pool import Worktrees
from liza.rules.errors import Missing, Refused
from liza.rules.model import TestProof
from liza.rules.project import clean_environment, project_kinds, test_proof
from liza.rules.project.project_kinds import Project, ProjectCommand
from liza.rules.project.test_proof import NotProved, Proved, TestsAnotherCheckout

ReportFact = Callable[[str, str], None]
BASELINE_LIMIT = 1800.0
"""Seconds for the set-up, and for the tests."""
_GENERAL_HINT = 'liza init "…" --setup CMD --test CMD, which make and use an environment in the worktree itself'


@dataclass(frozen=True)
class BaselineOptions:
    """What a person says of the tests; None means "find out"."""

    test: str | None = None
    setup: str | None = None
    no_test: bool = False
    no_proof: bool = False
    accept_red: bool = False


@dataclass(frozen=True)
class Baseline:
    """What goes onto the board."""

    command: str | None
    setup: ProjectCommand | None
    environment: str | None
    proof: TestProof


def run_baseline(crew: Crew, worktrees: Worktrees, wish: BaselineOptions, tip: str, say: ReportFact) -> Baseline:
    """Find the commands, run them once at ``tip``, and prove what they test. ``say`` hears each fact.

    Raises Refused where the tests are red or test another checkout, Missing where a runner is not there.
    """
    root = crew.paths.root
    project = detect.read_project(root, crew.git)
    command = None if wish.no_test else wish.test or (project.test.text if project.test else None)
    setup = ProjectCommand(wish.setup, _setup_files(project)) if wish.setup else project.setup
    keep, why_not = usable_environment(root, setup)
    _report_environment(root, keep, why_not, say)
    for note in find_worktree_gaps(crew.paths, crew.git, setup.text if setup else None):
        say(note.about, note.text)
    if command is None:
        why = "as you said, without tests" if wish.no_test else "no test command known; --test CMD says one"
        say("baseline", f"{why}: merges will be recorded as untested")
        return Baseline(None, setup, keep, TestProof())
    plan = proof.ProofPlan(
        command,
        setup.text if setup else None,
        environment=keep,
        limit=BASELINE_LIMIT,
        hint=suggest_init_command(project, command),
    )
    examined = proof.run_proof(worktrees, tip, plan, crew.paths.logs, prove=not wish.no_proof)
    _report_setup(examined.setup, setup, say)
    _report_tests(examined.tests, plan, why_not, wish.accept_red, say)
    noted = TestProof(outcome="skipped", command=command) if wish.no_proof else _report_proof(examined, plan, say)
    return Baseline(command, setup, keep, noted)


def _setup_files(project: Project) -> tuple[str, ...]:
    """The files on whose change a set-up that a person named runs again."""
    known = [
        *(project.worktree_setup.source_files if project.worktree_setup else ()),
        *(project.setup.source_files if project.setup else ()),
    ]
    return tuple(dict.fromkeys(known))


def suggest_init_command(project: Project, command: str) -> str:
    """The command with which a crew gets an environment in each worktree, and tests that use it."""
    own = project_kinds.worktree_commands(project, command)
    return _GENERAL_HINT if own is None else f'liza init "…" --setup {_quoted(own[0])} --test {_quoted(own[1])}'


def _quoted(text: str) -> str:
    return f'"{text}"' if not set('"$`\\!') & set(text) else shlex.quote(text)


def usable_environment(root: Path, setup: ProjectCommand | None) -> tuple[str | None, str]:
    """The activated environment, where it may be used: it holds dependencies only, and no set-up makes another.

    Else None, and why the activated one is left out.
    """
    active = clean_environment.active_environment(os.environ)
    if active is None:
        return None, ""
    if setup is not None:
        return None, f"{active} is activated and not used: the set-up makes what the tests need"
    wrong = environments.find_checkout_links(Path(active), root)
    if wrong:
        return None, f"{active} is activated and not used: it has this checkout installed ({wrong[0]})"
    return active, ""


def _report_environment(root: Path, keep: str | None, why_not: str, say: ReportFact) -> None:
    removed = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).removed
    if keep:
        say("python", f"{keep} is activated, holds dependencies only, and stays in use (config.environment)")
    if why_not:
        say("python", why_not)
    if removed:
        say("left out", f"of the environment of tests and sessions: {environments.describe_removed(removed)}")


def _report_setup(done: commands.CommandOutcome | None, setup: ProjectCommand | None, say: ReportFact) -> None:
    if done is None or setup is None:
        return
    if not done.passed:
        missing = project_kinds.missing_runner(setup.text, done.exit_status, done.tail())
        if missing:
            text = f"the set-up does not start: {missing} is not there (install it, or name another): {setup.text}"
            raise Missing(text, 'liza init "…" --setup CMD')
        raise Refused(f"set-up fails on integration: {setup.text}\n{done.tail()}", "liza init … --setup CMD")
    say("set-up", f"{setup.text}: {done.seconds:.0f} s ok")


def _report_tests(
    done: commands.CommandOutcome | None, plan: proof.ProofPlan, why_not: str, accept_red: bool, say: ReportFact
) -> None:
    if done is None:
        return
    if not done.passed:
        because = f"\n{why_not}" if why_not else ""
        missing = project_kinds.missing_runner(plan.command, done.exit_status, done.tail())
        if missing:
            raise Missing(
                f"the tests do not start: {missing} is not there: {plan.command}\n{done.tail(3)}{because}", plan.hint
            )
        module = project_kinds.missing_module(done.tail())
        if module and not accept_red:
            text = f"the tests need the module {module}, which is not installed where they run: {plan.command}"
            raise Refused(f"{text}\n{done.tail()}{because}", plan.hint)
        if not accept_red:
            text = (
                f"the tests are red on integration: {plan.command}\n{done.tail()}{because}\nMend them, or accept them"
            )
            raise Refused(text, 'liza init "…" --accept-red')
    say("baseline", f"{plan.command}: {'ok' if done.passed else 'red, accepted'}, {done.seconds:.0f} s")


def _report_proof(examined: proof.ProofResult, plan: proof.ProofPlan, say: ReportFact) -> TestProof:
    outcome = proof.final_outcome(examined)
    match outcome:
        case Proved():
            say("proof", "the tests fail when the sources of their own worktree fail")
        case NotProved(reason):
            say("proof", f"not proved that the tests test the worktree they run in: {reason}")
        case TestsAnotherCheckout():
            raise Refused(*describe_other_checkout(outcome, plan.command))
    return test_proof.to_test_proof(outcome, plan.command, plan.setup)


def describe_other_checkout(outcome: TestsAnotherCheckout, command: str) -> tuple[str, str]:
    """What is wrong with tests that test another checkout, and the command that cures it."""
    where = "; ".join(outcome.where)
    text = f"the tests do not test the worktree they run in: {command} uses {where}"
    return f"{text}\na merge that breaks everything would pass them", f"{outcome.hint}; or go without: --no-proof"
