#include "tensor/device_collectives.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/Event.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <filesystem>
#include <mutex>
#include <optional>

#include "collective/device_group.h"
#include "tensor/failure_watch_internal.h"
#include "tensor/guard_torch.h"

namespace yard::tensor {
namespace {

using collective::DeviceGroup;
using collective::DType;
using collective::FlightRecord;
using collective::Group;
using collective::ReduceOp;
using collective::SharedBuffer;
using collective::Work;
using Bytes = std::span<std::byte>;
using ConstBytes = std::span<const std::byte>;
using SteadyClock = std::chrono::steady_clock;

constexpr size_t kFlightCountMax = 512;
// NCCL and the host group see a death by different ways; the host group names the rank.
constexpr std::chrono::milliseconds kReasonLimit{1000};

int64_t us_between(SteadyClock::time_point begin, SteadyClock::time_point end) {
  return std::chrono::duration_cast<std::chrono::microseconds>(end - begin).count();
}

// One call, while it is on its way and afterwards.
struct Issued {
  FlightRecord record;
  SteadyClock::time_point begin = SteadyClock::now();
};

// What a group and its works share.
struct Devices {
  Devices(c10::Device where, std::unique_ptr<DeviceGroup> group)
      : device(where),
        guard(where.type()),
        stream(guard.getStreamFromGlobalPool(where, /*isHighPriority=*/true)),
        nccl(std::move(group)) {}

  // The error that everybody gets.
  Error explain(Error error) const {
    if (error.code == Code::kInvalidArgument) return error;
    return watch->await_failure(kReasonLimit).value_or(std::move(error));
  }

  const c10::Device device;
  const c10::impl::VirtualGuardImpl guard;
  const c10::Stream stream;
  const std::unique_ptr<DeviceGroup> nccl;
  std::unique_ptr<FailureWatch> watch;  // its thread uses `nccl`: ends before it
  std::mutex mutex;
  std::deque<std::shared_ptr<Issued>> flight;
  double wait_seconds = 0;
};

class DeviceWork final : public Work {
 public:
  DeviceWork(std::shared_ptr<Devices> devices, std::shared_ptr<Issued> issued)
      : devices_(std::move(devices)),
        issued_(std::move(issued)),
        end_(devices_->device.type(), c10::EventFlag::BACKEND_DEFAULT) {
    end_.record(devices_->stream);
  }
  ~DeviceWork() override { (void)wait(); }

  Status wait() override {
    if (outcome_) return *outcome_;
    const auto begin = SteadyClock::now();
    outcome_ = guard_torch("waiting for a device", [&]() -> Status {
      end_.block(devices_->guard.getStream(devices_->device));
      if (Status state = devices_->nccl->check(); !state)
        return devices_->explain(std::move(state).error());
      return Ok{};
    });
    note(begin);
    return *outcome_;
  }

  bool done() const override { return end_.query(); }

 private:
  void note(SteadyClock::time_point begin) {
    const auto now = SteadyClock::now();
    const std::lock_guard lock(devices_->mutex);
    devices_->wait_seconds += std::chrono::duration<double>(now - begin).count();
    issued_->record.ended_after_us = us_between(issued_->begin, now);
    if (!*outcome_) issued_->record.error = outcome_->error().message;
  }

  const std::shared_ptr<Devices> devices_;
  const std::shared_ptr<Issued> issued_;
  c10::Event end_;
  std::optional<Status> outcome_;
};

// An operation that never began.
class FailedWork final : public Work {
 public:
  explicit FailedWork(Error error) : error_(std::move(error)) {}
  Status wait() override { return error_; }
  bool done() const override { return true; }

 private:
  const Error error_;
};

class DeviceBuffer final : public SharedBuffer {
 public:
  DeviceBuffer(c10::DataPtr memory, size_t size_bytes)
      : memory_(std::move(memory)), size_bytes_(size_bytes) {}
  Bytes bytes() override { return {static_cast<std::byte*>(memory_.get()), size_bytes_}; }

