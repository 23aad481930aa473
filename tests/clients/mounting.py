"""`yard mount` on a folder, and a proxy before the store that fails on command."""

import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import threading

from s3_servers import wait_until
from served import BIN, WAIT_SECONDS


def why_not():
    """What is missing for a mount, if anything is."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR))
    except OSError as failed:
        return f"/dev/fuse cannot be used here: {failed.strerror}"
    return None


def is_mounted(path):
    """Without asking the mount, whose process may be dead."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return any(line.split()[4] == str(path) for line in lines)


class Mounted:
    """One running `yard mount`; path is where."""

    def __init__(self, folder, url, environment, *options):
        self.path = pathlib.Path(folder).resolve()
        self.path.mkdir(exist_ok=True, parents=True)
        self.stats_path = self.path.with_name(self.path.name + ".stats")
        self.log_path = self.path.with_name(self.path.name + ".log")
        with self.log_path.open("wb") as log:
            self.process = subprocess.Popen(
                [BIN / "yard", "mount", url, self.path, "--stats", self.stats_path,
                 *map(str, options)], env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
        timer = threading.Timer(WAIT_SECONDS, self.process.kill)
        timer.start()
        self.ready_line = self.process.stdout.readline()
        timer.cancel()
        if "mounted" not in self.ready_line:
            self.process.wait(WAIT_SECONDS)
            self.process.stdout.close()
            raise AssertionError(f"exit code {self.process.returncode}: {self.log()}")

    def log(self):
        return self.log_path.read_text(errors="replace")

    def stats(self, name):
        """At the end of the mount, or from a second ago."""
        return json.loads(self.stats_path.read_text())[name]

    def fresh_stats(self):
        """All counters, as of after this call's begin: the file is replaced every second."""
        before = self.stats_path.stat().st_ino
        wait_until(lambda: self.stats_path.stat().st_ino != before, "no statistics")
        second = self.stats_path.stat().st_ino
        wait_until(lambda: self.stats_path.stat().st_ino != second, "no statistics")
        return json.loads(self.stats_path.read_text())

    def stop(self, signal_number=signal.SIGTERM):
        self.process.send_signal(signal_number)
        code = self.process.wait(WAIT_SECONDS)
        self.process.stdout.close()
        return code

    def end(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait(WAIT_SECONDS)
        self.process.stdout.close()
        while is_mounted(self.path):
            if subprocess.run(["fusermount3", "-uz", self.path], check=False,
                              timeout=WAIT_SECONDS).returncode != 0:
                break


@contextlib.contextmanager
def mounted(folder, url, environment, *options):
    mount = Mounted(folder, url, environment, *options)
    try:
        yield mount
    finally:
        mount.end()


class FaultProxy:
    """Passes requests on, one connection to the server for each; `fate` decides about each of them:
    None, a status to answer instead, ("cut", bytes) of the body before the connection breaks, or
    ("hold",) until release()."""

    def __init__(self, target_url, fate=None):
        host, port = target_url.split("//")[1].split(":")
        self.target = (host, int(port))
        self.fate = fate or (lambda *_: None)
        self.is_away = False
        self.lock = threading.Condition()
        self.is_released = False
        self.held = 0
        self.requests = []
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.release()
        self.listener.close()

    def release(self):
        with self.lock:
            self.is_released = True
            self.lock.notify_all()

    def gets(self):
        """Requests for bytes of objects: (path, range)."""
        return [(path, span) for method, path, span in self.requests if method == "GET" and span]

    def _accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            while not self.is_away:
                head = b""
                while b"\r\n\r\n" not in head:
                    more = client.recv(1 << 16)
                    if not more:
                        return
                    head += more
                if self.is_away or not self._answer(client, head):
                    return

    def _answer(self, client, head):
        method, path = head.split(b" ", 2)[:2]
        fields = {line.split(b":", 1)[0].lower(): line.split(b":", 1)[1].strip()
                  for line in head.split(b"\r\n")[1:] if b":" in line}
        span = fields.get(b"range", b"").decode()
        with self.lock:
            number = len(self.requests)
            self.requests.append((method.decode(), path.decode(), span))
        fate = self.fate(number, method.decode(), path.decode(), span)
        if isinstance(fate, int):
            body = b"<Error><Code>InternalError</Code><Message>no</Message></Error>" * 100
            client.sendall(b"HTTP/1.1 %d Broken\r\nContent-Length: %d\r\n\r\n%s"
                           % (fate, len(body), body))
            return True
        if fate == ("hold",):
            with self.lock:
                self.held += 1
                self.lock.wait_for(lambda: self.is_released, WAIT_SECONDS)
        with socket.create_connection(self.target) as server:
            server.sendall(head)
            return self._relay(server, client, fate, has_body=method != b"HEAD")

    def _relay(self, server, client, fate, has_body):
        answer = b""
        while b"\r\n\r\n" not in answer:
            more = server.recv(1 << 16)
            if not more:
                return False
            answer += more
        head, body = answer.split(b"\r\n\r\n", 1)
        length = next((int(line.split(b":")[1]) for line in head.split(b"\r\n")
                       if line.lower().startswith(b"content-length:")), None)
        client.sendall(head + b"\r\n\r\n")
        if not has_body:
            return True
        limit = fate[1] if fate and fate[0] == "cut" else None
        sent = 0
        while True:
            if limit is not None and sent + len(body) >= limit:
                client.sendall(body[:limit - sent])
                return False
            client.sendall(body)
            sent += len(body)
            if length is not None and sent >= length:
                return True
            if self.is_away:
                return False
            body = server.recv(1 << 16)
            if not body:
                return False
