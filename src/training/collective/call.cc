#include "collective/call_internal.h"

#include <fmt/format.h>

namespace yard::collective {
namespace {

std::string_view name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kAllocate:
      return "allocate";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kGather:
      return "gather";
    case CallKind::kScatter:
      return "scatter";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kSplit:
      return "split";
    case CallKind::kSend:
      return "send";
    case CallKind::kReceive:
      return "receive";
  }
  return "unknown call";  // the bytes came from another process
}

std::string_view name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kAverage:
      return "average";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kProduct:
      return "product";
    case ReduceOp::kBitAnd:
      return "bit and";
    case ReduceOp::kBitOr:
      return "bit or";
    case ReduceOp::kBitXor:
      return "bit xor";
  }
  return "unknown op";
}

}  // namespace

bool same_call(const CallRecord& a, const CallRecord& b) {
  return a.sequence == b.sequence && a.size_bytes == b.size_bytes && a.root == b.root &&
         a.kind == b.kind && a.dtype == b.dtype && a.op == b.op && a.layout == b.layout;
}

std::string describe(const CallRecord& call) {
  std::string text = fmt::format("{} #{}", name_of(call.kind), call.sequence);
  const std::string_view dtype = call.dtype <= DType::kI16 ? to_string(call.dtype) : "unknown type";
  switch (call.kind) {
    case CallKind::kAllReduce:
    case CallKind::kReduceScatter:
      return text + fmt::format(" ({}, {}, {} bytes{})", dtype, name_of(call.op), call.size_bytes,
                                call.layout == 0 ? "" : " in several tensors");
    case CallKind::kReduce:
      return text + fmt::format(" ({}, {}, root {}, {} bytes)", dtype, name_of(call.op), call.root,
                                call.size_bytes);
    case CallKind::kBroadcast:
    case CallKind::kGather:
    case CallKind::kScatter:
      return text + fmt::format(" (root {}, {} bytes)", call.root, call.size_bytes);
    case CallKind::kSend:
      return text + fmt::format(" (to {}, {} bytes)", call.root, call.size_bytes);
    case CallKind::kReceive:
      return text + fmt::format(" (from {}, {} bytes)", call.root, call.size_bytes);
    case CallKind::kAllGather:
    case CallKind::kAllocate:
      return text + fmt::format(" ({} bytes)", call.size_bytes);
    case CallKind::kAllToAll:
    case CallKind::kSplit:
    case CallKind::kBarrier:
      break;
  }
  return text;
}

Error mismatch(const CallRecord& a, const CallRecord& b) {
  return {Code::kInvalidArgument,
          fmt::format("ranks call different operations: rank {} {}, rank {} {}", a.rank,
                      describe(a), b.rank, describe(b))};
}

}  // namespace yard::collective
