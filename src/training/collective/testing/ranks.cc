#include "collective/testing/ranks.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <latch>
#include <mutex>
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

void with_patience(std::chrono::milliseconds first,
                   const std::function<std::string(std::chrono::milliseconds)>& attempt) {
  std::string complaint;
  for (auto timeout = first; timeout <= std::chrono::minutes(1); timeout *= 4) {
    complaint = attempt(timeout);
    if (complaint.empty()) return;
  }
  ADD_FAILURE() << complaint;
}

std::string complaints_of(const std::vector<RendezvousOptions>& options,
                          const std::function<std::string(Group&)>& body) {
  auto groups = connect_all(options);
  std::string all;
  for (const auto& group : groups)
    if (!group) all += group.error().message + "\n";
  if (!all.empty()) return all;
  std::mutex mutex;
  std::vector<std::jthread> threads;
  for (auto& group : groups) {
    threads.emplace_back([&] {
      const std::string complaint = body(**group);
      group->reset();
      std::lock_guard lock(mutex);
      if (!complaint.empty()) all += complaint + "\n";
    });
  }
  threads.clear();
  return all;
}

std::string complaint_unless(const Error& error, Code code, std::string_view text) {
  const bool is_it = error.code == code && error.message.find(text) != std::string::npos;
  return is_it ? ""
               : fmt::format("not '{}' with code {}: {}", text, static_cast<int>(code),
                             error.message);
}

}  // namespace yard::collective
