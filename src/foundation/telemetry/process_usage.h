// What a tree of processes has used, read from /proc: all that a job's host runs below one process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <vector>

#include "base/result.h"

namespace yard {

struct ProcessUsage {
  pid_t pid = 0;
  double cpu_s = 0;             // user and system, of all threads
  uint64_t memory_bytes = 0;    // its own: anonymous pages in memory
  uint64_t shared_bytes = 0;    // /dev/shm and the like, as mapped: the same pages may count twice
  uint64_t resident_bytes = 0;  // all its pages in memory, shared ones in full
  uint64_t read_bytes = 0;      // from disks
  uint64_t written_bytes = 0;   // to disks
  uint64_t moved_bytes = 0;     // read and written: files, pipes, whatever has a descriptor
};

struct TreeUsage {
  double cpu_s = 0;  // ended processes too, once somebody in the tree has waited for them
  uint64_t memory_bytes = 0;
  uint64_t shared_bytes_max = 0;  // of the process that maps most
  uint64_t resident_bytes = 0;    // pages that processes share as often as they are mapped
  uint64_t read_bytes = 0;        // of processes that live
  uint64_t written_bytes = 0;
  uint64_t moved_bytes = 0;
  std::vector<ProcessUsage> processes;  // parents before children
};

// The process and all below it. A process that ends meanwhile counts as far as it was read.
// kNotFound: there is no such process. Reading a hundred processes takes some milliseconds.
Result<TreeUsage> read_tree_usage(pid_t root);

// Resident memory of the processes, of a page that n share an n-th each. The kernel walks all their
// pages for it: to be asked where resident_bytes does not answer the question.
uint64_t read_proportional_bytes(const TreeUsage& tree);

// Bytes since the machine's start on all interfaces but lo, of the process's network namespace.
struct NetworkUsage {
  uint64_t received_bytes = 0;
  uint64_t sent_bytes = 0;
};
Result<NetworkUsage> read_network_usage(pid_t pid);

}  // namespace yard
