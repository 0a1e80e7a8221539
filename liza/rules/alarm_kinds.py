"""Alarms and their kinds, as `status --json` names them.

The alert log has more kinds: `budget`, `model`, `unmeasured`. Pure.
"""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum

import msgspec


class AlarmKind(StrEnum):
    """Kind of an alarm. An error that `liza watch` reports has its error code instead."""

    DAMAGED = "damaged"
    DISK_FULL = "disk_full"
    MOVED = "moved"
    PINS_GONE = "pins_gone"
    PINS_DAMAGED = "pins_damaged"
    ARCHIVE_DAMAGED = "archive_damaged"
    PLACE_BROKEN = "place_broken"
    BRANCH_IN_THE_WAY = "branch_in_the_way"
    WORKTREES_REPLACED = "worktrees_replaced"
    WORKTREE_GONE = "worktree_gone"
    HISTORY_CONFLICT = "history_conflict"
    BOARD_BACK = "board_back"
    INVALID_STATE = "invalid_state"
    UNKNOWN_CONFIG = "unknown_config"
    UNUSABLE_SETTING = "unusable_setting"
    UNCONFIRMED_SETTING = "unconfirmed_setting"
    PLANTED_CONFIGURATION = "planted_configuration"
    SYMBOLIC_REF = "symbolic_ref"
    INTEGRATION_MOVED = "integration_moved"
    MOVED_BY_SESSION = "moved_by_session"
    OVERWRITTEN = "overwritten"
    EXTERNAL_EDIT = "external_edit"
    SUPERVISOR_LEFT = "supervisor_left"
    SUPERVISOR_GONE = "supervisor_gone"
    SUPERVISOR_STOPPED = "supervisor_stopped"
    UP_STOPPED = "up_stopped"
    NO_PROGRESS = "no_progress"
    BUDGET_BLIND = "budget_blind"
    BUDGET_USED = "budget_used"
    GUARD_DENIALS = "guard_denials"
    GUARDS_UNTRUSTED = "guards_untrusted"
    HELD_UP = "held_up"
    QUESTION = "question"
    EXPIRED_LEASE = "expired_lease"
    EXPIRED_REVIEW_LEASE = "expired_review_lease"
    EXPIRED_PLANNING_LEASE = "expired_planning_lease"
    PLANNING_STALLED = "planning_stalled"
    PLANNING_ROUNDS = "planning_rounds"
    IMMEDIATE_DISCOVERY = "immediate_discovery"
    STALE_DRAFT = "stale_draft"
    INCOMPLETE_DRAFT = "incomplete_draft"
    NEVER_CLAIMABLE = "never_claimable"
    NEEDS_ANOTHER_CODER = "needs_another_coder"
    NEEDS_REVIEWER = "needs_reviewer"
    NEEDS_VERDICT = "needs_verdict"
    APPROACHING_LIMITS = "approaching_limits"
    BLOCKED = "blocked"
    HYPOTHESIS_EXHAUSTION = "hypothesis_exhaustion"
    ORPHANED_REJECTED = "orphaned_rejected"
    ORPHANED_INTEGRATION_FAILED = "orphaned_integration_failed"
    INTEGRATION_FAILED = "integration_failed"
    WAITING_FOR_FILES = "waiting_for_files"
    MERGE_SET_ASIDE = "merge_set_aside"
    EPIC_NOT_LANDED = "epic_not_landed"
    EPIC_BRANCH = "epic_branch"
    MERGE_HELD = "merge_held"
    MERGE_LOCK_HELD = "merge_lock_held"
    CHECKOUT_AWAY = "checkout_away"
    PUSH_FAILED = "push_failed"
    SLOT_SET_ASIDE = "slot_set_aside"
    UNEXPLAINED_STATUS = "unexplained_status"
    TESTS_ELSEWHERE = "tests_elsewhere"
    TESTS_GREEN = "tests_green"
    UNTESTED_MERGES = "untested_merges"
    PULL_REQUEST_UNREAD = "pull_request_unread"
    BREAKER_TRIPPED = "breaker_tripped"
    BREAKER_WARNING = "breaker_warning"
    NOTICES_FAILED = "notices_failed"
    BREAKER_UNCHECKED = "breaker_unchecked"
    CHECKPOINT_DUE = "checkpoint_due"
    DEADLINE_PASSED = "deadline_passed"
    STALE_ABORT = "stale_abort"
    STALE_CHECKPOINT = "stale_checkpoint"
    STALE_PAUSE = "stale_pause"


NOTICES = (
    AlarmKind.UP_STOPPED,
    AlarmKind.UNTESTED_MERGES,
    AlarmKind.APPROACHING_LIMITS,
    AlarmKind.UNKNOWN_CONFIG,
    AlarmKind.UNUSABLE_SETTING,
    AlarmKind.INTEGRATION_FAILED,
    AlarmKind.GUARD_DENIALS,
    AlarmKind.PULL_REQUEST_UNREAD,
    AlarmKind.PUSH_FAILED,
    AlarmKind.BREAKER_WARNING,
    AlarmKind.NOTICES_FAILED,
    AlarmKind.BREAKER_UNCHECKED,
    AlarmKind.CHECKPOINT_DUE,
    AlarmKind.DEADLINE_PASSED,
)
"""Alarms that do not wait for a person: the work goes on."""
CONTAINED_NOTICES = {AlarmKind.ORPHANED_INTEGRATION_FAILED: AlarmKind.INTEGRATION_FAILED}
"""Alarms that contain the text of a notice about the same task, so that one line is enough."""


class Alarm(msgspec.Struct, frozen=True):
    """One alarm. ``kind`` is its name for programs, ``about`` the entry it concerns, ``next`` one command."""

    kind: str
    about: str
    message: str
    next: str
    waiting_since: datetime | None = None
