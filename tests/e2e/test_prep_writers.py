"""yard prep by several writers at once, and with a step that is a service."""

import base64
import http.server
import json
import random
import subprocess
import threading

from test_prep import YARD, Place, picture_bytes, served


class Looker(http.server.BaseHTTPRequestHandler):
    """A step that is a service: it says of each picture how many bytes it has."""

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        answers = [{"id": each["id"], "fields": {"bytes": len(base64.b64decode(each["picture"]))}}
                   for each in body["requests"] if "silent" not in each["key"]]
        content = json.dumps({"answers": answers}).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        pass


def test_a_step_may_be_a_service_that_is_asked_by_http(tmp_path):
    place = Place(tmp_path)
    for name in ["a", "b", "silent"]:
        place.add(f"{name}.png", picture_bytes(len(name)))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Looker) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        report = place.run("--step", f"http://127.0.0.1:{server.server_port}/look")
        server.shutdown()
    assert (report["packed"], report["rejected"]) == (1, 1)  # "b" is a duplicate of "a"
    assert "there is no answer for it" in place.dead()["silent.png"]
    about = json.loads(place.samples()[0]["a"]["json"])
    assert about["bytes"] == (place.source / "a.png").stat().st_size
    assert about["provenance"]["bytes"].startswith("step:http://")


def test_hosts_that_are_lost_again_and_again_share_a_ledger_in_the_store(tmp_path):
    """Two hosts of a job; what dies takes its disk with it."""
    place = Place(tmp_path, source="s3://raw/in", output="s3://data", state="s3://train/st/",
                  shard_size="40kB", workers=1)
    folder = tmp_path / "store"
    for bucket in ["raw/in", "data", "train"]:
        (folder / bucket).mkdir(parents=True)
    place.source, place.out = folder / "raw/in", folder / "data"
    count = 200
    for i in range(count):
        place.add(f"{i:03}.png", picture_bytes(i, (40, 40)))
    place.add("copy.png", picture_bytes(7, (40, 40)))
    place.add("zero.png", b"")
    hosts = []
    for name in ["algo-1", "algo-2"]:
        hosts.append(tmp_path / f"{name}.json")
        hosts[-1].write_text(json.dumps({"current_host": name, "hosts": ["algo-1", "algo-2"]}))
    chance = random.Random(5)
    with served(folder) as gateway:
        command = [YARD, "prep", "run", place.spec, "--hosts-file"]
        for attempt in range(8):
            running = [subprocess.Popen([*command, host], env=gateway.environment(), stdout=subprocess.DEVNULL,
                                        stderr=subprocess.PIPE) for host in hosts]
            lost = attempt < 7
            for host in running:
                try:
                    code = host.wait(chance.uniform(0.1, 0.6) if lost else 100)
                    assert code == 0, host.stderr.read()
                except subprocess.TimeoutExpired:
                    host.kill()
                    host.wait()
        place.env = gateway.environment()
        samples, sources = place.samples()
        assert len(samples) == count and len(sources) == count and set(sources.values()) == {1}
        status = json.loads(place.yard("status", "--json", env=place.env).stdout)
        assert (status["packed"], status["dropped"]) == (count, {"duplicate": 1})
        listed = [json.loads(line)["key"] for part in json.loads((place.out / "shard.manifest").read_text())["parts"]
                  for line in (place.out / part["key"]).read_text().splitlines()]
        assert sorted(listed) == sorted(path.name for path in place.out.glob("*.tar"))
        assert any("-w1-" in name for name in listed)


def test_processes_share_one_state_folder(tmp_path):
    place = Place(tmp_path, workers=1, shard_size="40kB")
    for i in range(150):
        place.add(f"{i:03}.png", picture_bytes(i % 140, (40, 40)))
    running = [subprocess.Popen([YARD, "prep", "run", place.spec, "--json"], stdout=subprocess.PIPE, text=True)
               for _ in range(3)]
    reports = [json.loads(process.communicate(timeout=100)[0]) for process in running]
    assert sum(report["packed"] for report in reports) == 140
    samples, sources = place.samples()
    assert len(samples) == 140 and set(sources.values()) == {1}
    status = place.status()
    assert (status["packed"], status["dropped"]) == (140, {"duplicate": 10})
    assert status["queue"] == {"visible": 0, "in_flight": 0, "delayed": 0}
