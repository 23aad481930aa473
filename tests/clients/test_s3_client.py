"""yard ls|cp|cat|sync|rm|sha256 beside boto3, on servers of other people and on our own."""

import filecmp
import hashlib
import http.server
import json
import os
import pty
import random
import re
import select
import shlex
import shutil
import signal
import subprocess
import threading
import time

import pytest

from radosgw import radosgw
from s3_servers import HoldingProxy, moto, own, rclone, wait_until
from served import BIN, WAIT_SECONDS

MIB = 1 << 20
SERVERS = {"moto": moto, "rclone": rclone, "radosgw": radosgw, "yard": own}

# Names that a file system and every server take.
FILE_NAMES = ["plain.txt", "sp ace", "plus+plus", "per%cent", "per%2Fcent", "q?x=1&y=2", "h#ash",
              "semi;colon", "quote'\"", "<xml>&amp;", "~tilde~", "日本語", "🚂", "e\u0301 and \u00e9",
              "=", "trail.", "star*", "deep/er/and deeper/file", ".hidden", "a,b@c:d"]
# Names that only an object store takes.
ODD_KEYS = ["a", "a/", "a/b", "a//b", "/lead", "../x", "./y", "tab\tnew\nline", "x" * 1000]


@pytest.fixture(scope="module", params=list(SERVERS))
def shared_server(request, tmp_path_factory):
    with SERVERS[request.param](tmp_path_factory.mktemp("served")) as server:
        yield server


@pytest.fixture
def server(shared_server):
    """A server whose bucket is empty."""
    shared_server.yard("rm", "--recursive", "s3://bucket")
    return shared_server


def bytes_of(size, seed=0):
    return random.Random(seed).randbytes(size)


def write_tree(folder):
    for number, name in enumerate(FILE_NAMES):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(bytes_of(number * 997, number))
    (folder / "large").write_bytes(bytes_of(20 * MIB + 17))
    return {str(path.relative_to(folder)): path.read_bytes()
            for path in folder.rglob("*") if path.is_file()}


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def keys_of(server, prefix=""):
    pages = server.client().get_paginator("list_objects_v2").paginate(Bucket="bucket", Prefix=prefix)
    return [entry["Key"] for page in pages for entry in page.get("Contents", [])]


def json_lines(text):
    return [json.loads(line) for line in text.splitlines()]


def test_a_tree_goes_up_and_comes_back_byte_for_byte(server, tmp_path):
    tree = write_tree(tmp_path / "tree")
    server.yard("cp", "--recursive", tmp_path / "tree", "s3://bucket/to here")
    client = server.client()
    for name, content in tree.items():
        body = client.get_object(Bucket="bucket", Key=f"to here/{name}")["Body"].read()
        assert body == content, name
    server.yard("cp", "-r", "s3://bucket/to here/", tmp_path / "back")
    assert files_of(tmp_path / "back") == set(tree)
    for name, content in tree.items():
        assert (tmp_path / "back" / name).read_bytes() == content, name


def test_what_boto3_puts_is_read_and_the_other_way(server, tmp_path):
    client = server.client()
    content = bytes_of(30 * MIB + 1, 7)
    (tmp_path / "file").write_bytes(content)
    client.upload_file(str(tmp_path / "file"), "bucket", "of boto3")  # in parts, with its checksums
    server.yard("cp", "s3://bucket/of boto3", tmp_path / "got")
    assert (tmp_path / "got").read_bytes() == content
    printed = subprocess.run([BIN / "yard", "cat", "s3://bucket/of boto3"],
                             env=server.environment(), capture_output=True, check=True).stdout
    assert printed == content
    digest = hashlib.sha256(content).hexdigest()
    sums = server.yard("sha256", "s3://bucket/of boto3", tmp_path / "file")
    assert sums == f"{digest}  s3://bucket/of boto3\n{digest}  {tmp_path}/file\n"
    server.yard("cp", tmp_path / "file", "s3://bucket/of yard")
    client.download_file("bucket", "of yard", str(tmp_path / "back"))
    assert filecmp.cmp(tmp_path / "file", tmp_path / "back", shallow=False)


