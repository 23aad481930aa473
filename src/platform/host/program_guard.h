// ProgramGuard: ends a program that takes more memory or disk than its host has, or that hangs.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/stop_token.h"
#include "host/host_outcome.h"
#include "jobs/progress_line.h"
#include "sandbox/memory_group.h"
#include "telemetry/process_usage.h"

namespace yard::host {

// What shows that a program does something. All of it only grows.
struct LifeSigns {
  uint64_t line_count = 0;  // of its log
  double cpu_s = 0;         // of all its processes
  uint64_t io_bytes = 0;    // read and written by them
};

// Decides by LifeSigns. Pure but for what it remembers.
class HangWatch {
 public:
  explicit HangWatch(double after_s) : after_s_(after_s) {}
  // Whether for so long no line came, no core was busy for a hundredth of the time, and next to
  // nothing was read or written. `now_s` never goes back.
  bool is_hung(const LifeSigns& signs, double now_s);

 private:
  const double after_s_;
  std::optional<LifeSigns> last_;
  double alive_s_ = 0;
};

// Decides by the steps that a program tells. Pure but for what it remembers.
class StepWatch {
 public:
  // `factor` 0: nothing hangs. Never before `wait_s_min`.
  StepWatch(double factor, double wait_s_min) : factor_(factor), wait_s_min_(wait_s_min) {}
  // Whether no step has ended for `factor` times the median step, nor for twice the longest pause
  // between two looks that saw one (an evaluation, a checkpoint). Nothing is known before
  // kStepsSeenMin. `mark`: what was told last. `now_s` never goes back.
  bool is_stalled(const std::optional<jobs::ProgressMark>& mark, double now_s);
  double median_step_s() const;

 private:
  static constexpr size_t kStepsSeenMin = 5;
  static constexpr size_t kStepsKeptMax = 256;
  void note_step(double done, double passed_s);

  const double factor_;
  const double wait_s_min_;
  std::optional<jobs::ProgressMark> last_;
  double moved_s_ = 0;
  double longest_s_ = 0;
  std::deque<double> step_s_;  // of the last looks that saw a step end
};

struct ProgramGuardOptions {
  uint64_t memory_limit_bytes = 0;               // 0: none
  const sandbox::MemoryGroup* memory = nullptr;  // null: the limit is watched, not held
  uint64_t volume_limit_bytes = 0;               // 0: none
  std::vector<std::string> folders;              // that count for the volume
  double hang_after_s = 0;                       // 0: never
  std::function<uint64_t()> line_count;
  double hang_after_steps = 0;  // median steps; 0: never. At least hang_after_s
  std::function<std::optional<jobs::ProgressMark>()> progress;
  std::function<std::optional<std::string>()> hardware_fault;  // what the host's devices report
};

// look() and end_of() from one thread; the disk is measured on one of its own.
class ProgramGuard {
 public:
  explicit ProgramGuard(ProgramGuardOptions options);
  ~ProgramGuard();

  // How long a look may be put off.
  std::chrono::milliseconds period() const;
  // Of the program below `pid`: why it has to end.
  std::optional<HostEnd> look(int pid);
  // Of one that has ended by itself: whether a limit was the reason.
  std::optional<HostEnd> end_of(int exit_code) const;

 private:
  std::optional<HostEnd> look_at_memory(int pid) const;
  std::optional<HostEnd> look_at_steps(double now_s);
  void measure_volume();

  const ProgramGuardOptions options_;
  HangWatch hang_;
  StepWatch steps_;
  std::atomic<uint64_t> volume_bytes_ = 0;
  StopSource stop_;
  std::thread thread_;
};

LifeSigns life_signs_of(const TreeUsage& tree);
// Resident, shared pages by their share where the sum without that is above `limit_bytes`.
uint64_t memory_of(const TreeUsage& tree, uint64_t limit_bytes);
// Blocks below `folder`, on its own file system only. What goes meanwhile does not count.
uint64_t disk_usage(const std::string& folder, const StopToken& stop);

// Lines that show what each process does: by py-spy, gdb or eu-stack where one of them is there,
// else what the kernel tells. Takes at most some seconds for each.
std::vector<std::string> stacks_of(const std::vector<int>& pids);

}  // namespace yard::host
