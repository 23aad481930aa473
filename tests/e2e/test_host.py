"""`yard host`: scripts as SageMaker runs them, in sandboxes with networks of their own."""

import importlib.util
import io
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

import platform_host
import pytest

NUMBERS = itertools.count()
EMPTY_CHANNEL = "no objects lie under s3://bucket/nothing/"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    platform_host.needs_sandbox()
    served = platform_host.Store(tmp_path_factory.mktemp("store"))
    yield served
    served.stop()


@pytest.fixture
def job(store, tmp_path):
    """Makes jobs; ends them all after the test, and checks that nothing of theirs is left."""
    made = []

    def make(hosts=1, **plan):
        name = f"job-{next(NUMBERS)}"
        made.append(platform_host.Job(tmp_path / name, store, name, hosts, **plan))
        return made[-1]

    yield make
    for one in made:
        one.release()
    for one in made:
        assert not processes_of(one), processes_of(one)
        assert str(one.folder) not in open("/proc/self/mountinfo").read()
        for host in one.hosts:
            assert not (one.dir(host) / "scratch").exists()
    if made:
        assert not interfaces("yv") and not interfaces("yb")


def interfaces(prefix):
    return [name for name in os.listdir("/sys/class/net") if name.startswith(prefix)]


def processes_of(one):
    """Those that were given a path of the job on their command line."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            line = open(f"/proc/{pid}/cmdline").read().replace("\0", " ")
        except OSError:
            continue
        if str(one.folder) in line:
            found.append(line)
    return found


def script(store, text, name="train.py", **files):
    """Hyperparameters that run `text` in script mode."""
    key = f"source/{abs(hash(text))}/sourcedir.tar.gz"
    uri = store.put_source(key, {name: text, **{path.replace("__", "."): body for path, body in files.items()}})
    return {"sagemaker_program": json.dumps(name), "sagemaker_submit_directory": json.dumps(uri)}


def prefix_channel(name, uri, **more):
    source = {"S3DataType": "S3Prefix", "S3Uri": uri, "S3DataDistributionType": "FullyReplicated"}
    source.update(more.pop("source", {}))
    return {"config": {"ChannelName": name, "DataSource": {"S3DataSource": source}, **more}}


def test_a_script_gets_its_data_and_its_model_comes_back(job, store):
    store.put("data/a.txt", b"alpha")
    store.put("data/sub/b.txt", b"beta")
    one = job(
        hyperparameters={**script(store, """
import argparse, json, os, pathlib, socket
parser = argparse.ArgumentParser()
parser.add_argument('--epochs', type=int); parser.add_argument('--flag'); parser.add_argument('--lr', type=float)
args = parser.parse_args()
train = pathlib.Path(os.environ['SM_CHANNEL_TRAIN'])
text = {str(p.relative_to(train)): p.read_text() for p in sorted(train.rglob('*')) if p.is_file()}
model = pathlib.Path(os.environ['SM_MODEL_DIR'])
(model / 'told.json').write_text(json.dumps({'files': text, 'args': vars(args), 'host': socket.gethostname(),
  'address': socket.gethostbyname('algo-1'), 'foo': os.environ['FOO'], 'job': os.environ['TRAINING_JOB_NAME']}))
pathlib.Path('/opt/ml/output/data/extra.txt').write_text('more')
print('trained')
"""), "epochs": "3", "flag": "true", "lr": "0.1"},
        environment={"FOO": "bar"}, channels=[prefix_channel("train", "s3://bucket/data/")])
    status = one.run()
    assert status["outcome"] == "completed", (status, one.all_text())
    assert status["exit_code"] == 0 and status["cause"] == ""
    phases = [item["phase"] for item in status["phases"]]
    assert phases == ["health", "download", "start", "training", "finished", "upload", "ended"]
    assert status["model_uri"] == f"s3://bucket/out/{one.name}/output/model.tar.gz"
    # The two objects and the source.
    assert status["progress"]["downloaded_bytes"] == status["progress"]["total_bytes"] > 9
    told = json.loads(store.archive(f"out/{one.name}/output/model.tar.gz")["told.json"])
    assert told["files"] == {"a.txt": "alpha", "sub/b.txt": "beta"}
    assert told["args"] == {"epochs": 3, "flag": "True", "lr": 0.1}
    assert told["host"] == "algo-1" and told["address"].startswith("10.213.")
    assert told["foo"] == "bar" and told["job"] == one.name
    assert store.archive(f"out/{one.name}/output/output.tar.gz") == {"extra.txt": b"more"}
    assert "trained" in one.log()
    assert (one.dir() / "ml/output/success").exists()


def test_a_failing_script_is_told_as_the_toolkit_tells_it(job, store):
    one = job(hyperparameters=script(store, "import sys\nprint('on the way')\nraise ValueError('the reason')\n"))
    status = one.run()
    assert status["outcome"] == "failed" and status["cause"] == "user_error" and status["exit_code"] == 1
    assert status["failure_reason"].startswith("AlgorithmError: ExecuteUserScriptError:\nExitCode 1\nErrorMessage \"")
    assert "ValueError: the reason" in status["failure_reason"]
    assert status["failure_reason"].endswith(", exit code: 1")
    assert "on the way" in one.log()
    # The model of a failed job is uploaded all the same.
    assert store.keys_under(f"out/{one.name}/") == [f"out/{one.name}/output/model.tar.gz"]


def test_hosts_are_found_by_name_and_address_and_unknown_names_fail_at_once(job):
    text = """