def test_eleven_hundred_objects(server, tmp_path):
    (tmp_path / "many").mkdir()
    for number in range(1100):
        (tmp_path / "many" / f"{number:05}").write_bytes(b"%d" % number)
    server.yard("cp", "-r", tmp_path / "many", "s3://bucket/many")
    listed = [line["key"] for line in json_lines(server.yard("ls", "-r", "--json", "s3://bucket/"))]
    assert listed == [f"many/{number:05}" for number in range(1100)]
    server.yard("cp", "-r", "s3://bucket/many", tmp_path / "back")
    assert filecmp.cmpfiles(tmp_path / "many", tmp_path / "back", listed, shallow=False)[1] == []
    assert files_of(tmp_path / "back") == {key.removeprefix("many/") for key in listed}
    server.yard("rm", "-r", "s3://bucket/many")
    assert keys_of(server) == []


def test_keys_that_no_file_can_have(server, tmp_path):
    if server.name == "rclone":
        pytest.skip("NOT TESTED: rclone keeps objects as files")
    client = server.client()
    # moto's web server puts paths in order before moto sees them.
    odd_keys = [key for key in ODD_KEYS if server.name != "moto" or not set("./\n") & set(key[:-1])]
    for key in odd_keys:
        client.put_object(Bucket="bucket", Key=key, Body=key.encode())
    lines = json_lines(server.yard("ls", "-r", "--json", "s3://bucket"))
    assert sorted(line["key"] for line in lines) == sorted(odd_keys)
    for key in odd_keys:
        if not key.endswith("/"):
            assert server.yard("cat", f"s3://bucket/{key}") == key
    if server.name != "moto":
        # Those that can be files are; the others are named, and none escapes.
        said = server.yard("cp", "-r", "s3://bucket", tmp_path / "in" / "here", code=2)
        assert "'../x' cannot be a file's name" in said
        assert not (tmp_path / "in" / "x").exists()
    server.yard("rm", "-r", "s3://bucket")
    assert keys_of(server) == []


def test_ls_shows_one_level_or_all(server, tmp_path):
    write_tree(tmp_path / "tree")
    server.yard("cp", "-r", "-q", tmp_path / "tree", "s3://bucket/t")
    for url in ["s3://bucket/t/", "s3://bucket/t"]:
        text = server.yard("ls", url)
        assert " folder deep/\n" in text and "er/and" not in text
        assert f" {20 * MIB + 17} large\n" in text
    assert "t/deep/er/and deeper/file" in server.yard("ls", "-r", "s3://bucket")
    buckets = server.yard("ls", "s3://")
    assert "s3://bucket/\n" in buckets
    local = json_lines(server.yard("ls", "--json", tmp_path / "tree"))
    assert {line.get("key") for line in local} >= {"plain.txt", "large"}


def test_sync_copies_only_what_differs(server, tmp_path):
    tree = write_tree(tmp_path / "tree")

    def copies(*arguments):
        *lines, summary = json_lines(server.yard("sync", "--json", *arguments))
        copied = [line for line in lines if "source" in line]
        assert summary["copied"] == sum(line["copied"] for line in copied)
        return summary["copied"]

    there = "s3://bucket/sync"
    assert copies(tmp_path / "tree", there) == len(tree)
    assert copies(tmp_path / "tree", there) == 0
    assert copies(there, tmp_path / "back") == len(tree)
    assert copies(there, tmp_path / "back") == 0
    # Another size; the same size, but newer; a file that the source does not have.
    (tmp_path / "tree" / "plain.txt").write_bytes(b"longer")
    later = time.time() + 100
    os.utime(tmp_path / "tree" / "large", (later, later))
    # Times are compared by whole seconds; this one came down some time ago.
    os.utime(tmp_path / "back" / "large", (later - 1000, later - 1000))
    (tmp_path / "back" / "extra").write_bytes(b"x")
    assert copies(tmp_path / "tree", there) == 2
    assert copies(there, tmp_path / "back") == 2
    assert copies("--dry-run", "--delete", there, tmp_path / "back") == 0
    assert (tmp_path / "back" / "extra").exists()
    assert copies("--delete", there, tmp_path / "back") == 0
    assert files_of(tmp_path / "back") == set(tree)
    assert (tmp_path / "back" / "plain.txt").read_bytes() == b"longer"
    # And in the bucket.
    server.client().put_object(Bucket="bucket", Key="sync/extra", Body=b"x")
    server.yard("sync", "--delete", tmp_path / "tree", there)
    assert sorted(keys_of(server, "sync/")) == sorted(f"sync/{name}" for name in tree)


