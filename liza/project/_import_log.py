"""The ``sitecustomize`` of a proof: log which of the project's modules Python loads, and from where.

Copied into a directory on PYTHONPATH while the tests run. It must run on each Python 3 of a project, so it uses old
syntax only. A line is ``file<TAB>PATH<TAB>INTERPRETER``, or ``prefix<TAB>ENVIRONMENT<TAB>INTERPRETER``.
"""

# ruff: noqa: PTH100, PTH120

import os
import sys

_MAX_LINES = 2000  # lines of one process
_MAX_OWN_LINES = 200  # lines of one process about files of the worktree: a few are enough to show that it is used
_INSTALLED = ("/site-packages/", "/dist-packages/")


class _ImportLogger:
    """A meta path finder that asks the other finders and logs what they found."""

    def __init__(self, log: str, root: str, slot: str, names: "list[str]") -> None:
        self.log, self.root, self.slot = log, root.rstrip("/") + "/", slot.rstrip("/") + "/"
        self.names = set(names) - set(getattr(sys, "stdlib_module_names", ()))
        self.logged: set[str] = set()
        self.own_lines = 0

    def find_spec(self, name: str, path: object = None, target: object = None) -> object:
        for finder in list(sys.meta_path):
            find = getattr(finder, "find_spec", None)
            if find is None or find == self.find_spec:
                continue
            spec = find(name, path, target)
            if spec is not None:
                self.log_origin(name, getattr(spec, "origin", None))
                return spec
        return None

    def log_origin(self, name: str, origin: object) -> None:
        if not isinstance(origin, str) or origin in self.logged or len(self.logged) > _MAX_LINES:
            return
        real = os.path.realpath(origin)
        installed = any(part in real for part in _INSTALLED)
        if real.startswith(self.slot) and not installed:
            self.own_lines += 1
            if self.own_lines > _MAX_OWN_LINES:
                return
        elif not (real.startswith(self.root) and not installed) and name.split(".")[0] not in self.names:
            return
        self.logged.add(origin)
        self.write("file", real)

    def write(self, kind: str, path: str) -> None:
        line = "\t".join((kind, path, sys.executable or "python")) + "\n"
        try:
            descriptor = os.open(self.log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                os.write(descriptor, line.encode("utf-8", "surrogateescape"))
            finally:
                os.close(descriptor)
        except OSError:
            pass


def _install() -> None:
    environ = os.environ
    log = environ.get("LIZA_PROOF_LOG")
    if not log:
        return
    names = environ.get("LIZA_PROOF_NAMES", "").split(",")
    finder = _ImportLogger(log, environ.get("LIZA_PROOF_ROOT", "/"), environ.get("LIZA_PROOF_SLOT", "/"), names)
    sys.meta_path.insert(0, finder)  # type: ignore[arg-type]
    finder.write("prefix", sys.prefix)
    # Remove this directory from the path, and load the machine's own sitecustomize instead of this module.
    directory = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [entry for entry in sys.path if os.path.abspath(entry) != directory]
    this_module = sys.modules.pop("sitecustomize", None)
    try:
        import sitecustomize  # type: ignore[import-not-found]  # noqa: F401
    except ImportError:
        if this_module is not None:
            sys.modules["sitecustomize"] = this_module


_install()
