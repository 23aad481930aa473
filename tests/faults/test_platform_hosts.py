"""Hosts of `yard serve` that stay, come back or are ended: warm pools, restarts, limits, hangs."""

import io
import json
import os
import pathlib
import signal
import sys
import tarfile
import time

import pytest

TESTS = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(TESTS / "clients"), str(TESTS / "e2e")]
from platform_served import BUCKET, platform_at, smallest_job  # noqa: E402

import platform_host  # noqa: E402

ENDED = ("Completed", "Failed", "Stopped")
WAIT_SECONDS = 120  # only a failure comes near it
CONFIG = """
slices: {max: 6}
hang_after_s: 2
stop_grace_s: 5
instance_types:
  - {type: ml.m5.large, shared: true}
  - {type: ml.t3.small, memory: 160MiB, shared: true}
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    platform_host.needs_sandbox()
    home = tmp_path_factory.mktemp("platform")
    (home / "yard.yaml").write_text(CONFIG)
    home.chmod(0o700)
    with platform_at(home) as running:
        running.sagemaker = running.client("sagemaker")
        running.s3 = running.client("s3")
        yield running
    eventually(lambda: not leftovers(home), f"left behind: {leftovers(home)}")


def leftovers(home):
    """Processes and mounts that belong to this home."""
    found = [line for line in open("/proc/self/mountinfo") if str(home) in line]
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
        except OSError:
            continue
        if str(home) in line:
            found.append(line)
    return found


def interpreter_waits():
    """One that was started ahead has imported what it can: it has stopped to use its core."""
    def used():
        ticks = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                line = open(f"/proc/{pid}/cmdline").read().split("\0")
                fields = open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()
            except OSError:
                continue
            if line[0].endswith("python") and any("PRELOAD" in word for word in line):
                ticks[pid] = (fields[0], fields[11], fields[12])
        return ticks
    first = used()
    time.sleep(0.5)
    return any(state[0] == "S" and used().get(pid) == state for pid, state in first.items())


def eventually(condition, what="waited in vain"):
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, what() if callable(what) else what
        time.sleep(0.02)


class Job:
    def __init__(self, platform, name, script, keep=0, hosts=1, channels=(), command=None, **more):
        self.platform, self.name = platform, name
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            info = tarfile.TarInfo("train.py")
            info.size = len(script.encode())
            tar.addfile(info, io.BytesIO(script.encode()))
        platform.s3.put_object(Bucket=BUCKET, Key=f"source/{name}/sourcedir.tar.gz", Body=packed.getvalue())
        job = smallest_job(name, **more)
        job["ResourceConfig"].update(InstanceCount=hosts)
        if keep:
            job["ResourceConfig"]["KeepAlivePeriodInSeconds"] = keep
        job["HyperParameters"] = {
            "sagemaker_program": '"train.py"',
            "sagemaker_submit_directory": json.dumps(f"s3://{BUCKET}/source/{name}/sourcedir.tar.gz")}
        job["InputDataConfig"] = [
            {"ChannelName": channel, "DataSource": {"S3DataSource": {
                "S3DataType": "S3Prefix", "S3Uri": f"s3://{BUCKET}/{channel}/",
                "S3DataDistributionType": "FullyReplicated"}}} for channel in channels]
        if not channels:
            del job["InputDataConfig"]
        self.created_t = time.time()
        platform.sagemaker.create_training_job(**job)

    def folder(self, host="algo-1"):
        return self.platform.home / "jobs" / self.name / "hosts" / host

    def describe(self):
        return self.platform.sagemaker.describe_training_job(TrainingJobName=self.name)

    def status(self, host="algo-1"):
        return json.loads((self.folder(host) / "status.json").read_text())

    def events(self, event, host="algo-1"):
        path = self.folder(host) / "events.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        return [item for item in map(json.loads, lines) if item["event"] == event]

    def log(self, host="algo-1"):
        path = self.platform.home / "jobs" / self.name / "logs" / f"{host}.log"
        return path.read_bytes().decode(errors="replace") if path.exists() else ""

    def wait(self, condition):
        eventually(lambda: condition(self.describe()), lambda: f"{self.describe()}\n{self.log()}")
        return self.describe()

    def end(self):
        return self.wait(lambda job: job["TrainingJobStatus"] in ENDED)

    def ended_well(self):
        job = self.end()
        assert job["TrainingJobStatus"] == "Completed", f"{job}\n{self.log()}"
        return self


REPORT = """
import glob, os, sys, time
print('FIRST', time.time(), os.getpid(), flush=True)
cache = os.environ['SAGEMAKER_MANAGED_WARMPOOL_CACHE_DIRECTORY']
print('CACHE', sorted(os.listdir(cache)), 'TMP', os.listdir('/tmp'), 'SHM', os.listdir('/dev/shm'))
print('DATA', sorted(open(path).read() for path in glob.glob('/opt/ml/input/data/*/*')))
print('MAIN', __name__, __file__, sys.argv, os.getcwd(), os.environ['TRAINING_JOB_NAME'], 'numpy' in sys.modules)
print('MODEL', os.listdir('/opt/ml/model'))
for path in [cache + '/kept', '/tmp/rubbish', '/dev/shm/rubbish', '/opt/ml/model/' + os.environ['TRAINING_JOB_NAME']]:
    open(path, 'w').close()
