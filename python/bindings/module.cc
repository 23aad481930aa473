// trainyard._native: what the package trainyard is made of. Not for users.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "base/log.h"
#include "bindings.h"
#include "errors.h"

namespace yard::python {
namespace {

void set_log_level(const std::string& name) {
  LogOptions options;
  if (name == "debug")
    options.level = LogLevel::kDebug;
  else if (name == "info")
    options.level = LogLevel::kInfo;
  else if (name == "warning")
    options.level = LogLevel::kWarning;
  else if (name == "error")
    options.level = LogLevel::kError;
  else
    raise({Code::kInvalidArgument, "the log's levels are debug, info, warning and error"});
  value_or_raise(configure_log(options));
}

}  // namespace
}  // namespace yard::python

NB_MODULE(_native, module) {
  // Loaders that a script leaves open are closed by the package when Python ends.
  nanobind::set_leak_warnings(false);
  yard::python::set_log_level("warning");
  module.def("set_log_level", yard::python::set_log_level, nanobind::arg("level"));
  yard::python::bind_storage(module);
  yard::python::bind_loader(module);
}
