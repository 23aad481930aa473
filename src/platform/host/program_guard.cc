#include "host/program_guard.h"

#include <fmt/format.h>
#include <fts.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/log.h"
#include "base/units.h"

namespace yard::host {
namespace {

using jobs::HostCause;
using jobs::HostOutcome;
using std::chrono::milliseconds;

constexpr int kKilledCode = 137;  // 128 + SIGKILL
constexpr milliseconds kPeriod{1'000};
// Where the kernel does not hold the limit.
constexpr milliseconds kMemoryPeriod{200};
constexpr milliseconds kVolumePeriodMin{1'000};
// Measuring takes at most one part of the time in so many.
constexpr int kVolumeRest = 20;
// Interpreters and libraries wake up now and then even when nothing goes on.
constexpr double kBusyShareMin = 0.01;
constexpr uint64_t kIoBytesMin = 64 << 10;
constexpr double kPauseFactor = 2;

HostEnd failed(HostCause cause, int exit_code, std::string reason) {
  return {.outcome = HostOutcome::kFailed,
          .exit_code = exit_code,
          .reason = std::move(reason),
          .cause = cause};
}

// SageMaker's words, and what they leave out.
HostEnd out_of_memory(uint64_t limit_bytes) {
  return failed(HostCause::kUserError, kKilledCode,
                fmt::format("ClientError: Please use an instance type with more memory, or reduce "
                            "the size of job data processed on an instance: the job needs more "
                            "than the {} that its instance has, exit code: {}",
                            format_size_bytes(limit_bytes), kKilledCode));
}

HostEnd out_of_volume(uint64_t used_bytes, uint64_t limit_bytes) {
  return failed(
      HostCause::kUserError, kKilledCode,
      fmt::format("ClientError: the job's files take {}, its volume has {} "
                  "(VolumeSizeInGB), exit code: {}",
                  format_size_bytes(used_bytes), format_size_bytes(limit_bytes), kKilledCode));
}

}  // namespace

bool HangWatch::is_hung(const LifeSigns& signs, double now_s) {
  if (after_s_ <= 0) return false;
  const bool is_alive =
      !last_ || signs.line_count != last_->line_count ||
      signs.cpu_s - last_->cpu_s > kBusyShareMin * (now_s - alive_s_) + kBusyShareMin ||
      signs.io_bytes > last_->io_bytes + kIoBytesMin || signs.cpu_s < last_->cpu_s;
  if (is_alive) {
    last_ = signs;
    alive_s_ = now_s;
  }
  return now_s - alive_s_ >= after_s_;
}

void StepWatch::note_step(double done, double passed_s) {
  const double steps = done - last_->done;
  // A new stage or epoch counts from its start; how many steps that were is not known.
  if (steps > 0) step_s_.push_back(passed_s / steps);
  if (step_s_.size() > kStepsKeptMax) step_s_.pop_front();
  longest_s_ = std::max(longest_s_, passed_s);
}

double StepWatch::median_step_s() const {
  std::vector<double> sorted(step_s_.begin(), step_s_.end());
  if (sorted.empty()) return 0;
  const auto middle = sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
  std::ranges::nth_element(sorted, middle);
  return *middle;
}

bool StepWatch::is_stalled(const std::optional<jobs::ProgressMark>& mark, double now_s) {
  if (factor_ <= 0 || !mark) return false;
  if (!last_ || mark->done != last_->done || mark->total != last_->total) {
    if (last_) note_step(mark->done, now_s - moved_s_);
    last_ = mark;
    moved_s_ = now_s;
  }
  if (step_s_.size() < kStepsSeenMin) return false;
  // Who has told its last step may well take long over what comes after it.
  if (last_->done >= last_->total) return false;
  const double limit_s =
      std::max({wait_s_min_, factor_ * median_step_s(), kPauseFactor * longest_s_});
  return now_s - moved_s_ >= limit_s;
}

LifeSigns life_signs_of(const TreeUsage& tree) {
  return {.cpu_s = tree.cpu_s, .io_bytes = tree.moved_bytes};
}

uint64_t memory_of(const TreeUsage& tree, uint64_t limit_bytes) {
  return tree.resident_bytes <= limit_bytes ? tree.resident_bytes : read_proportional_bytes(tree);
}

uint64_t disk_usage(const std::string& folder, const StopToken& stop) {
  std::string path = folder;
  char* const roots[] = {path.data(), nullptr};
  FTS* const tree = ::fts_open(roots, FTS_PHYSICAL | FTS_XDEV | FTS_NOCHDIR, nullptr);
  if (tree == nullptr) return 0;
  uint64_t sum = 0;
  while (const FTSENT* entry = ::fts_read(tree)) {
    if (stop.stopped()) break;
    const bool counts = entry->fts_info != FTS_DP && entry->fts_info != FTS_NS;
    if (counts && entry->fts_statp != nullptr) sum += uint64_t(entry->fts_statp->st_blocks) * 512;
  }
  ::fts_close(tree);
  return sum;
}

ProgramGuard::ProgramGuard(ProgramGuardOptions options)
    : options_(std::move(options)),
      hang_(options_.hang_after_s),
      steps_(options_.progress && options_.hang_after_s > 0 ? options_.hang_after_steps : 0,
             options_.hang_after_s) {
  if (options_.volume_limit_bytes > 0) thread_ = std::thread([this] { measure_volume(); });
}

ProgramGuard::~ProgramGuard() {
  stop_.request();
  if (thread_.joinable()) thread_.join();
}

void ProgramGuard::measure_volume() {
  const StopToken stop = stop_.token();
  milliseconds pause{0};
  while (!stop.wait_for(pause)) {
    const auto start = std::chrono::steady_clock::now();
    uint64_t sum = 0;
    for (const std::string& folder : options_.folders) sum += disk_usage(folder, stop);
    if (!stop.stopped()) volume_bytes_ = sum;
    const auto took = std::chrono::ceil<milliseconds>(std::chrono::steady_clock::now() - start);
    pause = std::max(kVolumePeriodMin, took * kVolumeRest);
  }
}

milliseconds ProgramGuard::period() const {
  return options_.memory_limit_bytes > 0 && options_.memory == nullptr ? kMemoryPeriod : kPeriod;
}

std::optional<HostEnd> ProgramGuard::look_at_memory(int pid) const {
  const uint64_t limit = options_.memory_limit_bytes;
  if (limit == 0) return std::nullopt;
  const auto is_over = [&] {
    if (options_.memory != nullptr) return options_.memory->kill_count() > 0;
    const auto tree = read_tree_usage(pid);
    return tree && memory_of(*tree, limit) > limit;
  };
  if (is_over()) return out_of_memory(limit);
  return std::nullopt;
}

std::optional<HostEnd> ProgramGuard::look_at_steps(double now_s) {
  const auto mark = options_.progress ? options_.progress() : std::nullopt;
  if (!steps_.is_stalled(mark, now_s)) return std::nullopt;
  return failed(
      HostCause::kHang, kKilledCode,
      fmt::format("AlgorithmError: the job hangs: it is at {:g} of {:g} and no step ends, "
                  "though one takes {:.3g} s, exit code: {}",
                  mark->done, mark->total, steps_.median_step_s(), kKilledCode));
}

std::optional<HostEnd> ProgramGuard::look(int pid) {
  if (options_.hardware_fault)
    if (const auto fault = options_.hardware_fault()) return HostEnd::host_fault(*fault);
  if (auto end = look_at_memory(pid)) return end;
  if (options_.volume_limit_bytes > 0 && volume_bytes_ > options_.volume_limit_bytes)
    return out_of_volume(volume_bytes_, options_.volume_limit_bytes);
  if (options_.hang_after_s <= 0) return std::nullopt;
  const auto tree = read_tree_usage(pid);
  if (!tree) return std::nullopt;  // it has just ended
  LifeSigns signs = life_signs_of(*tree);
  signs.line_count = options_.line_count ? options_.line_count() : 0;
  const double now_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  if (auto end = look_at_steps(now_s)) return end;
  if (!hang_.is_hung(signs, now_s)) return std::nullopt;
  return failed(HostCause::kHang, kKilledCode,
                fmt::format("AlgorithmError: the job hangs: for {:.0f} s it printed nothing, read "
                            "and wrote nothing and no core was at work, exit code: {}",
                            options_.hang_after_s, kKilledCode));
}

std::optional<HostEnd> ProgramGuard::end_of(int exit_code) const {
  if (exit_code == 0 || options_.memory == nullptr || options_.memory->kill_count() == 0)
    return std::nullopt;
  return out_of_memory(options_.memory_limit_bytes);
}

}  // namespace yard::host
