"""Ceph's S3 server, radosgw, over a cluster of one monitor and one store in memory: on loopback, on
free ports, all in one folder, as children of the test. Its packages are large and therefore not in
packages.apt."""

import contextlib
import json
import secrets
import shutil
import subprocess
import uuid

import pytest

from s3_servers import Server, answers, free_port, wait_until
from served import WAIT_SECONDS

PACKAGES = "ceph-mon ceph-osd ceph-common radosgw"
PROGRAMS = ["ceph", "ceph-authtool", "ceph-mon", "ceph-osd", "monmaptool", "radosgw", "radosgw-admin"]
STORE_BYTES = 4 << 30  # a limit, not what it takes

# No manager: the cluster tells nobody of its health, and needs none for that. One copy of each
# object. Admin sockets have no place: a path in a test's folder may be too long for one.
CONFIG = """\
[global]
fsid = {cluster}
keyring = {folder}/keyring
log_file = {folder}/$name.log
admin_socket =
mon_host = {monitors}
mon_initial_members = a
mon_data = {folder}/mon
mon_allow_pool_size_one = true
mon_max_pg_per_osd = 2000
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
public_network = 127.0.0.0/8
cluster_network = 127.0.0.0/8
ms_bind_port_min = 20000
ms_bind_port_max = 32000
osd_data = {folder}/osd
osd_objectstore = memstore
memstore_device_bytes = {store_bytes}
osd_crush_chooseleaf_type = 0
osd_pool_default_size = 1
osd_pool_default_min_size = 1
osd_pool_default_pg_num = 4
osd_pool_default_pgp_num = 4
osd_pool_default_pg_autoscale_mode = off
rgw_data = {folder}/rgw
rgw_frontends = beast endpoint=127.0.0.1:{port}
rgw_gc_obj_min_wait = 2
rgw_gc_processor_period = 2
"""

KEYS = [("mon.", {"mon": "allow *"}),
        ("client.admin", {"mon": "allow *", "osd": "allow *"}),
        ("osd.0", {"mon": "allow profile osd", "osd": "allow *"}),
        ("client.rgw", {"mon": "allow rwx", "osd": "allow rwx"})]


class Cluster:
    """What is started ends with the stack, last first."""

    def __init__(self, folder, stack):
        self.folder = folder
        self.stack = stack
        self.config = folder / "ceph.conf"
        self.port = free_port()
        self.cluster = str(uuid.uuid4())
        self.monitors = f"[v2:127.0.0.1:{free_port()},v1:127.0.0.1:{free_port()}]"
        self.config.write_text(CONFIG.format(
            folder=folder, cluster=self.cluster, monitors=self.monitors, port=self.port,
            store_bytes=STORE_BYTES))
        for name in ("mon", "osd", "rgw"):
            (folder / name).mkdir()

    def run(self, program, *arguments, is_configured=True):
        config = ["-c", self.config] if is_configured else []
        done = subprocess.run([program, *config, *map(str, arguments)], capture_output=True,
                              text=True, timeout=WAIT_SECONDS)
        assert done.returncode == 0, f"{program} {arguments}: {done.stdout}{done.stderr}"
        return done.stdout

    def start(self, program, *arguments):
        """In the foreground, so that it is our child."""
        process = subprocess.Popen([program, "-c", self.config, "-f", *arguments],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def end():
            process.kill()
            process.wait(WAIT_SECONDS)

        self.stack.callback(end)
        return process

    def make_keys(self):
        keyring = self.folder / "keyring"
        self.run("ceph-authtool", "--create-keyring", keyring, is_configured=False)
        for name, rights in KEYS:
            caps = [word for service, right in rights.items() for word in ("--cap", service, right)]
            self.run("ceph-authtool", keyring, "--gen-key", "-n", name, *caps, is_configured=False)

    def start_monitor(self):
        monitors = self.folder / "monmap"
        self.run("monmaptool", "--create", "--fsid", self.cluster, "--addv", "a", self.monitors,
                 monitors, is_configured=False)
        self.run("ceph-mon", "--mkfs", "-i", "a", "--monmap", monitors, "--keyring",
                 self.folder / "keyring")
        self.start("ceph-mon", "-i", "a")

    def start_store(self):
        store = str(uuid.uuid4())
        self.run("ceph", "osd", "new", store, "0")
        self.run("ceph-osd", "-i", "0", "--mkfs", "--osd-uuid", store)
        self.run("ceph", "osd", "crush", "add", "0", "1.0", "root=default")
        self.start("ceph-osd", "-i", "0")
        wait_until(lambda: json.loads(self.run("ceph", "osd", "stat", "-f", "json"))["num_up_osds"],
                   "the store did not start")

    def start_server(self):
        access_key, secret_key = secrets.token_hex(10).upper(), secrets.token_hex(20)
        self.run("radosgw-admin", "user", "create", "--uid", "test", "--display-name", "test",
                 "--access-key", access_key, "--secret", secret_key)
        self.start("radosgw", "-n", "client.rgw")
        server = Server("radosgw", f"http://127.0.0.1:{self.port}", access_key, secret_key)
        wait_until(lambda: answers(server.url), "radosgw did not start")
        return server


@contextlib.contextmanager
def radosgw(folder):
    missing = [program for program in PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"NOT TESTED: Ceph's radosgw, since {missing[0]} is not installed; "
                    f"apt-get install --no-install-recommends {PACKAGES}")
    with contextlib.ExitStack() as stack:
        cluster = Cluster(folder, stack)
        cluster.make_keys()
        cluster.start_monitor()
        cluster.start_store()
        server = cluster.start_server()
        server.client().create_bucket(Bucket="bucket")
        yield server
