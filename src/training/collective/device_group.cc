#include "collective/device_group.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <mutex>

namespace yard::collective {
namespace {

// Prototypes of NCCL's interface. Source: NCCL documentation, API reference.
constexpr int kSuccess = 0;
constexpr int kInProgress = 7;
using Communicator = void*;
struct UniqueId {
  std::array<std::byte, 128> bytes;
};

struct Nccl {
  int (*get_unique_id)(UniqueId*);
  int (*comm_init_rank)(Communicator*, int, UniqueId, int);
  int (*comm_destroy)(Communicator);
  int (*comm_abort)(Communicator);
  int (*comm_get_async_error)(Communicator, int*);
  const char* (*get_error_string)(int);
  int (*all_reduce)(const void*, void*, size_t, int, int, Communicator, void*);
  int (*reduce)(const void*, void*, size_t, int, int, int, Communicator, void*);
  int (*reduce_scatter)(const void*, void*, size_t, int, int, Communicator, void*);
  int (*all_gather)(const void*, void*, size_t, int, Communicator, void*);
  int (*broadcast)(const void*, void*, size_t, int, int, Communicator, void*);
  int (*send)(const void*, size_t, int, int, Communicator, void*);
  int (*receive)(void*, size_t, int, int, Communicator, void*);
  int (*group_start)();
  int (*group_end)();
};

Result<Nccl> load(const ResolveSymbol& resolve) {
  Nccl nccl{};
  std::string missing;
  const auto find = [&](auto& function, const char* name) {
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(resolve(name));
    if (function == nullptr && missing.empty()) missing = name;
  };
  find(nccl.get_unique_id, "ncclGetUniqueId");
  find(nccl.comm_init_rank, "ncclCommInitRank");
  find(nccl.comm_destroy, "ncclCommDestroy");
  find(nccl.comm_abort, "ncclCommAbort");
  find(nccl.comm_get_async_error, "ncclCommGetAsyncError");
  find(nccl.get_error_string, "ncclGetErrorString");
  find(nccl.all_reduce, "ncclAllReduce");
  find(nccl.reduce, "ncclReduce");
  find(nccl.reduce_scatter, "ncclReduceScatter");
  find(nccl.all_gather, "ncclAllGather");
  find(nccl.broadcast, "ncclBroadcast");
  find(nccl.send, "ncclSend");
  find(nccl.receive, "ncclRecv");
  find(nccl.group_start, "ncclGroupStart");
  find(nccl.group_end, "ncclGroupEnd");
  if (!missing.empty()) return Error{Code::kNotFound, "NCCL has no function " + missing};
  return nccl;
}

Result<int> nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kI8:
      return 0;
    case DType::kU8:
      return 1;
    case DType::kI32:
      return 2;
    case DType::kI64:
      return 4;
    case DType::kF16:
      return 6;
    case DType::kF32:
      return 7;
    case DType::kF64:
      return 8;
    case DType::kBF16:
      return 9;
    case DType::kI16:
      break;
  }
  return Error{Code::kInvalidArgument, fmt::format("NCCL has no type for {}", to_string(dtype))};
}

Result<int> nccl_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return 0;
    case ReduceOp::kProduct:
      return 1;
    case ReduceOp::kMax:
      return 2;
    case ReduceOp::kMin:
      return 3;
    case ReduceOp::kAverage:
      return 4;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr:
    case ReduceOp::kBitXor:
      break;
  }
  return Error{Code::kInvalidArgument, "NCCL does not reduce bits"};
}

class NcclGroup final : public DeviceGroup {
 public:
  NcclGroup(const Nccl& nccl, ResolveSymbol library, Communicator communicator, int rank, int size)
      : nccl_(nccl),
        library_(std::move(library)),
        communicator_(communicator),
        rank_(rank),
        size_(size) {}
  ~NcclGroup() override {
    if (communicator_ != nullptr) nccl_.comm_destroy(communicator_);
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  Status all_reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                    void* stream) override {
    YARD_ASSIGN(const int type, nccl_type(dtype));
    YARD_ASSIGN(const int operation, nccl_op(op));
    return run("all_reduce", [&](Communicator communicator) {
      return nccl_.all_reduce(in, out, count, type, operation, communicator, stream);
    });
  }

