#include "collective/element_internal.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

// -O2 of older compilers leaves these loops scalar.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3")
#endif

#define YARD_INLINE __attribute__((always_inline)) inline

namespace yard::collective {
namespace {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

YARD_INLINE float widen(Bf16 value) {
  return std::bit_cast<float>(static_cast<uint32_t>(value.bits) << 16);
}

YARD_INLINE Bf16 to_bf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet_nan = (bits >> 16) | 0x40u;
  return {static_cast<uint16_t>((bits & 0x7fffffffu) > 0x7f800000u ? quiet_nan : rounded)};
}

// Both directions work on the bits, without branches, so that they become vector code; and never
// pass a subnormal float to the FPU, which may be set to flush it.
YARD_INLINE float widen(F16 value) {
  const uint32_t sign = static_cast<uint32_t>(value.bits & 0x8000u) << 16;
  const uint32_t magnitude = value.bits & 0x7fffu;
  const uint32_t normal = (magnitude << 13) + ((127u - 15u) << 23);
  // Infinity and NaN: the exponent must become all ones.
  const uint32_t special = normal + ((128u - 16u) << 23);
  // Subnormal: 2^-14 * (1 + m/1024) - 2^-14, exact.
  const float small =
      std::bit_cast<float>((magnitude << 13) + (113u << 23)) - std::bit_cast<float>(113u << 23);
  uint32_t bits = magnitude >= 0x7c00u ? special : normal;
  bits = magnitude < 0x0400u ? std::bit_cast<uint32_t>(small) : bits;
  return std::bit_cast<float>(bits | sign);
}

YARD_INLINE F16 to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000u;
  const uint32_t magnitude = bits & 0x7fffffffu;
  // Rebias the exponent and round the 13 bits that go, to even.
  const uint32_t normal =
      (magnitude - ((127u - 15u) << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Below 2^-14 the FPU rounds for us: adding 0.5 leaves exactly the bits of a subnormal half.
  const float half = 0.5f;
  const uint32_t small_input = magnitude < (113u << 23) ? magnitude : 0u;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(small_input) + half) -
                         std::bit_cast<uint32_t>(half);
  uint32_t result = magnitude < (113u << 23) ? small : normal;
  result = magnitude >= (143u << 23) ? 0x7c00u : result;  // 65536 and more
  result = magnitude > 0x7f800000u ? 0x7e00u | ((magnitude >> 13) & 0x3ffu) : result;  // NaN
  return {static_cast<uint16_t>(result | sign)};
}

template <typename T>
struct Traits {
  using Wide = std::conditional_t<std::is_integral_v<T>, int64_t, T>;
};
template <>
struct Traits<Bf16> {
  using Wide = float;
};
template <>
struct Traits<F16> {
  using Wide = float;
};

template <typename T>
YARD_INLINE typename Traits<T>::Wide load(const std::byte* from, size_t index) {
  T value;
  std::memcpy(&value, from + index * sizeof(T), sizeof(T));
  if constexpr (std::is_arithmetic_v<T>)
    return static_cast<typename Traits<T>::Wide>(value);
  else
    return widen(value);
}

template <typename T, typename Wide>
YARD_INLINE void store(std::byte* to, size_t index, Wide wide) {
  T value;
  if constexpr (std::is_same_v<T, Bf16>)
    value = to_bf16(wide);
  else if constexpr (std::is_same_v<T, F16>)
    value = to_f16(wide);
  else
    value = static_cast<T>(wide);
  std::memcpy(to + index * sizeof(T), &value, sizeof(T));
}

template <ReduceOp op, typename Wide>
YARD_INLINE Wide combine(Wide left, Wide right) {
  if constexpr (op == ReduceOp::kMin) {
    return (right < left || right != right) ? right : left;
  } else if constexpr (op == ReduceOp::kMax) {
    return (right > left || right != right) ? right : left;
  } else if constexpr (is_bitwise(op)) {
    // Never asked for types that are not whole: see reduces().
    if constexpr (!std::is_integral_v<Wide>)
      return left;
    else if constexpr (op == ReduceOp::kBitAnd)
      return left & right;
    else if constexpr (op == ReduceOp::kBitOr)
      return left | right;
    else
      return left ^ right;
  } else if constexpr (std::is_integral_v<Wide>) {
    const auto a = static_cast<uint64_t>(left), b = static_cast<uint64_t>(right);
    return static_cast<Wide>(op == ReduceOp::kProduct ? a * b : a + b);
  } else {
    return op == ReduceOp::kProduct ? left * right : left + right;
  }
}

struct Arguments {
  std::span<std::byte* const> dsts;
  std::span<const std::byte* const> srcs;
  size_t element_count;
  size_t divisor;
};

// Elements handled at a time: the accumulators stay in the first-level cache.
constexpr size_t kBlockElements = 1024;

template <typename From, typename To, ReduceOp op>
YARD_INLINE void reduce_block(const Arguments& a, size_t begin, size_t count) {
  using Wide = typename Traits<From>::Wide;
  alignas(64) Wide sums[kBlockElements];
  const std::byte* first = a.srcs[0] + begin * sizeof(From);
  if (a.srcs.size() == 1) {
    for (size_t i = 0; i < count; ++i) sums[i] = load<From>(first, i);
  } else {
    const std::byte* second = a.srcs[1] + begin * sizeof(From);
    for (size_t i = 0; i < count; ++i)
      sums[i] = combine<op>(load<From>(first, i), load<From>(second, i));
  }
  for (size_t s = 2; s < a.srcs.size(); ++s) {
    const std::byte* next = a.srcs[s] + begin * sizeof(From);
    for (size_t i = 0; i < count; ++i) sums[i] = combine<op>(sums[i], load<From>(next, i));
  }
  if (a.divisor != 1) {
    const Wide divisor = static_cast<Wide>(a.divisor);
    for (size_t i = 0; i < count; ++i) sums[i] = sums[i] / divisor;
  }
  for (std::byte* dst : a.dsts) {
    std::byte* to = dst + begin * sizeof(To);
    if constexpr (std::is_same_v<To, Wide>) {
      std::memcpy(to, sums, count * sizeof(Wide));
    } else {
      for (size_t i = 0; i < count; ++i) store<To>(to, i, sums[i]);
    }
  }
}

template <typename From, typename To, ReduceOp op>
YARD_INLINE void reduce_all(const Arguments& a) {
  for (size_t begin = 0; begin < a.element_count; begin += kBlockElements)
    reduce_block<From, To, op>(a, begin, std::min(kBlockElements, a.element_count - begin));
}

using ReduceFunction = void (*)(const Arguments&);

template <typename From, typename To, ReduceOp op>
void reduce_baseline(const Arguments& a) {
  reduce_all<From, To, op>(a);
}

#if defined(__x86_64__)
template <typename From, typename To, ReduceOp op>
__attribute__((target("avx2"))) void reduce_avx2(const Arguments& a) {
  reduce_all<From, To, op>(a);
}
template <typename From, typename To, ReduceOp op>
__attribute__((target("avx512f,avx512bw,avx512dq,avx512vl"))) void reduce_avx512(
    const Arguments& a) {
  reduce_all<From, To, op>(a);
}

enum class InstructionSet { kBaseline, kAvx2, kAvx512 };

InstructionSet instruction_set() {
  static const InstructionSet found = [] {
    if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return InstructionSet::kAvx512;
    return __builtin_cpu_supports("avx2") ? InstructionSet::kAvx2 : InstructionSet::kBaseline;
  }();
  return found;
}

template <typename From, typename To, ReduceOp op>
ReduceFunction function_for_cpu() {
  switch (instruction_set()) {
    case InstructionSet::kAvx512:
      return reduce_avx512<From, To, op>;
    case InstructionSet::kAvx2:
      return reduce_avx2<From, To, op>;
    case InstructionSet::kBaseline:
      return reduce_baseline<From, To, op>;
  }
  YARD_UNREACHABLE();
}
#else
template <typename From, typename To, ReduceOp op>
ReduceFunction function_for_cpu() {
  return reduce_baseline<From, To, op>;
}
#endif

template <typename From, typename To>
ReduceFunction function_for_op(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
      return function_for_cpu<From, To, ReduceOp::kSum>();
    case ReduceOp::kMin:
      return function_for_cpu<From, To, ReduceOp::kMin>();
    case ReduceOp::kMax:
      return function_for_cpu<From, To, ReduceOp::kMax>();
    case ReduceOp::kProduct:
      return function_for_cpu<From, To, ReduceOp::kProduct>();
    case ReduceOp::kBitAnd:
      return function_for_cpu<From, To, ReduceOp::kBitAnd>();
    case ReduceOp::kBitOr:
      return function_for_cpu<From, To, ReduceOp::kBitOr>();
    case ReduceOp::kBitXor:
      return function_for_cpu<From, To, ReduceOp::kBitXor>();
  }
  YARD_UNREACHABLE();
}

