"""The board in PostgreSQL. Only `connection.py` imports psycopg: the extra `liza[postgresql]`.

Read `connection.py` first, then the tables in `migrations/001_board.sql`. `connect_failures.py` turns what libpq says
into one sentence.
"""
