"""`yard mount`: what a program that reads files sees. Each promise of docs/SEMANTICS.md has its test."""

import ctypes
import errno
import fcntl
import filecmp
import mmap
import os
import pathlib
import random
import signal
import subprocess
import threading

import pytest

from mounting import is_mounted, mounted, why_not
import s3_servers
from s3_servers import wait_until
from served import BIN, ROOT, WAIT_SECONDS, served

MIB = 1 << 20
NO_MOUNT = why_not()
pytestmark = pytest.mark.skipif(NO_MOUNT is not None, reason=f"NOT TESTED: {NO_MOUNT}")

SIZES = {"empty": 0, "one": 1, "page": 4096, "page and one": 4097, "whole": 124 << 10,
         "more": 200_000, "deep/er/and deeper/large": 9 * MIB + 17, "日本語": 5, "🚂": 6,
         "q?x=1&y=2": 7, "per%cent": 8, "plus+plus": 9, ".hidden": 10, "trail.": 11, "quote'\"": 12}


def content_of(name, size):
    return random.Random(name).randbytes(size)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    bucket = folder / "bucket"
    for name, size in SIZES.items():
        path = bucket / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content_of(name, size))
    (bucket / "many").mkdir()
    for number in range(2500):
        (bucket / "many" / f"{number:05}.bin").write_bytes(f"file {number}".encode())
    (bucket / "walk").mkdir()
    for number in range(200):
        (bucket / "walk" / f"{number:03}").write_bytes(content_of(number, 50_000))
    with served(folder) as gateway:
        gateway.bucket = bucket
        yield gateway


@pytest.fixture(scope="module")
def tree(store, tmp_path_factory):
    with mounted(tmp_path_factory.mktemp("m") / "at", "s3://bucket/tree",
                 store.environment()) as mount:
        yield mount


@pytest.fixture()
def at(tmp_path):
    """Where the test mounts."""
    return tmp_path / "at"


def errno_of(call, *arguments, **options):
    with pytest.raises(OSError) as failed:
        call(*arguments, **options)
    return failed.value.errno


def test_files_are_the_objects_and_nothing_else(store, tree):
    found = {str(path.relative_to(tree.path)) for path in tree.path.rglob("*") if path.is_file()}
    assert found == set(SIZES)
    for name in SIZES:
        assert filecmp.cmp(tree.path / name, store.bucket / "tree" / name, shallow=False), name


def test_attributes_are_those_of_a_read_only_file(store, tree):
    info = (tree.path / "more").stat()
    own = (store.bucket / "tree" / "more").stat()
    assert (info.st_mode, info.st_size, info.st_nlink) == (0o100444, 200_000, 1)
    assert (info.st_uid, info.st_gid) == (os.getuid(), os.getgid())
    assert abs(info.st_mtime - own.st_mtime) < 1
    assert (tree.path / "deep").stat().st_mode == 0o040555
    numbers = {entry.name: entry.inode() for entry in os.scandir(tree.path)}
    assert numbers == {name: (tree.path / name).stat().st_ino for name in numbers}
    assert os.statvfs(tree.path).f_flag & os.ST_RDONLY


def test_everything_that_writes_is_refused_as_read_only(tree):
    file, folder = tree.path / "more", tree.path / "deep"
    for call in [lambda: os.open(file, os.O_WRONLY), lambda: os.open(file, os.O_RDWR),
                 lambda: os.open(tree.path / "new", os.O_CREAT | os.O_WRONLY),
                 lambda: os.truncate(file, 0), lambda: os.unlink(file), lambda: os.mkdir(folder / "x"),
                 lambda: os.rmdir(folder), lambda: os.rename(file, tree.path / "other"),
                 lambda: os.symlink("a", tree.path / "link"), lambda: os.link(file, tree.path / "link"),
                 lambda: os.chmod(file, 0o600), lambda: os.chown(file, 0, 0),
                 lambda: os.utime(file), lambda: os.mkfifo(tree.path / "pipe"),
                 lambda: os.setxattr(file, "user.a", b"1")]:
        assert errno_of(call) == errno.EROFS
    assert (file).read_bytes() == content_of("more", 200_000)


def test_other_errors_are_those_of_a_local_file_system(tree):
    assert errno_of(os.stat, tree.path / "nothing") == errno.ENOENT
    assert errno_of(os.open, tree.path / "nothing", os.O_RDONLY) == errno.ENOENT
    assert errno_of(os.stat, tree.path / "no" / "thing") == errno.ENOENT
    assert errno_of(os.open, tree.path / "more" / "x", os.O_RDONLY) == errno.ENOTDIR
    assert errno_of(os.listdir, tree.path / "more") == errno.ENOTDIR
    assert errno_of(os.listdir, tree.path / "nothing") == errno.ENOENT
    directory = os.open(tree.path / "deep", os.O_RDONLY)
    assert errno_of(os.read, directory, 1) == errno.EISDIR
    os.close(directory)
    assert errno_of(os.getxattr, tree.path / "more", "user.a") in (errno.ENODATA, errno.EOPNOTSUPP)


