// The SageMaker API: training and processing jobs, their tags, and the search for them. It decides
// nothing: what is asked goes to a JobDesk, what that knows is told in AWS's words.
#pragma once

#include <memory>

#include "api/arns.h"
#include "api/job_desk.h"
#include "api/service.h"

namespace yard::api {

// `desk` outlives it.
std::unique_ptr<Service> make_sagemaker_service(JobDesk& desk, Arns arns);

}  // namespace yard::api
