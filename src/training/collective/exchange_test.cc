// Reduce, gather, scatter, all-to-all, several tensors at once, over layouts of ranks on hosts.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <numeric>
#include <vector>

#include "collective/collective.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

class ExchangeTest : public ::testing::TestWithParam<Hosts> {
 protected:
  void run(const std::function<void(Group&)>& body) { on_ranks(options_for(GetParam()), body); }
};

// Nothing, one, small, several chunks.
constexpr size_t kCounts[] = {0, 1, 1001, kIsSlow ? 70'001 : 300'001};

TEST_P(ExchangeTest, ReduceChangesOnlyTheRootsBuffer) {
  run([](Group& group) {
    const int64_t size = group.size();
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t count : kCounts) {
        std::vector<int32_t> data(count, group.rank() + 1);
        ASSERT_TRUE(group.reduce(bytes_of(data), DType::kI32, ReduceOp::kSum, root)->wait());
        const int64_t wanted = group.rank() == root ? size * (size + 1) / 2 : group.rank() + 1;
        ASSERT_EQ(data, std::vector<int32_t>(count, static_cast<int32_t>(wanted))) << count;
      }
    }
  });
}

TEST_P(ExchangeTest, ReduceInSharedMemoryChangesOnlyTheRootsBuffer) {
  run([](Group& group) {
    constexpr size_t kCount = 50'000;
    auto shared = group.allocate(kCount * sizeof(float));
    ASSERT_TRUE(shared);
    std::vector<float> data(kCount, static_cast<float>(group.rank() + 1));
    std::memcpy((*shared)->bytes().data(), data.data(), kCount * sizeof(float));
    const int root = group.size() - 1;
    ASSERT_TRUE(group.reduce((*shared)->bytes(), DType::kF32, ReduceOp::kMin, root)->wait());
    std::vector<float> wanted = data;
    if (group.rank() == root) wanted.assign(kCount, 1.0f);
    std::memcpy(data.data(), (*shared)->bytes().data(), kCount * sizeof(float));
    EXPECT_EQ(data, wanted);
    ASSERT_TRUE(group.barrier()->wait());
  });
}

TEST_P(ExchangeTest, ProductsAndBitsAreThoseOfAllRanks) {
  run([](Group& group) {
    for (const size_t count : kCounts) {
      std::vector<float> factors(count, group.rank() % 2 == 0 ? 2.0f : 0.5f);
      std::vector<uint8_t> bits(count, static_cast<uint8_t>(1 << group.rank()));
      std::vector<uint8_t> others(count, static_cast<uint8_t>(0xff ^ (1 << group.rank())));
      std::vector<int64_t> flips(count, 5);
      ASSERT_TRUE(group.all_reduce(bytes_of(factors), DType::kF32, ReduceOp::kProduct)->wait());
      ASSERT_TRUE(group.all_reduce(bytes_of(bits), DType::kU8, ReduceOp::kBitOr)->wait());
      ASSERT_TRUE(group.all_reduce(bytes_of(others), DType::kU8, ReduceOp::kBitAnd)->wait());
      ASSERT_TRUE(group.all_reduce(bytes_of(flips), DType::kI64, ReduceOp::kBitXor)->wait());
      const auto all = static_cast<uint8_t>((1 << group.size()) - 1);
      const bool is_odd = group.size() % 2 == 1;
      EXPECT_EQ(factors, std::vector<float>(count, is_odd ? 2.0f : 1.0f));
      EXPECT_EQ(bits, std::vector<uint8_t>(count, all));
      EXPECT_EQ(others, std::vector<uint8_t>(count, static_cast<uint8_t>(~all)));
      EXPECT_EQ(flips, std::vector<int64_t>(count, is_odd ? 5 : 0));
    }
  });
}

