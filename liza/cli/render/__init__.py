"""Text for people: the results of verbs as lines and tables, and the functions that print them.

The `render_*` modules, `columns.py` and `text_formats.py` are pure: values in, text out. `printing.py` writes to stdout
and stderr, and removes control sequences; `pager.py` runs the pager; `reader_watch.py` ends a command whose reader has
exited.
Read `printing.py` first, then `render_crew.py`.
"""
