"""What yard ls|cp|sync|rm and yard s3 tell a person: errors, what is left out, what was left behind."""

import json
import os
import subprocess

from s3_servers import own
from served import BIN, WAIT_SECONDS


def keys_of(server):
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket="bucket")
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_unfinished_uploads_are_listed_and_aborted(tmp_path):
    with own(tmp_path / "served") as server:
        client = server.client()
        for key in ("a", "dir/b c", "dir/é"):
            begun = client.create_multipart_upload(Bucket="bucket", Key=key)
            client.upload_part(Bucket="bucket", Key=key, UploadId=begun["UploadId"], PartNumber=1, Body=b"x")
        lines = json_lines(server.yard("s3", "uploads", "s3://bucket", "--json"))
        assert [line["url"] for line in lines] == ["s3://bucket/a", "s3://bucket/dir/b c", "s3://bucket/dir/é"]
        assert not any(line["aborted"] for line in lines)
        listed = server.yard("s3", "uploads", "s3://bucket/dir/")
        assert [line.split(" s3://")[1].rsplit(" ", 1)[0] for line in listed.splitlines()] == [
            "bucket/dir/b c", "bucket/dir/é"]
        assert server.yard("s3", "uploads", "s3://bucket", "--older-than", "1h", "--abort") == ""
        server.yard("s3", "uploads", "s3://bucket/dir/", "--abort")
        assert [entry["Key"] for entry in client.list_multipart_uploads(Bucket="bucket")["Uploads"]] == ["a"]
        server.yard("s3", "uploads", "s3://bucket", "--older-than", "0s", "--abort")
        assert "Uploads" not in client.list_multipart_uploads(Bucket="bucket")
        assert "none" in server.yard("s3", "uploads", "s3://none", code=3)


def test_what_is_left_out_of_an_upload_is_told_and_the_rest_goes_up(tmp_path):
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "good").write_bytes(b"good")
    (tree / "sub" / "good").write_bytes(b"also")
    (tree / "dangling").symlink_to("nowhere")
    (tree / "to a folder").symlink_to("sub")
    os.mkfifo(tree / "sub" / "pipe")
    with open(os.fsencode(tree) + b"/not-\xff-utf8", "wb"):
        pass
    with own(tmp_path / "served") as server:
        for command in (["cp", "-r"], ["sync"], ["sync", "--json"]):
            server.yard("rm", "-r", "s3://bucket")
            said = server.yard(*command, tree, "s3://bucket", code=2)
            assert keys_of(server) == ["good", "sub/good"], said
            for name, why in [("dangling", "link that leads nowhere"), ("to a folder", "link to a folder"),
                              ("sub/pipe", "pipe"), ("not-", "cannot be a key")]:
                assert any(name in line and why in line for line in said.splitlines()), (name, said)
            assert "4 of 6" in said
        # Nothing is removed from the target as long as the source could not be seen whole.
        server.client().put_object(Bucket="bucket", Key="only there", Body=b"")
        said = server.yard("sync", "--delete", tree, "s3://bucket", code=2)
        assert "only there" in keys_of(server) and "nothing was removed" in said
        for name in ("dangling", "to a folder"):
            (tree / name).unlink()
        (tree / "sub" / "pipe").unlink()
        os.unlink(os.fsencode(tree) + b"/not-\xff-utf8")
        server.yard("sync", "--delete", tree, "s3://bucket")
        assert keys_of(server) == ["good", "sub/good"]


def test_errors_are_json_where_json_is_asked_for(tmp_path):
    with own(tmp_path / "served") as server:
        for arguments, code, name in [(["ls", "s3://none"], 3, "not_found"),
                                      (["cat", "s3://bucket/none"], 3, "not_found"),
                                      (["rm", "s3://bucket"], 2, "invalid_argument"),
                                      (["cp", "s3://bucket/none", tmp_path / "x"], 3, "not_found"),
                                      (["ls", "--no-such-option"], 2, "invalid_argument"),
                                      (["lss"], 2, "invalid_argument")]:
            errors = [line for line in json_lines(server.yard(*arguments, "--json", code=code)) if "error" in line]
            assert len(errors) == 1 and errors[0]["exit_code"] == code, (arguments, errors)
            assert errors[0]["code"] == name and errors[0]["error"]


def test_removing_a_folder_names_the_option_that_it_takes(tmp_path):
    with own(tmp_path / "served") as server:
        server.client().put_object(Bucket="bucket", Key="dir/k", Body=b"")
        for url in ("s3://bucket/dir", "s3://bucket/dir/", "s3://bucket"):
            assert "--recursive" in server.yard("rm", url, code=2)
        assert keys_of(server) == ["dir/k"]
        server.yard("rm", "s3://bucket/di", code=3)


def test_env_tells_when_the_gateway_has_ended(tmp_path):
    with own(tmp_path / "served") as server:
        url = server.url
    done = subprocess.run([BIN / "yard", "s3", "env", tmp_path / "served"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 6 and done.stdout == ""
    assert url in done.stderr and "yard s3 serve" in done.stderr
