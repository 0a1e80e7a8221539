"""Any order of anything that anyone may say: the rules agree with a second model, and every board can be completed.

The docstring of ``tests/unit/machine`` says what to read first; its ``known_rules.NOT_PLAYED`` lists the rules that the
machine does not play, each with the reason. A long run with a seed and with statistics:
``LIZA_SEED=7 LIZA_EXAMPLES=3000 LIZA_STATISTICS=1 pytest -s -m campaign tests/unit/house/test_rules_machine.py``.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from liza.model.model import Status
from tests.unit.machine import crew_machine, known_rules
from tests.unit.machine.crew_machine import CrewMachine

SEED = int(os.environ.get("LIZA_SEED", "1"))
EXAMPLES = int(os.environ.get("LIZA_EXAMPLES", "500"))


def test_the_rules_agree_with_the_model_and_every_board_completes() -> None:
    crew_machine.REACHED.clear()
    run_state_machine_as_test(CrewMachine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None))
    # Hypothesis takes constants from the sources, so each change of them changes the walks, and 100 may miss a status.
    assert len(set(Status) - crew_machine.REACHED) <= 2, "a machine that does not come far proves little"


def test_every_rule_changing_the_board_is_played_or_excused() -> None:
    rules = known_rules.find_rules()
    assert len(rules) > 60
    assert rules - known_rules.find_played_rules() == known_rules.NOT_PLAYED.keys()


@pytest.mark.campaign
def test_thousands_of_verbs_agree_with_the_model() -> None:
    crew_machine.PLAYED.clear()
    crew_machine.REACHED.clear()
    many = settings(
        max_examples=EXAMPLES,
        stateful_step_count=60,
        deadline=None,
        derandomize=False,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(seed(SEED)(CrewMachine), settings=many)
    if os.environ.get("LIZA_STATISTICS"):
        print(crew_machine.describe_statistics())
    allowed = {name for name, result in crew_machine.PLAYED if result == "allowed"}
    never = known_rules.find_rules() - known_rules.NOT_PLAYED.keys() - allowed
    assert EXAMPLES < 3000 or never == set(), "each rule is allowed somewhere"
    assert EXAMPLES < 3000 or set(Status) <= crew_machine.REACHED