 private:
  const c10::DataPtr memory_;
  const size_t size_bytes_;
};

class DeviceCollectives final : public Group {
 public:
  DeviceCollectives(std::unique_ptr<Group> host, std::shared_ptr<Devices> devices,
                    collective::ResolveSymbol library)
      : host_(std::move(host)), devices_(std::move(devices)), library_(std::move(library)) {}

  int rank() const override { return host_->rank(); }
  int size() const override { return host_->size(); }

  std::unique_ptr<Work> all_reduce(Bytes inout, DType dtype, ReduceOp op) override {
    return issue(name_of("all_reduce", inout.size(), dtype), [&](DeviceGroup& nccl, void* stream) {
      return nccl.all_reduce(inout.data(), inout.data(), count(inout, dtype), dtype, op, stream);
    });
  }

  std::unique_ptr<Work> reduce_scatter(ConstBytes in, Bytes out, DType dtype,
                                       ReduceOp op) override {
    YARD_CHECK(in.size() == out.size() * ranks());
    return issue(name_of("reduce_scatter", in.size(), dtype), [&](DeviceGroup& nccl, void* stream) {
      return nccl.reduce_scatter(in.data(), out.data(), count(out, dtype), dtype, op, stream);
    });
  }

  std::unique_ptr<Work> all_gather(ConstBytes in, Bytes out) override {
    YARD_CHECK(out.size() == in.size() * ranks());
    return issue(name_of("all_gather", out.size()), [&](DeviceGroup& nccl, void* stream) {
      return nccl.all_gather(in.data(), out.data(), in.size(), DType::kU8, stream);
    });
  }

  std::unique_ptr<Work> broadcast(Bytes inout, int root) override {
    return issue(name_of("broadcast", inout.size()), [&](DeviceGroup& nccl, void* stream) {
      return nccl.broadcast(inout.data(), inout.size(), DType::kU8, root, stream);
    });
  }

  // Of the devices' streams: a value that passes through all of them.
  std::unique_ptr<Work> barrier() override {
    if (!barrier_memory_) {
      auto made = allocate(size_bytes_of(DType::kI32));
      if (!made) return std::make_unique<FailedWork>(std::move(made).error());
      barrier_memory_ = *std::move(made);
    }
    return issue("barrier", [&](DeviceGroup& nccl, void* stream) {
      void* memory = barrier_memory_->bytes().data();
      return nccl.all_reduce(memory, memory, 1, DType::kI32, ReduceOp::kMax, stream);
    });
  }

  std::unique_ptr<Work> all_reduce_coalesced(std::vector<Bytes> inouts, DType dtype,
                                             ReduceOp op) override {
    size_t size_bytes = 0;
    for (const Bytes& inout : inouts) size_bytes += inout.size();
    return issue(name_of("all_reduce_coalesced", size_bytes, dtype),
                 [&](DeviceGroup& nccl, void* stream) -> Status {
                   for (const Bytes& inout : inouts)
                     YARD_TRY(nccl.all_reduce(inout.data(), inout.data(), count(inout, dtype),
                                              dtype, op, stream));
                   return Ok{};
                 });
  }

  std::unique_ptr<Work> reduce(Bytes inout, DType dtype, ReduceOp op, int root) override {
    return issue(name_of("reduce", inout.size(), dtype), [&](DeviceGroup& nccl, void* stream) {
      return nccl.reduce(inout.data(), inout.data(), count(inout, dtype), dtype, op, root, stream);
    });
  }

  std::unique_ptr<Work> gather(ConstBytes in, Bytes out, int root) override {
    YARD_CHECK(rank() != root || out.size() == in.size() * ranks());
    std::vector<Piece> receives;
    if (rank() == root) receives = pieces_of(out);
    return exchange(name_of("gather", in.size()), {piece(in, root)}, receives);
  }

  std::unique_ptr<Work> scatter(ConstBytes in, Bytes out, int root) override {
    YARD_CHECK(rank() != root || in.size() == out.size() * ranks());
    std::vector<Piece> sends;
    if (rank() == root) sends = pieces_of(in);
    return exchange(name_of("scatter", out.size()), sends, {piece(out, root)});
  }