def test_copies_inside_the_service(server, tmp_path):
    write_tree(tmp_path / "tree")
    server.yard("cp", "-q", tmp_path / "tree" / "large", "s3://bucket/a b+c")
    server.yard("cp", "s3://bucket/a b+c", "s3://bucket/folder/")
    assert keys_of(server) == ["a b+c", "folder/a b+c"]
    expected = server.yard("sha256", "s3://bucket/a b+c").split()[0]
    assert server.yard("sha256", "s3://bucket/folder/a b+c").startswith(expected)
    assert "onto itself" in server.yard("cp", "s3://bucket/a b+c", "s3://bucket/", code=2)


def test_no_clobber_leaves_what_is_there(server, tmp_path):
    if server.name == "rclone":
        pytest.skip("NOT TESTED: rclone ignores If-None-Match")
    (tmp_path / "new").write_bytes(b"new")
    server.client().put_object(Bucket="bucket", Key="k", Body=b"old")
    said = server.yard("cp", "--no-clobber", tmp_path / "new", "s3://bucket/k", code=2)
    assert "already exists" in said
    assert server.yard("cat", "s3://bucket/k") == "old"
    assert "already exists" in server.yard("cp", "--no-clobber", "s3://bucket/k", tmp_path / "new", code=2)
    assert (tmp_path / "new").read_bytes() == b"new"


class RefusesRemoval(http.server.BaseHTTPRequestHandler):
    """An S3 server with one object that nobody may remove."""

    def answer(self, status, body=b""):
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_HEAD(self):
        self.answer(200)

    def do_GET(self):
        self.answer(200, b"<ListBucketResult><Contents><Key>k</Key><Size>0</Size></Contents></ListBucketResult>")

    def do_DELETE(self):
        self.answer(403, b"<Error><Code>AccessDenied</Code></Error>")

    do_POST = do_DELETE

    def log_message(self, *_):
        pass


