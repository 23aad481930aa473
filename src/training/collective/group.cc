#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "collective/group_internal.h"
#include "collective/reunion_internal.h"

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

class MessageWork : public Work {
 public:
  MessageWork(std::shared_ptr<PointToPoint> messages, std::shared_ptr<FlightRecorder> flight,
              FlightEntry entry, std::shared_ptr<Message> message)
      : messages_(std::move(messages)),
        flight_(std::move(flight)),
        entry_(entry),
        message_(std::move(message)) {}
  ~MessageWork() override { (void)wait(); }
  Status wait() override {
    Status status = messages_->wait(*message_);
    if (!std::exchange(ended_, true)) flight_->ended(entry_, status, -1);
    return status;
  }
  bool done() const override { return message_->done.load(std::memory_order_acquire); }

 private:
  std::shared_ptr<PointToPoint> messages_;
  std::shared_ptr<FlightRecorder> flight_;
  FlightEntry entry_;
  std::shared_ptr<Message> message_;
  bool ended_ = false;
};

// What ranks tell each other when a group is split.
struct SplitPlace {
  int32_t color = -1;
  int32_t key = 0;
  uint16_t port = 0;  // of the first rank of a new group
};

std::vector<int> ranks_of_color(const std::vector<SplitPlace>& wishes, int color) {
  std::vector<int> ranks;
  for (size_t rank = 0; rank < wishes.size() && color >= 0; ++rank)
    if (wishes[rank].color == color) ranks.push_back(static_cast<int>(rank));
  std::stable_sort(ranks.begin(), ranks.end(), [&](int a, int b) {
    return wishes[static_cast<size_t>(a)].key < wishes[static_cast<size_t>(b)].key;
  });
  return ranks;
}

// Of the sizes of several tensors, never 0 (FNV-1a).
uint64_t layout_of(const std::vector<std::span<std::byte>>& tensors) {
  uint64_t hash = 14695981039346656037u;
  for (const auto& tensor : tensors) hash = (hash ^ tensor.size()) * 1099511628211u;
  return hash | 1u;
}

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
        messages_(std::move(parts_.messages)),
        flight_(std::move(parts_.flight)),
        spanning_(parts_.topology, *parts_.team, parts_.rail.get(), *messages_, local_),
        queue_(std::make_shared<OperationQueue>(
            [this](Operation& operation) { return run(operation); })) {}

  ~ConnectedGroup() override;

  int rank() const override { return parts_.topology.rank; }
  int size() const override { return parts_.topology.size; }

  std::unique_ptr<Work> all_reduce(std::span<std::byte> inout, DType dtype, ReduceOp op) override {
    YARD_CHECK(inout.size() % size_bytes_of(dtype) == 0 && reduces(op, dtype));
    return issue(
        {.size_bytes = inout.size(), .kind = CallKind::kAllReduce, .dtype = dtype, .op = op}, inout,
        inout);
  }

  std::unique_ptr<Work> reduce_scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                       DType dtype, ReduceOp op) override {
    YARD_CHECK(out.size() % size_bytes_of(dtype) == 0 && reduces(op, dtype));
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

  std::unique_ptr<Work> all_reduce_coalesced(std::vector<std::span<std::byte>> inouts, DType dtype,
                                             ReduceOp op) override;
  std::unique_ptr<Work> reduce(std::span<std::byte> inout, DType dtype, ReduceOp op,
                               int root) override;
  std::unique_ptr<Work> gather(std::span<const std::byte> in, std::span<std::byte> out,
                               int root) override;
  std::unique_ptr<Work> scatter(std::span<const std::byte> in, std::span<std::byte> out,
                                int root) override;
  std::unique_ptr<Work> all_to_all(std::vector<std::span<const std::byte>> ins,
                                   std::vector<std::span<std::byte>> outs) override;
  std::unique_ptr<Work> send(std::span<const std::byte> bytes, int to, uint64_t tag) override;
  std::unique_ptr<Work> receive(std::span<std::byte> bytes, int from, uint64_t tag,
                                int* source) override;
  Result<std::unique_ptr<Group>> split(int color, int key) override;
  Result<std::unique_ptr<Group>> shrink(const ShrinkOptions& options) override;
  std::vector<FlightRecord> flight() const override { return flight_->records(); }

  Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) override;

  void abort(std::string_view reason) override {
    parts_.failure->report(
        {Code::kUnavailable,
         fmt::format("{} gave up: {}", parts_.failure->name_of(rank()), reason)});
  }

  double wait_seconds() const override { return queue_->wait_seconds(); }

 private:
  std::shared_ptr<Operation> push(std::shared_ptr<Operation> operation);
  std::unique_ptr<Work> issue(std::shared_ptr<Operation> operation) {
    return std::make_unique<QueuedWork>(queue_, push(std::move(operation)));
  }
  std::unique_ptr<Work> issue(const CallRecord& call, std::span<const std::byte> in,
                              std::span<std::byte> out) {
    return issue(operation_of(call, in, out));
  }
  static std::shared_ptr<Operation> operation_of(const CallRecord& call,
                                                 std::span<const std::byte> in,
                                                 std::span<std::byte> out) {
    auto operation = std::make_shared<Operation>();
    operation->call = call;
    operation->in = in;
    operation->out = out;
    return operation;
  }
  std::unique_ptr<Work> work_of(std::shared_ptr<Message> message) {
    const FlightEntry entry = flight_->issued(message->call);
    flight_->started(entry);
    return std::make_unique<MessageWork>(messages_, flight_, entry, std::move(message));
  }
  Status run(Operation& operation);
  Status run_together(Operation& operation);
  Status run_coalesced(Operation& operation);
  Result<std::vector<SplitPlace>> agree_on_split(const SplitPlace& ours);
  Status allocate_together(Operation& operation);
  bool spans_hosts() const { return parts_.topology.hosts.size() > 1; }

  Connected parts_;
  std::shared_ptr<SharedRegistry> registry_;
  LocalOperations local_;
  std::shared_ptr<PointToPoint> messages_;
  std::shared_ptr<FlightRecorder> flight_;
  SpanningOperations spanning_;
  uint64_t issued_count_ = 0;
  uint32_t buffer_count_ = 0;  // the queue's
  bool is_shrunk_ = false;
  std::shared_ptr<OperationQueue> queue_;
};

