#include "jobs/platform_job.h"

#include <array>

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kJobKindCount> kKindNames = {"training", "processing"};

}  // namespace

std::string_view to_string(JobKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<JobKind> job_kind_from(std::string_view name) {
  for (size_t i = 0; i < kKindNames.size(); ++i)
    if (kKindNames[i] == name) return static_cast<JobKind>(i);
  return std::nullopt;
}

}  // namespace yard::jobs
