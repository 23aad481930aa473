// Every operation against a scalar reference, over sizes, types, and layouts of ranks on hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "collective/collective.h"
#include "collective/element_internal.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

constexpr DType kDTypes[] = {DType::kF32, DType::kF64, DType::kBF16, DType::kF16, DType::kI32,
                             DType::kI64, DType::kU8,  DType::kI8,   DType::kI16};
constexpr ReduceOp kOps[] = {ReduceOp::kSum, ReduceOp::kAverage, ReduceOp::kMin, ReduceOp::kMax};

// Nothing, one, odd, one-shot, and more than one chunk.
constexpr size_t kCounts[] = {0, 1, 7, 1001, kIsSlow ? 35'001 : 70'001};

template <typename T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof value);
}

void encode(double value, DType dtype, std::byte* at) {
  switch (dtype) {
    case DType::kF32:
      return put(at, static_cast<float>(value));
    case DType::kF64:
      return put(at, value);
    case DType::kBF16:
      return put(at, bf16_of_f32(static_cast<float>(value)));
    case DType::kF16:
      return put(at, f16_of_f32(static_cast<float>(value)));
    case DType::kI32:
      return put(at, static_cast<int32_t>(value));
    case DType::kI64:
      return put(at, static_cast<int64_t>(value));
    case DType::kU8:
      return put(at, static_cast<uint8_t>(value));
    case DType::kI8:
      return put(at, static_cast<int8_t>(value));
    case DType::kI16:
      return put(at, static_cast<int16_t>(value));
  }
}

// Whole numbers so small that their sums are exact in every type, whatever the order.
double value_of(size_t index, int rank) {
  return static_cast<double>((index * 7 + static_cast<size_t>(rank) * 13) % 31);
}

double reference(size_t index, int size, ReduceOp op, DType dtype) {
  double sum = 0, least = 1e9, most = -1e9;
  for (int rank = 0; rank < size; ++rank) {
    const double value = value_of(index, rank);
    sum += value;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  if (op == ReduceOp::kMin) return least;
  if (op == ReduceOp::kMax) return most;
  if (op == ReduceOp::kSum) return sum;
  // Half types are divided in f32 and rounded after that.
  return dtype == DType::kF64
             ? sum / size
             : static_cast<double>(static_cast<float>(sum) / static_cast<float>(size));
}

std::vector<std::byte> input(size_t count, DType dtype, int rank) {
  std::vector<std::byte> bytes(count * size_bytes_of(dtype));
  for (size_t i = 0; i < count; ++i)
    encode(value_of(i, rank), dtype, bytes.data() + i * size_bytes_of(dtype));
  return bytes;
}

std::vector<std::byte> expected(size_t begin, size_t count, DType dtype, ReduceOp op, int size) {
  std::vector<std::byte> bytes(count * size_bytes_of(dtype));
  for (size_t i = 0; i < count; ++i)
    encode(reference(begin + i, size, op, dtype), dtype, bytes.data() + i * size_bytes_of(dtype));
  return bytes;
}

bool same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && (a.empty() || std::memcmp(a.data(), b.data(), a.size()) == 0);
}

class GroupTest : public ::testing::TestWithParam<Hosts> {
 protected:
  void run(const std::function<void(Group&)>& body) { on_ranks(options_for(GetParam()), body); }
};

TEST_P(GroupTest, AllReduceEqualsTheReference) {
  run([](Group& group) {
    for (const DType dtype : kDTypes) {
      for (const ReduceOp op : kOps) {
        for (const size_t count : kCounts) {
          if (count > 10'000 && op != ReduceOp::kAverage) continue;
          std::vector<std::byte> data = input(count, dtype, group.rank());
          auto status = group.all_reduce(data, dtype, op)->wait();
          ASSERT_TRUE(status) << status.error().message;
          ASSERT_TRUE(same(data, expected(0, count, dtype, op, group.size())))
              << to_string(dtype) << " " << static_cast<int>(op) << " " << count;
        }
      }
    }
  });
}

TEST_P(GroupTest, ReduceScatterGivesEachRankItsOwnPart) {
  run([](Group& group) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kU8}) {
      for (const size_t count : kCounts) {
        const size_t total = count * static_cast<size_t>(group.size());
        const std::vector<std::byte> in = input(total, dtype, group.rank());
        std::vector<std::byte> out(count * size_bytes_of(dtype));
        ASSERT_TRUE(group.reduce_scatter(in, out, dtype, ReduceOp::kSum)->wait());
        const size_t begin = count * static_cast<size_t>(group.rank());
        ASSERT_TRUE(same(out, expected(begin, count, dtype, ReduceOp::kSum, group.size())))
            << to_string(dtype) << " " << count;
      }
    }
  });
}

