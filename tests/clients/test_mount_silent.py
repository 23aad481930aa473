"""A mount whose process is stopped: who calls into it waits; the commands say so, and end it."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import pytest

from mounting import is_mounted, mounted, why_not
from s3_servers import wait_until
from served import BIN, WAIT_SECONDS

NO_MOUNT = why_not()
pytestmark = pytest.mark.skipif(NO_MOUNT is not None, reason=f"NOT TESTED: {NO_MOUNT}")

# Opens, says so, then reads what nobody has read yet.
READER = """
import os, sys
file = os.open(sys.argv[1], os.O_RDONLY)
os.read(file, 1)
print("open", flush=True)
sys.stdin.readline()
try:
    os.pread(file, 4096, 20 << 20)
except OSError as failed:
    print(failed.errno, flush=True)
"""


def yard(*arguments):
    return subprocess.run([BIN / "yard", *map(str, arguments)], capture_output=True, text=True,
                          check=False, timeout=WAIT_SECONDS)


def listed():
    done = yard("mount", "--json")
    assert done.returncode == 0, done.stderr
    return {line["directory"]: line for line in map(json.loads, done.stdout.splitlines())}


@pytest.fixture()
def mount(tmp_path):
    folder = tmp_path / "objects"
    folder.mkdir()
    (folder / "large").write_bytes(os.urandom(24 << 20))
    with mounted(tmp_path / "at", folder, {**os.environ}) as running:
        running.url = f"file://{folder}/"
        yield running
        if running.process.poll() is None:
            running.process.send_signal(signal.SIGCONT)


def test_mounts_are_listed_with_their_state(mount, tmp_path):
    assert listed()[str(mount.path)] == {"directory": str(mount.path), "url": mount.url,
                                         "state": "serving"}
    mount.process.send_signal(signal.SIGSTOP)
    assert listed()[str(mount.path)]["state"] == "does not answer"
    text = yard("mount").stdout
    assert f"{mount.url} on {mount.path}: does not answer\n" in text
    mount.process.kill()
    mount.process.wait(WAIT_SECONDS)
    assert listed()[str(mount.path)]["state"] == "dead"
    assert yard("unmount", mount.path).returncode == 0
    assert str(mount.path) not in listed()


def test_nothing_is_mounted_over_one_that_does_not_answer(mount, tmp_path):
    mount.process.send_signal(signal.SIGSTOP)
    begin = time.monotonic()
    second = yard("mount", mount.path.with_name("objects"), mount.path)
    assert time.monotonic() - begin < WAIT_SECONDS / 2
    assert second.returncode != 0
    assert "does not answer" in second.stderr and f"yard unmount --force {mount.path}" in second.stderr


def test_one_that_is_not_in_use_is_taken_off_as_ever(mount):
    mount.process.send_signal(signal.SIGSTOP)
    assert yard("unmount", mount.path).returncode == 0
    assert not is_mounted(mount.path)
    mount.process.send_signal(signal.SIGCONT)
    assert mount.process.wait(WAIT_SECONDS) == 0


def test_force_frees_who_waits_for_it(mount):
    with subprocess.Popen([sys.executable, "-c", READER, mount.path / "large"], text=True,
                          stdin=subprocess.PIPE, stdout=subprocess.PIPE) as reader:
        try:
            assert reader.stdout.readline() == "open\n"
            mount.process.send_signal(signal.SIGSTOP)
            reader.stdin.write("read\n")
            reader.stdin.flush()
            wait_until(lambda: waits_elsewhere_than_at_a_pipe(reader.pid), "the reader does not wait")
            refused = yard("unmount", mount.path)
            assert refused.returncode != 0
            assert "stopped or hangs" in refused.stderr and "--force" in refused.stderr
            assert yard("unmount", "--force", mount.path).returncode == 0
            assert int(reader.stdout.readline()) in (errno.ECONNABORTED, errno.ENOTCONN, errno.EIO)
            assert reader.wait(WAIT_SECONDS) == 0
        finally:
            mount.process.send_signal(signal.SIGCONT)  # else a reader that waits holds up the end
    assert not is_mounted(mount.path)
    mount.process.wait(WAIT_SECONDS)


def waits_elsewhere_than_at_a_pipe(pid):
    """In the kernel, as far as it tells: where it does not, the reader is taken to wait."""
    with open(f"/proc/{pid}/wchan", encoding="ascii") as file:
        return "pipe" not in file.read()