import socket, time
address = socket.gethostbyname('algo-2')
print('NAME', socket.getnameinfo((address, 1), 0)[0])
start = time.monotonic()
# What torch's store asks of each connection; glibc does not find it in /etc/hosts.
for ask in [lambda: socket.getnameinfo(('::ffff:' + address, 1), 0), lambda: socket.gethostbyname('nobody.invalid')]:
    try: ask()
    except OSError: pass
print('QUICK', time.monotonic() - start < 4)
"""
    one = job(hosts=2, entrypoint=["python3", "-c"], arguments=[text])
    assert one.run()["outcome"] == "completed", one.all_text()
    assert "NAME algo-2" in one.log() and "QUICK True" in one.log()


def test_an_entry_point_ends_with_its_own_code_and_failure_file(job):
    one = job(entrypoint=["/bin/bash", "-c"], arguments=["echo -n 'because' > /opt/ml/output/failure; exit 7"])
    status = one.run()
    assert status["exit_code"] == 7
    assert status["failure_reason"] == "AlgorithmError: because, exit code: 7"


def test_a_prefix_without_objects_fails_the_job_by_name(job, store):
    one = job(hyperparameters=script(store, "print('never')"),
              channels=[prefix_channel("train", "s3://bucket/nothing/")])
    one.start()
    status = one.wait("finished")
    assert status["outcome"] == "failed" and status["cause"] == "user_error"
    assert EMPTY_CHANNEL in status["failure_reason"] and "'train'" in status["failure_reason"]
    assert "training" not in [item["phase"] for item in status["phases"]]


def test_the_sandbox_shows_its_job_and_nothing_else(job, store, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("hidden")
    text = f"""
import os, subprocess
print('SECRET', os.path.exists({str(secret)!r}), os.path.exists('/etc/shadow'))
print('HOME', set(os.listdir('/root')) <= {{'.pyenv'}})
print('PIDS', sum(name.isdigit() for name in os.listdir('/proc')) < 8)
for path in ['/usr/x', '/etc/x']:
    try: open(path, 'w'); print('WROTE', path)
    except OSError: pass
open('/opt/ml/input/sm_training.env', 'w'); open('/tmp/x', 'w'); open('/dev/shm/x', 'w')
caps = [line.split()[1] for line in open('/proc/self/status') if line.startswith('CapEff')][0]
print('ADMIN', bool(int(caps, 16) >> 21 & 1))
"""
    one = job(hyperparameters=script(store, text))
    assert one.run()["outcome"] == "completed", one.all_text()
    lines = one.log()
    assert "SECRET False False" in lines and "HOME True" in lines and "PIDS True" in lines and "ADMIN False" in lines
    assert not [line for line in lines if line.startswith("WROTE /usr")]


def test_two_jobs_bind_one_port_and_do_not_meet(job, store):
    text = """
