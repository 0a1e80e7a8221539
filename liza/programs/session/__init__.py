"""One process of an agent program, from its start to the classification of its end.

Offers: start, wait and stop of a session (`session_process`), its parent process (`_shim`), the files of a run
(`run_directory`, `run_records`, `run_archive`), what its end means (`outcomes`), what its output says of
the model (`failure_patterns`), its output for people (`log_file`), and commands of
the project under a guard process (`guarded_command`, `_guard`).
Read `session_process.py` first, then `run_directory.py`.
"""
