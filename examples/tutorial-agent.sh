#!/bin/sh
# The agent of docs/tutorial.md: it does the two tasks of that page, without an AI program.
#
# Liza starts it in a worktree. It runs `liza ready`, does its work, and ends with one closing command.
set -e

# Write text before the first line of a file.
prepend() {
    { printf '%s\n' "$1"; cat "$2"; } > "$2.new"
    mv "$2.new" "$2"
}

write_total() {
    cat >> invoice.py <<'PYTHON'


def total(lines):
    return sum(lines)
PYTHON
    cat >> test_invoice.py <<'PYTHON'


class TotalTest(unittest.TestCase):
    def test_a_total_is_the_sum_of_two_lines(self):
        self.assertEqual(invoice.total([15, 4]), 19)
PYTHON
}

# The second try, after the rejection "Round the total to cents, and test that."
round_total() {
    sed 's/return sum(lines)/return round(sum(lines), 2)/' invoice.py > invoice.py.new
    mv invoice.py.new invoice.py
    cat >> test_invoice.py <<'PYTHON'

    def test_a_total_is_rounded_to_cents(self):
        self.assertEqual(invoice.total([0.1, 0.2]), 0.3)
PYTHON
}

write_due() {
    prepend 'import datetime

' invoice.py
    cat >> invoice.py <<'PYTHON'


def due(date):
    return date + datetime.timedelta(days=30)
PYTHON
    prepend 'import datetime' test_invoice.py
    cat >> test_invoice.py <<'PYTHON'


class DueTest(unittest.TestCase):
    def test_an_invoice_is_due_30_days_after_its_date(self):
        self.assertEqual(invoice.due(datetime.date(2026, 1, 31)), datetime.date(2026, 3, 2))
PYTHON
}

# Without bytecode files (-B): Liza would save them as uncommitted work when it resets the worktree.
submit() {
    python3 -B -m unittest -q
    git commit -q -a -m "$1"
    liza submit
}

liza ready
case $LIZA_AGENT_ID/$LIZA_TASK in
    coder-*/total)
        if grep -q 'def total' invoice.py; then
            round_total
            submit "Round the total to cents"
        else
            write_total
            submit "Add the total of an invoice"
        fi ;;
    coder-*/due)
        write_due
        submit "Add the due date of an invoice" ;;
    coder-*)
        liza block "this script does only the tasks total and due" --ask "Which program should do the task $LIZA_TASK?" ;;
    code-reviewer-*)
        if python3 -m unittest -q; then
            liza verdict approve "ran python3 -m unittest: it passes"
        else
            liza verdict reject "python3 -m unittest fails"
        fi ;;
    planner-*)
        liza handoff "This script plans nothing: the tutorial adds its tasks by hand." --done ;;
esac
