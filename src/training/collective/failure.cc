#include "collective/failure_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cstdint>

namespace yard::collective {

Failure::Failure() : event_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YARD_CHECK(event_.valid());
}

void Failure::report(Error error) {
  std::lock_guard lock(mutex_);
  if (error_) return;
  error_ = std::move(error);
  for (const auto& listener : listeners_) listener(*error_);
  failed_.store(true, std::memory_order_release);
  const uint64_t one = 1;
  const ssize_t written = ::write(event_.get(), &one, sizeof one);
  YARD_CHECK(written == sizeof one);
}

void Failure::add_listener(std::function<void(const Error&)> listener) {
  std::lock_guard lock(mutex_);
  if (error_)
    listener(*error_);
  else
    listeners_.push_back(std::move(listener));
}

void Failure::remove_listeners() {
  std::lock_guard lock(mutex_);
  listeners_.clear();
}

Status Failure::status() const {
  std::lock_guard lock(mutex_);
  if (error_) return *error_;
  return Ok{};
}

std::string Failure::name_of(int rank) const {
  const auto index = static_cast<size_t>(rank);
  const bool has_name = index < host_names_.size() && !host_names_[index].empty();
  return fmt::format("rank {}{}", rank,
                     has_name ? fmt::format(" (on {})", host_names_[index]) : "");
}

Error Failure::report_after(std::chrono::milliseconds grace, Error error) {
  pollfd waited{.fd = event_.get(), .events = POLLIN, .revents = 0};
  if (!failed()) ::poll(&waited, 1, static_cast<int>(grace.count()));
  report(std::move(error));
  return status().error();
}

}  // namespace yard::collective