  Status reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op, int root,
                void* stream) override {
    YARD_CHECK(0 <= root && root < size_);
    YARD_ASSIGN(const int type, nccl_type(dtype));
    YARD_ASSIGN(const int operation, nccl_op(op));
    return run("reduce", [&](Communicator communicator) {
      return nccl_.reduce(in, out, count, type, operation, root, communicator, stream);
    });
  }

  Status reduce_scatter(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                        void* stream) override {
    YARD_ASSIGN(const int type, nccl_type(dtype));
    YARD_ASSIGN(const int operation, nccl_op(op));
    return run("reduce_scatter", [&](Communicator communicator) {
      return nccl_.reduce_scatter(in, out, count, type, operation, communicator, stream);
    });
  }

  Status all_gather(const void* in, void* out, size_t count, DType dtype, void* stream) override {
    YARD_ASSIGN(const int type, nccl_type(dtype));
    return run("all_gather", [&](Communicator communicator) {
      return nccl_.all_gather(in, out, count, type, communicator, stream);
    });
  }

  Status broadcast(void* inout, size_t count, DType dtype, int root, void* stream) override {
    YARD_CHECK(0 <= root && root < size_);
    YARD_ASSIGN(const int type, nccl_type(dtype));
    return run("broadcast", [&](Communicator communicator) {
      return nccl_.broadcast(inout, inout, count, type, root, communicator, stream);
    });
  }

  Status exchange(std::span<const Piece> sends, std::span<const Piece> receives, DType dtype,
                  void* stream) override {
    YARD_ASSIGN(const int type, nccl_type(dtype));
    return run("exchange", [&](Communicator communicator) {
      int result = nccl_.group_start();
      for (const Piece& piece : sends)
        if (result == kSuccess)
          result = nccl_.send(piece.data, piece.count, type, piece.peer, communicator, stream);
      for (const Piece& piece : receives)
        if (result == kSuccess)
          result = nccl_.receive(piece.data, piece.count, type, piece.peer, communicator, stream);
      // A group that was begun must end.
      const int ended = nccl_.group_end();
      return result == kSuccess ? ended : result;
    });
  }

  Status check() override {
    std::lock_guard lock(mutex_);
    if (communicator_ == nullptr) return gone();
    int state = kSuccess;
    const int result = nccl_.comm_get_async_error(communicator_, &state);
    return status_of("on the device", result != kSuccess ? result : state);
  }

  void abort() override {
    std::lock_guard lock(mutex_);
    if (communicator_ != nullptr) nccl_.comm_abort(communicator_);
    communicator_ = nullptr;
  }

 private:
  static Error gone() { return {Code::kUnavailable, "NCCL: the group was aborted"}; }

  Status status_of(const char* doing, int result) const {
    if (result == kSuccess || result == kInProgress) return Ok{};
    return Error{Code::kUnavailable, fmt::format("NCCL, rank {} of {}, {}: {}", rank_, size_, doing,
                                                 nccl_.get_error_string(result))};
  }

  template <typename Call>
  Status run(const char* doing, Call call) {
    std::lock_guard lock(mutex_);
    return communicator_ == nullptr ? Status(gone()) : status_of(doing, call(communicator_));
  }

  const Nccl nccl_;
  const ResolveSymbol library_;  // stays open as long as we
  std::mutex mutex_;
  Communicator communicator_;
  const int rank_;
  const int size_;
};

}  // namespace

Result<ResolveSymbol> open_nccl(const std::string& library) {
  const std::shared_ptr<void> handle(::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL),
                                     [](void* opened) {
                                       if (opened != nullptr) ::dlclose(opened);
                                     });
  if (!handle) return Error{Code::kNotFound, fmt::format("{}: {}", library, ::dlerror())};
  return ResolveSymbol([handle](const char* name) { return ::dlsym(handle.get(), name); });
}

Result<std::unique_ptr<DeviceGroup>> DeviceGroup::connect(Group& group,
                                                          const ResolveSymbol& resolve) {
  YARD_ASSIGN(const Nccl nccl, load(resolve));
  UniqueId id{};
  int result = group.rank() == 0 ? nccl.get_unique_id(&id) : kSuccess;
  // Rank 0's failure is everybody's.
  std::array<std::byte, sizeof id + sizeof result> shared{};
  std::memcpy(shared.data(), &id, sizeof id);
  std::memcpy(shared.data() + sizeof id, &result, sizeof result);
  YARD_TRY(group.broadcast(shared, 0)->wait());
  std::memcpy(&id, shared.data(), sizeof id);
  std::memcpy(&result, shared.data() + sizeof id, sizeof result);
  Communicator communicator = nullptr;
  if (result == kSuccess)
    result = nccl.comm_init_rank(&communicator, group.size(), id, group.rank());
  if (result != kSuccess)
    return Error{Code::kUnavailable,
                 fmt::format("NCCL, rank {} of {}, connecting: {}", group.rank(), group.size(),
                             nccl.get_error_string(result))};
  return std::unique_ptr<DeviceGroup>(
      std::make_unique<NcclGroup>(nccl, resolve, communicator, group.rank(), group.size()));
}

}  // namespace yard::collective
