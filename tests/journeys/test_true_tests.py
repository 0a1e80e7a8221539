"""On repositories of ordinary shape a merge that breaks the code is red, a good one green, and a fresh clone agrees."""

from __future__ import annotations

import json
import os
import site
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.conftest import commit_all, git, worktree_of
from tests.journeys.crews import QUICK, Crew
from tests.servers import Servers, choose_port
from tests.servers import servers as servers

PACKAGES = site.getsitepackages()[0]
"""Where pytest is, for environments that are made without a network."""


CONFINEMENTS = pytest.mark.parametrize(
    "confinement", ["off", pytest.param("required", marks=pytest.mark.needs("bwrap"))]
)


def begun(tmp_path: Path, files: Mapping[str, str]) -> Crew:
    """A project with these files committed, and no crew yet."""
    root = tmp_path / "project"
    (tmp_path / "notes").mkdir()
    root.mkdir()
    git(root, "init", "-q", "-b", "main")
    write(root, {"README.md": "# A project\n", **files})
    return Crew(root, tmp_path / "notes")


def write(root: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    commit_all(root, "files")


def merged(crew: Crew, task: str, name: str, text: str) -> str:
    """The status of a task, approved and offered for merging, that wrote ``text`` into the file ``name``."""
    crew.add(task)
    crew.liza("claim", task, "--agent", "coder-1")
    there = worktree_of(crew.root, task)
    write(there, {name: text})
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "looks ok", "--task", task)
    crew.run("merge", task)
    return crew.status(task)


def passes_in_a_fresh_clone(crew: Crew, tmp_path: Path) -> bool:
    """Whether set-up and tests of the board pass in a clone of integration, without an activated environment."""
    there = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "-b", "integration", str(crew.root), str(there))
    config = crew.state().config
    env = {name: os.environ[name] for name in ("PATH", "HOME")}
    command = " && ".join(filter(None, (config.sandbox_setup, config.integration_command)))
    return subprocess.run(command, shell=True, cwd=there, env=env, check=False, capture_output=True).returncode == 0


def bad_is_red_and_good_is_green(crew: Crew, tmp_path: Path, source: str, bad: str, good: str) -> None:
    before = crew.git("rev-parse", "integration")
    assert merged(crew, "bad", source, bad) == "INTEGRATION_FAILED"
    assert crew.git("rev-parse", "integration") == before
    assert merged(crew, "good", source, good) == "MERGED"
    assert crew.task("good").tested is True
    assert crew.git("show", f"integration:{source}") == good.rstrip("\n")
    assert passes_in_a_fresh_clone(crew, tmp_path)


PYTHON = {
    "src/invo/__init__.py": "def add(a, b):\n    return a + b\n",
    "tests/test_add.py": "from invo import add\n\n\ndef test_add():\n    assert add(1, 2) == 3\n",
    "pyproject.toml": '[project]\nname = "invo"\nversion = "1"\n[project.optional-dependencies]\ndev = ["pytest"]\n'
    '[tool.pytest.ini_options]\ntestpaths = ["tests"]\n',
    ".gitignore": ".venv/\n__pycache__/\n",
    # As `pip install -e .` does it, without a network.
    "set-up.sh": f"""\
{sys.executable} -m venv --without-pip .venv
cd .venv/lib/python3*/site-packages
echo {PACKAGES} > packages.pth
echo "${{1-$OLDPWD/src}}" > __editable__.invo-1.pth
""",
}
GOOD, BAD = "def add(a, b):\n    return b + a\n", 'def add(a, b):\n    raise SystemExit("BROKEN")\n'


def activated(venv: Path) -> dict[str, str]:
    return {"VIRTUAL_ENV": str(venv), "PATH": f"{venv}/bin:{os.environ['PATH']}"}


