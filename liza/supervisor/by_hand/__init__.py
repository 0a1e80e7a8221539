"""`liza run`: a person starts a program in their own terminal, with its brief and without a supervisor.

`program_run.py` decides where it runs, prepares a slot and cleans up; `person_child.py` runs the program and passes
signals on. Read `program_run.py` first.
"""
