// SearchExpression of the operation Search: which jobs a client means. Pure.
#pragma once

#include <string_view>

#include "api/aws_error.h"
#include "base/json.h"

namespace yard::api {

// Whether a job, as Search would show it (with its "Tags"), is meant. Names are paths, without
// regard to case: "TrainingJobStatus", "HyperParameters.lr", "ResourceConfig.InstanceCount",
// "Tags.team", "Metrics.train:loss" (the last value); texts that are numbers or times are compared
// as such. A name that the job has not: only NotExists and NotEquals hold. ValidationException: a
// filter without the value that its operator needs.
AwsResult<bool> matches(const Json& expression, const Json& job);

// The value that `path` names, null when there is none.
Json value_at(const Json& job, std::string_view path);

// Numbers by value, texts by their bytes, numbers before texts before nothing.
bool sorts_before(const Json& a, const Json& b);

}  // namespace yard::api
