"""`liza up`: start the supervisors of a crew, in this terminal or detached.

`start.py` checks the programs and starts the supervisors; `foreground.py` relays their output and handles Ctrl+C;
`supervisor_exits.py` waits for their exits and decides when the crew stops;
`elastic_coders.py` starts and retires coders for `--coders auto`; `healing.py` starts supervisors again that died;
`crew_notices.py` sends alarms elsewhere; `keeper_process.py` heals and sends for a crew without a terminal;
`feed.py` prints without blocking, also what only a person can continue; `crew_options.py` holds the
options and starts one supervisor process.
Read `start.py` first.
"""
