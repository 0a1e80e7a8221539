"""What the tests loaded in a proof, as interpreters noted it; and what leads to a checkout where they noted nothing."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from liza.crew.project import environments
from liza.rules.project import test_proof
from liza.rules.project.test_proof import ProofObservation

_PYTHON_LOG = Path(__file__).with_name("_import_log.py")
_NODE_LOG = Path(__file__).with_name("_require_log.cjs")
_MAX_NAMES_LENGTH = 20_000  # characters of module names that are handed to the tests
_INSTALLED = ("/site-packages/", "/dist-packages/")
_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")


@dataclass(frozen=True)
class ProofSite:
    """Where a proof runs: the person's checkout, the slot, the sources that will be made to fail, the build files."""

    root: Path
    slot: Path
    broken_sources: tuple[str, ...]
    suffixes: frozenset[str]
    build_files: tuple[str, ...] = ()


@contextmanager
def record_imports(place: ProofSite) -> Iterator[tuple[dict[str, str], Path]]:
    """Variables with which interpreters note the project's modules that they load, and the file with the notes."""
    with tempfile.TemporaryDirectory(prefix="liza-proof-") as name:
        directory = Path(name)
        shutil.copyfile(_PYTHON_LOG, directory / "sitecustomize.py")
        shutil.copyfile(_NODE_LOG, directory / "require.cjs")
        node = f"{os.environ.get('NODE_OPTIONS', '')} --require {directory / 'require.cjs'}".strip()
        (directory / "loads").touch(0o600)
        (directory / "began").touch()
        variables = {
            "PYTHONPATH": str(directory),
            "NODE_OPTIONS": node,
            "LIZA_PROOF_LOG": str(directory / "loads"),
            "LIZA_PROOF_ROOT": str(place.root.resolve()),
            "LIZA_PROOF_SLOT": str(place.slot.resolve()),
            "LIZA_PROOF_NAMES": ",".join(sorted({tail.split("/")[0] for tail in place.suffixes}))[:_MAX_NAMES_LENGTH],
        }
        yield variables, directory / "loads"


def read_observation(
    log: Path, place: ProofSite, texts: Sequence[str], path: str, keep: str | None
) -> ProofObservation:
    """What the green run loaded; the sources in the slot are still as they are.

    ``texts`` start the tests, ``path`` is their PATH, and ``keep`` is ``config.environment``.
    """
    home, slot = place.root.resolve(), place.slot.resolve()
    began = log.with_name("began").stat().st_ctime_ns
    copies, broken = _CopyDetector(place), frozenset(place.broken_sources)
    seen: dict[str, dict[str, None]] = {"checkout": {}, "copies": {}, "namesakes": {}, "programs": {}}
    prefixes, python_noted = [], False
    for kind, loaded, program in _log_rows(log):
        installed = any(part in str(loaded) for part in _INSTALLED)
        if kind == "prefix":
            prefixes.append(loaded)
        elif loaded.is_relative_to(slot) and not installed:
            python_noted |= str(loaded.relative_to(slot)) in broken and loaded.suffix == ".py"
        elif loaded.is_relative_to(home) and str(loaded.relative_to(home)) in broken:
            seen["checkout"][str(loaded.relative_to(home))] = seen["programs"][program] = None
        elif (tail := _matching_suffix(loaded, place.suffixes)) and _is_older(loaded, began):
            if copies.is_copy(loaded, tail):
                seen["copies"][str(loaded)] = seen["programs"][program] = None
            else:
                seen["namesakes"][str(loaded)] = None
    noted_all = python_noted and not any(map(test_proof.is_untraced_command, texts))
    unnoted = () if noted_all else _untraced_python(place, prefixes, texts, path, keep)
    return ProofObservation(
        None,
        place.broken_sources,
        untraced=(*unnoted, *_untraced_node(place)),
        **{key: tuple(names) for key, names in seen.items()},
    )


def _log_rows(log: Path) -> Iterator[tuple[str, Path, str]]:
    rows = dict.fromkeys(log.read_text(errors="surrogateescape").splitlines()) if log.is_file() else ()
    for row in (line.split("\t") for line in rows):
        if len(row) == 3:
            yield row[0], Path(row[1]), row[2]


