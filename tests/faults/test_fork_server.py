"""The interpreter that waits for a job: what runs in it cannot tell, nor can who watches."""

import json
import os
import pathlib
import socket
import struct
import subprocess
import sys

import pytest

SOURCE = pathlib.Path(__file__).resolve().parents[2] / "src/platform/host/fork_server.py"
WAIT_SECONDS = 60


@pytest.fixture(scope="module")
def source():
    """With a module that is quickly imported."""
    text = SOURCE.read_text()
    assert 'PRELOAD = ("numpy", "torch")' in text
    return text.replace('PRELOAD = ("numpy", "torch")', 'PRELOAD = ("colorsys", "no_such_module")')


def environment(**more):
    return {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONUNBUFFERED": "1", **more}


def run_there(source, argv, cwd, plain=False, env=None):
    ours, theirs = socket.socketpair()
    server = subprocess.Popen([sys.executable, "-c", source], stdin=theirs, cwd="/", env=environment())
    theirs.close()
    ours.settimeout(WAIT_SECONDS)
    assert ours.recv(5) == b"ready"
    read_end, write_end = os.pipe()
    text = json.dumps({"argv": argv, "env": env or environment(), "cwd": str(cwd), "plain": plain}).encode()
    socket.send_fds(ours, [struct.pack("<I", len(text))], [write_end])
    ours.sendall(text)
    os.close(write_end)
    with os.fdopen(read_end, "rb") as output:
        printed = output.read().decode()
    code = server.wait(WAIT_SECONDS)
    ours.close()
    return code, printed


def run_here(argv, cwd, env=None):
    done = subprocess.run(argv, cwd=cwd, env=env or environment(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=WAIT_SECONDS)
    return (done.returncode if done.returncode >= 0 else 128 - done.returncode), done.stdout


SCRIPTS = {
    "says": "import sys, os\nprint(__name__, __file__, sys.argv, sys.path[0], os.getcwd(), sys.orig_argv)\n"
            "print(__spec__ and __spec__.name, __builtins__.__name__, type(__loader__).__name__, sys.stdin.read())",
    "raises": "def f():\n    raise ValueError('x')\ntry:\n    f()\nexcept ValueError as e:\n    raise KeyError(1) from e",
    "exits": "import sys; sys.exit(7)",
    "exits_with_words": "raise SystemExit('so much for that')",
    "exits_none": "import sys; sys.exit()",
    "syntax": "x = (",
    "killed": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    "interrupted": "raise KeyboardInterrupt",
    "hook": "import sys\nsys.excepthook = lambda *a: print('HOOK', a[0].__name__, a[2].tb_lineno)\n1/0",
    "at_exit": "import atexit, threading, time\natexit.register(print, 'bye')\n"
               "threading.Thread(target=lambda: (time.sleep(.05), print('thread'))).start()\nprint('end')",
    "helper": "import beside; print(beside.VALUE, sorted(beside.__dict__)[-1])",
    "processes": "import multiprocessing as m\ndef f(x): return x * 2\n"
                 "if __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: print(p.map(f, [1, 2]))",
    "pickles": "import pickle\nclass A: pass\nprint(pickle.loads(pickle.dumps(A())).__class__.__module__)",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("code")
    for name, text in SCRIPTS.items():
        (made / f"{name}.py").write_text(text)
    (made / "beside.py").write_text("VALUE = 3")
    return made


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_is_run_as_python_runs_it(source, folder, name):
    argv = [sys.executable, f"{name}.py", "--lr", "0.1"]
    assert run_there(source, argv, folder) == run_here(argv, folder)


@pytest.mark.parametrize("arguments", [
    ["-m", "says", "a"], ["-m", "no_such_module_here"], ["-c", "import sys; print(sys.argv); 1/0", "b"],
    ["no_such_script.py"], ["-V"], ["-m", "json.tool", "--help"]])
def test_modules_and_texts_are_run_as_well(source, folder, arguments):
    argv = [sys.executable, *arguments]
    there, here = run_there(source, argv, folder), run_here(argv, folder)
    assert (there[0], there[1].replace("python3", "python")) == (here[0], here[1].replace("python3", "python"))


def test_other_programs_are_run_in_its_place(source, folder):
    assert run_there(source, ["/bin/sh", "-c", "echo $0 $PPID >/dev/null; pwd; exit 3"], folder) == (3, f"{folder}\n")
    code, printed = run_there(source, ["/no/such/program"], folder)
    assert code == 1 and printed == "bwrap: execvp /no/such/program: No such file or directory\n"


def test_it_becomes_a_program_whatever_it_set_at_its_start(source):
    """Without LANG an interpreter sets LC_CTYPE itself: that is no other environment than a new one's."""
    env = {"PATH": os.environ["PATH"]}
    ours, theirs = socket.socketpair()
    server = subprocess.Popen([sys.executable, "-c", source, "this_too"], stdin=theirs, cwd="/", env=env)
    theirs.close()
    assert ours.recv(5) == b"ready"
    ask = "import os, sys; print(os.getpid(), 'colorsys' in sys.modules, os.environ.get('LC_CTYPE')); sys.exit(3)"
    here = subprocess.run([sys.executable, "-c", ask], env=env, capture_output=True, text=True, timeout=WAIT_SECONDS)
    text = json.dumps({"argv": [sys.executable, "-c", ask], "env": env, "cwd": "/", "plain": False, "becomes": True})
    read_end, write_end = os.pipe()
    socket.send_fds(ours, [struct.pack("<I", len(text))], [write_end])
    ours.sendall(text.encode())
    os.close(write_end)
    with os.fdopen(read_end) as output:
        assert output.read() == f"{server.pid} True {here.stdout.split()[2]}\n"
    assert server.wait(WAIT_SECONDS) == 3


def test_what_it_imported_is_there_unless_the_job_needs_another(source, folder, tmp_path):
    ask = [sys.executable, "-c", "import sys; print('colorsys' in sys.modules)"]
    assert run_there(source, ask, folder) == (0, "True\n")
    assert run_there(source, ask, folder, plain=True) == (0, "False\n")
    assert run_there(source, ask, folder, env=environment(OMP_NUM_THREADS="3")) == (0, "False\n")
    assert run_there(source, ask, folder, env=environment(PYTHONHASHSEED="3")) == (0, "False\n")
    (tmp_path / "colorsys.py").write_text("MINE = 1")
    own = [sys.executable, "-c", "import colorsys; print(colorsys.MINE)"]
    assert run_there(source, own, folder, env=environment(PYTHONPATH=str(tmp_path))) == (0, "1\n")
    (tmp_path / "x.py").write_text("import colorsys; print(colorsys.MINE)")
    assert run_there(source, [sys.executable, "x.py"], tmp_path) == (0, "1\n")
