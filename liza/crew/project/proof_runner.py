"""The proof of a crew that is at work: it runs again when the test command or the set-up is another one."""

from __future__ import annotations

from msgspec.structs import replace

from liza.crew.crew import Crew
from liza.crew.drift import confirmed_settings, drift
from liza.crew.project import proof
from liza.rules import settings
from liza.rules.errors import Refused
from liza.rules.model import Config, TestProof
from liza.rules.project import project_kinds, test_proof
from liza.rules.project.test_proof import NotProved, ProofOutcome
from liza.system.file_lock import Lock

PROOF_HINT = "liza edit (config.integration_command, config.sandbox_setup), then: liza doctor --tests"


def require_proof(crew: Crew, by: str) -> None:
    """Have the tests be proved before a candidate is tested, where that is due. The merge lock is held by the caller.

    Raises Refused where they test another checkout: no candidate is tested then, GitFailed, OSError.
    """
    tip = drift.require_integration(crew, crew.board.read())
    where = prove_if_due(crew, by, tip)
    if where is not None:
        command = crew.board.read().config.integration_command
        what = f"{command} does not test the worktree it runs in, it uses {where}"
        raise Refused(f"nothing is merged: {what}", PROOF_HINT)


def prove_if_due(crew: Crew, by: str, commit: str) -> str | None:
    """What the tests use instead of the worktree that they run in, or None; proved at ``commit`` first if that is due.

    The merge lock is held by the caller. Raises GitFailed, OSError.
    """
    if test_proof.is_proof_due(crew.board.read().config):
        record_proof(crew, by, commit)
    return test_proof.tested_instead(crew.board.read().config)


def prove_now(crew: Crew, by: str) -> TestProof:
    """The proof, now, whatever is known. Raises Refused while a merge is under way, and without a test command."""
    if not crew.board.read().config.has_tests:
        raise Refused("config.integration_command is empty: there is no test to prove", "liza edit")
    lock = Lock(crew.paths.merge_lock)
    if not lock.try_acquire():
        raise Refused("a merge is under way, and it tests as well", "liza status")
    try:
        held = crew.with_lock(lock)
        return record_proof(held, by, drift.require_integration(held, held.board.read()))
    finally:
        lock.release()


def record_proof(crew: Crew, by: str, commit: str) -> TestProof:
    """Run the proof at ``commit``, and note its outcome on the board."""
    config = crew.board.read().config
    assert config.integration_command is not None
    plan = proof.ProofPlan(
        config.integration_command,
        config.sandbox_setup,
        config.sandbox_copy,
        config.environment,
        config.integration_timeout,
        PROOF_HINT,
    )
    examined = proof.run_proof(crew.worktrees, commit, plan, crew.paths.logs, always=False)
    noted = test_proof.to_test_proof(_proof_outcome(examined, config), plan.command, plan.setup)
    # It was proved here, and not just written onto the board.
    confirmed_settings.confirm_settings(
        crew.paths, {"proof": settings.confirmable_values(replace(config, proof=noted))["proof"]}, config
    )
    if noted != config.proof:
        with crew.change(by, "proof") as tx:
            tx.state = replace(tx.state, config=replace(tx.state.config, proof=noted))
        # Nobody's word: it was seen. A proof that stands on the board otherwise does not count.
        confirmed_settings.confirm_settings(
            crew.paths, {"proof": settings.confirmable_values(tx.state.config)["proof"]}, config
        )
    return noted


def _proof_outcome(examined: proof.ProofResult, config: Config) -> ProofOutcome:
    """What was shown; where it did not come to that, what kept it."""
    for done, command, what in (
        (examined.setup, config.sandbox_setup, "the set-up"),
        (examined.tests, config.integration_command, "the tests"),
    ):
        if done is not None and not done.passed:
            missing = project_kinds.missing_runner(command or "", done.exit_status, done.tail())
            how = (
                f"do not start: {missing} is not there" if missing else f"ended with {_describe_exit(done.exit_status)}"
            )
            return NotProved(f"{what}, as they are, {how} (see {done.log.name})")
    return proof.final_outcome(examined)


def _describe_exit(code: int | None) -> str:
    return "the time limit" if code is None else f"exit {code}"
