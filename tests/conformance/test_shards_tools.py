"""yard shards on what others wrote and in a bucket: compressed tars, manifests, repack, split, bad
samples, beside the webdataset library, Python's tarfile and GNU tar."""
import gzip
import io
import json
import os
import pathlib
import random
import shutil
import signal
import subprocess
import tarfile

import pytest
import webdataset

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN_DIR = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
YARD = BIN_DIR / "yard"
KEYS = [f"{'ab'[i % 2]}/{i:03}" for i in range(40)]
SHARD_KEYS = sorted(KEYS)


def yard(*arguments, code=0, env=None):
    done = subprocess.run([YARD, *map(str, arguments)], capture_output=True, timeout=120, env=env)
    assert done.returncode == code, done.stderr.decode()
    return done.stdout if code == 0 else done.stderr.decode() + done.stdout.decode()


def shards(*arguments, **options):
    return yard("shards", *arguments, **options)


def lines(text):
    return [json.loads(line) for line in text.splitlines()]


def content_of(key, extension):
    rng = random.Random(key + extension)
    return rng.randbytes(rng.choice([0, 1, 511, 512, 513, 3000]))


def make_tree(folder):
    for key in KEYS:
        for extension in ["png", "txt", "json.gz"]:
            path = folder / f"{key}.{extension}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content_of(key, extension))


@pytest.fixture(name="tree")
def fixture_tree(tmp_path):
    make_tree(tmp_path / "tree")
    return tmp_path / "tree"


def gnu_tar(path, tree, *options):
    names = [f"{k}.{e}" for k in SHARD_KEYS for e in ["json.gz", "png", "txt"]]
    subprocess.run(["tar", *options, "-cf", path, "-C", tree, *names], check=True,
                   capture_output=True, timeout=60)
    return path


def webdataset_samples(folder):
    paths = sorted(str(p) for p in pathlib.Path(folder).glob("*.tar"))
    return list(webdataset.WebDataset(paths, shardshuffle=False,
                                      nodesplitter=webdataset.split_by_node))


def check_samples(samples, keys):
    assert [s["__key__"] for s in samples] == list(keys)
    for sample in samples:
        for extension in ["png", "txt", "json.gz"]:
            assert sample[extension] == content_of(sample["__key__"], extension)


@pytest.mark.parametrize("name,options", [("a.tar.gz", ["--gzip"]), ("a.tgz", ["--gzip"]),
                                          ("a.tar.zst", ["--zstd"])])
def test_a_tar_that_gnu_tar_compressed_is_read_and_repacked(tmp_path, tree, name, options):
    if "--zstd" in options and not shutil.which("zstd"):
        pytest.skip("GNU tar needs the zstd program for --zstd")
    folder = tmp_path / "in"
    folder.mkdir()
    path = gnu_tar(folder / name, tree, *options)
    assert [s["key"] for s in lines(shards("ls", "--json", folder))] == SHARD_KEYS
    assert shards("cat", path, "b/001.png") == content_of("b/001", "png")
    assert json.loads(shards("stats", "--json", folder))["sample_count"] == len(KEYS)
    assert b"compressed" in shards("check", folder)
    assert "yard shards repack" in shards("index", path, code=2)
    shards("repack", folder, tmp_path / "out", "--size", "30KiB")
    assert len(list((tmp_path / "out").glob("*.tar"))) > 2
    shards("check", tmp_path / "out")
    check_samples(webdataset_samples(tmp_path / "out"), SHARD_KEYS)


def test_a_tar_that_tarfile_compressed_is_read(tmp_path):
    path = tmp_path / "t.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for key in KEYS:
            info = tarfile.TarInfo(f"{key}.bin")
            info.size = len(content_of(key, "bin"))
            tar.addfile(info, io.BytesIO(content_of(key, "bin")))
    assert [s["key"] for s in lines(shards("ls", "--json", path))] == KEYS
    for key in KEYS[:3]:
        assert shards("cat", path, f"{key}.bin") == content_of(key, "bin")
    whole = path.read_bytes()
    path.write_bytes(whole[:-200])
    assert "t.tar.gz" in shards("check", path, code=4)
    path.write_bytes(whole[:1000] + b"\0\0\0" + whole[1003:])
    assert "t.tar.gz" in shards("check", path, code=4)


def test_sparse_members_of_gnu_tar_are_refused_by_name(tmp_path):
    with open(tmp_path / "hole.bin", "wb") as file:
        file.truncate(1 << 20)
        file.seek(1 << 19)
        file.write(b"x")
    for kind in ["gnu", "pax"]:
        path = tmp_path / f"{kind}.tar"
        subprocess.run(["tar", f"--format={kind}", "--sparse", "-cf", path, "-C", tmp_path,
                        "hole.bin"], check=True, timeout=60)
        message = shards("check", path, code=4)
        assert "sparse" in message and "hole.bin" in message


