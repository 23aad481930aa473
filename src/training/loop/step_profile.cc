#include "loop/step_profile.h"

#include <ATen/Context.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/profiler_kineto.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/log.h"
#include "tensor/guard_torch.h"

namespace yard::loop {
namespace {

using torch::profiler::impl::ActivityType;
using torch::profiler::impl::ProfilerConfig;
using torch::profiler::impl::ProfilerState;

std::set<ActivityType> activities() {
  std::set<ActivityType> out = {ActivityType::CPU};
  if (at::hasCUDA()) out.insert(ActivityType::CUDA);
  return out;
}

}  // namespace

StepProfile::~StepProfile() {
  // A run that ends before the last traced step leaves no trace.
  if (is_tracing_) (void)torch::autograd::profiler::disableProfiler();
}

void StepProfile::begin_step() {
  if (++seen_count_ != kSkippedSteps + 1 || step_count_ == 0) return;
  const ProfilerConfig config(ProfilerState::KINETO);
  torch::autograd::profiler::prepareProfiler(config, activities());
  torch::autograd::profiler::enableProfiler(config, activities());
  is_tracing_ = true;
}

Status StepProfile::end_step(const StepReport& report) {
  if (!is_tracing_) return Ok{};
  steps_.push_back(report);
  if (static_cast<int64_t>(steps_.size()) < step_count_) return Ok{};
  return finish();
}

Status StepProfile::finish() {
  is_tracing_ = false;
  const std::string table = profile_table(steps_);
  log_info("{} steps were traced into {}.trace.json\n{}", steps_.size(), path_, table);
  YARD_TRY(make_directories(std::filesystem::path(path_).parent_path()));
  YARD_TRY(tensor::guard_torch("writing a trace", [&]() -> Status {
    torch::autograd::profiler::disableProfiler()->save(path_ + ".trace.json");
    return Ok{};
  }));
  if (!std::filesystem::exists(path_ + ".trace.json"))
    return Error{Code::kUnavailable, path_ + ".trace.json: could not be written"};
  return write_file_atomic(path_ + ".txt", table);
}

std::string profile_table(const std::vector<StepReport>& steps) {
  YARD_CHECK(!steps.empty());
  struct Part {
    const char* name;
    double StepReport::*seconds;
  };
  const auto mean = [&](double StepReport::*field) {
    double sum = 0;
    for (const StepReport& step : steps) sum += step.*field;
    return sum / static_cast<double>(steps.size());
  };
  const double whole = std::max(mean(&StepReport::step_s), 1e-12);
  double rest = whole;
  std::string out = fmt::format("{:<14}{:>10}{:>8}\n", "part", "ms a step", "share");
  const auto line = [&](const char* name, double seconds) {
    out += fmt::format("{:<14}{:>10.3f}{:>7.1f} %\n", name, seconds * 1e3, 100 * seconds / whole);
  };
  for (const Part& part :
       {Part{"data", &StepReport::data_wait_s}, Part{"forward", &StepReport::forward_s},
        Part{"backward", &StepReport::backward_s}, Part{"communication", &StepReport::comm_wait_s},
        Part{"optimizer", &StepReport::optimizer_s}}) {
    line(part.name, mean(part.seconds));
    rest -= mean(part.seconds);
  }
  line("other", std::max(rest, 0.0));
  line("step", whole);
  return out;
}

}  // namespace yard::loop
