"""What people do with the SageMaker Python SDK beyond a first fit(): several hosts, channels, processing,
checkpoints, stopping, warm pools. Unchanged code of versions 2 and 3; see test_sagemaker_sdk.py for how they
are installed."""

import textwrap

import pytest

from platform_served import BUCKET, platform_at
from test_sagemaker_sdk import run_sdk

# Plain DDP: no word of ours in it.
DDP = """
import os
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(3):
    optimizer.zero_grad()
    loss = model(torch.full((8, 4), float(dist.get_rank() + 1))).pow(2).mean()
    loss.backward()
    optimizer.step()
weights = [torch.zeros_like(model.module.weight) for _ in range(dist.get_world_size())]
dist.all_gather(weights, model.module.weight.data)
print(f"rank {dist.get_rank()} of {dist.get_world_size()}: equal {torch.equal(weights[0], weights[-1])}", flush=True)
if dist.get_rank() == 0:
    torch.save(model.module.state_dict(), os.path.join(os.environ.get("SM_MODEL_DIR", "/opt/ml/model"), "model.pt"))
dist.destroy_process_group()
"""

# As Accelerate's own examples are.
ACCELERATE = """
import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1)), batch_size=4)
model, optimizer, data = accelerator.prepare(model, optimizer, data)
for x, y in data:
    optimizer.zero_grad()
    accelerator.backward(torch.nn.functional.mse_loss(model(x), y))
    optimizer.step()
accelerator.wait_for_everyone()
print(f"process {accelerator.process_index} of {accelerator.num_processes} saw {len(data)} batches", flush=True)
accelerator.save_model(model, "/opt/ml/model")
"""

# As Lightning's own examples are.
LIGHTNING = """
import os
import lightning
import torch

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, _):
        x, y = batch
        return torch.nn.functional.mse_loss(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

torch.manual_seed(0)
data = torch.utils.data.TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
trainer = lightning.Trainer(max_epochs=2, accelerator="cpu", devices=1, num_nodes=len(os.environ["SM_HOSTS"].split(",")),
                            strategy="ddp", default_root_dir="/opt/ml/output/data", logger=False,
                            enable_progress_bar=False)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
trainer.save_checkpoint("/opt/ml/model/model.ckpt")
print(f"lightning {trainer.global_rank} of {trainer.world_size} made {trainer.global_step} steps", flush=True)
"""

MEASURED = """
import time
for i in range(4):
    print(f"epoch {i} loss={1 / (i + 1)};", flush=True)
    time.sleep(0.3)
"""

FILES = """
import os, pathlib, socket
folder = pathlib.Path(os.environ["SM_CHANNEL_TRAIN"])
names = sorted(path.name for path in folder.rglob("*") if path.is_file())
print(socket.gethostname(), "reads", *names, sum(len((folder / name).read_bytes()) for name in names), flush=True)
"""

RESUMES = """
import pathlib
kept = pathlib.Path("/opt/ml/checkpoints/count")
count = int(kept.read_text()) + 1 if kept.exists() else 1
kept.write_text(str(count))
print("count", count, flush=True)
"""

SLEEPS = """
import time
print("asleep", flush=True)
time.sleep(600)
"""

COMMON2 = """
import time
import sagemaker
from sagemaker.debugger import ProfilerRule, rule_configs
from sagemaker.estimator import Estimator
from sagemaker.inputs import TrainingInput
from sagemaker.pytorch import PyTorch
session = sagemaker.Session()
quiet = dict(role=ROLE, image_uri=IMAGE, instance_type="ml.m5.large", sagemaker_session=session, disable_profiler=True,
             debugger_hook_config=False)

def end_of(estimator):
    while True:
        job = estimator.latest_training_job.describe()
        if job["TrainingJobStatus"] in ("Completed", "Failed", "Stopped"):
            return job
        time.sleep(0.2)

def warm_of(estimator, wanted):
    end = time.monotonic() + 60
    while True:
        warm = estimator.latest_training_job.describe()["WarmPoolStatus"]
        if warm["Status"] == wanted or time.monotonic() > end:
            return warm
        time.sleep(0.2)

def lines_of(job):
    logs = session.boto_session.client("logs")
    group = "/aws/sagemaker/TrainingJobs"
    streams = logs.describe_log_streams(logGroupName=group, logStreamNamePrefix=job["TrainingJobName"] + "/")
    return [event["message"] for stream in streams["logStreams"]
            for event in logs.get_log_events(logGroupName=group, logStreamName=stream["logStreamName"],
                                             startFromHead=True)["events"]]
"""