def test_repack_and_split_are_read_by_webdataset(tmp_path, tree):
    shards("pack", tree, tmp_path / "in", "--size", "20KiB")
    shards("repack", tmp_path / "in", tmp_path / "large", "--prefix", "all")
    assert [p.name for p in sorted((tmp_path / "large").glob("*.tar"))] == ["all-000000.tar"]
    check_samples(webdataset_samples(tmp_path / "large"), SHARD_KEYS)

    shards("repack", tmp_path / "in", tmp_path / "mixed", "--shuffle", "--seed", "5")
    mixed = [s["__key__"] for s in webdataset_samples(tmp_path / "mixed")]
    assert mixed != SHARD_KEYS and sorted(mixed) == SHARD_KEYS

    report = json.loads(shards("split", tmp_path / "in", tmp_path / "parts", "--counts",
                               "val=7,train=rest", "--json"))
    assert {p["name"]: p["sample_count"] for p in report["parts"]} == {"val": 7, "train": 33}
    samples = webdataset_samples(tmp_path / "parts")
    assert sorted(s["__key__"] for s in samples) == SHARD_KEYS
    message = shards("repack", tmp_path / "large", tmp_path / "large", "--prefix", "all",
                     "--replace", code=2)
    assert "would be replaced" in message


def test_a_manifest_is_packed_with_files_texts_and_metadata(tmp_path, tree):
    manifest = tmp_path / "list.jsonl"
    entries = [{"key": key, "files": {"png": f"tree/{key}.png", "raw": str(tree / f"{key}.txt")},
                "text": {"txt": f"caption of {key} ü"}, "json": {"n": i, "a": [1, None]}}
               for i, key in enumerate(KEYS)]
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    shards("pack", manifest, tmp_path / "out")
    samples = list(webdataset.WebDataset(str(tmp_path / "out/shard-000000.tar"), shardshuffle=False)
                   .decode())
    assert [s["__key__"] for s in samples] == KEYS
    for i, sample in enumerate(samples):
        assert sample["json"] == {"n": i, "a": [1, None]}
        assert sample["txt"] == f"caption of {KEYS[i]} ü"
        assert sample["raw"] == content_of(KEYS[i], "txt")

    entries[3]["files"]["png"] = "tree/none.png"
    manifest.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    assert "list.jsonl:4" in shards("pack", manifest, tmp_path / "bad", code=3)
    shards("pack", manifest, tmp_path / "bad", "--quarantine", tmp_path / "q.jsonl")
    (bad,) = lines((tmp_path / "q.jsonl").read_text())
    assert (bad["key"], bad["offset"]) == (KEYS[3], 4)
    assert len(lines(shards("ls", "--json", tmp_path / "bad"))) == len(KEYS) - 1


def test_bad_samples_are_quarantined_with_the_place_of_their_bytes(tmp_path, tree):
    path = gnu_tar(tmp_path / "s.tar", tree)
    shards("index", path)
    samples = {s["key"]: s for s in lines(shards("ls", "--json", path))}
    content = bytearray(path.read_bytes())
    stamp = path.stat()
    victim = next(k for k in SHARD_KEYS if samples[k]["members"][1]["size_bytes"] > 1)
    member = samples[victim]["members"][1]
    content[member["offset"]] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
    assert victim in shards("check", path, code=4)
    assert victim in shards("repack", path, tmp_path / "no", code=4)
    shards("repack", path, tmp_path / "fixed", "--quarantine", tmp_path / "q.jsonl")
    (bad,) = lines((tmp_path / "q.jsonl").read_text())
    assert bad["key"] == victim
    assert {"member": member["name"], "offset": member["offset"],
            "size_bytes": member["size_bytes"]} in bad["bytes"]
    check_samples(webdataset_samples(tmp_path / "fixed"), [k for k in SHARD_KEYS if k != victim])


def test_interleaved_members_are_an_error_unless_grouped(tmp_path):
    path = tmp_path / "i.tar"
    with tarfile.open(path, "w") as tar:
        for name in ["a.png", "b.png", "a.txt", "b.txt"]:
            info = tarfile.TarInfo(name)
            info.size = 1
            tar.addfile(info, io.BytesIO(b"x"))
    message = shards("ls", path, code=4)
    assert "'a.png'" in message and "'a.txt'" in message
    assert [s["key"] for s in lines(shards("ls", path, "--json", "--group-by-key"))] == ["a", "b"]
    shards("repack", path, tmp_path / "out", "--group-by-key")
    (first, second) = webdataset_samples(tmp_path / "out")
    assert set(first) >= {"png", "txt"} and set(second) >= {"png", "txt"}