def _matching_suffix(path: Path, tails: Collection[str]) -> str | None:
    parts = path.parts
    ends = ("/".join(parts[start:]) for start in range(1, len(parts)))
    return next((end for end in ends if end in tails), None)


def _is_older(path: Path, began: int) -> bool:
    """Whether a file is from before the tests began: what they make themselves they make of their own worktree."""
    try:
        return path.stat().st_ctime_ns < began
    except OSError:
        return False


class _CopyDetector:
    """Tells a copy of the project from another distribution that has a module of the same name."""

    def __init__(self, place: ProofSite) -> None:
        self.site = place
        self.project_distributions = test_proof.distribution_names(
            {name: _text(place.slot / name) for name in place.build_files}
        )
        self.files_by_distribution = cache(_distribution_files)

    def is_copy(self, path: Path, tail: str) -> bool:
        site = Path(str(path)[: -len(tail)])
        owner = next((info for info, files in self.files_by_distribution(site) if tail in files), None)
        if owner is not None:
            return test_proof.normalize_distribution(
                owner.name.split("-")[0]
            ) in self.project_distributions or self._leads_to_project(owner)
        return self._is_own(tail) or self._has_equal_source(path, tail)

    def _is_own(self, tail: str) -> bool:
        return test_proof.normalize_distribution(tail.split("/")[0]) in self.project_distributions

    def _leads_to_project(self, info: Path) -> bool:
        target = environments.install_source(info)
        return target is not None and any(
            target.is_relative_to(place.resolve()) for place in (self.site.root, self.site.slot)
        )

    def _has_equal_source(self, path: Path, tail: str) -> bool:
        """A package that lies beside the one that has the project's name, where one has."""
        beside = {
            one.removesuffix(own)
            for own in self.site.suffixes
            if self._is_own(own)
            for one in self._matching_sources(own)
        }
        text = _text(path)
        sources = [one for one in self._matching_sources(tail) if not beside or one.removesuffix(tail) in beside]
        return bool(text.strip()) and any(_text(self.site.slot / one) == text for one in sources)

    def _matching_sources(self, tail: str) -> list[str]:
        return [name for name in self.site.broken_sources if name == tail or name.endswith(f"/{tail}")]


def _distribution_files(site: Path) -> list[tuple[Path, frozenset[str]]]:
    """The distributions in a directory, each with its files."""
    return [
        (record.parent, frozenset(line.split(",")[0] for line in _text(record).splitlines()))
        for record in sorted(site.glob("*.dist-info/RECORD"))
    ]


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def _untraced_python(
    place: ProofSite, prefixes: Sequence[Path], texts: Sequence[str], path: str, keep: str | None
) -> tuple[str, ...]:
    """Why Python may have loaded from the checkout though it noted no load: an environment that leads there."""
    if not any(name.endswith(".py") for name in place.broken_sources):
        return ()
    programs = [word for text in texts for word in re.findall(r"[^\s'\"=;&|()<>]+", text)]
    named = [place.slot / word if "/" in word else Path(shutil.which(word, path=path) or "/") for word in programs]
    begun = [one.parent.parent for one in named if one.parent.name == "bin"]
    found = (one for prefix in dict.fromkeys((*prefixes, *begun, *([Path(keep)] if keep else [])))
             for one in environments.find_checkout_links(prefix, place.root))  # fmt: skip
    return tuple(f"loads of Python were not noted, and {one}" for one in dict.fromkeys(found))[:1]


def _untraced_node(place: ProofSite) -> tuple[str, ...]:
    """Why Node may have imported from the checkout: a linked package in a directory that it looks into."""
    if not any(name.endswith(_NODE_SUFFIXES) for name in place.broken_sources):
        return ()
    home, slot = place.root.resolve(), place.slot.resolve()
    for above in (slot, *slot.parents):
        modules = above / "node_modules"
        for link in sorted((*modules.glob("*"), *modules.glob("@*/*"))):
            real = link.resolve()
            if real.is_relative_to(home) and not real.is_relative_to(slot) and "node_modules" not in real.parts:
                return (f"loads of Node by import were not noted, and {link} leads to {real}",)
    return ()
