"""What the agents of the campaign run, the tests of its project, and a clock that can be stepped."""

from __future__ import annotations

AGENT = r"""#!/bin/sh
# Coder and reviewer. Every process that works on a task holds a lock of its own; every commit and every verb that was
# acknowledged is written down. No two tasks write the same file: nobody here would mend the conflict.
set -u
NOTES="@NOTES@"
PYTHONPATH="$NOTES/clock"; export PYTHONPATH
draw=$(printf '%s %s' "$LIZA_RUN" "$LIZA_TASK" | cksum | cut -c1-8)
draw=$(( (draw / 7) % 12 ))
kind=work; case "$LIZA_RUN" in code-reviewer-*) kind=review ;; esac
exec 9>>"$NOTES/lock.$kind.$LIZA_TASK"
other=$(cat "$NOTES/lock.$kind.$LIZA_TASK")
flock -n 9 || echo "$kind of $LIZA_TASK is done twice at once: $LIZA_RUN, and $other" >> "$NOTES/violations"
echo "$LIZA_RUN $$" > "$NOTES/lock.$kind.$LIZA_TASK"
liza ready > /dev/null || exit 1

say() { event=$1; shift; liza "$@" && echo "$LIZA_TASK $LIZA_RUN $event" >> "$NOTES/acknowledged"; }
commit() { git add -A && git commit -q -m "$1" && git rev-parse HEAD >> "$NOTES/commits"; }

if [ $kind = review ]; then
    [ $draw = 3 ] && sleep 1
    if [ $draw -lt 3 ] && mkdir "$NOTES/rejected.$LIZA_TASK" 2> /dev/null; then
        say reject verdict reject "not yet"
    else
        say approve verdict approve "read it, ran it"
    fi
    exit
fi

echo "$LIZA_RUN" >> "$LIZA_TASK.txt"
case $draw in
0) commit half || exit 1; sleep 1; echo more >> "$LIZA_TASK.txt"; commit more; sleep 1 ;;
1) echo unfinished >> "unfinished.$LIZA_TASK"; commit half; echo rest >> "rest.$LIZA_TASK"
   say handoff handoff "half of it" --next "the rest"; exit ;;
2) setsid sleep 600 & ;;
3) (setsid sh -c 'sleep 600 & sleep 600' > /dev/null 2>&1 &) ;;
4) if mkdir "$NOTES/red.$LIZA_TASK" 2> /dev/null; then echo red > "$LIZA_TASK.red"; fi ;;
5) sleep 2 ;;
6) commit crash; echo left > "left.$LIZA_TASK"; mkdir "$NOTES/crashed.$LIZA_TASK" 2> /dev/null && exit 1 ;;
esac
[ $draw = 4 ] || rm -f "$LIZA_TASK.red"
commit "$LIZA_TASK: work of $LIZA_RUN" || exit 1
say submit submit
"""

CHECK = r"""#!/bin/sh
# Green when no task says that it is red; every green commit is written down.
set -eu
for one in *.red; do [ ! -e "$one" ] || { echo "$one is red"; exit 1; }; done
for one in t*.txt; do [ ! -e "$one" ] || grep -q coder- "$one" || { echo "$one says nothing"; exit 1; }; done
git rev-parse HEAD >> "$1/green"
"""

CLOCK = r'''"""Steps the clock of every liza that is started with this on its path; the machine's own is left alone."""

import importlib.abc
import importlib.util
import sys
from datetime import timedelta
from pathlib import Path

OFFSET = Path(__file__).with_name("offset")


class Stepped(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "liza.crew.crew":
            return None
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        run = spec.loader.exec_module

        def stepped(module):
            run(module)
            now = module.SystemClock.now
            module.SystemClock.now = lambda self: now(self) + timedelta(seconds=int(OFFSET.read_text() or 0))

        spec.loader.exec_module = stepped
        return spec


sys.meta_path.insert(0, Stepped())
'''
