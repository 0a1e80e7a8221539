"""Parse a shell script into the nodes of `rules/guards/shell_syntax`.

The source is sliced by the positions in the syntax tree, because the grammar drops some characters from its tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from liza.programs.guards import bash_grammar
from liza.programs.guards.bash_grammar import TreeNode
from liza.rules.guards.shell_syntax import CannotJudge, Redirect, ShellNode, Word, WordPart

MAX_SIZE = 1 << 19  # bytes of a script
MAX_NODES = 20_000
MAX_DEPTH = 60
_WORDS = frozenset(
    (
        "word", "string", "raw_string", "ansi_c_string", "translated_string", "number", "simple_expansion", "expansion",
        "command_substitution", "process_substitution", "arithmetic_expansion", "concatenation", "brace_expression",
        "extglob_pattern", "regex", "special_variable_name", "variable_name", "subscript", "array",
    )
)  # fmt: skip
_REDIRECTS = ("file_redirect", "heredoc_redirect", "herestring_redirect")
_ASSIGNING = ("variable_assignment", "variable_assignments")
_ESCAPES = dict(zip("abeEfnrtv\\'\"?", "\a\b\x1b\x1b\f\n\r\t\v\\'\"?", strict=True))


def parse_script(text: str) -> ShellNode:
    """Return the script as one node. Raises CannotJudge if it has a syntax error, or is too large or too deep."""
    source = text.encode("utf-8", "surrogatepass")
    if b"\0" in source:
        raise CannotJudge("it contains a NUL character")
    if len(source) > MAX_SIZE:
        raise CannotJudge(f"it has {len(source)} bytes, and at most {MAX_SIZE} are examined")
    root = bash_grammar.parse(source).root_node
    if root.has_error:
        raise CannotJudge(_describe_error(root, source))
    return _Converter(source).convert(root)


def _describe_error(root: TreeNode, source: bytes) -> str:
    """Say where the first syntax error is, without recursion: an erroneous tree may be deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.is_error or node.is_missing:
            line = source.count(b"\n", 0, node.start_byte) + 1
            near = source[node.start_byte : node.start_byte + 40].split(b"\n")[0].decode(errors="replace")
            return f"it cannot be parsed as a shell script, near {near!r} in line {line}"
        waiting += [child for child in reversed(node.children) if child.has_error or child.is_missing]
    return "it cannot be parsed as a shell script"


