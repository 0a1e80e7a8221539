"""The baseline of a crew: run set-up and tests on integration as it is, choose the environment, prove the tests."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from liza.config.rules import test_proof
from liza.config.rules.test_proof import NotProved, ProofVerdict, Proved, TestsAnotherCheckout
from liza.crew.crew import Crew
from liza.git import local_files
from liza.git.runner import Git
from liza.git.worktrees import PROOF_SLOT, Worktrees
from liza.model import clean_environment
from liza.model.configuration import FULL_CHECKOUT, Config, Confinement, TestProof
from liza.model.errors import Finding, GitFailed, Missing, Refused
from liza.model.gates import GateFindingKind
from liza.model.value_classes import Value, replace
from liza.programs.presets.preset import Preset
from liza.project import commands, detect, installed_packages, listeners, proof, saved_setup
from liza.project.broken_runs import ProofPlan, ProofReport, ProofStep
from liza.project.project_report import find_hook_gaps, find_worktree_gaps
from liza.project.rules import output_causes, package_records, project_kinds, tree_changes
from liza.project.rules.package_records import ChangedPackageFile
from liza.project.rules.project_kinds import (
    INIT,
    Project,
    ProjectCommand,
    quote_option,
    setup_hint,
    suggest_init_command,
    suggest_setup_command,
    worktree_commands,
)
from liza.project.rules.tree_changes import TreeChanges
from liza.text.formats import count_noun

ReportFact = Callable[[str, str], None]
BASELINE_LIMIT = 1800.0
"""Seconds for the set-up, and for the tests."""


class InitOptions(Value):
    """Options of `liza init`; None means that init finds the value.

    An ``integration_branch`` that is named may exist already: then it is taken over.
    """

    goal: str | None = None
    spec: str | None = None
    test: str | None = None
    setup: str | None = None
    no_test: bool = False
    accept_red: bool = False
    budget: float | None = None
    permissions: str | None = None
    confinement: Confinement | None = None
    program: str | None = None
    integration_branch: str | None = None
    worktrees: Path | None = None
    no_proof: bool = False
    copied_files: tuple[str, ...] = ()
    checkout: str = FULL_CHECKOUT
    shared: tuple[str, ...] = ()
    board: str | None = None
    """URL of the board, which has no password; None for a board in a file."""
    host: str | None = None

    @property
    def settings(self) -> Config:
        """The settings of the new crew that decide how agents are confined."""
        return Config(
            permissions=self.permissions, confinement=self.confinement or Config().confinement, shared=self.shared
        )

    def typed(self) -> list[tuple[str, ...]]:
        """Options as words of a command line. Defaults are left out."""
        texts = {
            "--spec": self.spec,
            "--test": self.test,
            "--setup": self.setup,
            "--budget": None if self.budget is None else f"{self.budget:g}",
            "--permissions": self.permissions,
            "--confinement": self.confinement,
            "--program": self.program,
            "--integration-branch": self.integration_branch,
            "--checkout": None if self.checkout == FULL_CHECKOUT else self.checkout,
            "--worktrees": None if self.worktrees is None else str(self.worktrees),
            "--board": self.board,
            "--host": self.host,
        }
        flags = {"--no-test": self.no_test, "--accept-red": self.accept_red, "--no-proof": self.no_proof}
        return [
            *((name, text) for name, text in texts.items() if text is not None),
            *((name,) for name, is_set in flags.items() if is_set),
            *(("--copy", name) for name in self.copied_files),
            *((listeners.SHARE, path) for path in self.shared),
        ]


class Baseline(Value):
    """Values for the board. ``caches``: names that stay in merge slots. ``gate_environment``: None for the default."""

    command: str | None
    setup: ProjectCommand | None
    environment: str | None
    proof: TestProof
    caches: tuple[str, ...] = ()
    gate_environment: tuple[str, ...] | None = None


class ChosenCommands(Value):
    """What the project's files and the options say. ``environment``: the virtual environment that is kept, or None;
    ``why_not``: why an activated one is not kept, or ""."""

    project: Project
    test: str | None
    setup: ProjectCommand | None
    environment: str | None
    why_not: str

    @property
    def setup_text(self) -> str | None:
        """The set-up command as a text."""
        return self.setup.text if self.setup else None


def run_baseline(
    crew: Crew,
    worktrees: Worktrees,
    options: InitOptions,
    presets: Sequence[Preset],
    tip: str,
    say: ReportFact,
    begin: ReportFact,
) -> Baseline:
    """Find the commands, run them once at ``tip``, and prove what they test. ``say`` is called with each fact,
    ``begin`` with each command that starts to run.

    ``presets``: the programs whose brief the tests may see, first the crew's.

    Raises Refused if the tests are red or test another checkout, Missing if a runner is not installed.
    """
    chosen = _choose_commands(crew, options)
    _report_environment(crew.paths.root, chosen.environment, chosen.why_not, say)
    # This init goes on without the files, so its own option is no way on: the hints are those of a crew.
    _report_gaps(find_worktree_gaps(crew.paths, crew.git, chosen.setup_text, options.copied_files, has_crew=True), say)
    _report_sparse(crew.git, tip, options.checkout, say)
    if chosen.test is None:
        reason = "--no-test was given" if options.no_test else 'no test command was found: --test "make test" names one'
        say("baseline", f"{reason}: merges will be recorded as untested")
        if chosen.setup is None:
            return Baseline(None, None, chosen.environment, TestProof())
    server = listeners.find_servers(crew, crew.git, (PROOF_SLOT,), (chosen.test,)) if chosen.test else None
    if server is not None:
        say("server", f"{server.text}: merges wait while it runs ({server.hint} ends it)")
    plan = _plan_proof(chosen, options, presets)
    reports = StepReports(crew, options, chosen, plan, say)
    report = ProofReport(lambda step: begin(*_describe_step(step, plan)), reports.end_step)
    prove = not options.no_proof and server is None
    try:
        result = proof.run_proof(worktrees, tip, plan, crew.paths.logs, prove=prove, report=report)
    except GitFailed as error:
        if local_files.list_included(crew.git) and plan.is_full:
            raise GitFailed(error.message, 'liza init "…" --checkout sparse') from error
        raise
    _report_left(result.left, say)
    if chosen.test is None:
        return Baseline(None, chosen.setup, chosen.environment, TestProof())
    _report_side_effects(result, plan, options, say)
    if prove:
        recorded = _report_proof(result, plan, say)
    elif options.no_proof:
        recorded = TestProof(outcome=ProofVerdict.SKIPPED.value, command=chosen.test)
    else:
        say("proof", "waits for the end of that server: the tests may ask it instead of their worktree")
        recorded = TestProof()  # due before the first merge
    recorded = replace(
        recorded,
        writes=tree_changes.allowable_names(result.changes),
        environment=installed_packages.digest_packages(chosen.environment),
        boxed=commands.is_confined(plan.config),
    )
    caches = _find_caches(crew.git, say)
    variables = () if result.drops_variables else None
    return Baseline(chosen.test, chosen.setup, chosen.environment, recorded, caches, variables)


def _choose_commands(crew: Crew, options: InitOptions) -> ChosenCommands:
    """Return the commands of the options; else those that the project's files call for. Raises GitFailed, OSError."""
    project = detect.read_project(crew.paths.root, crew.git)
    test = None if options.no_test else options.test or (project.test.text if project.test else None)
    setup = ProjectCommand(options.setup, _setup_files(project)) if options.setup else project.setup
    return ChosenCommands(project, test, setup, *detect.usable_environment(crew.paths.root, setup))


