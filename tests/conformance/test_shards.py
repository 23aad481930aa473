"""Our shards beside the webdataset library, Python's tarfile and GNU tar, through `yard shards`."""
import io
import json
import os
import pathlib
import random
import shutil
import subprocess
import tarfile

import pytest
import webdataset
from webdataset.tariterators import base_plus_ext, group_by_keys, tar_file_expander, url_opener

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
YARD = BIN_DIR / "yard"

# Plain, in folders, over 100 bytes, over both of ustar's fields, not ASCII.
KEYS = ["a", "b-1", "d.x/c", "d.x/e/f", "k" * 120, "p" * 90 + "/" + "q" * 95, "p" * 180 + "/q",
        "ünï/漢字", "z z"]


def run(*arguments, code=0):
    done = subprocess.run([YARD, "shards", *map(str, arguments)], capture_output=True, timeout=60)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout if code == 0 else done.stderr.decode() + done.stdout.decode()


def ls(*paths):
    return [json.loads(line) for line in run("ls", "--json", *paths).splitlines()]


def content_of(key, extension):
    """Sizes around the block of 512 bytes, and an empty one."""
    rng = random.Random(key + extension)
    return rng.randbytes(rng.choice([0, 1, 511, 512, 513, 3000]))


def make_tree(folder):
    for key in KEYS:
        for extension in ["png", "txt", "seg.PNG"]:
            path = folder / f"{key}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_of(key, extension))


@pytest.fixture(name="packed")
def fixture_packed(tmp_path):
    make_tree(tmp_path / "tree")
    run("pack", tmp_path / "tree", tmp_path / "shards", "--size", "20KiB")
    shards = sorted((tmp_path / "shards").glob("*.tar"))
    assert len(shards) > 1
    return shards


def webdataset_samples(paths):
    return list(webdataset.WebDataset([str(p) for p in paths], shardshuffle=False,
                                      nodesplitter=webdataset.split_by_node))


def test_webdataset_reads_what_we_pack(packed):
    samples = webdataset_samples(packed)
    assert [s["__key__"] for s in samples] == sorted(KEYS, key=lambda k: k.encode())
    for sample in samples:
        key = sample["__key__"]
        assert sample["png"] == content_of(key, "png")
        assert sample["txt"] == content_of(key, "txt")
        assert sample["seg.png"] == content_of(key, "seg.PNG")


def test_tarfile_and_gnu_tar_read_what_we_pack(packed, tmp_path):
    names = set()
    for index, shard in enumerate(packed):
        with tarfile.open(shard) as tar:
            for member in tar:
                key, extension = base_plus_ext(member.name)
                assert tar.extractfile(member).read() == content_of(key, extension)
                assert (member.mode, member.uid, member.gid) == (0o644, 0, 0)
                names.add(member.name)
        out = tmp_path / f"out{index}"
        out.mkdir()
        done = subprocess.run(["tar", "-xf", shard, "-C", out], capture_output=True, check=True,
                              env={**os.environ, "LC_ALL": "C.UTF-8"}, timeout=60)
        assert not done.stderr, done.stderr.decode()
        for path in out.rglob("*"):
            if path.is_file():
                relative = path.relative_to(out).as_posix()
                key, extension = base_plus_ext(relative)
                assert path.read_bytes() == content_of(key, extension)
    assert len(names) == 3 * len(KEYS)


def test_packing_twice_gives_the_same_bytes(packed, tmp_path):
    for path in (tmp_path / "tree").rglob("*.*"):
        os.utime(path, (1, 1))
    run("pack", tmp_path / "tree", tmp_path / "again", "--size", "20KiB")
    for shard in packed:
        assert (tmp_path / "again" / shard.name).read_bytes() == shard.read_bytes()


def test_cat_and_ls_and_check_agree_with_the_files(packed):
    seen = 0
    for sample in ls(*packed):
        for member in sample["members"]:
            shard = packed[0].parent / sample["shard"]
            extension = member["name"][len(sample["key"]) + 1:]
            assert run("cat", shard, member["name"]) == content_of(sample["key"], extension)
            seen += 1
    assert seen == 3 * len(KEYS)
    run("check", packed[0].parent)