class _Converter:
    """Converts a syntax tree without errors."""

    def __init__(self, source: bytes) -> None:
        self.source = source
        self.nodes = 0
        self.depth = 0

    def text(self, start: int, end: int) -> str:
        return self.source[start:end].decode("utf-8", "surrogatepass")

    def convert(self, node: TreeNode) -> ShellNode:
        """Return a statement. Whatever has no meaning of its own is a sequence of what it contains."""
        self._count()
        converted = self._convert_form(node)
        self.depth -= 1
        return converted

    def _count(self) -> None:
        """Count a node and a level. Raises CannotJudge beyond the limits."""
        self.nodes += 1
        self.depth += 1
        if self.nodes > MAX_NODES:
            raise CannotJudge(f"it has more than {MAX_NODES} parts; put it into a script file")
        if self.depth > MAX_DEPTH:
            raise CannotJudge(f"it is nested more than {MAX_DEPTH} levels deep")

    def _convert_form(self, node: TreeNode) -> ShellNode:
        form = node.type
        if form in ("command", "declaration_command", "unset_command", *_ASSIGNING):
            return self._command(node)
        if form == "redirected_statement":
            return self._redirected(node)
        if form == "function_definition":
            name, body = node.child_by_field_name("name"), node.child_by_field_name("body")
            children = [self.convert(body)] if body is not None else []
            return ShellNode("function", children, name=self._node_text(name) if name is not None else "")
        if form == "pipeline":
            return self._pipeline(node)
        if form == "for_statement":
            return self._loop(node)
        children = [self.convert(child) for child in _statements(node)]
        if form in _WORDS:
            # A word outside of a command, such as the value of a case: only what runs in it counts.
            return ShellNode("sequence", [script for part in self._parts(node, False) for script in part.scripts])
        names = {
            "subshell": "subshell",
            "while_statement": "loop",
            "c_style_for_statement": "loop",
        }
        return ShellNode(names.get(form, "sequence"), children)

    def _node_text(self, node: TreeNode) -> str:
        return self.text(node.start_byte, node.end_byte)

    def _command(self, node: TreeNode) -> ShellNode:
        assignments: list[tuple[str, tuple[Word, ...]]] = []
        redirects: list[Redirect] = []
        inner: list[ShellNode] = []
        words: list[TreeNode] = []
        for child in [node] if node.type == "variable_assignment" else node.children:
            if child.type == "variable_assignment":
                assignments.append(self._assignment(child))
            elif child.type in _REDIRECTS:
                inner += self._redirect(child, redirects)
            elif child.type == "command_name":
                words += child.children or [child]
            elif child.type == "subshell":
                # ``time (cd x && make)``
                inner.append(self.convert(child))
            elif child.type != "comment" and child.type != "=":
                words.append(child)
        return ShellNode("command", inner, self._join(words), assignments, redirects)

    def _assignment(self, node: TreeNode) -> tuple[str, tuple[Word, ...]]:
        name, value = node.child_by_field_name("name"), node.child_by_field_name("value")
        key = self._node_text(name).partition("[")[0] if name is not None else ""
        if value is None:
            return key, ((),)
        if value.type == "array" or any(child.type == "+=" for child in node.children):
            scripts = self._scripts_in(value)
            return key, ((WordPart("unknown", scripts=scripts),),)
        return key, (tuple(self._parts(value, False)),)

    def _join(self, nodes: Iterable[TreeNode]) -> list[Word]:
        """Return the words. Neighbours without a space between them are one word, also across a continued line."""
        words: list[Word] = []
        end = -1
        for node in nodes:
            parts = tuple(self._parts(node, False))
            gap = self.text(end, node.start_byte) if end >= 0 else " "
            if gap.replace("\\\n", "") == "" and words:
                words[-1] += parts
            else:
                words.append(parts)
            end = node.end_byte
        return words

    def _redirected(self, node: TreeNode) -> ShellNode:
        before, last = self._split_redirected(node)
        return ShellNode("sequence", [*before, last]) if before else last

    def _split_redirected(self, node: TreeNode) -> tuple[list[ShellNode], ShellNode]:
        """Return the statements before a redirected one, and this one.

        The grammar redirects the whole list in ``cd x && touch y > z``; a shell redirects its last command.
        """
        body = node.child_by_field_name("body")
        redirects: list[Redirect] = []
        inner: list[ShellNode] = []
        for child in node.children:
            if child.type in _REDIRECTS:
                inner += self._redirect(child, redirects)
        bodies = _statements(body) if body is not None and body.type == "list" else [body]
        *before, target = [self.convert(each) if each is not None else ShellNode("command") for each in bodies]
        redirected = ShellNode("redirected", [target], redirects=redirects)
        if inner and inner[0].form == "pipeline":
            # ``command <<END | other``: the pipe is inside the here-document's node.
            pipeline = ShellNode("pipeline", [redirected, *inner[0].children])
            return before, ShellNode("sequence", [pipeline, *inner[1:]])
        return before, ShellNode("sequence", [redirected, *inner])

    def _pipeline(self, node: TreeNode) -> ShellNode:
        """Return a pipeline. In ``a && b > x | c`` the grammar takes ``a && b > x`` for its first part."""
        first, *others = _statements(node)
        if first.type != "redirected_statement":
            return ShellNode("pipeline", [self.convert(child) for child in (first, *others)])
        before, stage = self._split_redirected(first)
        pipeline = ShellNode("pipeline", [stage, *(self.convert(child) for child in others)])
        return ShellNode("sequence", [*before, pipeline]) if before else pipeline

    def _redirect(self, node: TreeNode, redirects: list[Redirect]) -> list[ShellNode]:
        """Add the redirection to ``redirects``; return the statements that the grammar puts inside of it."""
        if node.type == "heredoc_redirect":
            return self._here_document(node, redirects)
        operator = next((child.type for child in node.children if not child.is_named), ">")
        words = self._join(child for child in node.children if child.is_named and child.type != "file_descriptor")
        for word in words:
            redirects.append(Redirect(operator, word))
        return []

    def _here_document(self, node: TreeNode, redirects: list[Redirect]) -> list[ShellNode]:
        inner: list[ShellNode] = []
        start = end = node.end_byte
        is_literal = False
        body: list[TreeNode] = []
        for child in node.children:
            if child.type == "heredoc_start":
                is_literal = any(mark in self._node_text(child) for mark in "'\"\\")
            if child.type == "heredoc_body":
                body = list(child.children)
            elif child.type == "heredoc_end":
                end = child.start_byte
            else:
                start = child.end_byte
                if child.type in _REDIRECTS:
                    inner += self._redirect(child, redirects)
                elif child.type == "pipeline":
                    inner.append(self._piped(child))
                elif child.is_named and child.type != "heredoc_start":
                    inner.append(self.convert(child))
        start = self.source.find(b"\n", start, end) + 1 or end
        text = [WordPart("text", self.text(start, end), True)]
        word = tuple(text if is_literal else self._expanded(body, start, end))
        redirects.append(Redirect("<<", word))
        return inner

    def _piped(self, node: TreeNode) -> ShellNode:
        """Return the stages behind a here-document; ``| a && b`` has the list ``a && b`` as its only stage."""
        stages = [child for child in node.children if child.is_named]
        if len(stages) == 1 and stages[0].type == "list":
            parts = [self.convert(child) for child in stages[0].named_children]
            return ShellNode("pipeline", parts)
        return ShellNode("pipeline", [self.convert(stage) for stage in stages])

    def _loop(self, node: TreeNode) -> ShellNode:
        variable, body = node.child_by_field_name("variable"), node.child_by_field_name("body")
        values = tuple(self._join(node.children_by_field_name("value")))
        name = self._node_text(variable) if variable is not None else ""
        unknown: Word = (WordPart("unknown"),)
        children = [self.convert(body)] if body is not None else []
        return ShellNode("loop", children, assignments=[(name, values or (unknown,))])

    def _scripts_in(self, node: TreeNode) -> list[ShellNode]:
        """Return the scripts that run when a word is expanded, wherever in it they are."""
        return [
            script for child in node.named_children for part in self._parts(child, False) for script in part.scripts
        ]

    def _parts(self, node: TreeNode, quoted: bool) -> Iterator[WordPart]:
        self._count()
        yield from self._parts_of_form(node, quoted)
        self.depth -= 1

    def _parts_of_form(self, node: TreeNode, quoted: bool) -> Iterator[WordPart]:
        form, text = node.type, self._node_text(node)
        if form in ("string", "translated_string"):
            if text[:1] == "$":
                yield from self._parts(node.children[-1], quoted)
            else:
                yield from self._expanded(node.children[1:-1], node.start_byte + 1, node.end_byte - 1)
        elif form == "raw_string":
            yield WordPart("text", text[1:-1], True)
        elif form == "ansi_c_string":
            yield _ansi_part(text[2:-1])
        elif form == "concatenation":
            for child in node.children:
                yield from self._parts(child, quoted)
        elif form in ("simple_expansion", "expansion"):
            yield self._variable(node, text[:2] if text[1:2].isdigit() else text, quoted)
            # The grammar takes ``$1x`` for one name.
            if text[1:2].isdigit() and text[2:]:
                yield WordPart("text", text[2:], quoted)
        elif form == "command_substitution":
            yield WordPart(
                "output", "", quoted, [self.convert(child) for child in node.named_children if child.type != "comment"]
            )
        elif form == "process_substitution":
            scripts = [self.convert(child) for child in node.named_children]
            yield WordPart("process", "", True, scripts)
        elif form in ("arithmetic_expansion", "array", "subscript", "brace_expression"):
            yield WordPart("unknown", "", form == "arithmetic_expansion", self._scripts_in(node))
        elif node.named_child_count and form not in ("word", "number"):
            yield WordPart("unknown", "", quoted, self._scripts_in(node))
        else:
            yield from _unquoted(text)

    def _variable(self, node: TreeNode, text: str, quoted: bool) -> WordPart:
        name = text[2:-1] if text.startswith("${") else text[1:]
        if name.isidentifier() and name.isascii():
            return WordPart("variable", name, quoted)
        if name.isdecimal() or name in ("@", "*"):
            # Positional parameters: "$@" is several words although it is quoted.
            return WordPart("variable", name, quoted and name != "@")
        several = "@" in name
        return WordPart("unknown", "", quoted and not several, self._scripts_in(node))

    def _expanded(self, children: Iterable[TreeNode], start: int, end: int) -> Iterator[WordPart]:
        """Yield the parts of a text in which variables are expanded: in quotes, or in a here-document."""
        for child in children:
            if child.type in ("string_content", "heredoc_content") or not child.is_named:
                continue
            if child.start_byte > start:
                yield WordPart("text", _unescape(self.text(start, child.start_byte)), True)
            yield from self._parts(child, True)
            start = child.end_byte
        if end > start:
            yield WordPart("text", _unescape(self.text(start, end)), True)


