"""Which paths commands write, read and remove, in the own worktree and outside of it."""

from __future__ import annotations

import pytest

from liza.programs.guards.shell_parser import parse_script
from liza.rules.guards.acts import FETCH, READ, SHELL, WRITE, Act
from liza.rules.guards.prepared_rules import PreparedRules
from liza.rules.guards.shell_walk import ShellWalk
from liza.rules.guards.word_matching import ANY, FILES, MANY
from tests.unit.guard_session import HOME, ROOT, SLOTS, WORKTREE, defaults, facts

PLACES = {WORKTREE: "W", SLOTS: "S", ROOT: "R", HOME: "H", ANY: "…", MANY: "…", FILES: "*"}
"""Short texts for directories and for unknown parts of a word, so that the tables can be read."""

WRITES: list[tuple[str, str]] = [
    ("echo x > a", "W/a"),
    ("echo x >> ../two/a 2> b", "S/two/a W/b"),
    ("echo x >&2 2>&- > /dev/null", ""),
    ("tee a ../b < x", "W/a S/b"),
    ("touch a b -d yesterday -r c", "W/a W/b"),
    ("touch --date=now a --reference c", "W/a"),
    ("mkdir -m 700 a && mkdir --mode=700 b", "W/a W/b"),
    ("truncate -s 0 a", "W/a"),
    ("mkfifo a && mknod b p", "W/a W/b W/p"),
    ("gzip a; gunzip b; xz c; bzip2 d", "W/a W/b W/c W/d"),
    ("ed a; ex b; x | sponge c", "W/a W/b W/c"),
    ("chmod +x a b", "W/a W/b"),
    ("chown ann a; chgrp ann b", "W/a W/b"),
    ("chmod --reference=a b", "W/b"),
    ("chmod --reference a b", "W/b"),
    ("rm -f a -- -b", "W/a/** W/-b/**"),
    ("rmdir a; unlink b; shred -u c", "W/a/** W/b/** W/c/**"),
    ("cp a b", "W/b W/b/a"),
    ("cp x/a y/b ../two", "S/two S/two/a S/two/b"),
    ("cp x/a/ -t ../two", "S/two S/two/a"),
    ("cp -rt ../two a", "S/two S/two/a"),
    ("cp --target-directory=../two a b", "S/two S/two/a S/two/b"),
    ("cp --target-directory ../two a", "S/two S/two/a"),
    ("cp --targ=../two a", "S/two S/two/a"),
    ("cp -S .bak a b", "W/b W/b/a"),
    ('cp "$x" b', "W/b"),
    ("mv a ../b", "S/b S/b/a W/a/**"),
    ("mv -t ../two a", "S/two S/two/a W/a/**"),
    ("mv --target-directory ../two a", "S/two S/two/a W/a/**"),
    ("mv -S .bak a b", "W/b W/b/a W/a/**"),
    ("ln -st ../two a", "S/two S/two/a"),
    ("ln -t ../two a", "S/two S/two/a"),
    ("link a b", "W/b W/b/a"),
    ("install -m 644 -o ann -g ann a b", "W/b W/b/a"),
    ("install --mode 644 --owner ann --group ann a b", "W/b W/b/a"),
    ("install -t ../two a", "S/two S/two/a"),
    ("rsync -rt a ../two/", "S/two S/two/a"),
    ("rsync -t a ../two/", "S/two S/two/a"),
    ("scp a ../two/", "S/two S/two/a"),
    ("sed s/a/b/ a", ""),
    ("sed -n p a", ""),
    ("sed -i s/a/b/ a b", "W/a W/b"),
    ("sed -i.bak s/a/b/ a", "W/a"),
    ("sed -ni p a", "W/a"),
    ("sed -i -e s/a/b/ -e p a", "W/a"),
    ("sed -i --expression=p a; sed -i -f x.sed a", "W/a W/a"),
    ("sed --in-place=.bak p a; gsed --in-pl p b", "W/a W/b"),
    ("perl -pi -e s/a/b/ a", "W/a"),
    ("ruby -i -pe p a", "W/a"),
    ("yq -i .x=1 a; yq --inplace .x=1 b; yq .x c", "W/a W/b"),
    ("sd before after a b", "W/a W/b"),
    ("sort a -o b; sort -oc a; sort --output=d a", "W/b W/c W/d"),
    ("curl -o a http://x.y; curl -sSLob http://x.y; curl --output=c x.y; curl -D d x.y", "W/a W/b W/c W/d"),
    ("curl --output-dir ../two -O x.y; curl --dump-header e x.y; curl -c f x.y", "S/two W/e W/f"),
    ("curl -sSLo../two/a x.y; wget -qO../b x.y; wget -qP ../c x.y", "S/two/a S/b S/c"),
    ("wget -O a x.y; wget -P b x.y; wget -o c x.y; wget --output-document=d x.y", "W/a W/b W/c W/d"),
    ("wget --directory-prefix=../two x.y", "S/two"),
    ("tar -xf a.tar -C ../two; tar -x --directory=../x", "S/two S/x"),
    ("unzip -oqd ../two a.zip", "S/two"),
    ("patch -p1 -i /tmp/x.patch", ""),
    ("patch -p 1 -d ../two < x; patch --directory=../x", "S/two S/x"),
    ("patch a x.patch -o b -r c", "W/a W/x.patch W/b"),
    ("split -b 10 a ../two/x; split a; split --lines 3 a y; csplit -f ../z a 10", "S/two/x W/y S/z"),
    ("dd if=/dev/zero of=../a bs=1; dd of=b", "S/a W/b"),
    ("find . -fprint a; find . -fprintf ../b %p; find -fls c; find . -fprint0 d", "W/a S/b W/c W/d"),
    ("find x ../two -name a -delete", "W/x S/two/**"),
    ("find '(' -name a ')' -delete; cd .. && find '!' -name a -delete", "W S/**"),
    ("find . -exec touch a ';' -o -ok rm b +", "W/a W/b/**"),
    ("find . -execdir touch a ';'; find . -okdir touch /tmp/a ';'", "…/a /tmp/a"),
    ("find . -exec cp {} ../two/ ';'", "S/two"),
    ("git clone x.y:z ../two", "S/two"),
    ("git clone --depth 1 https://x.y/z/shop.git/", "W/shop.git"),
    ("git clone shop.git", "W/shop.git"),
    ("git clone --separate-git-dir ../two/g x.y:z a", "S/two/g W/a"),
    ("git init --separate-git-dir=../two/g a", "S/two/g W/a"),
    ("git clone", ""),
    ("git init ../two", "S/two"),
    ("git -C .. -C two diff --output=a; git -C x --no-pager archive -o b HEAD; git -C .. clone y", "S/two/a W/x/b S/y"),
    ('git -C "$D" log --output=a; git --git-dir=../x -c a.b=c rm d', "…/a W/d"),
    ("git init -b main", ""),
    ("git rm -r a b; git mv c ../d", "W/a W/b W/c S/d"),
    ("git diff --output=../a; git log --output=b; git show --output c", "S/a W/b W/c"),
    ("git archive -o ../a HEAD; git archive --output=b HEAD", "S/a W/b"),
    ("git format-patch -o ../two HEAD~1; git format-patch --output-directory=x", "S/two W/x"),
    ("git checkout-index -a --prefix=../two/", "S/two"),
    ("apply_patch '*** Add File: a\n+x\n*** Update File: b\n*** Move to: ../c\n*** Delete File: d'", "W/a W/b S/c W/d"),
    ("python3 -c \"open('.git/x', 'w'); print('a/b', '../.env/c')\"", "W/.git/x S/.env/c"),
    ("python3 -c \"open('~/.ssh/x', 'a')\"", "H/.ssh/x"),
    ("python3 -c \"open('.git/x'); print('see .git/y')\"", ""),
    ("perl -e 'unlink \".git/x\"'; ruby -e 'File.write(\"../.x/y\", 1)'", "W/.git/x S/.x/y"),
    ("env -C .. touch a; env --chdir=x touch b; sudo -D .. touch c; touch d", "S/a W/x/b S/c W/d"),
    ("uv run --directory=.. touch a; uv run --project ../two touch a", "S/a S/two/a"),
    ("touch - a", "W/a"),
]
DIRECTORIES: list[tuple[str, str]] = [
    ("cd .. && touch a; cd two; touch b; cd -; touch c", "S/a S/two/b S/c"),
    ("pushd x; touch a; popd; touch b", "W/x/a …/b"),
    ("cd; touch a; cd -P -- x; touch b", "H/a H/x/b"),
    ("(cd ..; touch a); touch b", "S/a W/b"),
    ('cd "$D"; touch a /tmp/b; cd /tmp; touch c', "…/a /tmp/b /tmp/c"),
    ("touch $PWD/a ~+/b ~/c ~ann/d '~/e' x~/f", "W/a W/b H/c …/d W/~/e W/x~/f"),
    ("touch $HOME/a; HOME=/tmp; touch $HOME/b", "H/a /tmp/b"),
    ("cd /; touch a ../b /../c", "/a /b /c"),
    ('cd "$(pwd)/.."; touch a', "S/a"),
    ('touch "$(dirname x/y/z)/a" "$(dirname x)/b" "$(realpath ..)/c" "$(readlink -f x/)/d"', "W/x/y/a W/b S/c W/x/d"),
    ('touch "$(mktemp)" "$(mktemp -d)/a"', "/tmp/mktemp /tmp/mktemp/a"),
    ('touch "$(git rev-parse --show-toplevel)/a" "$(git -C $LIZA_ROOT rev-parse --show-toplevel)/b"', "W/a R/b"),
    (
        'touch "$(git rev-parse --git-dir)/a" "$(git rev-parse --git-common-dir)/b" "$(git rev-parse --git-path c)"',
        "R/.git/worktrees/one/a R/.git/b R/.git/c",
    ),
    ('cd /tmp/x; touch "$(git rev-parse --git-dir)/a" "$(git rev-parse --git-path b)"', "/tmp/x/.git/a /tmp/x/.git/b"),
]
EXPANSIONS: list[tuple[str, str]] = [
    ("a {b,c}d {e,{f,g}}", "a bd cd e f g"),
    ("a x{b,c}{d,e}", "a xbd xbe xcd xce"),
    ("a {b} {} {c,d '{e,f}'", "a {b} {} {c,d {e,f}"),
    ("a b{1..9}c {d}{e,f}", "a b…c {d}e {d}f"),
    ("a {b,*}.py {c,[d]}", "a b.py *.py c *"),
    ('a {b,"c"}', "a …"),
    ("a {b,{c} x{d", "a {b,{c} x{d"),
    ("a $(printf '%s-%s+' b c)", "a b-c+"),
    ("a *.py b?c [ab]c x[0-9]y '*' \\? [x", "a *.py b*c *c x*y * ? [x"),
    ('a ["b"c]d ]e[', "a *d ]e["),
    ("x='b c'; a $x \"$x\" d${x}e", "a b c b c db ce"),
    ("x=' b '; a c${x}d$x", "a c b d b"),
    ("x=b:c; IFS=:; a $x", "a b:c|a b c"),
    ("x=1; x=2; a $x", "a 1|a 2"),
    ('a $u "$u" $? "$?" ${u}b', "a … … … … …b"),
    ('a \'\' "" $e; e=; a $e "$e" b', "a   …|a  b"),
    ("f() { a \"$@\" $# $2 $9; }; f 'b c' d", "a b c d … d"),
    ("f() { a $1$2 $0; }; f b c", "a bc …"),
    ("for x in b 'c d'; do a $x; done", "a b|a c d"),
    ("a \"$(echo b c)\" $(echo -n b c) $(printf '%s-' b c)x", "a b c b c b-c-x"),
    ("a $(printf b) $(printf 'b%s') $(printf '%d' 1) $(echo -e 'b\\tc')", "a b b … b c"),
    ("a $(cat <<EOF\nb c\nEOF\n)", "a b c"),
    ('a $(cat b) "$(cat b)"', "a … …"),
    ("a <(echo b)", "a /dev/fd/…"),
    ("alias l='a -x'; l b", "a -x|a -x b"),
    ("printf -v x y; a $x", "a …"),
    ("z=1; mapfile z; a $z; y=2; readarray y; a $y; x=3; read x; a $x", "a 1|a …|a 2|a 3"),
    ("read x y; a $x$y; mapfile z; a $z; unset v; a b$v", "a ……|a …|a b…"),
    ("xargs -i a {} b{}", "a … b…"),
    ("xargs --replace a {}", "a …"),
    ("xargs -I % a % {}", "a … {}"),
    ("xargs --replace=% a b%", "a b…"),
    ("xargs a b", "a b …"),
    ("env X=1 a b; nice -n 5 a c; timeout -k 3 5 a d; ! a e; coproc a f", "a b|a c|a d|a e|a f"),
    ("flock -w 3 /tmp/lock a b; flock /tmp/l -c 'a c'; watch -n 1 a 'd e'", "a b|a c|a d e"),
    ("command -v a; command -V a; type a", ""),
    ("env -- X=1 a b; timeout -- 5 a c; exec -a z a d", "a b|a c|a d"),
    ("bash -c 'a $0 $1' b c; bash -lc 'a d'; bash -o pipefail -c 'a e'; bash +x -c 'a f'", "a … c|a d|a e|a f"),
    ("bash --rcfile x -c 'a b'; bash --norc -c 'a c'; bash -s d <<< 'a $1'", "a b|a c|a …"),
    ("bash x.sh <<< 'a b'; bash <<< 'a c'; echo 'a d' | bash -", "a c|a d"),
]