def test_reads_anywhere_by_any_call_are_the_bytes(tree):
    name = "deep/er/and deeper/large"
    whole = content_of(name, SIZES[name])
    fd = os.open(tree.path / name, os.O_RDONLY)
    try:
        for offset, size in [(0, 1), (5 * MIB + 3, 70_000), (len(whole) - 5, 100), (len(whole), 10),
                             (len(whole) + 10 * MIB, 10), (MIB - 1, 2), (0, len(whole))]:
            got = b""
            while piece := os.pread(fd, size - len(got), offset + len(got)):
                got += piece
            assert got == whole[offset:offset + size]
        assert os.lseek(fd, -9, os.SEEK_END) == len(whole) - 9
        assert os.read(fd, 100) == whole[-9:]
        with mmap.mmap(fd, 0, prot=mmap.PROT_READ) as mapped:
            assert mapped[7 * MIB:7 * MIB + 100] == whole[7 * MIB:7 * MIB + 100]
    finally:
        os.close(fd)


def test_files_are_sent_and_locked_as_local_ones(tree, tmp_path):
    name = "deep/er/and deeper/large"
    with open(tree.path / name, "rb") as file, open(tmp_path / "copy", "wb") as copy:
        fcntl.flock(file, fcntl.LOCK_EX)
        with open(tree.path / name, "rb") as other:
            assert errno_of(fcntl.flock, other, fcntl.LOCK_EX | fcntl.LOCK_NB) == errno.EWOULDBLOCK
        offset = 0
        while sent := os.sendfile(copy.fileno(), file.fileno(), offset, 1 << 30):
            offset += sent
    assert filecmp.cmp(tree.path / name, tmp_path / "copy", shallow=False)
    assert errno_of(os.listxattr, tree.path / name) == errno.EOPNOTSUPP


class DirectoryEntry(ctypes.Structure):
    """struct dirent of glibc on 64 bits."""
    _fields_ = [("inode", ctypes.c_uint64), ("offset", ctypes.c_int64), ("size", ctypes.c_uint16),
                ("kind", ctypes.c_uint8), ("name", ctypes.c_char * 256)]


def test_places_in_a_directory_are_kept_and_it_can_be_read_again(store, at):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.opendir.restype = ctypes.c_void_p
    libc.readdir.restype = ctypes.POINTER(DirectoryEntry)
    libc.telldir.restype = ctypes.c_long
    with mounted(at, "s3://bucket/many", store.environment()) as mount:
        directory = ctypes.c_void_p(libc.opendir(str(mount.path).encode()))

        def names(count):
            return [libc.readdir(directory).contents.name.decode() for _ in range(count)]

        assert names(1502)[2:] == [f"{number:05}.bin" for number in range(1500)]
        place = ctypes.c_long(libc.telldir(directory))
        assert names(900)[-1] == "02399.bin"
        libc.seekdir(directory, place)
        assert names(2) == ["01500.bin", "01501.bin"]
        libc.rewinddir(directory)
        assert names(3) == [".", "..", "00000.bin"]
        libc.seekdir(directory, place)
        assert names(1) == ["01500.bin"]
        libc.closedir(directory)


