#include "collective/host_algorithms_internal.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <mutex>
#include <numeric>
#include <thread>

#include "base/random.h"
#include "collective/testing/fake_links.h"
#include "collective/testing/ranks.h"

namespace yard::collective {
namespace {

constexpr BetweenHosts kAlgorithms[] = {BetweenHosts::kRing, BetweenHosts::kDoubling,
                                        BetweenHosts::kHalvingDoubling};

void on_places(FakeWires& wires, BetweenHosts algorithm, WireForm form,
               const std::function<void(HostAlgorithms&, size_t)>& body) {
  std::vector<std::jthread> threads;
  for (size_t index = 0; index < wires.size(); ++index)
    threads.emplace_back([&, index] {
      auto links = make_fake_links(wires, index);
      HostAlgorithms algorithms(*links, algorithm, form);
      body(algorithms, index);
    });
}

CallRecord sum_of(DType dtype) {
  return {.sequence = 1, .kind = CallKind::kAllReduce, .dtype = dtype};
}

std::vector<float> noise(size_t count, size_t place) {
  std::vector<float> values(count);
  for (size_t i = 0; i < count; ++i)
    values[i] = static_cast<float>(random_below(1'000'000, 3, place, i)) / 1e6f - 0.5f;
  return values;
}

TEST(HostAlgorithmsTest, EveryAlgorithmReducesAnyCountOnAnyNumberOfHosts) {
  for (size_t size = 2; size <= 17; size += kIsSlow && size > 5 ? 3 : 1) {
    for (const BetweenHosts algorithm : kAlgorithms) {
      for (const size_t count : {size_t{0}, size_t{1}, size_t{5}, size_t{1003}}) {
        FakeWires wires(size, size * 31 + count);
        on_places(wires, algorithm, WireForm::kExact, [&](HostAlgorithms& each, size_t place) {
          std::vector<int64_t> values(count);
          std::iota(values.begin(), values.end(), static_cast<int64_t>(place * 1000));
          ASSERT_TRUE(each.all_reduce(sum_of(DType::kI64), bytes_of(values).data(), count));
          for (size_t i = 0; i < count; ++i)
            ASSERT_EQ(values[i], static_cast<int64_t>(size * i + size * (size - 1) / 2 * 1000))
                << size << " " << to_string(algorithm);
        });
      }
    }
  }
}

TEST(HostAlgorithmsTest, SumsHaveTheSameBitsEverywhereWhateverTheOrderOfMessages) {
  for (const WireForm form : {WireForm::kExact, WireForm::kBF16}) {
    for (const size_t size : {2, 3, 6, 8}) {
      for (const BetweenHosts algorithm : kAlgorithms) {
        std::mutex mutex;
        std::vector<std::vector<float>> results;
        for (uint64_t seed = 0; seed < 3; ++seed) {
          FakeWires wires(size, seed);
          on_places(wires, algorithm, form, [&](HostAlgorithms& each, size_t place) {
            std::vector<float> values = noise(257, place);
            ASSERT_TRUE(
                each.all_reduce(sum_of(DType::kF32), bytes_of(values).data(), values.size()));
            std::lock_guard lock(mutex);
            results.push_back(values);
          });
        }
        for (const auto& result : results) ASSERT_EQ(result, results[0]) << to_string(algorithm);
      }
    }
  }
}

TEST(HostAlgorithmsTest, PackedSumsHaveTheStatedErrorAndHalfTheBytes) {
  constexpr size_t kCount = 1000, kSize = 4;
  std::vector<double> exact(kCount), magnitude(kCount);
  for (size_t place = 0; place < kSize; ++place) {
    const auto values = noise(kCount, place);
    for (size_t i = 0; i < kCount; ++i) {
      exact[i] += values[i];
      magnitude[i] += std::abs(values[i]);
    }
  }
  for (const BetweenHosts algorithm : kAlgorithms) {
    uint64_t bytes[2] = {};
    for (const WireForm form : {WireForm::kExact, WireForm::kBF16}) {
      FakeWires wires(kSize, 1);
      on_places(wires, algorithm, form, [&](HostAlgorithms& each, size_t place) {
        std::vector<float> values = noise(kCount, place);
        ASSERT_TRUE(each.all_reduce(sum_of(DType::kF32), bytes_of(values).data(), kCount));
        const double bound = form == WireForm::kExact ? 1e-6 : std::ldexp(kSize, -9);
        for (size_t i = 0; i < kCount; ++i)
          ASSERT_LE(std::abs(values[i] - exact[i]), bound * magnitude[i]);
      });
      bytes[form == WireForm::kBF16] = wires.payload_bytes();
    }
    EXPECT_EQ(bytes[1] * 2, bytes[0]) << to_string(algorithm);
  }
}

TEST(HostAlgorithmsTest, RingAndHalvingSendNoMoreThanMustBeSent) {
  constexpr size_t kCount = 4096, kSize = 8;
  for (const BetweenHosts algorithm : {BetweenHosts::kRing, BetweenHosts::kHalvingDoubling}) {
    FakeWires wires(kSize, 1);
    on_places(wires, algorithm, WireForm::kExact, [&](HostAlgorithms& each, size_t) {
      std::vector<float> values(kCount, 1);
      ASSERT_TRUE(each.all_reduce(sum_of(DType::kF32), bytes_of(values).data(), kCount));
    });
    // Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms, 2009: 2 (n-1)/n of it per host.
    EXPECT_EQ(wires.payload_bytes(), 2 * (kSize - 1) * kCount * sizeof(float));
  }
}

TEST(HostAlgorithmsTest, BroadcastReachesAllFromAnyPlaceByTreeAndPipe) {
  for (size_t size = 2; size <= 9; ++size) {
    for (const size_t size_bytes : {size_t{0}, size_t{1}, size_t{70'000}, size_t{300'001}}) {
      const size_t root = size_bytes % size;
      FakeWires wires(size, size);
      on_places(wires, BetweenHosts::kAuto, WireForm::kExact, [&](HostAlgorithms& each, size_t at) {
        const CallRecord call{.sequence = 2, .kind = CallKind::kBroadcast};
        std::vector<uint8_t> values(size_bytes, static_cast<uint8_t>(at == root ? 77 : at));
        ASSERT_TRUE(each.broadcast(call, bytes_of(values), root));
        ASSERT_EQ(values, std::vector<uint8_t>(size_bytes, 77));
      });
    }
  }
}

TEST(HostAlgorithmsTest, AgreeingFindsTheOneThatDiffersAndNobodyPasses) {
  for (size_t size = 2; size <= 9; ++size) {
    for (size_t odd = 0; odd < size; ++odd) {
      FakeWires wires(size, odd);
      std::atomic<int> passed = 0;
      on_places(wires, BetweenHosts::kAuto, WireForm::kExact, [&](HostAlgorithms& each, size_t at) {
        const CallRecord call{
            .sequence = 3, .root = at == odd ? 1 : 0, .kind = CallKind::kBroadcast};
        const Status status = each.agree(call);
        if (status) ++passed;
        // As the Failure does.
        if (!status) wires.cut();
      });
      EXPECT_EQ(passed, 0) << size << " hosts, " << odd;
    }
  }
}

TEST(HostAlgorithmsTest, WhatTheModelChoosesBetweenHasTheSameBits) {
  for (const WireForm form : {WireForm::kExact, WireForm::kBF16}) {
    for (const size_t size : {2, 3, 4, 7, 8}) {
      std::mutex mutex;
      std::vector<std::vector<float>> results;
      for (const auto algorithm : {BetweenHosts::kDoubling, BetweenHosts::kHalvingDoubling}) {
        FakeWires wires(size, 1);
        on_places(wires, algorithm, form, [&](HostAlgorithms& each, size_t place) {
          std::vector<float> values = noise(1001, place);
          ASSERT_TRUE(each.all_reduce(sum_of(DType::kF32), bytes_of(values).data(), values.size()));
          std::lock_guard lock(mutex);
          results.push_back(values);
        });
      }
      for (const auto& result : results) ASSERT_EQ(result, results[0]) << size;
    }
  }
}

TEST(HostAlgorithmsTest, TheCheaperIsChosenAndTheRingByTheSizeAlone) {
  const LinkModel model{.latency_us = 30, .bytes_per_us = 1000};
  EXPECT_EQ(chosen(model, 8, 64), BetweenHosts::kDoubling);
  EXPECT_EQ(chosen(model, 8, 1 << 20), BetweenHosts::kHalvingDoubling);
  const LinkModel far{.latency_us = 1e5, .bytes_per_us = 1000};
  EXPECT_EQ(chosen(far, 8, 1 << 20), BetweenHosts::kDoubling);
  for (const LinkModel& each : {model, far}) {
    EXPECT_EQ(chosen(each, 6, 1 << 20), BetweenHosts::kRing);
    EXPECT_NE(chosen(each, 6, 1 << 10), BetweenHosts::kRing);
  }
  EXPECT_DOUBLE_EQ(cost_us(model, BetweenHosts::kRing, 4, 4000), 6 * 30 + 1.5 * 4);
  EXPECT_DOUBLE_EQ(cost_us(model, BetweenHosts::kDoubling, 4, 4000), 2 * 30 + 2 * 4);
}

TEST(HostAlgorithmsTest, MeasuringGivesAllTheSameModel) {
  FakeWires wires(3, 1);
  std::mutex mutex;
  std::vector<std::string> choices;
  on_places(wires, BetweenHosts::kAuto, WireForm::kExact, [&](HostAlgorithms& each, size_t) {
    ASSERT_TRUE(each.measure());
    EXPECT_GT(each.model().bytes_per_us, 0);
    std::lock_guard lock(mutex);
    choices.push_back(each.describe_choice());
  });
  ASSERT_EQ(choices.size(), 3u);
  EXPECT_EQ(choices[0], choices[1]);
  EXPECT_EQ(choices[0], choices[2]);
  EXPECT_TRUE(choices[0].starts_with("3 hosts, ")) << choices[0];
}

}  // namespace
}  // namespace yard::collective
