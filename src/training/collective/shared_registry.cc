#include <functional>

#include "collective/operations_internal.h"

namespace yard::collective {

void SharedRegistry::add(std::shared_ptr<const SharedStretches> stretches) {
  std::lock_guard lock(mutex_);
  live_.push_back(std::move(stretches));
}

void SharedRegistry::remove(uint32_t id) {
  std::lock_guard lock(mutex_);
  std::erase_if(live_, [id](const auto& stretches) { return stretches->id == id; });
}

SharedRegistry::Found SharedRegistry::find(std::span<const std::byte> bytes) const {
  // std::less orders pointers of different arrays too.
  const std::less_equal<const std::byte*> not_after;
  std::lock_guard lock(mutex_);
  for (const auto& stretches : live_) {
    const std::byte* begin = stretches->of(team_index_);
    const std::byte* end = begin + stretches->size_bytes;
    if (bytes.empty() || !not_after(begin, bytes.data()) ||
        !not_after(bytes.data() + bytes.size(), end))
      continue;
    return {stretches, {stretches->id, static_cast<uint64_t>(bytes.data() - begin)}};
  }
  return {};
}

}  // namespace yard::collective
