"""Ordinary projects of many kinds: their files, how they are set up and tested, and what a clean clone must pass."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.real.rigs import CACHE

TOOLS = CACHE / "set-ups"
PYTHON_TOOLS = ("pytest", "pytest-xdist", "pytest-cov", "tox", "uv", "poetry", "ruff")


@dataclass(frozen=True)
class SetUp:
    """A project. ``files``: its files by name. ``prepare``: shell commands that a person runs before the first commit.
    ``init``: words of `liza init` beside the goal. ``truth``: shell commands that a clean clone must pass.

    ``source`` is a file that tests read; ``broken`` is its text with which a test fails; ``other`` is a second source,
    with its own test, that a harmless change touches. ``needs``: programs. ``checkout``: shell commands of the person
    after the commits. ``before_merge``: those before the breaking change is merged; ``after``: commands that undo it.
    ``shared``: what the boxes see of the directory of the repository. ``expected``: how the word of a good change
    begins, after the person typed what `liza init` proposed.
    """

    name: str
    files: dict[str, str]
    init: tuple[str, ...]
    truth: str
    source: str
    broken: str
    other: str
    prepare: str = ""
    checkout: str = ""
    needs: tuple[str, ...] = ()
    before_merge: str = ""
    after: str = ""
    expected: str = "tested"
    executable: tuple[str, ...] = ()
    shared: str = ""


def _python(**more: str) -> dict[str, str]:
    return {
        "shop/__init__.py": "def add(a, b):\n    return a + b\n",
        "shop/greet.py": 'def greet():\n    return "hi"\n',
        "tests/test_add.py": "import shop\n\n\ndef test_add():\n    assert shop.add(1, 2) == 3\n",
        "tests/test_greet.py": 'from shop.greet import greet\n\n\ndef test_greet():\n    assert greet() == "hi"\n',
        "pyproject.toml": '[tool.pytest.ini_options]\npythonpath = ["."]\n',
        ".gitignore": "__pycache__\n.pytest_cache\n.venv\n.tox\n*.egg-info\n.ruff_cache\ncov\n",
        **more,
    }


PY = {"source": "shop/greet.py", "broken": "def greet():\n    return 1\n", "other": "shop/__init__.py"}


def _node(test: str, dev: dict[str, str] | None = None, **more: str) -> dict[str, str]:
    package = {"name": "shop", "version": "1.0.0", "private": True, "scripts": {"test": test}}
    if dev:
        package["devDependencies"] = dev
    return {
        "package.json": json.dumps(package, indent=2) + "\n",
        "src/greet.js": 'module.exports = () => "hi";\n',
        "src/add.js": "module.exports = (a, b) => a + b;\n",
        ".gitignore": "node_modules\ncoverage\n.turbo\n",
        **more,
    }


JS = {"source": "src/greet.js", "broken": "module.exports = () => 1;\n", "other": "src/add.js"}
_NODE_TESTS = {
    "test/greet.test.js": (
        'const test = require("node:test");\nconst assert = require("node:assert");\n'
        'test("greet", () => assert.equal(require("../src/greet")(), "hi"));\n'
    ),
    "test/add.test.js": (
        'const test = require("node:test");\nconst assert = require("node:assert");\n'
        'test("add", () => assert.equal(require("../src/add")(1, 2), 3));\n'
    ),
}
_JEST_TESTS = {
    "test/greet.test.js": 'test("greet", () => expect(require("../src/greet")()).toBe("hi"));\n',
    "test/add.test.js": 'test("add", () => expect(require("../src/add")(1, 2)).toBe(3));\n',
}
_LOCK = "npm install --no-audit --no-fund --silent"
_CLEAN_NPM = "npm ci --no-audit --no-fund --silent"

_EDITABLE = 'python3 -m venv .venv && .venv/bin/pip install -q -e ".[dev]"'
_UV_PROJECT = '[project]\nname = "shop"\nversion = "1.0.0"\nrequires-python = ">=3.11"\ndependencies = ["iniconfig"]\n'
_SERVER = (
    'const http = require("http");\nconst greet = require("./src/greet");\n'
    "http.createServer((q, s) => s.end(String(greet()))).listen(8931, '127.0.0.1');\n"
)
_E2E = """\
#!/bin/sh
ask() { node -e 'fetch("http://127.0.0.1:8931").then(r => r.text()).then(t => console.log(t), () => process.exit(1))'; }
ask > /dev/null || {
  node server.js & P=$!; trap "kill $P" EXIT
  for i in 1 2 3 4 5 6 7 8 9; do ask > /dev/null && break; sleep 0.2; done
}
[ "$(ask)" = hi ]
"""
_AFFECTED = """\
#!/bin/sh
for name in $(git diff --name-only HEAD~1); do
  case $name in shop/__init__.py) t=tests/test_add.py ;; shop/greet.py) t=tests/test_greet.py ;; *) continue ;; esac
  pytest -q $t || exit 1