def _plan_proof(chosen: ChosenCommands, options: InitOptions, presets: Sequence[Preset]) -> ProofPlan:
    return ProofPlan(
        chosen.test or "",
        chosen.setup_text,
        options.copied_files,
        environment=chosen.environment,
        is_full=options.checkout == FULL_CHECKOUT,
        gate_environment=Config().gate_variables,
        limit=BASELINE_LIMIT,
        hint=suggest_init_command(chosen.project, chosen.test) if chosen.test else "",
        may_drop_variables=True,
        presets=tuple(presets),
        config=options.settings,
        compares_boxes=not options.accept_red,
        keeps_setup=True,
    )


def _report_gaps(gaps: Iterable[Finding], say: ReportFact) -> None:
    for gap in gaps:
        say(gap.about, f"{gap.text}: {gap.hint}" if gap.hint.startswith("liza config ") else gap.text)


def _report_side_effects(result: proof.ProofResult, plan: ProofPlan, options: InitOptions, say: ReportFact) -> None:
    """Report what the tests depend on, and what they change, beside their worktree. Raises Refused."""
    if result.drops_variables:
        entries = " ".join(Config().gate_environment)
        say("variables", f"the tests are red with {entries}: gates and sessions go without (config.gate_environment)")
    if result.seen_brief:
        text = f"{plan.command} is red with a session's brief in {result.seen_brief}"
        say("brief", f"{text}; `liza config set brief prompt` gives it by the prompt only")
    _report_changes(result.changes, plan, options.accept_red, say)
    _report_packages(result.packages, say)