open('/opt/ml/output/intermediate/half', 'w').write('done')
"""


def test_a_warm_start_keeps_data_and_interpreter_and_nothing_else(platform):
    for name in ["a", "b"]:
        platform.s3.put_object(Bucket=BUCKET, Key=f"warm-data/{name}", Body=name.encode())
    first = Job(platform, "warm-1", REPORT, keep=300, channels=["warm-data"]).ended_well()
    assert first.events("launched")[0]["is_warm"] is False
    half = platform.s3.get_object(Bucket=BUCKET, Key="out/warm-1/output/intermediate/half")["Body"].read()
    assert half == b"done"
    supervisor = first.status()["supervisor"]
    eventually(lambda: first.status()["is_kept"])
    assert first.describe()["WarmPoolStatus"]["Status"] == "Available"
    eventually(interpreter_waits)
    platform.s3.put_object(Bucket=BUCKET, Key="warm-data/b", Body=b"changed")
    second = Job(platform, "warm-2", REPORT, keep=300, channels=["warm-data"]).ended_well()
    assert first.describe()["WarmPoolStatus"] == {
        **first.describe()["WarmPoolStatus"], "Status": "Reused", "ReusedByJob": "warm-2"}
    assert second.status()["supervisor"] == supervisor
    assert second.events("launched")[0]["is_warm"] is True
    assert second.status()["progress"]["cached_bytes"] == 1  # "a"; "b" is another now
    log = second.log()
    assert "DATA ['a', 'changed']" in log
    assert "CACHE ['kept'] TMP" in log and "SHM []" in log and "MODEL []" in log and "rubbish" not in log
    assert "MAIN __main__ /opt/ml/code/train.py ['train.py'] /opt/ml/code warm-2" in log
    for job in [first, second]:
        begun = float(job.log().split("FIRST ")[1].split()[0])
        print(f"{job.name}: {begun - job.created_t:.3f} s to its first line", job.status()["phases"])
    # A killed supervisor ends the pool's comfort, not the next job.
    eventually(lambda: second.status()["is_kept"])
    os.kill(supervisor["pid"], signal.SIGKILL)
    third = Job(platform, "warm-3", REPORT, keep=1, channels=["warm-data"]).ended_well()
    assert third.events("launched")[0]["is_warm"] is False
    third.wait(lambda job: job["WarmPoolStatus"]["Status"] == "Terminated")
    eventually(lambda: not platform_host.is_alive(third.status()["supervisor"]["pid"]))


def test_a_warm_script_fails_as_a_cold_one(platform):
    script = "import sys\ndef f():\n    raise ValueError('the reason')\nprint('x')\nf()\n"
    reasons = []
    for name in ["fails-1", "fails-2"]:
        job = Job(platform, name, script, keep=60)
        end = job.end()
        assert end["TrainingJobStatus"] == "Failed"
        reasons.append(end["FailureReason"].replace(name, "JOB"))
        eventually(lambda: job.status()["is_kept"])
        eventually(interpreter_waits)
    assert reasons[0] == reasons[1]
    platform.sagemaker.update_training_job(TrainingJobName="fails-2", ResourceConfig={"KeepAlivePeriodInSeconds": 0})
    eventually(lambda: not platform_host.is_alive(job.status()["supervisor"]["pid"]))


def test_hosts_start_together_and_a_lost_one_alone_begins_anew(platform):
    platform.s3.put_object(Bucket=BUCKET, Key="pair-data/a", Body=b"x" * 1000)
    marker = "/opt/ml/checkpoints/x"
    job = Job(platform, "pair", f"""