def acts(command: str) -> list[Act]:
    """The acts of a command in a coder's worktree."""
    data = defaults()
    rules = PreparedRules({"rules": data["rule"], "tools": data["tools"], "shell": data["shell"]})
    return ShellWalk(rules.table, facts(), parse_script, rules.guarded_programs).walk_script(command)


def short(text: str) -> str:
    for long, place in PLACES.items():
        text = text.replace(long, place)
    return text


def paths(command: str, tool: str) -> str:
    """The paths of one tool, in the order in which they are used; ``/**`` behind one that is removed with all below."""
    return " ".join(short(act.target) + "/**" * act.is_tree for act in acts(command) if act.tool == tool)


@pytest.mark.parametrize(("command", "written"), [*WRITES, *DIRECTORIES], ids=repr)
def test_exactly_the_paths_that_a_command_writes_are_judged(command: str, written: str) -> None:
    assert paths(command, WRITE) == written


@pytest.mark.parametrize(("command", "lines"), EXPANSIONS, ids=repr)
def test_a_command_is_judged_by_the_words_that_the_shell_makes_of_it(command: str, lines: str) -> None:
    found = [" ".join(short(word) for word in act.words) for act in acts(command) if act.words[:1] == ("a",)]
    assert "|".join(dict.fromkeys(found)) == lines