TEST_P(GroupTest, AllGatherPutsEveryRanksBytesInRankOrder) {
  run([](Group& group) {
    for (const size_t size_bytes : {size_t{0}, size_t{1}, size_t{333}, size_t{400'003}}) {
      const std::vector<std::byte> in(size_bytes, static_cast<std::byte>(group.rank() + 1));
      std::vector<std::byte> out(size_bytes * static_cast<size_t>(group.size()));
      ASSERT_TRUE(group.all_gather(in, out)->wait());
      // In place: the input already stands where it belongs.
      std::vector<std::byte> again(out.size());
      const auto own =
          std::span(again).subspan(static_cast<size_t>(group.rank()) * size_bytes, size_bytes);
      std::copy(in.begin(), in.end(), own.begin());
      ASSERT_TRUE(group.all_gather(own, again)->wait());
      std::vector<std::byte> wanted;
      for (int rank = 0; rank < group.size(); ++rank)
        wanted.insert(wanted.end(), size_bytes, static_cast<std::byte>(rank + 1));
      ASSERT_TRUE(same(out, wanted)) << size_bytes;
      ASSERT_TRUE(same(again, wanted)) << size_bytes;
    }
  });
}

TEST_P(GroupTest, BroadcastFromAnyRootReachesAll) {
  run([](Group& group) {
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t size_bytes : {size_t{0}, size_t{1}, size_t{333}, size_t{900'003}}) {
        std::vector<std::byte> wanted(size_bytes, static_cast<std::byte>(root + 1));
        if (size_bytes > 2) wanted[size_bytes / 2] = std::byte{77};
        std::vector<std::byte> data(size_bytes, static_cast<std::byte>(group.rank() + 1));
        if (group.rank() == root) data = wanted;
        ASSERT_TRUE(group.broadcast(data, root)->wait());
        ASSERT_TRUE(same(data, wanted)) << root << " " << size_bytes;
      }
    }
  });
}

TEST_P(GroupTest, SharedBuffersGiveTheSameAsOrdinaryMemory) {
  run([](Group& group) {
    const auto size = static_cast<size_t>(group.size());
    const auto rank = static_cast<size_t>(group.rank());
    constexpr size_t kCount = kIsSlow ? 17'001 : 50'001;
    auto whole = group.allocate(kCount * size * 4 + 8);
    ASSERT_TRUE(whole) << whole.error().message;
    auto part = group.allocate(kCount * 4);
    ASSERT_TRUE(part);
    const auto whole_bytes = (*whole)->bytes().subspan(8);
    const auto part_bytes = (*part)->bytes();

    std::vector<std::byte> data = input(kCount * size, DType::kF32, group.rank());
    std::copy(data.begin(), data.end(), whole_bytes.begin());
    ASSERT_TRUE(group.reduce_scatter(whole_bytes, part_bytes, DType::kF32, ReduceOp::kSum)->wait());
    EXPECT_TRUE(same(part_bytes,
                     expected(kCount * rank, kCount, DType::kF32, ReduceOp::kSum, group.size())));
    ASSERT_TRUE(group.all_reduce(whole_bytes, DType::kF32, ReduceOp::kAverage)->wait());
    EXPECT_TRUE(same(whole_bytes,
                     expected(0, kCount * size, DType::kF32, ReduceOp::kAverage, group.size())));
    // Gathering everybody's reduced part gives the whole sum: out shared, then only in shared.
    ASSERT_TRUE(group.all_gather(part_bytes, whole_bytes)->wait());
    const auto sum = expected(0, kCount * size, DType::kF32, ReduceOp::kSum, group.size());
    EXPECT_TRUE(same(whole_bytes, sum));
    std::fill(data.begin(), data.end(), std::byte{0});
    ASSERT_TRUE(group.all_gather(part_bytes, data)->wait());
    EXPECT_TRUE(same(data, sum));
    // Rank 0's buffer is shared, the others' is not: all must take the common way.
    std::vector<std::byte> own(whole_bytes.begin(), whole_bytes.end());
    if (rank == 0) own[0] = std::byte{9}, whole_bytes[0] = std::byte{9};
    ASSERT_TRUE(group.broadcast(rank == 0 ? whole_bytes : std::span(own), 0)->wait());
    EXPECT_EQ(own[0], std::byte{9});
    ASSERT_TRUE(group.broadcast(whole_bytes, group.size() - 1)->wait());
    EXPECT_EQ(whole_bytes[0], size == 1 ? std::byte{9} : sum[0]);
    whole->reset();
    ASSERT_TRUE(group.barrier()->wait());
    ASSERT_TRUE(group.all_reduce(part_bytes, DType::kF32, ReduceOp::kMax)->wait());
  });
}

std::vector<float> noise(size_t count, int rank) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = 1.0f / static_cast<float>(i * 7919 % 10'007 + static_cast<size_t>(rank) + 1);
  return values;
}

TEST_P(GroupTest, SumsHaveTheSameBitsOnAllRanksAndInEveryRun) {
  for (const size_t count : {size_t{501}, size_t{kIsSlow ? 70'001 : 200'001}}) {
    std::mutex mutex;
    std::vector<std::vector<float>> results;
    for (int repetition = 0; repetition < 2; ++repetition) {
      run([&](Group& group) {
        std::vector<float> own = noise(count, group.rank());
        auto shared = group.allocate(count * sizeof(float));
        ASSERT_TRUE(shared);
        std::memcpy((*shared)->bytes().data(), own.data(), count * sizeof(float));
        auto first =
            group.all_reduce(std::as_writable_bytes(std::span(own)), DType::kF32, ReduceOp::kSum);
        auto second = group.all_reduce((*shared)->bytes(), DType::kF32, ReduceOp::kSum);
        ASSERT_TRUE(second->wait());
        ASSERT_TRUE(first->wait());
        std::vector<float> copy(count);
        std::memcpy(copy.data(), (*shared)->bytes().data(), count * sizeof(float));
        std::lock_guard lock(mutex);
        results.push_back(own);
        results.push_back(copy);
      });
    }
    ASSERT_EQ(results.size(), 4 * GetParam().size());
    for (const auto& result : results) ASSERT_EQ(result, results[0]);
  }
}

TEST_P(GroupTest, OperationsIssuedTogetherRunInTheirOrder) {
  run([](Group& group) {
    constexpr size_t kWorks = 40;
    std::vector<std::vector<int64_t>> data(kWorks);
    std::vector<std::unique_ptr<Work>> works;
    for (size_t i = 0; i < kWorks; ++i) {
      data[i].assign(1 + i * 500, static_cast<int64_t>(i));
      works.push_back(group.all_reduce(std::as_writable_bytes(std::span(data[i])), DType::kI64,
                                       ReduceOp::kSum));
    }
    for (size_t i = kWorks; i-- > 0;) ASSERT_TRUE(works[i]->wait());
    for (size_t i = 0; i < kWorks; ++i)
      ASSERT_TRUE(data[i] ==
                  std::vector<int64_t>(data[i].size(), static_cast<int64_t>(i) * group.size()))
          << i;
  });
}

std::string name_of(const ::testing::TestParamInfo<Hosts>& param) {
  std::map<std::string, size_t> counts;
  for (const std::string& host : param.param) ++counts[host];
  std::string name;
  for (const auto& [host, count] : counts) name += host + std::to_string(count);
  return name;
}

INSTANTIATE_TEST_SUITE_P(Layouts, GroupTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(3, "a"), Hosts(5, "a"),
                                           Hosts(8, "a"), Hosts{"a", "b"},
                                           Hosts{"a", "b", "a", "c"},
                                           Hosts{"a", "b", "b", "a", "a"}),
                         name_of);

TEST(SingleHostTest, SumsAreAddedInTheOrderOfRanks) {
  constexpr size_t kCount = 100'003;
  on_ranks(options_for(one_host(4)), [](Group& group) {
    std::vector<float> own = noise(kCount, group.rank());
    std::vector<float> wanted = noise(kCount, 0);
    for (int rank = 1; rank < 4; ++rank) {
      const std::vector<float> next = noise(kCount, rank);
      for (size_t i = 0; i < kCount; ++i) wanted[i] += next[i];
    }
    ASSERT_TRUE(
        group.all_reduce(std::as_writable_bytes(std::span(own)), DType::kF32, ReduceOp::kSum)
            ->wait());
    EXPECT_EQ(own, wanted);
  });
}

TEST(SingleHostTest, BuffersOfManyMebibytesGoThroughTheStages) {
  on_ranks(options_for(one_host(2)), [](Group& group) {
    std::vector<int32_t> data(kIsSlow ? 600'001 : 3'000'001, group.rank() + 1);
    ASSERT_TRUE(
        group.all_reduce(std::as_writable_bytes(std::span(data)), DType::kI32, ReduceOp::kSum)
            ->wait());
    EXPECT_TRUE(data == std::vector<int32_t>(data.size(), 3));
    EXPECT_GT(group.wait_seconds(), 0);
  });
}

TEST(SingleHostTest, SeveralGroupsDoNotMeet) {
  const auto first = options_for(one_host(2));
  auto second = options_for(one_host(2));
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&, rank] {
      auto a = connect(first[rank], StopToken());
      auto b = connect(second[rank], StopToken());
      ASSERT_TRUE(a && b);
      for (int i = 0; i < 50; ++i) {
        std::vector<int64_t> x(100, 1), y(100, 10);
        auto in_a =
            (*a)->all_reduce(std::as_writable_bytes(std::span(x)), DType::kI64, ReduceOp::kSum);
        auto in_b =
            (*b)->all_reduce(std::as_writable_bytes(std::span(y)), DType::kI64, ReduceOp::kSum);
        ASSERT_TRUE(in_b->wait());
        ASSERT_TRUE(in_a->wait());
        ASSERT_EQ(x, std::vector<int64_t>(100, 2));
        ASSERT_EQ(y, std::vector<int64_t>(100, 20));
      }
    });
  }
}

