"""Run the user's set-up and tests, and prove that the tests test the worktree they run in.

`detect.py` reads the project's files; `commands.py` runs a command with a time limit; `proof.py` runs the tests in a
throw-away slot, then again with broken sources; `import_traces.py` reads which modules were loaded.
The judgements are pure rules in `liza.rules.project`.
Read `commands.py` first, then `proof.py`.
"""
