"""A worker for Liza: an agent program that needs only the worker API and Python's standard library.

Start a crew of them with ``liza up --program "script:python3 worker.py"``. Read ``main`` first: it makes the calls in
their natural order. Put your model in the place of ``next_step``. specs/worker-api.md explains each call.
"""

import http.client
import json
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from listing_model import next_step

WORKTREE = Path.cwd()
MAX_TURNS = 20
AT_EDGE = 0.3  # seconds after a turn in which Liza sends the prompts that waited for its end


class Refused(Exception):
    """Liza answered with a problem document; the text says what to do instead."""


class Connection(http.client.HTTPConnection):
    def connect(self):
        # Relative to the working directory, see main(): the address of a socket has at most 107 bytes.
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(60)  # the stream is never silent for more than 15 seconds
        self.sock.connect("api.sock")


def now():
    return datetime.now(UTC).isoformat()


class Api:
    """One run's side of the API. ``prompts`` has the prompts that the stream has delivered."""

    def __init__(self):
        self.run, self.headers, self.prompts = None, {"Content-Type": "application/json"}, queue.Queue()
        self.state, self.last_activity = "busy", now()
        me = self.identity = self.post("identity", token=os.environ.pop("LIZA_TOKEN"))  # it works once
        self.run, self.headers["Authorization"] = me["run_id"], "Bearer " + me["token"]
        self.credentials = {secret["name"]: secret["value"] for secret in me["credentials"]}
        threading.Thread(target=self.listen, daemon=True).start()

    def send(self, method, path, body=None, **headers):
        """Return the response. Without a server try again: Liza starts it again, and applies no request twice."""
        data = None if body is None else json.dumps(body)
        for attempt in range(60):
            with suppress(OSError, http.client.HTTPException):
                connection = Connection("localhost")
                connection.request(method, "/v1/" + path, data, {**self.headers, **headers})
                response = connection.getresponse()
                if response.status < 400:
                    return response if method == "GET" else json.loads(response.read())
                problem = json.loads(response.read())
                if response.status != 503:  # something that Liza needs is busy
                    raise Refused(f"{problem['detail']}. {problem['hint']}".strip())
            time.sleep(min(0.05 * 2**attempt, 2))
        sys.exit("the worker API does not answer: run `liza doctor`")

    def post(self, path, **body):
        return self.send("POST", path, body)

    def report(self, event, **metadata):
        self.state, self.last_activity = event, now()
        self.post("lifecycle", event=event, run_id=self.run, timestamp=now(), metadata=metadata)

    def listen(self):
        """Handle the events of the stream; reconnect after the last one until the run is over."""
        last = {}
        with suppress(Refused):
            while True:
                response = self.send("GET", f"runs/{self.run}/stream", **last)
                with suppress(OSError, http.client.HTTPException):
                    for kind, data, event_id in parse_events(response):
                        self.handle(kind, json.loads(data))
                        last = {"Last-Event-ID": event_id} if event_id else last
                time.sleep(0.1)

    def handle(self, kind, event):
        if kind == "prompt":
            self.prompts.put(event)
        elif kind == "credentials":  # the account in use is changed
            self.credentials.update({secret["name"]: secret["value"] for secret in event["credentials"]})
            self.post("acknowledge", run_id=self.run, ids=[event["id"]])
        elif kind == "health":
            state = self.state if self.state in ("busy", "stopping") else "idle"
            health = {"status": "healthy", "current_state": state, "last_activity": self.last_activity}
            self.post(f"runs/{self.run}/health", run_id=self.run, question=event["question"], **health)


def parse_events(lines):
    """Yield kind, data and id of each server-sent event (WHATWG HTML, 9.2). A comment has no name, and is skipped."""
    fields, data = {}, []
    for line in lines:
        name, _, value = line.decode().rstrip("\r\n").partition(":")
        if name == "data":
            data.append(value.removeprefix(" "))
        elif name:
            fields[name] = value.removeprefix(" ")
        elif not line.strip():
            if data:
                yield fields.get("event", "message"), "\n".join(data), fields.get("id")
            fields.pop("event", None)
            data = []


def run_tool(api, call):
    """Ask whether the tool may run, and run it. The model reads the reason of a denial as it reads an output."""
    verdict = api.post("authorize", run_id=api.run, **call)
    if not verdict["allowed"]:
        return {"call": call, "success": False, "output": verdict["reason"], "seconds": 0}
    start, pipes = time.monotonic(), {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    command = ["sh", "-c", call["input"]["command"]]
    done = subprocess.run(command, cwd=WORKTREE, stdin=subprocess.DEVNULL, **pipes)
    output = done.stdout.decode(errors="replace") or f"exit status {done.returncode}"
    return {"call": call, "success": done.returncode == 0, "output": output, "seconds": time.monotonic() - start}


def take_prompts(api, context, wait=0.0):
    """Add the prompts that have arrived to the context, and acknowledge them. Return whether there were any."""
    count = len(context)
    with suppress(queue.Empty):
        while True:
            prompt = api.prompts.get(timeout=wait) if wait else api.prompts.get_nowait()
            print(f"prompt of {prompt['metadata']['from']}: {prompt['content']}", flush=True)
            context.append({"type": "prompt", "content": prompt["content"]})
            api.post("acknowledge", run_id=api.run, ids=[prompt["id"]])
    return len(context) > count


def take_turn(api, number, context, conversation):
    """Work until the model ends its turn. Return how it ends the run."""
    api.report("busy")
    tools, usage = [], {}
    while True:
        take_prompts(api, context)  # an urgent one arrives in the middle of a turn
        step, used = next_step(api.identity["role"], context, conversation)
        usage = {name: usage.get(name, 0) + count for name, count in used.items()}
        if "end" in step:
            break
        result = run_tool(api, step)
        conversation.append(result)
        print(f"$ {step['input']['command']}\n{result['output']}", flush=True)
        took = round(result["seconds"] * 1000)
        tools.append({"name": step["tool"], "success": result["success"], "duration_ms": took})
        api.last_activity = now()
    turn = {"type": "turn_complete", "id": f"turn-{number}", "timestamp": now(), "usage": usage, "tools_called": tools}
    api.post("telemetry", run_id=api.run, events=[turn])
    api.report("idle")
    return step


def main():
    os.chdir(Path(os.environ["LIZA_ROOT"], ".liza", "run"))
    api = Api()
    api.report("started")
    api.report("ready")
    context = api.post("context", run_id=api.run, mode="full")["sections"]
    conversation, code = [], 1
    for number in range(1, MAX_TURNS + 1):
        step = take_turn(api, number, context, conversation)
        if take_prompts(api, context, AT_EDGE):
            continue  # what waited for the end of the turn is part of the next one
        try:
            end = step.pop("end")  # submit, verdict, block or handoff
            print(api.post(f"runs/{api.run}/{end}", **step)["next"], flush=True)
            code = 0
            break
        except Refused as error:
            print(error, file=sys.stderr, flush=True)
            if conversation and conversation[-1]["output"] == str(error):
                break  # the same once more
            conversation.append({"call": step, "success": False, "output": str(error)})
    with suppress(Refused):  # after the closing call Liza ends a process that has not ended, and the run is over
        api.report("stopping")
        api.report("stopped", exit_code=code)
    return code


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Refused as error:
        sys.exit(str(error))