DDP2 = """
estimator = PyTorch(entry_point="ddp.py", source_dir="source", instance_count=2, framework_version="2.3.0",
                    py_version="py311", distribution={"torch_distributed": {"enabled": True}}, **quiet)
estimator.fit(logs="All")
print("MODEL", estimator.model_data)
"""

# Unchanged scripts of two frameworks, and a job whose log is measured.
FRAMEWORKS2 = """
for script in ("accelerated.py", "lightened.py"):
    estimator = PyTorch(entry_point=script, source_dir="source", instance_count=2, framework_version="2.3.0",
                        py_version="py311", distribution={"torch_distributed": {"enabled": True}}, **quiet)
    estimator.fit(wait=False)
    job = end_of(estimator)
    print("FRAMEWORK", script, job["TrainingJobStatus"], job.get("FailureReason"))
    print(*lines_of(job), sep="\\n")

estimator = PyTorch(entry_point="measured.py", source_dir="source", instance_count=1, framework_version="2.3.0",
                    py_version="py311", metric_definitions=[{"Name": "train:loss", "Regex": "loss=(.*?);"}], **quiet)
estimator.fit(wait=False)
print("FINAL", [(each["MetricName"], round(each["Value"], 6)) for each in end_of(estimator)["FinalMetricDataList"]])
frame = estimator.training_job_analytics.dataframe()
print("ANALYTICS", sorted(set(frame["metric_name"])), len(frame) > 0)
"""

CHANNELS2 = """
data = session.upload_data("shards", key_prefix="sharded")
estimator = Estimator(entry_point="files.py", source_dir="source", instance_count=2, **quiet)
estimator.fit({"train": TrainingInput(data, input_mode="FastFile", distribution="ShardedByS3Key")}, wait=False)
job = end_of(estimator)
print(job["TrainingJobStatus"], job.get("FailureReason"))
print(*lines_of(job), sep="\\n")
"""

PROCESSING2 = """
from sagemaker.processing import ProcessingInput, ProcessingOutput, ScriptProcessor
data = session.upload_data("shards", key_prefix="to-process")
processor = ScriptProcessor(command=["python3"], image_uri=IMAGE, role=ROLE, instance_count=1,
                            instance_type="ml.m5.large", sagemaker_session=session)
processor.run(code="source/process.py", arguments=["--suffix", "x"], wait=True, logs=True,
              inputs=[ProcessingInput(source=data, destination="/opt/ml/processing/input")],
              outputs=[ProcessingOutput(source="/opt/ml/processing/output", output_name="result")])
job = processor.latest_job.describe()
print(job["ProcessingJobStatus"], job.get("FailureReason"))
uri = job["ProcessingOutputConfig"]["Outputs"][0]["S3Output"]["S3Uri"]
print("RESULT", session.read_s3_file(uri.split("/")[2], uri.split("/", 3)[3] + "/names.txt"))
"""

PROCESS = """
import argparse, pathlib
parser = argparse.ArgumentParser()
parser.add_argument("--suffix")
suffix = parser.parse_args().suffix
print("processes", suffix, flush=True)
names = sorted(path.name + suffix for path in pathlib.Path("/opt/ml/processing/input").rglob("*") if path.is_file())
pathlib.Path("/opt/ml/processing/output/names.txt").write_text(" ".join(names))
"""

