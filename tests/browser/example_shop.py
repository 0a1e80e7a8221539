"""Hold the example crew open in a process of its own: ``python -m tests.browser.example_shop ROOT``, until stdin ends.

The sessions of the crew seem to run in this process: the browser of a person must not descend from it.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from liza.crew.crew import Crew
from tests.pictures.example_crew import open_example

REVIEWED = "invoice-mail"
"""The task with a commit, which a reviewer reviews."""
RECORDED_COMMIT = "1d6e1cf70ec6f9ab28d3ea4b27a49a77654d370e"
"""Its commit on the example board, which is in no repository."""
MAIL = """\
def send(invoice, address, server):
    \"\"\"Send an invoice; try again if the server refuses once.\"\"\"
    message = compose(invoice, sender="billing@shop.example", recipient=address, subject=f"Invoice {invoice.number}")
    for attempt in (1, 2):
        if server.accepts(message):
            return attempt
    raise Refused(address)
"""


def commit_reviewed_work(crew: Crew) -> None:
    """Commit the work of the task under review, with a line wider than a phone."""
    task = crew.board.read().task(REVIEWED)
    assert task.worktree is not None
    worktree = crew.paths.slot(task.worktree)
    (worktree / "shop").mkdir()
    (worktree / "shop" / "mail.py").write_text(MAIL)
    (worktree / "docs" / "invoice.md").write_text("# Invoices\n\n## Mail\n\nAn invoice goes out by mail.\n")
    for words in ("add .", "-c commit.gpgsign=false commit -q -m Mail"):
        subprocess.run(["git", *words.split()], cwd=worktree, check=True)
    head = subprocess.run(["git", "rev-parse", "HEAD"], cwd=worktree, check=True, capture_output=True, text=True)
    crew.board.replace_text("human:ana", crew.board.read_text().replace(RECORDED_COMMIT, head.stdout.strip()))


def main(root: Path) -> None:
    with open_example(root, is_troubled=True) as crew:
        commit_reviewed_work(crew)
        print("ready", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
