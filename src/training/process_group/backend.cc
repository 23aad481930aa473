#include "process_group/backend.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "process_group/session_internal.h"

namespace yard::process_group {
namespace {

using std::chrono::milliseconds;

std::string label_of(const BackendOptions& options) {
  const StorePlace& place = options.place;
  if (options.global_ranks.empty())
    return fmt::format("[yard, rank {} of {}]", place.rank, place.world_size);
  return fmt::format("[yard, group {}, rank {} of {}]", options.group_name, place.rank,
                     place.world_size);
}

c10::intrusive_ptr<c10d::Backend::Options> torch_options_of(const BackendOptions& options) {
  auto out = c10::make_intrusive<c10d::Backend::Options>("yard", options.place.timeout);
  out->group_name = options.group_name;
  for (const int64_t rank : options.global_ranks)
    out->global_ranks_in_group.push_back(static_cast<uint64_t>(rank));
  return out;
}

}  // namespace

Result<c10::intrusive_ptr<YardBackend>> YardBackend::create(
    const c10::intrusive_ptr<c10d::Store>& store, const BackendOptions& options,
    const StopToken& stop) {
  auto connection = connect_through(store, options.place, stop);
  if (!connection)
    return std::move(connection).error().while_(label_of(options) + " making the process group");
  auto hosts = host_names(*connection->group);
  if (!hosts) return std::move(hosts).error().while_(label_of(options) + " asking for host names");
  return c10::make_intrusive<YardBackend>(*std::move(connection), store, *std::move(hosts),
                                          options);
}

YardBackend::YardBackend(Connection connection, c10::intrusive_ptr<c10d::Store> store,
                         std::vector<std::string> hosts, const BackendOptions& options)
    : Backend(options.place.rank, options.place.world_size),
      store_(std::move(store)),
      place_(options),
      options_(torch_options_of(options)),
      connection_id_(std::move(connection.id)),
      names_(std::move(hosts), options.global_ranks),
      group_timeout_(options.place.timeout),
      timeout_(options.place.timeout),
      session_(std::make_shared<Session>(std::move(connection.group), label_of(options), names_)) {
  init();
}

YardBackend::~YardBackend() {
  session_->close();
}

void YardBackend::setTimeout(milliseconds timeout) {
  if (timeout > group_timeout_)
    TORCH_WARN("the backend yard: a group's time-out of ", group_timeout_.count(),
               " ms can be shortened, not made longer");
  timeout_ = std::min(timeout, group_timeout_);
  options_->timeout = timeout_;
}

uint64_t YardBackend::getSequenceNumberForGroup() {
  return session_->issued_count();
}

c10d::ErrorType YardBackend::getError() {
  return session_->speaker()->failed ? c10d::ErrorType::COMM_ERROR : c10d::ErrorType::SUCCESS;
}

void YardBackend::startCoalescing() {
  session_->start_coalescing();
}

YardBackend::Work YardBackend::endCoalescing() {
  return session_->end_coalescing();
}

void YardBackend::abort() {
  session_->abort("the process group was aborted");
}

void YardBackend::shutdown() {
  session_->close();
}

at::Tensor YardBackend::allocateTensor(long size, at::TensorOptions options) {
  TORCH_CHECK_VALUE(size >= 0, "a tensor of ", size, " elements");
  if (!options.device().is_cpu()) return at::empty({size}, options);
  const std::shared_ptr<collective::SharedBuffer> buffer =
      session_->allocate(static_cast<size_t>(size) * options.dtype().itemsize());
  return at::from_blob(
      buffer->bytes().data(), {size}, [buffer](void*) {}, options);
}

std::vector<collective::FlightRecord> YardBackend::flight() const {
  return session_->flight();
}

Call YardBackend::call(c10d::OpType type, const char* title, Tensors inputs,
                       milliseconds timeout) const {
  const milliseconds effective = timeout.count() > 0 ? timeout : timeout_.load();
  Call call{.type = type, .title = title, .inputs = std::move(inputs)};
  if (effective < group_timeout_) call.timeout = effective;
  return call;
}

}  // namespace yard::process_group
