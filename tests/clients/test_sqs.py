"""SQS by boto3 against `yard serve`: batches, visibility, dead letters, long polls, and its errors' names."""

import json
import threading
import time

import pytest

from platform_served import platform_at
from served import error_of


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with platform_at(tmp_path_factory.mktemp("home")) as running:
        yield running


@pytest.fixture(scope="module")
def sqs(platform):
    return platform.client("sqs")


def test_messages_go_through_with_attributes_and_digests(sqs):
    url = sqs.create_queue(QueueName="plain")["QueueUrl"]
    assert sqs.get_queue_url(QueueName="plain")["QueueUrl"] == url
    attributes = {"kind": {"DataType": "String", "StringValue": "picture"},
                  "raw": {"DataType": "Binary", "BinaryValue": b"\0\xff"}}
    sqs.send_message(QueueUrl=url, MessageBody="héllo \U0001f642", MessageAttributes=attributes)
    got = sqs.receive_message(QueueUrl=url, MessageAttributeNames=["All"], AttributeNames=["All"],
                              WaitTimeSeconds=1)["Messages"][0]
    assert got["Body"] == "héllo \U0001f642"
    assert got["MessageAttributes"] == attributes  # botocore has checked the digests
    assert got["Attributes"]["ApproximateReceiveCount"] == "1"
    sqs.delete_message(QueueUrl=url, ReceiptHandle=got["ReceiptHandle"])
    counts = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    assert counts["ApproximateNumberOfMessages"] == counts["ApproximateNumberOfMessagesNotVisible"] == "0"


def test_batches_and_pages(sqs):
    url = sqs.create_queue(QueueName="batches")["QueueUrl"]
    for start in range(0, 30, 10):
        sent = sqs.send_message_batch(QueueUrl=url, Entries=[{"Id": str(i), "MessageBody": str(i)}
                                                             for i in range(start, start + 10)])
        assert len(sent["Successful"]) == 10 and not sent.get("Failed")
    bodies = set()
    while messages := sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=10).get("Messages"):
        bodies |= {message["Body"] for message in messages}
        sqs.delete_message_batch(QueueUrl=url, Entries=[{"Id": str(i), "ReceiptHandle": message["ReceiptHandle"]}
                                                        for i, message in enumerate(messages)])
    assert bodies == {str(i) for i in range(30)}
    pages = sqs.get_paginator("list_queues").paginate(PaginationConfig={"PageSize": 1})
    assert url in [each for page in pages for each in page.get("QueueUrls", [])]


def test_a_message_that_is_received_too_often_is_a_dead_letter(sqs):
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    url = sqs.create_queue(QueueName="work", Attributes={"VisibilityTimeout": "0", "RedrivePolicy": json.dumps(
        {"deadLetterTargetArn": arn, "maxReceiveCount": "2"})})["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="poison")
    for _ in range(2):
        assert len(sqs.receive_message(QueueUrl=url)["Messages"]) == 1
    assert "Messages" not in sqs.receive_message(QueueUrl=url)
    got = sqs.receive_message(QueueUrl=dead, AttributeNames=["All"])["Messages"][0]
    assert got["Body"] == "poison" and got["Attributes"]["DeadLetterQueueSourceArn"].endswith(":work")


def test_a_long_poll_ends_with_the_message_it_waited_for(sqs, platform):
    url = sqs.create_queue(QueueName="polled")["QueueUrl"]
    sender = threading.Timer(0.3, lambda: platform.client("sqs").send_message(QueueUrl=url, MessageBody="late"))
    sender.start()
    begin = time.monotonic()
    assert sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"][0]["Body"] == "late"
    assert time.monotonic() - begin < 15
    sender.join()


def test_errors_have_the_names_that_clients_catch(sqs):
    with pytest.raises(sqs.exceptions.QueueDoesNotExist):
        sqs.get_queue_url(QueueName="none")
    url = sqs.create_queue(QueueName="named", Attributes={"DelaySeconds": "5"})["QueueUrl"]
    assert error_of(lambda: sqs.create_queue(QueueName="named")) == ("QueueAlreadyExists", 400)
    nowhere = url.replace("named", "nowhere")
    assert error_of(lambda: sqs.send_message(QueueUrl=nowhere, MessageBody="x")) == \
        ("AWS.SimpleQueueService.NonExistentQueue", 400)
    assert error_of(lambda: sqs.create_queue(QueueName="a.fifo", Attributes={"FifoQueue": "true"})) == \
        ("AWS.SimpleQueueService.UnsupportedOperation", 400)
    assert error_of(lambda: sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=11)) == ("InvalidParameterValue", 400)


def test_queues_outlive_the_daemon(tmp_path):
    with platform_at(tmp_path) as running:
        url = running.client("sqs").create_queue(QueueName="kept")["QueueUrl"]
        running.client("sqs").send_message(QueueUrl=url, MessageBody="still here")
    with platform_at(tmp_path) as running:
        url = running.client("sqs").get_queue_url(QueueName="kept")["QueueUrl"]
        assert running.client("sqs").receive_message(QueueUrl=url)["Messages"][0]["Body"] == "still here"
