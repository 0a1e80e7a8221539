"""The changelog is for users: four sections, short entries that begin with a command or a subject."""

from __future__ import annotations

import re
from pathlib import Path

import liza
from tests.unit.house.test_words import RETIRED

TEXT = (Path(__file__).parents[3] / "CHANGELOG.md").read_text()
SECTIONS = ["Added", "Changed", "Fixed", "Removed"]
MAX_WORDS = 25


def entries() -> list[str]:
    """Return the lines of the changelog that belong to a section."""
    body = TEXT.partition("\n### ")[2]
    return [line for line in body.splitlines() if line and not line.startswith("#") and line not in SECTIONS]


def test_changelog_begins_with_the_present_version() -> None:
    versions = re.findall(r"^## \[(.+)\] - \d{4}-\d\d-\d\d$", TEXT, re.M)
    assert versions[0] == liza.__version__


def test_each_version_has_the_four_sections_in_order() -> None:
    for version in re.split(r"^## ", TEXT, flags=re.M)[1:]:
        assert re.findall(r"^### (.+)$", version, re.M) == SECTIONS


def test_entries_are_one_line_with_a_subject_and_few_words() -> None:
    assert entries()
    wrong = [line for line in entries() if not re.fullmatch(r"- \*\*[\w -]+\*\*: \S.*[.!]", line)]
    long = [line for line in entries() if len(line.partition("**: ")[2].split()) > MAX_WORDS]
    assert (wrong, long) == ([], [])


def test_entries_have_no_retired_word() -> None:
    assert [line for line in entries() for word in RETIRED["prose"] if re.search(word, line, re.IGNORECASE)] == []