class StepReports(Value):
    """Reports the end of the set-up and of the tests, and refuses a crew whose commands fail."""

    crew: Crew
    options: InitOptions
    chosen: ChosenCommands
    plan: ProofPlan
    say: ReportFact

    def end_step(self, step: ProofStep, outcome: commands.CommandOutcome) -> None:
        """Report a command that ended. Raises Refused, Missing."""
        if outcome.passes_outside:
            what = "the set-up fails" if step is ProofStep.SET_UP else "the tests are red"
            raise listeners.describe_failure(what, outcome, self.crew.paths, self.options.settings.shared)
        if step is ProofStep.SET_UP:
            self._end_setup(outcome)
        else:
            self._end_tests(outcome)

    def _end_setup(self, outcome: commands.CommandOutcome) -> None:
        project, setup = self.chosen.project, self.plan.setup or ""
        if not outcome.passed:
            is_detected = project.setup is not None and project.setup.text == setup
            _refuse_unstarted(
                "the set-up does", outcome, suggest_setup_command(project) if is_detected else setup_hint()
            )
            # The set-up that the project's files call for, if the failed one is another.
            detected = (command.text for command in (project.setup, project.worktree_setup) if command is not None)
            other = output_causes.suggest_setup(setup, outcome.tail())
            other = other or next((text for text in detected if text != setup), None)
            log, where = self._keep_output(outcome)
            hint = f"{INIT} --setup {quote_option(other)}" if other else log or setup_hint()
            raise Refused(f"set-up fails on integration: {setup}\n{outcome.describe()}{where}", hint)
        kept = f"kept from the last try, when it took {outcome.seconds:.0f} s" if outcome.is_kept else ""
        self.say("set-up", f"{setup}: {kept or f'{outcome.seconds:.0f} s ok'}")
        slot = self.crew.paths.slot(PROOF_SLOT)
        gaps = find_hook_gaps(self.crew.git, self.plan.setup, self.options.copied_files, slot, has_crew=True)
        _report_gaps(gaps, self.say)

    def _end_tests(self, outcome: commands.CommandOutcome) -> None:
        if not outcome.passed:
            lacking, go_on = _suspect_files(self.crew.git, self.options)
            notes = "".join(f"\n{note}" for note in (self.chosen.why_not, lacking) if note)
            _refuse_unstarted("the tests do", outcome, self.plan.hint, notes)
            if not self.options.accept_red:
                raise self._describe_red(outcome, notes, go_on)
        result = "ok" if outcome.passed else "red, accepted"
        self.say("baseline", f"{self.plan.command}: {result}, {outcome.seconds:.0f} s")

    def _describe_red(self, outcome: commands.CommandOutcome, notes: str, go_on: str) -> Refused:
        """Return the error for red tests: the first failure, what is missing if it names that, and the next command.

        ``go_on``: the command that accepts them.
        """
        setup = self.plan.setup or ""
        kept = "\nthe set-up is kept for the next try" if setup else ""
        why = "it did not end in time" if outcome.exit_status is None else outcome.describe()
        output = f"{self.plan.command}\n{why}{self._keep_output(outcome)[1]}{kept}{notes}"
        module = output_causes.missing_module(outcome.tail(commands.SEARCHED_LINES))
        plugin = output_causes.missing_plugin(outcome.describe())
        if module or plugin:
            what = f"the module {module}" if module else f"{plugin}, of a plugin"
            hint = self._hint_to_install(module) or go_on
            return Refused(f"the tests need {what}, which is not installed where they run: {output}", hint)
        other = output_causes.suggest_setup(setup, outcome.tail())
        if other:
            hint = f"{INIT} --setup {quote_option(other)}"
            return Refused(f"the tests are red in a worktree of integration: {output}", hint)
        return Refused(f"the tests are red on integration: {output}\nFix them, or accept them", go_on)

    def _hint_to_install(self, module: str | None) -> str:
        """Return the command that installs what the tests lack: by the files of the project, or else by its name; empty
        if neither is known. Of a module below ``src/`` of a project that cannot be installed it is the path of the
        tests."""
        plan = self.plan
        proposed = worktree_commands(self.chosen.project, plan.command)
        source = self.crew.paths.root / "src" / (module or "").partition(".")[0]
        is_source = module is not None and (source.is_dir() or source.with_suffix(".py").exists())
        if is_source and (proposed is None or " -e " not in proposed[0]):
            return f"{INIT} --test {quote_option(f'PYTHONPATH=src {plan.command}')}"
        if proposed is not None and proposed[0] != plan.setup:
            return plan.hint
        setup = None if module is None else output_causes.install_setup(plan.setup or "", plan.command, module)
        return f"{INIT} --setup {quote_option(setup)}" if setup else ""

    def _keep_output(self, outcome: commands.CommandOutcome) -> tuple[str, str]:
        """Keep the output of a failed command. Return the command that shows it, and a line that names it; empty texts
        if it cannot be kept."""
        root = self.crew.paths.root
        log = saved_setup.keep_logs(root, [outcome.log])
        if log is None:
            return "", ""
        # Relative where that is shorter to type.
        name = str(log.relative_to(root)) if log.is_relative_to(root) and Path.cwd() == root else str(log)
        show = f"less {shlex.quote(name)}"
        return show, f"\nwhole output: {show}"