import os, time
print('BEGUN', time.time(), flush=True)
while not os.path.exists({marker!r}): time.sleep(0.05); print('.', flush=True)
""", hosts=2, channels=["pair-data"], CheckpointConfig={"S3Uri": f"s3://{BUCKET}/pair-checkpoints/"})
    job.wait(lambda view: view["SecondaryStatus"] == "Training")
    eventually(lambda: all("BEGUN" in job.log(host) for host in ["algo-1", "algo-2"]))
    ready = [job.events("control", host)[0] for host in ["algo-1", "algo-2"]]
    assert [item["word"] for item in ready] == ["go", "go"]
    supervisors = {host: job.status(host)["supervisor"]["pid"] for host in ["algo-1", "algo-2"]}
    platform.s3.put_object(Bucket=BUCKET, Key="pair-checkpoints/x", Body=b"1")
    os.kill(supervisors["algo-2"], signal.SIGKILL)
    job.ended_well()
    assert job.status("algo-1")["supervisor"]["pid"] == supervisors["algo-1"]
    assert job.status("algo-2")["supervisor"]["pid"] != supervisors["algo-2"]
    assert job.status("algo-1")["progress"]["cached_bytes"] == 1000
    assert job.status("algo-2")["progress"]["cached_bytes"] == 0


def test_a_supervisor_that_is_lost_after_the_script_is_gone_on_with(platform):
    job = Job(platform, "resumed", """
import os, time
if os.environ['SM_CURRENT_HOST'] == 'algo-1':
    while not os.path.exists('/opt/ml/checkpoints/x'): time.sleep(0.05); print('.', flush=True)
open('/opt/ml/model/' + os.environ['SM_CURRENT_HOST'], 'w').write('m')
""", hosts=2, CheckpointConfig={"S3Uri": f"s3://{BUCKET}/none/"})
    eventually(lambda: (job.folder("algo-2") / "status.json").exists() and
               job.status("algo-2")["phase"] == "finished")
    os.kill(job.status("algo-2")["supervisor"]["pid"], signal.SIGKILL)
    eventually(lambda: job.events("resumed", "algo-2"))
    (job.folder() / "ml/checkpoints/x").touch()
    job.ended_well()
    assert [len(job.events("launched", host)) for host in ["algo-1", "algo-2"]] == [1, 1]
    body = platform.s3.get_object(Bucket=BUCKET, Key="out/resumed/output/model.tar.gz")["Body"].read()
    with tarfile.open(fileobj=io.BytesIO(body)) as tar:
        assert sorted(tar.getnames()) == ["algo-1", "algo-2"]


def test_a_job_gets_the_memory_and_the_volume_of_its_instance_and_no_more(platform):
    hog = Job(platform, "hog", "a = bytearray(400 << 20)\nprint('GOT', len(a))\nimport time\ntime.sleep(60)\n",
              ResourceConfig={"InstanceType": "ml.t3.small", "InstanceCount": 1, "VolumeSizeInGB": 1})
    writer = Job(platform, "writer", "import os\nfor i in range(5):\n"
                 "    fd = os.open(f'/tmp/{i}', os.O_CREAT | os.O_WRONLY); os.posix_fallocate(fd, 0, 300 << 20)\n"
                 "import time\ntime.sleep(60)\n")
    end = hog.end()
    assert end["TrainingJobStatus"] == "Failed" and "more than the 160.0 MiB" in end["FailureReason"], end
    end = writer.end()
    assert end["TrainingJobStatus"] == "Failed" and "its volume has 1.0 GiB" in end["FailureReason"], end


def test_a_job_that_hangs_shows_its_stacks_and_is_restarted_once(platform):
    job = Job(platform, "hangs", "import time\ndef where_it_waits():\n    time.sleep(100)\nwhere_it_waits()\n")
    end = job.end()
    assert end["TrainingJobStatus"] == "Failed" and "the job hangs" in end["FailureReason"], end
    assert "relaunches after a hang" in end["FailureReason"]
    assert [change["Status"] for change in end["SecondaryStatusTransitions"]].count("Restarting") == 1
    assert "in where_it_waits" in job.log() and "waits in" in job.log()
    assert len(job.events("launched")) == 2
