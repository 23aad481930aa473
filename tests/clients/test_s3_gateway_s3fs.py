"""A bucket of the gateway mounted by s3fs as a file system, used as people use one."""

import contextlib
import filecmp
import os
import random
import shutil
import subprocess

import pytest

from s3_servers import wait_until
from served import WAIT_SECONDS, keys_of, served

MIB = 1 << 20
FILE_NAMES = ["plain.txt", "sp ace", "plus+plus", "per%cent", "per%2Fcent", "q?x=1&y=2", "h#ash",
              "semi;colon", "quote'\"", "<xml>&amp;", "~tilde~", "日本語", "🚂", "=", "trail.", "star*",
              ".hidden", "a,b@c:d", "deep/er/and deeper/file"]


def why_not():
    """What is missing for a mount, if anything is."""
    if shutil.which("s3fs") is None:
        return "s3fs is not installed; apt-get install --no-install-recommends s3fs"
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as failed:
        return f"/dev/fuse cannot be used here: {failed.strerror}"
    return None


class Mount:
    """A mounted bucket; nothing of it is in the person's own home."""

    def __init__(self, gateway, bucket, folder):
        folder.mkdir()
        self.path = folder / "mounted"
        self.path.mkdir()
        exports = gateway.exports()
        secret = folder / "secret"
        secret.write_text(f"{exports['AWS_ACCESS_KEY_ID']}:{exports['AWS_SECRET_ACCESS_KEY']}\n")
        secret.chmod(0o600)
        self.log = folder / "log"
        options = f"passwd_file={secret},url={gateway.url},use_path_request_style,use_xattr"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("AWS")}
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(["s3fs", bucket, self.path, "-f", "-o", options],
                                            stdout=log, stderr=log, env={**kept, "HOME": str(folder)})
        try:
            wait_until(lambda: self.process.poll() is not None or os.path.ismount(self.path),
                       "s3fs did not mount")
        except BaseException:
            self.end()
            raise
        if self.process.poll() is not None:
            said = self.log.read_text(errors="replace")
            if "mount failed" in said or "fusermount" in said:
                pytest.skip(f"NOT TESTED: s3fs cannot mount here: {said.strip()}")
            pytest.fail(f"s3fs refused the bucket: {said}")

    def end(self):
        """Returns when all that was written has arrived."""
        if os.path.ismount(self.path):
            subprocess.run(["fusermount", "-u", self.path], check=True, timeout=WAIT_SECONDS)
        try:
            self.process.wait(WAIT_SECONDS)
        finally:
            self.process.kill()


@contextlib.contextmanager
def mounted(gateway, bucket, folder):
    mount = Mount(gateway, bucket, folder)
    try:
        yield mount.path
    finally:
        mount.end()


