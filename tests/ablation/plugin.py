"""``pytest -p tests.ablation.plugin --without NAME``: a run of tests with one defence switched off.

``--failures FILE`` writes down how each test failed: the exception, its bases, and the file it was raised in.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.ablation import defences, switches

NOTHING = "nothing"
_SITE = Path(__file__).parent / "site"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--without", default=NOTHING, help="the defence that is switched off")
    parser.addoption("--failures", default="", help="where to write down how tests failed")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    name = early_config.known_args_namespace.without
    if name == NOTHING:
        return
    if name not in defences.TABLE:
        raise pytest.UsageError(f"there is no defence {name!r}; there are: {', '.join(defences.TABLE)}")
    switches.arm(defences.TABLE[name].switches)
    os.environ[switches.NAME] = name
    kept = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = f"{_SITE}{os.pathsep}{kept}" if kept else str(_SITE)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    report = yield
    place = item.config.getoption("--failures")
    if place and report.failed and call.excinfo is not None:
        raised = [str(entry.path) for entry in call.excinfo.traceback]
        row = {
            "test": item.nodeid,
            "when": report.when,
            "kinds": [kind.__name__ for kind in call.excinfo.type.__mro__],
            "said": str(call.excinfo.value).strip().splitlines()[:1],
            "raised": raised[-1] if raised else "",
        }
        with Path(place).open("a") as out:
            out.write(json.dumps(row) + "\n")
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    session.config.stash[_CODE] = int(exitstatus)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """A test that failed half way may have left what this interpreter would wait for at its end."""
    if config.getoption("--without") != NOTHING and _CODE in config.stash:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(config.stash[_CODE])


_CODE = pytest.StashKey[int]()
