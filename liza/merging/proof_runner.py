"""Run the proof for an existing crew: again whenever the test command or the set-up has changed."""

from __future__ import annotations

from liza.config import confirmed_settings
from liza.config.rules import settings, test_proof
from liza.config.rules.test_proof import NotProved, ProofOutcome
from liza.crew.crew import Crew
from liza.git import integration_tip
from liza.git.worktrees import PROOF_SLOT
from liza.merging import merge_outcomes
from liza.merging.merge_lock import hold_merge_lock
from liza.model.configuration import FULL_CHECKOUT, Config, TestProof
from liza.model.errors import Refused
from liza.model.value_classes import replace
from liza.project import commands, installed_packages, listeners, proof
from liza.project.broken_runs import ProofPlan
from liza.project.proof import ProofResult
from liza.project.rules import command_parts, output_causes, tree_changes
from liza.tasks import shared_code

PROOF_HINT = "liza edit && liza doctor --tests"


def require_proof(crew: Crew, by: str, *, untested: bool = False) -> None:
    """Prove the tests, if that is due, before a candidate is tested. The caller must hold the merge lock.

    Raises Refused if the tests say nothing about a candidate (then none is tested), unless a person merges it
    ``untested``; GitFailed, OSError.
    """
    state = crew.board.read()
    if _is_proof_due(crew, state.config):
        try:
            record_proof(crew, by, integration_tip.require_integration(crew.git, state))
        except merge_outcomes.SharedFailure:
            if not untested:
                raise
    reason = test_proof.untested_reason(crew.board.read().config)
    if reason is not None and not untested:
        raise Refused(f"nothing is merged: {reason.text}", reason.hint)


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
        return record_proof(locked, by, shared_code.fetch_integration(locked, locked.board.read()))


def _is_proof_due(crew: Crew, config: Config) -> bool:
    """Return whether the proof is due. If that is because packages of ``config.environment`` changed, report it: the
    person, or an agent that a guard did not stop, changed them. Raises OSError."""
    environment = config.environment
    digest = installed_packages.digest_packages(environment)
    is_due = test_proof.is_proof_due(config, digest, is_confined=commands.is_confined(config))
    if is_due and environment is not None and config.proof.environment not in ("", digest):
        text = f"packages of {environment} changed since the last proof"
        crew.append_alert_log([f"packages_changed  {text}; the tests are proved again. Next: liza doctor --tests"])
    return is_due


def record_proof(crew: Crew, by: str, commit: str) -> TestProof:
    """Run the proof at ``commit`` and record its outcome on the board.

    Raises SharedFailure while the tests may use a server of another checkout: they would say nothing of the sources.
    """
    config = crew.board.read().config
    assert config.integration_command is not None
    plan = ProofPlan(
        config.integration_command,
        config.sandbox_setup,
        config.sandbox_copy,
        config.environment,
        config.gate_variables,
        config.checkout == FULL_CHECKOUT,
        config.gates,
        config.proof_runs,
        config.integration_timeout,
        PROOF_HINT,
        config=config,
    )
    is_isolated = commands.is_isolated(plan.config)
    server = None if is_isolated else listeners.find_servers(crew, crew.git, (PROOF_SLOT,), (plan.command,))
    if server is not None:
        raise merge_outcomes.untested_failure(PROOF_SLOT, server)
    result = proof.run_proof(crew.worktrees, commit, plan, crew.paths.logs, always=False)
    details = replace(result.details, gates=tuple(gate.command for gate in plan.gates))
    proof_entry = test_proof.to_test_proof(_proof_outcome(crew, result), plan.command, plan.setup, details)
    proof_entry = replace(
        proof_entry,
        writes=tree_changes.allowable_names(result.changes),
        environment=installed_packages.digest_packages(config.environment),
        boxed=commands.is_confined(plan.config),
    )
    _write_proof(crew, by, proof_entry)
    return proof_entry


def note_changed_definitions(crew: Crew, by: str, before: str) -> None:
    """Record which files that define the tests changed from the commit ``before`` to integration, if they differ from
    those of the proof. The caller must hold the merge lock. Raises LizaError, OSError.

    The proof is then old. It still counts, and is renewed while the crew is idle: a merge does not wait for it.
    """
    config = crew.board.read().config
    if not config.proof.meaning or test_proof.is_proof_due(config, config.proof.environment):
        return

    tip = integration_tip.require_integration(crew.git, crew.board.read())
    if tip == before:
        return
    texts = (config.integration_command or "", config.sandbox_setup or "", *config.proof.gates)
    definitions = proof.read_definitions(crew.git, tip, texts)
    changed: tuple[str, ...] = ()
    if command_parts.digest_definitions(definitions) != config.proof.meaning:
        earlier = proof.read_definitions(crew.git, before, texts)
        names = {*config.proof.changed, *command_parts.changed_definitions(earlier, definitions)}
        changed = tuple(sorted(names))
    if changed != config.proof.changed:
        _write_proof(crew, by, replace(config.proof, changed=changed))


def _write_proof(crew: Crew, by: str, proof_entry: TestProof) -> None:
    config = crew.board.read().config
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


def _proof_outcome(crew: Crew, result: ProofResult) -> ProofOutcome:
    """Outcome of the proof; NotProved with the reason and the log if the set-up or the tests failed."""
    config = crew.board.read().config
    for outcome, command, subject in (
        (result.setup, config.sandbox_setup, "the set-up"),
        (result.tests, config.integration_command, "the tests"),
    ):
        if outcome is not None and not outcome.passed:
            script = outcome.find_crlf_script()
            missing = output_causes.missing_runner(command or "", outcome.exit_status, outcome.tail())
            module = output_causes.missing_module(outcome.tail(commands.SEARCHED_LINES))
            problem = (
                f"fail: {output_causes.describe_crlf(script)}"
                if script
                else f"do not start: {missing} is missing"
                if missing
                else f"ended with {_describe_exit(outcome.exit_status)}"
                + (f": the module {module} is not installed" if module else "")
            )
            log = outcome.log.relative_to(crew.paths.root)
            return NotProved(f"{subject}, as they are, {problem} (see {log})")

    return proof.final_outcome(result)


def _describe_exit(code: int | None) -> str:
    return "the time limit" if code is None else f"exit {code}"
