"""What stands between a crew and a loss: each defence, how a test does without it, and which tests then fail.

A switch is given what it replaces and gives what stands there instead. Nothing of Liza is imported before a switch is
thrown: the patch has to be there before anybody copies a name out of the patched module.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from tests.ablation.switches import Switch

STORE = "tests/edges/board/test_board_store.py::"
CALLERS = "tests/journeys/test_callers.py::"
TREES = "tests/edges/git/test_repo_worktrees.py::"
PLACE = "tests/edges/git/test_slots_place.py::"
MOVED = "tests/journeys/test_moved_repositories.py::"
LATER = "tests/journeys/test_later_crews.py::"
FILTER = "tests/edges/git/test_repo_brief_filter.py::"
SYMBOLIC = "tests/edges/git/test_symbolic_refs.py::"
MERGES = "tests/edges/git/test_repo_merges.py::"
STRANGERS = "tests/journeys/test_strangers.py::"
SUBMISSIONS = "tests/journeys/test_submissions.py::"
CLAIMING = "tests/unit/tasks/test_claiming.py::"
WORKING = "tests/unit/tasks/test_working_and_reviewing.py::"
DECIDING = "tests/unit/supervisor/test_decide.py::"
PLANNING = "tests/unit/tasks/test_planning_triggers.py::"
BREAKER = "tests/unit/breaker/test_circuit_breaker.py::"
HOOKS = "tests/edges/guards/test_hooks.py::"
AUTHORIZE = "tests/edges/guards/test_authorize.py::"
TMUX = "tests/edges/programs/test_tmux.py::"
TYPING = "tests/unit/programs/test_programs_keyboard.py::"
SEEN = "tests/journeys/test_at_a_terminal.py::"
PIPES = "tests/journeys/test_up_in_a_pipe.py::"
PROOF = "tests/edges/project/test_proof.py::"
TESTED = "tests/edges/merging/test_tested_commit.py::"
PACKAGES = "tests/edges/project/test_installed_packages.py::"
MODELS = "tests/journeys/test_models_that_fail.py::"
FAILURES = "tests/edges/merging/test_merge_failures.py::"
BOX = "tests/edges/box/test_box.py::"
BATCHES = "tests/edges/merging/test_batches.py::"
FOREIGN = "tests/edges/project/test_foreign_servers.py::"
SLOTS = "tests/edges/git/test_slots.py::"
LEFTOVERS = "tests/edges/git/test_slot_leftovers.py::"
VARIABLES = "tests/journeys/test_variables_of_tests.py::"
UNTRACKED = "tests/journeys/test_untracked_files.py::"
EPICS = "tests/edges/merging/test_epics.py::"
UNDO = "tests/edges/merging/test_undo.py::"
BACKUP = "tests/edges/landing/test_branch_backup.py::"
ORIGIN = "tests/edges/landing/test_accepted_origin.py::"
LANDING = "tests/edges/landing/test_land.py::"
REQUESTS = "tests/edges/landing/test_land_request.py::"
REQUEST_RULES = "tests/unit/landing/test_landing_rules.py::"
HEALING = "tests/unit/supervisor/test_healing_rules.py::"
HEALED = "tests/journeys/test_healing.py::"
CRASHED = "tests/unit/tasks/test_crashed_tasks.py::"
WATCHING = "tests/unit/supervisor/test_session_watch.py::"
ROUTING = "tests/unit/tasks/test_routing.py::"
RECORDS = "tests/edges/tasks/test_work_records.py::"
ARCHIVE = "tests/edges/board/test_archive.py::"
ROTATION = "tests/edges/board/test_journal_rotation.py::"
RECORD = "tests/edges/tasks/test_record.py::"
GARBAGE = "tests/edges/recovery/test_gc.py::"
OWN_BOARD = "tests/edges/board/test_defence_board.py::"
OWN_CLAIM = "tests/edges/tasks/test_defence_claim.py::"
OWN_MERGE = "tests/edges/merging/test_defence_merge.py::"
SERVER = "tests/edges/api/test_api_server.py::"
TCP_PEERS = "tests/edges/system/test_tcp_peers.py::"
BY_HAND = "tests/journeys/test_run_by_hand.py::"
CHECKOUT = "tests/edges/briefs/test_checkout_brief.py::"
SERVED = "tests/journeys/test_api_in_a_crew.py::"
TELEMETRY = "tests/edges/usage/test_telemetry.py::"
STREAM = "tests/edges/briefs/test_prompt_stream.py::"
LIFECYCLE = "tests/edges/api/test_worker_lifecycle.py::"
IDENTITY = "tests/edges/api/test_worker_identity.py::"
WINDOW = "tests/unit/briefs/test_context_rules.py::"
SIDECAR = "tests/edges/api/test_sidecar.py::"
ACCOUNTS = "tests/edges/usage/test_accounts.py::"
CREDENTIALS = "tests/edges/api/test_api_credentials.py::"
STARTS = "tests/edges/usage/test_server_starts.py::"
COMMANDS = "tests/unit/guards/test_guard_commands.py::test_a_command_is_denied_by_the_rule_for_it"


@dataclass(frozen=True)
class Defence:
    """``fails`` are the tests that fail without it: each of them, and not just one."""

    protects: str
    switches: Mapping[str, Switch]
    fails: tuple[str, ...]


def gives(value: Any) -> Switch:
    """Instead: something that does nothing and gives ``value``."""
    return lambda was: lambda *words, **named: value


def _the_same(was: Callable[..., Any]) -> Callable[[Any], Any]:
    """Instead: its argument, as it is."""
    return lambda value: value


def _only_with_text(was: Callable[..., Any]) -> Any:
    from liza.merging import merge_outcomes

    return lambda crew, by, task, failure: merge_outcomes.record_failure(crew, by, task, failure)


def _never_drops_variables(was: Callable[..., Any]) -> Any:
    """Instead: a plan that never runs red tests without the variables of gates."""
    return lambda *words, **named: was(*words, **{**named, "may_drop_variables": False})


def _holds_nothing(was: Callable[..., Any]) -> Any:
    """Instead: no lock of a supervisor is held."""
    return lambda crew, agent: nullcontext()


def _without_extension(was: Callable[..., Any]) -> Any:
    """Instead: a renewal sets the end of the lease, whatever it was."""
    return lambda until, present, now: until


def _gives_push(was: Callable[..., Any]) -> Any:
    from liza.landing.rules.push_rules import PushStep

    return lambda facts: PushStep.PUSH


def _gives_green(was: Callable[..., Any]) -> Any:
    from liza.merging.candidate_tests import CandidateResult
    from liza.model.tested import HowTested

    return lambda crew, landing, **named: CandidateResult(None, HowTested(True))


def _pushes_always(was: Callable[..., Any]) -> Any:
    from liza.landing.rules.push_rules import PushStep

    return lambda facts: PushStep.PUSH


def _as_unsupervised(was: Callable[..., Any]) -> Any:
    from liza.model.value_classes import replace

    return lambda facts: was(replace(facts, agent=replace(facts.agent, is_supervised=False)))


def _heals_nothing(was: Callable[..., Any]) -> Any:
    return lambda *facts, **more: was.__globals__["Look"]()


def _without_grace(was: Callable[..., Any]) -> Any:
    from liza.model.value_classes import replace

    return lambda facts: was(replace(facts, closed_seconds=None))


def _plans_at_any_signal(was: Callable[..., Any]) -> Any:
    return lambda at, trigger: trigger == "BREAKER_TRIPPED"


def _counts_repeated_texts(was: Callable[..., Any]) -> Any:
    return lambda text: object()


def _without_archived(was: Callable[..., Any]) -> Any:
    return lambda base, newest, edited, named, archived=frozenset(): was(base, newest, edited, named)


def _counts_all(was: Callable[..., Any]) -> Any:
    return lambda board, without: was(board, ())


def _keeping_none(was: Callable[..., Any]) -> Any:
    return lambda path, next_path, recorded: was(path, next_path, 1 << 60)


def _behind_links(was: Callable[..., Any]) -> Any:
    return lambda directory: sorted(directory.iterdir()) if directory.is_dir() else []


def _in_one_write(was: Callable[..., Any]) -> Any:
    return lambda descriptor, data, offset: os.pwrite(descriptor, data, offset)


def _unreserved(was: Callable[..., Any]) -> Any:
    from msgspec.structs import replace

    return lambda state, task, *rest: was(state, replace(task, reservation=None), *rest)


def _any_run(was: Callable[..., Any]) -> Any:
    return lambda state, task_id, run: state.task(task_id)


def _in_place(was: Callable[..., Any]) -> Any:
    from liza.system import files

    return lambda places, fresh: files.write_synced(places.state, fresh.read_bytes())


def _read_when_ended(was: Callable[..., Any]) -> Any:
    def end_turn(self: Any, turn: Any, answer: Any) -> Any:
        self._show_read(turn)
        return was(self, turn, answer)

    return end_turn


def _only_program(was: Callable[..., Any]) -> Any:
    return lambda self, drain: self.wait_for_exit(drain)


def _as_reported(was: Callable[..., Any]) -> Any:
    return lambda reported, earlier, scope: reported


def _without_order(was: Callable[..., Any]) -> Any:
    return lambda self, brief: self._run_to_end(brief)


@contextmanager
def _unlocked(*words: Any, **named: Any) -> Iterator[int]:
    descriptor = os.open(os.devnull, os.O_RDWR)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _as_found(was: Callable[..., Any]) -> Any:
    return lambda self: self._repairer.parse_bytes(self._repairer.read_bytes()).state


def _always_settled(was: Callable[..., Any]) -> Any:
    def settle(git: Any, name: str) -> bool:
        git.out("--literal-pathspecs", "add", "--", name)
        return True

    return settle


def _to_the_end(was: Callable[..., Any]) -> Any:
    def find(text: bytes, word: bytes, *rest: Any) -> Any:
        found = was(text, word, *rest)
        return (len(text), len(text)) if found is None and word == b"liza:end" else found

    return find


def _lapsed_is_enough(was: Callable[..., Any]) -> Any:
    def held(task: Any, agent: str, now: Any, evidence: Any) -> str | None:
        return was(task, agent, now, evidence) if task.lease_expires and task.lease_expires > now else None

    return held


def _blind_swap(was: Callable[..., Any]) -> Any:
    def advance(git: Any, branch: str, candidate: str, expected: str) -> Any:
        from liza.git.branch_moves import AdvanceResult
        from liza.git.checkout_moves import MoveOutcome

        git.out("update-ref", f"refs/heads/{branch}", candidate)
        return AdvanceResult(MoveOutcome.MOVED)

    return advance


def _printed_at_once(was: Callable[..., Any]) -> Any:
    def call(self: Any, agent: str, text: str) -> None:
        self._print_timed(agent, text, self._now())

    return call


def _printed_unguarded(was: Callable[..., Any]) -> Any:
    def call(self: Any, agent: str, text: str, when: Any) -> None:
        from liza.printing import printing

        printing.print_row("", text)

    return call


def _through_the_buffer(was: Callable[..., Any]) -> Any:
    def written(text: str, stream: Any) -> None:
        stream.write(text)
        stream.flush()

    return written


def _by_number(was: Callable[..., Any]) -> Any:
    return lambda process: not os.path.exists(f"/proc/{process.pid}")  # noqa: PTH110 - nothing is imported here


def _blamed(outcome: str) -> Switch:
    """The table of outcomes in which this one counts as a try, as one that ended by itself does."""
    return lambda was: {**was, outcome: was[outcome]._replace(fault=was["finished"].fault)}


def _unguarded(was: Callable[..., Any]) -> Any:
    def start(words: Any, directory: Any, out: Any, env: Mapping[str, str]) -> Any:
        import subprocess

        from liza.programs.session.session_process import GuardedCommand

        process = subprocess.Popen(
            words, cwd=directory, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=env, start_new_session=True
        )
        return GuardedCommand(process, os.open(os.devnull, os.O_RDONLY))

    return start


def _here(was: Callable[..., Any]) -> Any:
    """git believes what lies at ``.git`` in the slot."""
    return lambda self, slot: self.git.at(self.paths.slot(slot))


def _that_keeps_reports(was: Callable[..., Any]) -> Any:
    """A shim without the defence: it is a program of its own, into which nothing can be patched."""
    import tempfile

    text = was.read_text()
    place = was.__class__(tempfile.mkdtemp()) / was.name
    place.write_text(text.replace("        switch_off_reports(terminal)\n", "        pass\n"))
    assert place.read_text() != text
    return place


def _always_empty(was: Callable[..., Any]) -> Any:
    def stands(*words: Any) -> Any:
        from liza.programs.terminal.keyboard import InputLine

        return InputLine.EMPTY

    return stands


def _whatever_waits(was: Callable[..., Any]) -> Any:
    def offer(paths: Any, agent: str, *rest: Any, **named: Any) -> Any:
        from liza.briefs import inbox

        return inbox.list_pending(paths, agent)

    return offer


def _all_signs(was: Callable[..., Any]) -> Any:
    def list_current(signs: Any, now: float) -> Any:
        return signs

    return list_current


def _among_the_files_of_the_run(was: Callable[..., Any]) -> Any:
    return lambda directory: directory.path / "account.json"


def _if_it_is_there(was: Callable[..., Any]) -> Any:
    def read_run_account(directory: Any) -> Any:
        from liza.usage import run_account

        return run_account.read_struct(run_account.run_account_path(directory), run_account.RunAccount)

    return read_run_account


def _by_the_name_of_the_agent(was: Callable[..., Any]) -> Any:
    def iter_agent_pids(agent: str, root: Any) -> Any:
        from liza.system import processes

        return processes._iter_pids_with_variables(f"LIZA_AGENT_ID={agent}", f"LIZA_ROOT={root}")

    return iter_agent_pids


def _always_new(was: Callable[..., Any]) -> Any:
    return lambda event, line: os.urandom(16)


def _no_lock_of_a_turn(was: Callable[..., Any]) -> Any:
    return lambda run_dir: nullcontext()


def _any_event(was: Callable[..., Any]) -> Any:
    def judge(*words: Any) -> Any:
        from liza.programs.rules.lifecycle_rules import EventVerdict

        return EventVerdict(True)

    return judge


def _all_at_once(was: Callable[..., Any]) -> Any:
    return lambda pending, delivered, state: tuple(prompt for prompt in pending if prompt.id not in delivered)


def _kills_at_once(was: Callable[..., Any]) -> Any:
    return lambda self, to=None: self.run_tmux("kill-session", "-t", self.target.rstrip(":"))


def _uncleaned(was: Callable[..., Any]) -> Any:
    from liza.model.clean_environment import CleanEnvironment

    return lambda variables, *rest: CleanEnvironment(dict(variables))


def _always_proved(was: Callable[..., Any]) -> Any:
    from liza.config.rules.test_proof import Proved

    return lambda *words: Proved()


def _uncommitted(was: Callable[..., Any]) -> Any:
    def check_out(self: Any, commit: str) -> None:
        was(self, commit)
        self.slot.git.out("reset", "--soft", self.slot.commit)

    return check_out


def _following(was: Callable[..., Any]) -> Any:
    return lambda path, *rest, **named: was(path, *rest, **{**named, "follow_links": True})


def _never_denied(was: Callable[..., Any]) -> Any:
    return lambda *given: type(was(*given))(True)


def _allowed_if_unjudged(was: Callable[..., Any]) -> Any:
    def judge(guards: Any, *rest: Any) -> Any:
        guards.data["on_error"] = "allow"
        return was(guards, *rest)

    return judge


TABLE: dict[str, Defence] = {
    # ── the board ──
    "board lock": Defence(
        "no update is lost between two that change the board at once",
        {"liza.system.locks:take_flock": gives(True)},
        (f"{OWN_BOARD}test_the_second_of_two_simultaneous_transactions_waits_and_counts",),
    ),
    "rename": Defence(
        "whoever reads sees the old board or the new one; a crash leaves one of them",
        {"liza.board.file_store.commit_steps:rename_board": _in_place},
        (
            f"{OWN_BOARD}test_a_reader_that_opened_the_old_board_reads_it_whole",
            f"{OWN_BOARD}test_a_killed_write_leaves_the_old_or_the_new_board",
        ),
    ),
    "write intent": Defence(
        "a change that a crash cut short is told from an edit by hand",
        {
            "liza.board.file_store.write_intent:save_intent": gives(None),
            "liza.board.file_store.write_intent:read_intent": gives(None),
        },
        (f"{STORE}test_a_revision_killed_at_any_step_is_whole_or_absent[False-write_next_board]",),
    ),
    "journal": Defence(
        "each revision is written down before it happens, and an old copy put back is recognised",
        {"liza.board.file_store.commit_steps:write_journal": gives(None)},
        (
            f"{STORE}test_a_transaction_leaves_board_journal_and_write_intent_that_agree",
            f"{STORE}test_writing_back_an_old_copy_reverts_no_crew_changes",
        ),
    ),
    "interrupted revision": Defence(
        "a revision that a crash or a full disk interrupted is void, also if an edit from outside or a loss follows",
        {"liza.board.file_store.repair:BoardRepairer._hash_next": gives("")},
        (
            f"{STORE}test_a_revision_that_failed_before_an_outside_edit_is_voided",
            f"{STORE}test_an_interrupted_change_on_a_board_destroyed_since_never_came",
        ),
    ),
    "unrecorded revisions": Defence(
        "a long journal keeps the revisions that the history does not have yet",
        {"liza.board.file_store.revision_journal:rotate": _keeping_none},
        (f"{ROTATION}test_revisions_that_are_not_recorded_stay_in_the_journal",),
    ),
    "merge turn": Defence(
        "one supervisor at a time starts a merger",
        {"liza.merging.merge_lock:_try_until_held": gives(True)},
        ("tests/edges/merging/test_merge_turn.py::test_the_merge_turn_lasts_until_the_inheriting_child_ends",),
    ),
    "guarded read": Defence(
        "a board that is being typed or written in place is not taken for what it says at that moment",
        {"liza.board.file_store.file_board:FileBoard.read": _as_found},
        (f"{STORE}test_a_board_written_slowly_after_truncation_is_read_when_complete",),
    ),
    "torn end": Defence(
        "a board whose end is missing is no board with fewer tasks",
        {"liza.board.file_store.outside_edits:is_truncated": gives(False)},
        (f"{STORE}test_a_truncated_board_is_waited_for_and_never_overwritten",),
    ),
    "invariants": Defence(
        "no change adds a violation",
        {"liza.board.new_violations:find_added": gives(())},
        (f"{STORE}test_a_change_is_refused_for_a_new_violation_only",),
    ),
    "mended journal": Defence(
        "what a crash left half written in the journal swallows no later entry",
        {"liza.board.file_store.revision_journal:_repair_torn_line": gives(None)},
        (f"{STORE}test_a_torn_line_at_the_journals_end_becomes_a_comment",),
    ),
    "whole comment": Defence(
        "a comment of which a full disk takes a part swallows no later entry",
        {"liza.board.file_store.revision_journal:_write_at": _in_one_write},
        (f"{STORE}test_a_half_written_comment_on_a_torn_line_loses_nothing",),
    ),
    # ── claims ──
    "reservation": Defence(
        "one owner for a task, with its worktree, whoever claims at once",
        {"liza.tasks.rules.picking:claim_obstacle": _unreserved},
        (
            f"{CLAIMING}test_two_claimers_at_once_the_second_reservation_is_refused",
            f"{OWN_CLAIM}test_a_second_claimer_is_refused_while_a_worktree_is_made",
        ),
    ),
    "run fence": Defence(
        "a session that lost its task says nothing about it any more",
        {"liza.tasks.rules.claims:get_owned_task": _any_run},
        (
            f"{WORKING}test_an_old_run_cannot_submit_after_a_resume",
            f"{CLAIMING}test_a_takeover_fences_the_old_run_until_it_is_undone",
        ),
    ),
    "dead-proof": Defence(
        "no task is taken from a session that may still be at work",
        {"liza.tasks.rules.picking:_lease_obstacle": _lapsed_is_enough},
        (
            f"{CLAIMING}test_taking_over_needs_a_lapsed_lease_and_a_dead_session",
            f"{OWN_CLAIM}test_a_lapsed_claim_is_not_taken_from_a_living_session",
        ),
    ),
    "start time": Defence(
        "a process number that changed hands is not taken for the one that had it",
        {"liza.system.processes:is_proved_dead": _by_number},
        ("tests/edges/programs/test_programs_rundir.py::test_a_living_pid_with_another_start_time_is_dead",),
    ),
    "strays": Defence(
        "what a dead session left running does not write into its successor's worktree",
        {"liza.system.processes:kill_run": gives(())},
        (f"{OWN_CLAIM}test_a_takeover_first_ends_what_the_old_session_left_running",),
    ),
    # ── worktrees ──
    "serialised add": Defence(
        "nobody removes a worktree that another git is still making",
        {"liza.git.worktree_creation:lock_path": lambda was: _unlocked},
        (f"{TREES}test_a_git_whose_caller_was_killed_keeps_its_lock",),
    ),
    "half-made slots": Defence(
        "a killed worktree add stands in nobody's way",
        {"liza.git.slot_records:is_half_made": gives(False)},
        (f"{TREES}test_a_half_made_worktree_of_a_killed_add_is_remade",),
    ),
    "salvage": Defence(
        "nothing is reset that was not saved",
        {
            "liza.git.salvage:salvage_if_needed": gives(None),
            "liza.git.salvage:salvage_new_changes": gives(None),
        },
        (
            f"{TREES}test_another_tasks_slot_is_saved_and_reused_with_ignored_files",
            f"{TREES}test_a_takeover_continues_at_the_tip_with_unfinished_files",
        ),
    ),
    "owner of a slot": Defence(
        "a slot that is given back goes to who had it before, and to nobody else",
        {
            "liza.git.slot_records:read_owner": gives(None),
            "liza.git.slot_records:find_owner": gives(None),
        },
        (f"{TREES}test_prepare_destroys_nothing_and_undo_gives_the_slot_back",),
    ),
    "files before a claim": Defence(
        "until a claim is finished, the files in its slot are those of the owner before",
        {"liza.git.slot_records:content_owner": lambda was: lambda owner: owner},
        (f"{TREES}test_an_unfinished_claim_adds_no_files_of_the_previous_owner",),
    ),
    "files of the task": Defence(
        "the files of an unknown owner become the work of no task",
        {"liza.git.slot_records:is_linked": gives(True)},
        (f"{TREES}test_files_a_task_never_had_are_not_restored_to_it",),
    ),
    "known git directory": Defence(
        "a slot whose .git was taken away resets no other work tree",
        {
            "liza.git.worktree_creation:SlotAccess.slot_git": _here,
            "liza.git.slot_records:repair_gitfile": gives(None),
        },
        (f"{TREES}test_a_slot_without_its_git_file_resets_no_other_checkout",),
    ),
    "slots outside": Defence(
        "nothing of the person's checkout is found from a worktree",
        {
            "liza.git.slots_directory:propose_directories": lambda was: (
                lambda root, environ: iter([root / ".worktrees" / ".slots"])
            ),
            "liza.git.slots_directory:directory_objection": gives(None),
        },
        (
            f"{PLACE}test_slots_beside_the_repository_are_private_and_linked",
            f"{PLACE}test_git_clean_takes_nothing_of_a_worktree",
        ),
    ),
    "free directory": Defence(
        "worktrees are not laid into a directory that somebody else uses",
        {"liza.git.slots_directory:directory_objection": gives(None)},
        (f"{PLACE}test_a_directory_in_use_by_others_is_refused",),
    ),
    "repaired records": Defence(
        "a repository that was moved goes on with its worktrees as they were",
        {"liza.git.slots_directory:repair_records": gives(())},
        (f"{MOVED}test_a_moved_repository_continues_with_its_uncommitted_files",),
    ),
    "directory of one crew": Defence(
        "a copy of a repository does not work in the worktrees of its original",
        {"liza.git.slots_directory:is_copied": gives(False)},
        (f"{MOVED}test_a_copied_repository_never_touches_the_original_worktrees",),
    ),
    "moved under a crew": Defence(
        "a supervisor whose repository was moved away ends its session and leaves",
        {"liza.supervisor.repository_location:RepositoryLocation.check_not_moved": gives(None)},
        (f"{MOVED}test_a_crew_whose_repository_moves_stops_and_can_continue_there",),
    ),
    "deleted under a crew": Defence(
        "a supervisor whose lock file or pins were deleted ends its session and leaves",
        {"liza.supervisor.repository_location:RepositoryLocation.deleted": gives(None)},
        ("tests/journeys/test_damaged.py::test_a_partly_deleted_liza_needs_one_command_to_be_repaired",),
    ),
    "nothing beside survivors": Defence(
        "where processes hold deleted locks of a crew, no supervisor is started and nothing is removed",
        {"liza.crew.layout:refuse_damaged": gives(None), "liza.crew.layout:refuse_survivors": gives(None)},
        ("tests/journeys/test_damaged.py::test_a_partly_deleted_liza_needs_one_command_to_be_repaired",),
    ),
    "sessions of a former path": Defence(
        "a session that cannot find its crew any more is not adopted, and a copy ends no session of its original",
        {"liza.crew.deleted_parts:_release_sessions": gives(None)},
        (f"{MOVED}test_sessions_without_a_supervisor_end_after_moves_and_not_copies",),
    ),
    "work of an earlier crew": Defence(
        "a new crew restores no work that an earlier one left under the id of a task",
        {"liza.project.init:_leave_earlier_work": gives(None)},
        (
            f"{LATER}test_a_new_crew_begins_an_old_task_id_from_integration[purged]",
            f"{LATER}test_a_branch_of_an_earlier_crew_is_refused_by_name[purged]",
        ),
    ),
    "slots of an earlier crew": Defence(
        "the content of a slot that an earlier crew left is restored to no task of the new one",
        {"liza.git.worktrees:Worktrees.disown_all": gives(None)},
        (
            f"{LATER}test_a_new_crew_begins_an_old_task_id_from_integration[.liza deleted]",
            f"{LATER}test_a_branch_of_an_earlier_crew_is_refused_by_name[.liza deleted]",
        ),
    ),
    "waits for the former crew": Defence(
        "the worktrees of a moved repository are left alone while a supervisor works at its former path",
        {"liza.crew.deleted_parts:_wait_for_supervisors": gives([])},
        (f"{MOVED}test_a_supervisor_at_the_former_path_keeps_its_worktrees",),
    ),
    "runs in use": Defence(
        "the directory of a run that a task names is not archived",
        {"liza.recovery.run_cleanup:runs_in_use": gives(frozenset())},
        ("tests/edges/programs/test_old_runs.py::test_only_finished_runs_that_no_task_names_are_archived",),
    ),
    "free branch": Defence(
        "a task whose branch git cannot make is given back and not claimed",
        {"liza.git.worktrees:Worktrees._refuse_blocked": gives(None)},
        (f"{PLACE}test_branch_named_task_is_reported_and_gives_a_claim_back",),
    ),
    "no line break": Defence(
        "a path that git would write as two lines is refused",
        {"liza.git.slots_directory:refuse_line_break": gives(None)},
        (f"{PLACE}test_a_line_break_in_the_path_is_refused_first",),
    ),
    "programs of git": Defence(
        "hooks, monitors and signing programs that a repository names do not run in the git of Liza",
        {"liza.git.runner:_FIXED_CONFIG": lambda was: ()},
        ("tests/edges/git/test_repo_runner.py::test_hooks_and_signing_are_off_and_commits_have_repositorys_identity",),
    ),
    # ── who speaks, and what runs ──
    "guarded commands": Defence(
        "nothing that a test or a set-up started outlives it, or speaks as the person while it lives",
        {"liza.programs.session.session_process:start_guarded": _unguarded},
        (
            "tests/edges/project/test_commands.py::test_what_a_command_started_is_over_when_the_command_is",
            f"{CALLERS}test_processes_of_a_test_are_no_person_and_are_ended[directly]",
        ),
    ),
    "wait for guards": Defence(
        "a killed merger's commands are ended by their guards before the next merger works in their place",
        {"liza.system.processes:wait_until_gone": gives(())},
        ("tests/edges/project/test_commands.py::test_recovery_waits_for_the_guards_of_a_killed_mergers_commands",),
    ),
    "sessions above": Defence(
        "no verb that is said in a session is a person's, whatever the session took off its environment",
        {"liza.crew.caller:enclosing_run": gives(None)},
        (f"{CALLERS}test_reports_of_a_session_are_its_own_and_without_secrets[directly]",),
    ),
    "credentials of other accounts": Defence(
        "a session has the secret of its own account and of no other",
        {"liza.usage.account_choice:_credential_variables": gives(frozenset())},
        ("tests/edges/usage/test_accounts.py::test_a_session_gets_only_the_credentials_of_its_account",),
    ),
    "the persons own accounts": Defence(
        "no other user can make Liza run a command as the source of a secret",
        {"liza.usage.account_files:_check_owner": gives(None)},
        ("tests/edges/usage/test_accounts.py::test_a_file_that_others_may_change_is_refused",),
    ),
    "programs outside the worktrees": Defence(
        "no file that an agent committed runs because it bears the name of a program",
        {
            "liza.system.program_path:remove_unsafe_entries": gives(None),
            "liza.system.program_path:find_program": lambda was: lambda name: name,
        },
        ("tests/journeys/test_lookup.py::test_no_command_runs_programs_that_agents_commit",),
    ),
    "modules outside the checkout": Defence(
        "no process of Liza imports what lies in the directory it is started in",
        {"liza.system.installation:liza_argv": lambda was: lambda: tuple(word for word in was() if word != "-P")},
        ("tests/journeys/test_lookup.py::test_liza_imports_no_module_from_the_persons_checkout",),
    ),
    "confirmed settings": Defence(
        "what tested means, and what agents may do and spend, is not changed by whoever can write the board",
        {"liza.config.rules.settings:effective_config": lambda was: lambda config, known: config},
        ("tests/journeys/test_settings.py::test_a_test_command_changed_outside_of_liza_does_not_count",),
    ),
    "what took the place of the worktrees": Defence(
        "no task is laid out in a directory of somebody else, and no link leads there",
        {"liza.git.slots_directory:foreign_error": gives(None)},
        (PLACE + "test_files_in_place_of_the_worktrees_are_left_alone[a stranger's directory]",),
    ),
    "settings in the history": Defence(
        "a deleted .liza, or deleted pins, do not make a person's confirmation of whatever stands on the board",
        {"liza.git.board_history:read_settings": gives(b'{"integration_command": "true"}')},
        ("tests/journeys/test_settings.py::test_losing_the_pins_confirms_no_changed_test_command[all of .liza]",),
    ),
    "options for commits": Defence(
        "what a record that anybody can write names as a commit has git write over no file",
        {"liza.git.runner:_refuse_writing": gives(None)},
        ("tests/edges/git/test_repo_runner.py::test_a_commit_argument_is_never_an_option_of_git[diff-tree]",),
    ),
    "no link is opened": Defence(
        "what an agent put in the place of a file leads to no other file",
        {"liza.system.untrusted_files:open_regular": _following},
        ("tests/edges/system/test_untrusted_files.py::test_a_link_is_followed_only_on_the_callers_request",),
    ),
    "lock of down": Defence(
        "up takes no agent that liza down stops for a lost one",
        {"liza.supervisor.foreground:is_under_way": gives(False)},
        ("tests/journeys/test_up_in_a_pipe.py::test_a_stopped_crew_reports_no_missing_agent",),
    ),
    "work in submodules": Defence(
        "no slot is removed with the only copy of what is in its submodules",
        {"liza.git.reset:salvage_submodules": gives(None)},
        (f"{TREES}test_submodule_work_is_saved_before_the_slot_is_removed",),
    ),
    "work in submodules of a reused slot": Defence(
        "no submodule is reset with the only copy of what is in it",
        {"liza.git.slot_emptying:salvage_before_reset": gives(None)},
        (f"{TREES}test_submodule_work_is_saved_and_hidden_from_the_next_task[claim]",),
    ),
    "reset of submodules": Defence(
        "a task sees nothing of what an earlier one changed in a submodule",
        {"liza.git.slot_setup:empty_submodules": gives(None)},
        (f"{TREES}test_submodule_work_is_saved_and_hidden_from_the_next_task[claim]",),
    ),
    # ── briefs ──
    "index only if equal": Defence(
        "settling the index stages no work of an agent",
        {"liza.git.hiding:refresh_index_entry": _always_settled},
        (
            f"{FILTER}test_index_is_refreshed_only_for_exactly_text_outside_the_block",
            f"{FILTER}test_a_conflict_in_the_file_is_not_resolved",
        ),
    ),
    "complete blocks": Defence(
        "the clean filter takes out nothing but complete blocks",
        {"liza.text.brief_marks:_find_mark": _to_the_end},
        ("tests/unit/git/test_repo_filter.py::test_a_block_without_its_end_is_ordinary_text",),
    ),
    "defused texts": Defence(
        "no text of a task ends a brief or begins one",
        {"liza.text.quoting:sanitize": lambda was: lambda text: text},
        ("tests/unit/briefs/test_programs_brief.py::test_no_task_text_can_end_a_block_or_control_terminals",),
    ),
    # ── terminals ──
    "no shell": Defence(
        "what is typed for an agent is carried out by no shell",
        {"liza.programs.terminal.readiness:is_shell": gives(False)},
        ("tests/edges/programs/test_tmux.py::test_a_shell_is_never_typed_into",),
    ),
    "no answer": Defence(
        "a line at the cursor that asks a person gets no message for an answer",
        {
            "liza.programs.terminal.screens:is_question": gives(False),
            "liza.programs.terminal.screens:is_explicit_question": gives(False),
        },
        (
            f"{TYPING}test_a_question_that_is_wrapped_is_read_as_one_line",
            f"{TYPING}test_a_yes_or_no_question_is_left_for_a_person",
        ),
    ),
    "half lines": Defence(
        "what a person has begun is not sent along with a message",
        {"liza.programs.terminal.screens:has_begun_line": gives(False)},
        (f"{TYPING}test_a_persons_begun_line_is_not_sent_with_a_message",),
    ),
    "known empty": Defence(
        "nothing is typed into a line that is not known to be empty",
        {"liza.programs.terminal.keyboard:classify_line": _always_empty},
        (
            f"{TYPING}test_unknown_empty_lines_send_messages_into_brief_after_a_person",
            "tests/edges/programs/test_typing.py::test_after_a_person_unknown_empty_lines_are_not_typed_into",
        ),
    ),
    "once": Defence(
        "what was typed is not brought by a hook as well",
        {"liza.briefs.inbox:claim_for_hook": _whatever_waits},
        (f"{HOOKS}test_a_typed_message_is_acknowledged_and_not_repeated",),
    ),
    "compaction": Defence(
        "a compaction whose event carries no text gives the brief again at the next event that does",
        {"liza.programs.session.run_directory:RunDir.is_compacted": gives(False)},
        (f"{HOOKS}test_a_compaction_may_leave_the_brief_to_later_events",),
    ),
    "stale signs": Defence(
        "what was seen of an idle program some seconds ago does not show that it is idle now",
        {"liza.programs.terminal.readiness:list_current": _all_signs},
        (f"{TYPING}test_one_contrary_sign_outweighs_all_others",),
    ),
    "one reporter": Defence(
        "a hook file left by an earlier session counts and delivers nothing in a session over ACP",
        {"liza.programs.session.run_directory:RunDir.has_sidecar": gives(False)},
        (f"{HOOKS}test_an_earlier_sessions_hook_adds_nothing_to_acp_sessions",),
    ),
    "guards": Defence(
        "a tool that a rule denies does not run",
        {"liza.guards.session_guards:SessionGuards.judge": _never_denied},
        (
            f"{AUTHORIZE}test_writes_are_judged_by_the_path",
            f"{AUTHORIZE}test_a_push_is_denied_and_recorded_unlike_a_commit",
        ),
    ),
    "guards that fail": Defence(
        "a tool that cannot be judged does not run",
        {"liza.guards.session_guards:SessionGuards.judge": _allowed_if_unjudged},
        (f"{AUTHORIZE}test_undecidable_calls_are_denied_unless_the_crew_allows_them",),
    ),
    "rights of a project's file": Defence(
        "an agent gives itself no rights by a file that a person has not trusted",
        {"liza.programs.presets.preset_table:is_trusted": lambda was: lambda file, home: True},
        (f"{AUTHORIZE}test_allowing_rules_of_a_project_count_once_trusted",),
    ),
    "place of a command": Defence(
        "a command that runs in the person's checkout is not taken for one in the agent's worktree",
        {"liza.guards.rules.acts:GuardFacts.area_of": gives("own")},
        (
            f"{COMMANDS}['tools-in-own-worktree'-'cd /home/ann/shop && npm install']",
            f"{COMMANDS}['tools-in-own-worktree'-'make -C /home/ann/shop']",
            f"{COMMANDS}['own-worktree-only'-'git -C /home/ann/shop commit -am x']",
        ),
    ),
    "commands in commands": Defence(
        "a command behind a wrapper, in a substitution or in the script of a shell is judged",
        {"liza.guards.rules.tool_calls:ScriptReader._run_inner": gives(None)},
        (f"{COMMANDS}['no-push'-'env git push']", f"{COMMANDS}['no-push'-\"bash -c 'git push'\"]"),
    ),
    "requests to a forge": Defence(
        "an agent that calls the API of a forge itself merges, approves and publishes nothing",
        {"liza.guards.rules.tool_calls:_method": gives("GET")},
        ("tests/unit/guards/test_guard_corpus.py::test_dangerous_commands_are_denied_by_the_rule_for_them",),
    ),
    "reports switched off": Defence(
        "a person who leaves the terminal of a program that was killed ends nobody's terminal",
        {"liza.programs.session.session_process:SHIM_SCRIPT": _that_keeps_reports},
        (f"{TMUX}test_leaving_a_killed_programs_terminal_ends_no_other_terminal",),
    ),
    "panes closed quietly": Defence(
        "the terminal of an earlier session takes that of no other along, whoever watches it",
        {"liza.programs.terminal.pane:Pane.close": _kills_at_once},
        (f"{TMUX}test_a_person_at_an_ended_session_is_moved_to_another",),
    ),
    # ── a crew in a terminal ──
    "reader that is gone": Defence(
        "a reader of `up` that goes away ends its output and nothing else",
        {
            "liza.commands.up:Steps.__call__": _printed_unguarded,
            "liza.supervisor.feed:Feed.__call__": _printed_at_once,
        },
        (f"{PIPES}test_a_reader_that_closes_ends_the_output_but_no_work",),
    ),
    "reader that is stopped": Defence(
        "what `up` cannot print holds up neither its supervisors nor signals",
        {"liza.supervisor.feed:Feed.__call__": _printed_at_once},
        (f"{PIPES}test_a_stopped_reader_blocks_neither_the_work_nor_term",),
    ),
    "output without a lock": Defence(
        "a line that nobody takes keeps no lock that the end of the command needs",
        {"liza.printing.printing:_write_unbuffered": _through_the_buffer},
        (f"{PIPES}test_a_stopped_reader_blocks_neither_the_work_nor_term",),
    ),
    "third Ctrl+C": Defence(
        "the third Ctrl+C ends what no longer answers",
        {"liza.supervisor.foreground:_kill_crew": gives(None)},
        (f"{PIPES}test_a_third_ctrl_c_ends_everything_at_once",),
    ),
    # ── models that do not answer ──
    "output is heard": Defence(
        "what a program says of its model is known when it is printed, not at the next heartbeat",
        {"liza.supervisor.loop:Supervisor._has_model_news": gives(False)},
        (f"{MODELS}test_models_failure_is_reported_at_once_and_blames_no_agent",),
    ),
    "tasks without blame": Defence(
        "a model that does not answer blocks no task and uses up no try",
        {"liza.tasks.rules.coding:OUTCOME_RULES": _blamed("unanswered")},
        (f"{MODELS}test_a_silent_model_is_named_and_blocks_no_task",),
    ),
    "waiting is not starting": Defence(
        "a program that waits for its model for longer than one may take to start is not ended as one that hangs",
        {"liza.supervisor.observe:SessionObserver._has_asked": gives(False)},
        (f"{MODELS}test_a_wait_for_a_model_does_not_count_as_hanging",),
    ),
    "no endless retries": Defence(
        "a program that repeats a failing request without end is ended",
        {"liza.programs.rules.model_silence:MAX_RETRIES": lambda was: 1 << 30},
        (f"{MODELS}test_models_failure_is_reported_at_once_and_blames_no_agent",),
    ),
    # ── loops and budgets ──
    "endless loop": Defence(
        "a session that calls the same tool without end is noticed",
        {"liza.usage.rules.loop_detection:check_progress": gives(None)},
        (
            "tests/unit/usage/test_looping.py::test_a_loop_is_final_once_it_lasts_as_long_again",
            "tests/unit/usage/test_looping.py::test_quick_cycle_of_any_length_is_found_after_any_start",
        ),
    ),
    "budget within a turn": Defence(
        "what a living session used counts before it is over",
        {"liza.supervisor.situation:_living_entry": gives(None)},
        ("tests/edges/supervisor/test_budget.py::test_session_exceeds_its_limit_once_its_output_shows_it",),
    ),
    "estimated use": Defence(
        "a program that tells nothing of what it uses is held by a budget of tokens all the same",
        {"liza.usage.meter:estimate_usage": gives(None)},
        ("tests/unit/usage/test_meter.py::test_unreported_usage_is_estimated_after_a_few_calls_and_marked",),
    ),
    "conversation by name": Defence(
        "what a session calls its conversation leads to no file outside the program's own journals",
        {"liza.programs.reported_figures:_ID": lambda was: re.compile("(?s).*")},
        ("tests/unit/usage/test_meter.py::test_a_conversation_id_is_a_name_and_never_a_path",),
    ),
    "pins of another kind": Defence(
        "a damaged value among the confirmed settings stops no command that only reads",
        {"liza.config.rules.settings:are_valid": gives(True)},
        ("tests/edges/recovery/test_confirmed.py::test_invalid_settings_in_the_history_are_not_confirmed_again",),
    ),
    # ── verdicts and merges ──
    "reviewer is not the author": Defence(
        "nobody approves work of their own",
        {"liza.tasks.rules.picking:authors": gives(frozenset()), "liza.model.invariants:check_entry": gives(())},
        (f"{WORKING}test_a_coder_cannot_approve_its_own_work_under_any_name",),
    ),
    "approval in the history": Defence(
        "a board that merely says APPROVED moves integration nowhere",
        {"liza.merging.rules.merge_rules:merge_obstacle": gives(None)},
        (
            f"{WORKING}test_an_approved_task_without_a_verdict_is_not_merged",
            f"{WORKING}test_a_verdict_on_another_commit_lets_nothing_be_merged",
            "tests/unit/merging/test_merging.py::test_a_dropped_task_written_back_as_approved_is_not_merged",
        ),
    ),
    "no symbolic ref is followed": Defence(
        "to delete a symbolic branch of Liza's moves no branch of the person",
        {"liza.git.runner:_add_safe_switches": lambda was: list},
        (f"{SYMBOLIC}test_a_purge_deletes_a_symbolic_integration_but_not_its_target",),
    ),
    "expected old value": Defence(
        "integration moves only from the commit that the candidate was tested on",
        {"liza.git.branch_moves:advance_branch": _blind_swap},
        (
            f"{MERGES}test_an_absent_branch_moves_and_a_second_swap_is_lost",
            f"{MERGES}test_a_move_also_updates_files_of_a_persons_checkout",
        ),
    ),
    "merge intent": Defence(
        "a merger that died after integration moved has merged, once",
        {"liza.merging.rules.merge_rules:begin_merge": lambda was: lambda state, task_id, merging: state},
        (f"{OWN_MERGE}test_a_merger_killed_when_integration_had_moved_has_merged_once",),
    ),
    "recovered mergers": Defence(
        "what a dead merger left is settled before anything else is merged",
        {"liza.merging.merge_recovery:recover_dead_merger": gives(None)},
        (
            f"{FAILURES}test_a_green_result_recorded_in_one_place_merges_nothing",
            f"{FAILURES}test_candidate_written_onto_the_board_is_tested_before_its_offer",
        ),
    ),
    # ── what tests test ──
    "clean environment": Defence(
        "tests, set-up and sessions use nothing of the person's checkout",
        {"liza.model.clean_environment:clean_variables": _uncleaned},
        (
            "tests/edges/project/test_commands.py::test_a_command_uses_no_program_of_the_persons_checkout",
            "tests/unit/system/test_environ.py::test_a_session_gets_a_clean_environment_with_liza_first",
        ),
    ),
    "no checkout in the environment": Defence(
        "an environment that imports the checkout itself is not used",
        {"liza.project.detect:find_checkout_links": gives(())},
        (
            f"{PROOF}test_an_environment_with_dependencies_only_stays_in_use",
            f"{PROOF}test_each_way_to_install_a_checkout_is_found[egg-link]",
        ),
    ),
    "proof of the tests": Defence(
        "no crew begins with tests that test another checkout",
        {"liza.config.rules.test_proof:judge_proof": _always_proved},
        (
            f"{PROOF}test_tests_that_import_the_persons_checkout_are_refused_by_name",
            f"{PROOF}test_tests_that_import_an_installed_copy_are_refused",
            f"{PROOF}test_tests_naming_the_persons_checkout_are_refused_in_any_language",
        ),
    ),
    "copies of the sources elsewhere": Defence(
        "tests that load a copy of some sources are refused though a part of them is red with failing sources",
        {"liza.project.detect:find_other_copies": gives(())},
        (
            f"{PROOF}test_an_installed_copy_counts_despite_other_red_tests",
            f"{PROOF}test_node_modules_above_that_lead_to_the_checkout_are_refused",
            f"{PROOF}test_red_tests_using_the_persons_checkout_prove_nothing",
        ),
    ),
    "proof of a changed command": Defence(
        "nothing is merged by tests that were changed and test another checkout",
        {"liza.merging.proof_runner:require_proof": gives(None)},
        (f"{PROOF}test_a_changed_test_command_must_be_proved_before_it_counts",),
    ),
    "parts that stay green": Defence(
        "nothing is merged while a part of the tests stays green when all sources fail, and no person accepted it",
        {"liza.config.rules.test_proof:unaccepted_parts": gives(())},
        (f"{PROOF}test_merges_wait_for_a_person_while_a_part_is_untested",),
    ),
    "failing sources are committed": Defence(
        "tests that see only uncommitted changes are not proved",
        {"liza.project.broken_runs:BrokenRuns._check_out": _uncommitted},
        (f"{PROOF}test_a_green_part_is_untested_and_its_cause_is_named[uncommitted]",),
    ),
    "lost exit statuses": Defence(
        "a part whose exit status a later one replaces is untested",
        {"liza.project.rules.command_parts:lost_statements": gives(())},
        (f"{PROOF}test_each_part_of_a_command_must_fail_without_sources[sh tests/a.sh; echo done-green5]",),
    ),
    "tests of the last commit": Defence(
        "candidates are merged one by one by tests that examine the last commit only",
        {"liza.config.rules.test_proof:reads_last_commit": gives(False)},
        (f"{PROOF}test_tests_of_the_last_commit_are_detected_and_candidates_unbatched[hidden]",),
    ),
    "a set-up that builds": Defence(
        "a set-up that builds what the tests use runs for each candidate",
        {"liza.config.rules.test_proof:is_setup_due_for_each": gives(False)},
        (f"{PROOF}test_a_set_up_that_builds_runs_for_each_candidate[builds]",),
    ),
    "an old proof": Defence(
        "a merge that changes what the tests mean makes the proof old",
        {"liza.merging.proof_runner:note_changed_definitions": gives(None)},
        (f"{PROOF}test_a_merge_that_changes_the_tests_outdates_the_proof",),
    ),
    "recorded green": Defence(
        "a candidate is published, and MERGED after a crash, only if its green result was recorded in both places",
        {"liza.merging.merge_recovery:_is_recorded_tested": gives(True)},
        (
            f"{FAILURES}test_a_red_candidate_its_tests_published_is_never_merged",
            f"{FAILURES}test_a_green_result_recorded_in_one_place_merges_nothing",
            f"{FAILURES}test_candidate_written_onto_the_board_is_tested_before_its_offer",
        ),
    ),
    "recorded revert": Defence(
        "a killed undo counts only if its branch has the tested revert, and board and ref name it",
        {"liza.merging.undo_recovery:_is_published": gives(True)},
        (
            f"{UNDO}test_a_killed_undo_is_complete_or_has_not_happened[passed]",
            f"{UNDO}test_a_forged_record_of_an_undo_is_removed",
        ),
    ),
    "own change only": Defence(
        "an undo reverts only the merge of an approved commit, and nothing that others brought",
        {"liza.merging.undo:_refuse_unless_own_merge": gives(None)},
        (
            f"{UNDO}test_a_merge_that_brought_integration_along_is_refused",
            f"{UNDO}test_only_a_merge_of_the_approved_commit_is_undone",
        ),
    ),
    "dependents first": Defence(
        "a task that merged tasks build on is not undone under them",
        {"liza.merging.rules.undo_rules:refuse_dependents": gives(None)},
        (f"{UNDO}test_dependents_in_the_archive_refuse_an_undo",),
    ),
    "landed work stays": Defence(
        "work that has landed on a branch of the person is reverted by the person",
        {"liza.git.integration_tip:find_landed_branch": gives(None)},
        (f"{UNDO}test_a_landed_task_is_left_to_the_person[merge]",),
    ),
    "integration given back": Defence(
        "tests that delete integration, or move it back, stop no other task",
        {"liza.git.git_refs:is_branch_rewound": gives(False)},
        (f"{FAILURES}test_tests_that_delete_integration_return_their_task_only",),
    ),
    "own moves": Defence(
        "a move of integration that Liza records during a look for drift is no drift",
        {"liza.git.integration_tip:is_last_tip": gives(True)},
        ("tests/edges/merging/test_integration.py::test_no_sync_looks_like_a_move_from_outside[git.rev-parse#2]",),
    ),
    "any bytes on the board": Defence(
        "a name that is not UTF-8 can be recorded",
        {"liza.text.undecoded:escape_undecoded": _the_same},
        ("tests/edges/git/test_odd_bytes.py::test_a_conflict_in_oddly_named_files_blocks_no_other_task[latin-1]",),
    ),
    "entries that cannot be changed": Defence(
        "a task whose entry cannot be changed on the board stops no other",
        {"liza.merging.merge:_MAX_UNWRITABLE": lambda was: 1},
        (f"{FAILURES}test_a_task_that_cannot_be_written_stops_no_other",),
    ),
    "texts that cannot be written": Defence(
        "a failure that cannot be written is recorded without its text",
        {"liza.merging.merge_outcomes:_record_or_shorten": _only_with_text},
        (f"{FAILURES}test_a_failure_that_cannot_be_written_is_recorded_without_text",),
    ),
    "commits without blame": Defence(
        "a coder may submit again the commit that an outside cause made red",
        {"liza.model.history_events:is_last_return_cleared": gives(False)},
        (f"{FAILURES}test_a_coder_submits_again_what_an_outside_cause_made_red",),
    ),
    "limit of failed merges": Defence(
        "a task whose merge fails again and again is blocked, and stops nobody else",
        {"liza.model.history_events:count_in_a_row": gives(0)},
        (f"{FAILURES}test_a_task_that_never_merges_stops_alone",),
    ),
    "evidence of a common cause": Defence(
        "what is at fault for every merge blames no task",
        {"liza.git.branch_moves:require_movable": gives(None)},
        (f"{FAILURES}test_what_is_at_fault_for_every_merge_blames_no_task[two-checkouts]",),
    ),
    "no link for a slot": Defence(
        "what tests put in the place of the merger's slot is removed, and never followed",
        {"liza.git.leftovers:clear_slot_path": gives(False)},
        (f"{FAILURES}test_other_files_in_place_of_the_merge_slot_are_removed",),
    ),
    "put back": Defence(
        "integration does not stay on a candidate that no test has passed",
        {"liza.git.branch_moves:move_branch_back": gives(False)},
        (
            f"{FAILURES}test_a_red_candidate_its_tests_published_is_never_merged",
            f"{FAILURES}test_integration_moved_by_red_tests_is_restored_and_reported",
        ),
    ),
    "marked failures": Defence(
        "a merge that fails is marked on its task, so that the next one is merged",
        {"liza.merging.merge_outcomes:record_errors": gives(False)},
        (
            f"{FAILURES}test_a_task_of_unrelated_history_returns_to_its_coder",
            f"{FAILURES}test_a_task_whose_reviewed_commit_vanished_returns_to_its_coder",
            f"{FAILURES}test_merge_overtaken_by_integration_is_set_aside_after_some_rounds",
        ),
    ),
    "genuine batches": Defence(
        "a batch that an agent wrote onto the board and into the refs is not published",
        {"liza.merging.merge_recovery:_is_genuine": gives(True)},
        (f"{BATCHES}test_a_batch_that_an_agent_wrote_is_never_published[tip]",),
    ),
    "foreign servers": Defence(
        "tests that may have asked a server of another checkout say nothing about the candidate",
        {"liza.project.listeners:find_servers": gives(None)},
        (
            f"{FOREIGN}test_a_server_of_the_checkout_makes_a_merge_untested",
            f"{FOREIGN}test_a_server_of_another_slot_makes_a_merge_untested",
            f"{FOREIGN}test_a_server_that_starts_during_the_gate_makes_it_untested",
        ),
    ),
    "retries": Defence(
        "a task is not blamed for a gate that passes when it is repeated",
        {"liza.model.gates:allowed_retries": gives(0)},
        (f"{BATCHES}test_a_gate_that_passes_on_repeat_is_reported_as_flaky",),
    ),
    "files of a person": Defence(
        "changed files of a person hold up the task that changes them, and not its batch",
        {"liza.merging.batches:_Chain._is_blocked": gives(False)},
        (f"{BATCHES}test_a_persons_files_block_only_the_task_that_changes_them",),
    ),
    "alone after a death": Defence(
        "a task whose merger died shares no batch again",
        {"liza.merging.rules.merge_queue:is_alone": gives(False)},
        (f"{BATCHES}test_a_killed_mergers_gates_end_and_its_batch_is_merged[9]",),
    ),
    "genuine landings": Defence(
        "a landing of an epic that an agent wrote onto the board is not taken for one",
        {"liza.merging.epics:_is_genuine": gives(True)},
        (f"{EPICS}test_an_epic_landing_that_an_agent_wrote_is_not_completed[not the epic]",),
    ),
    "recovered landings": Defence(
        "a landing whose merger died is completed or undone",
        {"liza.merging.epics:recover_epics": gives(None)},
        (f"{EPICS}test_an_untested_epic_landing_is_removed_from_integration",),
    ),
    "work in an epic": Defence(
        "a task outside of an epic does not begin before the epic has landed",
        {"liza.model.targets:is_in_base": gives(True)},
        (f"{EPICS}test_a_task_outside_waits_until_the_epic_has_landed",),
    ),
    "loops through epics": Defence(
        "no task waits for itself through an epic",
        {"liza.model.targets:_needed": lambda was: lambda task, epics, open_tasks: iter(task.depends_on)},
        (f"{EPICS}test_tasks_waiting_for_each_other_through_epics_are_refused",),
    ),
    "slots in use": Defence(
        "a slot that a task has is not removed",
        {"liza.git.rules.slot_states:find_user_task": gives(None)},
        (f"{SLOTS}test_nuke_saves_unmerged_work_but_refuses_a_slot_in_use",),
    ),
    "landing tested": Defence(
        "a red integration is not landed",
        {"liza.landing.land:run_landing_gates": _gives_green},
        (f"{LANDING}test_a_red_integration_is_not_landed",),
    ),
    "accepted origin": Defence(
        "nothing is pushed to an address that no person has accepted",
        {"liza.git.rules.push_address:find_change": gives(None)},
        (
            f"{ORIGIN}test_a_push_to_a_new_address_waits_for_acceptance[url]",
            f"{ORIGIN}test_a_push_to_a_new_address_waits_for_acceptance[pushInsteadOf]",
        ),
    ),
    "named remote": Defence(
        "a push moves no remote branch of the person",
        {"liza.git.git_remote:name_remote": lambda was: lambda git, url: (git, "origin")},
        (f"{ORIGIN}test_a_push_moves_no_remote_branch_and_runs_no_hook",),
    ),
    "pushed branches of others": Defence(
        "no commit that others pushed to the branch of a task is overwritten",
        {"liza.landing.rules.push_rules:decide_push": _gives_push},
        (f"{BACKUP}test_a_rebased_branch_replaces_only_its_own_earlier_push",),
    ),
    "begun pushes": Defence(
        "a push that was killed after it reached origin is continued",
        {"liza.git.git_refs:was_tip": gives(False)},
        (f"{BACKUP}test_a_push_whose_end_is_unknown_is_the_crews_own",),
    ),
    "push setting": Defence(
        "an agent cannot have branches pushed",
        {"liza.config.rules.settings:NEEDS_CONFIRMATION": lambda was: tuple(name for name in was if name != "push")},
        (f"{BACKUP}test_a_setting_that_an_agent_wrote_pushes_nothing",),
    ),
    "push repeats": Defence(
        "a push that dies without a record is not started again at once",
        {"liza.landing.rules.remote_failures:RETRY_AFTER": lambda was: 0.0},
        (f"{BACKUP}test_a_supervisor_pushes_and_waits_after_a_failed_push",),
    ),
    "tasks of a request": Defence(
        "a pull request names archived tasks, too",
        {"liza.tasks.archive:find_merged": gives(())},
        (f"{REQUESTS}test_a_pull_request_is_opened_with_verdicts_and_updated",),
    ),
    "request tested": Defence(
        "a red integration is not pushed",
        {"liza.landing.land:run_landing_gates": _gives_green},
        (f"{REQUESTS}test_a_red_integration_is_not_pushed_and_no_hook_runs",),
    ),
    "pushes of others": Defence(
        "a commit that another person pushed is not overwritten",
        {"liza.landing.rules.push_rules:decide_push": _pushes_always},
        (
            f"{REQUESTS}test_a_remote_branch_that_others_pushed_waits_for_a_sync",
            f"{REQUEST_RULES}test_only_what_the_crew_pushed_or_contains_is_replaced",
        ),
    ),
    "texts in a request": Defence(
        "no text of an agent mentions a person or closes an issue",
        {"liza.landing.rules.markdown_table:_ESCAPES": lambda was: {}},
        (f"{REQUEST_RULES}test_the_request_has_tasks_verdicts_gates_and_no_mentions",),
    ),
    "credentials of the remote": Defence(
        "no message has the credentials in the address of the remote",
        {"liza.git.rules.remote_urls:hide_credentials": lambda was: lambda url: url},
        (f"{REQUEST_RULES}test_an_address_is_shown_without_credentials",),
    ),
    "stop by a person": Defence(
        "a crew that a person ended at once is not started again",
        {"liza.supervisor.foreground:_record_stop": gives(None)},
        (f"{PIPES}test_a_third_ctrl_c_ends_everything_at_once",),
    ),
    "crashes of one task": Defence(
        "a task whose sessions crash stops no other",
        {"liza.tasks.rules.picking:crashes_in_a_row": gives(0)},
        (
            f"{CRASHED}test_a_task_that_crashed_comes_after_healthy_tasks",
            "tests/journeys/test_stops.py::test_a_task_whose_sessions_crash_is_blocked_without_stopping_others",
        ),
    ),
    "held tasks": Defence(
        "under hold no race starts two tasks on one file",
        {"liza.tasks.rules.overlap:is_in_work": gives(False)},
        (
            "tests/edges/tasks/test_shared_files.py::test_under_hold_no_race_starts_two_tasks_on_one_file",
            "tests/unit/tasks/test_overlap.py::test_hold_keeps_a_task_until_the_other_is_merged_or_closed",
        ),
    ),
    "begun tasks": Defence(
        "a task that has begun never waits for one with the same files",
        {"liza.tasks.rules.overlap:has_begun": gives(False)},
        ("tests/unit/tasks/test_overlap.py::test_a_coder_takes_a_task_without_shared_files_first",),
    ),
    "working hours": Defence(
        "no session starts outside of the working hours",
        {"liza.model.setting_limits:find_opening": gives(None)},
        (
            "tests/unit/model/test_hours.py::test_sessions_start_when_the_clock_on_the_wall_allows",
            "tests/journeys/test_shared_files.py::test_outside_of_the_work_hours_no_session_starts",
        ),
    ),
    "authors of submissions": Defence(
        "no coder takes submitted work that is back with its author",
        {"liza.tasks.rules.picking:waits_for_author": gives(False)},
        (
            f"{SUBMISSIONS}test_a_coder_of_the_crew_mends_returned_work",
            "tests/unit/tasks/test_submission_rules.py::test_returned_work_waits_for_its_author_or_for_the_crew",
        ),
    ),
    "stacked submissions": Defence(
        "a submitted branch lands only after those that it contains",
        {"liza.merging.rules.merge_queue:refuse_stacked": gives(None)},
        (f"{SUBMISSIONS}test_a_stack_lands_in_one_batch_in_its_order",),
    ),
    "rewritten submissions": Defence(
        "a branch that contains an earlier state of a rewritten one is held",
        {"liza.tasks.rules.submissions:_hold": lambda was: lambda upper, lower, earlier: upper},
        (
            f"{SUBMISSIONS}test_the_upper_branch_waits_for_a_returned_one",
            "tests/unit/tasks/test_submission_rules.py::test_a_rewritten_branch_holds_the_upper_one",
        ),
    ),
    "permission of strangers": Defence(
        "nothing of a stranger's commit runs before a person permits it",
        {"liza.tasks.rules.strangers:lacks_permission": gives(False)},
        (
            f"{STRANGERS}test_nothing_runs_before_the_permission_and_nothing_leaves_after",
            f"{STRANGERS}test_a_permission_ends_with_the_next_push",
        ),
    ),
    "boxes of strangers": Defence(
        "what a stranger wrote is tested without network, and in a box although the crew has none",
        {"liza.project.foreign_runs:restrict": _the_same},
        (f"{STRANGERS}test_nothing_runs_before_the_permission_and_nothing_leaves_after",),
    ),
    "logins of strangers": Defence(
        "the tests of a stranger have no variable that may be a login",
        {"liza.project.foreign_runs:select_variables": _the_same},
        (f"{STRANGERS}test_nothing_runs_before_the_permission_and_nothing_leaves_after",),
    ),
    "filters of strangers": Defence(
        "no filter of git runs for what a stranger wrote",
        {"liza.git.git_config:switch_filters_off": gives(())},
        (f"{STRANGERS}test_nothing_runs_before_the_permission_and_nothing_leaves_after",),
    ),
    "tools of reviewers": Defence(
        "a program that can use tools does not review what a stranger wrote",
        {"liza.supervisor.foreign_review:find_mode": lambda was: lambda preset: preset.headless},
        (f"{STRANGERS}test_a_program_without_the_switch_does_not_review_a_stranger",),
    ),
    "files of strangers": Defence(
        "a review of a stranger's work has the instructions of the project",
        {"liza.tasks.shared_code:choose_review_checkout": lambda was: lambda crew, task: task.review_commit},
        (f"{STRANGERS}test_a_program_without_tools_gives_a_person_its_opinion",),
    ),
    "branches on strangers": Defence(
        "a branch that contains a stranger's commit is a stranger's",
        {"liza.tasks.outside_work:has_foreign": gives(False)},
        (
            f"{STRANGERS}test_a_branch_on_top_of_a_stranger_is_a_strangers",
            f"{STRANGERS}test_a_program_cannot_make_a_strangers_work_its_own",
        ),
    ),
    "killed servers": Defence(
        "the claim of a program whose server was killed is handed off without a crew",
        {"liza.tasks.bound_claim:leave": gives(())},
        ("tests/journeys/test_mcp_returns.py::test_a_killed_server_hands_off_without_a_crew",),
    ),
    "uncommitted files": Defence(
        "what a worktree has not committed is not taken for submitted",
        {"liza.git.other_worktrees:list_uncommitted": gives(())},
        ("tests/journeys/test_submissions_refused.py::test_a_filter_of_the_worktree_runs_no_program",),
    ),
    "sleeping sessions": Defence(
        "a session that sleeps and looks again and again is hung",
        {"liza.supervisor.rules.session_facts:BUSY_SHARE": lambda was: 0.0},
        (f"{WATCHING}test_a_silent_session_using_cpu_is_active",),
    ),
    "stopped processes": Defence(
        "a supervisor or `liza up` that is stopped does not look idle",
        {"liza.recovery.stopped_processes:_is_stopped": gives(False)},
        (
            "tests/journeys/test_stopped_processes.py::"
            "test_status_names_stopped_processes_and_one_command_that_continues_them",
        ),
    ),
    "healing": Defence(
        "a supervisor that was killed is started again",
        {"liza.supervisor.healing:Healer.look": _heals_nothing},
        (f"{HEALED}test_up_restarts_a_killed_supervisor_and_finishes_its_task",),
    ),
    "supervisors without their up": Defence(
        "a killed `liza up` takes no session along, and its crew is still watched over",
        {"liza.supervisor.main:_go_on_without_up": gives(None)},
        (f"{HEALED}test_a_killed_up_ends_no_session_and_its_crew_continues",),
    ),
    "healing after down": Defence(
        "no supervisor is started again after `liza down`",
        {"liza.supervisor.healing:Keeper._last_down": gives(None)},
        (f"{HEALED}test_after_down_no_killed_supervisor_is_started_again",),
    ),
    "restarts of supervisors": Defence(
        "a supervisor that is killed again and again is told of, and not started for ever",
        {"liza.supervisor.rules.healing_rules:MAX_RESTARTS": lambda was: 99},
        (f"{HEALING}test_an_agent_is_healed_by_its_facts",),
    ),
    "agents with a supervisor": Defence(
        "an agent is left to its own supervisor",
        {"liza.supervisor.rules.healing_rules:decide_healing": _as_unsupervised},
        (
            f"{HEALING}test_an_agent_is_healed_by_its_facts",
            f"{HEALING}test_no_supervised_agent_or_session_with_work_is_ended",
        ),
    ),
    "grace without a supervisor": Defence(
        "a session that has closed its work has time to exit",
        {"liza.supervisor.rules.healing_rules:decide_healing": _without_grace},
        (f"{HEALING}test_an_agent_is_healed_by_its_facts",),
    ),
    "hand-offs without end": Defence(
        "a task is not handed over for ever",
        {"liza.tasks.rules.picking:max_tries": gives(99)},
        (f"{WORKING}test_a_hand_off_after_a_commit_is_no_try",),
    ),
    "planning at a signal": Defence(
        "a signal of a person and a budget that is used up stop planners, too",
        {"liza.supervisor.rules.decide:_may_plan_at_checkpoint": _plans_at_any_signal},
        (f"{DECIDING}test_at_a_breaker_checkpoint_a_planner_wakes_only_for_trips",),
    ),
    "repeated reports": Defence(
        "one agent cannot stop the crew by repeating a report",
        {"liza.breaker.rules.breaker_patterns:normalize_text": _counts_repeated_texts},
        (f"{BREAKER}test_a_pattern_trips_at_its_threshold_and_not_below[one run that repeats itself]",),
    ),
    "session in a slot": Defence(
        "a slot is not removed while a session may still write into it",
        {"liza.programs.liveness:is_session_living": gives(False)},
        (f"{SLOTS}test_a_claim_after_slot_removal_has_its_work_again",),
    ),
    "time of a preference": Defence(
        "a task that is kept for one agent goes to others after a while",
        {"liza.tasks.rules.work_record:PREFERENCE_SECONDS": lambda was: 1_000_000},
        (f"{ROUTING}test_task_is_reserved_for_the_best_coder_for_a_time",),
    ),
    "preference for the present": Defence(
        "no task waits for an agent that is absent, busy or may not take it",
        {"liza.tasks.rules.picking:_may_take": gives(True)},
        (f"{ROUTING}test_no_task_waits_for_a_coder_who_is_not_better",),
    ),
    "red branch": Defence(
        "a cause outside of all tasks is charged to one task at most",
        {"liza.merging.rules.merge_queue:last_blamed": gives(None)},
        (f"{FAILURES}test_an_outside_cause_is_charged_to_one_task_at_most",),
    ),
    "planning rounds": Defence(
        "planners do not add tasks for ever without a person",
        {"liza.tasks.rules.planning:checkpoint_reason": gives(None)},
        (f"{PLANNING}test_planners_that_add_tasks_three_times_wait_for_a_person",),
    ),
    "returned to the present": Defence(
        "a returned task waits for no coder that has other work",
        {"liza.tasks.rules.picking:_waits_for_coder": gives(True)},
        (f"{CLAIMING}test_a_returned_task_waits_for_no_coder_with_other_work",),
    ),
    "archived records": Defence(
        "what an agent did still counts after its tasks were archived",
        {"liza.tasks.evidence:MAX_ARCHIVED": lambda was: 0},
        (f"{RECORDS}test_a_task_is_kept_for_the_coder_knowing_its_scope",),
    ),
    "merge rounds": Defence(
        "a merger gives up a task that integration runs away from",
        {"liza.merging.rules.merge_rules:MAX_CANDIDATES": lambda was: 9},
        (f"{FAILURES}test_merge_overtaken_by_integration_is_set_aside_after_some_rounds",),
    ),
    "moved refs": Defence(
        "refs that tests move are reported by name",
        {"liza.git.git_refs:refs_moved_by_tests": gives(())},
        (f"{FAILURES}test_tests_publishing_their_green_candidate_merge_it_once",),
    ),
    "review refs": Defence(
        "the commit under review is not collected",
        {"liza.git.git_refs:write_review_ref": gives(None)},
        (f"{FAILURES}test_a_commit_under_review_survives_an_amend_and_gc",),
    ),
    "merge base": Defence(
        "work that can never be merged is refused when it is submitted",
        {"liza.git.git_refs:find_merge_base": gives("")},
        (f"{FAILURES}test_submitting_unrelated_history_is_refused_with_the_next_step",),
    ),
    "clean slot": Defence(
        "what a red candidate left does not make the next one green",
        {"liza.git.slot_setup:remove_leftovers": gives(None)},
        (
            f"{FAILURES}test_files_from_a_red_candidate_never_make_others_green",
            f"{LEFTOVERS}test_what_tests_left_does_not_make_the_next_gate_green[1]",
        ),
    ),
    "set-up for its inputs": Defence(
        "a dependency that a candidate drops is missing when it is tested",
        {"liza.git.slot_setup:digest_inputs": gives("unchanged")},
        (f"{LEFTOVERS}test_a_dependency_dropped_by_a_candidate_is_missing_in_tests",),
    ),
    "hidden files of the set-up": Defence(
        "what the set-up left does not come into the work of an agent",
        {"liza.git.hiding:write_excludes": gives(None)},
        (
            f"{LEFTOVERS}test_git_in_sessions_does_not_add_what_set_ups_left",
            f"{UNTRACKED}test_a_virtual_environment_of_the_set_up_is_never_merged",
        ),
    ),
    "variables that stop the tests": Defence(
        "tests that are red where CI is set go on without it",
        {"liza.project.baseline:ProofPlan": _never_drops_variables},
        (f"{VARIABLES}test_tests_that_are_red_with_ci_go_on_without_it",),
    ),
    "names of variables": Defence(
        "no setting redirects git or the home directory of the tests",
        {"liza.model.gates:find_refused": gives(())},
        (f"{VARIABLES}test_a_variable_that_would_redirect_git_is_refused",),
    ),
    "no environments submitted": Defence(
        "a virtual environment in a commit is not merged",
        {"liza.tasks.rules.coding:find_no_work": gives(None)},
        (f"{UNTRACKED}test_the_hint_of_a_submission_with_an_environment_works",),
    ),
    "submodules of the slot": Defence(
        "what tests changed in a submodule makes no later candidate green",
        {"liza.git.slot_setup:empty_submodules": gives(None)},
        (f"{FAILURES}test_candidates_get_submodules_as_committed_despite_earlier_green_tests",),
    ),
    "stuck slots": Defence(
        "a slot that cannot be emptied stops no merge",
        {
            "liza.git.leftovers:loosen_permissions": gives(False),
            "liza.git.leftovers:is_stuck": gives(False),
        },
        (f"{FAILURES}test_read_only_directories_of_tests_are_removed_before_merges",),
    ),
    "move to the archive": Defence(
        "a crash in a move to the archive leaves every task in one place",
        {"liza.board.file_store.archive_files:write_file": gives(None)},
        (f"{ARCHIVE}test_a_killed_move_leaves_every_task_in_exactly_one_file",),
    ),
    "the board before the archive": Defence(
        "a task that a restored board has again is counted once",
        {"liza.board.file_store.archive_files:ArchiveFiles.count_archived": _counts_all},
        (f"{ARCHIVE}test_a_task_restored_from_the_archive_is_counted_once",),
    ),
    "archived ids": Defence(
        "the id of an archived task is not used again, and a dependency on it is known",
        {"liza.tasks.archive:find_outcomes": gives({})},
        (
            f"{ARCHIVE}test_the_id_of_an_archived_task_cannot_be_used_again",
            f"{ARCHIVE}test_archived_merged_dependencies_are_met_but_dropped_ones_are_not",
        ),
    ),
    "archived since": Defence(
        "an edit of an old copy of the board brings no archived task back",
        {"liza.board.file_store.outside_edits:merge_edit": _without_archived},
        (f"{ARCHIVE}test_editing_an_old_copy_does_not_restore_an_archived_task",),
    ),
    "good version of an archive file": Defence(
        "an archive file that lost entries is never recorded over its good version",
        {"liza.board.file_store.archive_files:ArchiveFiles.find_archive_damage": gives(None)},
        (f"{ARCHIVE}test_lost_entries_are_reported_never_recorded_and_restored[empty]",),
    ),
    "ids in a damaged archive": Defence(
        "no id is used again that may be that of a task in a damaged archive file",
        {"liza.tasks.archive:refuse_damaged": gives(None)},
        (f"{ARCHIVE}test_lost_entries_are_reported_never_recorded_and_restored[empty]",),
    ),
    "unreadable outcome": Defence(
        "the outcome of an archived task that cannot be read is not guessed",
        {"liza.tasks.archive:_known_outcome": gives("ABANDONED")},
        (f"{ARCHIVE}test_an_unreadable_archived_dependency_is_not_guessed",),
    ),
    "archive directory": Defence(
        "no task moves through a link at the directory of the archive",
        {"liza.board.file_store.archive_files:refuse_link": gives(None)},
        (f"{ARCHIVE}test_no_task_moves_through_a_link_at_the_directory",),
    ),
    "incomplete archive": Defence(
        "a task of a missing or unreadable archive file is not called unknown without the reason",
        {"liza.board.file_store.archive_files:ArchiveFiles.find_archive_damage": gives(None)},
        (f"{ARCHIVE}test_a_task_of_an_unreadable_archive_file_is_not_unknown",),
    ),
    "open runs": Defence(
        "a task stays on the board until the session that worked on it is concluded",
        {"liza.tasks.archive:_find_open_runs": gives(frozenset())},
        (f"{ARCHIVE}test_a_task_stays_on_the_board_until_its_session_ends",),
    ),
    "links below .liza": Defence(
        "gc deletes nothing behind a symbolic link",
        {"liza.recovery.gc:_entries": _behind_links},
        (f"{GARBAGE}test_what_is_behind_a_link_is_neither_found_nor_changed",),
    ),
    "logs in use": Defence(
        "a log that a living process has open is not compressed",
        {"liza.system.processes:find_open_files": gives(frozenset())},
        (f"{GARBAGE}test_gc_keeps_files_that_are_new_used_or_needed",),
    ),
    # ── the worker API ──
    "each turn once": Defence(
        "a turn that a runtime reports again is not counted again",
        {"liza.usage.telemetry_log:_event_key": _always_new},
        (
            f"{TELEMETRY}test_a_turn_is_counted_once_even_after_a_restart",
            f"{TELEMETRY}test_a_turn_sent_by_many_processes_is_counted_once",
        ),
    ),
    "late events": Defence(
        "a late or repeated event changes nothing",
        {"liza.programs.rules.lifecycle_rules:judge_event": _any_event},
        (f"{LIFECYCLE}test_a_late_event_is_answered_and_changes_nothing",),
    ),
    "lock of a turn": Defence(
        "hooks and reports of a runtime do not overwrite each other's record",
        {"liza.api.lifecycle:_lock_turn": _no_lock_of_a_turn},
        (f"{LIFECYCLE}test_hooks_and_reports_take_the_same_lock_of_the_turn",),
    ),
    "prompts after a crash": Defence(
        "a prompt that was recorded and perhaps not sent is sent again",
        {"liza.briefs.rules.message_rules:list_unreceived": gives(())},
        (f"{STREAM}test_a_prompt_recorded_before_a_kill_is_delivered_afterwards",),
    ),
    "prompts in their time": Defence(
        "a prompt that waits for the end of a turn is not sent during it",
        {"liza.briefs.rules.message_rules:select_for_stream": _all_at_once},
        (f"{STREAM}test_a_stream_delivers_by_priority_and_never_twice_after_reconnecting",),
    ),
    "right token": Defence(
        "only the token of a run gives its identity",
        {"liza.api.identity:_is_digest_of": gives(True)},
        (f"{IDENTITY}test_a_token_that_is_none_is_refused",),
    ),
    "full windows": Defence(
        "sessions whose context window is full again and again use up their tries",
        {"liza.tasks.rules.claims:_last_ends": gives([])},
        (f"{WINDOW}test_two_full_windows_in_a_row_are_a_try",),
    ),
    # ── the server of the worker API ──
    "years of times": Defence(
        "a time that some time zone cannot show is refused, and is no bug",
        {"liza.programs.rules.lifecycle_rules:check_year": gives(None)},
        ("tests/unit/programs/test_lifecycle_rules.py::test_a_time_that_no_time_zone_can_show_is_refused",),
    ),
    "alarms of unread messages": Defence(
        "a thousand unread messages are one alarm, and not a thousand",
        {"liza.briefs.rules.message_rules:_seconds_to_next_alarm": gives(0.0)},
        ("tests/unit/briefs/test_delivering.py::test_many_messages_enter_the_brief_together_with_one_alarm",),
    ),
    "web pages": Defence(
        "a page in the person's browser cannot call the worker API",
        {"liza.api.calls:refuse_web_pages": gives(None)},
        (f"{SERVER}test_a_request_from_a_web_page_is_refused_even_authenticated",),
    ),
    "sessions at the socket": Defence(
        "a process of a session is no person at the socket of the worker API",
        {"liza.system.peers:PeerSession.is_outside_sessions": gives(True)},
        (f"{SERVER}test_a_session_but_no_person_needs_a_socket_token",),
    ),
    "sessions of tokens": Defence(
        "a session that writes the digest of a token itself does not become another run at the socket",
        {"liza.system.peers:PeerSession.find_run": gives(None)},
        (f"{SERVER}test_a_session_cannot_become_another_run_by_a_token_digest",),
    ),
    "sessions over TCP": Defence(
        "a process of a session is found at the other end of a TCP connection",
        {"liza.system.peers:TcpPeerSession.find_run": gives(None)},
        (f"{TCP_PEERS}test_a_process_below_a_session_belongs_to_it[session]",),
    ),
    "closed connections": Defence(
        "a connection whose process has gone is not taken for that of a person",
        {"liza.system.peers:TcpPeerSession._find_inode": gives(None)},
        (f"{TCP_PEERS}test_a_connection_that_its_process_closed_is_refused[closed]",),
    ),
    "links of notices": Defence(
        "a password in the address of the page is neither accepted nor shown",
        {"liza.model.setting_limits:is_link": gives(True)},
        ("tests/unit/alarms/test_notice_rules.py::test_a_password_in_a_link_is_never_shown",),
    ),
    "place of an account record": Defence(
        "no session gets the secret of another account by a file that it writes",
        {"liza.usage.run_account:run_account_path": _among_the_files_of_the_run},
        (
            f"{CREDENTIALS}test_no_file_of_a_session_decides_whose_secret_it_gets[script]",
            f"{CREDENTIALS}test_no_file_of_a_session_decides_whose_secret_it_gets[claude]",
        ),
    ),
    "accounts on record": Defence(
        "a worker whose account is not on record is told so, and does not go on with another login",
        {"liza.usage.run_account:read_run_account": _if_it_is_there},
        (
            f"{CREDENTIALS}test_a_worker_with_an_unrecorded_account_gets_no_other",
            f"{ACCOUNTS}test_a_session_with_an_unrecorded_account_is_not_continued",
        ),
    ),
    "accounts of an earlier crew": Defence(
        "a session gets no account that was recorded for a run of the same id",
        {"liza.usage.run_account:forget_run_account": gives(None)},
        (f"{ACCOUNTS}test_a_session_never_gets_the_account_of_an_earlier_crew",),
    ),
    "shells with the name of an agent": Defence(
        "the shell and the crew of a person who set the name of an agent are not ended as orphans",
        {"liza.system.processes:iter_agent_pids": _by_the_name_of_the_agent},
        (
            "tests/edges/programs/test_programs_rundir.py::"
            "test_an_agents_processes_are_found_but_no_equally_named_shell",
        ),
    ),
    "shared backoff of the server": Defence(
        "the supervisors of a crew do not start in turns a server that cannot start",
        {"liza.api.api_server:seconds_to_retry": gives(0.0)},
        (f"{STARTS}test_all_supervisors_wait_after_a_failed_server_start",),
    ),
    "runs of tokens": Defence(
        "the token of a run opens no other run",
        {"liza.api.calls:require_own_run": gives(None)},
        (f"{SERVER}test_a_token_opens_no_other_run",),
    ),
    "crew of a server": Defence(
        "a server that its supervisors left ends",
        {"liza.api.api_server:has_supervisor": gives(True)},
        (f"{SERVED}test_the_server_goes_with_its_crew[kill -9 of everything but the server]",),
    ),
    # ── programs started by hand ──
    "supervisors beside a person": Defence(
        "no program is started by hand where a supervisor starts the sessions",
        {"liza.supervisor.program_run:holding_agent": _holds_nothing},
        (f"{BY_HAND}test_a_worktree_is_refused_to_all_but_its_present_agent",),
    ),
    "abandoned contexts": Defence(
        "the context of a killed program does not stay in the person's checkout",
        {"liza.briefs.checkout_brief:remove_abandoned": gives(())},
        (f"{BY_HAND}test_files_that_a_killed_run_left_in_checkouts_are_removed[command0]",),
    ),
    "one writer of a checkout": Defence(
        "the recovery of one command does not remove the context that another one is writing",
        {"liza.briefs.checkout_brief:_changing_checkout": gives(nullcontext())},
        (f"{CHECKOUT}test_while_one_command_writes_the_file_another_one_waits",),
    ),
    "sparse checkouts": Defence(
        "a file that a person's sparse checkout leaves out is not deleted for git",
        {"liza.git.hiding:is_left_out": gives(False)},
        (f"{CHECKOUT}test_a_file_that_could_not_be_restored_is_not_written[sparse]",),
    ),
    "secrets of notices": Defence(
        "a bug report has no credential of the addresses and the command of the notices",
        {"liza.recovery.bug_report:_private_texts": gives(())},
        ("tests/journeys/test_bug_report.py::test_a_report_has_what_a_developer_needs_and_no_secret",),
    ),
    "loops of reports": Defence(
        "an agent that reports without an end neither fills the board nor wakes planners without an end",
        {"liza.breaker.rules.board_reports:_check_count": gives(None)},
        ("tests/unit/breaker/test_board_reports.py::test_runs_but_not_persons_have_a_limit_of_reports",),
    ),
    "long reports": Defence(
        "a report does not make each verb of the crew write megabytes",
        {"liza.breaker.rules.board_reports:_check_size": gives(None)},
        ("tests/unit/breaker/test_board_reports.py::test_the_texts_of_an_anomaly_are_bounded",),
    ),
    "failed checks of strangers": Defence(
        "a run that does not hold a task writes nothing into its hand-off",
        {"liza.tasks.rules.coding:is_held_by": gives(True)},
        (f"{CLAIMING}test_a_failed_check_is_noted_once_by_the_holding_run",),
    ),
    "extensions shortened": Defence(
        "a renewal does not shorten an extended lease of a review",
        {"liza.tasks.rules.leases:_later": _without_extension},
        (f"{CLAIMING}test_a_review_is_extended_as_a_task_is",),
    ),
    "limits of settings": Defence(
        "a number that no clock can add stops no claim and no supervisor",
        {"liza.model.setting_limits:find_excesses": gives(())},
        ("tests/journeys/test_setting_limits.py::test_settings_no_clock_can_add_are_violations_and_stop_nothing",),
    ),
    "copied packages": Defence(
        "an edit of a dependency in a slot does not reach the person's environment",
        {"liza.git.rules.slot_states:COPY_VARIABLES": lambda was: {}},
        (f"{PACKAGES}test_set_up_and_tests_of_each_slot_copy_packages",),
    ),
    "records of packages": Defence(
        "the packages that tests use are as they were installed",
        {"liza.project.installed_packages:find_changed_files": gives(())},
        (
            f"{PACKAGES}test_a_dependency_edited_in_the_merge_slot_is_installed_again",
            f"{PACKAGES}test_a_dependency_modified_by_the_set_up_waits_for_permission",
            f"{PACKAGES}test_an_edit_in_the_activated_environment_blames_no_task",
        ),
    ),
    "shared environments": Defence(
        "an agent installs no packages into an environment that others use",
        {"liza.guards.rules.tool_calls:ScriptReader._has_own_environment": gives(True)},
        ("tests/unit/guards/test_guard_corpus.py::test_dangerous_commands_are_denied_by_the_rule_for_them",),
    ),
    "list of packages": Defence(
        "packages that changed in the activated environment are reported, and the tests are proved again",
        {"liza.project.installed_packages:list_packages": gives(())},
        (f"{PACKAGES}test_new_packages_in_the_activated_environment_are_reported_and_proved",),
    ),
    "open files of a lock": Defence(
        "a process that only opened a lock file gets no signal",
        {"liza.system.proc_stat:holds_flock": gives(True)},
        ("tests/edges/programs/test_down_targets.py::test_opening_a_lock_file_does_not_mean_holding_its_lock",),
    ),
    "first use of a type": Defence(
        "threads that decode a type for the first time at once do not end the process",
        {"liza.model.value_classes:decodable": _the_same},
        ("tests/edges/house/test_decoding_threads.py::test_threads_can_decode_a_new_type_at_once",),
    ),
    # ── what a test says of a commit ──
    "tracked files of a candidate": Defence(
        "a candidate whose tests change what they test is red",
        {"liza.project.rules.tree_changes:judge_changes": gives(())},
        (
            f"{TESTED}test_a_candidate_that_its_own_tests_change_is_red"
            "[rm code.py-the tests change code.py (it is gone)]",
            f"{TESTED}test_files_that_tests_write_on_every_commit_wait_for_permission",
        ),
    ),
    "full checkout": Defence(
        "a candidate is tested with all its files",
        {"liza.git.local_files:make_full": gives(None)},
        (f"{TESTED}test_a_candidate_is_tested_with_files_the_checkout_left_out",),
    ),
    "gates of a result": Defence(
        "a result counts only for the gates that ran",
        {"liza.model.gates:gates_digest": gives("")},
        (f"{TESTED}test_a_result_counts_only_for_the_gates_that_ran",),
    ),
    # ── what a box shows ──
    "sockets in sight": Defence(
        "a box hides the sockets that it would show",
        {"liza.box.surroundings:_list_sockets": gives(())},
        (f"{BOX}test_each_action_from_inside_is_done_or_refused_as_expected[ordinary]",),
    ),
    "tokens of npm": Defence(
        "a box shows the registries of npm without tokens",
        {"liza.box.slot_directories:_without_secrets": _the_same},
        (f"{BOX}test_each_action_from_inside_is_done_or_refused_as_expected[ordinary]",),
    ),
    "links of an earlier box": Defence(
        "what a box left in its /tmp is gone before the next session",
        {"liza.box.slot_directories:remove_tree": gives(None)},
        (f"{BOX}test_no_box_follows_links_left_in_its_private_directories[ordinary]",),
    ),
    # ── sessions over ACP ──
    "prompts shown read": Defence(
        "a message is acknowledged only when the program showed that it works on it",
        {"liza.api.acp.session_driver:SessionDriver._end_turn": _read_when_ended},
        (f"{SIDECAR}test_a_message_in_a_failed_turn_waits_for_another_session",),
    ),
    "interrupted prompts": Defence(
        "a message whose turn was interrupted unread is given again",
        {"liza.api.acp.turns:PromptQueue.give_back": gives(None)},
        (f"{SIDECAR}test_a_message_interrupted_before_any_answer_is_given_again",),
    ),
    "groups of programs": Defence(
        "a program that ignores the end of its input leaves nothing behind",
        {"liza.api.acp.agent_process:AgentProcess.end": _only_program},
        (f"{SIDECAR}test_sigterm_cancels_the_turn_closes_stdin_and_leaves_no_program[switches1]",),
    ),
    "order of the end": Defence(
        "an error of the sidecar ends its program too",
        {"liza.api.acp.session_driver:SessionDriver.run": _without_order},
        (f"{SIDECAR}test_an_inbox_error_ends_the_program_and_loses_no_message",),
    ),
    "usage of a session": Defence(
        "usage that a program sums over its session is counted once",
        {"liza.api.acp.rules:share_of_turn": _as_reported},
        (f"{SIDECAR}test_the_usage_of_each_turn_is_counted_once[session-wanted1]",),
    ),
}
