"""Unchanged code of the SageMaker Python SDK, versions 2 and 3, each in an environment of its own,
since neither goes with the other nor with the boto3 of the other tests: `tools/setup.sh clients` makes them.
"""

import os
import pathlib
import subprocess
import textwrap

import pytest

from platform_served import IMAGE, ROLE, platform_at
from served import ROOT

RUN_WAIT_SECONDS = 900  # only a failure comes near it

TRAIN = """
import os, pathlib, sys
print("trains with", *sys.argv[1:], flush=True)
pathlib.Path(os.environ["SM_MODEL_DIR"], "weights.txt").write_text("weights")
"""

SDK2 = """
from sagemaker.pytorch import PyTorch
from sagemaker.inputs import TrainingInput
import sagemaker
session = sagemaker.Session()
data = session.upload_data("data.txt", key_prefix="sdk2/data")
estimator = PyTorch(entry_point="train.py", source_dir="source", role=ROLE, image_uri=IMAGE,
                    instance_count=1, instance_type="ml.m5.large", base_job_name="sdk2",
                    hyperparameters={"lr": 0.1, "flag": True}, disable_profiler=True,
                    debugger_hook_config=False)
estimator.fit({"train": TrainingInput(data)}, logs="All")
print("MODEL", estimator.model_data)
print("TAGS", session.list_tags(estimator.latest_training_job.describe()["TrainingJobArn"]))
attached = PyTorch.attach(estimator.latest_training_job.name)
print("ATTACHED", attached.model_data == estimator.model_data)
"""

SDK3 = """
import logging
logging.basicConfig(level=logging.INFO)
from sagemaker.train import ModelTrainer
from sagemaker.train.configs import Compute, SourceCode
trainer = ModelTrainer(training_image=IMAGE, role=ROLE, base_job_name="sdk3",
                       source_code=SourceCode(source_dir="source", entry_script="train.py"),
                       compute=Compute(instance_type="ml.m5.large", instance_count=1),
                       hyperparameters={"lr": 0.1})
trainer.train(wait=True, logs=True)
job = trainer._latest_training_job
job.refresh()
print("MODEL", job.model_artifacts.s3_model_artifacts)
print("STATUS", job.training_job_status)
"""


def python_of(version):
    path = os.environ.get(f"YARD_SAGEMAKER{version}_PYTHON",
                          ROOT / f".venv-sagemaker{version}/bin/python")
    if not pathlib.Path(path).exists():
        pytest.skip(f"NOT TESTED: the SageMaker SDK of version {version} is not installed, "
                    f"see {pathlib.Path(__file__).name}")
    return path


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


def run_sdk(platform, version, code, folder):
    python = python_of(version)
    (folder / "source").mkdir(exist_ok=True)
    (folder / "source/train.py").write_text(TRAIN)
    (folder / "data.txt").write_text("data")
    (folder / "code.py").write_text(f"ROLE = {ROLE!r}\nIMAGE = {IMAGE!r}\n" + textwrap.dedent(code))
    said = folder / "said.txt"  # also by one that does not end
    with said.open("w") as out:
        process = subprocess.Popen([python, "code.py"], cwd=folder, env=platform.environment(),
                                   stdout=out, stderr=subprocess.STDOUT)
    try:
        code = process.wait(RUN_WAIT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        code = process.wait()
    assert code == 0, (code, said.read_text())
    return said.read_text()


def test_version_2_fits_an_estimator_with_its_logs(platform, tmp_path):
    output = run_sdk(platform, 2, SDK2, tmp_path)
    assert "trains with --flag True --lr 0.1" in output, output
    assert "/output/model.tar.gz" in output
    assert "ATTACHED True" in output


def test_version_3_trains_with_its_logs(platform, tmp_path):
    output = run_sdk(platform, 3, SDK3, tmp_path)
    assert "trains with" in output, output
    assert "STATUS Completed" in output
