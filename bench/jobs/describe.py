"""DescribeTrainingJob, requests a second: `yard serve` and moto's server. The same client for both: one signed
request sent again and again over kept connections of raw sockets, from as many processes as cores."""

import hashlib
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request

import boto3
import botocore.auth
import botocore.awsrequest
import botocore.credentials

import common

SECONDS = 3
CONNECTIONS = 8


def signed_request(url, key, secret):
    body = b'{"TrainingJobName": "described"}'
    request = botocore.awsrequest.AWSRequest("POST", url + "/", data=body, headers={
        "Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": "SageMaker.DescribeTrainingJob",
        "X-Amz-Content-SHA256": hashlib.sha256(body).hexdigest(), "Host": url.split("//")[1]})
    botocore.auth.SigV4Auth(botocore.credentials.Credentials(key, secret), "sagemaker", "us-east-1").add_auth(request)
    head = "".join(f"{name}: {value}\r\n" for name, value in request.headers.items())
    return f"POST / HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def answer_of(connection):
    """Reads one answer; whether it was 200 and the connection stays."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return False, False
        data += more
    head, rest = data.split(b"\r\n\r\n", 1)
    length = int(re.search(rb"(?i)content-length: *(\d+)", head).group(1))
    while len(rest) < length:
        rest += connection.recv(65536)
    return head.startswith(b"HTTP/1.1 200"), b"connection: close" not in head.lower()


def ask(address, request, seconds, count):
    done, end = 0, time.monotonic() + seconds
    connection = None
    while time.monotonic() < end:
        if connection is None:
            connection = socket.create_connection(address)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.sendall(request)
        is_good, stays = answer_of(connection)
        assert is_good
        done += 1
        if not stays:
            connection.close()
            connection = None
    with count.get_lock():
        count.value += done


def rate(url, request):
    host, port = url.split("//")[1].split(":")
    count = multiprocessing.Value("q", 0)
    clients = [multiprocessing.Process(target=ask, args=((host, int(port)), request, SECONDS, count))
               for _ in range(CONNECTIONS)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()
        assert client.exitcode == 0
    return count.value / SECONDS


def moto_server():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([common.ROOT / ".venv/bin/moto_server", "-H", "127.0.0.1", "-p", str(port)],
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    url = f"http://127.0.0.1:{port}"

    def answers():
        try:
            return urllib.request.urlopen(url + "/moto-api/").status == 200
        except OSError:
            return False

    common.poll(answers, "moto's server")
    return process, url


def main():
    rounds = min(common.arguments().rounds, 3)
    process, moto_url = moto_server()
    ours, motos = [], []
    try:
        with common.platform() as platform:
            exports = platform.exports()
            common.start(platform, "described", "print('x')\n")
            common.wait_for_end(platform.client("sagemaker"), "described")
            boto3.client("sagemaker", endpoint_url=moto_url, region_name="us-east-1", aws_access_key_id="k",
                         aws_secret_access_key="s").create_training_job(**common.smallest_job("described"))
            mine = signed_request(platform.url, exports["AWS_ACCESS_KEY_ID"], exports["AWS_SECRET_ACCESS_KEY"])
            theirs = signed_request(moto_url, "k", "s")
            for _ in range(rounds):
                ours.append(rate(platform.url, mine))
                motos.append(rate(moto_url, theirs))
    finally:
        process.terminate()
        process.wait()
    print(f"describe: DescribeTrainingJob requests/s, {CONNECTIONS} connections, {os.cpu_count()} cores for both sides")
    print("yard serve", *(f"{each:.0f}" for each in ours))
    print("moto      ", *(f"{each:.0f}" for each in motos))
    common.ratio("jobs_describe_vs_moto", [1 / each for each in ours], [1 / each for each in motos], 20)


if __name__ == "__main__":
    sys.exit(main())
