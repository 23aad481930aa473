"""What the gateway says of objects besides their bytes: versions and attributes."""

from served import error_of, keys_of

MIB = 1 << 20


def test_every_object_has_the_one_version_of_a_bucket_without_versions(s3, bucket):
    keys = sorted(["a", "a b", "é", *(f"dir/{number:03}" for number in range(25))])
    for key in keys:
        s3.put_object(Bucket=bucket, Key=key, Body=key.encode())
    pages = list(s3.get_paginator("list_object_versions").paginate(Bucket=bucket, PaginationConfig={"PageSize": 10}))
    versions = [version for page in pages for version in page["Versions"]]
    assert [version["Key"] for version in versions] == keys and len(pages) == 3
    assert all(version["VersionId"] == "null" and version["IsLatest"] for version in versions)
    assert versions[0]["ETag"] == s3.head_object(Bucket=bucket, Key="a")["ETag"] and versions[0]["Size"] == 1
    assert "DeleteMarkers" not in pages[0]
    listed = s3.list_object_versions(Bucket=bucket, Delimiter="/", Prefix="d")
    assert [entry["Prefix"] for entry in listed["CommonPrefixes"]] == ["dir/"] and "Versions" not in listed
    assert error_of(s3.list_object_versions, Bucket=bucket, VersionIdMarker="null") == ("InvalidArgument", 400)
    # As tools empty a bucket: every version that is listed, by its id.
    s3.delete_objects(Bucket=bucket, Delete={"Objects": [
        {"Key": version["Key"], "VersionId": version["VersionId"]} for version in versions]})
    assert keys_of(s3, bucket) == []


def test_the_attributes_of_an_object(s3, bucket):
    everything = ["ETag", "Checksum", "ObjectParts", "StorageClass", "ObjectSize"]
    put = s3.put_object(Bucket=bucket, Key="k", Body=b"12345", ChecksumAlgorithm="SHA256")
    found = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=everything)
    assert found["ETag"] == put["ETag"].strip('"') and found["ObjectSize"] == 5
    assert found["Checksum"] == {"ChecksumSHA256": put["ChecksumSHA256"], "ChecksumType": "FULL_OBJECT"}
    assert found["StorageClass"] == "STANDARD" and "ObjectParts" not in found and "LastModified" in found
    few = s3.get_object_attributes(Bucket=bucket, Key="k", ObjectAttributes=["ObjectSize"])
    assert {name for name in few if name in everything} == {"ObjectSize"}
    place = {"Bucket": bucket, "Key": "parts"}
    place["UploadId"] = s3.create_multipart_upload(**place)["UploadId"]
    sizes = [5 * MIB, 5 * MIB, 7]
    s3.complete_multipart_upload(**place, MultipartUpload={"Parts": [
        {"PartNumber": number, "ETag": s3.upload_part(**place, PartNumber=number, Body=bytes(size))["ETag"]}
        for number, size in enumerate(sizes, 1)]})
    parts = s3.get_object_attributes(Bucket=bucket, Key="parts", ObjectAttributes=everything)["ObjectParts"]
    assert [part["Size"] for part in parts["Parts"]] == sizes
    assert parts["TotalPartsCount"] == 3 and not parts["IsTruncated"]
    page = s3.get_object_attributes(Bucket=bucket, Key="parts", ObjectAttributes=["ObjectParts"],
                                    MaxParts=1, PartNumberMarker=1)["ObjectParts"]
    assert [part["PartNumber"] for part in page["Parts"]] == [2]
    assert page["IsTruncated"] and page["NextPartNumberMarker"] == 2
    assert error_of(s3.get_object_attributes, Bucket=bucket, Key="none", ObjectAttributes=["ETag"]) == ("NoSuchKey", 404)
    assert error_of(s3.get_object_attributes, Bucket=bucket, Key="k", ObjectAttributes=["Nothing"]) == ("InvalidArgument", 400)
    assert error_of(s3.get_object_attributes, Bucket=bucket, Key="k", ObjectAttributes=["ETag"],
                    VersionId="other") == ("NoSuchVersion", 404)
