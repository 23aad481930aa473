"""A rank for test_jobs.py: counts steps, saves them, heartbeats as docs/formats/rank.md says.

jobs_script.py STEPS [STEP_SECONDS]; a file `finish` in the output folder ends it after the running
step. BEHAVIOUR in the environment: ignore_stop, exit_CODE.
"""
import json
import os
import signal
import sys
import time

rank = int(os.environ["RANK"])
attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
step_count = int(sys.argv[1])
step_s = float(sys.argv[2]) if len(sys.argv) > 2 else 0.01
behaviour = os.environ.get("BEHAVIOUR", "")
finish = os.path.join(os.environ["YARD_OUTPUT_DIR"], "finish")
saved = os.path.join(os.environ["YARD_OUTPUT_DIR"], f"rank-{rank}")


def beat(event, **fields):
    line = json.dumps({"t": time.time(), "event": event, **fields}) + "\n"
    fd = os.open(os.environ["YARD_HEARTBEAT"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    os.write(fd, line.encode())
    os.close(fd)


def save(step):
    with open(saved + ".tmp", "w") as file:
        file.write(str(step))
    os.rename(saved + ".tmp", saved)
    beat("checkpoint", global_step=step, blocked_s=0.0, path=saved)


stop_asked = False


def on_sigterm(*_):
    global stop_asked
    stop_asked = behaviour != "ignore_stop"


signal.signal(signal.SIGTERM, on_sigterm)
beat("start", rank=rank, attempt=attempt, pid=os.getpid())
if behaviour.startswith("exit_"):
    sys.exit(int(behaviour.removeprefix("exit_")))
first = 1
if os.path.exists(saved):
    first = int(open(saved).read()) + 1
    beat("resume", stage="only", global_step=first - 1)
print(f"rank {rank} of {os.environ['WORLD_SIZE']} begins with step {first}")
beat("stage", stage="only", stage_index=0, stage_count=1, steps=step_count, resolution=32)
beat("phase", phase="train")
for step in range(first, step_count + 1):
    begin = time.time()
    time.sleep(step_s)
    took = time.time() - begin
    beat("step", stage="only", step=step, global_step=step, global_steps=step_count,
         loss=1 / step if rank == 0 else None, lr=0.1, grad_norm=1.0, samples=8, step_s=took,
         compute_s=took * 0.8, data_wait_s=took * 0.1, comm_wait_s=0.0)
    last = step == step_count or os.path.exists(finish)
    if step % 10 == 0 or last:
        save(step)
    if last:
        break
    if stop_asked:
        save(step)
        sys.exit(8)
beat("finish", global_step=step, output="output")
