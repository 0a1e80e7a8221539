"""What the commands of a real program can do in its box: the actions of the table of boxes, through its shell tool."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import git
from tests.edges.box.test_box import ACTIONS, DONE, DRIVER
from tests.journeys.crews import BIN
from tests.real.conftest import Begin
from tests.real.model import Say, Shell, turns
from tests.real.test_headless import submitted

pytestmark = [pytest.mark.real, pytest.mark.needs("bwrap")]

LIZA = BIN / "liza"
_OF_THE_SITE = ("connect ", "user.name)", "registry", ".state", ".own", "tmux", "~/pipe", "README.md")
"""Words of actions that need the sockets or files of the table's own site."""
HERE = [action for action in ACTIONS if not any(word in action.command for word in _OF_THE_SITE)]
SCRIPT = """\
export REPO="$LIZA_ROOT" SLOTS="$(dirname "$PWD")" CACHE="$XDG_CACHE_HOME" OUTSIDE={outside}
export BOXES="$(dirname "$(dirname "$CACHE")")"
export STATE="$BOXES/$(basename "$PWD")/state"
{python} {home}/driver.py < {home}/actions.json > results.json
"""


@pytest.mark.parametrize("program", ["claude", "codex", "opencode", "gemini"])
def test_commands_of_a_program_can_do_what_its_box_allows(begin: Begin, program: str) -> None:
    home = Path(os.environ["HOME"])
    for name in (".ssh", ".gnupg", ".config/gh"):
        (home / name).mkdir(parents=True, exist_ok=True)
        (home / name / "secret").write_text("SECRET\n")
    (home / ".netrc").write_text("password SECRET\n")
    end = f"git add -A && git commit -q -m work && {LIZA} submit"
    script = turns(Shell(f"sh {home}/actions.sh"), Shell(end), Say("All of it is done."))
    scene = begin([program], script, confinement="required")
    (home / "actions.json").write_text(json.dumps([(action.name, action.command) for action in HERE]))
    (home / "driver.py").write_text(DRIVER)
    (home / "actions.sh").write_text(SCRIPT.format(outside=os.getpid(), python=sys.executable, home=home))
    scene.crew.add("one")
    before = git(scene.crew.root, "for-each-ref", "refs/heads/integration", "refs/heads/main")
    submitted(scene, program)
    results = json.loads(scene.crew.git("show", "task/one:results.json"))
    wrong = [
        f"{action.name}: {results[action.name]}, expected {action.expected}"
        for action in HERE
        if (results[action.name][0] == 0) is not (action.expected == DONE)
    ]
    assert wrong == []
    assert git(scene.crew.root, "for-each-ref", "refs/heads/integration", "refs/heads/main") == before
    assert git(scene.crew.root, "status", "--porcelain") == ""
