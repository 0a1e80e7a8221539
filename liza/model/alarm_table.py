"""Alarms, their kinds as `status --json` names them, and what each kind asks of a person. Pure."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Any, Self

import msgspec

from liza.model.value_classes import Value, asdict


class AlarmClass(StrEnum):
    """What an alarm asks of a person: an answer in words, one command, or nothing because the work goes on."""

    ANSWER = "answer"
    STEP = "step"
    NEWS = "news"


ANSWER, STEP, NEWS = AlarmClass


class _Kind(StrEnum):
    """A kind with its class. A kind without one cannot be declared."""

    alarm_class: AlarmClass
    sentence: str
    command: str

    def __new__(cls, name: str, alarm_class: AlarmClass, sentence: str = "", command: str = "") -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.alarm_class, kind.sentence, kind.command = name, alarm_class, sentence, command
        return kind


class AlarmKind(_Kind):
    """Kind of an alarm that lasts: what it asks of a person, its sentence and its command.

    An error that `liza watch` reports has its error code instead.
    """

    DAMAGED = "damaged", STEP, "{reason}", "{step}"
    DISK_FULL = "disk_full", STEP, "{reason}; sessions and merges wait for it", "{step}"
    MOVED = "moved", STEP, "{reason}", "liza down"
    PINS_GONE = "pins_gone", STEP, ".liza/pins.json is gone, and with it which settings were confirmed", "{step}"
    PINS_DAMAGED = "pins_damaged", STEP, "{reason}", "{step}"
    ARCHIVE_DAMAGED = (
        "archive_damaged",
        STEP,
        ".liza/{file}: {fault}; its tasks are not shown, and no task can be added",
        "{step}",
    )
    PLACE_BROKEN = "place_broken", STEP, "{reason}: no task can be merged", "{step}"
    BRANCH_IN_THE_WAY = "branch_in_the_way", STEP, "{reason}: no new task can be claimed", "{step}"
    WORKTREES_REPLACED = "worktrees_replaced", STEP, "{reason}", "{step} && liza doctor --fix"
    WORKTREE_GONE = "worktree_gone", STEP, "{names} {verb} not in {directory}", "liza doctor --fix"
    HISTORY_CONFLICT = "history_conflict", STEP, "{reason}", "{step}"
    EVIDENCE = "evidence", STEP, "landed commits have no statement yet: {reason}", "{step}"
    BOARD_BACK = "board_back", NEWS, "the board can be read again, at revision {revision}", "liza status"
    INVALID_STATE = "invalid_state", STEP, "{reason}", "liza validate"
    UNCONFINED = "unconfined", NEWS, "agents {result}: {cause}", "{step}"
    UNKNOWN_CONFIG = "unknown_config", NEWS, "{reason}", "liza edit"
    UNUSABLE_SETTING = (
        "unusable_setting",
        NEWS,
        "config.{about} is {number}, expected {expected}; the default is in effect",
        "liza config set {about} --default",
    )
    UNCONFIRMED_SETTING = "unconfirmed_setting", STEP, "{reason}", "{step}"
    INTEGRATION_MOVED = "integration_moved", STEP, "{reason}", "{step}"
    OVERWRITTEN = "overwritten", NEWS, "{reason}", "liza history -p"
    EXTERNAL_EDIT = "external_edit", NEWS, "{reason}", "liza history -p"
    SUPERVISOR_LEFT = "supervisor_left", STEP, "the supervisor of {about} left at {time}: {reason}", "{step}"
    MODEL_REFUSED = "model_refused", STEP, "{reason}; {agents} cannot work", "{step}"
    SUPERVISOR_GONE = (
        "supervisor_gone",
        STEP,
        "{about} holds {work}, and its supervisor is gone: no process continues that work",
        "",
    )
    HOST_SILENT = "host_silent", STEP, "the host {about} was last heard at {seen}: {held}; {takeover}", "{step}"
    SUPERVISOR_STOPPED = (
        "supervisor_stopped",
        STEP,
        "the supervisor of {about} (process {pid}) is stopped: its session is not watched, nothing new starts",
        "kill -CONT {pids}",
    )
    UP_STOPPED = (
        "up_stopped",
        NEWS,
        "`liza up` (process {keepers}) is stopped: it prints nothing and starts no killed supervisor again{rest}",
        "kill -CONT {pids}",
    )
    NO_PROGRESS = "no_progress", NEWS, "{about} makes {reason}", "liza logs {about}"
    PROGRAM_CRASHED = "program_crashed", NEWS, "{text}: {reason}", "liza logs {agent}"
    BUDGET_BLIND = "budget_blind", STEP, "{reason}", "liza edit"
    BUDGET_USED = "budget_used", STEP, "the crew is paused: {reason}", "{step}"
    GUARD_DENIALS = (
        "guard_denials",
        NEWS,
        "the guard rule {rule} denied {about} a tool {count} times; the last: {last}",
        "liza logs {about}",
    )
    GUARDS_UNTRUSTED = "guards_untrusted", STEP, "{reason}", "{step}"
    HELD_UP = "held_up", STEP, "{about}: {row} sessions in a row were held up; the last: {last}", "liza doctor"
    QUESTION = "question", ANSWER, "{run} shows {question}", "liza attach {about}"
    EXPIRED_LEASE = "expired_lease", STEP, "{about}: the lease of {run} ran out at {time}; {why}", "{step}"
    EXPIRED_REVIEW_LEASE = (
        "expired_review_lease",
        STEP,
        "{about}: the review lease of {run} ran out at {time}",
        "liza logs {agent}",
    )
    EXPIRED_PLANNING_LEASE = (
        "expired_planning_lease",
        STEP,
        "the planning lease of {run} ran out at {time}",
        "liza logs {agent}",
    )
    PLANNING_STALLED = "planning_stalled", STEP, "{reason}", "{step}"
    PLANNING_ROUNDS = "planning_rounds", STEP, "{reason}", "liza resume"
    PLANNERS_CHECKPOINT = (
        "planners_checkpoint",
        ANSWER,
        "{agent} asks you to look before anything new starts: {reason}",
        "liza resume",
    )
    IMMEDIATE_DISCOVERY = (
        "immediate_discovery",
        ANSWER,
        '{about} (by {by}) cannot wait: {text} (if it can: liza report resolve {about} "why")',
        "liza task add --from-discovery {about} --id fix-{about}",
    )
    STALE_DRAFT = "stale_draft", STEP, "{about} is kept a draft{since}{lacks}", "{step}"
    INCOMPLETE_DRAFT = "incomplete_draft", STEP, "{text}", "{step}"
    NEVER_CLAIMABLE = "never_claimable", STEP, "{about} can never be claimed: it depends on {cause}", "{step}"
    NEEDS_ANOTHER_CODER = "needs_another_coder", STEP, "{text}", ""
    NEEDS_REVIEWER = "needs_reviewer", STEP, "{names} for a review, and no reviewer runs", ""
    NEEDS_VERDICT = (
        "needs_verdict",
        ANSWER,
        "{about} waits for your verdict{why}; its changes: liza diff {about}",
        "{step}",
    )
    APPROACHING_LIMITS = "approaching_limits", NEWS, "{about} {limit}", "liza task show {about}"
    BLOCKED = "blocked", ANSWER, "{about} is blocked ({reason}) and asks: {question}", 'liza answer {about} "…"'
    HYPOTHESIS_EXHAUSTION = (
        "hypothesis_exhaustion",
        ANSWER,
        "{about}: {coders} failed at it; it needs another plan, yours or a planner's",
        'liza answer {about} "…"',
    )
    ORPHANED_REJECTED = "orphaned_rejected", STEP, "{about} waits for {coder}, which has to fix it and is off", ""
    ORPHANED_INTEGRATION_FAILED = (
        "orphaned_integration_failed",
        STEP,
        "{about} does not merge: {reason}; {coder}, which has to fix it, is off",
        "",
    )
    NEEDS_PERMISSION = "needs_permission", ANSWER, "{about} is approved and not tested: {reason}", "{step}"
    BACK_WITH_AUTHOR = "back_with_author", STEP, "{about} needs another commit ({reason}); {where}", "{step}"
    BRANCH_MOVED = "branch_moved", STEP, "{branch} is at {tip}, and {about} was submitted at {commit}{came}", "{step}"
    BRANCH_GONE = "branch_gone", STEP, "{branch} of {about} is gone; its commit {commit} is kept{came}", "{step}"
    INTEGRATION_FAILED = "integration_failed", NEWS, "{about} does not merge: {reason}", "{step}"
    WAITING_FOR_FILES = (
        "waiting_for_files",
        STEP,
        "{about} is tested and waits for files of your checkout: {files}",
        "liza merge {about}",
    )
    MERGE_SET_ASIDE = "merge_set_aside", STEP, "{reason}{next_try}", "{step}"
    EPIC_NOT_LANDED = (
        "epic_not_landed",
        STEP,
        "{about} could not be merged with integration ({times}): {reason}{next_try}",
        "{step}",
    )
    EPIC_BRANCH = "epic_branch", STEP, "{reason}: none of its tasks is merged", "{step}"
    MERGE_HELD = "merge_held", STEP, "{about} is approved and held: {reason}", "liza queue release {about}"
    MERGE_LOCK_HELD = (
        "merge_lock_held",
        STEP,
        "nothing is merged: process {pid} holds {file}, and is not Liza: {program}",
        "kill {pid}",
    )
    PUSH_FAILED = "push_failed", NEWS, "no backup of branches of tasks at origin since {time}: {reason}", "{step}"
    UNEXPLAINED_STATUS = "unexplained_status", STEP, "{about} is {status}, and {why}", "liza edit"
    TESTS_ELSEWHERE = (
        "tests_elsewhere",
        STEP,
        "nothing is merged: {tests} does not test the worktree it runs in, it uses {where}; "
        "change config.integration_command or config.sandbox_setup",
        "liza edit && liza doctor --tests",
    )
    TESTS_GREEN = (
        "tests_green",
        STEP,
        "nothing is merged: untested: {reason}; {fix}, or accept this part for good",
        "{step}",
    )
    UNTESTED_MERGES = "untested_merges", NEWS, "{text}", "{step}"
    PULL_REQUEST_UNREAD = (
        "pull_request_unread",
        NEWS,
        "pull request #{number} was not read {failures} times in a row: {reason}",
        "{step}",
    )
    BREAKER_TRIPPED = "breaker_tripped", ANSWER, "{text}", "{step}"
    BREAKER_WARNING = "breaker_warning", NEWS, "{text}", "{step}"
    NOTICES_FAILED = (
        "notices_failed",
        NEWS,
        "alarms could not be sent to {about}: {reason}; it is tried again",
        "liza watch {target} --try",
    )
    BREAKER_UNCHECKED = "breaker_unchecked", NEWS, "the circuit breaker cannot be checked: {reason}", "{step}"
    CHECKPOINT_DUE = "checkpoint_due", NEWS, "checkpoint of {sprint}, due {time}: {summary}; {cost}", "liza edit"
    DEADLINE_PASSED = (
        "deadline_passed",
        NEWS,
        "the deadline of {about} was {time}, and {number} of it not closed: {names}",
        "liza edit",
    )
    NO_AGENT = "no_agent", STEP, "no agent of this crew can continue the open tasks{waits}", "{step}"
    NO_TASKS = "no_tasks", STEP, "there is no task, and no planner that adds one", "liza task add --help"
    STALE_ABORT = "stale_abort", STEP, "{about} has been set for {minutes} minutes", "{step}"
    STALE_CHECKPOINT = "stale_checkpoint", STEP, "{about} has been set for {minutes} minutes", "{step}"
    STALE_PAUSE = "stale_pause", STEP, "{about} has been set for {minutes} minutes", "{step}"

    def alarm(
        self, about: str, *, waiting_since: datetime | None = None, starts: tuple[str, ...] = (), **facts: str | int
    ) -> Alarm:
        """Return the alarm of this kind about an entry. ``facts`` fill in the blanks of its sentence and command."""
        facts["about"] = about
        message, step = self.sentence.format_map(facts), self.command.format_map(facts)
        return Alarm(self, about, message, step, waiting_since, starts)


class LoggedKind(_Kind):
    """Kind of a line of the alert log about an event that no alarm shows afterwards."""

    ACCOUNT = "account", STEP
    AFTER_MERGE = "after_merge", NEWS
    ARCHIVE_FAILED = "archive_failed", NEWS
    EPIC = "epic", STEP
    FLAKY_GATE = "flaky_gate", NEWS
    GATE_LOG = "gate_log", NEWS
    HEALED = "healed", NEWS
    HISTORY = "history", NEWS
    INTEGRATION_DELETED = "integration_deleted", NEWS
    LANDED = "landed", NEWS
    MERGED_UNTESTED = "merged_untested", NEWS
    MESSAGE_UNREAD = "message_unread", NEWS
    MODEL = "model", NEWS
    NOT_IMPORTED = "not_imported", STEP
    OUTPUT_UNREAD = "output_unread", NEWS
    PACKAGES_CHANGED = "packages_changed", NEWS
    PUSHED = "pushed", NEWS
    SLOTS_TOO_LARGE = "slots_too_large", NEWS
    TARGET_MOVED = "target_moved", NEWS
    TASK_BRANCH = "task_branch", NEWS
    TESTS_MOVED_REFS = "tests_moved_refs", NEWS
    TORN = "torn", NEWS
    UNMEASURED = "unmeasured", NEWS
    UNTESTED_INTEGRATION = "untested_integration", NEWS
    WORK_SAVED = "work_saved", NEWS


_CLASSES = {str(kind): kind.alarm_class for kinds in (AlarmKind, LoggedKind) for kind in kinds}


def alarm_class(kind: str) -> AlarmClass:
    """Return what an alarm of this kind asks of a person. The code of an error is a step: its command mends it."""
    return _CLASSES.get(kind, STEP)


def waits_for_person(kind: str) -> bool:
    """Return whether an alarm of this kind waits for a person: for an answer, or for one command."""
    return alarm_class(kind) is not NEWS


CONTAINED_NOTICES = {AlarmKind.ORPHANED_INTEGRATION_FAILED: AlarmKind.INTEGRATION_FAILED}
"""Alarms that contain the text of a notice about the same task, so that one line is enough."""


class Alarm(msgspec.Struct, frozen=True):
    """One alarm. ``kind`` is its name for programs, ``about`` the entry it concerns, ``next`` one command.

    ``starts``: agents without a supervisor that the command starts.
    """

    kind: str
    about: str
    message: str
    next: str
    waiting_since: datetime | None = None
    starts: tuple[str, ...] = ()


class AlarmRow(Value):
    """An alarm: ``since`` when it is known, and for how many ``seconds``; None if it is unknown."""

    kind: str
    about: str
    message: str
    next: str
    waiting_since: datetime | None = None
    since: datetime | None = None
    seconds: int | None = None

    def fields(self) -> dict[str, Any]:
        """Return the alarm as `status --json` prints it: with its class."""
        return {**asdict(self), "class": alarm_class(self.kind)}
