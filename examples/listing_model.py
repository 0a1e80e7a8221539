"""The stand-in for a model in `worker.py`: it lists files. Put your model in the place of ``next_step``."""

import os
import re
import shlex


def next_step(role, context, conversation):
    """Return the next tool call, or how the run ends, and what the model used for it.

    It reads the sections of the context, with the prompts that arrived meanwhile, and the calls so far with their
    results. As a coder it writes a list of the files of a directory, to the file that is the
    task's scope; as a reviewer it makes the list again and compares.
    """
    usage = {"input_tokens": 0, "output_tokens": 0}
    if role == "planner":
        return {"end": "handoff", "summary": "the tasks on the board are the plan", "done": True}, usage
    work = "".join(section["content"] for section in context if section["type"] == "work")
    path = re.search(r"^SCOPE +(\S+)", work, re.MULTILINE)[1].strip("`\"'")
    file, others = shlex.quote(path), shlex.quote(f":!{path}")
    listing = f"git ls-files -- {shlex.quote(os.path.dirname(path) or '.')} {others}"  # noqa: PTH120
    if role == "code-reviewer":
        if not conversation:
            return {"tool": "shell", "input": {"command": f"{listing} | diff -I '^#' - {file}"}}, usage
        first = conversation[0]
        reason = first["call"]["input"]["command"] + ": no difference" if first["success"] else first["output"]
        return {"end": "verdict", "verdict": "approve" if first["success"] else "reject", "reason": reason}, usage
    failed = next((call for call in conversation if not call["success"]), None)
    if failed:
        return {"end": "block", "reason": failed["output"], "questions": ["How can this be done?"]}, usage
    told = "".join(f" -m {shlex.quote(section['content'])}" for section in context if section["type"] == "prompt")
    commands = [
        f"echo '# Files, listed by {os.environ['LIZA_RUN']}' > {file}",
        f"{listing} >> {file}",
        f"git add -- {file}",
        f"git commit -q -m {shlex.quote('List the files beside ' + path)}{told}",
    ]
    if len(conversation) < len(commands):
        return {"tool": "shell", "input": {"command": commands[len(conversation)]}}, usage
    return {"end": "submit"}, usage
