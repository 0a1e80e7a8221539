"""Liza coordinates AI coding agents that work on one git repository at the same time.

The packages, top to bottom; imports go downwards only:
`client.py` (`liza`), `command_server` (forks a process for each command);
`cli` (command line) and `demo` (a crew of scripted agents);
`supervisor` (`liza-agent`, one process per agent), `up` (starts the supervisors);
`verbs` (one module per command);
`crew` (services that verbs and supervisors share);
`board` (the shared YAML file), `repo` (git), `programs` (agent programs and their sessions);
`system` (files, locks, processes);
`rules` (pure functions over the board).

Read first: `rules/model.py`, `rules/transitions.py`, `board/store.py`, `crew/crew.py`, `supervisor/loop.py`.
"""

__version__ = "0.2.0"
