// CallRecord: what a rank says about the operation it runs, so that peers can see that theirs is
// the same one.
#pragma once

#include <cstdint>
#include <string>
#include <type_traits>

#include "collective/collective.h"

namespace yard::collective {

enum class CallKind : uint8_t {
  kAllReduce = 1,
  kReduceScatter,
  kAllGather,
  kBroadcast,
  kBarrier,
  kAllocate,
  kReduce,
  kGather,
  kScatter,
  kAllToAll,
  kSplit,
  // Between two ranks only; their sequence numbers count separately.
  kSend,
  kReceive,
};

// A place in memory that all ranks of a host can reach.
struct SharedPlace {
  uint32_t buffer_id = 0;  // 0: ordinary memory
  uint64_t offset_bytes = 0;
};

// Lies in shared memory and travels between hosts as it is.
struct CallRecord {
  uint64_t sequence = 0;    // the how-manieth operation of the group, from 1
  uint64_t size_bytes = 0;  // of the larger of the two buffers
  uint64_t layout = 0;      // of several tensors: a hash of their sizes, never 0
  int32_t rank = 0;
  int32_t root = 0;  // of kSend and kReceive: the peer
  CallKind kind = CallKind::kBarrier;
  DType dtype = DType::kU8;
  ReduceOp op = ReduceOp::kSum;
  // These two may differ from rank to rank.
  SharedPlace in;
  SharedPlace out;
};
static_assert(std::is_trivially_copyable_v<CallRecord>);

bool same_call(const CallRecord& a, const CallRecord& b);
// "all_reduce #12 (f32, sum, 4096 bytes)"
std::string describe(const CallRecord& call);
// kInvalidArgument naming both calls.
Error mismatch(const CallRecord& a, const CallRecord& b);

}  // namespace yard::collective
