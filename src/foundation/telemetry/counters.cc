#include "telemetry/counters.h"

#include <chrono>

namespace yard {
namespace {

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Counter& CounterRegistry::counter(std::string_view name) {
  std::lock_guard lock(mutex_);
  auto it = counters_.find(name);
  if (it == counters_.end()) it = counters_.emplace(name, std::make_unique<Counter>()).first;
  return *it->second;
}

std::map<std::string, double> CounterRegistry::snapshot() const {
  std::lock_guard lock(mutex_);
  std::map<std::string, double> values;
  for (const auto& [name, counter] : counters_) values.emplace(name, counter->value());
  return values;
}

ScopedTimer::ScopedTimer(Counter& counter) : counter_(counter), start_seconds_(now_seconds()) {}
ScopedTimer::~ScopedTimer() {
  counter_.add(now_seconds() - start_seconds_);
}

}  // namespace yard
