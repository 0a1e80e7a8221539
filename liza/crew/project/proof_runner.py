"""Run the proof for an existing crew: again whenever the test command or the set-up has changed."""

from __future__ import annotations

from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, drift
from liza.crew.merging.merge_lock import hold_merge_lock
from liza.crew.project import commands, installed_packages, proof
from liza.rules import settings
from liza.rules.errors import Refused
from liza.rules.model import FULL_CHECKOUT, Config, TestProof
from liza.rules.project import package_records, project_kinds, test_proof, tree_changes
from liza.rules.project.test_proof import NotProved, ProofOutcome
from liza.rules.value_classes import replace

PROOF_HINT = "liza edit && liza doctor --tests"


def require_proof(crew: Crew, by: str) -> None:
    """Prove the tests, if that is due, before a candidate is tested. The caller must hold the merge lock.

    Raises Refused if they test another checkout (then no candidate is tested), GitFailed, OSError.
    """
    state = crew.board.read()
    if _is_proof_due(crew, state.config):
        record_proof(crew, by, drift.require_integration(crew, state))
    used = test_proof.tested_instead(crew.board.read().config)
    if used is not None:
        command = crew.board.read().config.integration_command
        problem = f"{command} does not test the worktree it runs in, it uses {used}"
        advice = "change config.integration_command or config.sandbox_setup"
        raise Refused(f"nothing is merged: {problem}; {advice}", PROOF_HINT)


def prove_if_due(crew: Crew, by: str, commit: str) -> str | None:
    """Return what the tests use instead of their worktree, or None; first run the proof at ``commit`` if it is due.

    The caller must hold the merge lock. Raises GitFailed, OSError.
    """
    if _is_proof_due(crew, crew.board.read().config):
        record_proof(crew, by, commit)
    return test_proof.tested_instead(crew.board.read().config)


def prove_now(crew: Crew, by: str) -> TestProof:
    """Run the proof even if it is not due. Raises Refused during a merge, and without a test command."""
    if not crew.board.read().config.has_tests:
        raise Refused("config.integration_command is empty: there is no test to prove", "liza edit")
    with hold_merge_lock(crew, "a merge is under way; it runs the tests too") as locked:
        return record_proof(locked, by, drift.require_integration(locked, locked.board.read()))


def _is_proof_due(crew: Crew, config: Config) -> bool:
    """Return whether the proof is due. If that is because packages of ``config.environment`` changed, report it: the
    person, or an agent that a guard did not stop, changed them. Raises OSError."""
    environment = config.environment
    digest = (
        "" if environment is None else package_records.packages_digest(installed_packages.list_packages(environment))
    )
    is_due = test_proof.is_proof_due(config, digest)
    if is_due and environment is not None and config.proof.environment not in ("", digest):
        difference = installed_packages.describe_changes(environment, crew.paths.logs, config.proof.environment)
        text = f"packages of {environment} changed since the last proof{f': {difference}' if difference else ''}"
        crew.append_alert_log([f"packages_changed  {text}; the tests are proved again. Next: liza doctor --tests"])
    return is_due


def record_proof(crew: Crew, by: str, commit: str) -> TestProof:
    """Run the proof at ``commit`` and record its outcome on the board."""
    config = crew.board.read().config
    assert config.integration_command is not None
    plan = proof.ProofPlan(
        config.integration_command,
        config.sandbox_setup,
        config.sandbox_copy,
        config.environment,
        config.gate_variables,
        config.checkout == FULL_CHECKOUT,
        config.integration_timeout,
        PROOF_HINT,
    )
    result = proof.run_proof(crew.worktrees, commit, plan, crew.paths.logs, always=False)
    proof_entry = test_proof.to_test_proof(_proof_outcome(crew, result), plan.command, plan.setup)
    proof_entry = replace(
        proof_entry,
        writes=tree_changes.allowable_names(result.changes),
        environment=installed_packages.record_packages(config.environment, crew.paths.logs),
    )
    # This proof was observed here, so it is confirmed, before it is written: an unconfirmed one does not count.
    confirmed_settings.confirm_settings(
        crew.paths, {"proof": settings.confirmable_values(replace(config, proof=proof_entry))["proof"]}, config
    )
    if proof_entry != config.proof:
        with crew.change(by, "proof") as tx:
            tx.state = replace(tx.state, config=replace(tx.state.config, proof=proof_entry))
        # Confirm the value as it is on the board now: only a confirmed proof counts.
        confirmed_settings.confirm_settings(
            crew.paths, {"proof": settings.confirmable_values(tx.state.config)["proof"]}, config
        )
    return proof_entry


def _proof_outcome(crew: Crew, result: proof.ProofResult) -> ProofOutcome:
    """Outcome of the proof; NotProved with the reason and the log if the set-up or the tests failed."""
    config = crew.board.read().config
    for outcome, command, subject in (
        (result.setup, config.sandbox_setup, "the set-up"),
        (result.tests, config.integration_command, "the tests"),
    ):
        if outcome is not None and not outcome.passed:
            missing = project_kinds.missing_runner(command or "", outcome.exit_status, outcome.tail())
            module = project_kinds.missing_module(outcome.tail(commands.SEARCHED_LINES))
            problem = (
                f"do not start: {missing} is missing"
                if missing
                else f"ended with {_describe_exit(outcome.exit_status)}"
                + (f": the module {module} is not installed" if module else "")
            )
            log = outcome.log.relative_to(crew.paths.root)
            return NotProved(f"{subject}, as they are, {problem} (see {log})")
    return proof.final_outcome(result)


def _describe_exit(code: int | None) -> str:
    return "the time limit" if code is None else f"exit {code}"
