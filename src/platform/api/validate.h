// What a client sent, checked against the shape of its operation, and told in AWS's words.
#pragma once

#include <string_view>

#include "api/aws_error.h"
#include "api/shape.h"
#include "base/json.h"

namespace yard::api {

// The input with only what the shape knows: members of other names and those that are null are left
// out, as AWS does; whole numbers and times have the one JSON type. Pure.
//
// SerializationException: a value of another type. ValidationException: every required member that
// is missing and every limit that is passed, up to kProblemsToldMax of them:
// "2 validation errors detected: Value null at 'roleArn' failed to satisfy constraint: Member must
// not be null; Value '0' at 'maxResults' failed to satisfy constraint: ...".
AwsResult<Json> checked_input(const Shape& shape, const Json& input);

inline constexpr size_t kProblemsToldMax = 50;
// Deeper requests are refused before they are parsed; some shapes may stand inside themselves.
inline constexpr int kJsonDepthMax = 64;

// The text as JSON; SerializationException for what is none, an object of no kind, or is nested
// deeper than kJsonDepthMax. Pure.
AwsResult<Json> parse_request_json(std::string_view text);

}  // namespace yard::api
