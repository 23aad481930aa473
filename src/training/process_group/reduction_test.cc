#include "process_group/reduction.h"

#include <gtest/gtest.h>

namespace yard::process_group {
namespace {

using c10::ScalarType;
using collective::DType;
using collective::ReduceOp;
using TorchOp = c10d::ReduceOp::RedOpType;

void expect(ScalarType type, TorchOp op, DType dtype, ReduceOp ours) {
  const auto found = reduction_of(type, op);
  ASSERT_TRUE(found) << found.error().message;
  EXPECT_EQ(found->dtype, dtype);
  EXPECT_EQ(found->op, ours);
}

void expect_refused(ScalarType type, TorchOp op, std::string_view words) {
  const auto found = reduction_of(type, op);
  ASSERT_FALSE(found);
  EXPECT_EQ(found.error().code, Code::kInvalidArgument);
  EXPECT_NE(found.error().message.find(words), std::string::npos) << found.error().message;
}

TEST(ReductionTest, NumbersKeepTheirTypeAndOperation) {
  expect(ScalarType::Float, TorchOp::SUM, DType::kF32, ReduceOp::kSum);
  expect(ScalarType::BFloat16, TorchOp::AVG, DType::kBF16, ReduceOp::kAverage);
  expect(ScalarType::Half, TorchOp::PRODUCT, DType::kF16, ReduceOp::kProduct);
  expect(ScalarType::Long, TorchOp::MIN, DType::kI64, ReduceOp::kMin);
  expect(ScalarType::Short, TorchOp::BXOR, DType::kI16, ReduceOp::kBitXor);
  expect(ScalarType::Double, TorchOp::PREMUL_SUM, DType::kF64, ReduceOp::kSum);
}

TEST(ReductionTest, TruthValuesAreAnyAndAll) {
  for (const auto op : {TorchOp::SUM, TorchOp::MAX, TorchOp::BOR})
    expect(ScalarType::Bool, op, DType::kU8, ReduceOp::kMax);
  for (const auto op : {TorchOp::PRODUCT, TorchOp::MIN, TorchOp::BAND})
    expect(ScalarType::Bool, op, DType::kU8, ReduceOp::kMin);
  expect(ScalarType::Bool, TorchOp::BXOR, DType::kU8, ReduceOp::kBitXor);
  expect_refused(ScalarType::Bool, TorchOp::AVG, "AVG of Bool");
}

TEST(ReductionTest, ComplexNumbersAreAddedAndAveragedAlone) {
  expect(ScalarType::ComplexFloat, TorchOp::SUM, DType::kF32, ReduceOp::kSum);
  expect(ScalarType::ComplexDouble, TorchOp::AVG, DType::kF64, ReduceOp::kAverage);
  for (const auto op : {TorchOp::PRODUCT, TorchOp::MIN, TorchOp::MAX, TorchOp::BAND})
    expect_refused(ScalarType::ComplexFloat, op, "ComplexFloat");
}

TEST(ReductionTest, WideUnsignedNumbersHaveTheReductionsThatDoNotCompare) {
  expect(ScalarType::UInt32, TorchOp::SUM, DType::kI32, ReduceOp::kSum);
  expect(ScalarType::UInt64, TorchOp::PRODUCT, DType::kI64, ReduceOp::kProduct);
  for (const auto op : {TorchOp::MIN, TorchOp::MAX, TorchOp::AVG})
    expect_refused(ScalarType::UInt16, op, "UInt16");
}

TEST(ReductionTest, BitsOfFloatsAndOfUnknownTypesAreRefusedByName) {
  for (const auto op : {TorchOp::BAND, TorchOp::BOR, TorchOp::BXOR})
    expect_refused(ScalarType::Float, op, "of Float");
  expect_refused(ScalarType::Float8_e4m3fn, TorchOp::SUM, "Float8_e4m3fn");
  expect_refused(ScalarType::Float, TorchOp::UNUSED, "unknown operation");
}

}  // namespace
}  // namespace yard::process_group
