"""SIGTERM of timeout(1), which comes twice."""

from __future__ import annotations

from signal import SIGINT, SIGTERM

from liza.system.processes import Repeats


def test_a_second_term_within_a_second_is_the_first_one_and_a_second_ctrl_c_is_not() -> None:
    repeats = Repeats()
    heard = [(SIGTERM, 10.0), (SIGTERM, 10.9), (SIGTERM, 11.0), (SIGINT, 11.1), (SIGINT, 11.2), (SIGTERM, 11.3)]
    assert [repeats.is_new(number, at) for number, at in heard] == [True, False, True, True, True, False]
