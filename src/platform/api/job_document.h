// What the Describe..., List... and Search operations say of a job. Pure.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "jobs/platform_job.h"

namespace yard::api {

// The last value of a MetricDefinition.
struct FinalMetric {
  std::string name;
  double value = 0;
  double t = 0;  // Unix seconds
};

// Everything that clients read, also where nothing is to be said: OutputDataConfig.KmsKeyId, a
// StatusMessage in each transition, LastModifiedTime.
Json training_document(const jobs::JobView& view,
                       const std::vector<FinalMetric>& final_metrics = {});
Json training_summary(const jobs::JobView& view);
Json processing_document(const jobs::JobView& view);
Json processing_summary(const jobs::JobView& view);

// Longer ones are cut, as AWS cuts them.
inline constexpr size_t kFailureReasonBytesMax = 1024;

}  // namespace yard::api