def test_a_stopped_pack_goes_on_to_the_same_bytes(tmp_path, tree):
    """Ctrl-C at a place that is known: the fourth file is a pipe nobody writes to... so a folder
    that is packed while the disk refuses the third shard stands for it."""
    shards("pack", tree, tmp_path / "whole", "--size", "20KiB")
    names = sorted(p.name for p in (tmp_path / "whole").iterdir())
    out = tmp_path / "out"
    (out / "shard-000002.tar").mkdir(parents=True)
    (out / "shard-000002.tar" / "x").write_bytes(b"in the way")
    message = shards("pack", tree, out, "--size", "20KiB", code=2)
    assert "goes on" in message and (out / "shard.packing").exists()
    shutil.rmtree(out / "shard-000002.tar")
    report = json.loads(shards("pack", tree, out, "--size", "20KiB", "--json"))
    assert report["resumed_count"] == 2
    assert sorted(p.name for p in out.iterdir()) == names
    for path in (tmp_path / "whole").glob("*.tar"):
        assert (out / path.name).read_bytes() == path.read_bytes()


def test_a_signal_leaves_only_whole_shards_and_the_way_on(tmp_path, tree):
    whole = tmp_path / "whole"
    shards("pack", tree, whole, "--size", "10KiB")
    out = tmp_path / "out"
    process = subprocess.Popen([YARD, "shards", "pack", tree, out, "--size", "10KiB"],
                               stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    process.send_signal(signal.SIGINT)  # wherever it is by now
    process.communicate(timeout=60)
    for path in out.glob("*.tar") if out.exists() else []:
        assert path.read_bytes() == (whole / path.name).read_bytes()
    shards("pack", tree, out, "--size", "10KiB", *(["--replace"] if process.returncode == 0 else []))
    assert sorted(p.name for p in out.iterdir()) == sorted(p.name for p in whole.iterdir())


@pytest.fixture(name="bucket")
def fixture_bucket(tmp_path):
    folder = tmp_path / "served"
    (folder / "b").mkdir(parents=True)
    process = subprocess.Popen([YARD, "s3", "serve", folder, "--listen", "127.0.0.1:0"],
                               stdout=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline()
        url = line.split(" at ", 1)[1].split(";", 1)[0]
        exports = subprocess.run([YARD, "s3", "env", folder], check=True, capture_output=True,
                                 text=True).stdout
        env = {k: v for k, v in os.environ.items() if not k.startswith("AWS_")}
        for word in exports.split():
            if "=" in word:
                name, value = word.split("=", 1)
                env[name] = value.strip("'\"")
        env["AWS_ENDPOINT_URL"] = url
        yield folder / "b", env
    finally:
        process.terminate()
        process.wait(60)
        process.stdout.close()


def test_every_command_takes_urls_of_a_bucket(tmp_path, tree, bucket):
    folder, env = bucket
    yard("cp", "--recursive", "--quiet", tree, "s3://b/raw", env=env)
    shards("pack", "s3://b/raw", "s3://b/packed/x", "--size", "20KiB", env=env)
    shards("pack", tree, tmp_path / "local", "--size", "20KiB")
    for path in (tmp_path / "local").glob("*.tar"):
        assert (folder / "packed/x" / path.name).read_bytes() == path.read_bytes()
    assert not (folder / "packed/x/shard.packing").exists()
    listed = lines(shards("ls", "--json", "s3://b/packed", env=env))
    assert [s["key"] for s in listed] == SHARD_KEYS
    assert shards("cat", "s3://b/packed/x/shard-000000.tar", "a/000.png",
                  env=env) == content_of("a/000", "png")
    shards("check", "s3://b/packed/x", env=env)
    for path in (folder / "packed/x").glob("*.idx"):
        path.unlink()
    shards("index", "s3://b/packed/x", env=env)
    shards("check", "s3://b/packed/x/shard-000000.tar", env=env)
    shards("repack", "s3://b/packed/x", "s3://b/re", env=env)
    check_samples(webdataset_samples(folder / "re"), SHARD_KEYS)
    shards("split", "s3://b/re", tmp_path / "parts", "--weights", "a=1,b=1", env=env)
    assert len(webdataset_samples(tmp_path / "parts")) == len(KEYS)
    manifest = [{"key": k, "files": {"png": f"raw/{k}.png", "txt": f"s3://b/raw/{k}.txt"}}
                for k in SHARD_KEYS]
    (folder / "list.jsonl").write_text("".join(json.dumps(m) + "\n" for m in manifest))
    shards("pack", "s3://b/list.jsonl", "s3://b/listed", env=env)
    assert len(webdataset_samples(folder / "listed")) == len(KEYS)
    with gzip.open(folder / "re/all.tar.gz", "wb") as file:
        file.write((folder / "re/shard-000000.tar").read_bytes())
    assert len(lines(shards("ls", "--json", "s3://b/re/all.tar.gz", env=env))) == len(KEYS)


def test_help_shows_examples_and_completion_knows_the_commands():
    for command in ["pack", "ls", "cat", "check", "index", "stats", "repack", "split"]:
        assert f"yard shards {command}" in shards(command, "--help").decode()
    script = yard("completion", "bash").decode()
    for words in ['"shards repack"', '"shards split"', "--on-bad", "--quarantine", "--weights"]:
        assert words in script
