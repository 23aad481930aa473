#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collective/group_internal.h"

namespace yard::collective {
namespace {

constexpr size_t kPageBytes = 4096;

class QueuedWork : public Work {
 public:
  QueuedWork(std::shared_ptr<OperationQueue> queue, std::shared_ptr<Operation> operation)
      : queue_(std::move(queue)), operation_(std::move(operation)) {}
  ~QueuedWork() override { (void)queue_->wait(*operation_); }
  Status wait() override { return queue_->wait(*operation_); }
  bool done() const override { return operation_->done.load(std::memory_order_acquire); }

 private:
  std::shared_ptr<OperationQueue> queue_;
  std::shared_ptr<Operation> operation_;
};

class StretchBuffer : public SharedBuffer {
 public:
  StretchBuffer(std::shared_ptr<SharedStretches> stretches, size_t team_index,
                std::shared_ptr<SharedRegistry> registry)
      : stretches_(std::move(stretches)), team_index_(team_index), registry_(std::move(registry)) {}
  ~StretchBuffer() override { registry_->remove(stretches_->id); }
  std::span<std::byte> bytes() override {
    return {stretches_->of(team_index_), stretches_->size_bytes};
  }

 private:
  std::shared_ptr<SharedStretches> stretches_;
  size_t team_index_;
  std::shared_ptr<SharedRegistry> registry_;
};

class ConnectedGroup : public Group {
 public:
  explicit ConnectedGroup(Connected connected)
      : parts_(std::move(connected)),
        registry_(std::make_shared<SharedRegistry>(parts_.place.index)),
        local_(parts_.topology, *parts_.team),
        spanning_(parts_.topology, *parts_.team, parts_.ring.get(), local_),
        queue_(std::make_shared<OperationQueue>(
            [this](Operation& operation) { return run(operation); })) {}

  ~ConnectedGroup() override;

  int rank() const override { return parts_.topology.rank; }
  int size() const override { return parts_.topology.size; }

  std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype, ReduceOp op) override {
    YARD_CHECK(inout.size() % size_bytes_of(dtype) == 0);
    return issue(
        {.size_bytes = inout.size(), .kind = CallKind::kAllReduce, .dtype = dtype, .op = op}, inout,
        inout);
  }

  std::unique_ptr<Work> reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                       DType dtype, ReduceOp op) override {
    YARD_CHECK(out.size() % size_bytes_of(dtype) == 0);
    YARD_CHECK(in.size() == out.size() * static_cast<size_t>(size()));
    return issue(
        {.size_bytes = in.size(), .kind = CallKind::kReduceScatter, .dtype = dtype, .op = op}, in,
        out);
  }

  std::unique_ptr<Work> all_gather(std::span<const std::byte> in,
                                   std::span<std::byte> out) override {
    YARD_CHECK(out.size() == in.size() * static_cast<size_t>(size()));
    return issue({.size_bytes = out.size(), .kind = CallKind::kAllGather}, in, out);
  }

  std::unique_ptr<Work> broadcast(std::span<std::byte> inout, int root) override {
    YARD_CHECK(0 <= root && root < size());
    return issue({.size_bytes = inout.size(), .root = root, .kind = CallKind::kBroadcast}, inout,
                 inout);
  }

  std::unique_ptr<Work> barrier() override { return issue({.kind = CallKind::kBarrier}, {}, {}); }

  Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) override;

  void abort(std::string_view reason) override {
    parts_.failure->report(
        {Code::kUnavailable, fmt::format("rank {} gave up: {}", rank(), reason)});
  }

  double wait_seconds() const override { return queue_->wait_seconds(); }

 private:
  std::shared_ptr<Operation> push(CallRecord call, std::span<const std::byte> in,
                                  std::span<std::byte> out);
  std::unique_ptr<Work> issue(CallRecord call, std::span<const std::byte> in,
                              std::span<std::byte> out) {
    return std::make_unique<QueuedWork>(queue_, push(call, in, out));
  }
  Status run(Operation& operation);
  Status allocate_together(Operation& operation);
  bool spans_hosts() const { return parts_.topology.hosts.size() > 1; }

  Connected parts_;
  std::shared_ptr<SharedRegistry> registry_;
  LocalOperations local_;
  SpanningOperations spanning_;
  uint64_t issued_count_ = 0;
  uint32_t buffer_count_ = 0;  // the queue's
  std::shared_ptr<OperationQueue> queue_;
};