@CONFINEMENTS
@pytest.mark.campaign
def test_a_python_package_installed_editable_in_an_activated_environment(tmp_path: Path, confinement: str) -> None:
    crew = begun(tmp_path, PYTHON)
    subprocess.run(["sh", "set-up.sh"], cwd=crew.root, check=True)
    venv = crew.root / ".venv"
    here = activated(venv)
    subprocess.run(["python3", "-m", "pytest", "-q"], cwd=crew.root, env={**os.environ, **here}, check=True)

    told = crew.run("init", "Numbers add up", **here)
    assert told.returncode == 1
    assert f"{venv} is activated but not used: it has this checkout installed (__editable__" in told.stdout
    assert f"left out  from the environment of tests and sessions: VIRTUAL_ENV; from PATH {venv}/bin" in told.stdout
    setup = "python3 -m venv .venv && .venv/bin/pip install -q -e '.[dev]'"
    test = ".venv/bin/python -m pytest -q"
    assert f'next: liza init \'Numbers add up\' --setup "{setup}" --test "{test}"' in told.stderr

    told = crew.run("init", "Numbers add up", "--test", f"{venv}/bin/python -m pytest -q", **here)
    assert told.returncode == 1
    assert f"leads to {venv.parent}/src" in told.stderr

    words = ("--setup", "sh set-up.sh", "--test", test, "--confinement", confinement)
    said = crew.liza("init", "Numbers add up", *words, **here)
    assert "proof     the tests fail when the sources of their own worktree fail" in said
    bad_is_red_and_good_is_green(crew, tmp_path, "src/invo/__init__.py", BAD, GOOD)


@CONFINEMENTS
@pytest.mark.campaign
def test_an_activated_environment_of_dependencies_is_used_without_activation(tmp_path: Path, confinement: str) -> None:
    text = PYTHON["pyproject.toml"] + 'pythonpath = ["src"]\n'
    crew = begun(tmp_path, {**PYTHON, "pyproject.toml": text})
    subprocess.run(["sh", "set-up.sh", str(tmp_path)], cwd=crew.root, check=True)
    crew.liza("init", "Numbers add up", "--confinement", confinement, **activated(crew.root / ".venv"))
    assert crew.state().config.environment == str(crew.root / ".venv")
    assert crew.state().config.proof.outcome == "proved"
    before = crew.git("rev-parse", "integration")
    assert "comes first on PATH" in crew.run("doctor").stdout
    assert merged(crew, "bad", "src/invo/__init__.py", BAD) == "INTEGRATION_FAILED"
    assert crew.git("rev-parse", "integration") == before
    assert merged(crew, "good", "src/invo/__init__.py", GOOD) == "MERGED"


@CONFINEMENTS
@pytest.mark.needs("node")
@pytest.mark.campaign
def test_a_node_project_with_modules_of_its_own(tmp_path: Path, confinement: str) -> None:
    crew = begun(
        tmp_path,
        {
            "package.json": json.dumps({"name": "shop", "scripts": {"test": "node --test tests/"}}),
            "lib/index.js": "exports.add = (a, b) => require('dep')(a, b);\n",
            "tests/add.test.js": "const test = require('node:test'), assert = require('node:assert');\n"
            "test('adds', () => assert.equal(require('../lib/index.js').add(1, 2), 3));\n",
            ".gitignore": "node_modules/\n",
            "vendor/dep.js": "module.exports = (a, b) => a + b;\n",
        },
    )
    setup = "mkdir -p node_modules/dep && cp vendor/dep.js node_modules/dep/index.js"
    words = ("--setup", setup, "--test", "node --test tests/", "--confinement", confinement)
    said = crew.liza("init", "Numbers add up", *words)
    assert "proof     the tests fail when the sources of their own worktree fail" in said
    good = "exports.add = (a, b) => require('dep')(b, a);\n"
    bad_is_red_and_good_is_green(crew, tmp_path, "lib/index.js", "throw new Error('BROKEN');\n", good)


