// Filter patterns of FilterLogEvents, those for text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/aws_error.h"

namespace yard::api {

// "ERROR timeout": both terms; "?ERROR ?WARN": one of them; "-DEBUG": not that; "\"a b\"": a
// phrase. Case counts. An empty pattern matches everything. Immutable.
class LogFilter {
 public:
  // InvalidParameterException: patterns for JSON or space-delimited fields, and regular
  // expressions, which are not known here; a phrase without its end.
  static AwsResult<LogFilter> parse(std::string_view pattern);

  bool matches(std::string_view message) const;

 private:
  std::vector<std::string> all_of_;
  std::vector<std::string> any_of_;
  std::vector<std::string> none_of_;
};

}  // namespace yard::api
