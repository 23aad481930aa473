#include "jobs/queue_order.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <tuple>

namespace yard::jobs {
namespace {

using Lane = std::deque<const WaitingJob*>;  // of one share, oldest first

auto age(const WaitingJob* job) {
  return std::tuple(job->queued_t, job->id);
}

}  // namespace

std::vector<int64_t> queue_order(const std::vector<WaitingJob>& waiting,
                                 std::map<std::string, int> hosts_by_share) {
  std::vector<const WaitingJob*> by_age;
  for (const auto& job : waiting) by_age.push_back(&job);
  std::ranges::sort(by_age, {}, age);
  std::map<int, std::map<std::string, Lane>, std::greater<>> by_priority;
  for (const auto* job : by_age) by_priority[job->priority][job->share].push_back(job);

  std::vector<int64_t> order;
  for (auto& [priority, lanes] : by_priority) {
    while (!lanes.empty()) {
      const auto next = std::ranges::min_element(lanes, {}, [&](const auto& lane) {
        return std::tuple(hosts_by_share[lane.first], age(lane.second.front()));
      });
      const WaitingJob* job = next->second.front();
      order.push_back(job->id);
      hosts_by_share[job->share] += job->host_count;
      next->second.pop_front();
      if (next->second.empty()) lanes.erase(next);
    }
  }
  return order;
}

}  // namespace yard::jobs
