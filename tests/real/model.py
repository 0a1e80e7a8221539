"""A model on the loopback that says what a test wrote, in the four forms in which agent programs ask one.

Responses, chat completions, Anthropic messages and Gemini, whole or as a stream. The conversation itself says how far
it has come (the results of tools in it are counted), so any number of programs may ask one server at a time.

    python -m tests.real.model PORT 'SHELL COMMAND' …      answers on PORT, and prints what it is asked
"""

from __future__ import annotations

import json
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, Literal

INPUT, CACHED, OUTPUT, THOUGHT = 1000, 100, 50, 10
"""Tokens that each answer says it took: cached ones are part of the input, and thoughts part of the output."""
ANSWERS = count()
"""Numbers for the ids of answers: two requests never have the same."""

SHELL = re.compile(
    r"^(bash|shell|shell_command|exec_command|run_shell_command|local_shell|terminal|run_terminal_cmd)$", re.I
)
NO_KEYS = re.compile(r"authorization|api-key|x-goog", re.I)


@dataclass(frozen=True)
class Shell:
    """The model wants this command run."""

    command: str


@dataclass(frozen=True)
class Say:
    """The model says this, and is done. Gemini's form says that the request had ``used`` tokens."""

    text: str
    used: int = INPUT


@dataclass(frozen=True)
class Call:
    """The model calls this tool, if it is offered; else it says that it has none."""

    tool: str
    arguments: Mapping[str, Any]


Turn = Shell | Say | Call


Breaks = Literal["silent", "closed", "cut", "malformed"]
"""How an answer with status 200 goes wrong: the connection stays open and says nothing more; it is closed inside of a
chunk, or in good order before the last event; or the events are no JSON."""


@dataclass(frozen=True)
class Fault:
    """The next ``times`` requests (None: all) are answered with ``status``, or with an answer that ``breaks``."""

    status: int
    times: int | None = None
    retry_after: int | None = None
    message: str = "the scripted model does not want to"
    breaks: Breaks | None = None
    code: str | None = None


