"""One process of an agent program, from its start to the classification of its end.

Offers: start, wait and stop of a session and of commands of the project (`session_process`), their parent processes
(`_shim`, `_guard`), the files of a run (`run_directory`, `run_records`, `run_archive`), what its end means
(`outcomes`), what its output says of the model (`failure_patterns`), and its output for people (`log_file`).
Read `session_process.py` first, then `run_directory.py`.
"""
