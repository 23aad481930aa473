"""The commands of `yard` about jobs of `yard serve`: ssh, top, cost, chaos, and logs that clients write."""

import json
import os
import pty
import re
import select
import subprocess
import time

import pytest

from platform_served import platform_at
from served import BIN, WAIT_SECONDS, error_of
from test_sagemaker_jobs import log_lines, start, wait_for, wait_for_end

STEPS = """
import os, time
for i in range(1, 601):
    print(f"step {i}/600", flush=True)
    time.sleep(0.05)
    if os.path.exists("/opt/ml/enough"):
        break
"""
RANKS = """
import os, time
print("rank", os.environ["RANK"], "is up", flush=True)
while not os.path.exists("/opt/ml/enough"):
    time.sleep(0.05)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


def yard(platform, *arguments, **more):
    return subprocess.run([BIN / "yard", *arguments], capture_output=True, text=True, timeout=WAIT_SECONDS,
                          env={**os.environ, "YARD_HOME": str(platform.home)}, **more)


@pytest.fixture(scope="module")
def job(platform):
    """A job of one process that runs until a test lets it end."""
    start(platform, "steps", STEPS)
    wait_for(platform.client("sagemaker"), "steps",
             lambda job: "step 20/600" in log_lines(platform, "steps") or job["TrainingJobStatus"] != "InProgress")
    return "steps"


def test_ssh_runs_a_command_where_the_job_runs(platform, job):
    done = yard(platform, "ssh", f"{job}/algo-1", "--", "bash", "-c",
                "echo $SM_CURRENT_HOST $(hostname) $PWD; ls /opt/ml; ls /proc | grep -c '^[0-9]'; exit 7")
    host, *rest = done.stdout.splitlines()
    assert done.returncode == 7, done.stderr
    assert host == "algo-1 algo-1 /opt/ml"
    assert {"input", "model", "code"} <= set(rest[:-1])
    assert int(rest[-1]) < 12  # nobody else's processes


def test_ssh_gives_no_more_than_the_job_has(platform, job):
    done = yard(platform, "ssh", job, "--", "bash", "-c",
                f"ls {platform.home}; mount -t tmpfs none /mnt; grep CapEff /proc/self/status")
    assert "users.json" not in done.stdout
    assert "mount" in done.stderr, done
    if os.geteuid() == 0:
        assert int(done.stdout.split()[-1], 16) & (1 << 21) == 0  # CAP_SYS_ADMIN


def test_ssh_is_a_terminal(platform, job):
    pid, fd = pty.fork()
    if pid == 0:
        os.execve(BIN / "yard", ["yard", "ssh", job], {**os.environ, "YARD_HOME": str(platform.home), "TERM": "xterm"})
    seen = b""

    def read_until(wanted):
        nonlocal seen
        end = time.monotonic() + WAIT_SECONDS
        while wanted not in seen:
            assert time.monotonic() < end and select.select([fd], [], [], WAIT_SECONDS)[0], seen
            seen += os.read(fd, 4096)
        seen = seen.split(wanted, 1)[1]

    os.write(fd, b"sleep 1000; echo in$((1+1)); test -t 0 && echo ter$((1+1))minal\n")
    read_until(b"echo ter$((1+1))minal")
    time.sleep(0.3)  # lets sleep become the foreground
    os.write(fd, b"\x03")  # ends what runs, and not the shell
    os.write(fd, b"\ntest -t 0 && echo ter$((1+1))minal\n")
    read_until(b"ter2minal")
    os.write(fd, b"exit 5\n")
    while True:
        try:
            if not os.read(fd, 4096):
                break
        except OSError:  # the other side is closed
            break
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 5
    os.close(fd)


def test_ssh_to_nowhere_says_so(platform, job):
    for target, words in ((f"{job}/algo-9", "no host 'algo-9'"), ("gone", "no host"), (f"{job}/../x", "not JOB")):
        refused = yard(platform, "ssh", target, "--", "true")
        assert refused.returncode != 0 and words in refused.stderr, refused


def test_top_shows_what_hosts_use(platform, job):
    end = time.monotonic() + WAIT_SECONDS
    while True:
        fleet = json.loads(yard(platform, "top", "--once", "--json").stdout)
        hosts = {host["JobName"]: host for host in fleet["Hosts"]}
        if job in hosts:
            break
        assert time.monotonic() < end, fleet
    assert hosts[job]["Host"] == "algo-1" and hosts[job]["MemoryBytes"] > 1 << 20
    assert [each["SecondaryStatus"] for each in fleet["Jobs"] if each["JobName"] == job] == ["Training"]
    table = yard(platform, "top", "--once").stdout
    assert re.search(r"steps +InProgress \(Training\)", table) and "algo-1" in table


def test_cost_tells_seconds_and_a_forecast_and_at_the_end_its_error(platform, job):
    cost = json.loads(yard(platform, "cost", job, "--forecast", "--json").stdout)
    assert cost["BillableSeconds"] > 0 and cost["Account"]["training_s"] > 0
    assert cost["Forecast"]["Total"] == 600 and 5 < cost["Forecast"]["PerSecond"] < 25
    told = yard(platform, "cost", job, "--forecast").stdout
    assert "forecast: " in told and any("provisioning" in line and "not billed" in line for line in told.splitlines())
    yard(platform, "ssh", job, "--", "touch", "/opt/ml/enough")
    assert wait_for_end(platform.client("sagemaker"), job)["TrainingJobStatus"] == "Completed"
    assert "ForecastErrors" in json.loads(yard(platform, "cost", job, "--forecast", "--json").stdout)
    gone = yard(platform, "cost", "gone")
    assert gone.returncode != 0 and "Could not find" in gone.stderr


def test_chaos_kills_the_rank_that_it_names(platform):
    start(platform, "ranks", RANKS, HyperParameters={"sagemaker_torch_distributed_enabled": "true"},
          Environment={"TORCHELASTIC_MAX_RESTARTS": "0"})
    sagemaker = platform.client("sagemaker")
    wait_for(sagemaker, "ranks", lambda job: any("rank 0 is up" in line for line in log_lines(platform, "ranks"))
             or job["TrainingJobStatus"] != "InProgress")
    done = yard(platform, "chaos", "kill-rank", "ranks", "--rank", "0")
    assert "killed rank 0 of ranks on algo-1" in done.stdout, done
    job = wait_for_end(sagemaker, "ranks")
    assert job["TrainingJobStatus"] == "Failed" and "AlgorithmError" in job["FailureReason"]
    assert yard(platform, "chaos", "kill-rank", "ranks").returncode != 0


def test_chaos_is_for_admins_and_in_the_audit_log(platform):
    platform.yard("users", "add", "sam", "--role", "submit")
    refused = yard(platform, "chaos", "break-store", "--user", "sam")
    assert refused.returncode != 0 and "AccessDenied" in refused.stderr
    assert "refuses" in yard(platform, "chaos", "break-store", "--seconds", "30").stdout
    assert error_of(platform.client("s3").list_buckets) == ("ServiceUnavailable", 503)
    yard(platform, "chaos", "mend-store")
    assert platform.client("s3").list_buckets()["Buckets"]
    outcomes = [(each["user"], each["resource"], each["outcome"]) for each in platform.audit()
                if each["operation"] == "InjectFault"]
    assert ("sam", "break-store ", "AccessDeniedException") in outcomes
    assert ("admin", "break-store ", "ok") in outcomes


def test_a_killed_supervisor_is_replaced(platform):
    start(platform, "survives", STEPS)
    sagemaker = platform.client("sagemaker")
    wait_for(sagemaker, "survives", lambda job: "step 5/600" in log_lines(platform, "survives"))
    assert "killed" in yard(platform, "chaos", "fail-host", "survives/algo-1").stdout
    wait_for(sagemaker, "survives", lambda job: log_lines(platform, "survives").count("step 5/600") == 2
             or job["TrainingJobStatus"] != "InProgress")
    yard(platform, "ssh", "survives", "--", "touch", "/opt/ml/enough")
    job = wait_for_end(sagemaker, "survives")
    assert job["TrainingJobStatus"] == "Completed", job
    assert "Restarting" in [each["Status"] for each in job["SecondaryStatusTransitions"]]


def test_logs_that_clients_write(platform):
    logs = platform.client("logs")
    logs.create_log_group(logGroupName="/team/app")
    logs.create_log_stream(logGroupName="/team/app", logStreamName="host")
    now_ms = int(time.time() * 1000)
    answer = logs.put_log_events(logGroupName="/team/app", logStreamName="host",
                                 logEvents=[{"timestamp": now_ms, "message": f"line {i}"} for i in range(3)])
    assert "rejectedLogEventsInfo" not in answer
    events = logs.get_log_events(logGroupName="/team/app", logStreamName="host", startFromHead=True)["events"]
    assert [event["message"] for event in events] == ["line 0", "line 1", "line 2"]
    assert error_of(logs.create_log_group, logGroupName="/team/app")[0] == "ResourceAlreadyExistsException"
    assert [each["logGroupName"] for each in logs.describe_log_groups(logGroupNamePrefix="/team")["logGroups"]] \
        == ["/team/app"]