def test_many_threads_read_one_file(tree):
    name = "deep/er/and deeper/large"
    whole = content_of(name, SIZES[name])
    wrong = []

    def read(seed):
        chance = random.Random(seed)
        with open(tree.path / name, "rb", buffering=0) as file:
            for _ in range(30):
                offset = chance.randrange(len(whole))
                file.seek(offset)
                got = file.read(10_000)
                if got != whole[offset:offset + len(got)] or not got:
                    wrong.append(offset)

    threads = [threading.Thread(target=read, args=(seed,)) for seed in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


def test_small_and_random_reads_cost_their_own_bytes(store, at):
    (store.bucket / "random").write_bytes(content_of("random", 64 * MIB))
    with mounted(at, "s3://bucket", store.environment()) as mount:
        fd = os.open(mount.path / "random", os.O_RDONLY)
        os.pread(fd, 4096, 17 * MIB)
        assert mount.fresh_stats()["mount_fetched_bytes"] <= 128 << 10
        os.close(fd)
        fd = os.open(mount.path / "random", os.O_RDONLY)
        os.pread(fd, 4096, 0)
        before = mount.fresh_stats()["mount_fetched_bytes"]
        assert before <= 2 * (128 << 10)
        for block in random.Random(1).sample(range(1024), 100):
            assert len(os.pread(fd, 65536, block * 65536)) == 65536
        os.close(fd)
        fetched = mount.fresh_stats()["mount_fetched_bytes"] - before
        assert fetched <= 1.2 * 100 * 65536


def test_a_file_opened_again_is_read_from_the_page_cache(store, at):
    with mounted(at, "s3://bucket/tree", store.environment()) as mount:
        for _ in range(3):
            assert (mount.path / "more").read_bytes() == content_of("more", 200_000)
        assert mount.fresh_stats()["mount_fetched_bytes"] == 200_000


def test_files_of_a_directory_are_fetched_ahead_of_a_reader_that_walks_it(store, at):
    with mounted(at, "s3://bucket/walk", store.environment()) as mount:
        for path in sorted(mount.path.iterdir()):
            assert path.read_bytes() == content_of(int(path.name), 50_000)
        stats = mount.fresh_stats()
    assert stats["mount_object_requests"] == 200
    assert stats["mount_fetched_bytes"] == 200 * 50_000
    # Whoever opens the first few finds nothing ready yet.
    assert stats["mount_list_requests"] <= 4


def test_a_directory_of_many_pages_is_listed_whole_and_again(store, at):
    expected = [f"{number:05}.bin" for number in range(2500)]
    with mounted(at, "s3://bucket/many", store.environment()) as mount:
        assert sorted(os.listdir(mount.path)) == expected
        with os.scandir(mount.path) as entries:
            assert sorted(entry.name for entry in entries) == expected
        listed = subprocess.run(["ls", "-l", mount.path], capture_output=True, text=True, check=True)
        assert [line.split()[-1] for line in listed.stdout.splitlines()[1:]] == expected
        for name in ["00000.bin", "01234.bin", "02499.bin"]:
            assert (mount.path / name).read_text() == f"file {int(name[:5])}"


def test_names_that_cannot_both_be(tmp_path, at):
    (tmp_path / "bucket").mkdir()
    with served(tmp_path) as gateway:
        client = gateway.client()
        for key in ["a", "a-b", "a/hidden", "x//y", "dir/", "../up", "dir2/./z", "plain"]:
            client.put_object(Bucket="bucket", Key=key, Body=key.encode())
        with mounted(at, "s3://bucket", gateway.environment()) as mount:
            names = set(os.listdir(mount.path))
            assert {"a", "a-b", "plain", "x"} <= names
            assert ".." not in names
            assert (mount.path / "a").read_bytes() == b"a"
            assert (mount.path / "a").is_file()
            assert os.listdir(mount.path / "x") == []
            if "dir" in names:
                assert os.listdir(mount.path / "dir") == []


def test_shares_are_whole_objects_each_in_one_of_them(store, tmp_path):
    seen = []
    for index in range(3):
        with mounted(tmp_path / f"at{index}", "s3://bucket/many", store.environment(),
                     "--shard", f"{index}/3", "--by", "key") as mount:
            names = os.listdir(mount.path)
            assert 833 <= len(names) <= 834
            other = f"{(int(names[0][:5]) + 1) % 2500:05}.bin"
            assert other in names or errno_of(os.stat, mount.path / other) == errno.ENOENT
            seen += names
    assert sorted(seen) == [f"{number:05}.bin" for number in range(2500)]


def test_a_new_version_is_seen_after_the_listings_time_and_the_old_one_never_again(store, at):
    key = store.bucket / "changing"
    key.write_bytes(b"old" * 1000)
    with mounted(at, "s3://bucket", store.environment(), "--ttl", "100ms") as mount:
        assert (mount.path / "changing").read_bytes() == b"old" * 1000
        store.client().put_object(Bucket="bucket", Key="changing", Body=b"newer" * 1000)
        wait_until(lambda: (mount.path / "changing").read_bytes() == b"newer" * 1000, "still old")
        assert (mount.path / "changing").stat().st_size == 5000
        store.client().delete_object(Bucket="bucket", Key="changing")
        wait_until(lambda: not (mount.path / "changing").exists(), "still there")


def test_in_the_background_it_returns_when_files_can_be_opened_and_unmount_ends_it(store, at):
    at.mkdir()
    log = at.with_name("log")
    done = subprocess.run([BIN / "yard", "mount", "s3://bucket/tree", at, "--background", "--log", log],
                          env=store.environment(), capture_output=True, text=True,
                          timeout=WAIT_SECONDS, check=True)
    try:
        assert done.stdout.startswith("mounted s3://bucket/tree at")
        assert (at / "one").read_bytes() == content_of("one", 1)
        again = subprocess.run([BIN / "yard", "mount", "s3://bucket/tree", at],
                               env=store.environment(), capture_output=True, text=True,
                               timeout=WAIT_SECONDS, check=False)
        assert again.returncode == 2 and "already" in again.stderr
        with open(at / "one", "rb"):
            busy = subprocess.run([BIN / "yard", "unmount", at], capture_output=True, text=True,
                                  timeout=WAIT_SECONDS, check=False)
            assert busy.returncode != 0 and "--lazy" in busy.stderr
    finally:
        ended = subprocess.run([BIN / "yard", "unmount", "--lazy", at], capture_output=True,
                               timeout=WAIT_SECONDS, check=False)
    assert ended.returncode == 0
    assert not is_mounted(at)
    assert subprocess.run([BIN / "yard", "unmount", at], capture_output=True,
                          check=False).returncode == 2


def test_sigterm_takes_it_off_at_once_and_open_files_go_on(store, at):
    name = "deep/er/and deeper/large"
    with mounted(at, "s3://bucket/tree", store.environment()) as mount:
        with open(mount.path / name, "rb", buffering=0) as file:
            begin = file.read(100)
            mount.process.send_signal(signal.SIGTERM)
            wait_until(lambda: not is_mounted(mount.path), "still mounted")
            assert os.listdir(mount.path) == []
            rest = b""
            while piece := file.read(MIB):
                rest += piece
            assert begin + rest == content_of(name, SIZES[name])
            assert mount.process.poll() is None
        assert mount.process.wait(WAIT_SECONDS) == 0


def test_a_file_that_stays_open_holds_up_the_end_no_longer_than_asked(store, at):
    with mounted(at, "s3://bucket/tree", store.environment(), "--drain", "200ms") as mount:
        with open(mount.path / "more", "rb", buffering=0) as file:
            assert mount.stop(signal.SIGINT) == 0
            file.seek(100_000)
            assert errno_of(file.read, 10) in (errno.ENOTCONN, errno.ECONNABORTED)


def test_wrong_places_are_refused_with_their_exit_code(store, tmp_path):
    def code(*arguments):
        done = subprocess.run([BIN / "yard", "mount", *map(str, arguments)], env=store.environment(),
                              capture_output=True, text=True, timeout=WAIT_SECONDS, check=False)
        assert done.stderr, arguments
        return done.returncode

    (tmp_path / "at").mkdir()
    (tmp_path / "file").write_text("x")
    assert code("s3://no-such-bucket", tmp_path / "at") == 3
    assert code("s3://bucket", tmp_path / "nothing") == 3
    assert code("s3://bucket", tmp_path / "file") == 2
    assert code("s3://bucket", tmp_path / "at", "--shard", "4/4") == 2
    assert code("s3://bucket", tmp_path / "at", "--memory", "1MiB") == 2
    assert code("http://bucket", tmp_path / "at") == 2
    assert not is_mounted(tmp_path / "at")


def test_cached_blocks_are_read_again_without_the_store_and_checked(store, tmp_path):
    name = "deep/er/and deeper/large"
    whole = content_of(name, SIZES[name])
    options = ["--cache", tmp_path / "cache", "--no-passthrough"]
    for run, fetched in [(0, len(whole)), (1, 0)]:
        with mounted(tmp_path / f"at{run}", "s3://bucket/tree", store.environment(),
                     *options) as mount:
            assert (mount.path / name).read_bytes() == whole
            assert mount.stop() == 0
            assert mount.stats("mount_fetched_bytes") == fetched
    data = next((tmp_path / "cache").glob("*.data"))
    with open(data, "r+b") as file:
        file.seek(3 * MIB)
        file.write(b"damaged")
    with mounted(tmp_path / "at2", "s3://bucket/tree", store.environment(), *options) as mount:
        assert (mount.path / name).read_bytes() == whole
        assert mount.stop() == 0
        assert mount.stats("mount_cache_bad_blocks") >= 1
        assert 0 < mount.stats("mount_fetched_bytes") <= 8 * MIB
        assert "damaged" in mount.log()


def test_a_cached_file_is_read_by_the_kernel_itself(store, tmp_path):
    name = "deep/er/and deeper/large"
    whole = content_of(name, SIZES[name])
    with mounted(tmp_path / "at0", "s3://bucket/tree", store.environment(), "--cache",
                 tmp_path / "cache") as mount:
        assert (mount.path / name).read_bytes() == whole
        assert mount.stop() == 0
    with mounted(tmp_path / "at1", "s3://bucket/tree", store.environment(), "--cache",
                 tmp_path / "cache") as mount:
        with open(mount.path / name, "rb") as first, open(mount.path / name, "rb") as second:
            assert first.read() == whole
            assert second.read() == whole
        assert mount.stop() == 0
        if mount.stats("mount_passthrough_opens") == 0:
            pytest.skip("NOT TESTED: this kernel has no FUSE passthrough, or not for this user")
        assert mount.stats("mount_passthrough_opens") == 2
        assert mount.stats("mount_reads") == 0
        assert mount.stats("mount_fetched_bytes") == 0


@pytest.mark.parametrize("name", ["rclone", "moto"])
def test_the_buckets_of_other_servers(name, tmp_path, at):
    (tmp_path / "server").mkdir()
    with getattr(s3_servers, name)(tmp_path / "server") as server:
        client = server.client()
        files = {"a": 0, "dir/b": 100_000, "dir/sub/c": 5 * MIB, "dir/sub-2": 7}
        for key, size in files.items():
            client.put_object(Bucket="bucket", Key=key, Body=content_of(key, size))
        with mounted(at, "s3://bucket", server.environment(), "--ttl", "1h") as mount:
            found = {str(path.relative_to(at)) for path in at.rglob("*") if path.is_file()}
            assert found == set(files)
            for key, size in files.items():
                assert (at / key).read_bytes() == content_of(key, size)
            client.put_object(Bucket="bucket", Key="dir/new", Body=content_of("old", 9 * MIB))
            with mounted(tmp_path / "second", "s3://bucket", server.environment()) as second:
                with open(second.path / "dir" / "new", "rb", buffering=0) as file:
                    assert file.read(10) == content_of("old", 9 * MIB)[:10]
                    client.put_object(Bucket="bucket", Key="dir/new", Body=content_of("new", 9 * MIB))
                    assert errno_of(os.pread, file.fileno(), 10, 8 * MIB) == errno.EIO
                wait_until(lambda: (second.path / "dir" / "new").read_bytes()
                           == content_of("new", 9 * MIB), "still old")
            assert mount.stop() == 0


def test_a_folder_can_be_mounted_too(tmp_path, at):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a").write_text("text")
    with mounted(at, tmp_path / "own", {**os.environ}) as mount:
        assert (mount.path / "a").read_text() == "text"


def test_many_names_take_little_memory(tmp_path, at):
    folder = tmp_path / "own"
    folder.mkdir()
    for number in range(20_000):
        (folder / f"{number:06}").touch()
    with mounted(at, folder, {**os.environ}, "--memory", "32MiB") as mount:
        status = pathlib.Path(f"/proc/{mount.process.pid}/status")

        def resident_kib():
            return int(next(line for line in status.read_text().splitlines()
                            if line.startswith("VmRSS")).split()[1])
        before = resident_kib()
        assert len(os.listdir(mount.path)) == 20_000
        assert sum(entry.stat().st_size for entry in os.scandir(mount.path)) == 0
        assert resident_kib() - before < 40 << 10


def examples_of(page):
    """(command, what it prints) of the lines that begin with a prompt, and those behind them."""
    found = []
    for line in page.splitlines():
        if line.startswith("    $ "):
            found.append((line[6:], []))
        elif found and line.startswith("    ") and found[-1][1] is not None:
            found[-1][1].append(line[4:])
        elif found:
            break
    return [(command, "\n".join(printed)) for command, printed in found]


def test_the_examples_of_the_page_about_mounts(tmp_path):
    train = tmp_path / "served" / "pictures" / "train"
    (train / "captions").mkdir(parents=True)
    (train / "cat.txt").write_text("a cat\n")
    (train / "dog.txt").write_text("a dog\n")
    (train / "captions" / "1.txt").write_text("a caption\n")
    data = tmp_path / "data"
    data.mkdir()
    examples = examples_of((ROOT / "docs" / "mount.md").read_text())
    assert len(examples) >= 6
    with served(tmp_path / "served") as gateway:
        env = {**gateway.environment(), "PATH": f"{BIN}:{os.environ['PATH']}", "LC_ALL": "C"}
        try:
            for command, printed in examples:
                done = subprocess.run(command.replace("/data", str(data)), shell=True, env=env,
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                      timeout=WAIT_SECONDS, check=False)
                assert done.stdout.strip() == printed.replace("/data", str(data)), command
        finally:
            subprocess.run([BIN / "yard", "unmount", "--lazy", data], check=False,
                           stderr=subprocess.DEVNULL, timeout=WAIT_SECONDS)
