"""Read which modules the tests of a proof loaded; find links to a checkout if the interpreters logged nothing."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from liza.config.rules import test_proof
from liza.config.rules.test_proof import ProofObservation
from liza.model.value_classes import Value
from liza.project import detect

_PYTHON_LOG = Path(__file__).with_name("_import_log.py")
_NODE_LOG = Path(__file__).with_name("_require_log.cjs")
_MAX_NAMES_LENGTH = 20_000  # characters of module names in the environment of the tests, whose size is limited
_INSTALLED = ("/site-packages/", "/dist-packages/")
_NODE_SUFFIXES = (".js", ".mjs", ".cjs", ".jsx", ".ts", ".mts", ".cts", ".tsx")


class ProofSite(Value):
    """Site of a proof: the person's checkout, the slot, the sources that will be made to fail, the build files."""

    root: Path
    slot: Path
    broken_sources: tuple[str, ...]
    suffixes: frozenset[str]
    build_files: tuple[str, ...] = ()


@contextmanager
def record_imports(site: ProofSite) -> Iterator[tuple[dict[str, str], Path]]:
    """Yield the variables that make interpreters log the project's modules that they load, and the log file."""
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
            "LIZA_PROOF_ROOT": str(site.root.resolve()),
            "LIZA_PROOF_SLOT": str(site.slot.resolve()),
            "LIZA_PROOF_NAMES": ",".join(sorted({tail.split("/")[0] for tail in site.suffixes}))[:_MAX_NAMES_LENGTH],
        }
        yield variables, directory / "loads"


def read_observation(log: Path, site: ProofSite, texts: Sequence[str], path: str, keep: str | None) -> ProofObservation:
    """Return what the green run loaded. Call this before the sources in the slot are changed.

    ``texts`` are the commands that start the tests, ``path`` is their PATH, ``keep`` is ``config.environment``.
    """
    root, slot = site.root.resolve(), site.slot.resolve()
    started = log.with_name("began").stat().st_ctime_ns
    copies, broken = _CopyDetector(site), frozenset(site.broken_sources)
    loads: dict[str, dict[str, None]] = {"checkout": {}, "copies": {}, "namesakes": {}, "programs": {}}
    prefixes, is_python_traced = [], False
    for kind, loaded, program in _log_rows(log):
        installed = any(part in str(loaded) for part in _INSTALLED)
        if kind == "prefix":
            prefixes.append(loaded)
        elif loaded.is_relative_to(slot) and not installed:
            is_python_traced |= str(loaded.relative_to(slot)) in broken and loaded.suffix == ".py"
        elif loaded.is_relative_to(root) and str(loaded.relative_to(root)) in broken:
            loads["checkout"][str(loaded.relative_to(root))] = loads["programs"][program] = None
        elif (tail := matching_suffix(loaded, site.suffixes)) and _is_older(loaded, started):
            if copies.is_copy(loaded, tail):
                loads["copies"][str(loaded)] = loads["programs"][program] = None
            else:
                loads["namesakes"][str(loaded)] = None
    is_all_traced = is_python_traced and not any(map(test_proof.is_untraced_command, texts))
    untraced_python = () if is_all_traced else _untraced_python(site, prefixes, texts, path, keep)
    return ProofObservation(
        None,
        site.broken_sources,
        tuple(loads["checkout"]),
        tuple(loads["copies"]),
        tuple(loads["programs"]),
        namesakes=tuple(loads["namesakes"]),
        untraced=(*untraced_python, *_untraced_node(site)),
    )


def _log_rows(log: Path) -> Iterator[tuple[str, Path, str]]:
    rows = dict.fromkeys(log.read_text(errors="surrogateescape").splitlines()) if log.is_file() else ()
    for row in (line.split("\t") for line in rows):
        if len(row) == 3:
            yield row[0], Path(row[1]), row[2]


def matching_suffix(path: Path, suffixes: Collection[str]) -> str | None:
    """Return the end of a path that is one of ``suffixes``, else None."""
    parts = path.parts
    tails = ("/".join(parts[start:]) for start in range(1, len(parts)))
    return next((end for end in tails if end in suffixes), None)


def _is_older(path: Path, started: int) -> bool:
    """Whether a file is older than the test run: files that the tests create come from their own worktree."""
    try:
        return path.stat().st_ctime_ns < started
    except OSError:
        return False


class _CopyDetector:
    """Distinguish a copy of the project from another distribution that has a module of the same name."""

    def __init__(self, site: ProofSite) -> None:
        self.site = site
        self.project_distributions = test_proof.distribution_names(
            {name: _text(site.slot / name) for name in site.build_files}
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
        target = detect.install_source(info)
        return target is not None and any(
            target.is_relative_to(directory.resolve()) for directory in (self.site.root, self.site.slot)
        )

    def _has_equal_source(self, path: Path, tail: str) -> bool:
        """Whether a source of the slot has the same text.

        If a package has the project's name, only sources in the same directory as that package are compared.
        """
        own_directories = {
            source.removesuffix(own)
            for own in self.site.suffixes
            if self._is_own(own)
            for source in self._matching_sources(own)
        }
        text = _text(path)
        sources = [
            source
            for source in self._matching_sources(tail)
            if not own_directories or source.removesuffix(tail) in own_directories
        ]
        return bool(text.strip()) and any(_text(self.site.slot / source) == text for source in sources)

    def _matching_sources(self, tail: str) -> list[str]:
        return [name for name in self.site.broken_sources if name == tail or name.endswith(f"/{tail}")]


def _distribution_files(site: Path) -> list[tuple[Path, frozenset[str]]]:
    """Distributions in a directory, each with its files."""
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
    site: ProofSite, prefixes: Sequence[Path], texts: Sequence[str], path: str, keep: str | None
) -> tuple[str, ...]:
    """Reason why Python may have loaded from the checkout although nothing was logged: an environment links to it."""
    if not any(name.endswith(".py") for name in site.broken_sources):
        return ()
    programs = [word for text in texts for word in re.findall(r"[^\s'\"=;&|()<>]+", text)]
    paths = [site.slot / word if "/" in word else Path(shutil.which(word, path=path) or "/") for word in programs]
    prefixes_of_programs = [program.parent.parent for program in paths if program.parent.name == "bin"]
    environment_paths = dict.fromkeys((*prefixes, *prefixes_of_programs, *([Path(keep)] if keep else [])))
    links = (link for prefix in environment_paths for link in detect.find_checkout_links(prefix, site.root))
    return tuple(f"Python imports were not logged, and {link}" for link in dict.fromkeys(links))[:1]


def _untraced_node(site: ProofSite) -> tuple[str, ...]:
    """Reason why Node may have imported from the checkout: a linked package in a directory on its search path."""
    if not any(name.endswith(_NODE_SUFFIXES) for name in site.broken_sources):
        return ()
    root, slot = site.root.resolve(), site.slot.resolve()
    for directory in (slot, *slot.parents):
        modules = directory / "node_modules"
        for link in sorted((*modules.glob("*"), *modules.glob("@*/*"))):
            real = link.resolve()
            if real.is_relative_to(root) and not real.is_relative_to(slot) and "node_modules" not in real.parts:
                return (f"Node imports were not logged, and {link} leads to {real}",)
    return ()
