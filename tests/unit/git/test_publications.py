"""What a commit at the ref of the merge term says."""

from __future__ import annotations

import pytest

from liza.git.rules.publications import Publication, parse_publication


@pytest.mark.parametrize(
    "publication",
    [Publication(3, "h1"), Publication(4, "h2", "integration", "c" * 40, ("t1", "t2"))],
)
def test_a_publication_is_read_as_it_was_written(publication: Publication) -> None:
    assert parse_publication(publication.format()) == publication


@pytest.mark.parametrize("message", ["", "Merge branch 'x'\n", "Term: three\nHost: h1\n", "Term: 3\n"])
def test_a_commit_of_another_program_is_no_publication(message: str) -> None:
    assert parse_publication(message) is None
