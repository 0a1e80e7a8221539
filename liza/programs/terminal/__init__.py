"""Sessions in a tmux pane: start, read the screen, detect an idle program, type a message with proof.

Offers: panes and the crew's tmux server (`tmux`, `pane`, `tmux_server`), what a screen shows
(`screens`), whether the program waits for input (`idle_detection`), whether a session is ready
(`readiness`), and typing that checks that the text was accepted (`keyboard`). `screens` and `keyboard.plan_typing`
are pure.
Read `tmux.py` first, then `keyboard.py`.
"""
