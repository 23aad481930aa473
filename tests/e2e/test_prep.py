"""yard prep from raw pictures to shards, with bad input, steps that misbehave and kills at any time."""

import hashlib
import io
import json
import random
import signal
import struct
import subprocess
import sys
import tarfile
import time
import zlib

import numpy as np
import pytest
from PIL import Image
from tiny_run import BIN, ROOT

sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "tests/clients")]
import photos  # noqa: E402
from served import served  # noqa: E402

YARD = BIN / "yard"


def picture_bytes(number, size=(72, 64), kind="PNG", **save):
    rng = np.random.default_rng(number)
    pixels = rng.integers(0, 256, (size[1], size[0], 3), np.uint8)
    out = io.BytesIO()
    Image.fromarray(pixels).save(out, kind, **save)
    return out.getvalue()


class Place:
    def __init__(self, root, **spec):
        self.root = root
        self.source = root / "raw"
        self.out = root / "out"
        self.source.mkdir(parents=True, exist_ok=True)
        self.spec = root / "spec.yaml"
        self.settings = {
            "name": "t", "source": str(self.source), "output": str(self.out),
            "state": str(root / "state"), "workers": 2, "shard_size": "60kB",
            "queue": {"visibility": "60s"}, **spec,
        }
        self.spec.write_text(json.dumps(self.settings))  # JSON is YAML

    def add(self, name, content, caption="a caption"):
        path = self.source / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if caption is not None:
            path.with_suffix(".txt").write_text(caption)

    def yard(self, command, *arguments, timeout=60, check=True, env=None):
        done = subprocess.run([YARD, "prep", command, self.spec, *arguments], timeout=timeout,
                              capture_output=True, text=True, env=env)
        if check:
            assert done.returncode == 0, done.stderr
        return done

    def run(self, *arguments, **options):
        return json.loads(self.yard("run", "--json", *arguments, **options).stdout)

    def status(self):
        return json.loads(self.yard("status", "--json").stdout)

    def dead(self):
        lines = self.yard("dead", "--json").stdout.splitlines()
        return {letter["key"]: letter["reason"] for letter in map(json.loads, lines)}

    def samples(self):
        """By key the members, and how often each source object is there."""
        samples, sources = {}, {}
        for shard in sorted(self.out.glob("*.tar")):
            with tarfile.open(shard) as tar:
                for member in tar:
                    key, extension = member.name.split(".", 1)
                    samples.setdefault(key, {})[extension] = tar.extractfile(member).read()
                    if extension == "json":
                        source = json.loads(samples[key]["json"])["source"]
                        sources[source] = sources.get(source, 0) + 1
        return samples, sources


def huge_png():
    def chunk(kind, content):
        return (struct.pack(">I", len(content)) + kind + content
                + struct.pack(">I", zlib.crc32(kind + content)))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 50000, 50000, 8, 2, 0, 0, 0))
            + chunk(b"IDAT", zlib.compress(bytes(1000))) + chunk(b"IEND", b""))


def test_good_pictures_are_packed_and_bad_ones_are_told_by_their_reason(tmp_path):
    place = Place(tmp_path)
    for i in range(8):
        place.add(f"good/{i}.png", picture_bytes(i), f"picture {i}\nof eight\r\n")
    place.add("good/wrong.png", picture_bytes(50, kind="JPEG"))
    place.add("copy.png", picture_bytes(3))
    place.add("zero.png", b"")
    place.add("cut.jpg", picture_bytes(60, kind="JPEG")[:1500])
    place.add("text.png", b"this is no picture")
    place.add("huge.png", huge_png())
    place.add("nul.png", picture_bytes(61), None)
    (place.source / "nul.txt").write_bytes(b"a\0b \xff\xfe caf\xc3\xa9\n\n\tend")
    place.add("silent.png", picture_bytes(62), None)

    report = place.run()
    assert (report["taken"], report["packed"], report["dropped"], report["rejected"]) == (16, 10, 3, 3)
    status = place.status()
    assert status["packed"] == 10
    assert status["dropped"] == {"duplicate": 1, "no_caption": 1, "too_many_pixels": 1}
    assert status["queue"] == {"visible": 0, "in_flight": 0, "delayed": 0}
    dead = place.dead()
    assert sorted(dead) == ["cut.jpg", "text.png", "zero.png"]
    assert "empty" in dead["zero.png"] and "damaged" in dead["cut.jpg"]
    assert "no picture" in dead["text.png"]

    samples, sources = place.samples()
    assert len(samples) == 10 and set(sources.values()) == {1}
    assert samples["good/5"]["txt"] == b"picture 5 of eight"
    for key, members in samples.items():
        kind = "png" if "png" in members else "jpg"
        with Image.open(io.BytesIO(members[kind])) as image:
            image.load()
            assert image.size == (72, 64)
        about = json.loads(members["json"])
        assert about["sha256"] == hashlib.sha256(members[kind]).hexdigest()
        assert set(about["provenance"]) == set(about) - {"provenance", "key"}
    wrong = json.loads(samples["good/wrong"]["json"])
    assert "jpg" in samples["good/wrong"] and wrong["source_extension"] == "png"
    assert samples["nul"]["txt"].decode() == "ab \ufffd\ufffd café end"
    assert json.loads(samples["nul"]["json"])["caption_repaired"] is True

    manifest = json.loads((place.out / "shard.manifest").read_text())
    assert manifest["note"]["sample_count"] == 10
    listed = (place.out / manifest["parts"][0]["key"]).read_text().splitlines()
    assert [json.loads(line)["key"] for line in listed] == sorted(p.name for p in place.out.glob("*.tar"))
    checked = subprocess.run([YARD, "shards", "check", place.out], capture_output=True, timeout=60)
    assert checked.returncode == 0

    again = place.run()
    assert (again["taken"], again["packed"]) == (0, 0)  # every version once


