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

    def __new__(cls, name: str, alarm_class: AlarmClass) -> Self:
        kind = str.__new__(cls, name)
        kind._value_, kind.alarm_class = name, alarm_class
        return kind


class AlarmKind(_Kind):
    """Kind of an alarm that lasts. An error that `liza watch` reports has its error code instead."""

    DAMAGED = "damaged", STEP
    DISK_FULL = "disk_full", STEP
    MOVED = "moved", STEP
    PINS_GONE = "pins_gone", STEP
    PINS_DAMAGED = "pins_damaged", STEP
    ARCHIVE_DAMAGED = "archive_damaged", STEP
    PLACE_BROKEN = "place_broken", STEP
    BRANCH_IN_THE_WAY = "branch_in_the_way", STEP
    WORKTREES_REPLACED = "worktrees_replaced", STEP
    WORKTREE_GONE = "worktree_gone", STEP
    HISTORY_CONFLICT = "history_conflict", STEP
    BOARD_BACK = "board_back", NEWS
    INVALID_STATE = "invalid_state", STEP
    UNCONFINED = "unconfined", NEWS
    UNKNOWN_CONFIG = "unknown_config", NEWS
    UNUSABLE_SETTING = "unusable_setting", NEWS
    UNCONFIRMED_SETTING = "unconfirmed_setting", STEP
    INTEGRATION_MOVED = "integration_moved", STEP
    OVERWRITTEN = "overwritten", NEWS
    EXTERNAL_EDIT = "external_edit", NEWS
    SUPERVISOR_LEFT = "supervisor_left", STEP
    SUPERVISOR_GONE = "supervisor_gone", STEP
    SUPERVISOR_STOPPED = "supervisor_stopped", STEP
    UP_STOPPED = "up_stopped", NEWS
    NO_PROGRESS = "no_progress", NEWS
    BUDGET_BLIND = "budget_blind", STEP
    BUDGET_USED = "budget_used", STEP
    GUARD_DENIALS = "guard_denials", NEWS
    GUARDS_UNTRUSTED = "guards_untrusted", STEP
    HELD_UP = "held_up", STEP
    QUESTION = "question", ANSWER
    EXPIRED_LEASE = "expired_lease", STEP
    EXPIRED_REVIEW_LEASE = "expired_review_lease", STEP
    EXPIRED_PLANNING_LEASE = "expired_planning_lease", STEP
    PLANNING_STALLED = "planning_stalled", STEP
    PLANNING_ROUNDS = "planning_rounds", STEP
    IMMEDIATE_DISCOVERY = "immediate_discovery", ANSWER
    STALE_DRAFT = "stale_draft", STEP
    INCOMPLETE_DRAFT = "incomplete_draft", STEP
    NEVER_CLAIMABLE = "never_claimable", STEP
    NEEDS_ANOTHER_CODER = "needs_another_coder", STEP
    NEEDS_REVIEWER = "needs_reviewer", STEP
    NEEDS_VERDICT = "needs_verdict", ANSWER
    APPROACHING_LIMITS = "approaching_limits", NEWS
    BLOCKED = "blocked", ANSWER
    HYPOTHESIS_EXHAUSTION = "hypothesis_exhaustion", ANSWER
    ORPHANED_REJECTED = "orphaned_rejected", STEP
    ORPHANED_INTEGRATION_FAILED = "orphaned_integration_failed", STEP
    INTEGRATION_FAILED = "integration_failed", NEWS
    WAITING_FOR_FILES = "waiting_for_files", STEP
    MERGE_SET_ASIDE = "merge_set_aside", STEP
    EPIC_NOT_LANDED = "epic_not_landed", STEP
    EPIC_BRANCH = "epic_branch", STEP
    MERGE_HELD = "merge_held", STEP
    MERGE_LOCK_HELD = "merge_lock_held", STEP
    PUSH_FAILED = "push_failed", NEWS
    UNEXPLAINED_STATUS = "unexplained_status", STEP
    TESTS_ELSEWHERE = "tests_elsewhere", STEP
    TESTS_GREEN = "tests_green", STEP
    UNTESTED_MERGES = "untested_merges", NEWS
    PULL_REQUEST_UNREAD = "pull_request_unread", NEWS
    BREAKER_TRIPPED = "breaker_tripped", ANSWER
    BREAKER_WARNING = "breaker_warning", NEWS
    NOTICES_FAILED = "notices_failed", NEWS
    BREAKER_UNCHECKED = "breaker_unchecked", NEWS
    CHECKPOINT_DUE = "checkpoint_due", NEWS
    DEADLINE_PASSED = "deadline_passed", NEWS
    NO_AGENT = "no_agent", STEP
    NO_TASKS = "no_tasks", STEP
    STALE_ABORT = "stale_abort", STEP
    STALE_CHECKPOINT = "stale_checkpoint", STEP
    STALE_PAUSE = "stale_pause", STEP


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
    TESTS_MOVED_REFS = "tests_moved_refs", NEWS
    TORN = "torn", NEWS
    UNMEASURED = "unmeasured", NEWS
    UNTESTED_INTEGRATION = "untested_integration", NEWS


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
