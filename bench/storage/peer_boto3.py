"""boto3's transfer manager: all objects under a prefix into a folder, or the other way.

    peer_boto3.py download|upload BUCKET PREFIX FOLDER CONCURRENCY
"""

import pathlib
import sys

import boto3
import s3transfer.manager
from botocore.config import Config


def main():
    direction, bucket, prefix, folder, concurrency = sys.argv[1:]
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = Config(s3={"addressing_style": "path"}, max_pool_connections=int(concurrency))
    client = boto3.client("s3", config=config)
    options = s3transfer.manager.TransferConfig(
        max_request_concurrency=int(concurrency), max_submission_concurrency=10)
    with s3transfer.manager.TransferManager(client, options) as manager:
        if direction == "upload":
            futures = [manager.upload(str(path), bucket, f"up-boto3/{prefix}/{path.name}")
                       for path in folder.iterdir()]
        else:
            pages = client.get_paginator("list_objects_v2").paginate(
                Bucket=bucket, Prefix=prefix + "/")
            futures = [manager.download(bucket, entry["Key"],
                                        str(folder / pathlib.PurePath(entry["Key"]).name))
                       for page in pages for entry in page["Contents"]]
        for future in futures:
            future.result()


if __name__ == "__main__":
    main()
