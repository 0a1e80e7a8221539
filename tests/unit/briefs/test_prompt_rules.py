"""Which prompts a runtime gets on its stream: by priority, state, and what it has got and acknowledged."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from liza.briefs.rules.message_rules import (
    AT_TURN_END,
    DURING_TURN,
    PRIORITIES,
    DeliveryChannels,
    Message,
    PromptPriority,
    describe_delivery,
    list_unreceived,
    may_have_priority,
    select_for_stream,
    sort_unacknowledged,
)
from liza.programs.rules.lifecycle_rules import LifecycleEvent

NOW = datetime(2026, 1, 1, 12, tzinfo=UTC)
E = LifecycleEvent


def prompt(name: str, priority: str = "normal") -> Message:
    return Message(id=name, priority=priority, text=name, sender="human:ann", created=NOW)


@pytest.mark.parametrize(
    ("priority", "ways", "expected"),
    [
        ("system", {"has_stream"}, "gets it at the next edge of its turn"),
        ("urgent", {"has_stream"}, "gets it now; that interrupts its turn"),
        ("normal", {"has_stream"}, "gets it when its turn is over"),
        ("low", {"has_stream"}, "gets it when it is idle and nothing else waits"),
        ("low", {"has_hooks"}, "takes it at the beginning of a turn or after a tool"),
        ("system", {"has_hooks"}, "takes it at its next tool call or the end of its turn"),
        ("urgent", {"has_hooks"}, "its turn; its turn cannot be interrupted"),
        ("normal", {"has_hooks"}, "takes it at the end of its turn"),
        ("normal", {"has_hooks", "has_terminal"}, "takes it at the end of its turn, or it is typed in its terminal"),
        ("system", {"has_terminal"}, "typed in the terminal of coder-1.7 when its program waits for input"),
        ("system", set(), "so its brief contains it"),
    ],
)
def test_a_note_names_how_it_reaches_the_session(priority: str, ways: set[str], expected: str) -> None:
    channels = DeliveryChannels("coder-1.7", **dict.fromkeys(ways, True))
    text = describe_delivery(PromptPriority(priority), channels)
    assert (text.endswith(expected), "coder-1.7" in text) == (True, True), text


def test_the_priorities_are_ordered_as_they_are_delivered() -> None:
    assert PRIORITIES == ("system", "urgent", "normal", "low")


@pytest.mark.parametrize(
    ("priorities", "names"),
    [
        (DURING_TURN, ["1-s", "1-u", "1-003"]),
        (AT_TURN_END, ["1-s", "1-u", "1-n", "1-003"]),
        (frozenset(PRIORITIES), ["1-s", "1-u", "1-n", "1-l", "1-003"]),
    ],
)
def test_an_id_shows_which_files_need_no_reading(priorities: frozenset[PromptPriority], names: list[str]) -> None:
    every = ["1-s", "1-u", "1-n", "1-l", "1-003"]
    assert [name for name in every if may_have_priority(name, priorities)] == names


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        (None, "s u n1"),
        (E.STARTED, "s u"),
        (E.READY, "s u n1"),
        (E.BUSY, "s u"),
        (E.IDLE, "s u n1"),
        (E.STOPPING, ""),
        (E.STOPPED, ""),
    ],
)
def test_only_matching_prompts_are_delivered_in_a_turn(state: LifecycleEvent | None, expected: str) -> None:
    pending = (prompt("s", "system"), prompt("u", "urgent"), prompt("n1"), prompt("n2"))
    assert " ".join(message.id for message in select_for_stream(pending, (), state)) == expected


def test_a_normal_prompt_waits_until_the_one_before_is_acknowledged() -> None:
    first, second = prompt("n1"), prompt("n2")
    assert select_for_stream((first, second), ("n1",), E.IDLE) == ()
    assert select_for_stream((second,), ("n1",), E.IDLE) == (second,)
    assert select_for_stream((first, prompt("u", "urgent")), ("n1", "u"), E.IDLE) == ()


def test_a_reconnected_stream_sends_only_prompts_after_the_last_received() -> None:
    assert list_unreceived(("a", "b", "c"), "b") == ("c",)
    assert list_unreceived(("a", "b", "c"), "c") == ()
    assert list_unreceived(("a", "b"), None) == ("a", "b")
    assert list_unreceived(("a", "b"), "unknown") == ("a", "b")


class Delivery(RuleBasedStateMachine):
    """Prompts are submitted, sent, lost, got, acknowledged; the connection breaks at any time."""

    def __init__(self) -> None:
        super().__init__()
        self.pending: dict[str, Message] = {}
        self.delivered: list[str] = []
        self.again: list[str] = []
        self.got: list[str] = []
        self.acknowledged: set[str] = set()
        self.last: str | None = None
        self.state = E.READY
        self.count = 0

    @rule(priority=st.sampled_from(PRIORITIES))
    def submit(self, priority: str) -> None:
        self.count += 1
        self.pending[f"p{self.count}"] = prompt(f"p{self.count}", priority)

    @rule(state=st.sampled_from([E.READY, E.BUSY, E.IDLE]))
    def change_state(self, state: LifecycleEvent) -> None:
        self.state = state

    def _send(self) -> list[str]:
        pending = sort_unacknowledged(list(self.pending.values()))
        fresh = [message.id for message in select_for_stream(pending, self.delivered, self.state)]
        again = [name for name in self.again if name in self.pending]
        self.again = []
        self.delivered += fresh
        return again + fresh

    @rule(arrive=st.integers(0, 3))
    def send(self, arrive: int) -> None:
        sent = self._send()
        for name in sent[:arrive]:
            assert name not in self.acknowledged
            self.got.append(name)
            self.last = name
        if arrive < len(sent):
            self.reconnect(remembers=True)

    @rule(remembers=st.booleans())
    def reconnect(self, remembers: bool) -> None:
        self.last = self.last if remembers else None
        self.again = list(list_unreceived(self.delivered, self.last))
        if self.last is not None:
            assert self.last not in self.again

    @precondition(lambda self: self.got)
    @rule(data=st.data())
    def acknowledge(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(self.got))
        self.acknowledged.add(name)
        self.pending.pop(name, None)

    @invariant()
    def a_pending_prompt_can_still_arrive(self) -> None:
        for name, message in self.pending.items():
            is_open = name not in self.delivered or name in self.again or name in self.got
            assert is_open, (name, message.priority in DURING_TURN)

    def teardown(self) -> None:
        """Once the runtime listens, waits and acknowledges, every prompt has arrived."""
        self.state = E.IDLE
        for _ in range(2 * len(self.pending) + 2):
            self.reconnect(remembers=False)
            for name in self._send():
                assert name not in self.acknowledged
                self.got.append(name)
                self.acknowledged.add(name)
                del self.pending[name]
        assert not self.pending
        assert {f"p{number}" for number in range(1, self.count + 1)} <= set(self.got)


TestDelivery = Delivery.TestCase
TestDelivery.settings = settings(max_examples=60, stateful_step_count=40)


@pytest.mark.parametrize("name", ["003l", "l", "1_l", ""])
def test_an_id_without_its_own_letter_shows_nothing(name: str) -> None:
    assert may_have_priority(name, DURING_TURN)
    assert not may_have_priority("1-l", DURING_TURN)
