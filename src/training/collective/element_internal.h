// Element-wise reductions over plain memory, for the instruction set of the CPU they run on.
//
// Pure functions. The result of an element depends only on its sources and their order, never on
// its place in the buffer or on the instruction set, so every rank that computes it gets the same
// bits.
#pragma once

#include <cstddef>
#include <span>

#include "collective/collective.h"

namespace yard::collective {

// The type partial results are kept in: kF32 for kBF16 and kF16 (so that it is rounded once), kI64
// for the integers (so that an average does not overflow), the type itself otherwise.
DType wide_of(DType dtype);

constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

// How the elements are stored at either end of a reduction.
enum class Form { kNative, kWide };

struct Reduction {
  DType dtype = DType::kF32;
  ReduceOp op = ReduceOp::kSum;  // kAverage adds; `divisor` then says by how much to divide
  Form from = Form::kNative;
  Form to = Form::kNative;
  size_t divisor = 1;
};

// dst[i] = (((srcs[0][i] op srcs[1][i]) op srcs[2][i]) ...) / divisor for all i < element_count,
// for every dst of `dsts`. A dst may be one of the srcs, but not overlap it otherwise. kMin and
// kMax give NaN when a source is NaN; integers wrap
// around. The pair must be one that reduces().
void reduce(const Reduction& reduction, std::span<std::byte* const> dsts,
            std::span<const std::byte* const> srcs, size_t element_count);

// IEEE 754 binary16 and bfloat16, rounded to nearest even.
float f32_of_f16(uint16_t bits);
uint16_t f16_of_f32(float value);
float f32_of_bf16(uint16_t bits);
uint16_t bf16_of_f32(float value);

}  // namespace yard::collective