def reference_phash(image):
    """imagehash.phash, by its definition."""
    pixels = np.asarray(image.convert("L").resize((32, 32), Image.Resampling.LANCZOS), float)
    n = np.arange(32)
    basis = 2 * np.cos(np.pi * np.outer(n[:8], 2 * n + 1) / 64)
    low = basis @ pixels @ basis.T
    bits = (low > np.median(low)).flatten()
    return int("".join("1" if bit else "0" for bit in bits), 2)


def phash_distances(pictures):
    """From `yard prep describe` to the definition; transparent ones laid over white."""
    done = subprocess.run([YARD, "prep", "describe", *pictures], capture_output=True, timeout=60)
    distances = []
    for line in done.stdout.splitlines():
        about = json.loads(line)
        with Image.open(about["source"]) as image:
            flat = Image.new("RGB", image.size, "white")
            flat.paste(image, mask=image.convert("RGBA").getchannel("A"))
        distances.append((int(about["phash"], 16) ^ reference_phash(flat)).bit_count())
    assert len(distances) == len(pictures)
    return distances


def test_phash_is_that_of_imagehash_within_two_bits(tmp_path):
    emoji = subprocess.run([YARD, "prep", "emoji", tmp_path, "--limit", "150", "--size", "128"],
                           capture_output=True, timeout=60)
    if emoji.returncode != 0:
        pytest.skip("NOT TESTED: the emoji font is not installed")
    pictures = sorted(tmp_path.glob("*.png"))
    assert len(pictures) >= 100
    distances = phash_distances(pictures)
    assert max(distances) <= 2, distances


