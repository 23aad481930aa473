// From UpdateTrainingJob to what is said of the job from then on. Pure.
#pragma once

#include "api/aws_error.h"
#include "base/json.h"
#include "jobs/platform_job.h"

namespace yard::api {

// The members of the job's request that `input`, which has passed the shape, changes; each whole,
// as Describe shows it afterwards. ValidationException: the state of the job does not allow it, or
// the members do not go together; ResourceLimitExceeded: too many rules.
//
// As the SDKs expect: of ProfilerConfig the given members replace those that were there; rules are
// added; where a profiler was on, its S3OutputPath stays; remote debugging changes while the job
// downloads or trains; a keep-alive period is the engine's to judge.
AwsResult<Json> updated_members(const jobs::JobView& view, const Json& input);

// An interval that a profiler can have; also of CreateTrainingJob. ValidationException.
AwsStatus check_profiler(const Json& profiler_config);

inline constexpr size_t kProfilerRulesMax = 20;

}  // namespace yard::api
