"""Between trainyard's sharded checkpoints and folders of torch.distributed.checkpoint (DCP).

    python -m trainyard.checkpoint from-dcp DCP_FOLDER URL --step 1200
    python -m trainyard.checkpoint to-dcp URL DCP_FOLDER

The bytes pass through plain safetensors files in a temporary folder beside the target, one at a
time in memory; `yard checkpoint import` and `export` do the rest, with every checksum. torch and
safetensors are imported when they are needed. Reading and writing runs in one process, whatever
number of ranks wrote the folder or will load it.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator

from .errors import Error, InvalidArgument, NotFound, of_code

__all__ = ["from_dcp", "to_dcp"]

FILE_BYTES_MAX = 2 << 30
# Of yard, as src/foundation/base/exit_code.h has them.
EXIT_CODES = {
    2: "invalid_argument",
    3: "not_found",
    4: "corrupt",
    5: "exhausted",
    6: "unavailable",
    7: "deadline_exceeded",
    8: "cancelled",
}


def from_dcp(
    folder: str | pathlib.Path,
    url: str,
    *,
    step: int = 0,
    yard: str | pathlib.Path | None = None,
    options: Iterable[str] = (),
) -> list[str]:
    """Makes checkpoint `step` under `url` out of a DCP folder, its tensors whole and by DCP's names.

    Returns the names of entries that are no tensors: DCP keeps those as pickles, which would run
    whatever code is in them, so they are left out.
    options: of `yard checkpoint import`, as ("--endpoint", "http://...").
    NotFound: no such folder; InvalidArgument: a dtype that safetensors has not, no tensor at all.
    """
    from torch.distributed.checkpoint import FileSystemReader
    from torch.distributed.checkpoint.metadata import TensorStorageMetadata

    folder = pathlib.Path(folder)
    if not (folder / ".metadata").is_file():
        raise NotFound(f"{folder}: is no folder of torch.distributed.checkpoint: it has no .metadata")
    entries = FileSystemReader(folder).read_metadata().state_dict_metadata
    tensors = {name: entry for name, entry in entries.items() if isinstance(entry, TensorStorageMetadata)}
    if not tensors:
        raise InvalidArgument(f"{folder}: has no tensor")
    with tempfile.TemporaryDirectory(prefix="yard-dcp-", dir=_beside(url)) as work:
        _write_safetensors(folder, tensors, pathlib.Path(work))
        _run(yard, ["checkpoint", "import", work, url, "--step", str(step), *options])
    return sorted(set(entries) - set(tensors))


def to_dcp(
    url: str,
    folder: str | pathlib.Path,
    *,
    step: int | None = None,
    yard: str | pathlib.Path | None = None,
    options: Iterable[str] = (),
) -> list[str]:
    """Writes a checkpoint (`step`, else the newest) as a DCP folder, which must not exist or be empty.

    Returns the tensors' names. options: of `yard checkpoint export`.
    """
    import torch.distributed.checkpoint as dcp
    from safetensors import safe_open

    folder = pathlib.Path(folder)
    if folder.exists() and any(folder.iterdir()):
        raise InvalidArgument(f"{folder}: is not empty")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="yard-dcp-", dir=folder.parent) as work:
        which = [] if step is None else ["--step", str(step)]
        _run(yard, ["checkpoint", "export", url, work, *which, *options])
        # Mapped files: a tensor takes memory only while it is written.
        state = {}
        for path in sorted(pathlib.Path(work).glob("*.safetensors")):
            with safe_open(path, framework="pt") as file:
                state.update((name, file.get_tensor(name)) for name in file.keys())
        dcp.save(state, storage_writer=dcp.FileSystemWriter(folder), no_dist=True)
    return sorted(state)


def _write_safetensors(folder: pathlib.Path, tensors: dict, work: pathlib.Path) -> None:
    import torch
    import torch.distributed.checkpoint as dcp
    from safetensors.torch import save_file

    for i, names in enumerate(_groups(tensors)):
        state = {name: torch.empty(tensors[name].size, dtype=tensors[name].properties.dtype) for name in names}
        dcp.load(state, storage_reader=dcp.FileSystemReader(folder), no_dist=True)
        try:
            save_file(state, work / f"{i:05}.safetensors")
        except KeyError as error:
            raise InvalidArgument(f"{folder}: safetensors has no dtype {error} ({', '.join(names)})") from None


def _groups(tensors: dict) -> Iterator[list[str]]:
    """Names of tensors that fit into a file together."""
    group, filled = [], 0
    for name in sorted(tensors):
        size = tensors[name].size.numel() * tensors[name].properties.dtype.itemsize
        if group and filled + size > FILE_BYTES_MAX:
            yield group
            group, filled = [], 0
        group.append(name)
        filled += size
    yield group


def _beside(url: str) -> pathlib.Path | None:
    """The nearest folder that exists where `url` is a path: on its disk there is room for the bytes."""
    if "://" in url:
        return None
    path = pathlib.Path(url).absolute()
    while not path.is_dir():
        path = path.parent
    return path.parent if path == pathlib.Path(url).absolute() else path


def _run(yard: str | pathlib.Path | None, arguments: list[str]) -> None:
    program = str(yard) if yard is not None else shutil.which("yard")
    if program is None:
        raise NotFound("the command 'yard' is not on the PATH; name it with yard=... or --yard")
    done = subprocess.run([program, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    if done.returncode != 0:
        code = EXIT_CODES.get(done.returncode, "internal")
        raise of_code(code, done.stderr.strip().removeprefix("yard: "))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m trainyard.checkpoint", description=__doc__.split("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    take = commands.add_parser("from-dcp", help="make a checkpoint out of a DCP folder")
    take.add_argument("folder")
    take.add_argument("url")
    take.add_argument("--step", type=int, default=0)
    give = commands.add_parser("to-dcp", help="write a checkpoint as a DCP folder")
    give.add_argument("url")
    give.add_argument("folder")
    give.add_argument("--step", type=int)
    for command in (take, give):
        command.add_argument("--yard", help="the command yard, where it is not on the PATH")
        command.add_argument("--endpoint", help="of an S3 service")
    given = parser.parse_args(arguments)
    common = {
        "step": given.step,
        "yard": given.yard,
        "options": ["--endpoint", given.endpoint] if given.endpoint else [],
    }
    try:
        if given.command == "from-dcp":
            left_out = from_dcp(given.folder, given.url, **common)
            result = {"url": given.url, "step": given.step, "left_out": left_out}
        else:
            result = {"folder": given.folder, "tensors": len(to_dcp(given.url, given.folder, **common))}
    except Error as error:
        print(f"trainyard.checkpoint: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
