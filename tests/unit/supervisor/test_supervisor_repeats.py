"""SIGTERM of timeout(1), which comes twice."""

from __future__ import annotations

from signal import SIGINT, SIGTERM

from liza.system.processes import Repeats


def test_a_quickly_repeated_term_counts_once_unlike_ctrl_c() -> None:
    repeats = Repeats()
    heard = [(SIGTERM, 10.0), (SIGTERM, 10.9), (SIGTERM, 11.0), (SIGINT, 11.1), (SIGINT, 11.2), (SIGTERM, 11.3)]
    assert [repeats.is_new(number, at) for number, at in heard] == [True, False, True, True, True, False]
