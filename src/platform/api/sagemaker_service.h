// The SageMaker API: training and processing jobs, their tags, and the search for them. It decides
// nothing: what is asked goes to a JobDesk, what that knows is told in AWS's words.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "api/arns.h"
#include "api/job_desk.h"
#include "api/job_document.h"
#include "api/service.h"

namespace yard::api {

// The last value of each of a training job's MetricDefinitions that had one. `to_the_end`: its logs
// are complete and are to be read whole first. Thread-safe; what cannot be read is left out.
using FinalMetrics =
    std::function<std::vector<FinalMetric>(const engine::JobView& view, bool to_the_end)>;

// `desk` outlives it. It is the only one to change requests of jobs. Without `final_metrics` no job
// has any.
std::unique_ptr<Service> make_sagemaker_service(JobDesk& desk, Arns arns,
                                                FinalMetrics final_metrics = {});

}  // namespace yard::api