def _report_sparse(git: Git, tip: str, checkout: str, say: ReportFact) -> None:
    """Report what a full checkout of candidates costs, if that of the person is sparse. Raises GitFailed, OSError."""
    included = local_files.list_included(git)
    if not included:
        return
    absent = count_noun(len(local_files.list_absent(git)), "file")
    only = f"sparse: {', '.join(included[:6])}{', …' if len(included) > 6 else ''}"
    if checkout != FULL_CHECKOUT:
        say("checkout", f"{only}; merges are tested on it too, without {absent}, and recorded as tested, but …")
        return
    missing = local_files.count_missing_objects(git, tip)
    cost = f", for which {count_noun(missing, 'object')} must be fetched" if missing else ""
    say(
        "checkout",
        f"{only}; merges are tested on a full one, with {absent} more{cost}; or: --checkout sparse",
    )


def _find_caches(git: Git, say: ReportFact) -> tuple[str, ...]:
    """Return the caches of the project's build tools, and report them. Raises GitFailed."""
    patterns = (f":(glob)**/{name}" for name in project_kinds.BUILD_CACHES)
    caches = project_kinds.find_caches(git.names("ls-files", "-z", "--", *patterns))
    if caches:
        say("kept", f"{', '.join(caches)} stay between the test runs of merges (config.sandbox_keep)")
    return caches


def _describe_step(step: ProofStep, plan: ProofPlan) -> tuple[str, str]:
    """Return the line that says which command runs now: it can take minutes."""
    match step:
        case ProofStep.SET_UP:
            return "set-up", f"running {plan.setup}"
        case ProofStep.TESTS:
            return "baseline", f"running {plan.command}"
        case ProofStep.BROKEN_SET_UP:
            return "proof", f"running {plan.setup} again, with sources that fail"
        case ProofStep.BROKEN_TESTS:
            return "proof", f"running {plan.command} again, with sources that fail"


def _suspect_files(git: Git, options: InitOptions) -> tuple[str, str]:
    """Return a note and the commands for red tests: a file that the worktree lacks is the first suspect."""
    lacking = local_files.find_local_files(git, options.copied_files)
    accept = 'liza init "…" --accept-red'
    if not lacking:
        return "", accept
    copied = local_files.copy_options((*options.copied_files, *local_files.copy_patterns(lacking)))
    return f"no worktree has {', '.join(lacking)}: git ignores it", f'liza init "…" {copied}; or accept them: {accept}'


def _setup_files(project: Project) -> tuple[str, ...]:
    """Files after whose change a set-up command that a person gave runs again."""
    files = [
        *(project.worktree_setup.source_files if project.worktree_setup else ()),
        *(project.setup.source_files if project.setup else ()),
    ]
    return tuple(dict.fromkeys(files))


