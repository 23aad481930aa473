// Over a stand-in for NCCL and a stand-in for a device, both on host memory: that each operation
// is given what it needs, on which device and in which order of streams; not how NCCL does it.
#include "tensor/device_collectives.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <numeric>

#include "collective/device_group.h"
#include "collective/testing/fake_nccl.h"
#include "collective/testing/ranks.h"
#include "tensor/testing/fake_device.h"

namespace yard::tensor {
namespace {

namespace fs = std::filesystem;

using collective::DType;
using collective::Group;
using collective::ReduceOp;

using AllReduce = int (*)(const void*, void*, size_t, int, int, void*, void*);
AllReduce inner_all_reduce = nullptr;

// Notes where it was issued.
int noting_all_reduce(const void* in, void* out, size_t count, int type, int op, void* communicator,
                      void* stream) {
  testing::note_on_stream(
      stream, fmt::format("all_reduce of device {} on", int{testing::current_fake_device()}));
  return inner_all_reduce(in, out, count, type, op, communicator, stream);
}

collective::ResolveSymbol noting_nccl() {
  return [inner = collective::fake_nccl()](const char* name) -> void* {
    void* function = inner(name);
    if (std::string_view(name) != "ncclAllReduce") return function;
    inner_all_reduce = reinterpret_cast<AllReduce>(function);
    return reinterpret_cast<void*>(&noting_all_reduce);
  };
}

// Each rank with a device of its own.
void on_devices(size_t count, const std::function<void(Group&)>& body) {
  const auto nccl = noting_nccl();
  collective::on_ranks(collective::options_for(collective::one_host(count)), [&](Group& group) {
    auto host = group.split(0, group.rank());
    ASSERT_TRUE(host) << host.error().message;
    const c10::Device device(testing::kFakeDevice, static_cast<c10::DeviceIndex>(group.rank()));
    auto devices = connect_devices(*std::move(host), device, nccl);
    ASSERT_TRUE(devices) << devices.error().message;
    body(**devices);
  });
}

template <typename T>
struct DeviceValues {
  DeviceValues(Group& group, std::vector<T> values) : count(values.size()) {
    auto made = group.allocate(count * sizeof(T));
    EXPECT_TRUE(made) << made.error().message;
    buffer = *std::move(made);
    std::copy(values.begin(), values.end(), reinterpret_cast<T*>(bytes().data()));
  }
  std::span<std::byte> bytes() { return buffer->bytes(); }
  std::vector<T> values() {
    const T* begin = reinterpret_cast<const T*>(bytes().data());
    return {begin, begin + count};
  }
  size_t count;
  std::unique_ptr<collective::SharedBuffer> buffer;
};

TEST(DeviceCollectivesTest, OperationsGiveWhatThoseOfAHostGroupGive) {
  on_devices(3, [](Group& group) {
    const auto rank = group.rank();
    DeviceValues<float> sum(group, {1.0F, static_cast<float>(rank)});
    ASSERT_TRUE(group.all_reduce(sum.bytes(), DType::kF32, ReduceOp::kSum)->wait());
    EXPECT_EQ(sum.values(), (std::vector<float>{3, 3}));
    DeviceValues<int32_t> rooted(group, {rank + 1});
    ASSERT_TRUE(group.reduce(rooted.bytes(), DType::kI32, ReduceOp::kMax, 1)->wait());
    EXPECT_EQ(rooted.values()[0], rank == 1 ? 3 : rank + 1);
    DeviceValues<int32_t> whole(group, {0, 0, 0}), part(group, {10 * rank});
    ASSERT_TRUE(group.all_gather(part.bytes(), whole.bytes())->wait());
    EXPECT_EQ(whole.values(), (std::vector<int32_t>{0, 10, 20}));
    ASSERT_TRUE(
        group.reduce_scatter(whole.bytes(), part.bytes(), DType::kI32, ReduceOp::kSum)->wait());
    EXPECT_EQ(part.values()[0], 30 * rank);
    ASSERT_TRUE(group.broadcast(part.bytes(), 2)->wait());
    EXPECT_EQ(part.values()[0], 60);
    DeviceValues<float> other(group, {2.0F});
    ASSERT_TRUE(
        group.all_reduce_coalesced({sum.bytes(), other.bytes()}, DType::kF32, ReduceOp::kAverage)
            ->wait());
    EXPECT_EQ(sum.values()[0], 3);
    EXPECT_EQ(other.values()[0], 2);
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST(DeviceCollectivesTest, PartsGoFromRankToRank) {
  on_devices(3, [](Group& group) {
    const auto rank = group.rank();
    DeviceValues<int32_t> part(group, {rank}), all(group, {7, 8, 9});
    std::span<std::byte> none;
    ASSERT_TRUE(group.gather(part.bytes(), rank == 0 ? all.bytes() : none, 0)->wait());
    EXPECT_EQ(all.values(),
              rank == 0 ? (std::vector<int32_t>{0, 1, 2}) : (std::vector<int32_t>{7, 8, 9}));
    ASSERT_TRUE(group.scatter(rank == 1 ? all.bytes() : none, part.bytes(), 1)->wait());
    EXPECT_EQ(part.values()[0], 7 + rank);
    // Nothing for itself, its rank for the others.
    DeviceValues<int32_t> out(group, {rank, rank}), in(group, {-1, -1, -1});
    std::vector<std::span<const std::byte>> ins(3, out.bytes().first(4));
    std::vector<std::span<std::byte>> outs;
    for (size_t peer = 0; peer < 3; ++peer) outs.push_back(in.bytes().subspan(4 * peer, 4));
    const auto own = static_cast<size_t>(rank);
    ins[own] = {};
    outs[own] = {};
    ASSERT_TRUE(group.all_to_all(ins, outs)->wait());
    std::vector<int32_t> expected = {0, 1, 2};
    expected[own] = -1;
    EXPECT_EQ(in.values(), expected);
  });
}

TEST(DeviceCollectivesTest, StreamsWaitForEachOtherAndTheHostForNone) {
  on_devices(2, [](Group& group) {
    DeviceValues<float> values(group, {1.0F});
    (void)testing::take_stream_log();
    const auto work = group.all_reduce(values.bytes(), DType::kF32, ReduceOp::kSum);
    const std::string issued =
        fmt::format("all_reduce of device {} on 1", static_cast<int>(group.rank()));
    // Behind what the caller's stream had been given, on a stream of its own.
    EXPECT_EQ(testing::take_stream_log(),
              (std::vector<std::string>{"record 0 on 0", "block 1 on 0", issued, "record 1 on 1"}));
    EXPECT_EQ(testing::current_fake_device(), 0);
    EXPECT_TRUE(work->done());
    ASSERT_TRUE(work->wait());
    ASSERT_TRUE(work->wait());
    EXPECT_EQ(testing::take_stream_log(), std::vector<std::string>{"block 0 on 1"});
    const auto flight = group.flight();
    ASSERT_EQ(flight.size(), 1u);
    EXPECT_EQ(flight[0].call, "all_reduce #1 (f32, 4 bytes)");
    EXPECT_GE(flight[0].ended_after_us, 0);
  });
}

TEST(DeviceCollectivesTest, ARankThatGivesUpIsNamedOnTheOthers) {
  on_devices(3, [](Group& group) {
    DeviceValues<float> values(group, {1.0F});
    Status status = group.barrier()->wait();  // on rank 1: all are connected
    if (group.rank() == 1) {
      EXPECT_TRUE(status);
      group.abort("its loss is not finite");
      return;
    }
    // The word may come in the middle of the barrier, or later than the next operation.
    while (status) status = group.all_reduce(values.bytes(), DType::kF32, ReduceOp::kSum)->wait();
    EXPECT_EQ(status.error().code, Code::kUnavailable);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "rank 1", status.error().message);
    EXPECT_PRED_FORMAT2(::testing::IsSubstring, "its loss is not finite", status.error().message);
    EXPECT_EQ(group.barrier()->wait().error().message, status.error().message);
  });
}

TEST(DeviceCollectivesTest, GroupsOfGroupsHaveTheirOwnDevices) {
  on_devices(4, [](Group& group) {
    auto pair = group.split(group.rank() / 2, group.rank());
    ASSERT_TRUE(pair) << pair.error().message;
    DeviceValues<int32_t> values(**pair, {group.rank()});
    ASSERT_TRUE((*pair)->all_reduce(values.bytes(), DType::kI32, ReduceOp::kSum)->wait());
    EXPECT_EQ(values.values()[0], group.rank() < 2 ? 1 : 5);
  });
}

TEST(DeviceCollectivesTest, WhatCannotBeIsRefused) {
  on_devices(1, [](Group& group) {
    DeviceValues<int16_t> values(group, {1});
    auto status = group.all_reduce(values.bytes(), DType::kI16, ReduceOp::kSum)->wait();
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_EQ(group.send(values.bytes(), 0, 0)->wait().error().code, Code::kInvalidArgument);
    EXPECT_TRUE(group.barrier()->wait());  // and the group lives
  });
  const auto refused =
      connect_devices(collective::single_rank_group(), c10::kCPU, collective::fake_nccl());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
  const auto lacking =
      connect_devices(collective::single_rank_group(), c10::Device(testing::kFakeDevice, 0),
                      collective::fake_nccl("ncclSend"));
  EXPECT_EQ(lacking.error().code, Code::kNotFound);
}

TEST(DeviceCollectivesTest, NcclIsThatOfTheTorchWheel) {
  const fs::path packages = ::testing::TempDir() + "packages-" + std::to_string(::getpid());
  const fs::path torch = packages / "torch", nccl = packages / "nvidia/nccl/lib";
  fs::create_directories(torch);
  EXPECT_EQ(nccl_library(torch), "libnccl.so.2");
  fs::create_directories(nccl);
  std::ofstream(nccl / "libnccl.so.2") << "no library";
  EXPECT_EQ(nccl_library(torch), nccl / "libnccl.so.2");
  const auto opened = collective::open_nccl(nccl_library(torch));
  EXPECT_EQ(opened.error().code, Code::kNotFound);
  EXPECT_PRED_FORMAT2(::testing::IsSubstring, "nvidia/nccl", opened.error().message);
  fs::remove_all(packages);
  EXPECT_TRUE(fs::exists(fs::path(torch_folder()) / "lib"));
}

}  // namespace
}  // namespace yard::tensor
