"""The hosts of a crew whose board is in PostgreSQL: leases, and the process that renews them.

One process of each host renews the lease of the host (`host_process.py`) and writes `.liza/run/host-lease`. The shim of
each session ends the session if that file is too old, without asking the network. Read `host_process.py` first; the
rules are `liza/board/rules/host_leases.py`.
"""