ConnectedGroup::~ConnectedGroup() {
  // What is still in flight cannot end well without us, so nobody shall wait for it.
  if (!queue_->idle())
    parts_.failure->report({Code::kUnavailable, fmt::format("rank {} has left the group", rank())});
  queue_->close();
  messages_->close();
  parts_.team->leave();
  parts_.control->stop();
  parts_.failure->remove_listeners();
}

std::shared_ptr<Operation> ConnectedGroup::push(std::shared_ptr<Operation> operation) {
  auto found_in = registry_->find(operation->in);
  auto found_out = registry_->find(operation->out);
  CallRecord& call = operation->call;
  call.sequence = ++issued_count_;
  call.rank = rank();
  call.in = found_in.place;
  call.out = found_out.place;
  operation->in_shared = std::move(found_in.stretches);
  operation->out_shared = std::move(found_out.stretches);
  operation->flight = flight_->issued(call);
  queue_->push(operation);
  return operation;
}

std::unique_ptr<Work> ConnectedGroup::all_reduce_coalesced(std::vector<std::span<std::byte>> inouts,
                                                           DType dtype, ReduceOp op) {
  YARD_CHECK(reduces(op, dtype));
  auto operation = std::make_shared<Operation>();
  for (const auto& inout : inouts) {
    YARD_CHECK(inout.size() % size_bytes_of(dtype) == 0);
    operation->call.size_bytes += inout.size();
  }
  operation->call.kind = CallKind::kAllReduce;
  operation->call.dtype = dtype;
  operation->call.op = op;
  operation->call.layout = layout_of(inouts);
  operation->outs = std::move(inouts);
  return issue(std::move(operation));
}

std::unique_ptr<Work> ConnectedGroup::reduce(std::span<std::byte> inout, DType dtype, ReduceOp op,
                                             int root) {
  YARD_CHECK(0 <= root && root < size() && reduces(op, dtype));
  YARD_CHECK(inout.size() % size_bytes_of(dtype) == 0);
  return issue({.size_bytes = inout.size(),
                .root = root,
                .kind = CallKind::kReduce,
                .dtype = dtype,
                .op = op},
               inout, root == rank() ? inout : std::span<std::byte>());
}

