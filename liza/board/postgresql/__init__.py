"""The board in PostgreSQL. Only `connection.py` imports psycopg: the extra `liza[postgresql]`.

`migrations/001_board.sql` has the tables. `postgres_board.py` is the store: `board_copy.py` keeps what was read last,
`crew_lock.py` takes the lock of a crew and commits, `entry_rows.py` says which rows a change writes. `links.py` keeps
the connections of a process; `connect_failures.py` turns what libpq says into one sentence.
Read `postgres_board.py` first, then `crew_lock.py`.
"""
