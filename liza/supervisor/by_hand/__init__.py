"""`liza run`: a person starts a program in their own terminal, with its brief and without a supervisor.

`program_run.py` decides where it runs, prepares a slot, runs the program, passes signals on, and cleans up.
Read `program_run.py` first.
"""
