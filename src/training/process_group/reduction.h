// What a reduction that torch asks for is to yard's collectives.
#pragma once

#include <c10/core/ScalarType.h>

#include <torch/csrc/distributed/c10d/Types.hpp>

#include "base/result.h"
#include "collective/collective.h"

namespace yard::process_group {

struct Reduction {
  collective::DType dtype;
  collective::ReduceOp op;
};

// Pure. Truth values are reduced as such: a sum or a maximum is "any", a product or a minimum
// "all". Complex numbers are pairs of floats, which sums and averages alone allow. Unsigned numbers
// wider than a byte have sums, products and bits, which are those of the signed ones.
// PREMUL_SUM is a sum; who calls has multiplied.
// kInvalidArgument names type and operation.
Result<Reduction> reduction_of(c10::ScalarType type, c10d::ReduceOp::RedOpType op);

}  // namespace yard::process_group