import socket, time
listener = socket.create_server(('algo-1', 7777)); print('BOUND', flush=True); time.sleep(600)
"""
    jobs = [job(hyperparameters=script(store, text)), job(hyperparameters=script(store, text))]
    for one in jobs:
        one.start()
    for one in jobs:
        one.wait_for_line("BOUND")
        assert one.status()["has_own_network"]
    for one in jobs:
        one.tell("kill")
        assert one.wait("finished")["outcome"] == "stopped"


def test_a_released_host_ends_at_once_and_uploads_nothing(job, store):
    one = job(hyperparameters=script(store, "import time; print('READY', flush=True); time.sleep(600)")).start()
    one.wait_for_line("READY")
    one.tell("release")
    assert one.wait("ended")["outcome"] == "stopped"
    assert not store.keys_under(f"out/{one.name}/")


def test_a_host_whose_folder_is_removed_ends(job, store):
    one = job(hyperparameters=script(store, "import time; print('READY', flush=True); time.sleep(600)")).start()
    one.wait_for_line("READY")
    pid = one.pid()
    shutil.rmtree(one.dir())
    end = time.monotonic() + platform_host.WAIT_SECONDS
    while platform_host.is_alive(pid):
        assert time.monotonic() < end
        time.sleep(0.02)


def test_stop_lets_the_script_save_and_uploads(job, store):
    text = """
import signal, sys, time
def save(*_):
    open('/opt/ml/model/saved', 'w').write('in time'); sys.exit(0)
signal.signal(signal.SIGTERM, save); print('READY', flush=True); time.sleep(600)
"""
    one = job(hyperparameters=script(store, text)).start()
    one.wait_for_line("READY")
    one.tell("stop")
    status = one.wait("finished")
    assert status["outcome"] == "stopped" and status["cause"] == "stopped" and status["failure_reason"] == ""
    one.tell("upload")
    one.wait("ended")
    assert store.archive(f"out/{one.name}/output/model.tar.gz") == {"saved": b"in time"}


def test_who_ignores_sigterm_is_killed_with_all_that_it_started(job, store):
    text = """
import os, signal, subprocess, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for _ in range(3):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            while True: time.sleep(1)
        os._exit(0)
print('READY', flush=True); time.sleep(600)
"""
    one = job(hyperparameters=script(store, text), stop_grace_s=0.3).start()
    one.wait_for_line("READY")
    started = time.monotonic()
    one.tell("stop")
    assert one.wait("finished")["outcome"] == "stopped"
    assert time.monotonic() - started < 60


def test_nothing_is_left_of_a_supervisor_that_was_killed(job, store):
    store.put("mounted/a", b"x")
    one = job(hyperparameters=script(store, "import time; print('READY', flush=True); time.sleep(600)"),
              channels=[prefix_channel("train", "s3://bucket/mounted/", InputMode="FastFile")]).start()
    one.wait_for_line("READY")
    pid = one.pid()
    children = subprocess.run(["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True).stdout.split()
    assert children
    os.kill(pid, signal.SIGKILL)
    deadline = time.monotonic() + 60
    while any(platform_host.is_alive(one_pid) for one_pid in [pid, *children]):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    cleaned = subprocess.run([platform_host.BIN / "yard", "host", "--clean", one.dir()], capture_output=True, text=True)
    assert cleaned.returncode == 0, cleaned.stderr


def test_a_flood_without_newlines_and_binary_is_logged_whole(job, store):
    text = """
import os
for _ in range(64): os.write(1, b'x' * (1 << 20))
os.write(2, bytes(range(256)))
print('\\nTHE END')
"""
    one = job(hyperparameters=script(store, text))
    assert one.run()["outcome"] == "completed", one.all_text()
    lines = one.log()
    assert lines[-1] == "THE END"
    # One more: the x among all bytes.
    assert sum(line.count("x") for line in lines) == (64 << 20) + 1


def test_checkpoints_come_first_and_go_up_while_it_runs(job, store):
    store.put("ckpt/step-1.pt", b"old")
    text = """