ConnectedGroup::~ConnectedGroup() {
  // What is still in flight cannot end well without us, so nobody shall wait for it.
  if (!queue_->idle())
    parts_.failure->report({Code::kUnavailable, fmt::format("rank {} has left the group", rank())});
  queue_->close();
  parts_.team->leave();
  parts_.control->stop();
  parts_.failure->remove_listeners();
}

std::shared_ptr<Operation> ConnectedGroup::push(CallRecord call, std::span<const std::byte> in,
                                                std::span<std::byte> out) {
  auto operation = std::make_shared<Operation>();
  auto found_in = registry_->find(in);
  auto found_out = registry_->find(out);
  call.sequence = ++issued_count_;
  call.rank = rank();
  call.in = found_in.place;
  call.out = found_out.place;
  operation->call = call;
  operation->in = in;
  operation->out = out;
  operation->in_shared = std::move(found_in.stretches);
  operation->out_shared = std::move(found_out.stretches);
  queue_->push(operation);
  return operation;
}

Status ConnectedGroup::run(Operation& operation) {
  Failure& failure = *parts_.failure;
  if (failure.failed()) return failure.status();
  Status status = operation.call.kind == CallKind::kAllocate ? allocate_together(operation)
                  : spans_hosts()                            ? spanning_.run(operation)
                                                             : local_.run(operation);
  // An operation that is whole stays so, whatever happened to the others meanwhile.
  if (status) return status;
  failure.report(std::move(status).error());
  return failure.status();
}

Status ConnectedGroup::allocate_together(Operation& operation) {
  const CallRecord& call = operation.call;
  if (spans_hosts()) {
    YARD_TRY(spanning_.run(operation));
  } else {
    parts_.team->record(parts_.team->index(), call.sequence) = call;
    YARD_TRY(local_.begin(operation));
  }
  const size_t stride_bytes = round_up(std::max<size_t>(call.size_bytes, 1), kPageBytes);
  if (stride_bytes < call.size_bytes ||
      stride_bytes > std::numeric_limits<size_t>::max() / 2 / parts_.team->size())
    return Error{Code::kExhausted,
                 fmt::format("{}: no machine has so much memory", describe(call))};
  const Patience patience{.deadline = std::chrono::steady_clock::now() + parts_.operation_timeout,
                          .stop = {},
                          .failure = parts_.failure.get()};
  auto memory =
      share_memory(parts_.place, parts_.team_sockets, stride_bytes * parts_.team->size(), patience);
  if (!memory) return std::move(memory).error().while_(describe(call));
  auto stretches = std::make_shared<SharedStretches>();
  stretches->memory = *std::move(memory);
  stretches->memory.close_fd();
  stretches->id = ++buffer_count_;
  stretches->stride_bytes = stride_bytes;
  stretches->size_bytes = call.size_bytes;
  // An Error on any rank is one on all.
  YARD_TRY(parts_.team->barrier(call));
  operation.allocated = std::move(stretches);
  return Ok{};
}

Result<std::unique_ptr<SharedBuffer>> ConnectedGroup::allocate(size_t size_bytes) {
  const auto operation = push({.size_bytes = size_bytes, .kind = CallKind::kAllocate}, {}, {});
  YARD_TRY(queue_->wait(*operation));
  registry_->add(operation->allocated);
  return std::unique_ptr<SharedBuffer>(std::make_unique<StretchBuffer>(
      std::move(operation->allocated), parts_.place.index, registry_));
}

}  // namespace

std::unique_ptr<Group> make_group(Connected connected) {
  return std::make_unique<ConnectedGroup>(std::move(connected));
}

}  // namespace yard::collective