@CONFINEMENTS
@pytest.mark.campaign
def test_a_monorepo_with_a_submodule_fetches_it_in_each_worktree(tmp_path: Path, confinement: str) -> None:
    with (Path(os.environ["HOME"]) / ".gitconfig").open("a") as configured:
        configured.write('[protocol "file"]\n\tallow = always\n')
    sub = tmp_path / "sub"
    sub.mkdir()
    git(sub, "init", "-q", "-b", "main")
    write(sub, {"rate.py": "RATE = 2\n"})
    crew = begun(
        tmp_path,
        {
            "api/app/__init__.py": "",
            "api/app/price.py": "import sys\n\nsys.path.append('../vendor/sub')\n"
            "from rate import RATE\n\nPRICE = 5 * RATE\n",
            "api/tests/test_price.py": "import unittest\nfrom app.price import PRICE\n\n\n"
            "class Price(unittest.TestCase):\n    def test(self):\n        self.assertEqual(PRICE, 10)\n",
            ".gitignore": "__pycache__/\n",
        },
    )
    (crew.root / "api" / "requirements.txt").write_text("# none\n")
    git(crew.root, "submodule", "add", "-q", str(sub), "vendor/sub")
    write(crew.root, {})
    said = crew.liza("init", "Prices are right", "--confinement", confinement, "--share", str(sub))
    assert "set-up    git submodule update --init --recursive:" in said
    assert "baseline  (cd api && python3 -m unittest discover -s tests -q): ok" in said
    assert "proof     the tests fail when the sources of their own worktree fail" in said
    source, text = "api/app/price.py", (crew.root / "api" / "app" / "price.py").read_text()
    bad_is_red_and_good_is_green(crew, tmp_path, source, text.replace("5", "6"), f"{text}\nNAME = 'x'\n")

    # The commit of the submodule moves with a task: what is tested is what the task says.
    write(sub, {"rate.py": "RATE = 3\n"})
    crew.add("rate")
    crew.liza("claim", "rate", "--agent", "coder-1")
    there = worktree_of(crew.root, "rate")
    git(there, "submodule", "-q", "update", "--init")
    git(there / "vendor" / "sub", "fetch", "-q", "origin")
    git(there / "vendor" / "sub", "checkout", "-q", "origin/main")
    write(there, {})
    crew.liza("submit", cwd=there)
    crew.liza("verdict", "approve", "looks ok", "--task", "rate")
    crew.liza("merge", "rate", code=1)
    assert crew.status("rate") == "INTEGRATION_FAILED"


SERVER = {
    "shop.py": 'def greet():\n    return "hi"\n',
    "serve.py": """\
import http.server, sys
import shop
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(str(shop.greet()).encode())
server = http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
""",
    # Tests that start a server only if none listens, as the runners of browser tests do.
    "e2e.py": """\
import subprocess, sys, urllib.request
port = sys.argv[1]
ask = lambda: urllib.request.urlopen(f"http://127.0.0.1:{port}", timeout=5).read()
try:
    answer = ask()
except OSError:
    with subprocess.Popen([sys.executable, "serve.py", port], stdout=subprocess.PIPE) as server:
        server.stdout.readline()
        answer = ask()
        server.kill()
sys.exit(answer != b"hi")
""",
    ".gitignore": "__pycache__/\n",
}


@pytest.mark.campaign
def test_merges_wait_while_tests_would_use_the_checkouts_server(tmp_path: Path, servers: Servers) -> None:
    crew = begun(tmp_path, SERVER)
    port = str(choose_port())
    server = servers.start(crew.root, sys.executable, "serve.py", port)
    said = crew.liza("init", "It greets", "--test", f"python3 e2e.py {port}")
    line = f"serve.py {port}` of your checkout listens on {port}"
    assert f"{line}: merges wait while it runs (kill {server.pid} ends it)" in said
    crew.configure(**QUICK)
    before = crew.git("rev-parse", "integration")
    assert merged(crew, "bad", "shop.py", "def greet():\n    return 1\n") == "APPROVED"
    (alarm,) = [alarm for alarm in crew.json("status")["alerts"] if alarm["kind"] == "merge_set_aside"]
    assert f"untested: `{Path(sys.executable).name} {line}" in alarm["message"]
    assert alarm["next"] == f"kill {server.pid}"

    assert merged(crew, "good", "shop.py", '# A greeting.\ndef greet():\n    return "hi"\n') == "APPROVED"
    crew.agent("coder-2", crew.script("agent", "exit 0\n"))
    assert crew.git("rev-parse", "integration") == before
    servers.end(server)
    crew.wait_status("bad", "INTEGRATION_FAILED")
    assert crew.wait_status("good", "MERGED").tested is True
    assert passes_in_a_fresh_clone(crew, tmp_path)