import os, time
print('FOUND', open('/opt/ml/checkpoints/step-1.pt').read())
half = open('/opt/ml/checkpoints/half.pt', 'w'); half.write('not yet'); half.flush()
open('/opt/ml/checkpoints/next.pt.tmp', 'w').write('temporary')
os.makedirs('/opt/ml/checkpoints/step-2'); open('/opt/ml/checkpoints/step-2/w.pt', 'w').write('new')
print('WRITTEN', flush=True)
while not os.path.exists('/opt/ml/checkpoints/../model/go'): time.sleep(0.05)
half.write(' done'); half.close()
"""
    one = job(hyperparameters=script(store, text), checkpoint={"s3_uri": "s3://bucket/ckpt"}).start()
    one.wait_for_line("WRITTEN")
    assert "FOUND old" in one.log()
    deadline = time.monotonic() + 60
    while "ckpt/step-2/w.pt" not in store.keys_under("ckpt/"):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert "ckpt/half.pt" not in store.keys_under("ckpt/"), "a file that is being written went up"
    (one.dir() / "ml/model/go").write_text("")
    assert one.wait("finished")["outcome"] == "completed"
    assert store.get("ckpt/half.pt") == b"not yet done"
    assert "ckpt/next.pt.tmp" not in store.keys_under("ckpt/")


def test_pipes_fast_files_and_shares(job, store, tmp_path):
    for i in range(5):
        store.put(f"many/{i}", f"<{i}>".encode())
    store.put("names", b'[{"prefix": "s3://bucket/many/"}, "1", "3"]')
    shared = tmp_path / "shared"
    shared.mkdir()
    (shared / "file").write_text("from the file system")
    text = """
import os, pathlib
data = pathlib.Path('/opt/ml/input/data')
for epoch in range(2): print('PIPE', epoch, open(data / f'pipe_{epoch}').read())
print('FAST', sorted(p.name for p in (data / 'fast').iterdir()), (data / 'fast/3').read_text())
print('SHARE', sorted(p.name for p in (data / 'share').iterdir()))
print('FILES', (data / 'files/file').read_text())
print('NAMED', [(p.name, p.read_text()) for p in (data / 'named').iterdir()])
"""
    sharded = {"S3DataDistributionType": "ShardedByS3Key"}
    files = {"config": {"ChannelName": "files", "DataSource": {"FileSystemDataSource": {
        "FileSystemId": "fs-1", "FileSystemType": "EFS", "DirectoryPath": "/", "FileSystemAccessMode": "ro"}}},
        "directory": str(shared)}
    one = job(hosts=2, hyperparameters=script(store, text), channels=[
        prefix_channel("pipe", "s3://bucket/many/", InputMode="Pipe"),
        prefix_channel("fast", "s3://bucket/many/", InputMode="FastFile"),
        prefix_channel("share", "s3://bucket/many/", source=sharded), files,
        prefix_channel("named", "s3://bucket/names", InputMode="FastFile", source={**sharded, "S3DataType": "ManifestFile"})])
    assert one.run()["outcome"] == "completed", one.all_text()
    for host, share, named in [("algo-1", ["0", "2", "4"], "1"), ("algo-2", ["1", "3"], "3")]:
        lines = one.log(host)
        assert f"NAMED {[(named, f'<{named}>')]}" in lines
        assert "PIPE 0 <0><1><2><3><4>" in lines and "PIPE 1 <0><1><2><3><4>" in lines
        assert "FAST ['0', '1', '2', '3', '4'] <3>" in lines
        assert f"SHARE {share}" in lines
        assert "FILES from the file system" in lines


def test_requirements_are_installed_for_the_job_alone(job, store):
    """A wheel out of the source itself: no index is asked."""
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as wheel:
        wheel.writestr("only_here.py", "x = 1\n")
        info = "only_here-1.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\nName: only-here\nVersion: 1\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [
            "only_here.py", f"{info}/METADATA", f"{info}/WHEEL", f"{info}/RECORD"]))
    uri = store.put_source("source/requirements/sourcedir.tar.gz", {
        "train.py": "import only_here\nprint('IMPORTED', only_here.x)\n",
        "requirements.txt": "--no-index\n./only_here-1-py3-none-any.whl\n",
        "only_here-1-py3-none-any.whl": packed.getvalue()})
    one = job(hyperparameters={"sagemaker_program": "train.py", "sagemaker_submit_directory": uri})
    status = one.run()
    assert status["outcome"] == "completed", one.all_text()
    assert "IMPORTED 1" in one.log()
    assert subprocess.run([sys.executable, "-c", "import only_here"], capture_output=True).returncode != 0


def test_an_entry_point_as_sdk_v3_gives_it(job, store):
    """Its driver lies in a channel, is made executable there, writes beside the channels, and needs pip."""
    store.put("v3/input/sm_drivers/sm_train.sh", b"""#!/bin/bash