std::unique_ptr<Work> ConnectedGroup::gather(std::span<const std::byte> in,
                                             std::span<std::byte> out, int root) {
  YARD_CHECK(0 <= root && root < size());
  const auto count = static_cast<size_t>(size());
  YARD_CHECK(out.size() == (root == rank() ? in.size() * count : 0));
  auto operation = std::make_shared<Operation>();
  operation->call = {.size_bytes = in.size() * count, .root = root, .kind = CallKind::kGather};
  operation->ins.resize(count);
  operation->outs.resize(count);
  operation->ins[static_cast<size_t>(root)] = in;
  for (size_t r = 0; r < count && root == rank(); ++r)
    operation->outs[r] = out.subspan(r * in.size(), in.size());
  return issue(std::move(operation));
}

std::unique_ptr<Work> ConnectedGroup::scatter(std::span<const std::byte> in,
                                              std::span<std::byte> out, int root) {
  YARD_CHECK(0 <= root && root < size());
  const auto count = static_cast<size_t>(size());
  YARD_CHECK(in.size() == (root == rank() ? out.size() * count : 0));
  auto operation = std::make_shared<Operation>();
  operation->call = {.size_bytes = out.size() * count, .root = root, .kind = CallKind::kScatter};
  operation->ins.resize(count);
  operation->outs.resize(count);
  operation->outs[static_cast<size_t>(root)] = out;
  for (size_t r = 0; r < count && root == rank(); ++r)
    operation->ins[r] = in.subspan(r * out.size(), out.size());
  return issue(std::move(operation));
}

std::unique_ptr<Work> ConnectedGroup::all_to_all(std::vector<std::span<const std::byte>> ins,
                                                 std::vector<std::span<std::byte>> outs) {
  const auto count = static_cast<size_t>(size());
  YARD_CHECK(ins.size() == count && outs.size() == count);
  auto operation = std::make_shared<Operation>();
  operation->call.kind = CallKind::kAllToAll;
  operation->ins = std::move(ins);
  operation->outs = std::move(outs);
  return issue(std::move(operation));
}

std::unique_ptr<Work> ConnectedGroup::send(std::span<const std::byte> bytes, int to, uint64_t tag) {
  YARD_CHECK(0 <= to && to < size());
  return work_of(messages_->send(bytes, to, Channel::kUser, tag));
}

std::unique_ptr<Work> ConnectedGroup::receive(std::span<std::byte> bytes, int from, uint64_t tag,
                                              int* source) {
  YARD_CHECK(kAnyRank <= from && from < size());
  return work_of(messages_->receive(bytes, from, Channel::kUser, tag, source));
}

Status ConnectedGroup::run(Operation& operation) {
  Failure& failure = *parts_.failure;
  flight_->started(operation.flight);
  (void)failure.take_last_waited_rank();
  Status status = failure.failed() ? failure.status() : run_together(operation);
  // An operation that is whole stays so, whatever happened to the others meanwhile.
  if (!status) {
    failure.report(std::move(status).error());
    status = failure.status();
  }
  flight_->ended(operation.flight, status, failure.take_last_waited_rank());
  return status;
}

Status ConnectedGroup::run_together(Operation& operation) {
  if (operation.call.kind == CallKind::kAllocate) return allocate_together(operation);
  if (operation.call.layout != 0) return run_coalesced(operation);
  return spans_hosts() ? spanning_.run(operation) : local_.run(operation);
}

