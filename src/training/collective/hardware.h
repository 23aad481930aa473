// What this host has that decides which ranks should talk to which: packages, NUMA nodes and
// caches (hwloc), GPUs and the links between them (NVML, where there is a driver), network cards.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace yard::collective {

struct NumaNode {
  int index = 0;          // the operating system's
  std::vector<int> cpus;  // the operating system's numbers, ascending
  uint64_t memory_bytes = 0;
};

struct SharedCache {
  int level = 0;
  uint64_t size_bytes = 0;
  std::vector<int> cpus;  // that share it
};

struct Gpu {
  int index = 0;  // the driver's
  std::string name;
  std::string uuid;
  std::string bus_id;  // "0000:3b:00.0"
  uint64_t memory_bytes = 0;
  int numa_node = -1;          // -1: not known
  std::vector<int> linked_to;  // GPUs reached by NVLink directly, ascending
};

struct NetworkCard {
  std::string name;
  int64_t megabits_per_s = -1;  // -1: it does not say
  int numa_node = -1;
  bool is_up = false;
  std::vector<std::string> addresses;  // numeric
};

struct HostHardware {
  std::string name;      // the host's; for people
  std::string identity;  // ranks with the same one share memory, see RendezvousOptions
  int package_count = 0;
  int core_count = 0;
  std::vector<int> cpus;  // that this process may use
  std::vector<NumaNode> numa_nodes;
  std::vector<SharedCache> caches;  // of levels that several CPUs share, the largest first
  std::vector<Gpu> gpus;
  std::vector<NetworkCard> network_cards;  // without the loopback
};

// kUnavailable: the system does not tell. A driver that is missing means no GPUs, no Error.
Result<HostHardware> read_host_hardware();
std::string host_identity();

// A row per thing, indented, for people.
std::string describe(const HostHardware& hardware);

// The GPUs in an order in which neighbours are as close as can be: linked before of the same NUMA
// node before the rest. Rank i of the host gets the i-th. Pure.
std::vector<int> gpu_order(const std::vector<Gpu>& gpus);

// The CPUs that rank `local_rank` of `local_count` on a host should use: whole NUMA nodes where
// there are enough, else an even part of one; near its GPU if it has one. Never empty where `cpus`
// is not. Pure.
std::vector<int> cpus_of_rank(const HostHardware& hardware, int local_rank, int local_count);

}  // namespace yard::collective
