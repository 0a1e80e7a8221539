"""Which packs of the history are joined."""

from __future__ import annotations

import pytest

from liza.git.history_packs import first_to_join, parse_pack_edges


@pytest.mark.parametrize(
    ("sizes", "start"),
    [
        ([10, 10, 10], 0),
        ([100, 10, 10, 10], 1),
        ([100, 50, 20, 15, 10], 0),
        ([64, 32, 16, 8, 4, 2, 1], 6),
        ([5], 0),
    ],
)
def test_a_pack_that_stays_is_at_least_twice_as_large_as_all_that_are_joined(sizes: list[int], start: int) -> None:
    assert first_to_join(sizes) == start
    assert start == 0 or sizes[start - 1] >= 2 * sum(sizes[start:])


def test_only_names_of_packs_are_read_from_the_output_of_git() -> None:
    name = f"pack-{'a' * 40}"
    output = f".git/objects/pack/{name}.pack: {'b' * 40}\n.git/objects/pack/../x.pack: {'b' * 40}\n\nwarning\n"
    assert parse_pack_edges(output.encode()) == (name,)
