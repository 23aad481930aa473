// The Query protocol of AWS: a form comes in, XML goes out. Inside both are JSON.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/aws_error.h"
#include "api/shape.h"
#include "base/json.h"
#include "net/uri.h"

namespace yard::api {

// The pairs of "application/x-www-form-urlencoded", where '+' is a space. MalformedQueryString.
AwsResult<std::vector<QueryPair>> parse_form(std::string_view body);

// The form as the JSON input of the operation: "Names.member.1=a&Names.member.2=b" is
// {"Names": ["a", "b"]}; numbers and flags by the shape. What the shape does not know is left out.
// MalformedInput: two meanings at once, deeper than 16 or more than 10,000 pairs; ValidationError:
// a number or a time that is none. Pure.
AwsResult<Json> json_of_form(const Shape& shape, const std::vector<QueryPair>& form);

// "<OpResponse><OpResult>...</OpResult><ResponseMetadata>...". Pure.
std::string xml_of_answer(const Model& model, std::string_view operation, const Json& answer,
                          std::string_view request_id);
// model: null where it is not known which API was meant.
std::string xml_of_error(const Model* model, const AwsError& error, std::string_view request_id);

}  // namespace yard::api
