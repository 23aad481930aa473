#include "jobs/platform_job.h"

#include <array>

#include "jobs/enum_names_internal.h"

namespace yard::jobs {
namespace {

constexpr std::array<std::string_view, kJobKindCount> kKindNames = {"training", "processing"};

}  // namespace

std::string_view to_string(JobKind kind) {
  return kKindNames[static_cast<size_t>(kind)];
}

std::optional<JobKind> job_kind_from(std::string_view name) {
  return internal::from_name<JobKind>(kKindNames, name);
}

}  // namespace yard::jobs
