// trainyard._torch: what the package trainyard has for torch. Not for users.
//
// Bound by the copy of pybind11 that torch brings, for torch hands its stores over in the types of
// that one.
#include <pybind11/chrono.h>
#include <torch/csrc/utils/pybind.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <chrono>
#include <future>
#include <mutex>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/log.h"
#include "process_group/backend.h"

namespace yard::python {
namespace {

namespace pg = process_group;
using Backend = c10::intrusive_ptr<pg::YardBackend>;

// How long a wait goes on until Python's signal handlers get their turn.
constexpr auto kSignalInterval = std::chrono::milliseconds(20);

// The backends that are alive. Python's end must not find their threads in callbacks.
class Backends {
 public:
  void add(const Backend& backend) {
    std::lock_guard lock(mutex_);
    std::erase_if(backends_, [](const auto& one) { return one.expired(); });
    backends_.emplace_back(backend);
  }
  void close() {
    std::vector<Weak> backends;
    {
      std::lock_guard lock(mutex_);
      backends.swap(backends_);
    }
    for (const Weak& weak : backends)
      if (auto backend = weak.lock()) backend->shutdown();
  }

 private:
  using Weak = c10::weak_intrusive_ptr<pg::YardBackend>;
  std::mutex mutex_;
  std::vector<Weak> backends_;
};

Backends& live_backends() {
  static Backends backends;
  return backends;
}

// Ctrl-C while ranks are missing ends the wait.
Result<Backend> create_interruptibly(const c10::intrusive_ptr<c10d::Store>& store,
                                     const pg::BackendOptions& options) {
  const StopSource stop;
  auto pending = std::async(std::launch::async,
                            [&] { return pg::YardBackend::create(store, options, stop.token()); });
  while (true) {
    {
      const py::gil_scoped_release release;
      if (pending.wait_for(kSignalInterval) == std::future_status::ready) return pending.get();
    }
    if (PyErr_CheckSignals() == 0) continue;
    stop.request();
    const py::error_already_set interrupted;
    {
      const py::gil_scoped_release release;
      (void)pending.get();
    }
    throw interrupted;
  }
}

c10::intrusive_ptr<c10d::Backend> create_backend(
    const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
    std::chrono::milliseconds timeout, const std::string& address, uint64_t generation,
    const std::string& group_name, std::vector<int64_t> global_ranks,
    const std::string& host_identity, const std::string& flight_path, bool bf16_between_hosts,
    const std::string& tls_key_file, int streams_between_hosts) {
  using collective::WireForm;
  std::string tls_key;
  if (!tls_key_file.empty()) {
    auto key = collective::read_tls_key(tls_key_file);
    if (!key) throw py::value_error(key.error().message);
    tls_key = *std::move(key);
  }
  const pg::BackendOptions options{
      .place = {.rank = rank,
                .world_size = size,
                .address = address,
                .generation = generation,
                .timeout = timeout,
                .flight_path = flight_path,
                .wire = bf16_between_hosts ? WireForm::kBF16 : WireForm::kExact,
                .host_identity = host_identity,
                .tls_key = tls_key,
                .streams = streams_between_hosts},
      .group_name = group_name,
      .global_ranks = std::move(global_ranks)};
  auto backend = create_interruptibly(store, options);
  if (!backend) throw c10::DistBackendError(backend.error().message, nullptr);
  live_backends().add(*backend);
  return *std::move(backend);
}

py::list flight_of(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* ours = dynamic_cast<const pg::YardBackend*>(backend.get());
  if (ours == nullptr) throw py::value_error("the group's backend is not yard's");
  const auto records = [&] {
    const py::gil_scoped_release release;
    return ours->flight();
  }();
  py::list out;
  for (const collective::FlightRecord& record : records) {
    py::dict one;
    one["call"] = record.call;
    one["issued_unix_us"] = record.issued_unix_us;
    one["started_after_us"] = record.started_after_us;
    one["ended_after_us"] = record.ended_after_us;
    one["waited_rank"] = record.waited_rank;
    one["error"] = record.error;
    out.append(one);
  }
  return out;
}

py::tuple shrink(const c10::intrusive_ptr<c10d::Backend>& backend, std::vector<int> without,
                 std::chrono::milliseconds timeout) {
  auto* ours = dynamic_cast<pg::YardBackend*>(backend.get());
  if (ours == nullptr) throw py::value_error("the group's backend is not yard's");
  auto shrunk = [&] {
    const py::gil_scoped_release release;
    return ours->shrink_to_survivors({.without = std::move(without), .timeout = timeout});
  }();
  live_backends().add(shrunk.backend);
  return py::make_tuple(c10::intrusive_ptr<c10d::Backend>(shrunk.backend), shrunk.ranks);
}

void use_store(const c10::intrusive_ptr<c10d::Backend>& backend,
               const c10::intrusive_ptr<c10d::Store>& store) {
  auto* ours = dynamic_cast<pg::YardBackend*>(backend.get());
  if (ours == nullptr) throw py::value_error("the group's backend is not yard's");
  ours->use_store(store);
}

}  // namespace
}  // namespace yard::python

PYBIND11_MODULE(_torch, module) {
  (void)yard::configure_log({.level = yard::LogLevel::kWarning});
  module.attr("torch_version") = std::to_string(TORCH_VERSION_MAJOR) + "." +
                                 std::to_string(TORCH_VERSION_MINOR) + "." +
                                 std::to_string(TORCH_VERSION_PATCH);
  module.def("create_backend", &yard::python::create_backend, py::arg("store"), py::arg("rank"),
             py::arg("size"), py::arg("timeout"), py::arg("address"), py::arg("generation"),
             py::arg("group_name"), py::arg("global_ranks"), py::arg("host_identity"),
             py::arg("flight_path"), py::arg("bf16_between_hosts"), py::arg("tls_key_file"),
             py::arg("streams_between_hosts"));
  module.def("flight_of", &yard::python::flight_of, py::arg("backend"));
  module.def("shrink", &yard::python::shrink, py::arg("backend"), py::arg("without"),
             py::arg("timeout"));
  module.def("use_store", &yard::python::use_store, py::arg("backend"), py::arg("store"));
  module.def(
      "close_backends", [] { yard::python::live_backends().close(); },
      py::call_guard<py::gil_scoped_release>());
}
