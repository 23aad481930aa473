"""Reads lines "side operation bytes memory median least" and prints RATIO lines, ours against each peer.

    ratios.py LAYOUT <LINES

LAYOUT: 2ranks, 4ranks or 2hosts. Of several rounds the best median counts.
"""
import collections
import sys


def goal(layout, operation, size_bytes, memory, peer):
    if peer != "gloo":
        return 1 if size_bytes >= 65536 else 0
    if layout == "4ranks":
        return 1.5
    if layout == "2hosts":
        return 1.5 if operation == "all_reduce" and size_bytes >= 1 << 20 else 1
    if operation == "broadcast":
        return 1
    if operation != "all_reduce":
        return 4
    if size_bytes == 4096:
        return 10
    if memory == "private":
        return 2
    return 3.5 if size_bytes > 8 << 20 else 4


def main():
    layout = sys.argv[1]
    best = collections.defaultdict(lambda: float("inf"))
    for line in sys.stdin:
        fields = line.split()
        if len(fields) != 6 or fields[0] not in ("yard", "gloo", "mpi"):
            continue
        side, operation, size, memory, median, _ = fields
        key = operation, int(size), memory, side
        best[key] = min(best[key], float(median))
    for operation, size, memory, side in sorted(best):
        if side != "yard":
            continue
        for peer in ("gloo", "mpi"):
            theirs = best.get((operation, size, "private", peer))
            if theirs is not None:
                name = f"{operation}_{size}_{memory}_vs_{peer}_{layout}"
                ratio = theirs / best[operation, size, memory, "yard"]
                print(f"RATIO {name} {ratio:.2f} {goal(layout, operation, size, memory, peer)}")


if __name__ == "__main__":
    main()
