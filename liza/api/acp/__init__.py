"""The ACP sidecar: the process that a run's shim starts as the run's program, and that drives the real one over ACP.

It starts the program as its child, prompts it, answers its permission requests, and prints what happens as JSON lines
of one form for all programs. It holds no policy: the steps are chosen in `api/rules`, the surfaces are in `api`.
Read `session_driver.py` first, then `agent_process.py`.
"""
