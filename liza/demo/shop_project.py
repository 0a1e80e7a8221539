"""Create the project of the demo: a small shop with a test, committed in a new repository."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from liza.git.runner import Git
from liza.model.errors import UsageError

GOAL = "Customers can pay by invoice"
SPEC = "docs/invoices.md"
FILES = {
    "README.md": "# A small shop\n\n    python3 -m unittest discover -s tests -q\n",
    "AGENTS.md": "# Working here\n\nThe standard library only. Every change comes with a test.\n",
    ".gitignore": "__pycache__/\n",
    SPEC: """\
# Customers can pay by invoice

- An invoice has lines, a net sum and tax. Amounts are whole cents; half a cent rounds up.
- It can be read as text, and goes out by mail.
- Prices can be shown with their currency, and with percents off.
- What is on an invoice is reserved in the stock.
""",
    "shop/__init__.py": "",
    "shop/prices.py": '''\
"""Prices, in cents."""


def shown(cents):
    """A price as the customer reads it."""
    return f"{cents / 100:.2f}"
''',
    "tests/test_prices.py": """\
import unittest

from shop.prices import shown


class PricesTest(unittest.TestCase):
    def test_cents_are_shown_as_a_price(self):
        self.assertEqual(shown(1250), "12.50")
""",
}


def choose_directory(directory: Path | None) -> Path:
    """Return ``directory``, created if missing, or a new temporary one. Raises UsageError if it is not empty."""
    if directory is None:
        # A subdirectory, because the worktrees are created next to the project.
        root = Path(tempfile.mkdtemp(prefix="liza-demo-")).resolve() / "shop"
        root.mkdir()
        return root
    root = directory.expanduser().resolve()
    try:
        root.mkdir(parents=True, exist_ok=True)
        if any(root.iterdir()):
            raise UsageError(f"{root} is not empty; the demo needs an empty or new directory", "liza demo")
    except OSError as error:
        raise UsageError(f"{root} cannot be created or read: {error.strerror}", "liza demo") from None
    return root


def create_project(root: Path, files: Mapping[str, str] = FILES) -> str:
    """Write and commit the project; return the commit. Raises Missing without git, GitFailed."""
    git = Git(root)
    git.out("init", "-q")
    git.out("symbolic-ref", "HEAD", "refs/heads/main")
    git.out("config", "user.name", "Demo Person")
    git.out("config", "user.email", "demo@liza.invalid")
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    git.out("add", "-A")
    git.out("commit", "-q", "-m", "A small shop")
    return git.out("rev-parse", "HEAD")
