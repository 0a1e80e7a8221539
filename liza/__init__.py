"""Liza coordinates AI coding agents that work on one git repository at the same time.

The packages, top to bottom; imports go downwards only:
`client.py` (the client of the command server);
`commands` (one file for each command: declares its options and prints its result);
`demo` (liza demo: a crew of scripted agents);
`cli` (entry points liza and liza-agent, the command server);
`printing` (results as text: columns, colours, pages);
`supervisor` (liza-agent, liza up, and what a supervisor says in its sessions);
`view` (facts of the crew as structs: status, logs, metrics, history);
`alarms` (each alarm, watch, explain, notices);
`recovery` (repair of what crashed processes left: doctor, validate, gc, drift);
`landing` (the remote repository: push, pull requests, checks and comments);
`merging` (the merge queue: candidates, gates, batches, epics);
`project` (the kind of the project, its set-up and tests, the proof of the tests);
`api` (the worker API over HTTP, hooks and ACP);
`usage` (tokens, cost, budgets, accounts);
`guards` (which tool calls are denied);
`briefs` (blocks in instructions files, beacon, assignment, messages);
`tasks` (the life of a task: claims, reviews, hand-off, planning);
`breaker` (discoveries, anomalies, the circuit breaker);
`crew` (the opened crew, the caller, results);
`programs` (agent programs: presets, sessions, terminal, hooks);
`git` (git: runner, refs, worktrees, salvage, merges);
`board` (the shared file: lock, transaction, text, journal, archive);
`box` (confinement by the kernel);
`config` (settings and their limits);
`system` (files, locks, processes);
`model` (what is on the board: statuses, transitions, invariants, errors);
`text` (values as text).

Each package has its rules, without disk, processes and clock, in `rules/`.

Read first: `model/model.py`, `model/transitions.py`, `board/contract.py`, `crew/crew.py`, `supervisor/loop.py`.
"""

__version__ = "0.2.0"
