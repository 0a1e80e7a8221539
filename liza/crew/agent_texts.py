"""The contracts and specs that agents read, laid into the crew's own directory."""

from __future__ import annotations

import shutil
from pathlib import Path

from liza.rules.errors import Missing
from liza.rules.paths import Paths

_PACKAGED_TEXTS = Path(__file__).parent.parent / "_texts"
SPEC_DIRECTORIES = ("architecture", "protocols")
_CHECKOUT_ROOT = Path(__file__).parent.parent.parent


def find_texts(name: str) -> Path:
    """Where ``contracts`` or ``specs`` lie: in the package, or in the checkout it runs from. Raises Missing."""
    for place in (_PACKAGED_TEXTS / name, _CHECKOUT_ROOT / name):
        if place.is_dir():
            return place
    raise Missing(f"this installation of Liza has no {name}", "pip install --force-reinstall liza")


def copy_texts(paths: Paths) -> None:
    """Put the contracts into .liza/contracts and the specs that they point at into .liza/specs. Repeatable."""
    shutil.copytree(find_texts("contracts"), paths.contracts, dirs_exist_ok=True)
    for part in SPEC_DIRECTORIES:
        shutil.copytree(find_texts("specs") / part, paths.specs / part, dirs_exist_ok=True)