TEST(SingleRankTest, EveryOperationIsTheIdentity) {
  auto group = single_rank_group();
  std::vector<float> data{1, 2, 3};
  const std::vector<float> before = data;
  const auto bytes = std::as_writable_bytes(std::span(data));
  ASSERT_TRUE(group->all_reduce(bytes, DType::kF32, ReduceOp::kAverage)->wait());
  ASSERT_TRUE(group->broadcast(bytes, 0)->wait());
  std::vector<float> out(3);
  ASSERT_TRUE(group->all_gather(bytes, std::as_writable_bytes(std::span(out)))->wait());
  EXPECT_EQ(out, before);
  std::vector<float> scattered(3);
  ASSERT_TRUE(group
                  ->reduce_scatter(bytes, std::as_writable_bytes(std::span(scattered)), DType::kF32,
                                   ReduceOp::kSum)
                  ->wait());
  EXPECT_EQ(scattered, before);
  ASSERT_TRUE(group->barrier()->wait());
  auto buffer = group->allocate(100);
  ASSERT_TRUE(buffer);
  EXPECT_EQ((*buffer)->bytes().size(), 100u);
  EXPECT_EQ(data, before);
  group->abort("enough");
  auto status = group->barrier()->wait();
  ASSERT_FALSE(status);
  EXPECT_NE(status.error().message.find("enough"), std::string::npos);
}

}  // namespace
}  // namespace yard::collective
