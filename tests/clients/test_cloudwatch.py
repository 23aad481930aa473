"""CloudWatch metrics by boto3 against `yard serve`: what users put, and what a job's log says in numbers."""

import datetime
import time
import urllib.request

import pytest

from platform_served import platform_at
from served import error_of
from test_sagemaker_jobs import start, wait_for

TRAINS = "import time\nfor i in range(5):\n    print(f'epoch {i} loss={1 / (i + 1)};', flush=True)\n    time.sleep(0.5)\n"
WAIT_SECONDS = 60  # only a failure comes near it


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


def window():
    now = datetime.datetime.now(datetime.timezone.utc)
    return {"StartTime": now - datetime.timedelta(hours=1), "EndTime": now + datetime.timedelta(minutes=5)}


def test_what_was_put_comes_back_in_every_form(platform):
    cloudwatch = platform.client("cloudwatch")
    dimensions = [{"Name": "Team", "Value": "a"}]
    cloudwatch.put_metric_data(Namespace="Own", MetricData=[
        {"MetricName": "speed", "Dimensions": dimensions, "Values": [1.0, 2.0], "Counts": [1.0, 3.0],
         "Unit": "Count/Second"}])
    listed = cloudwatch.list_metrics(Namespace="Own")["Metrics"]
    assert listed == [{"Namespace": "Own", "MetricName": "speed", "Dimensions": dimensions}]
    points = cloudwatch.get_metric_statistics(Namespace="Own", MetricName="speed", Dimensions=dimensions, Period=3600,
                                              Statistics=["Sum", "SampleCount", "Maximum"], **window())["Datapoints"]
    assert [(p["Sum"], p["SampleCount"], p["Maximum"], p["Unit"]) for p in points] == [(7, 4, 2, "Count/Second")]
    data = cloudwatch.get_metric_data(MetricDataQueries=[{"Id": "m", "MetricStat": {
        "Metric": listed[0], "Period": 3600, "Stat": "Average"}}], **window())["MetricDataResults"]
    assert data[0]["Values"] == [1.75] and data[0]["StatusCode"] == "Complete"
    assert error_of(lambda: cloudwatch.get_metric_statistics(
        Namespace="Own", MetricName="speed", Period=7, Statistics=["Sum"], **window())) == ("InvalidParameterValue", 400)


def test_metric_definitions_and_the_use_of_hosts_become_series(platform):
    cloudwatch = platform.client("cloudwatch")
    start(platform, "measured", TRAINS, AlgorithmSpecification={
        "TrainingImage": "any", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "train:loss", "Regex": "loss=(.*?);"}]})
    job = wait_for(platform.client("sagemaker"), "measured", lambda each: each["TrainingJobStatus"] != "InProgress")
    assert job["TrainingJobStatus"] == "Completed", job
    # The last line is read, however soon one asks.
    [final] = job["FinalMetricDataList"]
    assert final["MetricName"] == "train:loss" and abs(final["Value"] - 0.2) < 1e-6
    assert job["TrainingStartTime"] < final["Timestamp"] <= job["TrainingEndTime"]
    searched = platform.client("sagemaker").search(Resource="TrainingJob", SearchExpression={"Filters": [
        {"Name": "Metrics.train:loss", "Operator": "LessThan", "Value": "0.3"}]})["Results"]
    assert [each["TrainingJob"]["TrainingJobName"] for each in searched] == ["measured"]

    def points(name, **dimension):
        [(key, value)] = dimension.items()
        return cloudwatch.get_metric_statistics(
            Namespace="/aws/sagemaker/TrainingJobs", MetricName=name, Dimensions=[{"Name": key, "Value": value}],
            Period=3600, Statistics=["SampleCount", "Minimum", "Maximum"], **window())["Datapoints"]

    end = time.monotonic() + WAIT_SECONDS
    while sum(p["SampleCount"] for p in points("train:loss", TrainingJobName="measured")) < 5:
        assert time.monotonic() < end
        time.sleep(0.1)
    time.sleep(1.5)  # another look at the log would count twice here
    losses = points("train:loss", TrainingJobName="measured")
    assert sum(p["SampleCount"] for p in losses) == 5 and max(p["Maximum"] for p in losses) == 1.0
    assert points("CPUUtilization", Host="measured/algo-1")
    assert points("MemoryUtilization", Host="measured/algo-1")


def test_an_expression_that_cannot_be_read_is_refused_with_the_job(platform):
    assert error_of(lambda: start(platform, "unreadable", TRAINS, AlgorithmSpecification={
        "TrainingImage": "any", "TrainingInputMode": "File",
        "MetricDefinitions": [{"Name": "train:loss", "Regex": "loss=("}]})) == ("ValidationException", 400)


def test_prometheus_finds_its_page_on_this_machine(platform):
    with urllib.request.urlopen(platform.url + "/metrics", timeout=30) as page:
        assert page.headers["Content-Type"].startswith("text/plain; version=0.0.4")
        text = page.read().decode()
    assert "# TYPE yard_host_cpu_percent gauge" in text