set -e
python3 -c 'open("/opt/ml/input/sm_training.env", "w").write("export DRIVEN=yes")'
source /opt/ml/input/sm_training.env
pip --version > /dev/null
cd /opt/ml/input/data/code
python3 train.py --driven $DRIVEN
""")
    store.put("v3/input/code/train.py", b"import sys; print('ARGS', sys.argv[1:])")
    driver = "/opt/ml/input/data/sm_drivers/sm_train.sh"
    one = job(entrypoint=["/bin/bash"], arguments=["-c", f"chmod +x {driver} && {driver}"], channels=[
        prefix_channel("code", "s3://bucket/v3/input/code"),
        prefix_channel("sm_drivers", "s3://bucket/v3/input/sm_drivers")])
    assert one.run()["outcome"] == "completed", one.all_text()
    assert "ARGS ['--driven', 'yes']" in one.log()


def test_without_root_a_host_runs_and_says_what_it_lacks(store):
    user = 65534
    as_user = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups"] if os.geteuid() == 0 else []
    tried = subprocess.run([*as_user, "bwrap", "--unshare-user", "--ro-bind", "/", "/", "true"], capture_output=True)
    if tried.returncode != 0:
        pytest.skip(f"NOT TESTED: no sandbox without root: {tried.stderr.decode()}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        subprocess.run(["/usr/bin/python3", "-m", "venv", "--without-pip", folder / "venv"], check=True)
        shutil.copy(platform_host.BIN / "yard", folder / "yard")
        one = platform_host.Job(folder / "job", store, "by-a-user", entrypoint=["python", "-c"], arguments=[
            "import os, socket; print('I AM', os.getuid(), socket.gethostname()); open('/opt/ml/model/x', 'w')"],
            runtime={"python": str(folder / "venv")})
        folder.chmod(0o755)
        for path in [folder / "job", *(folder / "job").rglob("*")]:
            os.chown(path, user, user) if as_user else None
        env = {"PATH": "/usr/bin:/bin", **store.keys}
        subprocess.run([*as_user, folder / "yard", "host", one.dir()], env=env, check=True, capture_output=True)
        status = one.wait("finished")
        assert status["outcome"] == "completed" and not status["has_own_network"], one.all_text()
        assert "I AM 0 algo-1" in one.log() and "7777" in one.log()[0]
        one.tell("upload")
        one.wait("ended")
        one.wait_for_exit()
        assert sorted(store.archive("out/by-a-user/output/model.tar.gz")) == ["x"]


def test_a_folder_can_be_the_root(job, tmp_path):
    """Built of this machine's own programs: what lies in the folder is seen, and nothing else."""
    root = tmp_path / "root"
    for path in ["bin", "lib64", "etc"]:
        (root / path).mkdir(parents=True)
    needed = subprocess.run(["ldd", "/bin/sh"], capture_output=True, text=True, check=True).stdout
    shutil.copy(os.path.realpath("/bin/sh"), root / "bin/sh")
    for library in re.findall(r"(/\S+)", needed):
        (root / library.lstrip("/")).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(library), root / library.lstrip("/"))
    (root / "bin/train").write_text("#!/bin/sh\necho TRAIN /bin/* ; echo new > /written\n")
    (root / "bin/train").chmod(0o755)
    one = job(runtime={"root": str(root)})
    assert one.run()["outcome"] == "completed", one.all_text()
    assert "TRAIN /bin/sh /bin/train" in one.log()
    assert not (root / "written").exists()


def test_a_program_that_does_not_exist_is_the_users_error(job):
    status = job(entrypoint=["/no/such/program"]).run()
    assert status["outcome"] == "failed" and status["cause"] == "user_error"
    assert "/no/such/program" in status["failure_reason"]


def test_results_without_compression_are_files(job):
    one = job(entrypoint=["/bin/sh", "-c"], output={"s3_uri": "s3://bucket/out", "compression": "NONE"},
              arguments=["mkdir /opt/ml/model/a; echo -n x > /opt/ml/model/a/b; echo -n y > /opt/ml/output/data/c"])
    status = one.run()
    assert status["model_uri"] == f"s3://bucket/out/{one.name}/output/model/"
    base = f"out/{one.name}/output"
    assert one.store.keys_under(f"{base}/") == [f"{base}/model/a/b", f"{base}/output/c"]


