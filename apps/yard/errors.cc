// How `yard` tells of errors.
#include <cstdio>

#include "base/exit_code.h"
#include "base/json.h"
#include "commands.h"

namespace yard::app {

void tell_error(const Error& error, bool as_json) {
  if (!as_json) {
    std::fprintf(stderr, "yard: %s\n", error.message.c_str());
    return;
  }
  const Json line = {{"error", error.message},
                     {"code", std::string(to_string(error.code))},
                     {"exit_code", exit_code_of(error.code)}};
  // Names need not be UTF-8, JSON must be.
  std::fprintf(stderr, "%s\n", line.dump(-1, ' ', false, Json::error_handler_t::replace).c_str());
}

}  // namespace yard::app
