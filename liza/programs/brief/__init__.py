"""The text that tells a session who it is, what to do and how to end.

Offers: the data of a brief (`brief_context`), the short block and the prompt (`brief_writer`), the full assignment
(`assignment`), quoting of other people's text (`quoting`), and writing the block into the program's instructions file
and removing it without a trace (`instructions_file`). The first four are pure. Read `brief_writer.py` first.
"""