template <typename T>
ReduceFunction function_for_forms(const Reduction& reduction) {
  using Wide = typename Traits<T>::Wide;
  const bool from_wide = reduction.from == Form::kWide;
  const bool to_wide = reduction.to == Form::kWide;
  if (from_wide && to_wide) return function_for_op<Wide, Wide>(reduction.op);
  if (from_wide) return function_for_op<Wide, T>(reduction.op);
  if (to_wide) return function_for_op<T, Wide>(reduction.op);
  return function_for_op<T, T>(reduction.op);
}

ReduceFunction function_for(const Reduction& reduction) {
  switch (reduction.dtype) {
    case DType::kF32:
      return function_for_forms<float>(reduction);
    case DType::kF64:
      return function_for_forms<double>(reduction);
    case DType::kBF16:
      return function_for_forms<Bf16>(reduction);
    case DType::kF16:
      return function_for_forms<F16>(reduction);
    case DType::kI32:
      return function_for_forms<int32_t>(reduction);
    case DType::kI64:
      return function_for_forms<int64_t>(reduction);
    case DType::kU8:
      return function_for_forms<uint8_t>(reduction);
    case DType::kI8:
      return function_for_forms<int8_t>(reduction);
    case DType::kI16:
      return function_for_forms<int16_t>(reduction);
  }
  YARD_UNREACHABLE();
}

}  // namespace