  std::unique_ptr<Work> all_to_all(std::vector<ConstBytes> ins, std::vector<Bytes> outs) override {
    YARD_CHECK(ins.size() == ranks() && outs.size() == ranks());
    std::vector<Piece> sends, receives;
    size_t size_bytes = 0;
    for (size_t peer = 0; peer < ranks(); ++peer) {
      sends.push_back(piece(ins[peer], static_cast<int>(peer)));
      receives.push_back(piece(outs[peer], static_cast<int>(peer)));
      size_bytes += ins[peer].size();
    }
    return exchange(name_of("all_to_all", size_bytes), std::move(sends), std::move(receives));
  }

  std::unique_ptr<Work> send(ConstBytes, int, uint64_t) override { return no_messages(); }
  std::unique_ptr<Work> receive(Bytes, int, uint64_t, int*) override { return no_messages(); }

  Result<std::unique_ptr<Group>> split(int color, int key) override {
    return on_devices(host_->split(color, key));
  }
  Result<std::unique_ptr<Group>> shrink(const collective::ShrinkOptions& options) override {
    devices_->nccl->abort();
    return on_devices(host_->shrink(options));
  }

  std::vector<FlightRecord> flight() const override {
    const std::lock_guard lock(devices_->mutex);
    std::vector<FlightRecord> records;
    for (const auto& issued : devices_->flight) records.push_back(issued->record);
    return records;
  }

  // Device memory; no rank reaches another's.
  Result<std::unique_ptr<SharedBuffer>> allocate(size_t size_bytes) override {
    return guard_torch("allocating device memory", [&]() -> Result<std::unique_ptr<SharedBuffer>> {
      const c10::DeviceGuard current(devices_->device);
      c10::DataPtr memory =
          c10::GetAllocator(devices_->device.type())->allocate(std::max<size_t>(size_bytes, 1));
      devices_->guard.recordDataPtrOnStream(memory, devices_->stream);
      return std::unique_ptr<SharedBuffer>(
          std::make_unique<DeviceBuffer>(std::move(memory), size_bytes));
    });
  }

  void abort(std::string_view reason) override {
    devices_->watch->abort(reason);
    host_->abort(reason);
    devices_->nccl->abort();
  }

  double wait_seconds() const override {
    const std::lock_guard lock(devices_->mutex);
    return devices_->wait_seconds;
  }

 private:
  using Piece = DeviceGroup::Piece;

  size_t ranks() const { return static_cast<size_t>(size()); }

  static size_t count(ConstBytes bytes, DType dtype) { return bytes.size() / size_bytes_of(dtype); }

  static Piece piece(ConstBytes bytes, int peer) {
    return {const_cast<std::byte*>(bytes.data()), bytes.size(), peer};
  }

  // A part of `bytes` for each rank.
  std::vector<Piece> pieces_of(ConstBytes bytes) const {
    const size_t part = bytes.size() / ranks();
    std::vector<Piece> pieces;
    for (size_t peer = 0; peer < ranks(); ++peer)
      pieces.push_back(piece(bytes.subspan(peer * part, part), static_cast<int>(peer)));
    return pieces;
  }

  std::unique_ptr<Work> exchange(std::string name, std::vector<Piece> sends,
                                 std::vector<Piece> receives) {
    const auto is_empty = [](const Piece& piece) { return piece.count == 0; };
    std::erase_if(sends, is_empty);
    std::erase_if(receives, is_empty);
    return issue(std::move(name), [&](DeviceGroup& nccl, void* stream) {
      return nccl.exchange(sends, receives, DType::kU8, stream);
    });
  }

  std::string name_of(std::string_view operation, size_t size_bytes) const {
    return fmt::format("{} #{} ({} bytes)", operation, next_number_, size_bytes);
  }
  std::string name_of(std::string_view operation, size_t size_bytes, DType dtype) const {
    return fmt::format("{} #{} ({}, {} bytes)", operation, next_number_, to_string(dtype),
                       size_bytes);
  }

  static std::unique_ptr<Work> no_messages() {
    return std::make_unique<FailedWork>(
        Error{Code::kInvalidArgument, "messages between devices: all_to_all() has them"});
  }

  Result<std::unique_ptr<Group>> on_devices(Result<std::unique_ptr<Group>> host) const {
    if (!host || !*host) return host;
    return connect_devices(*std::move(host), devices_->device, library_);
  }

