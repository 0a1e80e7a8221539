#!/usr/bin/env python3
"""A program that speaks ACP over its stdin and stdout, and does what a script says: with the traps of real programs.

    agent.py HOME_DIR

HOME_DIR/script.json: ``{"turns": [[ACTION, …], …], SWITCH: …}``. Turn n is done for the n-th prompt of a conversation;
after the last one it says "done". Actions: ``{"say": TEXT}``, ``{"think": TEXT}``, ``{"shell": COMMAND, "ask": BOOL}``,
``{"wait": FILE}``, ``{"error": OBJECT}``, ``{"stop": REASON}``, ``{"usage": OBJECT}``, ``{"update": OBJECT}``,
``{"line": TEXT}``, ``{"big": CHARACTERS}``, ``{"stderr": CHARACTERS}``, ``{"die": STATUS}``, ``{"request": METHOD}``.

Switches: ``no_load``, ``load_errors`` (how many loads fail), ``load_cost`` (what a load reports as the price so far),
``cancel_is_error``, ``deaf_to_cancel``,
``asks_after_cancel`` (a cancelled turn asks for a permission), ``waits_for_permission`` (and ends only when it is
answered), ``ignore_end`` (goes on after the end of stdin and after SIGTERM), ``no_announcement`` (no tool_call before a
request, the command in the title), ``bare_request`` (a request with nothing but the id), ``reject_ends`` (a refused
tool ends the turn), ``orphans_tools`` (a cancelled turn leaves its tool running), ``login`` (session/new fails),
``late_end`` (seconds after which a cancelled turn ends).

HOME_DIR/log.jsonl has every message that it received; HOME_DIR/sessions/ID.json the prompts of a conversation.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

HOME = Path(sys.argv[1])
SCRIPT: dict[str, Any] = json.loads((HOME / "script.json").read_text())
LOCK = threading.Lock()
OPTIONS = [
    {"optionId": "x-always", "name": "Always", "kind": "allow_always"},
    {"optionId": "x-yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "x-no", "name": "No", "kind": "reject_once"},
]


class Cancelled(Exception):
    pass


class Ended(Exception):
    def __init__(self, reason: str) -> None:
        self.reason = reason


class Failed(Exception):
    def __init__(self, error: dict) -> None:
        self.error = error


class Agent:
    def __init__(self) -> None:
        self.prompts: queue.Queue[dict] = queue.Queue()
        self.answers: dict[int, queue.Queue[dict]] = {}
        self.cancelled = threading.Event()
        self.in_turn = False
        self.session = ""
        self.next_id = 100
        self.usage: dict = {}
        self.calls = 0

    def send(self, message: dict) -> None:
        with LOCK:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            sys.stdout.flush()

    def update(self, fields: dict) -> None:
        self.send({"method": "session/update", "params": {"sessionId": self.session, "update": fields}})

    def ask(self, method: str, params: dict) -> dict:
        self.next_id += 1
        self.answers[self.next_id] = queue.Queue()
        self.send({"id": self.next_id, "method": method, "params": params})
        while True:
            try:
                return self.answers[self.next_id].get(timeout=0.02)
            except queue.Empty:
                if self.cancelled.is_set() and not SCRIPT.get("waits_for_permission"):
                    raise Cancelled from None

    def listen(self) -> None:
        for line in sys.stdin:
            message = json.loads(line)
            with (HOME / "log.jsonl").open("a") as log:
                log.write(line)
            if message.get("jsonrpc") != "2.0":
                continue
            self.receive(message)
        if SCRIPT.get("ignore_end"):
            return
        os._exit(0)

    def receive(self, message: dict) -> None:
        method = message.get("method")
        if method is None:
            self.answers[message["id"]].put(message)
        elif method == "session/cancel":
            if not SCRIPT.get("deaf_to_cancel"):
                self.cancelled.set()
        elif method == "session/prompt":
            if self.in_turn or not self.prompts.empty():
                self.send({"id": message["id"], "error": {"code": -32603, "message": "A turn is already running"}})
                return
            self.prompts.put(message)
        else:
            self.manage(message, method)

    def manage(self, message: dict, method: str) -> None:
        result: Any = {}
        if method == "initialize":
            result = {"protocolVersion": 1, "agentCapabilities": {"loadSession": not SCRIPT.get("no_load")}}
        elif method == "session/new":
            if SCRIPT.get("login"):
                error = {"code": -32000, "message": "Authentication required", "data": {"authMethods": [{"id": "key"}]}}
                self.send({"id": message["id"], "error": error})
                return
            self.session = f"s-{os.getpid()}"
            self.store([])
            result = {"sessionId": self.session}
        elif method == "session/load":
            result = self.load(message["params"]["sessionId"])
            if result is None:
                self.send({"id": message["id"], "error": {"code": -32603, "message": "Invalid session identifier"}})
                return
        self.send({"id": message["id"], "result": result})

    def load(self, name: str) -> dict | None:
        failures = HOME / "load-failures"
        count = int(failures.read_text()) if failures.exists() else 0
        if count < SCRIPT.get("load_errors", 0):
            failures.write_text(str(count + 1))
            return None
        if not self.file(name).exists():
            return None
        self.session = name
        for text in self.kept():
            self.update({"sessionUpdate": "user_message_chunk", "content": {"type": "text", "text": text}})
            self.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "REPLAYED"}})
        if "load_cost" in SCRIPT:
            cost = {"amount": SCRIPT["load_cost"]}
            self.update({"sessionUpdate": "usage_update", "used": 5, "size": 50, "cost": cost})
        return {}

    def file(self, name: str) -> Path:
        return HOME / "sessions" / f"{name}.json"

    def kept(self) -> list[str]:
        return json.loads(self.file(self.session).read_text())

    def store(self, prompts: list[str]) -> None:
        self.file(self.session).parent.mkdir(exist_ok=True)
        self.file(self.session).write_text(json.dumps(prompts))

    def work(self) -> None:
        while True:
            message = self.prompts.get()
            self.in_turn = True
            self.cancelled.clear()
            prompts = [*self.kept(), message["params"]["prompt"][0]["text"]]
            self.store(prompts)
            turns = SCRIPT["turns"]
            answer: dict = {"result": {"stopReason": "end_turn"}}
            try:
                self.usage = {}
                for action in turns[len(prompts) - 1] if len(prompts) <= len(turns) else [{"say": "done"}]:
                    self.act(action)
                    if self.cancelled.is_set():
                        raise Cancelled
            except Cancelled:
                time.sleep(SCRIPT.get("late_end", 0))
                if SCRIPT.get("asks_after_cancel"):
                    params = {"sessionId": self.session, "toolCall": {"toolCallId": "late"}, "options": OPTIONS}
                    self.ask("session/request_permission", params)
                answer = {"result": {"stopReason": "cancelled"}}
                if SCRIPT.get("cancel_is_error"):
                    answer = {"error": {"code": -32603, "message": "Request was aborted."}}
            except Ended as ended:
                answer = {"result": {"stopReason": ended.reason}}
            except Failed as failed:
                answer = {"error": failed.error}
            if self.usage and "result" in answer:
                answer["result"].update(self.usage)
            self.in_turn = False
            self.send({"id": message["id"], **answer})

    def act(self, action: dict) -> None:
        match action:
            case {"say": text}:
                self.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}})
            case {"think": text}:
                self.update({"sessionUpdate": "agent_thought_chunk", "content": {"type": "text", "text": text}})
            case {"shell": command}:
                self.shell(command, ask=action.get("ask", True))
            case {"wait": file}:
                while not (HOME / file).exists():
                    if self.cancelled.wait(0.01):
                        raise Cancelled
            case {"error": error}:
                raise Failed(error)
            case {"stop": reason}:
                raise Ended(reason)
            case {"usage": fields}:
                self.usage = fields
            case {"update": fields}:
                self.update(fields)
            case {"line": text}:
                with LOCK:
                    sys.stdout.write(text + "\n")
                    sys.stdout.flush()
            case {"big": size}:
                self.update({"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x" * size}})
            case {"stderr": size}:
                sys.stderr.write("e" * size + "\nlast words\n")
                sys.stderr.flush()
            case {"request": method}:
                answer = self.ask(method, {})
                (HOME / "answer.json").write_text(json.dumps(answer))
            case {"die": status}:
                os._exit(status)

    def shell(self, command: str, *, ask: bool) -> None:
        self.calls += 1
        call = {
            "toolCallId": f"call-{os.getpid()}-{self.calls}",
            "title": command if SCRIPT.get("no_announcement") else "Run a command",
            "kind": "execute",
            "rawInput": {"command": command},
        }
        if SCRIPT.get("no_announcement"):
            del call["rawInput"]
        else:
            self.update({"sessionUpdate": "tool_call", "status": "pending", **call})
        if ask:
            shown = {"toolCallId": call["toolCallId"]} if SCRIPT.get("bare_request") else call
            params = {"sessionId": self.session, "toolCall": shown, "options": OPTIONS}
            outcome = self.ask("session/request_permission", params)["result"]["outcome"]
            if outcome != {"outcome": "selected", "optionId": "x-yes"}:
                if outcome["outcome"] == "cancelled":
                    raise Cancelled
                if SCRIPT.get("reject_ends"):
                    raise Ended("end_turn")
                return
        child = subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE, text=True, start_new_session=True)
        while child.poll() is None:
            if self.cancelled.wait(0.01):
                if not SCRIPT.get("orphans_tools"):
                    os.killpg(child.pid, signal.SIGKILL)
                raise Cancelled
        output = child.stdout.read() if child.stdout else ""
        status = "failed" if child.returncode else "completed"
        content = [{"type": "content", "content": {"type": "text", "text": output}}]
        update = {"sessionUpdate": "tool_call_update", "toolCallId": call["toolCallId"], "status": status}
        self.update({**update, "content": content})


def main() -> None:
    if SCRIPT.get("ignore_end"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (HOME / "pids").open("a").write(f"{os.getpid()}\n")
    agent = Agent()
    threading.Thread(target=agent.listen, daemon=True).start()
    threading.Thread(target=agent.work, daemon=True).start()
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main()