size_t size_bytes_of(DType dtype) {
  switch (dtype) {
    case DType::kU8:
    case DType::kI8:
      return 1;
    case DType::kBF16:
    case DType::kF16:
    case DType::kI16:
      return 2;
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF64:
    case DType::kI64:
      return 8;
  }
  YARD_UNREACHABLE();
}

std::string_view to_string(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kF64:
      return "f64";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kI32:
      return "i32";
    case DType::kI64:
      return "i64";
    case DType::kU8:
      return "u8";
    case DType::kI8:
      return "i8";
    case DType::kI16:
      return "i16";
  }
  YARD_UNREACHABLE();
}

DType wide_of(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kBF16:
    case DType::kF16:
      return DType::kF32;
    case DType::kF64:
      return DType::kF64;
    case DType::kI32:
    case DType::kI64:
    case DType::kU8:
    case DType::kI8:
    case DType::kI16:
      return DType::kI64;
  }
  YARD_UNREACHABLE();
}

bool reduces(ReduceOp op, DType dtype) {
  return !is_bitwise(op) || wide_of(dtype) == DType::kI64;
}

void reduce(const Reduction& reduction, std::span<std::byte* const> dsts,
            std::span<const std::byte* const> srcs, size_t element_count) {
  YARD_CHECK(!srcs.empty() && reduction.divisor > 0);
  YARD_CHECK(reduces(reduction.op, reduction.dtype));
  if (element_count == 0) return;
  function_for(reduction)({dsts, srcs, element_count, reduction.divisor});
}

float f32_of_f16(uint16_t bits) {
  return widen(F16{bits});
}
uint16_t f16_of_f32(float value) {
  return to_f16(value).bits;
}
float f32_of_bf16(uint16_t bits) {
  return widen(Bf16{bits});
}
uint16_t bf16_of_f32(float value) {
  return to_bf16(value).bits;
}

}  // namespace yard::collective
