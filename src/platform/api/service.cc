#include "api/service.h"

#include <array>

namespace yard::api {

std::string_view to_string(Role role) {
  switch (role) {
    case Role::kRead:
      return "read";
    case Role::kSubmit:
      return "submit";
    case Role::kAdmin:
      return "admin";
  }
  YARD_UNREACHABLE();
}

Role role_by_name(std::string_view operation) {
  static constexpr std::array kReading = {"Describe", "List",   "Get",
                                          "Filter",   "Search", "Simulate"};
  for (const std::string_view verb : kReading)
    if (operation.starts_with(verb)) return Role::kRead;
  return Role::kSubmit;
}

}  // namespace yard::api
