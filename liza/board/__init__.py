"""The board of a crew, in one of its stores.

`contract.Board` is all that the rest of Liza knows: `read`, `transaction`, revisions, archived tasks, signals.
`opening.py` chooses the store. What stores share is here: `revisions.py` and `revision_texts.py` (what a journal has),
`archived_entries.py`, `signals.py`, `new_violations.py`. `events.py` names the changes that a watch reports, and
`directory_watch.py` finds them. Sub-packages: `text/`, the YAML text; `rules/`; `file_store/`, the board in a file;
`postgresql/`, the board in a database. Read `contract.py` first, then `file_store/file_board.py`.
"""
