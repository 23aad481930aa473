"""Ranks of torch.distributed as processes: by torchrun, and as forks of one Python."""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import traceback

from shard_files import WAIT_SECONDS, script_environment

SCRIPTS = pathlib.Path(__file__).parent / "ranks"


def run_torchrun(script, ranks, *arguments, **variables):
    """What the ranks of a script in ranks/ print."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}",
               SCRIPTS / script, *map(str, arguments)]
    return _finished(command, **variables)


def run_alone(script, *arguments, **variables):
    """What a script in ranks/ prints that makes its ranks itself."""
    return _finished([sys.executable, SCRIPTS / script, *map(str, arguments)], **variables)


def _finished(command, **variables):
    variables.setdefault("OMP_NUM_THREADS", 1)
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                               env=script_environment(**variables), start_new_session=True)
    try:
        out, err = process.communicate(timeout=WAIT_SECONDS)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # the ranks too
            process.communicate()
    assert process.returncode == 0, f"{out[-4000:]}\n{err[-8000:]}"
    return out


def run_checks(script):
    """Runs the functions check_* of a script in their order, and says so, in one write among those of other ranks."""
    for name, check in list(script.items()):
        if name.startswith("check_"):
            check()
            os.write(1, f"{name} {os.environ['RANK']}\n".encode())


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def run_ranks(count, body, port, victim=None):
    """Forks `count` ranks that run body(rank) with torchrun's variables; the victim may be killed. Before any
    thread exists: a fork has but one. What failed, or None."""
    sys.stdout.flush()
    children = []
    for rank in range(count):
        pid = os.fork()
        if pid == 0:
            _run_rank(rank, count, body, port)
        children.append(pid)
    failed = []
    for rank, pid in enumerate(children):
        _, status = os.waitpid(pid, 0)
        killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
        if status != 0 and not (killed and rank == victim):
            failed.append(f"rank {rank}: status {status}")
    return f"{body.__name__}: {', '.join(failed)}" if failed else None


def _run_rank(rank, count, body, port):
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(count), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(count),
                      MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    status = 1
    try:
        body(rank)
        status = 0
    except BaseException:  # noqa: BLE001: the parent wants a status, whatever it was
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)