def test_manifests_name_files_and_records(job, store):
    for name in ["a", "b", "c"]:
        store.put(f"parts/{name}", name.encode() * 3)
    store.put("some.manifest", json.dumps([{"prefix": "s3://bucket/parts/"}, "a", "c"]).encode())
    lines = [{"source-ref": f"s3://bucket/parts/{name}", "label": number} for number, name in enumerate("ab")]
    store.put("more.manifest", "\n".join(map(json.dumps, lines)).encode())
    command = ("cd /opt/ml/input/data; echo FILES $(ls listed) $(cat listed/c); echo STREAM $(cat augmented_0)")
    one = job(entrypoint=["/bin/sh", "-c"], arguments=[command], channels=[
        prefix_channel("listed", "s3://bucket/some.manifest", source={"S3DataType": "ManifestFile"}),
        prefix_channel("augmented", "s3://bucket/more.manifest", InputMode="Pipe", source={
            "S3DataType": "AugmentedManifestFile", "AttributeNames": ["source-ref", "label"]})])
    assert one.run()["outcome"] == "completed", one.all_text()
    assert "FILES a c ccc" in one.log() and "STREAM aaa0bbb1" in one.log()


def test_a_processing_job_gets_its_inputs_and_uploads_its_outputs(job, store):
    store.put("proc/input/proc.py", b"""
import json, pathlib
text = pathlib.Path('/opt/ml/processing/input/data/x.txt').read_text()
pathlib.Path('/opt/ml/processing/output/deep').mkdir()
pathlib.Path('/opt/ml/processing/output/deep/y.txt').write_text(text.upper())
print('CONFIG', json.load(open('/opt/ml/config/processingjobconfig.json'))['ProcessingJobName'],
      json.load(open('/opt/ml/config/resourceconfig.json'))['current_host'])
""")
    store.put("proc/data/x.txt", b"small")

    def local(name, uri, path):
        return {"InputName": name, "S3Input": {"S3Uri": uri, "LocalPath": path, "S3DataType": "S3Prefix",
                                               "S3InputMode": "File", "S3DataDistributionType": "FullyReplicated"}}

    one = job(kind="processing", entrypoint=["python3", "/opt/ml/processing/input/code/proc.py"], processing={
        "inputs": [local("code", "s3://bucket/proc/input/proc.py", "/opt/ml/processing/input/code"),
                   local("data", "s3://bucket/proc/data", "/opt/ml/processing/input/data")],
        "outputs": [{"OutputName": "out", "S3Output": {
            "S3Uri": "s3://bucket/proc/out", "LocalPath": "/opt/ml/processing/output", "S3UploadMode": "EndOfJob"}}]})
    assert one.run()["outcome"] == "completed", one.all_text()
    assert f"CONFIG {one.name} algo-1" in one.log()
    assert store.get("proc/out/deep/y.txt") == b"SMALL"


def toolkit_files():
    """The sources of sagemaker-training, whose own dependencies are not installed: {path: bytes}."""
    found = os.environ.get("YARD_TRAINING_TOOLKIT")
    if found is None:
        spec = importlib.util.find_spec("sagemaker_training")
        if spec is None:
            pytest.skip("NOT TESTED: sagemaker-training is not here; YARD_TRAINING_TOOLKIT names a folder with it")
        found = pathlib.Path(spec.origin).parents[1]
    folder = pathlib.Path(found) / "sagemaker_training"
    return {f"sagemaker_training/{path.name}": path.read_bytes() for path in folder.glob("*.py")}


def test_variables_and_arguments_are_those_of_the_real_toolkit(job, store):
    files = toolkit_files()
    files["train.py"] = """
import os, sys
ours = {name: value for name, value in os.environ.items() if name.startswith('SM_')}
from sagemaker_training import environment
toolkit = environment.Environment()
theirs = toolkit.to_env_vars()
for name in sorted(set(ours) | set(theirs)):
    if ours.get(name) != theirs.get(name): print('DIFFERS', name, ours.get(name), theirs.get(name), sep=chr(10))
if sys.argv[1:] != toolkit.to_cmd_args(): print('DIFFERS', sys.argv[1:], toolkit.to_cmd_args())
print('COMPARED', len(theirs))
"""
    uri = store.put_source("source/toolkit/sourcedir.tar.gz", files)
    store.put("some/x", b"x")
    one = job(hosts=2, hyperparameters={
        "sagemaker_program": '"train.py"', "sagemaker_submit_directory": json.dumps(uri),
        "sagemaker_container_log_level": "20", "sagemaker_region": '"us-east-1"', "sagemaker_job_name": '"j"',
        "sagemaker_instance_type": '"ml.local"', "lr": "1e-5", "flag": "true", "none": "null", "text": "a b'c",
        "list": '[1, "two", 3.5, null, false]', "map": '{"k": "v", "n": 1}', "big": "123456789012", "u": '"\u00e4"'},
        channels=[prefix_channel("train", "s3://bucket/some/", ContentType="text/csv")])
    assert one.run()["outcome"] == "completed", one.all_text()
    for host in one.hosts:
        assert "DIFFERS" not in "\n".join(one.log(host)), "\n".join(one.log(host))
        assert [line for line in one.log(host) if line.startswith("COMPARED ")]


