#include "loop/agreement.h"

#include <fmt/format.h>

#include <span>

namespace yard::loop {
namespace {

Result<int32_t> maximum(collective::Group& group, int32_t mine) {
  const std::span<int32_t> value(&mine, 1);
  YARD_TRY(group
               .all_reduce(std::as_writable_bytes(value), collective::DType::kI32,
                           collective::ReduceOp::kMax)
               ->wait());
  return mine;
}

}  // namespace

Status agree(collective::Group& group, const Status& mine, std::string_view doing) {
  const int32_t code = mine ? 0 : 1 + static_cast<int32_t>(mine.error().code);
  YARD_ASSIGN(const int32_t worst, maximum(group, code));
  if (!mine) return mine;
  if (worst == 0) return Ok{};
  return Error{static_cast<Code>(worst - 1), fmt::format("{}: another rank failed ({})", doing,
                                                         to_string(static_cast<Code>(worst - 1)))};
}

Result<bool> any_rank(collective::Group& group, bool mine) {
  YARD_ASSIGN(const int32_t worst, maximum(group, mine ? 1 : 0));
  return worst != 0;
}

Result<int64_t> least_of_ranks(collective::Group& group, int64_t mine) {
  YARD_TRY(group
               .all_reduce(std::as_writable_bytes(std::span(&mine, 1)), collective::DType::kI64,
                           collective::ReduceOp::kMin)
               ->wait());
  return mine;
}

}  // namespace yard::loop