def test_what_could_not_be_removed_is_not_told_to_be(tmp_path):
    (tmp_path / "empty").mkdir()
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), RefusesRemoval) as http_server:
        threading.Thread(target=http_server.serve_forever, daemon=True).start()
        for arguments in (["rm", "s3://b/k"], ["rm", "--recursive", "--json", "s3://b"],
                          ["sync", "--delete", tmp_path / "empty", "s3://b"]):
            done = subprocess.run(
                [BIN / "yard", *arguments, "--endpoint", f"http://127.0.0.1:{http_server.server_address[1]}"],
                env={**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"},
                capture_output=True, text=True)
            assert (done.returncode, "remove" in done.stdout.replace('"removed":0', "")) == (2, False), arguments
            assert "AccessDenied" in done.stderr
        http_server.shutdown()


def test_exit_codes_are_those_of_the_help(server, tmp_path):
    assert "Exit codes" in server.yard("cp", "--help")
    for arguments in [["cat", "s3://bucket/none"], ["cp", "s3://bucket/none", tmp_path / "x"],
                      ["ls", "s3://bucket/none"], ["rm", "s3://bucket/none"],
                      ["sync", "s3://bucket/none", tmp_path / "x"], ["cat", tmp_path / "none"],
                      ["ls", "s3://no-such-bucket"]]:
        server.yard(*arguments, code=3)
    assert "--recursive" in server.yard("cp", "s3://bucket", tmp_path, code=2)
    server.yard("cat", "s3:///x", code=2)
    server.yard("cat", "s3://bucket/k", "--memory", "1MiB", code=2)
    assert "AWS_ACCESS_KEY_ID" in server.yard("cat", "s3://bucket/k", code=3,
                                               AWS_ACCESS_KEY_ID="", AWS_SECRET_ACCESS_KEY="")
    if server.name != "moto":  # which takes any
        server.yard("ls", "s3://bucket", code=2, AWS_SECRET_ACCESS_KEY="wrong")


def test_some_failures_do_not_hold_up_the_others(server, tmp_path):
    (tmp_path / "a").write_bytes(b"a")
    (tmp_path / "b").write_bytes(b"b")
    said = server.yard("cp", tmp_path / "a", tmp_path / "none", tmp_path / "b", "s3://bucket/d/",
                       code=3)
    assert "1 of 3 objects were not copied" in said and "none" in said
    assert keys_of(server) == ["d/a", "d/b"]


def arrived_parts(hidden):
    """How many parts the record behind a hidden file counts; the file's form is partial_file.h's."""
    try:
        content = hidden.read_bytes()
    except FileNotFoundError:
        return 0
    at = content.rfind(b"\npart_bytes ")
    return 0 if at < 0 else content[at + len(b"\npart_bytes ") + 17:].count(1)


@pytest.fixture
def held_download(server, tmp_path):
    """A download of 24 MiB that came to a part of it and stands still."""
    content = bytes_of(24 * MIB, 3)
    server.client().put_object(Bucket="bucket", Key="large", Body=content)
    hidden = tmp_path / ".file.yard-part"
    with HoldingProxy(server.url, limit=10 * MIB) as proxy:
        process = server.start("cp", "s3://bucket/large", tmp_path / "file", "--memory", "32MiB",
                               AWS_ENDPOINT_URL=proxy.url)
        # As many parts as can be whole; what is left waits in the proxy.
        wait_until(lambda: proxy.is_held() and arrived_parts(hidden) > 0, "nothing arrived")
        yield process, content, hidden
        process.kill()
        process.wait()
        process.stdout.close()


def check_resumed(server, target, content, arrived):
    with HoldingProxy(server.url, limit=float("inf")) as proxy:
        server.yard("cp", "s3://bucket/large", target, AWS_ENDPOINT_URL=proxy.url)
        assert target.read_bytes() == content
        # With room for heads, and for some ranges that are asked for twice when the machine is slow.
        assert proxy.passed_down < len(content) - (arrived - 4) * MIB
    assert files_of(target.parent) == {"file"}


def test_a_killed_download_leaves_nothing_visible_and_goes_on(server, held_download, tmp_path):
    process, content, hidden = held_download
    process.kill()
    process.wait(WAIT_SECONDS)
    assert not (tmp_path / "file").exists()
    check_resumed(server, tmp_path / "file", content, arrived_parts(hidden))


def test_ctrl_c_stops_a_download_cleanly_and_it_goes_on(server, held_download, tmp_path):
    process, content, hidden = held_download
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=WAIT_SECONDS)
    assert process.returncode == 8, said
    assert "stopped" in said
    assert not (tmp_path / "file").exists()
    check_resumed(server, tmp_path / "file", content, arrived_parts(hidden))


