"""Sessions in a tmux pane: start, read the screen, detect an idle program, type a message with proof.

Offers: sessions in panes (`tmux`), a pane and the crew's tmux server (`pane`), what a screen shows (`screens`), whether
a session is ready or waits for input (`readiness`), and typing that checks that the text was accepted (`keyboard`).
`screens` and `keyboard.plan_typing` are pure.
Read `tmux.py` first, then `keyboard.py`.
"""
