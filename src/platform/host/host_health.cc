#include "host/host_health.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "collective/hardware.h"
#include "net/http_client.h"

namespace yard::host {
namespace {

using Steady = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kMeasureTime{60};
constexpr size_t kCopyBytes = 64 << 20;
constexpr size_t kDiskBytes = 128 << 20;

double seconds_since(Steady::time_point start) {
  return std::chrono::duration<double>(Steady::now() - start).count();
}

// Independent chains, so that the units and not their latency are measured.
double measure_gflops() {
  constexpr int kChains = 16;
  constexpr int kRounds = 20'000;
  std::array<double, kChains> values;
  values.fill(1.0);
  const auto start = Steady::now();
  uint64_t operations = 0;
  while (Steady::now() - start < kMeasureTime) {
    for (int round = 0; round < kRounds; ++round)
      for (double& value : values) value = value * 0.999999 + 1e-6;
    operations += uint64_t{2} * kChains * kRounds;
  }
  double sum = 0;
  for (const double value : values) sum += value;
  // Never true; the compiler cannot know, and must compute the chains.
  if (sum < 0) operations = 0;
  return double(operations) / seconds_since(start) / 1e9;
}

double measure_memory() {
  std::vector<char> source(kCopyBytes, 1), target(kCopyBytes);
  std::memcpy(target.data(), source.data(), kCopyBytes);  // touches the pages
  const auto start = Steady::now();
  uint64_t copied = 0;
  while (Steady::now() - start < kMeasureTime) {
    std::memcpy(target.data(), source.data(), kCopyBytes);
    source[size_t(copied % kCopyBytes)] = target[kCopyBytes - 1];
    copied += kCopyBytes;
  }
  return double(copied) / seconds_since(start);
}

Result<double> measure_disk(const std::string& folder) {
  const std::string path = folder + "/.yard-health";
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file.valid()) return errno_error(path, errno);
  ::unlink(path.c_str());
  const std::vector<char> piece(1 << 20, 'y');
  const auto start = Steady::now();
  for (size_t written = 0; written < kDiskBytes;) {
    const ssize_t put = ::write(file.get(), piece.data(), piece.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return errno_error(path, errno);
    written += size_t(put);
  }
  if (::fdatasync(file.get()) != 0) return errno_error(path, errno);
  return double(kDiskBytes) / seconds_since(start);
}

HealthCheck floor_check(std::string name, double value, double floor, std::string_view unit) {
  HealthCheck check{.name = std::move(name), .value = value, .limit = floor, .message = {}};
  check.passed = value >= floor;
  if (!check.passed)
    check.message =
        fmt::format("{}: {:.4g} {}, at least {:.4g} is wanted", check.name, value, unit, floor);
  return check;
}

HealthCheck failed_check(std::string name, const Error& error) {
  return {.name = name, .passed = false, .message = fmt::format("{}: {}", name, error.message)};
}

HealthCheck check_space(const jobs::PlanHealth& floors, const std::string& folder) {
  struct statvfs info = {};
  if (::statvfs(folder.c_str(), &info) != 0)
    return failed_check("space", errno_error(folder, errno));
  return floor_check("space", double(info.f_bavail) * double(info.f_frsize),
                     double(floors.free_bytes_min), "bytes free");
}

void check_clock(const jobs::PlanHealth& floors, const std::string& store_url,
                 const StopToken& stop, const Clock& clock, std::vector<HealthCheck>& checks) {
  HttpClient client({});
  HttpRequest request;
  request.method = "HEAD";
  request.url = store_url;
  request.total_timeout = std::chrono::seconds(5);
  request.stop = stop;
  const auto response = client.send(std::move(request));
  if (!response) return;
  const auto date = response->headers.find("date");
  const auto theirs = date ? parse_http_date(std::string(*date)) : std::nullopt;
  if (!theirs) return;
  const double skew = std::fabs(to_unix_seconds(clock.wall_now()) - *theirs);
  HealthCheck check{
      .name = "clock", .value = skew, .limit = floors.clock_skew_s_max, .message = {}};
  check.passed = skew <= floors.clock_skew_s_max;
  if (!check.passed)
    check.message = fmt::format("clock: {:.0f} s from the store's, at most {:.0f} is allowed", skew,
                                floors.clock_skew_s_max);
  checks.push_back(std::move(check));
}

}  // namespace

std::optional<double> parse_http_date(const std::string& text) {
  struct tm parts = {};
  const char* const end = ::strptime(text.c_str(), "%a, %d %b %Y %H:%M:%S GMT", &parts);
  if (end == nullptr || *end != '\0') return std::nullopt;
  return double(::timegm(&parts));
}

std::vector<HealthCheck> check_health(const jobs::PlanHealth& floors, const std::string& folder,
                                      const std::string& store_url, const StopToken& stop,
                                      const Clock& clock) {
  std::vector<HealthCheck> checks;
  if (floors.free_bytes_min > 0) checks.push_back(check_space(floors, folder));
  if (floors.cpu_gflops_min > 0 && !stop.stopped())
    checks.push_back(floor_check("cpu", measure_gflops(), floors.cpu_gflops_min, "GFLOPS"));
  if (floors.memory_bytes_per_second_min > 0 && !stop.stopped())
    checks.push_back(floor_check("memory", measure_memory(), floors.memory_bytes_per_second_min,
                                 "bytes a second"));
  if (floors.disk_bytes_per_second_min > 0 && !stop.stopped()) {
    const auto speed = measure_disk(folder);
    checks.push_back(
        speed ? floor_check("disk", *speed, floors.disk_bytes_per_second_min, "bytes a second")
              : failed_check("disk", speed.error()));
  }
  if (floors.gpu_count_min > 0 && !stop.stopped()) {
    const auto hardware = collective::read_host_hardware();
    checks.push_back(
        hardware ? floor_check("gpu", double(hardware->gpus.size()), floors.gpu_count_min, "GPUs")
                 : failed_check("gpu", hardware.error()));
  }
  if (floors.clock_skew_s_max > 0 && !store_url.empty() && !stop.stopped())
    check_clock(floors, store_url, stop, clock, checks);
  return checks;
}

Json to_json(const std::vector<HealthCheck>& checks) {
  Json told = Json::array();
  for (const HealthCheck& check : checks)
    told.push_back({{"name", check.name},
                    {"value", check.value},
                    {"limit", check.limit},
                    {"passed", check.passed}});
  return told;
}

Status judge_health(const std::vector<HealthCheck>& checks) {
  std::string failed;
  for (const HealthCheck& check : checks)
    if (!check.passed) failed += (failed.empty() ? "" : "; ") + check.message;
  if (failed.empty()) return Ok{};
  return Error{Code::kUnavailable, failed};
}

}  // namespace yard::host