LIFE2 = """
for run in range(2):
    estimator = PyTorch(entry_point="resumes.py", source_dir="source", instance_count=1,
                        checkpoint_s3_uri=f"s3://{session.default_bucket()}/checkpoints", **quiet)
    estimator.fit(wait=False)
    print("CHECKPOINTS", end_of(estimator)["TrainingJobStatus"],
          [line for line in lines_of(estimator.latest_training_job.describe()) if line.startswith("count")])

estimator = PyTorch(entry_point="sleeps.py", source_dir="source", instance_count=1, **quiet)
estimator.fit(wait=False)
while "asleep" not in lines_of(estimator.latest_training_job.describe()):
    time.sleep(0.2)
estimator.enable_default_profiling()
estimator.update_profiler(system_monitor_interval_millis=1000)
print("PROFILER", estimator.latest_training_job.describe()["ProfilerConfig"].get("ProfilingIntervalInMilliseconds"))
estimator.disable_profiling()
print("PROFILER", estimator.latest_training_job.describe()["ProfilingStatus"])
estimator.update_profiler(rules=[ProfilerRule.sagemaker(rule_configs.LowGPUUtilization())], s3_output_path=None,
                          system_monitor_interval_millis=500)
print("PROFILER", [rule["RuleConfigurationName"]
                   for rule in estimator.latest_training_job.describe()["ProfilerRuleConfigurations"]])
estimator.latest_training_job.stop()
print("STOPPED", end_of(estimator)["TrainingJobStatus"], end_of(estimator)["SecondaryStatus"])

first = PyTorch(entry_point="resumes.py", source_dir="source", instance_count=1, keep_alive_period_in_seconds=600, **quiet)
first.fit(wait=False)
end_of(first)
print("WARM", warm_of(first, "Available")["Status"])
second = PyTorch(entry_point="resumes.py", source_dir="source", instance_count=1, keep_alive_period_in_seconds=600, **quiet)
second.fit(wait=False)
end_of(second)
print("WARM", warm_of(first, "Reused"))
session.sagemaker_client.update_training_job(TrainingJobName=second.latest_training_job.name,
                                             ResourceConfig={"KeepAlivePeriodInSeconds": 0})
print("WARM", warm_of(second, "Terminated")["Status"])
"""

SDK3 = """
import logging
logging.basicConfig(level=logging.INFO)
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import CheckpointConfig, Compute, SourceCode
from sagemaker.train.distributed import Torchrun
import time
for script in ("ddp.py", "accelerated.py"):
    trainer = ModelTrainer(training_image=IMAGE, role=ROLE, base_job_name="sdk3-" + script[:3],
                           source_code=SourceCode(source_dir="source", entry_script=script),
                           compute=Compute(instance_type="ml.m5.large", instance_count=2),
                           distributed=Torchrun(process_count_per_node=1))
    trainer.train(wait=True, logs=True)
    job = trainer._latest_training_job
    job.refresh()
    print("STATUS", script, job.training_job_status, job.model_artifacts.s3_model_artifacts)

def start(script, seconds=None, **more):
    trainer = ModelTrainer(training_image=IMAGE, role=ROLE, base_job_name="sdk3-" + script[:3],
                           source_code=SourceCode(source_dir="source", entry_script=script),
                           compute=Compute(instance_type="ml.m5.large", instance_count=1,
                                           keep_alive_period_in_seconds=seconds), **more)
    trainer.train(wait=False, logs=False)
    return trainer._latest_training_job

def until(job, condition):
    end = time.monotonic() + 60
    while time.monotonic() < end:
        job.refresh()
        if condition(job):
            return job
        time.sleep(0.2)
    raise SystemExit(f"{job}")

bucket = job.model_artifacts.s3_model_artifacts.split("/")[2]
resumed = []
for _ in range(2):
    job = start("resumes.py", checkpoint_config=CheckpointConfig(s3_uri=f"s3://{bucket}/checkpoints3"), seconds=300)
    resumed.append(until(job, lambda job: job.training_job_status == "Completed"))
    until(job, lambda job: job.warm_pool_status.status == "Available")
first = resumed[0]
first.refresh()
print("WARM", first.warm_pool_status.status, first.warm_pool_status.reused_by_job == resumed[1].training_job_name)
job = start("sleeps.py")
until(job, lambda job: job.secondary_status == "Training")
job.stop()
print("STOPPED", until(job, lambda job: job.training_job_status == "Stopped").secondary_status)
"""


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


