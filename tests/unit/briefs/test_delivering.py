"""What is done for a message until somebody saw that it was read."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from liza.briefs.rules.message_rules import (
    NOTICE_SOURCE,
    OFFERED,
    DeliveryChannels,
    DropNotices,
    Message,
    MessageStage,
    PutInBrief,
    RefreshBrief,
    TellPerson,
    TryLater,
    TypeMessage,
    format_typed,
    list_quotable,
    next_step,
    sort_unacknowledged,
)
from liza.model.configuration import Delivery

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
HOW = Delivery()
TERMINAL = DeliveryChannels("coder-1.1", has_terminal=True)
HOOKED = DeliveryChannels("coder-1.1", has_hooks=True)
DEAF = DeliveryChannels("coder-1.1")


def message(name: str = "m", priority: str = "normal", **more: object) -> Message:
    return Message(id=name, priority=priority, text="t", sender="human", created=NOW, **more)  # type: ignore[arg-type]


def later(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def test_unread_messages_are_sorted_by_urgency_and_then_age() -> None:
    old, new = message("b"), replace(message("c"), created=later(1))
    urgent, system, read = message("d", "urgent"), message("e", "system"), message("f", acknowledged=NOW)
    tenth, last = message("s-999-n"), message("s-1000-n")
    assert sort_unacknowledged([new, last, old, urgent, tenth, read, system]) == (system, urgent, old, tenth, last, new)


def test_nothing_is_typed_without_a_session_or_before_its_moment() -> None:
    assert next_step([message()], None, NOW, HOW) == TryLater("no session runs: it goes into the next brief")
    assert next_step([message()], TERMINAL, NOW, HOW) == TypeMessage(message())


def test_a_message_waits_for_hooks_or_goes_into_briefs() -> None:
    assert next_step([message()], HOOKED, NOW, HOW) == TryLater("its hook takes it at the end of the turn")
    assert next_step([message()], DEAF, NOW, HOW) == PutInBrief((message(),))


def test_pauses_between_tries_grow_and_leave_time_for_answers() -> None:
    for attempts, pause in ((1, 1.0), (2, 2.0)):
        tried = message(attempts=attempts, tried=NOW)
        assert isinstance(next_step([tried], TERMINAL, later(pause - 0.1), HOW), TryLater)
        assert next_step([tried], TERMINAL, later(pause), HOW) == TypeMessage(tried)
    arrived = message(attempts=1, tried=NOW, carried=True)
    assert isinstance(next_step([arrived], TERMINAL, later(4.9), HOW), TryLater)
    assert next_step([arrived], TERMINAL, later(5), HOW) == PutInBrief((arrived,), is_announced=True)


def test_after_three_tries_a_message_goes_into_the_brief() -> None:
    tried = message(attempts=3, tried=NOW)
    assert next_step([tried], TERMINAL, later(5), HOW) == PutInBrief((tried,), is_announced=True)
    filed = replace(tried, stage=MessageStage.FILED)
    assert isinstance(next_step([filed], TERMINAL, later(29), HOW), TryLater)
    assert next_step([filed], TERMINAL, later(30), HOW) == TellPerson((filed,))
    quiet = replace(HOW, send_notification_on_failure=False)
    assert next_step([filed], TERMINAL, later(300), quiet) == TryLater("it is in the brief")
    assert next_step([replace(filed, stage=MessageStage.TOLD)], TERMINAL, later(300), HOW) == TryLater("nothing waits")


def test_a_low_message_waits_for_idleness_and_is_no_alarm() -> None:
    low, both = message(priority="low"), replace(HOOKED, has_terminal=True)
    busy = replace(both, in_turn=True)
    assert next_step([low], busy, later(300), HOW) == TryLater("it waits until the agent is idle")
    assert next_step([low], both, later(300), HOW) == TypeMessage(low)
    assert next_step([low, message("n")], both, later(300), HOW) == TypeMessage(message("n"))
    filed = replace(low, attempts=3, stage=MessageStage.FILED, tried=NOW)
    assert next_step([filed], both, later(300), HOW) == TryLater("it is in the brief")


def notice(**more: object) -> Message:
    return replace(message("n", **more), sender="liza", source=NOTICE_SOURCE)


def test_a_notice_about_the_brief_follows_and_ends_with_messages() -> None:
    filed = message(attempts=3, tried=NOW, stage=MessageStage.FILED)
    assert next_step([filed, notice()], TERMINAL, later(1), HOW) == TypeMessage(notice())
    tired = notice(attempts=3, tried=NOW)
    assert next_step([filed, tired], TERMINAL, later(6), HOW) == DropNotices((tired,))
    read = replace(filed, acknowledged=NOW)
    assert next_step([read, notice()], TERMINAL, later(1), HOW) == DropNotices((notice(),))
    assert next_step([notice()], TERMINAL, later(1), HOW) == DropNotices((notice(),))


def test_a_notice_announces_texts_and_is_none() -> None:
    assert list_quotable([notice(), message()]) == (message(),)


@pytest.mark.parametrize(("attempts", "backoffs"), [(1, (3.0,)), (2, (0.5, 4.0)), (5, (1.0,)), (3, ())])
def test_tries_and_pauses_of_messages_follow_the_config(attempts: int, backoffs: tuple[float, ...]) -> None:
    config = replace(HOW, file_fallback_after_attempts=attempts, retry_backoffs=backoffs)
    one, other, now, pauses = message("a"), message("b", stage=MessageStage.FILED, tried=later(3600)), NOW, []
    while isinstance(step := next_step([one, other], TERMINAL, now, config), TypeMessage):
        one = replace(one, attempts=one.attempts + 1, tried=now)
        wait = next_step([one, other], TERMINAL, now, config)
        pause = (wait.seconds or 0.0) if isinstance(wait, TryLater) else 0.0
        pauses.append(pause)
        now += timedelta(seconds=pause)
    assert step == PutInBrief((one,), is_announced=True)
    assert one.attempts == attempts
    assert pauses == [(backoffs or (0.0,))[min(number, len(backoffs or (0.0,)) - 1)] for number in range(attempts)]


def test_messages_hooks_never_deliver_go_into_the_brief_quietly() -> None:
    taken = message(attempts=3, offered=NOW, tried=NOW)
    assert isinstance(next_step([taken], HOOKED, later(4.9), HOW), TryLater)
    assert next_step([taken], HOOKED, later(5), HOW) == PutInBrief((taken,), is_announced=False)


def test_a_brief_quoting_read_messages_is_rewritten_when_nothing_waits() -> None:
    assert next_step([], TERMINAL, NOW, HOW, ["m"]) == RefreshBrief()
    assert next_step([message()], TERMINAL, NOW, HOW, ["m"]) == TypeMessage(message())
    assert next_step([message("b")], TERMINAL, NOW, HOW, ["m"]) == TypeMessage(message("b"))
    filed = message(stage=MessageStage.FILED, tried=NOW)
    assert next_step([filed], TERMINAL, NOW, HOW, ["m"]) == TryLater("it is in the brief", 30.0)
    assert next_step([filed], TERMINAL, NOW, HOW, ["m", "x"]) == RefreshBrief()
    assert next_step([filed], None, NOW, HOW, ["x"]) == TryLater("no session runs: it goes into the next brief")


def test_many_messages_enter_the_brief_together_with_one_alarm() -> None:
    many = tuple(message(f"m-{number:04d}") for number in range(1000))
    assert next_step(many, DEAF, NOW, HOW) == PutInBrief(many)
    filed = tuple(replace(each, stage=MessageStage.FILED, tried=NOW) for each in many)
    late = replace(filed[-1], tried=later(10))
    assert next_step((*filed[:-1], late), DEAF, later(30), HOW) == TellPerson(filed[:-1])
    told = tuple(replace(each, stage=MessageStage.TOLD, tried=later(30)) for each in filed[:-1])
    assert next_step((*told, late), DEAF, later(40), HOW) == TryLater("a person was told of others a moment ago", 20.0)
    assert next_step((*told, late), DEAF, later(60), HOW) == TellPerson((late,))


def test_a_waiting_message_blocks_only_others_for_the_terminal() -> None:
    waits, next_one = message("a", "urgent", attempts=1, tried=NOW), message("b")
    assert isinstance(next_step([waits, next_one], TERMINAL, later(0.5), HOW), TryLater)
    filed = replace(waits, stage=MessageStage.FILED)
    assert next_step([filed, next_one], TERMINAL, later(0.5), HOW) == TypeMessage(next_one)


def test_a_clock_that_was_set_back_delays_nothing_forever() -> None:
    assert next_step([message(attempts=1, tried=later(86_400))], TERMINAL, NOW, HOW) == TypeMessage(
        message(attempts=1, tried=later(86_400))
    )


@given(
    st.lists(st.tuples(st.booleans(), st.booleans(), st.floats(0.01, 40)), min_size=1, max_size=60),
    st.booleans(),
)
def test_every_message_is_read_or_reported_after_few_tries(
    windows: list[tuple[bool, bool, float]], fetches: bool
) -> None:
    """``windows``: whether it can be typed in, whether what was typed is answered, seconds until the next look."""
    one, now, typed = message(), NOW, 0
    calm = [(False, False, 40.0)] * 12
    for idle, answers, pause in [*windows, *calm]:
        step = next_step([one], DeliveryChannels("coder-1.1", has_hooks=fetches, has_terminal=True), now, HOW)
        match step:
            case TypeMessage():
                typed += 1
                one = replace(one, attempts=one.attempts + 1, tried=now, carried=idle)
                if idle and answers:
                    one = replace(one, acknowledged=now)
                    break
            case PutInBrief():
                one = replace(one, stage=MessageStage.FILED, tried=now)
            case TellPerson():
                one = replace(one, stage=MessageStage.TOLD)
            case _:
                assert step.seconds is None or step.seconds > 0
        now += timedelta(seconds=pause)
    assert typed <= HOW.file_fallback_after_attempts
    assert one.acknowledged is not None or one.stage is MessageStage.TOLD


def test_a_message_names_its_sender_and_how_to_acknowledge() -> None:
    asked = "MESSAGE from human (to show that you read it, say: liza ready): t"
    assert format_typed(message(), HOW) == asked
    assert format_typed(message(), replace(HOW, require_acknowledgment=False)) == "MESSAGE from human: t"
    assert format_typed(replace(message(), sender="liza"), HOW) == "t"


def test_a_message_a_hook_never_delivered_is_typed_later() -> None:
    taken = message(offered=NOW)
    assert next_step([taken], TERMINAL, later(5), HOW) == TryLater("a hook has just taken it", OFFERED - 5)
    assert next_step([taken], TERMINAL, later(OFFERED), HOW) == TypeMessage(taken)
