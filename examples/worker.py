"""A worker for Liza that uses the worker API and Python's standard library, and nothing else.

Start a crew of them with ``liza up --program "script:python3 worker.py"``. It replaces an agent program: it asks who it
is, reads its context, asks before each tool, reports what each turn used, takes prompts that arrive meanwhile, and ends
with a submit or a verdict. Put your model in ``next_step``; the one here writes one file and runs no model.
specs/worker-api.md explains each call.
"""

import contextlib
import http.client
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime


class Refused(Exception):
    """Liza answered with a problem document."""


class Connection(http.client.HTTPConnection):
    """HTTP on the crew's Unix socket. Its name is relative to the directory: an address has at most 107 bytes."""

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        with contextlib.chdir(os.path.join(os.environ["LIZA_ROOT"], ".liza", "run")):
            self.sock.connect("api.sock")


class Api:
    """One run's side of the API. ``prompts`` holds the prompts that the stream delivered."""

    def __init__(self):
        self.token, self.run, self.prompts = None, None, queue.Queue()
        self.identity = self.post("identity", {"token": os.environ["LIZA_TOKEN"]})
        self.token, self.run = self.identity["token"], self.identity["run_id"]
        threading.Thread(target=self.listen, daemon=True).start()

    def open(self, method, path, body=None, **headers):
        """Send a request; try again while there is no server: a supervisor starts it again when it ends."""
        if self.token:
            headers["Authorization"] = "Bearer " + self.token
        for attempt in range(100):
            try:
                connection = Connection("localhost")
                data = None if body is None else json.dumps(body)
                connection.request(method, "/v1/" + path, data, {"Content-Type": "application/json", **headers})
                return connection.getresponse()
            except (OSError, http.client.HTTPException):
                time.sleep(min(0.05 * 2**attempt, 2))
        sys.exit("there is no server: run `liza serve`")

    def post(self, path, body):
        """Send a request and return the answer. Every request may be repeated: nothing is applied twice."""
        response = self.open("POST", path, body)
        answer = json.loads(response.read())
        if response.status >= 400:
            raise Refused(f"{answer['title']}: {answer.get('detail', '')}. Next: {answer.get('hint', '')}")
        return answer

    def report(self, event, **metadata):
        now = datetime.now(UTC).isoformat()
        self.post("lifecycle", {"event": event, "run_id": self.run, "timestamp": now, "metadata": metadata})

    def listen(self):
        """Read the stream of this run; reconnect after the last event that was read."""
        last = ""
        while True:
            event = {}
            response = self.open("GET", f"runs/{self.run}/stream", **({"Last-Event-ID": last} if last else {}))
            with contextlib.suppress(OSError, http.client.HTTPException):
                for line in response:
                    name, _, value = line.decode().rstrip("\n").partition(": ")
                    event[name] = value
                    if name == "" and event.get("event") == "prompt":
                        self.prompts.put(json.loads(event["data"]))
                    elif name == "" and event.get("event") == "health":
                        self.answer_health(json.loads(event["data"])["question"])
                    last, event = event.get("id", last), event if name else {}
            time.sleep(0.2)

    def answer_health(self, question):
        now = datetime.now(UTC).isoformat()
        health = {"status": "healthy", "current_state": "busy", "last_activity": now, "question": question}
        self.post(f"runs/{self.run}/health", {"run_id": self.run, **health})


def next_step(role, context, conversation):
    """Return the next tool call, or how to end. A model belongs here: it reads the context and what happened so far."""
    if role == "code-reviewer":
        look = {"tool": "shell", "input": {"command": "git show --stat HEAD"}}
        return look if not conversation else {"end": "verdict", "verdict": "approve", "reason": "one small file, read"}
    task = os.environ["LIZA_TASK"]
    commands = [
        f"echo 'done by {os.environ['LIZA_RUN']}' > {task}.txt",
        f"git add {task}.txt",
        f"git commit -qm '{task}'",
    ]
    calls = [{"tool": "shell", "input": {"command": command}} for command in commands]
    return calls[len(conversation)] if len(conversation) < len(calls) else {"end": "submit"}


def run_tool(api, call):
    """Ask whether the tool may run, then run it. The answer goes to the model either way."""
    verdict = api.post("authorize", {"run_id": api.run, **call})
    if not verdict["allowed"]:
        return {"call": call, "success": False, "output": verdict["reason"], "seconds": 0}
    start = time.monotonic()
    done = subprocess.run(call["input"]["command"], shell=True, capture_output=True, text=True)
    return {
        "call": call,
        "success": done.returncode == 0,
        "output": done.stdout + done.stderr,
        "seconds": time.monotonic() - start,
    }


def main():
    api = Api()
    for event in ("started", "ready"):
        api.report(event)
    context = api.post("context", {"run_id": api.run, "mode": "full"})["sections"]
    api.report("busy")
    conversation = []
    while "end" not in (step := next_step(api.identity["role"], context, conversation)):
        conversation.append(run_tool(api, step))
        while not api.prompts.empty():
            prompt = api.prompts.get()
            context.append({"type": "mail", "content": prompt["content"]})
            api.post("acknowledge", {"run_id": api.run, "ids": [prompt["id"]]})
    tools = [
        {"name": each["call"]["tool"], "success": each["success"], "duration_ms": round(each["seconds"] * 1000)}
        for each in conversation
    ]
    turn = {
        "type": "turn_complete",
        "timestamp": datetime.now(UTC).isoformat(),
        "tools_called": tools,
        "usage": {"input_tokens": len(str(context)) // 4, "output_tokens": 10, "model": "none", "cost_usd": 0.0},
    }
    api.post("telemetry", {"run_id": api.run, "events": [turn]})
    api.report("idle")
    api.report("stopping")
    ending = step.pop("end")
    print(api.post(f"runs/{api.run}/{ending}", step))
    api.report("stopped", exit_code=0)


main()
