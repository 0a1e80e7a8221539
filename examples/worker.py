"""A worker for Liza: an agent program that needs only the worker API and Python's standard library.

Start a crew of them with ``liza up --program "script:python3 worker.py"``. Read ``Worker.work`` first: it makes the
calls in their natural order. Put your model in the place of ``next_step``. specs/worker-api.md explains each call.
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
from collections import Counter
from contextlib import suppress
from datetime import UTC, datetime

from listing_model import next_step


class Refused(Exception):
    """Liza answered with a problem document; the text says what to do instead."""


class Worker:
    """One run. ``prompts`` are those that the stream has delivered, ``results`` what became of the model's calls."""

    def __init__(self):
        self.headers, self.prompts, self.results = {"Content-Type": "application/json"}, queue.Queue(), []
        self.me = self.post("identity", token=os.environ.pop("LIZA_TOKEN"))  # it works once
        self.run, self.headers["Authorization"] = self.me["run_id"], "Bearer " + self.me["token"]
        self.health = {"current_state": "busy", "last_activity": now()}
        threading.Thread(target=self.listen, daemon=True).start()

    def send(self, method, path, body=None, **headers):
        """Return the response. Without a server try again: Liza starts it again. Each call here may be repeated."""
        for attempt in range(60):
            with suppress(OSError, http.client.HTTPException):
                connection = http.client.HTTPConnection("localhost")
                connection.sock = socket.socket(socket.AF_UNIX)
                connection.sock.settimeout(60)  # the stream is never silent for more than 15 seconds
                connection.sock.connect(os.environ.get("LIZA_API", "api.sock"))
                connection.request(method, f"/v1/{path}", body, {**self.headers, **headers})
                response = connection.getresponse()
                if response.status < 400:
                    return response if method == "GET" else json.load(response)
                problem = json.load(response)
                if response.status not in (503, 507):  # something that Liza needs is busy
                    raise Refused(f"{problem['detail']}. {problem['hint']}".strip())
            time.sleep(min(0.05 * 2**attempt, 2))
        sys.exit("the worker API does not answer: run `liza doctor`")

    def post(self, path, **body):
        return self.send("POST", path, json.dumps(body))

    def report(self, event, **metadata):
        state = event if event in ("busy", "stopping") else "idle"
        self.health = {"current_state": state, "last_activity": now()}
        self.post("lifecycle", event=event, run_id=self.run, timestamp=now(), metadata=metadata)

    def listen(self):
        """Handle the events of the stream; reconnect after the last one until the run is over."""
        last = {}
        with suppress(Refused):
            while True:
                stream = self.send("GET", f"runs/{self.run}/stream", **last)
                with suppress(OSError, http.client.HTTPException):
                    for event in parse_events(stream):
                        self.handle(event["event"], json.loads(event["data"]))
                        last = {"Last-Event-ID": event["id"]} if "id" in event else last
                time.sleep(0.1)

    def handle(self, kind, data):
        if kind == "prompt":
            self.prompts.put(data)
        elif kind == "credentials":  # those of another account, to be used from now on
            self.me["credentials"] = data["credentials"]
            self.post("acknowledge", run_id=self.run, ids=[data["id"]])
        elif kind == "health":
            health = {"run_id": self.run, "question": data["question"], "status": "healthy", **self.health}
            self.post(f"runs/{self.run}/health", **health)

    def take_prompts(self, wait=0):
        """Add the prompts that have arrived to the context, and acknowledge them. Return whether there were any."""
        count = len(self.context)
        with suppress(queue.Empty):
            while True:
                prompt = self.prompts.get(timeout=wait)
                print(f"prompt of {prompt['metadata']['from']}: {prompt['content']}", flush=True)
                self.context.append({"type": "prompt", "content": prompt["content"]})
                self.post("acknowledge", run_id=self.run, ids=[prompt["id"]])
        return len(self.context) > count

    def run_tool(self, call):
        """Ask whether the tool may run, and run it. The model reads the reason of a denial as it reads an output."""
        verdict, command = self.post("authorize", run_id=self.run, **call), call["input"]["command"]
        success, output, start = False, verdict["reason"], time.monotonic()
        if verdict["allowed"]:
            pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            done = subprocess.run(["sh", "-c", command], cwd=self.me["worktree"], **pipes)
            success = done.returncode == 0
            output = done.stdout.decode(errors="replace") or f"exit status {done.returncode}"
        print(f"$ {command}\n{output}", flush=True)
        self.health["last_activity"] = now()
        self.results.append({"call": call, "success": success, "output": output})
        return {"name": call["tool"], "success": success, "duration_ms": round(1000 * (time.monotonic() - start))}

    def take_turn(self, number):
        """Work until the model ends its turn. Return how it ends the run."""
        self.report("busy")
        step, usage, tools = {}, Counter(), []
        while "end" not in step:
            self.take_prompts()  # an urgent one arrives in the middle of a turn
            step, used = next_step(self.me["role"], self.context, self.results)
            usage.update(used)
            if "tool" in step:
                tools.append(self.run_tool(step))
        turn = {"type": "turn_complete", "id": f"turn-{number}", "timestamp": now(), "usage": usage}
        self.post("telemetry", run_id=self.run, events=[{**turn, "tools_called": tools}])
        self.report("idle")
        return step

    def work(self):
        """Do the task of the run. Return the exit code."""
        self.report("started")
        self.report("ready")
        self.context = self.post("context", run_id=self.run, mode="full")["sections"]
        for number in range(20):
            end = self.take_turn(number)
            if self.take_prompts(wait=0.3):
                continue  # Liza sends what waited for the end of the turn: it is part of the next one
            try:
                path = f"runs/{self.run}/{end.pop('end')}"  # submit, verdict, block or handoff
                print(self.post(path, **end)["next"], flush=True)
                return 0
            except Refused as error:  # the model reads why
                print(error, file=sys.stderr, flush=True)
                self.results.append({"call": end, "success": False, "output": str(error)})
        return 1


def parse_events(lines):
    """Yield the fields of each server-sent event. Liza sends data of one line; a comment has no name."""
    event = {}
    for line in lines:
        name, _, value = line.decode().strip().partition(":")
        if name:
            event[name] = value.strip()
        elif "data" in event:
            yield event
            event = {}


def now():
    return datetime.now(UTC).isoformat()


if __name__ == "__main__":
    os.chdir(os.environ["LIZA_ROOT"] + "/.liza/run")  # for api.sock: an address has at most 107 bytes
    worker = Worker()
    code = worker.work()
    with suppress(Refused):  # after the closing call Liza ends a process that has not ended, and the run is over
        worker.report("stopping")
        worker.report("stopped", exit_code=code)
    sys.exit(code)
