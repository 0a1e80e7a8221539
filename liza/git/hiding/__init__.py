"""Hide the brief, Liza's own directories, and what the set-up left from git.

A clean filter (`_filter.py`, run by git) removes the marked block of a brief before git compares or stores a file.
`brief_filter.py` installs the filter and binds it to file names, one section for each run. `marked_sections.py`
edits named sections in `.git/info/exclude` and `.git/info/attributes`. `slot_excludes.py` ignores `.liza` and
`.worktrees`, and names in one slot only.
Read `brief_filter.py` first.
"""
