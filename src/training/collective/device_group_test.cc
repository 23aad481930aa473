#include "collective/device_group.h"

#include <gtest/gtest.h>

#include <numeric>

#include "collective/testing/fake_nccl.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

void on_devices(size_t count, const std::function<void(DeviceGroup&)>& body) {
  on_ranks(options_for(one_host(count)), [&](Group& group) {
    auto devices = DeviceGroup::connect(group, fake_nccl());
    ASSERT_TRUE(devices) << devices.error().message;
    ASSERT_EQ((*devices)->rank(), group.rank());
    ASSERT_EQ((*devices)->size(), group.size());
    body(**devices);
  });
}

TEST(DeviceGroupTest, EveryReductionAndTypeIsTheLibrarysOwn) {
  on_devices(3, [](DeviceGroup& devices) {
    const auto rank = static_cast<float>(devices.rank());
    std::vector<float> values(5, rank + 1);
    ASSERT_TRUE(devices.all_reduce(values.data(), values.data(), 5, DType::kF32, ReduceOp::kAverage,
                                   nullptr));
    EXPECT_EQ(values, std::vector<float>(5, 2));
    std::vector<double> least(2, rank), product(2, 3), most(2, rank);
    std::vector<int64_t> sum(2, devices.rank());
    const auto reduce = [&](auto& data, DType dtype, ReduceOp op) {
      return devices.all_reduce(data.data(), data.data(), data.size(), dtype, op, nullptr);
    };
    ASSERT_TRUE(reduce(least, DType::kF64, ReduceOp::kMin));
    ASSERT_TRUE(reduce(most, DType::kF64, ReduceOp::kMax));
    ASSERT_TRUE(reduce(product, DType::kF64, ReduceOp::kProduct));
    ASSERT_TRUE(reduce(sum, DType::kI64, ReduceOp::kSum));
    EXPECT_EQ(least[0], 0);
    EXPECT_EQ(most[1], 2);
    EXPECT_EQ(product[0], 27);
    EXPECT_EQ(sum[1], 3);
    std::vector<int32_t> rooted(2, 1);
    ASSERT_TRUE(
        devices.reduce(rooted.data(), rooted.data(), 2, DType::kI32, ReduceOp::kSum, 1, nullptr));
    EXPECT_EQ(rooted[0], devices.rank() == 1 ? 3 : 1);
  });
}

TEST(DeviceGroupTest, PartsGoWhereTheyBelong) {
  on_devices(2, [](DeviceGroup& devices) {
    std::vector<int32_t> whole(6), part(3);
    std::iota(whole.begin(), whole.end(), devices.rank());
    ASSERT_TRUE(
        devices.reduce_scatter(whole.data(), part.data(), 3, DType::kI32, ReduceOp::kSum, nullptr));
    const int32_t first = devices.rank() == 0 ? 1 : 7;
    EXPECT_EQ(part, (std::vector<int32_t>{first, first + 2, first + 4}));
    ASSERT_TRUE(devices.all_gather(part.data(), whole.data(), 3, DType::kI32, nullptr));
    EXPECT_EQ(whole, (std::vector<int32_t>{1, 3, 5, 7, 9, 11}));
    ASSERT_TRUE(devices.broadcast(part.data(), 3, DType::kI32, 1, nullptr));
    EXPECT_EQ(part, (std::vector<int32_t>{7, 9, 11}));
    std::vector<int32_t> out(2, devices.rank()), in(2, -1);
    const int peer = 1 - devices.rank();
    const DeviceGroup::Piece sent{out.data(), 2, peer}, received{in.data(), 2, peer};
    ASSERT_TRUE(
        devices.exchange(std::span(&sent, 1), std::span(&received, 1), DType::kI32, nullptr));
    EXPECT_EQ(in, std::vector<int32_t>(2, peer));
  });
}

TEST(DeviceGroupTest, WhatNcclDoesNotHaveIsRefusedByName) {
  on_devices(1, [](DeviceGroup& devices) {
    std::vector<int32_t> data(1);
    auto status =
        devices.all_reduce(data.data(), data.data(), 1, DType::kI16, ReduceOp::kSum, nullptr);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_NE(status.error().message.find("i16"), std::string::npos);
    status =
        devices.all_reduce(data.data(), data.data(), 1, DType::kI32, ReduceOp::kBitOr, nullptr);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  });
}

TEST(DeviceGroupTest, AMissingLibraryOrFunctionIsNamed) {
  const auto none = open_nccl("libnccl-that-is-not-there.so");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kNotFound);
  EXPECT_NE(none.error().message.find("libnccl-that-is-not-there.so"), std::string::npos);
  auto group = single_rank_group();
  const auto old = DeviceGroup::connect(*group, fake_nccl("ncclReduceScatter"));
  ASSERT_FALSE(old);
  EXPECT_NE(old.error().message.find("ncclReduceScatter"), std::string::npos);
}

TEST(DeviceGroupTest, ABrokenPeerIsToldByTheOperationAndByCheck) {
  on_devices(1, [](DeviceGroup& devices) {
    std::vector<float> data(1);
    EXPECT_TRUE(devices.check());
    break_fake_nccl(true);
    auto status =
        devices.all_reduce(data.data(), data.data(), 1, DType::kF32, ReduceOp::kSum, nullptr);
    const auto checked = devices.check();
    break_fake_nccl(false);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kUnavailable);
    EXPECT_NE(status.error().message.find("remote process exited"), std::string::npos);
    EXPECT_FALSE(checked);
    devices.abort();
    EXPECT_FALSE(devices.check());
    EXPECT_FALSE(devices.broadcast(data.data(), 1, DType::kF32, 0, nullptr));
  });
}

}  // namespace
}  // namespace yard::collective
