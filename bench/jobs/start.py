"""From the request to the first line of the user's code on both of two hosts, cold and with a warm pool,
beside the same script under torchrun. The clock is the script's own: it prints when it began."""

import subprocess
import sys
import tempfile
import time

import common

# One write for the whole line: torchrun's processes share one pipe.
SCRIPT = r"""import os, time
os.write(1, f'BEGAN {time.time()}\n'.encode())
"""


def began(lines):
    return [float(line.split()[-1]) for line in lines if "BEGAN" in line]


def ours(platform, sagemaker, name, keep_alive):
    hosts = {"InstanceType": "ml.m5.large", "InstanceCount": 2, "VolumeSizeInGB": 1}
    if keep_alive:
        hosts["KeepAlivePeriodInSeconds"] = 600
    # The upload of the source is the client's own work, and before the clock.
    request = common.smallest_job(name, HyperParameters=common.upload_source(platform, name, SCRIPT), ResourceConfig=hosts)
    asked = time.time()
    sagemaker.create_training_job(**request)
    job = common.wait_for_end(sagemaker, name)
    assert job["TrainingJobStatus"] == "Completed", job.get("FailureReason")
    times = began(common.log_lines(platform, name))
    assert len(times) == 2, times
    return max(times) - asked


def torchrun(path):
    asked = time.time()
    done = subprocess.run([common.TORCHRUN, "--standalone", "--nproc_per_node", "2", path], check=True,
                          capture_output=True, text=True, timeout=300)
    times = began(done.stdout.splitlines())
    assert len(times) == 2, done
    return max(times) - asked


def main():
    rounds = common.arguments().rounds
    cold, warm, plain = [], [], []
    with common.platform("slices: {max: 4}\n") as platform, tempfile.NamedTemporaryFile("w", suffix=".py") as script:
        script.write(SCRIPT)
        script.flush()
        sagemaker = platform.client("sagemaker")
        ours(platform, sagemaker, "pool-0", True)
        for i in range(rounds):
            warm.append(ours(platform, sagemaker, f"pool-{i + 1}", True))
            cold.append(ours(platform, sagemaker, f"cold-{i}", False))
            plain.append(torchrun(script.name))
    print("start: request to the first line on both of two hosts")
    common.tell("cold (goal 1000 ms)", cold)
    common.tell("warm pool (goal 150 ms)", warm)
    common.tell("torchrun, 2 processes", plain)
    common.ratio("jobs_cold_vs_torchrun", cold, plain, 1)
    common.ratio("jobs_cold_vs_1s", cold, [1.0], 1)
    common.ratio("jobs_warm_vs_150ms", warm, [0.15], 1)


if __name__ == "__main__":
    sys.exit(main())