TEST_P(ExchangeTest, SeveralTensorsAtOnceAreEachReduced) {
  run([](Group& group) {
    std::vector<std::vector<float>> tensors;
    for (const size_t count : {3, 0, 1, 70'000, 17})
      tensors.emplace_back(count, static_cast<float>(group.rank() + static_cast<int>(count)));
    std::vector<std::span<std::byte>> pieces;
    for (auto& tensor : tensors) pieces.push_back(bytes_of(tensor));
    ASSERT_TRUE(group.all_reduce_coalesced(pieces, DType::kF32, ReduceOp::kAverage)->wait());
    const float mean_rank = static_cast<float>(group.size() - 1) / 2;
    for (const auto& tensor : tensors)  // halves of small whole numbers: exact
      ASSERT_TRUE(tensor ==
                  std::vector<float>(tensor.size(), mean_rank + static_cast<float>(tensor.size())))
          << tensor.size();
    ASSERT_TRUE(group.all_reduce_coalesced({}, DType::kF32, ReduceOp::kSum)->wait());
  });
}

TEST_P(ExchangeTest, OtherTensorsOfTheSameTotalAreAnErrorOnAll) {
  run([](Group& group) {
    const bool is_odd = group.rank() == 0;
    std::vector<float> a(is_odd ? 10 : 11), b(is_odd ? 11 : 10);
    auto status =
        group.all_reduce_coalesced({bytes_of(a), bytes_of(b)}, DType::kF32, ReduceOp::kSum)->wait();
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  });
}

TEST_P(ExchangeTest, GatherBringsEveryRanksBytesToTheRootInOrder) {
  run([](Group& group) {
    const auto size = static_cast<size_t>(group.size());
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t count : kCounts) {
        std::vector<int32_t> in(count, group.rank()), out(group.rank() == root ? count * size : 0);
        std::iota(in.begin(), in.end(), group.rank() * 1000);
        ASSERT_TRUE(group.gather(bytes_of(in), bytes_of(out), root)->wait());
        std::vector<int32_t> wanted(out.size());
        for (size_t rank = 0; rank * count < out.size(); ++rank)
          std::iota(wanted.begin() + static_cast<ptrdiff_t>(rank * count),
                    wanted.begin() + static_cast<ptrdiff_t>((rank + 1) * count),
                    static_cast<int32_t>(rank * 1000));
        ASSERT_TRUE(out == wanted) << root << " " << count;
      }
    }
  });
}

TEST_P(ExchangeTest, ScatterGivesEachRankItsPart) {
  run([](Group& group) {
    const auto size = static_cast<size_t>(group.size());
    for (int root = 0; root < group.size(); ++root) {
      for (const size_t count : kCounts) {
        std::vector<int64_t> in(group.rank() == root ? count * size : 0), out(count);
        std::iota(in.begin(), in.end(), 7);
        ASSERT_TRUE(group.scatter(bytes_of(in), bytes_of(out), root)->wait());
        std::vector<int64_t> wanted(count);
        std::iota(wanted.begin(), wanted.end(),
                  static_cast<int64_t>(static_cast<size_t>(group.rank()) * count + 7));
        ASSERT_TRUE(out == wanted) << root << " " << count;
      }
    }
  });
}

// From rank a to rank b: another size for each pair, some empty, some of several chunks.
size_t count_of(int from, int to) {
  return static_cast<size_t>((from * 7 + to * 3) % 5) * 20'011;
}

TEST_P(ExchangeTest, AllToAllBringsEachPieceToItsRank) {
  run([](Group& group) {
    const int rank = group.rank();
    std::vector<std::vector<int32_t>> in, out;
    std::vector<std::span<const std::byte>> ins;
    std::vector<std::span<std::byte>> outs;
    for (int peer = 0; peer < group.size(); ++peer) {
      in.emplace_back(count_of(rank, peer), rank * 100 + peer);
      out.emplace_back(count_of(peer, rank), -1);
    }
    for (auto& piece : in) ins.push_back(bytes_of(piece));
    for (auto& piece : out) outs.push_back(bytes_of(piece));
    for (int repetition = 0; repetition < 3; ++repetition)
      ASSERT_TRUE(group.all_to_all(ins, outs)->wait());
    for (int peer = 0; peer < group.size(); ++peer) {
      const auto& piece = out[static_cast<size_t>(peer)];
      ASSERT_TRUE(piece == std::vector<int32_t>(piece.size(), peer * 100 + rank)) << peer;
    }
  });
}

TEST_P(ExchangeTest, PiecesOfOtherSizesThanTakenAreAnErrorOnAll) {
  run([](Group& group) {
    const auto size = static_cast<size_t>(group.size());
    std::vector<std::byte> in(100), out(100 * size);
    std::vector<std::span<const std::byte>> ins(size, in);
    std::vector<std::span<std::byte>> outs;
    for (size_t peer = 0; peer < size; ++peer)
      outs.push_back(std::span(out).subspan(peer * 100, 100));
    // The last rank gives the first less than it takes.
    if (group.rank() + 1 == group.size()) ins[0] = ins[0].first(99);
    auto status = group.all_to_all(ins, outs)->wait();
    auto after = group.barrier()->wait();
    ASSERT_FALSE(after);
    EXPECT_EQ(after.error().code, Code::kInvalidArgument);
    EXPECT_NE(after.error().message.find("99 bytes"), std::string::npos) << after.error().message;
    EXPECT_NE(after.error().message.find("100"), std::string::npos);
  });
}

INSTANTIATE_TEST_SUITE_P(Layouts, ExchangeTest,
                         ::testing::Values(Hosts(2, "a"), Hosts(3, "a"), Hosts(7, "a"),
                                           Hosts{"a", "b"}, Hosts{"a", "b", "a", "b"},
                                           Hosts{"a", "b", "a", "c", "a"}),
                         [](const auto& param_info) { return joined(param_info.param); });

}  // namespace
}  // namespace yard::collective
