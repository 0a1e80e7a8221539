"""Pure rules over the board: no files, no processes, no clock.

Each function takes the board (`State`) and facts that the caller gathered, and returns a new board, a decision or a
text. It raises an error of `errors.py` if the request is not allowed.

Sub-packages: `tasks/` (task lifecycle), `merging/`, `sessions/` (what a supervisor does next), `project/` (tests,
set-up, environment), `reports/` (alarms and texts), `formatting/` (values as text).
Read `model.py` first, then `transitions.py`, then `sessions/decide.py`.
"""
