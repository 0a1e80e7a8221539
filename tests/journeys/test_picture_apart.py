"""`liza ui` needs a package that nothing else needs, and no other command loads a part of it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.journeys.crews import Crew
from tests.terminal_stand_in import TerminalStandIn

RUN = "import sys; from liza.cli.entry_points import run_command; {before}; code = run_command({words}); {after}"


@pytest.mark.parametrize("words", [["--help"], ["status"], ["help", "--all"]], ids=" ".join)
def test_no_other_command_loads_the_picture(crew: Crew, words: list[str]) -> None:
    after = "print('loaded', *[name for name in sys.modules if name.startswith(('liza.ui', 'textual', 'rich'))])"
    code = RUN.format(before="pass", words=words, after=after)
    done = subprocess.run([sys.executable, "-c", code], cwd=crew.root, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "loaded"


def test_without_its_package_the_picture_names_the_command_that_installs_it(crew: Crew) -> None:
    code = RUN.format(before="sys.modules['textual'] = None", words=["ui"], after="sys.exit(code)")
    with TerminalStandIn([sys.executable, "-c", code], crew.root, (200, 24)) as terminal:
        terminal.wait_for_text("liza ui needs the package textual")
        assert terminal.process.wait(60) == 5
        terminal.wait_for_text("install")
        assert "install 'textual" in terminal.text
