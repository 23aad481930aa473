#include "telemetry/counters.h"

#include <chrono>

namespace yard {
namespace {

double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Counter& CounterRegistry::counter(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto found = counters_.find(name);
  if (found == counters_.end())
    found = counters_.emplace(std::string(name), std::make_unique<Counter>()).first;
  return *found->second;
}

std::map<std::string, double> CounterRegistry::snapshot() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, double> values;
  for (const auto& [name, counter] : counters_) values.emplace(name, counter->value());
  return values;
}

ScopedTimer::ScopedTimer(Counter& counter)
    : counter_(counter), start_seconds_(monotonic_seconds()) {}

ScopedTimer::~ScopedTimer() {
  counter_.add(monotonic_seconds() - start_seconds_);
}

}  // namespace yard