def test_a_broken_off_download_of_an_older_version_begins_anew(server, held_download, tmp_path):
    process, _, _ = held_download
    process.kill()
    process.wait(WAIT_SECONDS)
    newer = bytes_of(24 * MIB, 4)
    server.client().put_object(Bucket="bucket", Key="large", Body=newer)
    server.yard("cp", "s3://bucket/large", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == newer


def test_an_object_replaced_while_it_is_read_is_never_mixed(server, tmp_path):
    older, newer = bytes_of(64 * MIB, 5), bytes_of(64 * MIB, 6)
    server.client().put_object(Bucket="bucket", Key="large", Body=older)
    with HoldingProxy(server.url, limit=10 * MIB) as proxy:
        process = server.start("cp", "s3://bucket/large", tmp_path / "file", "--memory", "32MiB",
                               AWS_ENDPOINT_URL=proxy.url)
        wait_until(proxy.is_held, "nothing arrived")
        server.client().put_object(Bucket="bucket", Key="large", Body=newer)
        proxy.release()
        said, _ = process.communicate(timeout=WAIT_SECONDS)
    if process.returncode == 0:  # when everything had been asked for before
        assert (tmp_path / "file").read_bytes() == older
    else:
        assert process.returncode == 4, said
        assert not (tmp_path / "file").exists()
    server.yard("cp", "s3://bucket/large", tmp_path / "file")
    assert (tmp_path / "file").read_bytes() == newer


def test_hidden_files_are_not_taken_for_content(server, held_download, tmp_path):
    process, _, hidden = held_download
    process.kill()
    process.wait(WAIT_SECONDS)
    assert hidden.exists()
    server.yard("sync", tmp_path, "s3://bucket/copy")
    assert keys_of(server, "copy/") == []


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_a_broken_off_upload_leaves_nothing_visible(server, tmp_path, how):
    (tmp_path / "file").write_bytes(bytes_of(40 * MIB))
    with HoldingProxy(server.url, limit=20 * MIB) as proxy:
        process = server.start("cp", tmp_path / "file", "s3://bucket/up", "--memory", "64MiB",
                               AWS_ENDPOINT_URL=proxy.url)
        wait_until(proxy.is_held, "nothing was sent")
        process.send_signal(how)
        if how == signal.SIGINT:
            proxy.release()  # for the request that ends the upload on the server
        said, _ = process.communicate(timeout=WAIT_SECONDS)
        assert process.returncode == (8 if how == signal.SIGINT else -how), said
    assert keys_of(server) == []
    if how == signal.SIGINT and server.name in ("radosgw", "yard"):  # the others keep no list
        assert server.client().list_multipart_uploads(Bucket="bucket").get("Uploads", []) == []


def test_a_server_that_is_not_there_is_told_in_time(tmp_path):
    environment = {**os.environ, "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
    done = subprocess.run([BIN / "yard", "ls", "s3://bucket", "--endpoint", "http://127.0.0.1:1"],
                          env=environment, capture_output=True, text=True, timeout=WAIT_SECONDS)
    assert done.returncode == 6, done.stderr
    assert "127.0.0.1:1" in done.stderr


def test_folders_and_files_need_no_server(tmp_path):
    tree = write_tree(tmp_path / "tree")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("AWS_")}

    def yard(*arguments, code=0):
        done = subprocess.run([BIN / "yard", *map(str, arguments)], env=environment, text=True,
                              capture_output=True, timeout=WAIT_SECONDS)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    yard("cp", "-r", tmp_path / "tree", tmp_path / "copy")
    assert {name: (tmp_path / "copy" / name).read_bytes() for name in tree} == tree
    yard("sync", "--delete", tmp_path / "tree", tmp_path / "copy")
    yard("cp", f"file://{tmp_path}/tree/plain.txt", tmp_path / "one")
    assert (tmp_path / "one").read_bytes() == tree["plain.txt"]
    yard("cp", tmp_path / "one", tmp_path / "one", code=2)
    assert (tmp_path / "one").read_bytes() == tree["plain.txt"]
    yard("rm", tmp_path / "one")
    assert not (tmp_path / "one").exists()
    yard("rm", tmp_path / "copy", code=2)
    yard("rm", "-r", tmp_path / "copy")
    assert files_of(tmp_path / "copy") == set()


def test_the_completion_script_is_one():
    script = subprocess.run([BIN / "yard", "completion", "bash"], capture_output=True, text=True,
                            check=True).stdout
    subprocess.run(["bash", "-n"], input=script, text=True, check=True)

    def complete(*words):
        line = " ".join(f"'{word}'" for word in words)
        ask = f"{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _yard\n" \
              'printf "%s\\n" "${COMPREPLY[@]}"'
        done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True,
                              cwd="/proc/self/fdinfo")
        return done.stdout.split()

    assert {"sync", "shards", "s3"} <= set(complete("yard", "s"))
    assert "supervise" not in complete("yard", "s")  # for our own use
    assert "ls" not in complete("yard", "s")
    assert "pack" in complete("yard", "shards", "p")
    assert {"--endpoint", "--delete"} <= set(complete("yard", "sync", "--json", "--"))
    assert complete("yard", "sync", "--dele") == ["--delete"]
    assert {"serve", "env", "uploads"} == set(complete("yard", "s3", ""))  # and no file beside them
    assert complete("yard", "ls", "--address-style", "p") == ["path"]
    assert complete("yard", "completion", "z") == ["zsh"]
    assert complete("yard", "cat", "--region", "1") == complete("yard", "cat", "1") == ["1"]


