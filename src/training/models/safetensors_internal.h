// The dtypes that we read and write, by the format's names.
#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <string_view>

namespace yard::models {

struct SafetensorsDType {
  std::string_view name;
  at::ScalarType type;
};

inline constexpr std::array<SafetensorsDType, 16> kSafetensorsDTypes = {{
    {"F64", at::kDouble},
    {"F32", at::kFloat},
    {"F16", at::kHalf},
    {"BF16", at::kBFloat16},
    {"F8_E4M3", at::kFloat8_e4m3fn},
    {"F8_E5M2", at::kFloat8_e5m2},
    {"C64", at::kComplexFloat},
    {"I64", at::kLong},
    {"I32", at::kInt},
    {"I16", at::kShort},
    {"I8", at::kChar},
    {"U64", at::kUInt64},
    {"U32", at::kUInt32},
    {"U16", at::kUInt16},
    {"U8", at::kByte},
    {"BOOL", at::kBool},
}};

}  // namespace yard::models
