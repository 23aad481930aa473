// MemoryGroup: a limit of memory for a tree of processes that the kernel holds: a control group,
// version 2 or 1, whichever this machine has.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "base/result.h"

namespace yard::sandbox {

class MemoryGroup {
 public:
  // `id` names it: the folder of a host. What an earlier one of that name left is taken away.
  // kUnavailable: not allowed here, or no such controller.
  static Result<std::unique_ptr<MemoryGroup>> make(const std::string& id, uint64_t limit_bytes);
  ~MemoryGroup();  // ends what still runs in it, and removes it

  // A process that writes its number there belongs to it, with all that it starts from then on.
  std::string procs_path() const { return path_ + "/cgroup.procs"; }
  // How often the kernel ended a process because of the limit.
  uint64_t kill_count() const;
  uint64_t used_bytes() const;

  // Removes what a killed process left of it. Ok when there is nothing.
  static void clean(const std::string& id);

 private:
  MemoryGroup(std::string path, bool is_v2) : path_(std::move(path)), is_v2_(is_v2) {}
  const std::string path_;
  const bool is_v2_;
};

// "/sys/fs/cgroup/memory" and "/process/x" of the texts of /proc/self/mountinfo and
// /proc/self/cgroup; `root` empty: no memory controller. Pure.
struct MemoryHierarchy {
  std::string root;  // where it is mounted
  std::string own;   // this process's group below it
  bool is_v2 = false;
};
MemoryHierarchy find_memory_hierarchy(std::string_view mountinfo, std::string_view cgroups);

}  // namespace yard::sandbox
