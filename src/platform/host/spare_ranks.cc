#include "host/spare_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/file.h"
#include "base/log.h"

namespace yard::host {
namespace {

constexpr int kRanksMax = 64;  // a host's; a torch of its own takes some hundred megabytes
constexpr uint64_t kFreeBytesOfRankMin = uint64_t{1} << 30;
constexpr uint64_t kMapsBytesMax = uint64_t{64} << 20;
// DistributedDataParallel imports it, and with it eight hundred modules.
constexpr const char* kSlowestImport = "torch._dynamo";

uint64_t available_memory_bytes() {
  const auto text = read_file("/proc/meminfo");
  constexpr std::string_view kKey = "MemAvailable:";
  const size_t at = text ? text->find(kKey) : std::string::npos;
  if (at == std::string::npos) return 0;
  const size_t digits = text->find_first_not_of(' ', at + kKey.size());
  if (digits == std::string::npos) return 0;
  uint64_t kib = 0;
  std::from_chars(text->data() + digits, text->data() + text->size(), kib);
  return kib * 1024;
}

}  // namespace

bool has_loaded_torch(int64_t pid) {
  const auto maps = read_file(fmt::format("/proc/{}/maps", pid), kMapsBytesMax);
  return maps && maps->find("/libtorch_cpu.so") != std::string::npos;
}

SpareRanks::SpareRanks(SpareRanksOptions options) : options_(std::move(options)) {}

bool SpareRanks::is_wanted() const {
  const jobs::JobSpec& spec = *options_.spec;
  const std::string program = std::filesystem::path(spec.command[0]).filename();
  return spec.ranks <= kRanksMax && program.starts_with("python") &&
         (spec.retries.rank_fault > 0 || spec.retries.unavailable > 0);
}

void SpareRanks::look(const std::vector<int64_t>& pids, const AttemptPlan& next) {
  if (has_started_ || !is_wanted()) return;
  const auto now = options_.clock->now();
  if (!torch_seen_at_) {
    if (pids.empty() || !std::ranges::all_of(pids, has_loaded_torch)) return;
    torch_seen_at_ = now;
  }
  if (now - *torch_seen_at_ < options_.start_after) return;
  has_started_ = true;
  const auto ranks = static_cast<size_t>(options_.spec->ranks);
  if (available_memory_bytes() < kFreeBytesOfRankMin * ranks) return;
  for (size_t rank = 0; rank < ranks; ++rank) {
    SubprocessOptions child;
    child.argv = fork_server_command(options_.spec->command[0], {kSlowestImport});
    child.env = rank_environment(options_.env, *options_.spec, next, static_cast<int>(rank),
                                 options_.core_count);
    child.cwd = options_.spec->working_dir;
    child.kill_with_parent = true;
    child.cpus = rank_cores(options_.cores, options_.spec->ranks, static_cast<int>(rank));
    auto spare = ReservedPython::start(std::move(child));
    if (!spare) {
      log_warning("no interpreter waits for rank {}: {}", rank, spare.error().message);
      return spares_.clear();
    }
    spares_.push_back(*std::move(spare));
  }
}

int SpareRanks::ready_count() {
  return static_cast<int>(
      std::ranges::count_if(spares_, [](const auto& spare) { return spare && spare->is_ready(); }));
}

std::optional<Subprocess> SpareRanks::start(int rank, const SubprocessOptions& wanted) {
  const auto at = static_cast<size_t>(rank);
  if (at >= spares_.size()) return std::nullopt;
  const std::unique_ptr<ReservedPython> spare = std::move(spares_[at]);
  if (!spare || !spare->is_ready()) return std::nullopt;
  auto started = std::move(*spare).run({.command = wanted.argv,
                                        .env = wanted.env,
                                        .cwd = wanted.cwd,
                                        .output_fd = wanted.stdout_fd,
                                        .becomes_it = true});
  if (!started) {
    log_warning("rank {}: {}", rank, started.error().message);
    return std::nullopt;
  }
  return *std::move(started);
}

void SpareRanks::clear() {
  spares_.clear();
  torch_seen_at_.reset();
  has_started_ = false;
}

}  // namespace yard::host