def test_a_shard_of_webdataset_is_read(tmp_path):
    path = str(tmp_path / "w-%03d.tar")
    with webdataset.ShardWriter(path, maxcount=4, verbose=0) as sink:
        for i, key in enumerate(KEYS):
            sink.write({"__key__": key, "png": content_of(key, "png"), "txt": f"caption {i}",
                        "json": {"i": i}})
    shards = sorted(tmp_path.glob("*.tar"))
    assert len(shards) == 3
    ours = ls(*shards)
    assert [s["key"] for s in ours] == KEYS
    for sample in ours:
        assert {m["extension"] for m in sample["members"]} == {"png", "txt", "json"}
    for i, key in enumerate(KEYS):
        assert run("cat", shards[i // 4], f"{key}.png") == content_of(key, "png")
        assert run("cat", shards[i // 4], f"{key}.txt") == f"caption {i}".encode()
    run("check", tmp_path)
    run("index", tmp_path)
    assert ls(*shards) == ours


@pytest.mark.parametrize("kind", [tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])
def test_every_format_of_tarfile_is_read(tmp_path, kind):
    shard = tmp_path / "t.tar"
    with tarfile.open(shard, "w", format=kind) as tar:
        for key in KEYS:
            if kind == tarfile.USTAR_FORMAT and max(map(len, key.split("/"))) > 99:
                continue  # not even its two fields can hold it
            info = tarfile.TarInfo(f"{key}.bin")
            info.size = len(content_of(key, "bin"))
            tar.addfile(info, io.BytesIO(content_of(key, "bin")))
    expected = webdataset_samples([shard])
    assert [s["key"] for s in ls(shard)] == [s["__key__"] for s in expected]
    for sample in expected:
        assert run("cat", shard, sample["__key__"] + ".bin") == sample["bin"]


@pytest.mark.parametrize("kind", ["ustar", "gnu", "oldgnu", "pax", "posix", "v7"])
def test_every_format_of_gnu_tar_is_read(tmp_path, kind):
    tree = tmp_path / "tree"
    make_tree(tree)
    keys = [k for k in KEYS if kind in ("gnu", "oldgnu", "pax", "posix") or len(k) < 80]
    names = [f"{k}.{e}" for k in keys for e in ["png", "txt"]]
    shard = tmp_path / "g.tar"
    subprocess.run(["tar", f"--format={kind}", "-cf", shard, "-C", tree, *names], check=True,
                   capture_output=True, timeout=60)
    assert [s["key"] for s in ls(shard)] == keys
    for key in keys:
        assert run("cat", shard, f"{key}.png") == content_of(key, "png")


# Every form of name that the grouping rule tells apart, and the order in which they may stand.
NAMES = ["a.png", "a.PNG.txt", "a.", "a..b", "README", "d.x/README", ".hidden", "a/.hidden",
         "a/b/.hidden.txt", "a.b/.hidden", "a.b/c/.hidden", "__meta__", "__x__/a.png", "__x__.png",
         "a/__x__/b.png", "./a.png", "a/b.c/d.e.f", "a b/c d.e f", "é/ü.Ä", "x.tar.gz", "d/x.",
         "___", "__.png", "____", "____/a.b"]


def webdataset_groups(path):
    stream = tar_file_expander(url_opener(iter([{"url": str(path)}])))
    return [{k: v for k, v in s.items() if k not in ("__url__", "__local_path__")}
            for s in group_by_keys(stream)]


def write_tar(path, names):
    with tarfile.open(path, "w") as tar:
        for i, name in enumerate(names):
            info = tarfile.TarInfo(name)
            info.size = len(str(i))
            tar.addfile(info, io.BytesIO(str(i).encode()))


def our_groups(path):
    groups = []
    for sample in ls(path):
        group = {"__key__": sample["key"]}
        for member in sample["members"]:
            raw = path.read_bytes()[member["offset"]:member["offset"] + member["size_bytes"]]
            group[member["extension"]] = raw
        groups.append(group)
    return groups


def ascii_lower(name):
    """The one difference: we fold the case of ASCII letters only."""
    return name.replace("Ä", "A")


def test_members_are_grouped_as_webdataset_groups_them(tmp_path):
    rng = random.Random(5)
    compared = refused = 0
    for trial in range(150):
        names = [ascii_lower(n) for n in rng.sample(NAMES, rng.randint(1, 8))]
        if rng.random() < 0.2:
            names.append(rng.choice(names))
        shard = tmp_path / f"{trial}.tar"
        write_tar(shard, names)
        try:
            expected = webdataset_groups(shard)
        except ValueError as error:
            assert "duplicate" in str(error)
            assert "one and the same" in run("ls", shard, code=4)
            refused += 1
            continue
        keys = [s["__key__"] for s in expected]
        if len(set(keys)) < len(keys):  # webdataset splits such a sample in silence
            assert "lie between them" in run("ls", shard, code=4)
            refused += 1
            continue
        assert our_groups(shard) == expected, names
        compared += 1
    assert compared > 50 and refused > 10


def test_bad_shards_are_errors_that_name_them(packed, tmp_path):
    whole = packed[0].read_bytes()
    shard = tmp_path / "bad.tar"
    for content, code, word in [(b"no tar at all" * 100, 2, "not a tar"), (b"", 2, "not a tar"),
                                (whole[:-1500], 4, "truncated"),
                                (whole[:10] + b"X" + whole[11:], 4, "checksum"),
                                (whole + whole, 4, "follow the end")]:
        shard.write_bytes(content)
        message = run("check", shard, code=code)
        assert word in message and "bad.tar" in message, message
    assert "none.tar" in run("ls", tmp_path / "none.tar", code=3)
    shutil.copy(packed[0], shard)
    assert "did you mean 'a'" in run("cat", shard, "q.png", code=3)
    assert "a.png" in run("cat", shard, "a.jpg", code=3)


def test_a_damaged_index_is_an_error_and_a_stale_one_is_not_used(packed):
    index = pathlib.Path(str(packed[0]) + ".idx")
    good = index.read_bytes()
    index.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    assert "yard shards index" in run("ls", packed[0], code=4)
    index.write_bytes(good)
    shutil.copy(packed[1], packed[0])
    assert [s["key"] for s in ls(packed[0])] == [s["key"] for s in ls(packed[1])]
    assert "describes other bytes" in run("check", packed[0], code=4)
    run("index", packed[0])
    run("check", packed[0])


def test_a_picture_without_caption_is_named(tmp_path):
    tree = tmp_path / "tree"
    tree.mkdir()
    for name in ["a.png", "a.txt", "b.jpg"]:
        (tree / name).write_bytes(b"x")
    assert "b.txt" in run("pack", tree, tmp_path / "out", code=2)
    report = json.loads(run("pack", tree, tmp_path / "out", "--missing-caption", "skip", "--json"))
    assert report["without_caption"] == ["b"] and report["sample_count"] == 1
    assert "--replace" in run("pack", tree, tmp_path / "out", "--missing-caption", "skip", code=2)


def test_a_folder_that_cannot_be_written_is_named(tmp_path):
    make_tree(tmp_path / "tree")
    (tmp_path / "file").write_bytes(b"x")
    assert "file" in run("pack", tmp_path / "tree", tmp_path / "file" / "out", code=2)
    if os.geteuid() != 0:
        closed = tmp_path / "closed"
        closed.mkdir(mode=0o500)
        assert "closed" in run("pack", tmp_path / "tree", closed, code=2)


def test_a_full_disk_leaves_no_half_shard(tmp_path):
    """A limit on the size of files stands for the full disk: write() fails in the middle."""
    tree = tmp_path / "tree"
    tree.mkdir()
    for i in range(3):
        (tree / f"{i}.png").write_bytes(bytes(200_000))
        (tree / f"{i}.txt").write_bytes(b"x")
    script = f'trap "" XFSZ; ulimit -f 300; exec "{YARD}" shards pack "{tree}" "{tmp_path}/out"'
    done = subprocess.run(["bash", "-c", script], capture_output=True, timeout=60)
    assert done.returncode == 5, done.stderr.decode()
    assert b"out" in done.stderr
    assert not list((tmp_path / "out").rglob("*"))
