"""A crew whose tasks are merged, for the tests that begin with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.edges.merge_crew import Merges, copied, prepared


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A repository with a crew, made once for a module and copied for each test."""
    with prepared(tmp_path_factory) as root:
        return root


@pytest.fixture
def crew(made: Path, tmp_path: Path) -> Merges:
    """The crew of a test. A module with a fixture of this name has another one."""
    return copied(made, tmp_path)
