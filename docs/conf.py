"""Sphinx configuration of the documents site: ``bin/docs`` builds it. See specs/decisions/037.

The source directory is the checkout, so a link between docs/ and specs/ is the same relative path in an editor, on a
forge and on the site.
"""

import liza

project = "Liza"
release = version = liza.__version__
extensions = ["myst_parser", "sphinxcontrib.mermaid"]
root_doc = "docs/index"
exclude_patterns = [".*-venv", ".git", ".?*_cache", "build", "liza", "tests"]
include_patterns = [
    "docs/**",
    "specs/**",
    "contracts/**",
    ".liza.example/README.md",
    "benchmarks/RESULTS.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]

myst_heading_anchors = 4  # The anchors of headings are those of a forge.
myst_fence_as_directive = ["mermaid"]  # Forges draw this block, too.
nitpicky = True

html_theme = "furo"
html_title = f"Liza {version}"
html_copy_source = False
html_show_sourcelink = False
html_extra_path = ["_root"]  # / leads to /docs/index.html
