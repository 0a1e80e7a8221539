"""What is typed and cannot be meant is refused before anything is done."""

from __future__ import annotations

import pytest

from liza.cli import entry_points
from liza.rules.errors import UsageError


@pytest.mark.parametrize("more", ["--last-good", "--stop"])
def test_one_task_and_the_whole_board_are_not_brought_back_in_one_command(more: str) -> None:
    with pytest.raises(UsageError, match="one task") as refused:
        entry_points.dispatch_liza(["restore", "--task", "a", more])
    assert refused.value.hint == "liza restore --task a"
