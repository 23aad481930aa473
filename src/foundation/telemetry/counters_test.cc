#include "telemetry/counters.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "telemetry/metric_names.h"

namespace yard {
namespace {

TEST(CounterRegistry, OneNameIsOneCounter) {
  CounterRegistry registry;
  Counter& first = registry.counter(metric::kLoaderSamples);
  registry.counter("other").add(5);
  first.add(2);
  registry.counter(std::string(metric::kLoaderSamples)).add(0.5);
  EXPECT_EQ(&first, &registry.counter(metric::kLoaderSamples));
  EXPECT_EQ(registry.snapshot(),
            (std::map<std::string, double>{{"loader_samples", 2.5}, {"other", 5}}));
}

TEST(CounterRegistry, LosesNoAdditionOfAnyThread) {
  CounterRegistry registry;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 1000; ++i) registry.counter("shared").add(1);
      (void)registry.snapshot();
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(registry.snapshot().at("shared"), 4000);
}

TEST(ScopedTimer, AddsItsLifetimeInSeconds) {
  Counter counter;
  const auto start = std::chrono::steady_clock::now();
  {
    const ScopedTimer timer(counter);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  const std::chrono::duration<double> around = std::chrono::steady_clock::now() - start;
  EXPECT_GE(counter.value(), 0.002);
  EXPECT_LE(counter.value(), around.count());
}

}  // namespace
}  // namespace yard