def test_phash_of_photographs_decoded_smaller_than_they_are_is_that_of_imagehash(tmp_path):
    try:
        photographs = photos.fetch()
    except OSError as error:
        pytest.skip(f"NOT TESTED: {error}")
    pictures = []
    for path in photographs:
        for width in (800, 1200):
            with Image.open(path) as image:
                large = image.convert("RGB").resize((width, width * image.height // image.width))
            pictures.append(tmp_path / f"{path.stem}-{width}.jpg")
            large.save(pictures[-1], quality=90)
    distances = phash_distances(pictures)
    assert max(distances) <= 4 and sum(distances) <= len(distances), distances


def test_licence_and_creator_come_from_the_file_and_rules_look_at_them(tmp_path):
    place = Place(tmp_path, pictures={"licences": ["CC0"], "side_min": 40})
    exif = Image.Exif()
    exif[0x013B], exif[0x8298] = "Ada", "(c) Ada"
    place.add("a.jpg", picture_bytes(1, kind="JPEG", exif=exif), None)
    (place.source / "a.json").write_text('{"text": "from json", "license": "cc0", "score": 7}')
    place.add("b.jpg", picture_bytes(2, kind="JPEG"))
    place.add("c.png", picture_bytes(3, (30, 90)))
    place.run()
    assert place.status()["dropped"] == {"licence": 1, "too_small": 1}
    samples, _ = place.samples()
    about = json.loads(samples["a"]["json"])
    assert (about["creator"], about["copyright"], about["contributor"]) == ("Ada", "(c) Ada", "Ada")
    assert (about["caption"], about["licence"], about["score"]) == ("from json", "cc0", 7)
    assert about["provenance"]["copyright"] == "exif"
    assert about["provenance"]["score"] == "sidecar:a.json"


def test_pictures_are_made_smaller_as_the_spec_says(tmp_path):
    place = Place(tmp_path, encode={"format": "jpeg", "quality": 90, "side_max": 32})
    place.add("a.png", picture_bytes(1, (128, 64)))
    place.run()
    samples, _ = place.samples()
    with Image.open(io.BytesIO(samples["a"]["jpg"])) as image:
        assert (image.format, image.size) == ("JPEG", (64, 32))
    assert json.loads(samples["a"]["json"])["width"] == 128


def test_near_duplicates_are_dropped_where_the_spec_asks(tmp_path):
    place = Place(tmp_path, pictures={"near_duplicate_distance": 6})
    ramp = Image.radial_gradient("L").rotate(30).convert("RGB")
    for name, size in [("a.png", (200, 200)), ("b.png", (150, 150))]:
        out = io.BytesIO()
        ramp.resize(size).save(out, "PNG")
        place.add(name, out.getvalue())
    place.add("c.png", picture_bytes(9))
    place.run()
    assert place.status()["packed"] == 2
    assert place.status()["dropped"] == {"near_duplicate": 1}
    out = io.BytesIO()
    ramp.resize((170, 170)).save(out, "PNG")
    place.add("d.png", out.getvalue())
    place.run()  # by the ledger, in another process
    assert place.status()["dropped"] == {"near_duplicate": 2}


def test_objects_that_vanish_or_change_before_their_worker_comes_are_dropped(tmp_path):
    place = Place(tmp_path, scan=False)
    for i in range(3):
        place.add(f"{i}.png", picture_bytes(i))
    scanned = json.loads(place.yard("scan", "--json").stdout)
    assert scanned == {"pictures": 3, "accepted": 3, "others": 3}
    (place.source / "0.png").unlink()
    place.add("1.png", picture_bytes(77))
    place.run()
    assert place.status()["dropped"] == {"gone": 1, "replaced": 1}
    assert json.loads(place.yard("scan", "--json").stdout)["accepted"] == 1
    place.run()
    assert place.status()["packed"] == 2


def test_dead_letters_are_tried_again_by_redrive(tmp_path):
    place = Place(tmp_path)
    place.add("a.png", picture_bytes(1), None)
    sidecar = place.source / "a.json"
    sidecar.write_text('{"text": ')
    place.run()
    assert "bad sidecar" in place.dead()["a.png"]
    sidecar.write_text('{"text": "now it is one"}')
    place.yard("redrive")
    place.run()
    assert place.status()["packed"] == 1 and not place.dead()
    assert place.samples()[0]["a"]["txt"] == b"now it is one"


def test_removing_a_contributor_rewrites_only_the_shards_that_hold_some(tmp_path):
    place = Place(tmp_path, workers=1)
    for i in range(24):
        place.add(f"{i:02}.png", picture_bytes(i), None)
        who = "ada" if i in (1, 2) else "bob" if i < 20 else "eve"
        (place.source / f"{i:02}.json").write_text(json.dumps({"text": "x", "contributor": who}))
    place.run()
    before = {p.name: p.read_bytes() for p in place.out.glob("*.tar")}
    assert len(before) >= 4
    removed = json.loads(place.yard("remove", "--contributor", "ada", "--json").stdout)
    after = {p.name: p.read_bytes() for p in place.out.glob("*.tar")}
    changed = [name for name in before if after.get(name) != before[name]]
    assert removed == {"shards": len(changed), "samples": 2} and 1 <= len(changed) <= 2
    samples, _ = place.samples()
    assert len(samples) == 22 and not {"01", "02"} & set(samples)
    checked = subprocess.run([YARD, "shards", "check", place.out], capture_output=True, timeout=60)
    assert checked.returncode == 0
    # What comes later of theirs is not taken, and nothing of theirs is packed anew.
    place.add("new.png", picture_bytes(99), None)
    (place.source / "new.json").write_text('{"text": "x", "contributor": "ada"}')
    place.run()
    status = place.status()
    assert (status["packed"], status["removed"], status["dropped"]) == (22, 2, {"withdrawn": 1})


STEP = """
import json, os, signal, sys, time
for line in sys.stdin:
    request = json.loads(line)
    size = os.path.getsize(request["path"])
    name = request["key"]
    if "garbage" in name: print("%%% not json", flush=True); print('{"id": 1e9}', flush=True)
    if "die" in name: os.kill(os.getpid(), signal.SIGKILL)
    if "hang" in name: time.sleep(1000)
    answer = {"id": request["id"], "fields": {"bytes": size, "caption": "said of " + name}}
    if "unsafe" in name: answer = {"id": request["id"], "drop": "unsafe"}
    if "cannot" in name: answer = {"id": request["id"], "error": "cannot see it"}
    print(json.dumps(answer), flush=True)
"""


def test_a_step_that_hangs_dies_or_prints_garbage_harms_only_its_own_picture(tmp_path):
    script = tmp_path / "step.py"
    script.write_text(STEP)
    step = {"name": "look", "command": [sys.executable, str(script)], "batch": 4, "timeout": "5s"}
    place = Place(tmp_path, steps=[step])
    names = ["garbage", "die", "hang", "unsafe", "cannot"] + [f"ok{i}" for i in range(10)]
    for i, name in enumerate(names):
        place.add(f"{name}.png", picture_bytes(i), None)
    report = place.run(timeout=120)
    assert (report["packed"], report["dropped"], report["rejected"]) == (11, 1, 3)
    dead = place.dead()
    assert "signal 9" in dead["die.png"] and "no answer within" in dead["hang.png"]
    assert "cannot see it" in dead["cannot.png"]
    assert place.status()["dropped"] == {"step_look": 1}
    about = json.loads(place.samples()[0]["ok3"]["json"])
    assert about["caption"] == "said of ok3.png"
    assert about["bytes"] == (place.source / "ok3.png").stat().st_size
    assert about["provenance"]["caption"] == "step:look"


def test_a_step_that_never_answers_ends_the_run_and_loses_nothing(tmp_path):
    place = Place(tmp_path, queue={"visibility": "1s", "receives_max": 100})
    for i in range(30):
        place.add(f"{i}.png", picture_bytes(i))
    failed = place.yard("run", "--step", f"{sys.executable} -c 'pass'", check=False)
    assert failed.returncode == 6 and "in a row" in failed.stderr
    place.yard("redrive")
    place.run()
    assert place.status()["packed"] == 30


def test_every_good_picture_is_in_exactly_one_shard_whatever_is_killed_when(tmp_path):
    place = Place(tmp_path, queue={"visibility": "1s", "receives_max": 1000}, shard_size="100kB")
    count = 1000
    for i in range(count):
        place.add(f"{i:03}.png", picture_bytes(i, (40, 40)))
    place.add("zero.png", b"")
    place.add("copy.png", picture_bytes(7, (40, 40)))
    chance = random.Random(11)
    kills = 0
    end = time.monotonic() + 30
    while time.monotonic() < end and kills < 100:
        running = subprocess.Popen([YARD, "prep", "run", place.spec], stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        try:
            running.wait(chance.uniform(0.01, 0.4))
            if kills >= 5:
                break
        except subprocess.TimeoutExpired:
            running.send_signal(signal.SIGKILL)
            running.wait()
            kills += 1
    place.run(timeout=120)
    assert kills >= 5
    samples, sources = place.samples()
    assert len(samples) == count and set(sources.values()) == {1} and len(sources) == count
    status = place.status()
    assert (status["packed"], status["dropped"]) == (count, {"duplicate": 1})
    assert status["dead"]["visible"] == 1 and status["queue"]["visible"] == 0
    checked = subprocess.run([YARD, "shards", "check", place.out], capture_output=True, timeout=60)
    assert checked.returncode == 0


def test_a_full_disk_under_the_queue_ends_the_run_and_loses_nothing(tmp_path):
    place = Place(tmp_path, queue={"visibility": "1s"})
    state = tmp_path / "state"
    state.mkdir()
    for i in range(60):
        place.add(f"{i}.png", picture_bytes(i))
    script = f"""
        mount -t tmpfs -o size=300k none {state} || exit 77
        {YARD} prep run {place.spec}; code=$?
        echo code $code
        mount -o remount,size=8m {state} || exit 77
        {YARD} prep run {place.spec} --json && {YARD} prep status {place.spec} --json"""
    done = subprocess.run(["unshare", "-rm", "sh", "-c", script], capture_output=True, text=True,
                          timeout=120)
    if done.returncode == 77 or "unshare" in done.stderr:
        pytest.skip("NOT TESTED: no file system can be mounted here")
    lines = done.stdout.splitlines()
    assert lines[0] == "code 5", done.stdout + done.stderr  # disk full
    assert json.loads(lines[-1])["packed"] == 60, done.stdout + done.stderr
    samples, sources = place.samples()
    assert len(samples) == 60 and set(sources.values()) == {1}


def test_a_bucket_is_prepared_into_a_bucket(tmp_path):
    place = Place(tmp_path, source="s3://raw/in", output="s3://data/sets", scan=False)
    folder = tmp_path / "store"
    (folder / "data").mkdir(parents=True)
    place.source = folder / "raw" / "in"
    for i in range(12):
        place.add(f"{'new' if i > 7 else 'old'}/pic {i}+ü.png", picture_bytes(i))
    place.out = folder / "data" / "sets"
    with served(folder) as gateway:
        env = gateway.environment()
        assert json.loads(place.yard("scan", "s3://raw/in/new", "--json", env=env).stdout)["accepted"] == 4
        assert place.yard("scan", "s3://other/in", check=False, env=env).returncode == 2
        assert place.run(env=env)["packed"] == 4
        assert json.loads(place.yard("scan", "--json", env=env).stdout)["accepted"] == 8
        (place.source / "old/pic 3+ü.png").unlink()
        place.add("old/pic 4+ü.png", picture_bytes(44))
        report = place.run(env=env)
        assert (report["packed"], report["dropped"]) == (6, 2)
    assert place.status()["dropped"] == {"gone": 1, "replaced": 1}
    samples, sources = place.samples()
    assert "new/pic 9+ü" in samples and len(samples) == 10 and set(sources.values()) == {1}
    assert "s3://raw/in/new/pic 9+ü.png" in sources


def test_uploads_come_by_the_notifications_of_their_bucket(tmp_path):
    queues = tmp_path / "queues.db"
    place = Place(tmp_path, source="s3://raw/in", output="s3://data", scan=False, rescan="0s",
                  flush="300ms", queue={"path": str(queues), "name": "uploads"})
    folder = tmp_path / "store"
    (folder / "raw").mkdir(parents=True)
    (folder / "data").mkdir()
    place.out = folder / "data"
    with served(folder, "--events", str(queues)) as gateway:
        env = gateway.environment()
        place.run(env=env)  # makes the queue
        client = gateway.client()
        client.put_bucket_notification_configuration(
            Bucket="raw", NotificationConfiguration={"QueueConfigurations": [
                {"QueueArn": "arn:aws:sqs:us-east-1:000000000000:uploads", "Events": ["s3:ObjectCreated:*"]}]})
        running = subprocess.Popen([YARD, "prep", "run", place.spec, "--follow"], env=env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for i in range(5):
                client.put_object(Bucket="raw", Key=f"in/pic {i}.txt", Body=b"a caption")
                client.put_object(Bucket="raw", Key=f"in/pic {i}.png", Body=picture_bytes(i))
            end = time.monotonic() + 60
            while len(place.samples()[0]) < 5 and time.monotonic() < end:
                time.sleep(0.05)
            running.send_signal(signal.SIGTERM)
            assert running.wait(60) == 0
        finally:
            if running.poll() is None:
                running.kill()
    samples, _ = place.samples()
    assert sorted(samples) == [f"pic {i}" for i in range(5)]
    assert place.status()["dead"]["visible"] == 0


def test_follow_packs_what_arrives_until_it_is_stopped(tmp_path):
    place = Place(tmp_path, rescan="100ms", flush="300ms")
    place.add("a.png", picture_bytes(1))
    running = subprocess.Popen([YARD, "prep", "run", place.spec, "--follow"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    try:
        for number, name in enumerate(["a", "b"]):
            if name == "b":
                place.add("b.png", picture_bytes(2))
            end = time.monotonic() + 60
            while len(place.samples()[0]) <= number and time.monotonic() < end:
                time.sleep(0.05)
            assert name in place.samples()[0]
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 0
    finally:
        if running.poll() is None:
            running.kill()
    assert place.status()["packed"] == 2


def test_a_spec_is_refused_by_what_is_wrong_in_it(tmp_path):
    for settings, told in [
        ({"shard_sise": "1MB"}, "did you mean 'shard_size'"),
        ({"pictures": {"side_mim": 3}}, "pictures: unknown key 'side_mim', did you mean 'side_min'"),
        ({"pictures": {"formats": ["gif"]}}, "unknown 'gif'"),
        ({"workers": "many"}, "workers: it must be a whole number"),
        ({"queue": {"visibility": "0s"}}, "visibility"),
        ({"steps": [{"name": "x"}]}, "a step has either a command or a url"),
    ]:
        done = Place(tmp_path, **settings).yard("run", check=False)
        assert done.returncode == 2 and told in done.stderr, done.stderr
