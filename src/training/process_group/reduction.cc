#include "process_group/reduction.h"

#include <fmt/format.h>

#include <optional>
#include <string_view>

namespace yard::process_group {
namespace {

using collective::DType;
using collective::ReduceOp;
using TorchOp = c10d::ReduceOp::RedOpType;

std::string_view name_of(TorchOp op) {
  switch (op) {
    case TorchOp::SUM:
      return "SUM";
    case TorchOp::AVG:
      return "AVG";
    case TorchOp::PRODUCT:
      return "PRODUCT";
    case TorchOp::MIN:
      return "MIN";
    case TorchOp::MAX:
      return "MAX";
    case TorchOp::BAND:
      return "BAND";
    case TorchOp::BOR:
      return "BOR";
    case TorchOp::BXOR:
      return "BXOR";
    case TorchOp::PREMUL_SUM:
      return "PREMUL_SUM";
    case TorchOp::UNUSED:
      break;
  }
  return "an unknown operation";
}

std::optional<ReduceOp> op_of(TorchOp op) {
  switch (op) {
    case TorchOp::SUM:
    case TorchOp::PREMUL_SUM:
      return ReduceOp::kSum;
    case TorchOp::AVG:
      return ReduceOp::kAverage;
    case TorchOp::PRODUCT:
      return ReduceOp::kProduct;
    case TorchOp::MIN:
      return ReduceOp::kMin;
    case TorchOp::MAX:
      return ReduceOp::kMax;
    case TorchOp::BAND:
      return ReduceOp::kBitAnd;
    case TorchOp::BOR:
      return ReduceOp::kBitOr;
    case TorchOp::BXOR:
      return ReduceOp::kBitXor;
    case TorchOp::UNUSED:
      break;
  }
  return std::nullopt;
}

bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kBitAnd || op == ReduceOp::kBitOr || op == ReduceOp::kBitXor;
}

bool is_ordered(ReduceOp op) {
  return op == ReduceOp::kMin || op == ReduceOp::kMax || op == ReduceOp::kAverage;
}

std::optional<Reduction> of_truth(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
    case ReduceOp::kMax:
    case ReduceOp::kBitOr:
      return Reduction{DType::kU8, ReduceOp::kMax};
    case ReduceOp::kProduct:
    case ReduceOp::kMin:
    case ReduceOp::kBitAnd:
      return Reduction{DType::kU8, ReduceOp::kMin};
    case ReduceOp::kBitXor:
      return Reduction{DType::kU8, ReduceOp::kBitXor};
    case ReduceOp::kAverage:
      break;
  }
  return std::nullopt;
}

std::optional<Reduction> of_float(DType dtype, ReduceOp op) {
  if (is_bitwise(op)) return std::nullopt;
  return Reduction{dtype, op};
}

std::optional<Reduction> of_complex(DType dtype, ReduceOp op) {
  if (op != ReduceOp::kSum && op != ReduceOp::kAverage) return std::nullopt;
  return Reduction{dtype, op};
}

std::optional<Reduction> of_unsigned(DType dtype, ReduceOp op) {
  if (is_ordered(op)) return std::nullopt;
  return Reduction{dtype, op};
}

std::optional<Reduction> find(c10::ScalarType type, ReduceOp op) {
  switch (type) {
    case c10::ScalarType::Float:
      return of_float(DType::kF32, op);
    case c10::ScalarType::Double:
      return of_float(DType::kF64, op);
    case c10::ScalarType::BFloat16:
      return of_float(DType::kBF16, op);
    case c10::ScalarType::Half:
      return of_float(DType::kF16, op);
    case c10::ScalarType::Int:
      return Reduction{DType::kI32, op};
    case c10::ScalarType::Long:
      return Reduction{DType::kI64, op};
    case c10::ScalarType::Byte:
      return Reduction{DType::kU8, op};
    case c10::ScalarType::Char:
      return Reduction{DType::kI8, op};
    case c10::ScalarType::Short:
      return Reduction{DType::kI16, op};
    case c10::ScalarType::UInt16:
      return of_unsigned(DType::kI16, op);
    case c10::ScalarType::UInt32:
      return of_unsigned(DType::kI32, op);
    case c10::ScalarType::UInt64:
      return of_unsigned(DType::kI64, op);
    case c10::ScalarType::Bool:
      return of_truth(op);
    case c10::ScalarType::ComplexHalf:
      return of_complex(DType::kF16, op);
    case c10::ScalarType::ComplexFloat:
      return of_complex(DType::kF32, op);
    case c10::ScalarType::ComplexDouble:
      return of_complex(DType::kF64, op);
    default:
      return std::nullopt;
  }
}

}  // namespace

Result<Reduction> reduction_of(c10::ScalarType type, c10d::ReduceOp::RedOpType op) {
  const auto ours = op_of(op);
  const auto found = ours ? find(type, *ours) : std::nullopt;
  if (found) return *found;
  return Error{Code::kInvalidArgument,
               fmt::format("{} of {} tensors cannot be reduced between ranks", name_of(op),
                           c10::toString(type))};
}

}  // namespace yard::process_group