  std::shared_ptr<Issued> remember(std::string name) {
    auto issued = std::make_shared<Issued>();
    issued->record.call = std::move(name);
    issued->record.issued_unix_us = std::chrono::duration_cast<std::chrono::microseconds>(
                                        std::chrono::system_clock::now().time_since_epoch())
                                        .count();
    const std::lock_guard lock(devices_->mutex);
    devices_->flight.push_back(issued);
    if (devices_->flight.size() > kFlightCountMax) devices_->flight.pop_front();
    return issued;
  }

  // `start` gives an operation to the stream.
  template <typename Start>
  std::unique_ptr<Work> issue(std::string name, Start start) {
    ++next_number_;
    const auto issued = remember(std::move(name));
    auto work = begin(issued, start);
    if (work) return *std::move(work);
    const std::lock_guard lock(devices_->mutex);
    issued->record.error = work.error().message;
    return std::make_unique<FailedWork>(std::move(work).error());
  }

  template <typename Start>
  Result<std::unique_ptr<Work>> begin(const std::shared_ptr<Issued>& issued, Start& start) {
    if (auto failure = devices_->watch->failure()) return *failure;
    return guard_torch("an operation of devices", [&]() -> Result<std::unique_ptr<Work>> {
      const c10::DeviceGuard current(devices_->device);
      c10::Event ready(devices_->device.type(), c10::EventFlag::BACKEND_DEFAULT);
      ready.record(devices_->guard.getStream(devices_->device));
      ready.block(devices_->stream);
      if (Status status = start(*devices_->nccl, devices_->stream.native_handle()); !status)
        return devices_->explain(std::move(status).error());
      return std::unique_ptr<Work>(std::make_unique<DeviceWork>(devices_, issued));
    });
  }

  const std::unique_ptr<Group> host_;
  const std::shared_ptr<Devices> devices_;
  const collective::ResolveSymbol library_;
  std::unique_ptr<SharedBuffer> barrier_memory_;
  uint64_t next_number_ = 1;
};

Result<std::shared_ptr<Devices>> connect_here(Group& host, c10::Device device,
                                              const collective::ResolveSymbol& nccl) {
  const c10::DeviceGuard current(device);
  YARD_ASSIGN(auto group, DeviceGroup::connect(host, nccl));
  auto devices = std::make_shared<Devices>(device, std::move(group));
  YARD_ASSIGN(devices->watch,
              FailureWatch::start(host, [raw = devices.get()] { raw->nccl->abort(); }));
  return devices;
}

}  // namespace

std::string torch_folder() {
  Dl_info found{};
  // A function of libc10 that no header of ours defines.
  if (::dladdr(reinterpret_cast<const void*>(&c10::GetAllocator), &found) == 0) return {};
  return std::filesystem::path(found.dli_fname).parent_path().parent_path();
}

std::string nccl_library(const std::string& torch_folder) {
  const auto beside = std::filesystem::path(torch_folder).parent_path() / "nvidia/nccl/lib";
  std::error_code error;
  const auto library = beside / "libnccl.so.2";
  return std::filesystem::exists(library, error) ? library.string() : "libnccl.so.2";
}

std::span<std::byte> device_bytes_of(const at::Tensor& tensor) {
  YARD_CHECK(tensor.is_contiguous());
  return {static_cast<std::byte*>(tensor.mutable_data_ptr()), tensor.nbytes()};
}

Result<std::unique_ptr<Group>> connect_devices(std::unique_ptr<Group> host, c10::Device device,
                                               const collective::ResolveSymbol& nccl) {
  return guard_torch("connecting devices", [&]() -> Result<std::unique_ptr<Group>> {
    if (device.is_cpu() || !c10::impl::hasDeviceGuardImpl(device.type()))
      return Error{Code::kInvalidArgument, fmt::format("{}: not a device of streams that this "
                                                       "libtorch has",
                                                       device.str())};
    YARD_ASSIGN(auto devices, connect_here(*host, device, nccl));
    return std::unique_ptr<Group>(
        std::make_unique<DeviceCollectives>(std::move(host), std::move(devices), nccl));
  });
}

}  // namespace yard::tensor
