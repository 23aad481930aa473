"""What the daemon costs while many jobs run that print a line a second."""

import sys
import time

import psutil

import common

SCRIPT = "import time\nwhile True:\n    print('step', flush=True)\n    time.sleep(1)\n"
SECONDS = 10


def main():
    count = common.arguments().jobs
    with common.platform(f"slices: {{max: {count}}}\nstop_grace_s: 2\nhealth: {{free_bytes_min: 0}}\n") as platform:
        sagemaker = platform.client("sagemaker")
        for i in range(count):
            common.start(platform, f"job-{i}", SCRIPT)

        def training():
            pages = sagemaker.get_paginator("list_training_jobs").paginate(StatusEquals="InProgress")
            return sum(job["SecondaryStatus"] == "Training" for page in pages for job in page["TrainingJobSummaries"])

        common.poll(lambda: training() == count, f"{count} running jobs", 600)
        daemon = psutil.Process(platform.process.pid)
        before, begin = daemon.cpu_times(), time.monotonic()
        time.sleep(SECONDS)
        after, passed = daemon.cpu_times(), time.monotonic() - begin
        cpu_s = after.user + after.system - before.user - before.system
        print(f"many: {count} running jobs: daemon {100 * cpu_s / passed:.1f} % of a core, "
              f"{daemon.memory_info().rss / 2**20:.0f} MiB resident, {daemon.num_threads()} threads", flush=True)
        for i in range(count):
            sagemaker.stop_training_job(TrainingJobName=f"job-{i}")
        common.poll(lambda: not sagemaker.list_training_jobs(StatusEquals="Stopping")["TrainingJobSummaries"]
                    and not sagemaker.list_training_jobs(StatusEquals="InProgress")["TrainingJobSummaries"],
                    "their end", 600)


if __name__ == "__main__":
    sys.exit(main())