def _statements(node: TreeNode) -> list[TreeNode]:
    """Return what a node contains, without comments. A list ``a && b && c`` is nested to the left in the tree."""
    flat: list[TreeNode] = []
    while node.type == "list" and node.named_children and node.named_children[0].type == "list":
        flat += reversed(node.named_children[1:])
        node = node.named_children[0]
    return [child for child in [*node.named_children, *reversed(flat)] if child.type != "comment"]


def _unescape(text: str) -> str:
    """Remove the backslashes that quote a character between double quotes."""
    if "\\" not in text:
        return text
    pieces, position = [], 0
    while (mark := text.find("\\", position)) >= 0 and mark + 1 < len(text):
        follower = text[mark + 1]
        kept = "" if follower == "\n" else follower if follower in '$`"\\' else "\\" + follower
        pieces += [text[position:mark], kept]
        position = mark + 2
    return "".join(pieces) + text[position:]


def _unquoted(text: str) -> Iterator[WordPart]:
    """Yield the parts of a text without quotes, in which a backslash quotes the next character."""
    position = 0
    while (mark := text.find("\\", position)) >= 0 and mark + 1 < len(text):
        if mark > position:
            yield WordPart("text", text[position:mark])
        if text[mark + 1] != "\n":
            yield WordPart("text", text[mark + 1], True)
        position = mark + 2
    if position < len(text) or not text:
        yield WordPart("text", text[position:])


def _ansi_part(text: str) -> WordPart:
    """Return the text of ``$'…'``; unknown if it has an escape that is not decoded here."""
    pieces, position = [], 0
    while (mark := text.find("\\", position)) >= 0:
        pieces.append(text[position:mark])
        code = text[mark + 1 : mark + 2]
        base, most = {"x": (16, 2), "u": (16, 4), "U": (16, 8)}.get(code, (8, 3))
        start = mark + 2 if base == 16 else mark + 1
        allowed = "0123456789abcdefABCDEF" if base == 16 else "01234567"
        end = start
        while end < len(text) and end - start < most and text[end] in allowed:
            end += 1
        if code in _ESCAPES:
            pieces.append(_ESCAPES[code])
            end = mark + 2
        elif end > start and int(text[start:end], base) < 0x110000:
            pieces.append(chr(int(text[start:end], base)))
        else:
            return WordPart("unknown", "", True)
        position = end
    return WordPart("text", "".join(pieces) + text[position:], True)
