"""The project and the tasks of `liza demo --native`: each task is a list of the files of one directory."""

from __future__ import annotations

from liza.demo import shop_project

GOAL = "Every directory has a list of its files"
SPEC = "docs/lists.md"
DIRECTORIES = ("docs", "shop", "tests", "data")
FILES = {
    **shop_project.FILES,
    SPEC: """\
# Every directory has a list of its files

`FILES.txt` in a directory names each other file of that directory, one path per line, sorted, from the root of the
repository. Lines that begin with # are comments.
""",
    "data/countries.csv": "code,name\nat,Austria\npt,Portugal\n",
    "data/taxes.csv": "code,percent\nat,20\npt,23\n",
    "tests/test_lists.py": """\
import pathlib
import unittest


class ListsTest(unittest.TestCase):
    def test_each_list_names_the_files_beside_it(self):
        for path in pathlib.Path().glob("*/FILES.txt"):
            with self.subTest(path):
                listed = [line for line in path.read_text().splitlines() if not line.startswith("#")]
                files = [file for file in path.parent.iterdir() if file.is_file() and file != path]
                self.assertEqual(listed, sorted(map(str, files)))
""",
}
TASKS = [
    {
        "id": f"list-{name}",
        "description": f"List the files of {name}",
        "done_when": f"{name}/FILES.txt names each other file of {name}, and the tests pass",
        "scope": f"{name}/FILES.txt",
        "spec_ref": SPEC,
    }
    for name in DIRECTORIES
]
"""The entries of the tasks, as `liza task add --file` reads them."""
