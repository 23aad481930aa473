"""A Python interpreter that waits in a job's sandbox with its large packages imported.

Standard input is a socket. "ready" goes out when the imports are done; one message comes in: four
bytes of length, JSON {argv, env, cwd, plain, becomes}, and with it the descriptor of the job's
output. What argv names then runs in a forked child, as if it had been started: a Python script,
module or text in this interpreter, everything else, and what this interpreter cannot stand for, by
exec. This process ends with the child's code; the end of the socket ends it, too. With "becomes" it
runs in this process. The arguments name more modules to import.
"""
import importlib.machinery
import json
import os
import signal
import socket
import struct
import sys

PRELOAD = ("numpy", "torch")
# Read once, when an interpreter starts or a library is loaded: another value needs another process.
READ_AT_START = ("PYTHON", "LD_", "OMP_", "KMP_", "GOMP_", "MKL_", "OPENBLAS_", "BLIS_", "NUMEXPR_",
                 "TORCH", "PYTORCH_", "MALLOC_", "GLIBC_", "LC_", "LANG")
ENDED_BY = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def preload():
    loaded = []
    for name in (*PRELOAD, *sys.argv[1:]):
        try:
            __import__(name)
            loaded.append(name)
        except Exception:  # not in this image, or broken: the script will find out
            pass
    return loaded


def receive(channel):
    data, fds, _, _ = socket.recv_fds(channel, 4, 1)
    if len(data) < 4 or not fds:
        os._exit(0)
    size = struct.unpack("<I", data)[0]
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(size - len(parts))
        if not part:
            os._exit(0)
        parts += part
    return json.loads(parts), fds[0]


def search_path(env):
    return [entry for entry in env.get("PYTHONPATH", "").split(os.pathsep) if entry]


def is_this_python(program, env):
    """By whichever of its names in its own folder."""
    if "/" not in program:
        import shutil
        program = shutil.which(program, path=env.get("PATH")) or ""
    return os.path.dirname(program) == os.path.dirname(sys.executable) and \
        os.path.realpath(program) == os.path.realpath(sys.executable)


def kind_of(argv, env):
    """How this interpreter runs argv: "file", "module", "text"; None: it does not."""
    if len(argv) < 2 or not is_this_python(argv[0], env):
        return None
    if argv[1] in ("-m", "-c"):
        return {"-m": "module", "-c": "text"}[argv[1]] if len(argv) > 2 else None
    return None if argv[1].startswith("-") else "file"


def is_hidden(loaded, folders):
    """Whether the job brings a package of its own under the name of one that is imported here."""
    return any(os.path.exists(os.path.join(folder, name + suffix))
               for folder in folders for name in loaded for suffix in ("", ".py"))


def differs(env, own):
    names = {name for name in {**env, **own} if name.startswith(READ_AT_START) and name != "PYTHONPATH"}
    return any(env.get(name) != own.get(name) for name in names)


def environment_at_start():
    """Before this interpreter (LC_CTYPE) and what it imported changed it."""
    with open("/proc/self/environ", "rb") as file:
        return dict(os.fsdecode(item).split("=", 1) for item in file.read().split(b"\0") if b"=" in item)


def exec_plain(argv, env):
    try:
        os.execvpe(argv[0], argv, env)
    except OSError as error:
        os.write(2, f"bwrap: execvp {argv[0]}: {error.strerror}\n".encode())
    os._exit(1)


def run_here(kind, argv, env, own_path):
    """In the child; returns what ends the interpreter: an argument of sys.exit()."""
    import types
    os.environ.clear()
    os.environ.update(env)
    path = [entry for entry in sys.path[1:] if entry not in own_path]
    first = {"file": lambda: os.path.dirname(os.path.realpath(argv[1])), "module": os.getcwd, "text": str}[kind]()
    sys.path[:] = [first, *search_path(env), *path]
    sys.orig_argv = list(argv)
    sys.argv = {"file": argv[1:], "module": ["-m", *argv[3:]], "text": ["-c", *argv[3:]]}[kind]
    processes = sys.modules.get("multiprocessing.process")
    if processes is not None:
        processes.ORIGINAL_DIR = os.getcwd()
    main = types.ModuleType("__main__")
    main.__builtins__ = __builtins__
    sys.modules["__main__"] = main
    try:
        if kind == "module":
            import runpy
            runpy._run_module_as_main(argv[2])
        elif kind == "text":
            exec(compile(argv[2], "<string>", "exec"), main.__dict__)
        else:
            main.__file__ = os.path.abspath(argv[1])
            main.__cached__ = None
            main.__loader__ = importlib.machinery.SourceFileLoader("__main__", main.__file__)
            with open(argv[1], "rb") as file:
                source = file.read()
            exec(compile(source, main.__file__, "exec"), main.__dict__)
    except SystemExit as end:
        return end.code
    except BaseException as error:
        # Without the frames of this file, as python itself would show it.
        trace = error.__traceback__.tb_next
        sys.excepthook(type(error), error.with_traceback(trace), trace)
        if isinstance(error, KeyboardInterrupt):
            sys.stdout.flush()
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.kill(os.getpid(), signal.SIGINT)
        return 1
    return 0


def become_child(request, output, loaded, own):
    argv, env = request["argv"], request["env"]
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    for number in ENDED_BY:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY)
    try:
        os.chdir(request["cwd"])
    except OSError as error:
        os.write(2, f"bwrap: execvp {argv[0]}: {error.strerror}\n".encode())
        os._exit(1)
    kind = None if request["plain"] else kind_of(argv, env)
    folders = [*search_path(env), os.path.dirname(os.path.realpath(argv[1])) if kind == "file" else os.getcwd()]
    # A folder or archive as a program, and what is not there, are left to python itself.
    if kind is None or kind == "file" and not os.path.isfile(argv[1]) or differs(env, own) or is_hidden(loaded, folders):
        exec_plain(argv, env)
    # What it and libraries set at their start they would set in a new interpreter, too.
    by_imports = {name: value for name, value in os.environ.items() if own.get(name) != value}
    return run_here(kind, argv, {**env, **by_imports}, search_path(own))


def serve():
    channel = socket.socket(fileno=os.dup(0))
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.close(null)
    own = environment_at_start()
    loaded = preload()
    channel.sendall(b"ready")
    request, output = receive(channel)
    if request.get("becomes"):
        channel.close()
        return become_child(request, output, loaded, own)
    signal.pthread_sigmask(signal.SIG_BLOCK, ENDED_BY)
    child = os.fork()
    if child == 0:
        channel.close()
        return become_child(request, output, loaded, own)
    for number in ENDED_BY:
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDED_BY)
    os.close(output)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    os._exit(code if code >= 0 else 128 - code)


sys.exit(serve())