// As one tensor.
Status ConnectedGroup::run_coalesced(Operation& operation) {
  std::vector<std::byte> packed(operation.call.size_bytes);
  auto at = packed.begin();
  for (const auto& piece : operation.outs) at = std::copy(piece.begin(), piece.end(), at);
  std::vector<std::span<std::byte>> pieces = std::exchange(operation.outs, {});
  operation.in = packed;
  operation.out = packed;
  YARD_TRY(spans_hosts() ? spanning_.run(operation) : local_.run(operation));
  at = packed.begin();
  for (const auto& piece : pieces) {
    std::copy_n(at, piece.size(), piece.begin());
    at += static_cast<std::ptrdiff_t>(piece.size());
  }
  return Ok{};
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
  const Patience patience{
      .deadline = std::chrono::steady_clock::now() + parts_.options.operation_timeout,
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
  const auto operation =
      push(operation_of({.size_bytes = size_bytes, .kind = CallKind::kAllocate}, {}, {}));
  YARD_TRY(queue_->wait(*operation));
  registry_->add(operation->allocated);
  return std::unique_ptr<SharedBuffer>(std::make_unique<StretchBuffer>(
      std::move(operation->allocated), parts_.place.index, registry_));
}

Result<std::vector<SplitPlace>> ConnectedGroup::agree_on_split(const SplitPlace& ours) {
  std::vector<SplitPlace> all(static_cast<size_t>(size()));
  YARD_TRY(issue({.size_bytes = all.size() * sizeof ours, .kind = CallKind::kAllGather},
                 std::as_bytes(std::span(&ours, 1)), std::as_writable_bytes(std::span(all)))
               ->wait());
  return all;
}

// The first rank of each new group listens before the others learn of the port.
Result<std::unique_ptr<Group>> ConnectedGroup::split(int color, int key) {
  YARD_ASSIGN(const auto wishes, agree_on_split({.color = color, .key = key}));
  const std::vector<int> ranks = ranks_of_color(wishes, color);
  SplitPlace ours{.color = color, .key = key};
  UniqueFd listener;
  Status listening = Ok{};
  if (!ranks.empty() && ranks[0] == rank()) {
    auto made = listen_tcp(parts_.own_address, 0);
    if (made) {
      listener = *std::move(made);
      ours.port = local_port(listener.get());
    } else {
      listening = std::move(made).error();
    }
  }
  YARD_ASSIGN(const auto places, agree_on_split(ours));
  if (color < 0) return std::unique_ptr<Group>();
  YARD_TRY(std::move(listening));
  RendezvousOptions options = parts_.options;
  options.rank = static_cast<int>(std::find(ranks.begin(), ranks.end(), rank()) - ranks.begin());
  options.world_size = static_cast<int>(ranks.size());
  options.master_address = messages_->doors()[static_cast<size_t>(ranks[0])].address;
  options.master_port = places[static_cast<size_t>(ranks[0])].port;
  options.run_id = fmt::format("{} {} {}", messages_->session(), issued_count_, color);
  return connect_at(options, std::move(listener), StopToken());
}

Result<std::unique_ptr<Group>> ConnectedGroup::shrink(const ShrinkOptions& options) {
  for (const int each : options.without)
    if (each < 0 || each >= size() || each == rank())
      return Error{Code::kInvalidArgument,
                   fmt::format("rank {} of {} cannot leave out rank {}", rank(), size(), each)};
  if (is_shrunk_) return Error{Code::kInvalidArgument, "the group has been shrunk already"};
  parts_.failure->report(
      {Code::kCancelled, parts_.failure->name_of(rank()) + " goes on with a smaller group"});
  const ReunionPlace place{.rank = rank(),
                           .hosts = parts_.topology.hosts,
                           .doors = messages_->doors(),
                           .own_address = parts_.own_address,
                           .session = messages_->session(),
                           .listener = parts_.doors.back()->get(),
                           .tunnels = parts_.tunnels.get()};
  YARD_ASSIGN(Reunited reunited, reunite(place, options));
  RendezvousOptions next = parts_.options;
  next.rank = reunited.rank;
  next.world_size = reunited.size;
  next.master_address = reunited.leader == rank()
                            ? parts_.own_address
                            : place.doors[static_cast<size_t>(reunited.leader)].address;
  next.master_port = reunited.port;
  next.run_id = reunited.run_id;
  next.generation = parts_.options.generation + 1;
  next.connect_timeout = options.timeout;
  YARD_ASSIGN(auto group,
              connect_at(next, std::move(reunited.listener), StopToken(), parts_.doors));
  is_shrunk_ = true;
  return group;
}

}  // namespace

std::unique_ptr<Group> make_group(Connected connected) {
  return std::make_unique<ConnectedGroup>(std::move(connected));
}

}  // namespace yard::collective
