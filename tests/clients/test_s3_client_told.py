"""What yard ls|cp|sync|rm and yard s3 tell a person: errors, what is left out, what was left behind."""

import json
import os
import subprocess
import sys

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


def test_json_names_files_so_that_any_command_takes_them(tmp_path):
    (tmp_path / "dir" / "sub").mkdir(parents=True)
    for name in ("a", "sub/b", "-c"):
        (tmp_path / "dir" / name).touch()

    def yard(*arguments):
        done = subprocess.run([BIN / "yard", *arguments], cwd=tmp_path, check=True, capture_output=True, text=True)
        return json_lines(done.stdout)

    whole = [str(tmp_path / "dir" / name) for name in ("-c", "a", "sub/b")]
    assert [line["url"] for line in yard("ls", "-r", "--json", "dir")] == whole
    assert yard("ls", "--json", "./dir/../dir")[0]["url"] == str(tmp_path / "dir" / "sub") + "/"
    assert [line["url"] for line in yard("sha256", "--json", "dir/a")] == [whole[1]]
    assert [line["url"] for line in yard("rm", "-r", "--dry-run", "--json", "dir")] == whole
    assert [line["url"] for line in yard("rm", "--json", whole[0], "dir/a")] == whole[:2]


def test_quiet_says_only_errors_and_a_dry_run_tells_all_the_same(tmp_path):
    def yard(*arguments):
        return subprocess.run([BIN / "yard", *arguments], cwd=tmp_path, check=True, capture_output=True,
                              text=True).stdout

    (tmp_path / "from").mkdir()
    (tmp_path / "from" / "a").touch()
    assert yard("cp", "-r", "-q", "--dry-run", "from", "to").startswith("would copy: ")
    assert yard("sync", "-q", "from", "to") == ""
    assert yard("rm", "-q", "--dry-run", "to/a") == "would remove: to/a\n"
    assert yard("rm", "-q", "to/a") == ""
    assert not (tmp_path / "to" / "a").exists()


def test_a_gateway_that_is_away_is_told_soon_with_what_starts_it(tmp_path):
    with own(tmp_path / "served") as server:
        pass
    for json_flag in ([], ["--json"]):
        said = server.yard("ls", "s3://bucket", *json_flag, code=6)
        last = said.splitlines()[-1]
        assert "asking again" in said.splitlines()[0] and "asking again" not in last, said
        assert "Couldn't connect" in said and "yard s3 serve" in last and "yard s3 env" in last
        assert not json_flag or json_lines(said)[-1]["code"] == "unavailable"


def test_refused_keys_are_told_at_once_with_where_they_are(tmp_path):
    with own(tmp_path / "served") as server:
        for wrong in ({"AWS_ACCESS_KEY_ID": "AKNOBODY"}, {"AWS_SECRET_ACCESS_KEY": "wrong"}):
            for command in (["ls", "s3://bucket"], ["cat", "s3://bucket/k"], ["ls", "s3://"],
                            ["cp", __file__, "s3://bucket/k"]):
                said = server.yard(*command, code=2, **wrong)
                assert "yard s3 env" in said and "asking again" not in said, said


def test_a_port_that_is_none_is_told_as_such(tmp_path):
    with own(tmp_path / "served") as server:
        for port in ("65536", "99999", "123456789012345678901"):
            assert "0 to 65535" in server.yard("s3", "serve", tmp_path, "--listen", f"127.0.0.1:{port}", code=2)
            assert "1 to 65535" in server.yard("ls", "--endpoint", f"http://127.0.0.1:{port}", "s3://bucket", code=2)


def test_env_tells_when_the_gateway_has_ended(tmp_path):
    with own(tmp_path / "served") as server:
        url = server.url
    done = subprocess.run([BIN / "yard", "s3", "env", tmp_path / "served"], capture_output=True, text=True,
                          timeout=WAIT_SECONDS)
    assert done.returncode == 6 and done.stdout == ""
    assert url in done.stderr and "yard s3 serve" in done.stderr


