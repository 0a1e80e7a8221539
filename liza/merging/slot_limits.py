"""Remove free slots: all of them for a person, or the oldest while the slots need more disk than they may."""

from __future__ import annotations

from collections.abc import Iterable

from liza.crew.crew import Crew
from liza.git.rules import slot_states
from liza.git.rules.slot_states import SlotFacts, SlotState, SlotStatus
from liza.git.worktrees import count_unsaved, find_damage, list_slot_names, measure_slot
from liza.merging import merge_lock
from liza.model.errors import LizaError, Refused
from liza.model.model import State
from liza.model.paths import Paths, agent_of
from liza.text.formats import format_bytes


def find_status(crew: Crew, state: State, slot: str) -> SlotStatus:
    """Return the state of a slot now. Raises LizaError, OSError."""
    task = slot_states.find_user_task(state, slot)
    damage = find_damage(crew.worktrees, slot)
    user = _find_user(crew.paths, state, slot)
    is_needed = damage is None and task is None and user is None and not _is_for_merges(slot)
    unsaved = count_unsaved(crew.worktrees, slot) if is_needed else 0
    return slot_states.slot_status(SlotFacts(slot, damage, user, unsaved), task)


def _find_user(paths: Paths, state: State, slot: str) -> str | None:
    """Return who uses the slot of a reviewer, a planner or a merger now, or None."""
    if _is_for_merges(slot):
        return "a merge" if merge_lock.is_merger_running(paths) else None
    review = next((task for task in state.tasks if task.reviewing_by == slot), None)
    if review is not None:
        return f"the review of {review.id}"
    return "planning" if state.planning.run is not None and agent_of(state.planning.run) == slot else None


def _is_for_merges(slot: str) -> bool:
    """Return whether tests run in the slot: it has no work of an agent."""
    return slot == "proof" or slot.partition("-")[0] == "merge"


def remove_free_slots(crew: Crew, slots: Iterable[str]) -> list[tuple[str, int]]:
    """Remove those of the slots that are free. Return each with the bytes that it had. Raises GitFailed, OSError."""
    removed = []
    for slot in slots:

        def refuse_used(slot: str = slot) -> None:
            if find_status(crew, crew.board.read(), slot).state is not SlotState.FREE:
                raise _NotFree(f"{slot} is not free", "liza slots")

        size = measure_slot(crew.paths, slot)
        try:
            crew.worktrees.remove(slot, refuse_used)
        except _NotFree:
            continue
        removed.append((slot, size))
    return removed


class _NotFree(Refused):
    """A slot is in use, or has unsaved work."""


def keep_limit(crew: Crew) -> None:
    """Remove free slots, the one that was not used for the longest time first, while all slots together need more than
    ``config.slots.max_bytes``. Without enough free slots the alert log names the command. Raises LizaError, OSError.
    """
    limit = crew.board.read().config.slots.max_bytes
    if limit is None:
        return
    sizes = {slot: measure_slot(crew.paths, slot) for slot in list_slot_names(crew.worktrees)}
    total = sum(sizes.values())
    uses = {slot: crew.worktrees.last_use(slot) for slot in sizes}
    for slot in sorted(sizes, key=lambda slot: use.since if (use := uses[slot]) is not None else 0.0):
        if total <= limit:
            return
        total -= sum(size for _, size in remove_free_slots(crew, [slot]))
    if total > limit:
        line = f"the slots need {format_bytes(total)}, more than config.slots.max_bytes, and none is free"
        crew.append_alert_log([f"slots_too_large  {line}. Next: liza slots"])


def keep_limit_after(crew: Crew, what: str) -> None:
    """``keep_limit`` after ``what``, which a failure does not undo: the alert log has it."""
    try:
        keep_limit(crew)
    except (LizaError, OSError) as error:
        hint = error.hint if isinstance(error, LizaError) else "liza slots"
        crew.append_alert_log([f"slots_too_large  {what} is done; free slots were not removed: {error}. Next: {hint}"])