def _report_environment(root: Path, keep: str | None, why_not: str, say: ReportFact) -> None:
    removed = clean_environment.clean_variables(os.environ, str(root), keep, os.path.realpath).removed
    if keep:
        say("python", f"{keep} is activated and used: it holds dependencies only (config.environment)")
    if why_not:
        say("python", why_not)
    if removed:
        say("left out", f"from the environment of tests and sessions: {detect.describe_removed(removed)}")


def _refuse_unstarted(subject: str, outcome: commands.CommandOutcome, hint: str, notes: str = "") -> None:
    """Raise Refused for a script with CRLF line ends, Missing for a missing program. ``subject``: with "do"."""
    script = outcome.find_crlf_script()
    if script is not None:
        text = f"{subject} not start: {output_causes.describe_crlf(script)}: {outcome.command}"
        raise Refused(text, output_causes.crlf_remedy(script))
    missing = output_causes.missing_runner(outcome.command, outcome.exit_status, outcome.tail())
    if missing:
        raise Missing(f"{subject} not start: {missing} is missing: {outcome.command}\n{outcome.tail(3)}{notes}", hint)


def _report_left(names: Sequence[str], say: ReportFact) -> None:
    """Report the untracked files that git does not ignore: they must not become work of an agent."""
    if names:
        shown = ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
        say("left", f"{shown} by the set-up, which git does not ignore: hidden from git in each worktree")


def _report_changes(changes: TreeChanges, plan: ProofPlan, accept_red: bool, say: ReportFact) -> None:
    """Report the tracked files that the commands write. Raises Refused if they change sources or expected values."""
    findings = tree_changes.judge_changes(changes, ("*",), ())
    reds = [finding for finding in findings if finding.kind is GateFindingKind.RED]
    if reds and not accept_red:
        text = f"{plan.command} changes what it tests: {'; '.join(finding.text for finding in reds)}"
        commit = f'{plan.command}; git commit -a -m "what the tests write" && liza init "…"'
        raise Refused(text, reds[0].hint or commit)
    names = tree_changes.allowable_names(changes)
    if names:
        pattern = ",".join(tree_changes.propose_patterns(names))
        some = f"{', '.join(names[:3])}{' and others' if len(names) > 3 else ''}"
        allow = f"liza config set tests_write {shlex.quote(pattern)}"
        say(
            "writes",
            f"the tests write {some}, which git tracks; a merge that changes them waits until you allow it: {allow}",
        )


def _report_packages(files: Sequence[ChangedPackageFile], say: ReportFact) -> None:
    """Report installed files that differ from the records of their packages, and how a person allows that."""
    if files:
        allow = package_records.allow_command(files)
        say(
            "packages",
            f"{package_records.describe_files(files)} not as installed: merges wait until you allow it: {allow}",
        )


def _report_proof(result: proof.ProofResult, plan: ProofPlan, say: ReportFact) -> TestProof:
    outcome = proof.final_outcome(result)
    recorded = test_proof.to_test_proof(outcome, plan.command, plan.setup, result.details)
    match outcome:
        case Proved():
            say("proof", test_proof.PROVED_TEXT)
        case NotProved(reason):
            untested = test_proof.untested_reason(
                Config(integration_command=plan.command, sandbox_setup=plan.setup, proof=recorded)
            )
            if untested is None:
                say("proof", f"not proved that the tests test the worktree they run in: {reason}")
            else:
                say("proof", f"untested: {reason}")
                say("untested", f"merges wait for a person: {test_proof.FIX_TESTS}, or accept it: {untested.hint}")
        case TestsAnotherCheckout():
            raise Refused(*describe_other_checkout(outcome, plan.command))
    if recorded.setup_builds:
        say("set-up", test_proof.SETUP_BUILDS_TEXT)
    if recorded.reads_last_commit:
        say("range", test_proof.LAST_COMMIT_TEXT)
    if result.details.unexamined:
        say("range", f"not examined: {result.details.unexamined}: the tests stay green when only these sources fail")
    return recorded


def describe_other_checkout(outcome: TestsAnotherCheckout, command: str) -> tuple[str, str]:
    """Error message and hint for tests that test another checkout."""
    where = "; ".join(outcome.where)
    text = f"the tests do not test the worktree they run in: {command} uses {where}"
    return f"{text}\na merge that breaks everything would pass them", f"{outcome.hint}; or go without: --no-proof"