@pytest.mark.parametrize(
    ("command", "read"),
    [
        ("cat a ../b < c", "W/c W/a S/b"),
        ("head -n 3 a; tail -c 5 b; less c; base64 d; xxd e; od f", "W/a W/b W/c W/d W/e W/f"),
        ("more a; bat b; strings c; nl d; tac e", "W/a W/b W/c W/d W/e"),
        ("cp a b c; mv d e; ln f g", "W/a W/b W/f"),
    ],
)
def test_the_paths_that_a_command_reads_are_judged(command: str, read: str) -> None:
    assert paths(command, READ) == read


def test_the_addresses_that_a_command_fetches_are_judged() -> None:
    assert paths("curl -H a:b https://x.y/z localhost:80 z -m 3; wget --header c:d x.y", FETCH) == (
        "https://x.y/z localhost:80 x.y"
    )


def test_a_program_is_judged_in_the_directory_that_its_options_name() -> None:
    commands = {
        f"make -C {ROOT}": "crew",
        f"npm --prefix {ROOT} ci": "crew",
        "make -C x": "own",
        "go -C /tmp build": "elsewhere",
        'make -C "$x"': "unknown",
    }
    assert {command: acts(command)[0].area for command in commands} == commands
    assert {act.tool for command in commands for act in acts(command)} == {SHELL}


def test_an_unquoted_unknown_part_may_be_several_words_and_a_quoted_one_is_one() -> None:
    assert acts("xargs -I % a % b%")[-1].words == ("a", MANY, f"b{ANY}")
    assert acts('bash -c "a $x b$x"')[0].words == ("a", MANY, f"b{MANY}")
    assert acts("bash -c \"a '$x'\"")[0].words == ("a", ANY)


def test_commands_are_looked_for_in_the_program_that_an_interpreter_runs() -> None:
    def code(command: str) -> list[str]:
        return [act.text for act in acts(command) if act.is_code]

    assert code("python3 - <<'E'\nimport subprocess\nsubprocess.run([\n'git',\n'push'])\nE") == ["git push"]
    assert code("echo 'os.system(\"git push\")' | python3") == ["git push"]
    assert code("echo 'os.system(\"git push\")' | python3 -c 'print(1)'") == []
