#include "collective/testing/ranks.h"

#include <gtest/gtest.h>

#include <latch>
#include <optional>
#include <thread>

namespace yard::collective {

uint16_t free_port() {
  const auto port = free_loopback_port();
  YARD_CHECK(port.has_value());
  return *port;
}

std::string joined(const Hosts& hosts) {
  std::string name;
  for (const std::string& host : hosts) name += host;
  return name;
}

Hosts one_host(size_t count) {
  return Hosts(count, "host");
}

std::vector<RendezvousOptions> options_for(const Hosts& hosts) {
  const uint16_t port = free_port();
  std::vector<RendezvousOptions> all;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    RendezvousOptions options;
    options.rank = static_cast<int>(rank);
    options.world_size = static_cast<int>(hosts.size());
    options.master_port = port;
    options.run_id = "test";
    options.connect_timeout = std::chrono::seconds(60);
    options.host_identity = hosts[rank];
    all.push_back(options);
  }
  return all;
}

std::vector<Result<std::unique_ptr<Group>>> connect_all(
    const std::vector<RendezvousOptions>& options) {
  std::vector<std::optional<Result<std::unique_ptr<Group>>>> results(options.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < options.size(); ++i)
      threads.emplace_back([&, i] { results[i] = connect(options[i], StopToken()); });
  }
  std::vector<Result<std::unique_ptr<Group>>> all;
  for (auto& result : results) all.push_back(std::move(*result));
  return all;
}

void on_ranks(const std::vector<RendezvousOptions>& options,
              const std::function<void(Group&)>& body) {
  // A rank whose body fails at once must not disturb another that still connects.
  std::latch all_connected(static_cast<std::ptrdiff_t>(options.size()));
  std::vector<std::jthread> threads;
  for (const RendezvousOptions& each : options) {
    threads.emplace_back([&] {
      auto group = connect(each, StopToken());
      all_connected.count_down();
      ASSERT_TRUE(group) << group.error().message;
      all_connected.wait();
      body(**group);
    });
  }
}

}  // namespace yard::collective
