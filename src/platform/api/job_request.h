// From CreateTrainingJob and CreateProcessingJob to a JobRequest: what their shapes do not say.
// Pure.
#pragma once

#include <map>
#include <string>

#include "api/arns.h"
#include "api/aws_error.h"
#include "api/service.h"
#include "jobs/platform_job.h"

namespace yard::api {

// `input` has passed the shape. ValidationException, naming what does not go together: no image, no
// hosts, a channel twice, spot without its times, a tag twice.
AwsResult<jobs::JobRequest> training_request(const Json& input, const Caller& caller,
                                             const Arns& arns);
AwsResult<jobs::JobRequest> processing_request(const Json& input, const Caller& caller,
                                               const Arns& arns);

// A list of {"Key": ..., "Value": ...}. ValidationException: a key twice, or one that begins with
// "aws:".
AwsResult<std::map<std::string, std::string>> tags_of(const Json& list);
Json json_of_tags(const std::map<std::string, std::string>& tags);

}  // namespace yard::api