@pytest.fixture(scope="module")
def gateway(tmp_path_factory):
    if why := why_not():
        pytest.skip(f"NOT TESTED: {why}")
    with served(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture
def bucket(s3, request):
    name = request.node.name.replace("_", "-")[:63].strip("-")
    s3.create_bucket(Bucket=name)
    return name


@pytest.fixture
def mount(gateway, bucket, tmp_path):
    with mounted(gateway, bucket, tmp_path / "first") as path:
        yield path


@pytest.fixture
def mount_again(gateway, bucket, tmp_path):
    """A second mount, which has nothing in its caches."""
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(mounted(gateway, bucket, tmp_path / "second"))


def bytes_of(size, seed=0):
    return random.Random(seed).randbytes(size)


def files_of(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_a_tree_is_written_read_and_listed(mount, mount_again, s3, bucket, gateway, tmp_path):
    tree = tmp_path / "tree"
    for number, name in enumerate(FILE_NAMES):
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_bytes(bytes_of(number * 997, number))
    shutil.copytree(tree, mount / "tree")
    for place in (mount, mount_again()):
        assert files_of(place / "tree") == set(FILE_NAMES)
        wrong = filecmp.cmpfiles(tree, place / "tree", FILE_NAMES, shallow=False)
        assert wrong[1:] == ([], [])
    # And so it is for the others: a client, and a person who looks into the folder.
    wanted = {f"tree/{name}" for name in FILE_NAMES}
    assert wanted == {key for key in keys_of(s3, bucket) if not key.endswith("/")}
    for name in FILE_NAMES:
        content = (tree / name).read_bytes()
        assert s3.get_object(Bucket=bucket, Key=f"tree/{name}")["Body"].read() == content
        assert (gateway.folder / bucket / "tree" / name).read_bytes() == content


def test_a_large_file_goes_in_parts_and_is_read_and_changed_anywhere(mount, mount_again, s3, bucket):
    content = bytearray(bytes_of(57 * MIB + 11))
    (mount / "large").write_bytes(content)
    assert "-" in s3.head_object(Bucket=bucket, Key="large")["ETag"]
    with (mount / "large").open("r+b") as file:
        for at in (0, 23 * MIB + 5, len(content) - 7):
            file.seek(at)
            file.write(b"changed")
            content[at:at + 7] = b"changed"
    with (mount / "large").open("ab") as file:
        file.write(b"the end")
    content += b"the end"
    # Not cut with truncate(): s3fs 1.90 makes zeros of what is left, on every server.
    assert s3.get_object(Bucket=bucket, Key="large")["Body"].read() == content
    path = mount_again() / "large"
    with path.open("rb") as file:
        for at, size in [(39 * MIB, MIB), (MIB - 1, 2), (23 * MIB, 5000), (57 * MIB, 100)]:
            file.seek(at)
            assert file.read(size) == content[at:at + size]
    assert path.read_bytes() == content
    os.rename(mount / "large", mount / "renamed")
    assert keys_of(s3, bucket) == ["renamed"]
    assert (mount / "renamed").read_bytes() == content
    (mount / "renamed").write_bytes(content[:30 * MIB])
    assert s3.get_object(Bucket=bucket, Key="renamed")["Body"].read() == content[:30 * MIB]
    assert s3.list_multipart_uploads(Bucket=bucket).get("Uploads", []) == []


def test_renames_and_removals(mount, s3, bucket, gateway):
    (mount / "folder" / "sub").mkdir(parents=True)
    for name in ("a", "b", "sub/c"):
        (mount / "folder" / name).write_text(name)
    os.rename(mount / "folder" / "a", mount / "folder" / "sub" / "a b")
    os.rename(mount / "folder" / "b", mount / "folder" / "sub" / "c")  # in the place of another
    os.rename(mount / "folder", mount / "moved")
    assert files_of(mount) == {"moved/sub/a b", "moved/sub/c"}
    assert (mount / "moved/sub/a b").read_text() == "a"
    assert (mount / "moved/sub/c").read_text() == "b"
    with pytest.raises(OSError):
        (mount / "moved").rmdir()  # not empty
    with pytest.raises(FileNotFoundError):
        (mount / "folder" / "a").read_text()
    shutil.rmtree(mount / "moved")
    assert list(mount.iterdir()) == []
    assert keys_of(s3, bucket) == []
    assert list((gateway.folder / bucket).iterdir()) == []


def test_rights_times_links_and_attributes_are_kept(mount, mount_again):
    path = mount / "script"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o750)
    owner = (12, 34) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    os.chown(path, *owner)
    os.utime(path, (1_600_000_000, 1_500_000_000))
    os.setxattr(path, "user.colour", "bl\xfce&= +".encode())
    (mount / "link").symlink_to("script")
    (mount / "empty folder").mkdir(mode=0o700)
    again = mount_again()
    for place in (mount, again):
        info = (place / "script").stat()
        assert (info.st_mode & 0o777, info.st_uid, info.st_gid) == (0o750, *owner)
        assert (int(info.st_mtime), info.st_size) == (1_500_000_000, 10)
        assert os.getxattr(place / "script", "user.colour") == "bl\xfce&= +".encode()
        assert os.readlink(place / "link") == "script"
        assert (place / "link").read_text() == "#!/bin/sh\n"
        assert (place / "empty folder").is_dir() and list((place / "empty folder").iterdir()) == []


def test_what_others_put_is_seen(s3, bucket, gateway, mount_again):
    s3.put_object(Bucket=bucket, Key="of boto3/x", Body=b"by boto3")
    (gateway.folder / bucket / "by hand" / "deep").mkdir(parents=True)
    (gateway.folder / bucket / "by hand" / "deep" / "y").write_bytes(b"by hand")
    mount = mount_again()
    assert sorted(path.name for path in mount.iterdir()) == ["by hand", "of boto3"]
    assert (mount / "of boto3" / "x").read_bytes() == b"by boto3"
    assert (mount / "by hand" / "deep" / "y").read_bytes() == b"by hand"


def test_a_folder_of_1100_files(gateway, bucket, mount_again):
    names = [f"{number:05}" for number in range(1100)]
    (gateway.folder / bucket / "many").mkdir()
    for name in names:  # by hand: only their listing is the question
        (gateway.folder / bucket / "many" / name).write_text(name)
    again = mount_again()
    assert sorted(os.listdir(again / "many")) == names
    assert (again / "many" / "01099").read_text() == "01099"
