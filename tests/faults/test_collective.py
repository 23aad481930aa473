"""`yard check collective` on two hosts, network namespaces joined by a veth pair, and what becomes of
its ranks when one of them, or the link, fails; more ranks than cores; a small /dev/shm."""

import contextlib
import json
import os
import pathlib
import signal
import subprocess
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
YARD = BIN / "yard"
WAIT_SECONDS = 120  # only a failure comes near it
NAMES = [f"yard{os.getpid() % 100000}-{i}" for i in range(2)]


def run(*command, **more):
    return subprocess.run(command, capture_output=True, text=True, timeout=WAIT_SECONDS, **more)


@contextlib.contextmanager
def two_hosts():
    made = []
    try:
        for name in NAMES:
            for step in (("netns", "add", name), ("-n", name, "link", "set", "lo", "up")):
                done = run("ip", *step)
                if done.returncode != 0:  # no right to, or a root folder that is no mount point
                    pytest.skip(f"network namespaces cannot be made here: NOT TESTED: {done.stderr.strip()}")
                made.append(name)
        run("ip", "-n", NAMES[0], "link", "add", "veth0", "type", "veth", "peer", "name", "veth1", "netns", NAMES[1],
            check=True)
        for i, name in enumerate(NAMES):
            run("ip", "-n", name, "addr", "add", f"10.215.78.{i + 1}/24", "dev", f"veth{i}", check=True)
            run("ip", "-n", name, "link", "set", f"veth{i}", "up", check=True)
        yield
    finally:
        for name in set(made):
            run("ip", "netns", "del", name)


@pytest.fixture
def hosts():
    with two_hosts():
        yield