done
"""
_GO_TEST = """\
package shop

import "testing"

func Test{name}(t *testing.T) {{
\tif {call} != {wanted} {{
\t\tt.Fatal()
\t}}
}}
"""
_GO = {
    "go.mod": "module shop\n\ngo 1.19\n",
    "greet.go": '//go:generate sh gen.sh\npackage shop\n\nfunc Greet() string { return "hi" }\n',
    "add.go": "package shop\n\nfunc Add(a, b int) int { return a + b + zero }\n",
    "gen.sh": 'printf "package shop\\n\\nconst zero = 0\\n" > zero.go\n',
    "zero.go": "package shop\n\nconst zero = 0\n",
    "greet_test.go": _GO_TEST.format(name="Greet", call="Greet()", wanted='"hi"'),
    "add_test.go": _GO_TEST.format(name="Add", call="Add(1, 2)", wanted="3"),
}
_FIX = """\
sed -i 's/return 1/return "hi"/' shop/greet.py
ruff check -q --fix . && pytest -q
"""
_SERVICE = """\
#!/bin/sh
[ -f "$SHOP_SERVICE" ] || { echo "the service does not answer"; exit 1; }
exec pytest -q
"""

SET_UPS = (
    SetUp("pytest", _python(), ("--test", "pytest -q"), "pytest -q", **PY),
    SetUp("xdist", _python(), ("--test", "pytest -q -n 2"), "pytest -q", **PY),
    SetUp(
        "tox",
        _python(**{"tox.ini": "[tox]\nskipsdist = true\n[testenv]\ndeps = pytest\ncommands = pytest -q\n"}),
        ("--test", "tox -q"),
        "pytest -q",
        **PY,
    ),
    SetUp(
        "uv",
        _python(
            **{
                "pyproject.toml": _UV_PROJECT
                + '[dependency-groups]\ndev = ["pytest"]\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
            }
        ),
        (),
        "uv sync -q && uv run pytest -q",
        prepare="uv lock -q",
        **PY,
    ),
    SetUp(
        "poetry",
        _python(
            **{
                "pyproject.toml": (
                    '[project]\nname = "shop"\nversion = "1.0.0"\nrequires-python = ">=3.11"\n'
                    "[tool.poetry]\npackage-mode = false\n"
                    '[tool.pytest.ini_options]\npythonpath = ["."]\n'
                ),
                "poetry.toml": "[virtualenvs]\nin-project = true\n",
            }
        ),
        (),
        "poetry install -q && poetry run pytest -q",
        prepare="poetry lock -q",
        **PY,
    ),
    SetUp(
        "pip editable",
        {
            **_python(),
            "pyproject.toml": (
                '[project]\nname = "shop"\nversion = "1.0.0"\n[project.optional-dependencies]\ndev = ["pytest"]\n'
                '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
                '[tool.setuptools]\npackages = ["shop"]\n'
            ),
        },
        ("--setup", _EDITABLE, "--test", ".venv/bin/python -m pytest -q"),
        f"{_EDITABLE} && .venv/bin/python -m pytest -q",
        **PY,
    ),
    SetUp("npm", _node("node --test test", **_NODE_TESTS), (), f"{_CLEAN_NPM} && npm test", prepare=_LOCK, **JS),
    SetUp(
        "npm workspaces",
        {
            "package.json": json.dumps(
                {"name": "all", "private": True, "workspaces": ["packages/*"], "scripts": {"test": "npm test -ws"}}
            ),
            ".gitignore": "node_modules\n",
            "packages/greet/package.json": json.dumps(
                {"name": "greet", "version": "1.0.0", "scripts": {"test": "node --test test.js"}}
            ),
            "packages/greet/index.js": 'module.exports = () => "hi";\n',
            "packages/greet/test.js": 'require("node:assert").equal(require("./index")(), "hi");\n',
            "packages/shop/package.json": json.dumps(
                {
                    "name": "shop",
                    "version": "1.0.0",
                    "dependencies": {"greet": "1.0.0"},
                    "scripts": {"test": "node test.js"},
                }
            ),
            "packages/shop/index.js": 'module.exports = () => require("greet")() + "!";\n',
            "packages/shop/test.js": 'require("node:assert").equal(require("./index")(), "hi!");\n',
        },
        (),
        f"{_CLEAN_NPM} && npm test",
        source="packages/greet/index.js",
        broken="module.exports = () => 1;\n",
        other="packages/shop/index.js",
        prepare=_LOCK,
    ),
    SetUp(
        "pnpm workspaces",
        {
            "package.json": json.dumps({"name": "all", "private": True, "scripts": {"test": "pnpm -r test"}}),
            "pnpm-workspace.yaml": "packages: ['packages/*']\n",
            ".gitignore": "node_modules\n",
            "packages/greet/package.json": json.dumps(
                {"name": "greet", "version": "1.0.0", "scripts": {"test": "node --test test.js"}}
            ),
            "packages/greet/index.js": 'module.exports = () => "hi";\n',
            "packages/greet/test.js": 'require("node:assert").equal(require("./index")(), "hi");\n',
            "packages/add/package.json": json.dumps(
                {"name": "add", "version": "1.0.0", "scripts": {"test": "node --test test.js"}}
            ),
            "packages/add/index.js": "module.exports = (a, b) => a + b;\n",
            "packages/add/test.js": 'require("node:assert").equal(require("./index")(1, 2), 3);\n',
        },
        (),
        "pnpm install --silent --frozen-lockfile && pnpm -r test",
        source="packages/greet/index.js",
        broken="module.exports = () => 1;\n",
        other="packages/add/index.js",
        prepare="pnpm install --silent",
    ),
    SetUp(
        "jest -o",
        _node("jest -o", {"jest": "29"}, **_JEST_TESTS),
        (),
        f"{_CLEAN_NPM} && npx jest",
        prepare=_LOCK,
        expected="untested",
        **JS,
    ),
    SetUp(
        "jest --changedSince",
        _node("jest --changedSince=HEAD~1", {"jest": "29"}, **_JEST_TESTS),
        (),
        f"{_CLEAN_NPM} && npx jest",
        prepare=_LOCK,
        **JS,
    ),
    SetUp(
        "vitest",
        _node(
            "vitest run",
            {"vitest": "2"},
            **{
                "test/greet.test.js": (
                    'import { test, expect } from "vitest";\nimport greet from "../src/greet";\n'
                    'test("greet", () => expect(greet()).toBe("hi"));\n'
                ),
                "test/add.test.js": (
                    'import { test, expect } from "vitest";\nimport add from "../src/add";\n'
                    'test("add", () => expect(add(1, 2)).toBe(3));\n'
                ),
                "src/greet.js": 'export default () => "hi";\n',
                "src/add.js": "export default (a, b) => a + b;\n",
            },
        ),
        (),
        f"{_CLEAN_NPM} && npx vitest run",
        prepare=_LOCK,
        source="src/greet.js",
        broken="export default () => 1;\n",
        other="src/add.js",
    ),
    SetUp(
        "dev server",
        _node("./e2e", **{"server.js": _SERVER, "e2e": _E2E}),
        ("--test", "./e2e"),
        "./e2e",
        executable=("e2e",),
        before_merge="node server.js & echo $! > ../server.pid; sleep 1",
        after="kill $(cat ../server.pid)",
        **JS,
    ),
    SetUp(
        "go generate",
        _GO,
        ("--test", "go generate ./... && go test ./..."),
        "go test ./...",
        source="greet.go",
        broken='//go:generate sh gen.sh\npackage shop\n\nfunc Greet() string { return "no" }\n',
        other="add.go",
        needs=("go",),
    ),
    SetUp("make", _python(Makefile="test:\n\tpytest -q\n"), (), "make test", needs=("make",), **PY),
    SetUp(
        "affected only",
        _python(affected=_AFFECTED),
        ("--test", "./affected"),
        "pytest -q",
        executable=("affected",),
        **PY,
    ),
    SetUp(
        "--fix before tests",
        _python(
            **{"fix.sh": 'sed -i "s/return 1/return \\"hi\\"/" shop/greet.py\nruff check -q --fix . && pytest -q\n'}
        ),
        ("--test", "sh fix.sh"),
        "pytest -q",
        **PY,
    ),
    SetUp(
        "service that is down",
        _python(service=_SERVICE),
        ("--test", "./service"),
        "pytest -q",
        executable=("service",),
        before_merge="rm -f $SHOP_SERVICE",
        shared="service-runs",
        after="touch $SHOP_SERVICE",
        **PY,
    ),
    SetUp(
        "sparse monorepo",
        _python(),
        ("--test", "pytest -q"),
        "pytest -q",
        checkout="git sparse-checkout set tests",
        **PY,
    ),
)

_OLD_LOCK = {"name": "shop", "version": "1.0.0", "lockfileVersion": 1, "requires": True, "dependencies": {}}
_POSTGRES = """\
#!/bin/sh
[ "$(psql -qtA -h 127.0.0.1 -p 8941 -U shop -d postgres -c 'select 3')" = 3 ] && exec pytest -q
"""
_START_POSTGRES = """\
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
place=$(mktemp -d /tmp/liza-postgres.XXXXXX)
chown postgres "$place"
echo "$place" > ../postgres
cd "$place"
runuser -u postgres -- $bin/initdb -D data -U shop -A trust > /dev/null
runuser -u postgres -- $bin/pg_ctl -D data -w -l log \\
  -o "-p 8941 -c listen_addresses=127.0.0.1 -k $place" start > /dev/null
