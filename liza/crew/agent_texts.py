"""Copy the contracts and specs that agents read into .liza."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from liza.model.errors import Missing
from liza.model.paths import Paths
from liza.system import installation

_PACKAGED_TEXTS = Path(__file__).parent.parent / "_texts"
_TOOL_RULES = {
    ".prettierrc": """\
# `prettier .` in your checkout leaves the files of Liza alone: it changes only files that ask for it.
requirePragma: true
overrides:
  - files: "*.json"
    options: { parser: yaml } # the parser of JSON has no pragma
""",
    ".markdownlint.json": '{ "default": false }\n',
}
"""Configurations for tools of the person that do not read git's file info/exclude, by the name of the file in .liza."""
SPEC_DIRECTORIES = ("architecture", "protocols")
_CHECKOUT_ROOT = Path(__file__).parent.parent.parent


def find_texts(name: str) -> Path:
    """Path of ``contracts``, ``examples`` or ``specs``: in the package, or in the checkout that liza runs from.

    Raises Missing.
    """
    for path in (_PACKAGED_TEXTS / name, _CHECKOUT_ROOT / name):
        if path.is_dir():
            return path
    raise Missing(f"this installation of Liza has no {name}", _restore_command(name))


def _restore_command(name: str) -> str:
    if (_CHECKOUT_ROOT / ".git").exists():
        return shlex.join(["git", "-C", str(_CHECKOUT_ROOT), "restore", name])
    return installation.reinstall_command()


def copy_texts(paths: Paths) -> None:
    """Copy the contracts to .liza/contracts and the specs they refer to to .liza/specs. Idempotent.

    Beside them, write the rules that keep the person's formatters and linters away from .liza.
    """
    for name, rules in _TOOL_RULES.items():
        (paths.liza / name).write_text(rules, encoding="utf-8")
    shutil.copytree(find_texts("contracts"), paths.contracts, dirs_exist_ok=True)
    for directory in SPEC_DIRECTORIES:
        shutil.copytree(find_texts("specs") / directory, paths.specs / directory, dirs_exist_ok=True)