@dataclass(frozen=True)
class Asked:
    """One request: the results of tools in it (``done``), schemas by name, and all that it says."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]
    done: int
    tools: Mapping[str, Mapping[str, Any]]
    text: str

    @property
    def shell(self) -> str | None:
        """The name of the tool that runs commands, if one is offered."""
        return next((name for name in self.tools if SHELL.match(name)), None)


Script = Callable[[Asked], Turn]


def turns(*wanted: Turn) -> Script:
    """One after the other, then ``done``; a request without tools (a title, a summary) gets a few words."""

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return next((one for one in wanted if isinstance(one, Say)), Say("a title"))
        return wanted[asked.done] if asked.done < len(wanted) else Say("done")

    return answer


def forever(turn: Turn, most: int = 500) -> Script:
    """The same turn again and again: a model in a loop. After ``most`` results it says that it is done, so that a test
    in which nobody stops it comes to an end."""

    def answer(asked: Asked) -> Turn:
        if not asked.tools:
            return Say("a title")
        return turn if asked.done < most else Say("done")

    return answer


@dataclass
class Model:
    """A running server: what it was asked, and what it says next."""

    port: int
    script: Script
    faults: list[Fault] = field(default_factory=list)
    asked: list[Asked] = field(default_factory=list)
    refused: int = 0
    others: list[str] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)
    lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def fault(self) -> Fault | None:
        """The fault that this request meets."""
        with self.lock:
            if not self.faults:
                return None
            first = self.faults[0]
            self.refused += 1
            if first.times is not None:
                rest = first.times - 1
                self.faults[:1] = [replace(first, times=rest)] if rest else []
            return first


@contextmanager
def serving(script: Script, *faults: Fault, port: int = 0) -> Iterator[Model]:
    """A model at a free port until the end of the block."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    server.daemon_threads = True
    model = Model(server.server_address[1], script, list(faults))
    server.model = model  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield model
    finally:
        model.over.set()
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def model(self) -> Model:
        found: Model = self.server.model  # type: ignore[attr-defined]
        return found

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass

    def do_HEAD(self) -> None:
        self._send(200, b"")

    def do_GET(self) -> None:
        self.model.others.append(f"GET {self.path}")
        name = "scripted-model"
        listed = {"object": "list", "data": [{"id": name, "object": "model", "owned_by": "test"}], "models": []}
        self._send(200, json.dumps(listed).encode())

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = self.path.partition("?")[0]
        form = next((form for end, form in _FORMS.items() if path.endswith(end)), None)
        try:
            body = json.loads(raw or b"{}")
        except ValueError:
            body = {}
        if form is None:
            self.model.others.append(f"POST {path}")
            counted = {"totalTokens": INPUT, "input_tokens": INPUT}
            self._send(200 if "ount" in path else 404, json.dumps(counted).encode())
            return
        headers = {name: value for name, value in self.headers.items() if not NO_KEYS.search(name)}
        asked = form.read(path, headers, body)
        self.model.asked.append(asked)
        fault = self.model.fault()
        if fault is not None and fault.breaks is None:
            self._refuse(fault)
            return
        stream = bool(body.get("stream")) or "stream" in path
        kind, text = form.write(self.model.script(asked), asked, stream)
        if fault is not None and fault.breaks is not None:
            self._break(fault.breaks, kind, text)
            return
        self._send(200, text.encode(), kind)

    def _break(self, how: Breaks, kind: str, text: str) -> None:
        """Begin a good answer, and do not end it."""
        self.close_connection = True
        events = text.split("\n\n")
        half = "\n\n".join(events[: max(1, len(events) // 2 - 2)]) + "\n\n"
        begun = half if len(events) > 3 else text[: len(text) // 2]
        if how == "malformed":
            begun = text.replace('{"', '{"broken" ')
        with suppress(OSError):
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Connection", "close")
            if how == "closed":
                self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            data = begun.encode()
            # A chunk that promises more than comes.
            self.wfile.write(f"{len(data) + 100:x}\r\n".encode() + data if how == "closed" else data)
            self.wfile.flush()
            if how == "silent":
                self.model.over.wait()

    def _refuse(self, fault: Fault) -> None:
        kinds = {
            400: "invalid_request_error",
            401: "authentication_error",
            404: "not_found_error",
            429: "rate_limit_error",
        }
        kind = kinds.get(fault.status, "server_error")
        error = {"message": fault.message, "type": kind, "code": fault.code or fault.status}
        extra = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        self._send(fault.status, json.dumps({"error": error}).encode(), extra=extra)

    def _send(self, status: int, body: bytes, kind: str = "application/json", extra: Mapping[str, str] = {}) -> None:
        try:
            self.send_response(status)
            for name, value in {"Content-Type": kind, "Content-Length": str(len(body)), **extra}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)
        except OSError:
            self.close_connection = True


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _strings(one)
    elif isinstance(value, list):
        for one in value:
            yield from _strings(one)


def _text(body: Mapping[str, Any], *keys: str) -> str:
    return "\n".join(text for key in keys for text in _strings(body.get(key)))


def _arguments(asked: Asked, name: str, command: str) -> dict[str, Any]:
    """What the tool's own schema wants, with the command in it."""
    schema = asked.tools[name]
    properties = schema.get("properties", {})
    place = next((key for key in ("command", "cmd", "script") if key in properties), "command")
    array = properties.get(place, {}).get("type") == "array"
    found: dict[str, Any] = {place: ["bash", "-lc", command] if array else command}
    for key in schema.get("required", ()):
        if key not in found:
            kinds = {"boolean": False, "integer": 60000, "number": 60000, "array": []}
            found[key] = kinds.get(properties.get(key, {}).get("type"), "as the task says")
    return found


def _call(turn: Turn, asked: Asked) -> tuple[str, dict[str, Any]] | None:
    if isinstance(turn, Say):
        return None
    if isinstance(turn, Call):
        return (turn.tool, dict(turn.arguments)) if turn.tool in asked.tools else None
    if asked.shell is None:
        raise LookupError(f"no shell among {list(asked.tools)}")
    return asked.shell, _arguments(asked, asked.shell, turn.command)


def _said(turn: Turn, asked: Asked) -> str:
    if isinstance(turn, Say):
        return turn.text
    return f"No tool of mine runs commands; I have {', '.join(asked.tools) or 'none'}."


def _events(events: list[tuple[str | None, Any]], last: str = "") -> str:
    lines = []
    for name, data in events:
        lines.append((f"event: {name}\n" if name else "") + f"data: {json.dumps(data)}\n\n")
    return "".join(lines) + last


class _Responses:
    @staticmethod
    def read(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
        items = body.get("input") or []
        done = sum(1 for one in items if isinstance(one, dict) and str(one.get("type")).endswith("_call_output"))
        offered = [tool for one in body.get("tools") or () for tool in one.get("tools") or (one,)]
        tools = {str(one["name"]): one.get("parameters") or {} for one in offered if "name" in one}
        return Asked(path, headers, body, done, tools, _text(body, "instructions", "input"))

    @staticmethod
    def write(turn: Turn, asked: Asked, stream: bool) -> tuple[str, str]:
        usage = {
            "input_tokens": INPUT,
            "input_tokens_details": {"cached_tokens": CACHED},
            "output_tokens": OUTPUT,
            "output_tokens_details": {"reasoning_tokens": THOUGHT},
            "total_tokens": INPUT + OUTPUT,
        }
        number = asked.done
        call = _call(turn, asked) if asked.shell or isinstance(turn, Call) else None
        if call is None:
            content = [{"type": "output_text", "text": _said(turn, asked), "annotations": []}]
            item: dict[str, Any] = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": content}
        else:
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": call[0]}
            item["arguments"] = json.dumps(call[1])
            offered = (one for one in asked.body["tools"] if "tools" in one)
            spaces = (one for one in offered if any(tool["name"] == call[0] for tool in one["tools"]))
            if (space := next(spaces, None)) is not None:
                item["namespace"] = space["name"]
        item["status"] = "completed"
        begun = {"id": f"resp_{next(ANSWERS)}", "object": "response", "created_at": 1, "model": asked.body.get("model")}
        whole = {**begun, "status": "completed", "output": [item], "usage": usage}
        if not stream:
            return "application/json", json.dumps(whole)
        steps: list[dict[str, Any]] = [
            {"type": "response.created", "response": {**begun, "status": "in_progress", "output": []}},
            {"type": "response.output_item.added", "output_index": 0, "item": {**item, "status": "in_progress"}},
        ]
        if call is None:
            text = {"item_id": item["id"], "output_index": 0, "content_index": 0}
            part = {"type": "output_text", "text": "", "annotations": []}
            steps.append({"type": "response.content_part.added", **text, "part": part})
            steps.append({"type": "response.output_text.delta", **text, "delta": _said(turn, asked)})
            steps.append({"type": "response.output_text.done", **text, "text": _said(turn, asked)})
        else:
            place = {"item_id": item["id"], "output_index": 0}
            steps.append({"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]})
            steps.append({"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]})
        steps.append({"type": "response.output_item.done", "output_index": 0, "item": item})
        steps.append({"type": "response.completed", "response": whole})
        numbered = [(str(one["type"]), {**one, "sequence_number": at}) for at, one in enumerate(steps)]
        return "text/event-stream", _events(numbered)


class _Chat:
    @staticmethod
    def read(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
        messages = body.get("messages") or []
        done = sum(1 for one in messages if one.get("role") == "tool")
        offered = [one.get("function") or {} for one in body.get("tools") or ()]
        tools = {str(one["name"]): one.get("parameters") or {} for one in offered if "name" in one}
        return Asked(path, headers, body, done, tools, _text(body, "messages"))

    @staticmethod
    def write(turn: Turn, asked: Asked, stream: bool) -> tuple[str, str]:
        usage = {
            "prompt_tokens": INPUT,
            "prompt_tokens_details": {"cached_tokens": CACHED},
            "completion_tokens": OUTPUT,
            "completion_tokens_details": {"reasoning_tokens": THOUGHT},
            "total_tokens": INPUT + OUTPUT,
        }
        call = _call(turn, asked) if asked.shell or isinstance(turn, Call) else None
        message: dict[str, Any] = {"role": "assistant", "content": _said(turn, asked)}
        if call is not None:
            function = {"name": call[0], "arguments": json.dumps(call[1])}
            wanted = {"index": 0, "id": f"call{asked.done:05}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [wanted]}
        why = "stop" if call is None else "tool_calls"
        begun = {"id": f"chat-{next(ANSWERS)}", "created": 1, "model": asked.body.get("model") or "scripted-model"}
        if not stream:
            choice = {"index": 0, "message": message, "finish_reason": why}
            whole = {**begun, "object": "chat.completion", "choices": [choice], "usage": usage}
            return "application/json", json.dumps(whole)
        begun["object"] = "chat.completion.chunk"
        rest: list[dict[str, Any]] = []
        if call is not None:
            # In two pieces, so that an answer can end inside of its call.
            whole_call = message["tool_calls"][0]
            words = whole_call["function"]["arguments"]
            parts = words[: len(words) // 2], words[len(words) // 2 :]
            function = {**whole_call["function"], "arguments": parts[0]}
            message = {**message, "tool_calls": [{**whole_call, "function": function}]}
            more = {"tool_calls": [{"index": 0, "function": {"arguments": parts[1]}}]}
            rest = [{**begun, "choices": [{"index": 0, "delta": more, "finish_reason": None}]}]
        first = {**begun, "choices": [{"index": 0, "delta": message, "finish_reason": None}]}
        last = {**begun, "choices": [{"index": 0, "delta": {}, "finish_reason": why}]}
        used = {**begun, "choices": [], "usage": usage}
        return "text/event-stream", _events([(None, one) for one in (first, *rest, last, used)], "data: [DONE]\n\n")


class _Messages:
    @staticmethod
    def read(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
        blocks = [
            block for one in body.get("messages") or () if isinstance(one["content"], list) for block in one["content"]
        ]
        done = sum(1 for block in blocks if block.get("type") == "tool_result")
        tools = {str(one["name"]): one.get("input_schema") or {} for one in body.get("tools") or ()}
        return Asked(path, headers, body, done, tools, _text(body, "system", "messages"))

    @staticmethod
    def write(turn: Turn, asked: Asked, stream: bool) -> tuple[str, str]:
        read = {"input_tokens": INPUT - CACHED, "cache_read_input_tokens": CACHED, "cache_creation_input_tokens": 0}
        call = _call(turn, asked) if asked.shell or isinstance(turn, Call) else None
        block: dict[str, Any] = {"type": "text", "text": _said(turn, asked)}
        if call is not None:
            block = {"type": "tool_use", "id": f"toolu_{asked.done}", "name": call[0], "input": call[1]}
        why = "end_turn" if call is None else "tool_use"
        begun = {"id": f"msg_{next(ANSWERS)}", "type": "message", "role": "assistant", "model": asked.body.get("model")}
        if not stream:
            usage = {**read, "output_tokens": OUTPUT}
            whole = {**begun, "content": [block], "stop_reason": why, "stop_sequence": None, "usage": usage}
            return "application/json", json.dumps(whole)
        start = {
            **begun,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {**read, "output_tokens": 1},
        }
        empty = {**block, "text": ""} if call is None else {**block, "input": {}}
        delta = {"type": "text_delta", "text": block.get("text")}
        if call is not None:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])}
        steps: list[dict[str, Any]] = [
            {"type": "message_start", "message": start},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {
                "type": "message_delta",
                "delta": {"stop_reason": why, "stop_sequence": None},
                "usage": {"output_tokens": OUTPUT},
            },
            {"type": "message_stop"},
        ]
        return "text/event-stream", _events([(str(one["type"]), one) for one in steps])


class _Gemini:
    @staticmethod
    def read(path: str, headers: Mapping[str, str], body: Mapping[str, Any]) -> Asked:
        parts = [part for one in body.get("contents") or () for part in one.get("parts") or ()]
        done = sum(1 for part in parts if "functionResponse" in part)
        offered = [one for tool in body.get("tools") or () for one in tool.get("functionDeclarations") or ()]
        tools = {str(one["name"]): one.get("parametersJsonSchema") or one.get("parameters") or {} for one in offered}
        return Asked(path, headers, body, done, tools, _text(body, "systemInstruction", "contents"))

    @staticmethod
    def write(turn: Turn, asked: Asked, stream: bool) -> tuple[str, str]:
        call = _call(turn, asked) if asked.shell or isinstance(turn, Call) else None
        part: dict[str, Any] = {"text": _said(turn, asked)}
        if call is not None:
            part = {"functionCall": {"name": call[0], "args": call[1]}}
        used = turn.used if isinstance(turn, Say) else INPUT
        usage = {
            "promptTokenCount": used,
            "cachedContentTokenCount": CACHED,
            "candidatesTokenCount": OUTPUT - THOUGHT,
            "thoughtsTokenCount": THOUGHT,
            "totalTokenCount": used + OUTPUT,
        }
        content = {"role": "model", "parts": [part]}
        whole = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        if not stream:
            return "application/json", json.dumps(whole)
        return "text/event-stream", _events([(None, whole)])


_FORMS: dict[str, Any] = {
    "/responses": _Responses,
    "/chat/completions": _Chat,
    "/messages": _Messages,
    ":generateContent": _Gemini,
    ":streamGenerateContent": _Gemini,
}


def main() -> None:
    """Answer until the end of stdin; each request is told in a line."""
    port, *commands = sys.argv[1:]

    def told(asked: Asked) -> Turn:
        print(asked.path, asked.done, asked.shell, len(asked.text), flush=True)
        return turns(*(Shell(command) for command in commands), Say("All of it is done."))(asked)

    with serving(told, port=int(port)) as model:
        print(model.url, flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main()
