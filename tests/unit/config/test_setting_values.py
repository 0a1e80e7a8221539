"""Single settings: what a typed text means, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from liza.config.rules import setting_values
from liza.config.rules.setting_meanings import MEANINGS, USUAL
from liza.config.rules.setting_values import setting_names
from liza.model import setting_limits
from liza.model.configuration import BreakerSettings, Config, Delivery, QueueSettings
from liza.model.errors import Refused, UsageError
from tests.unit.boards import board, with_config


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("queue.batch", "5", 5),
        ("slots.max", "2", 2),
        ("slots.max", "null", None),
        ("slots.max", "none", None),
        ("slots.max", "NULL", None),
        ("routing", "record", "record"),
        ("integration_command", "true", "true"),
        ("integration_command", "5", "5"),
        ("integration_command", "make a,b", "make a,b"),
        ("integration_command", "null", None),
        ("context_handoff", "1", 1.0),
        ("delivery.require_acknowledgment", "false", False),
        ("sandbox_copy", ".env", (".env",)),
        ("sandbox_copy", ".env, .env.test", (".env", ".env.test")),
        ("sandbox_copy", '["a,b"]', ("a,b",)),
        ("programs.coder", "codex", "codex"),
        ("generated.web/package-lock.json", "npm install", "npm install"),
        ("budget.money_per_task", "2.5", 2.5),
    ],
)
def test_a_typed_value_is_read_by_its_settings_type(name: str, text: str, value: Any) -> None:
    config = setting_values.change_setting(board(), name, text).config
    outer, _, inner = name.partition(".")
    nested = getattr(config, outer)
    assert (nested[inner] if isinstance(nested, dict) else getattr(nested, inner) if inner else nested) == value


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("queue.batch", "many", "config.queue.batch cannot be 'many': expected a whole number"),
        ("queue.batch", "0", "config.queue.batch is 0, expected 1 or more"),
        ("queue.batch", "null", "cannot be 'null'"),
        ("lease_duration", "999999999999999", "is 999999999999999, expected 0 to 31536000 seconds"),
        ("breaker.window", "31536001", "is 31536001, expected 0 to 31536000 seconds"),
        ("delivery.retry_backoffs", "[1, -2]", "is -2.0, expected 0 to 31536000 seconds"),
        ("breaker.repeated_error", "9007199254740993", "expected at most 9007199254740992"),
        ("integration_branch", "../x", "config.integration_branch is '../x', expected a name of a branch"),
        ("integration_branch", "a.lock", "is 'a.lock', expected a name of a branch"),
        ("integration_branch", "", "is '', expected a name of a branch"),
        ("routing", "best", "config.routing cannot be 'best': expected one of first, record"),
        ("push", "Atuo", "config.push cannot be 'Atuo': expected one of auto, never; did you mean auto?"),
        ("guards.on_error", "DENY!", "expected one of allow, deny; did you mean deny?"),
        ("merge_clean", "after-red", "expected one of always, after_red, never; did you"),
        ("permissions", "bypas", "expected one of prompts, bypass; did you mean bypass?"),
        ("merge_clean", "after-red", "; did you mean after_red?"),
        ("queue", '{"batch":"x"}', 'cannot be \'{"batch":"x"}\': queue.batch is a text, expected a whole number'),
        ("queue", "5", "config.queue cannot be '5': expected a mapping with some of: batch, parallel, retries"),
        ("queue.bach", "5", "did you mean batch"),
        ("batch", "5", "did you mean queue.batch"),
        ("rooting", "first", "did you mean routing"),
        ("routing.x", "first", "config.routing.x is no setting"),
        ("programs.", "x", "config.programs. is no setting"),
        ("", "x", "config. is no setting"),
        ("poll_interval", "[" * 100_000, "cannot be"),
    ],
)
def test_unknown_settings_and_impossible_values_are_refused(name: str, text: str, message: str) -> None:
    with pytest.raises(UsageError) as refused:
        setting_values.change_setting(board(), name, text)
    assert message in refused.value.message
    assert refused.value.hint.startswith("liza config get")


def test_the_result_of_a_proof_cannot_be_typed() -> None:
    with pytest.raises(Refused, match="proof"):
        setting_values.change_setting(board(), "proof.outcome", "proved")


def test_a_setting_without_text_gets_its_default() -> None:
    state = with_config(board(), queue=QueueSettings(batch=3, retries=4), programs={"coder": "a", "planner": "b"})
    assert setting_values.change_setting(state, "queue.batch", None).config.queue == QueueSettings(retries=4)
    assert setting_values.change_setting(state, "queue", None).config.queue == QueueSettings()
    assert setting_values.change_setting(state, "programs.coder", None).config.programs == {"planner": "b"}


def test_all_settings_are_listed_by_names_that_can_be_changed() -> None:
    rows = setting_values.list_settings(Config(), Config())
    assert {"queue.batch", "slots.max", "routing", "gates"} <= {row.name for row in rows}
    for row in rows:
        assert setting_values.get_setting(Config(), Config(), row.name) == row
        assert row.value == row.default
        assert not row.unconfirmed


def test_a_setting_that_is_not_in_effect_shows_both_values() -> None:
    row = setting_values.get_setting(Config(), Config(queue=QueueSettings(batch=2)), "queue.batch")
    assert (row.value, row.on_board, row.unconfirmed) == (20, 2, True)


def test_a_list_with_empty_parts_and_nested_defaults_are_read() -> None:
    state = setting_values.change_setting(board(), "sandbox_copy", "a,, b ,")
    assert state.config.sandbox_copy == ("a", "b")
    assert setting_values.change_setting(state, "sandbox_copy", None).config == board().config
    nested = setting_values.get_setting(Config(), Config(), "queue")
    assert nested.value["batch"] == 20
    assert nested.name == "queue"
    own = Config(programs={"coder": "codex"})
    assert setting_values.get_setting(own, own, "programs.coder").value == "codex"
    assert setting_values.get_setting(own, own, "programs.planner").value is None


def test_a_refused_setting_names_the_command_that_shows_it() -> None:
    def hint(name: str, text: str) -> str:
        with pytest.raises((UsageError, Refused)) as refused:
            setting_values.change_setting(board(), name, text)
        return refused.value.hint

    assert hint("queue.batch", "0") == "liza config get queue.batch"
    assert hint("queue.batch", "x") == "liza config get queue.batch"
    assert hint("queue.bach", "5") == "liza config get"
    assert hint("rooting", "5") == "liza config get"
    assert hint("proof", "x") == "liza doctor --tests"


def test_earlier_faults_on_the_board_do_not_refuse_other_settings() -> None:
    state = with_config(board(), queue=QueueSettings(batch=0))
    assert setting_values.change_setting(state, "push", "auto").config.push == "auto"


def test_a_number_outside_its_limits_never_counts() -> None:
    breaker = BreakerSettings(window=10**11, review_loop=3)
    config = Config(lease_duration=10**15, grace=-1, poll_interval=5, restart_after_crash=float("nan"), breaker=breaker)
    usable = setting_limits.with_usable_numbers(config)
    assert usable == Config(poll_interval=5, breaker=BreakerSettings(review_loop=3))
    within = Config(lease_duration=setting_limits.MAX_DURATION, delivery=Delivery(retry_backoffs=(0.0, 5.0)))
    assert setting_limits.with_usable_numbers(within) is within


def test_each_setting_has_a_meaning_in_one_line() -> None:
    assert set(MEANINGS) == set(setting_names())
    assert all(0 < len(meaning.text) <= 95 for meaning in MEANINGS.values())
    assert set(USUAL) <= set(MEANINGS)
    assert all(len(MEANINGS[name].text) <= 34 for name in USUAL)
