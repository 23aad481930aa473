"""Packs a folder of samples with the webdataset library's ShardWriter: SRC OUT [PROCESSES].

One process for each part of the samples, as its users do to be faster; files are read as they are
and given to the writer as bytes, so that nothing is encoded. Prints "SECONDS CPU_SECONDS SAMPLES".
"""

import multiprocessing
import os
import pathlib
import resource
import sys
import time

import webdataset


def pack(source, out, part, parts):
    groups = {}
    for path in sorted(pathlib.Path(source).iterdir()):
        key, _, extension = path.name.partition(".")
        groups.setdefault(key, {})[extension] = path
    keys = sorted(groups)[part::parts]
    pattern = f"{out}/shard-{part}-%06d.tar"
    with webdataset.ShardWriter(pattern, maxcount=1 << 40, maxsize=1 << 30, verbose=0) as sink:
        for key in keys:
            sink.write(
                {"__key__": key, **{e: path.read_bytes() for e, path in groups[key].items()}}
            )
    return len(keys)


def main():
    source, out = sys.argv[1], sys.argv[2]
    processes = int(sys.argv[3]) if len(sys.argv) > 3 else 1
    os.makedirs(out)
    begin = time.monotonic()
    if processes == 1:
        count = pack(source, out, 0, 1)
    else:
        with multiprocessing.Pool(processes) as pool:
            jobs = [(source, out, part, processes) for part in range(processes)]
            count = sum(pool.starmap(pack, jobs))
    elapsed = time.monotonic() - begin
    used = [resource.getrusage(w) for w in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    print(f"{elapsed:.4f} {sum(u.ru_utime + u.ru_stime for u in used):.4f} {count}")


if __name__ == "__main__":
    main()