def make_folder(path):
    (path / "source").mkdir()
    for name, text in (("ddp", DDP), ("accelerated", ACCELERATE), ("files", FILES), ("resumes", RESUMES),
                       ("sleeps", SLEEPS), ("process", PROCESS), ("lightened", LIGHTNING), ("measured", MEASURED)):
        (path / f"source/{name}.py").write_text(textwrap.dedent(text))
    (path / "shards").mkdir()
    for i in range(4):
        (path / f"shards/part-{i}").write_bytes(b"x" * (100 + i))
    return path


@pytest.fixture(scope="module")
def said_by_version_2(platform, tmp_path_factory):
    """What all of it prints: one process, since the SDK takes many seconds to import."""
    code = COMMON2 + DDP2 + FRAMEWORKS2 + CHANNELS2 + PROCESSING2 + LIFE2
    return run_sdk(platform, 2, code, make_folder(tmp_path_factory.mktemp("sdk2")))


def test_version_2_trains_ddp_on_two_hosts(said_by_version_2):
    output = said_by_version_2
    for rank in range(2):
        assert f"rank {rank} of 2: equal True" in output, output
    assert "/output/model.tar.gz" in output


def test_version_2_runs_unchanged_accelerate_and_lightning_scripts(said_by_version_2):
    output = said_by_version_2
    for rank in range(2):
        assert f"process {rank} of 2 saw 4 batches" in output, output
        assert f"lightning {rank} of 2 made 8 steps" in output, output
    for script in ("accelerated.py", "lightened.py"):
        assert f"FRAMEWORK {script} Completed None" in output, output


def test_version_2_reads_the_metrics_of_a_job(said_by_version_2):
    assert "FINAL [('train:loss', 0.25)]" in said_by_version_2, said_by_version_2
    assert "ANALYTICS ['train:loss'] True" in said_by_version_2, said_by_version_2


def test_version_2_streams_shares_of_a_channel(said_by_version_2):
    output = said_by_version_2
    assert "Completed" in output, output
    reads = [line.split()[2:] for line in output.splitlines() if " reads " in line]
    assert sorted(name for read in reads for name in read[:-1]) == [f"part-{i}" for i in range(4)]
    assert sum(int(read[-1]) for read in reads) == 406 and len(reads) == 2 and all(len(read) == 3 for read in reads)


def test_version_2_processes_data_by_a_script(said_by_version_2):
    output = said_by_version_2
    assert "processes x" in output, output
    assert "RESULT part-0x part-1x part-2x part-3x" in output, output


def test_version_2_resumes_stops_and_uses_a_warm_pool(said_by_version_2):
    output = said_by_version_2
    assert "CHECKPOINTS Completed ['count 1']" in output, output
    assert "CHECKPOINTS Completed ['count 2']" in output, output
    assert "STOPPED Stopped Stopped" in output, output
    assert [line for line in output.splitlines() if line.startswith("PROFILER ")] == \
        ["PROFILER 1000", "PROFILER Disabled", "PROFILER ['LowGPUUtilization']"]
    warm = [line for line in output.splitlines() if line.startswith("WARM ")]
    assert warm[0] == "WARM Available" and "'Reused'" in warm[1] and "ReusedByJob" in warm[1], warm
    assert warm[2] == "WARM Terminated"


def test_version_3_trains_unchanged_ddp_and_accelerate_scripts_on_two_hosts(platform, tmp_path):
    output = run_sdk(platform, 3, SDK3, make_folder(tmp_path))
    for rank in range(2):
        assert f"rank {rank} of 2: equal True" in output, output
        assert f"process {rank} of 2 saw 4 batches" in output, output
    assert output.count("Completed s3://") == 2, output
    # Two jobs with one checkpoint, the second on the hosts of the first; and one that was stopped.
    assert "WARM Reused True" in output and "STOPPED Stopped" in output, output
    kept = platform.client("s3").get_object(Bucket=BUCKET, Key="checkpoints3/count")["Body"].read()
    assert kept == b"2"
