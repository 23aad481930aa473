// DeviceGroup: the collectives of a Group over device memory, by NCCL.
//
// The library is opened at run time, with our own prototypes, so that nothing of CUDA is needed to
// build. Operations are queued on a stream and return at once; buffers are borrowed until the
// stream has passed them.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "collective/collective.h"
#include "collective/symbols.h"

namespace yard::collective {

// kNotFound: no such library, or one of its functions is missing: the name is told.
Result<ResolveSymbol> open_nccl(const std::string& library = "libnccl.so.2");

// For one thread at a time; abort() from any. `stream` is the device library's handle
// (cudaStream_t), of the device that was current at connect(). Counts are elements.
//
// kInvalidArgument: a type or reduction that NCCL does not have (i16, bits). kUnavailable: NCCL
// reports an error; its text is told, and the group is dead.
class DeviceGroup {
 public:
  // Collective over `group`, each rank with its own device current. `group` is only needed here.
  static Result<std::unique_ptr<DeviceGroup>> connect(Group& group, const ResolveSymbol& resolve);
  virtual ~DeviceGroup() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In and out may be the same.
  virtual Status all_reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                            void* stream) = 0;
  virtual Status reduce(const void* in, void* out, size_t count, DType dtype, ReduceOp op, int root,
                        void* stream) = 0;
  // `count` of each rank's part.
  virtual Status reduce_scatter(const void* in, void* out, size_t count, DType dtype, ReduceOp op,
                                void* stream) = 0;
  virtual Status all_gather(const void* in, void* out, size_t count, DType dtype, void* stream) = 0;
  virtual Status broadcast(void* inout, size_t count, DType dtype, int root, void* stream) = 0;

  struct Piece {
    void* data = nullptr;
    size_t count = 0;
    int peer = 0;
  };
  // All of them at once: sends and receives that answer each other cannot wait for each other.
  virtual Status exchange(std::span<const Piece> sends, std::span<const Piece> receives,
                          DType dtype, void* stream) = 0;

  // What went wrong since, on the device. To be asked while waiting for the stream.
  virtual Status check() = 0;
  // Ends what is on its way, so that the stream goes on; the group is dead.
  virtual void abort() = 0;
};

}  // namespace yard::collective
