// What is in a store, and the epochs that processes share.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "errors.h"
#include "shared_epoch.h"
#include "url_store.h"

namespace yard::python {
namespace {

// The URLs of all objects under s3://bucket/prefix, in byte order of their keys.
std::vector<std::string> list_objects(const std::string& url) {
  const StopSource stop;
  const auto list = [url,
                     options = s3_options(stop.token())]() -> Result<std::vector<std::string>> {
    YARD_ASSIGN(const storage::Location at, storage::open_location(url, options));
    YARD_ASSIGN(const auto objects, storage::list_all(*at.store, at.key));
    std::vector<std::string> urls;
    for (const auto& object : objects) urls.push_back(at.store->url() + "/" + object.key);
    return urls;
  };
  return run_interruptibly<std::vector<std::string>>(list, stop);
}

}  // namespace

void bind_storage(nb::module_& module) {
  module.def("list_objects", list_objects, nb::arg("url"));
  nb::class_<SharedEpoch>(module, "SharedEpoch")
      .def(nb::init<>())
      .def("claim", &SharedEpoch::claim, nb::arg("tag"), nb::arg("first"))
      .def("advance", &SharedEpoch::advance, nb::arg("tag"), nb::arg("epoch"))
      .def("reset", &SharedEpoch::reset)
      .def("claimed", &SharedEpoch::claimed);
}

}  // namespace yard::python
