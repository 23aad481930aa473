#!/usr/bin/env bash
# Prints how many compilers to run at once: a file that includes libtorch takes about 1 GiB, so
# memory may set a lower number than the CPUs do.
set -euo pipefail

memory_bytes=$(($(awk '/^MemAvailable:/ {print $2}' /proc/meminfo) * 1024))
limit_file=/sys/fs/cgroup/memory.max
if [ -r "$limit_file" ] && limit_bytes=$(<"$limit_file") && [ "$limit_bytes" != max ]; then
  memory_bytes=$((limit_bytes < memory_bytes ? limit_bytes : memory_bytes))
fi
jobs=$((memory_bytes / (1 << 30)))
cpus=$(nproc)
jobs=$((jobs < cpus ? jobs : cpus))
echo $((jobs > 1 ? jobs : 1))