def test_the_aws_cli_syncs_files_without_bytes(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(12):
        (tree / f"f{i}").write_bytes(b"x" * i)
    (tree / "empty").touch()
    with own(tmp_path / "served") as server:
        for i in range(3):
            subprocess.run([sys.executable, "-m", "awscli", "--endpoint-url", server.url, "s3", "sync", tree,
                            f"s3://bucket/{i}"], env=server.environment(), check=True, timeout=30,
                           stdout=subprocess.DEVNULL)
        assert len(keys_of(server)) == 3 * 13


def test_a_key_that_cannot_be_a_file_is_named_and_the_rest_comes(tmp_path):
    with own(tmp_path / "served") as server:
        for key in ("ph/", "ph/x", "ph/y/"):
            server.client().put_object(Bucket="bucket", Key=key, Body=b"content")
        server.client().put_object(Bucket="bucket", Key="ph/marker/", Body=b"")
        for command in (["cp", "-r"], ["sync"]):
            target = tmp_path / command[0]
            said = server.yard(*command, "s3://bucket/ph", target, code=2)
            assert "ph/:" in said.replace("'", "") and "ph/y/" in said and "marker" not in said, said
            assert [path.name for path in target.iterdir() if path.is_file()] == ["x"]


def test_sums_are_those_that_sha256sum_reads(tmp_path):
    names = ["plain", "back\\slash", "new\nline"]
    for name in names:
        (tmp_path / name).write_text(name)
    said = subprocess.run([BIN / "yard", "sha256", *names], cwd=tmp_path, check=True, capture_output=True, text=True)
    theirs = subprocess.run(["sha256sum", *names], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert said.stdout == theirs.stdout


def test_what_is_missing_is_told_apart(tmp_path):
    with own(tmp_path / "served") as server:
        server.client().put_object(Bucket="bucket", Key="dir/x", Body=b"x")
        assert "NoSuchBucket" in server.yard("cp", "s3://nobucket/x", tmp_path / "x", code=3)
        for command in (["cat"], ["sha256"]):
            assert "is a folder" in server.yard(*command, "s3://bucket/dir", code=2)
        assert "is a folder" in server.yard("cp", "s3://bucket/dir", tmp_path / "x", code=2)
        assert "is an object" in server.yard("sync", "s3://bucket/dir/x", tmp_path / "y", code=2)
        assert "no object under it" in server.yard("rm", "-r", "s3://bucket/none/", code=3)
        assert "yard cat" in server.yard("cp", "s3://bucket/dir/x", "-", code=2)
        assert "no s3://" in server.yard("cp", "S3://bucket/dir/x", tmp_path / "x", code=2)


def test_control_characters_of_names_do_not_reach_the_terminal(tmp_path):
    with own(tmp_path / "served") as server:
        server.client().put_object(Bucket="bucket", Key="esc\x1b[31mred", Body=b"x")
        assert "esc\\x1b[31mred" in server.yard("ls", "s3://bucket")
        assert json_lines(server.yard("ls", "--json", "s3://bucket"))[0]["key"] == "esc\x1b[31mred"


def test_removing_a_folder_on_disk_takes_its_empty_folders_too(tmp_path):
    (tmp_path / "dir" / "sub" / "deep").mkdir(parents=True)
    (tmp_path / "dir" / "sub" / "x").touch()
    subprocess.run([BIN / "yard", "rm", "-r", tmp_path / "dir"], check=True, timeout=WAIT_SECONDS)
    assert not (tmp_path / "dir").exists()


def test_a_folder_inside_a_served_one_is_not_served(tmp_path):
    with own(tmp_path / "served") as server:
        inner = subprocess.run([BIN / "yard", "s3", "serve", tmp_path / "served" / "bucket", "--listen", "127.0.0.1:0"],
                               capture_output=True, text=True, timeout=WAIT_SECONDS)
        assert inner.returncode == 2 and "is served itself" in inner.stderr
        assert server.yard("ls", "s3://bucket") == ""
    subprocess.run(["cp", "-r", tmp_path / "served" / ".yard", tmp_path / "served" / "bucket"], check=True)
    outer = subprocess.run([BIN / "yard", "s3", "serve", tmp_path / "served", "--listen", "127.0.0.1:0"],
                           capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert outer.returncode == 2 and "was served itself" in outer.stderr