@pytest.mark.parametrize("backend", ["gloo", "yard"])
def test_two_hosts_train_one_model_under_torchrun(job, store, backend):
    pytest.importorskip("torch", reason="NOT TESTED: torch is not installed")
    if backend == "yard":
        pytest.importorskip("trainyard.distributed", reason="NOT TESTED: trainyard's backend is not built")
    text = f"""
import hashlib, torch, torch.distributed as dist
if {backend!r} == 'yard': import trainyard.distributed
dist.init_process_group({backend!r})
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(5):
    optimizer.zero_grad(); model(torch.randn(4, 8)).square().mean().backward(); optimizer.step()
weights = torch.cat([p.detach().flatten() for p in model.parameters()])
print('WEIGHTS', dist.get_world_size(), hashlib.sha256(weights.numpy().tobytes()).hexdigest(), flush=True)
if rank == 0: torch.save(model.module.state_dict(), '/opt/ml/model/model.pt')
else: open('/opt/ml/model/rank1', 'w').write('x')
dist.destroy_process_group()
"""
    one = job(hosts=2, hyperparameters={**script(store, text), "sagemaker_torch_distributed_enabled": "true"})
    status = one.run()
    assert status["outcome"] == "completed", one.all_text()
    told = [[line for line in one.log(host) if line.startswith("WEIGHTS 2 ")] for host in one.hosts]
    assert told[0] and told[0] == told[1]
    assert sorted(store.archive(f"out/{one.name}/output/model.tar.gz")) == ["model.pt", "rank1"]


@pytest.mark.skipif(shutil.which("mpirun") is None, reason="NOT TESTED: no mpirun is installed")
def test_mpi_starts_its_processes_on_both_hosts(job, store):
    """What mpi4py's runner does, for it is not in this environment: the ranks are mpirun's."""
    uri = store.put_source("source/mpi/sourcedir.tar.gz", {
        "train.py": b"import os, sys, socket\ne = os.environ\nos.write(1, f'RANK {e[\"OMPI_COMM_WORLD_RANK\"]} of {e[\"OMPI_COMM_WORLD_SIZE\"]}"
                    b" on {socket.gethostname()} {e[\"SM_CURRENT_HOST\"]} {sys.argv[1:]}\\n'.encode())\n",
        "mpi4py/__main__.py": b"import runpy, sys\ndel sys.argv[0]\nrunpy.run_path(sys.argv[0], run_name='__main__')\n"})
    one = job(hosts=2, hyperparameters={
        "sagemaker_program": "train.py", "sagemaker_submit_directory": uri, "sagemaker_mpi_enabled": "true",
        "sagemaker_mpi_num_of_processes_per_host": "2", "lr": "0.1"})
    assert one.run()["outcome"] == "completed", one.all_text()
    told = re.findall(r"RANK (\d) of 4 on (\S+) (\S+) \['--lr', '0.1'\]", "\n".join(one.log("algo-1")))
    assert sorted(told) == [("0", "algo-1", "algo-1"), ("1", "algo-1", "algo-1"),
                            ("2", "algo-2", "algo-2"), ("3", "algo-2", "algo-2")]


@pytest.mark.parametrize("floor", [1, 1e15])
def test_hosts_meet_over_their_network_before_the_program(job, floor):
    one = job(hosts=2, entrypoint=["true"], health={"collective_bytes_per_second_min": floor})
    status = one.run()
    events = map(json.loads, (one.dir() / "events.jsonl").read_text().splitlines())
    verdict = next(event for event in events if event["event"] == "network")
    assert verdict["is_good"] == (floor == 1), verdict
    if floor == 1:
        assert status["outcome"] == "completed" and verdict["bytes_per_second"] > 1e6, one.all_text()
    else:
        assert verdict["faulty"] == ["algo-1", "algo-2"] and status["cause"] == "host_fault", one.all_text()