def start(index, *more, ranks=2):
    return subprocess.Popen(
        ["ip", "netns", "exec", NAMES[index], YARD, "check", "collective", "--hosts", "2", "--host-index", str(index),
         "--ranks", str(ranks), "--master", "10.215.78.1:29777", "--name", f"host-{index}", *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def ranks_of(process):
    """Process numbers of the ranks that a `yard check collective` has started, by rank."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        with contextlib.suppress(OSError):
            arguments = (entry / "cmdline").read_bytes().decode().split("\0")
            parent = int((entry / "stat").read_text().rsplit(")", 1)[1].split()[1])
            if "--as-rank" in arguments and parent == process.pid:
                found[int(arguments[arguments.index("--as-rank") + 1])] = int(entry.name)
    return found


def wait_until_all_talk(processes, count):
    """Each rank of them has met the others: it has mapped the memory that they share."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        ranks = {rank: pid for process in processes for rank, pid in ranks_of(process).items()}
        if len(ranks) == count:
            with contextlib.suppress(OSError):
                if all("memfd:yard-collective" in pathlib.Path(f"/proc/{pid}/maps").read_text()
                       for pid in ranks.values()):
                    return ranks
        time.sleep(0.02)
    raise AssertionError("the ranks do not meet")


def ends(processes):
    return [process.communicate(timeout=WAIT_SECONDS)[1] for process in processes]


def test_two_hosts_of_two_ranks_pass(hosts):
    processes = [start(0, "--json", "--size", "256KiB"), start(1, "--size", "256KiB")]
    out, error = processes[0].communicate(timeout=WAIT_SECONDS)
    assert processes[1].communicate(timeout=WAIT_SECONDS)[1].count("rank") == 0
    assert [process.returncode for process in processes] == [0, 0], error
    report = json.loads(out)
    assert report["ranks"] == 4 and report["hosts"] == ["host-0", "host-0", "host-1", "host-1"]
    assert [(pair["a"], pair["b"]) for pair in report["pairs"]] == [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    assert all(pair["latency_us"] > 0 for pair in report["pairs"])


@pytest.mark.parametrize("victim", [0, 1, 2, 3])
def test_a_killed_rank_is_told_to_all(hosts, victim):
    processes = [start(i, "--seconds", "600", "--size", "64KiB") for i in range(2)]
    ranks = wait_until_all_talk(processes, 4)
    os.kill(ranks[victim], signal.SIGKILL)
    errors = "".join(ends(processes))
    assert all(process.returncode != 0 for process in processes)
    # Each of the three others says it.
    assert errors.count(f"rank {victim} ") >= 3, errors


def test_a_stopped_rank_is_named_after_the_timeout(hosts):
    processes = [start(i, "--seconds", "600", "--size", "64KiB", "--timeout", "3") for i in range(2)]
    ranks = wait_until_all_talk(processes, 4)
    os.kill(ranks[3], signal.SIGSTOP)
    try:
        # The stopped one cannot say anything; its peers can.
        errors = processes[0].communicate(timeout=WAIT_SECONDS)[1]
        assert processes[0].returncode != 0
        assert errors.count("rank 3") >= 2, errors
    finally:
        for process in processes:
            process.kill()
        with contextlib.suppress(ProcessLookupError):
            os.kill(ranks[3], signal.SIGKILL)
        ends(processes)


def test_a_link_that_goes_down_without_a_word_ends_both_sides(hosts):
    processes = [start(i, "--seconds", "600", "--size", "64KiB", "--timeout", "5") for i in range(2)]
    wait_until_all_talk(processes, 4)
    run("ip", "-n", NAMES[0], "link", "set", "veth0", "down", check=True)
    errors = ends(processes)
    assert all(process.returncode != 0 for process in processes)
    # Each side names a rank of the other.
    assert any(f"rank {rank}" in errors[0] for rank in (2, 3)), errors
    assert any(f"rank {rank}" in errors[1] for rank in (0, 1)), errors


def test_a_reset_connection_ends_both_sides(hosts):
    processes = [start(i, "--seconds", "600", "--size", "64KiB") for i in range(2)]
    wait_until_all_talk(processes, 4)
    killed = run("ip", "netns", "exec", NAMES[0], "ss", "-K", "dst", "10.215.78.2")
    if not any(process.poll() is not None for process in processes):
        time.sleep(1)
    if all(process.poll() is None for process in processes):
        for process in processes:
            process.kill()
        ends(processes)
        pytest.skip(f"this kernel resets no connections (ss -K): NOT TESTED: {killed.stderr.strip()}")
    errors = "".join(ends(processes))
    assert all(process.returncode != 0 for process in processes)
    assert "rank" in errors


def test_hosts_that_come_late_and_rank_zero_last(hosts):
    later = start(1, "--size", "64KiB")
    time.sleep(0.5)
    first = start(0, "--size", "64KiB")
    errors = ends([first, later])
    assert [first.returncode, later.returncode] == [0, 0], errors


def test_a_host_that_does_not_come_is_named(hosts):
    process = start(0, "--size", "64KiB", "--timeout", "1")
    errors = process.communicate(timeout=WAIT_SECONDS)[1]
    assert process.returncode != 0
    assert "ranks 2 and 3 did not come" in errors, errors


def test_many_more_ranks_than_cores_pass():
    done = run(YARD, "check", "collective", "--ranks", "17", "--size", "64KiB", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 17


def test_a_small_dev_shm_is_enough(tmp_path):
    script = f"mount -t tmpfs -o size=64m none /dev/shm && exec {YARD} check collective --ranks 4 --size 64MiB --json"
    done = run("unshare", "--mount", "sh", "-c", script)
    if "unshare" in done.stderr or "mount:" in done.stderr:
        pytest.skip(f"no mount namespace of our own here: NOT TESTED: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ranks"] == 4


def test_nothing_is_left_behind():
    process = subprocess.Popen([YARD, "check", "collective", "--ranks", "3", "--seconds", "600", "--size", "1MiB"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    ranks = wait_until_all_talk([process], 3)
    # What they share has no name that could stay, and their sockets are of the kernel's own namespace.
    for pid in ranks.values():
        files = {os.readlink(entry) for entry in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        assert not [name for name in files if name.startswith("/dev/shm/")], files
        assert "/dev/shm/" not in pathlib.Path(f"/proc/{pid}/maps").read_text()
    for pid in ranks.values():
        os.kill(pid, signal.SIGKILL)
    assert process.wait(timeout=WAIT_SECONDS) != 0