def test_completion_of_urls_asks_the_store(tmp_path):
    with own(tmp_path / "served") as server:
        server.client().create_bucket(Bucket="bulk")
        for key in ("dir/a b", "dir/ac", "dir/sub/x", "other"):
            server.client().put_object(Bucket="bucket", Key=key, Body=b"")
        script = server.yard("completion", "bash")

        def complete(*words, **changes):
            line = " ".join(words)
            ask = f"{script}\nCOMP_WORDS=({' '.join(map(shlex.quote, words))})\n" \
                  f"COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)}\n" \
                  'compopt() { echo nospace; }; _yard; printf "%s\\n" "${COMPREPLY[@]}"'
            done = subprocess.run(["bash", "-c", ask], capture_output=True, text=True, check=True,
                                  env={**server.environment(**changes), "PATH": f"{BIN}:{os.environ['PATH']}"})
            assert done.stderr == ""
            return done.stdout.splitlines()

        # bash ends words at a colon, zsh does not.
        assert complete("yard", "ls", "s3", ":", "//b") == ["nospace", "nospace", "//bucket/", "//bulk/"]
        assert complete("yard", "cp", "s3", ":") == ["nospace", "nospace", "//bucket/", "//bulk/"]
        assert complete("yard", "cp", "s3://bul") == ["nospace", "s3://bulk/"]
        assert complete("yard", "cp", "x", "s3", ":", "//bucket/dir/a") == ["//bucket/dir/a b", "//bucket/dir/ac"]
        assert complete("yard", "cat", "s3", ":", "//bucket/dir/a\\ ") == ["//bucket/dir/a b"]
        assert complete("yard", "cat", "s3", ":", "//bucket/dir/s") == ["nospace", "//bucket/dir/sub/"]
        assert complete("yard", "ls", "s3", ":", "//none/x") == [""]
        away = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}
        assert complete("yard", "ls", "s3", ":", "//b", **away) == [""]
        assert complete("yard", "ls", "--endpoint", server.url, "s3://bul", **away) == ["nospace", "s3://bulk/"]


class Zsh:
    """A person at a prompt of zsh: what they type, and what they see."""

    def __init__(self, environment, folder):
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.chdir(folder)
            os.execvpe("zsh", ["zsh", "-f", "-i"], {**environment, "TERM": "dumb", "PS1": "> "})

    def type(self, text, wanted):
        """What is seen after `text` until all of `wanted` is there."""
        os.write(self.terminal, text.encode())
        seen, deadline = "", time.monotonic() + WAIT_SECONDS
        while not all(word in seen.replace(text.rstrip("\t"), "", 1) for word in wanted):
            assert time.monotonic() < deadline, f"{text!r} shows {seen!r}, not {wanted}"
            if select.select([self.terminal], [], [], 0.1)[0]:
                seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", os.read(self.terminal, 65536).decode())
        return seen

    def clear(self):
        """Nothing typed, and nothing more to come of what was."""
        self.type("\x15echo cle''ar\n", ["clear\r\n"])

    def end(self):
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)
        os.close(self.terminal)


def test_completion_in_zsh(tmp_path):
    if not shutil.which("zsh"):
        pytest.skip("NOT TESTED: zsh is not installed; apt-get install zsh")
    (tmp_path / "a-file").touch()
    with own(tmp_path / "served") as server:
        server.client().create_bucket(Bucket="bulk")
        for key in ("dir/one", "dir/sub/x"):
            server.client().put_object(Bucket="bucket", Key=key, Body=b"")
        shell = Zsh({**server.environment(), "HOME": str(tmp_path),
                     "PATH": f"{BIN}:{os.environ['PATH']}"}, tmp_path)
        try:
            # compinit was not called before, as in the ~/.zshrc of somebody new.
            shell.type("source <(yard completion zsh); echo re''ady\n", ["ready"])
            for typed, wanted in [("yard sync --dele\t", ["te "]),
                                  ("yard ls --address-style p\t", ["ath "]),
                                  ("yard s3 \t", ["env", "serve", "uploads"]),
                                  ("yard sha256 a-f\t", ["ile "]),
                                  ("yard ls s3://bu\t", ["bucket/", "bulk/"]),
                                  ("yard ls s3://buc\t", ["ket/"]),
                                  ("yard cat s3://bucket/d\t", ["ir/"]),
                                  ("yard cat s3://bucket/dir/\t", ["one", "sub/"]),
                                  ("yard cat s3://bucket/dir/o\t", ["ne "])]:
                shell.type(typed, wanted)
                shell.clear()
        finally:
            shell.end()
