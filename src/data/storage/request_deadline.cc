#include "storage/request_deadline.h"

#include <algorithm>

namespace yard::storage {
namespace {

thread_local Clock::Monotonic current_end = Clock::Monotonic::max();

}  // namespace

RequestDeadline::RequestDeadline(Clock::Monotonic end) : before_(current_end) {
  current_end = std::min(before_, end);
}

RequestDeadline::~RequestDeadline() {
  current_end = before_;
}

Clock::Monotonic RequestDeadline::current() {
  return current_end;
}

}  // namespace yard::storage