"""
_STOP_POSTGRES = """\
bin=$(ls -d /usr/lib/postgresql/*/bin | tail -1)
place=$(cat ../postgres)
cd "$place" && runuser -u postgres -- $bin/pg_ctl -D data stop -m fast > /dev/null
rm -rf "$place"
"""
_TOKEN = """\
#!/bin/sh
[ -z "$CI" ] || [ -n "$DEPLOY_TOKEN" ] || { echo "DEPLOY_TOKEN is not set"; exit 1; }
exec pytest -q
"""

GO_ON = (
    SetUp(
        "tracked coverage file",
        _python(),
        ("--test", "pytest -q --cov=shop --cov-report=xml"),
        "pytest -q",
        prepare="pytest -q --cov=shop --cov-report=xml",
        expected="tested, but the tests change",
        **PY,
    ),
    SetUp(
        "npm install that rewrites its lock",
        _node("node --test test", **_NODE_TESTS, **{"package-lock.json": json.dumps(_OLD_LOCK)}),
        ("--setup", "npm install --no-audit --no-fund", "--test", "npm test"),
        "npm test",
        expected="tested",
        **JS,
    ),
    SetUp(
        "CRLF before .gitattributes",
        _python(**{"docs/dos.txt": "one\r\ntwo\r\n"}),
        ("--test", "pytest -q"),
        "pytest -q",
        checkout="echo '*.txt text=auto' > .gitattributes; git add .gitattributes; git commit -qm attributes",
        **PY,
    ),
    SetUp(
        "chmod in tests",
        _python(run="#!/bin/sh\npytest -q\n", check="chmod +x run && ./run\n"),
        ("--test", "sh check"),
        "pytest -q",
        expected="tested, but the tests change run",
        **PY,
    ),
    SetUp(
        "local PostgreSQL",
        _python(check=_POSTGRES),
        ("--test", "./check"),
        "pytest -q",
        executable=("check",),
        checkout=_START_POSTGRES,
        after=_STOP_POSTGRES,
        needs=("psql", "runuser"),
        **PY,
    ),
    SetUp("token in CI", _python(check=_TOKEN), ("--test", "./check"), "pytest -q", executable=("check",), **PY),
    SetUp(
        "sparse partial clone with the remote away",
        _python(**{"assets/large.txt": "large\n"}),
        ("--test", "pytest -q", "--checkout", "sparse"),
        "pytest -q",
        checkout=(
            "git clone -q --bare . ../origin.git; git -C ../origin.git config uploadpack.allowFilter true; cd ..;"
            "git clone -q --filter=blob:none --sparse file://$PWD/origin.git partial; cd partial;"
            "git sparse-checkout set shop tests; cd ..; mv repo full; mv partial repo; mv origin.git away.git"
        ),
        expected="tested, but only shop, tests",
        **PY,
    ),
    SetUp(
        "uv.lock after a version bump",
        _python(
            **{
                "pyproject.toml": _UV_PROJECT
                + '[dependency-groups]\ndev = ["pytest"]\n[tool.pytest.ini_options]\npythonpath = ["."]\n'
            }
        ),
        (),
        "uv sync -q && uv run pytest -q",
        prepare='uv lock -q && sed -i \'s/version = "1.0.0"/version = "1.1.0"/\' pyproject.toml',
        expected="tested, but the tests change uv.lock",
        **PY,
    ),
    SetUp(
        "LFS",
        _python(
            **{"assets/big.bin": "large\n" * 1000, "check": "test $(wc -c < assets/big.bin) = 6000 && pytest -q\n"}
        ),
        ("--test", "sh check"),
        "pytest -q",
        prepare="git lfs install --local > /dev/null; git lfs track '*.bin' > /dev/null",
        needs=("git-lfs",),
        **PY,
    ),
    SetUp(
        "git submodule update",
        _python(check="git submodule update --init -q && test -f lib/README && pytest -q\n"),
        ("--test", "sh check"),
        "pytest -q",
        prepare=(
            "git init -q -b main ../lib && (cd ../lib && echo lib > README && git add -A && git commit -qm lib);"
            "git submodule add -q $(realpath ../lib) lib"
        ),
        shared="lib",
        **PY,
    ),
)
"""Set-ups that change files while they test, or that a strict rule would refuse. Their good changes are merged."""


def install_tools() -> str | None:
    """Install the programs that the set-ups need; why that failed, if it did."""
    if (TOOLS / "installed").exists():
        return None
    python = TOOLS / "bin" / "python"
    steps = [
        [sys.executable, "-m", "venv", str(TOOLS)],
        [str(python), "-m", "pip", "install", "-q", *PYTHON_TOOLS],
        ["npm", "install", "--silent", "-g", "--prefix", str(TOOLS), "pnpm@9"],
    ]
    for words in steps:
        done = subprocess.run(words, capture_output=True, text=True, timeout=900, check=False)
        if done.returncode:
            return f"{' '.join(words)}: {done.stderr[-300:]}"
    (TOOLS / "installed").touch()
    return None


def environment(home: Path) -> dict[str, str]:
    """The environment of a person with a home of their own."""
    home.mkdir(parents=True, exist_ok=True)
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LIZA_", "GIT_", "npm_", "UV_"))}
    own = Path(sys.executable).parent  # its pytest must not be that of the project
    others = (entry for entry in os.environ["PATH"].split(os.pathsep) if Path(entry) != own)
    path = os.pathsep.join((str(TOOLS / "bin"), *others))
    return {**kept, "HOME": str(home), "PATH": path, "npm_config_update_notifier": "false", "GOFLAGS": "-mod=mod"}
