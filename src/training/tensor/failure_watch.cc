#include <utility>

#include "tensor/failure_watch_internal.h"

namespace yard::tensor {
namespace {

constexpr uint64_t kTag = 0;

}  // namespace

Result<std::unique_ptr<FailureWatch>> FailureWatch::start(collective::Group& group,
                                                          std::function<void()> on_failure) {
  auto watch = std::unique_ptr<FailureWatch>(new FailureWatch(std::move(on_failure)));
  if (group.size() == 1) return watch;
  YARD_ASSIGN(watch->group_, group.split(0, group.rank()));
  watch->pending_ =
      watch->group_->receive(watch->goodbye_, (group.rank() + 1) % group.size(), kTag);
  watch->thread_ = std::thread([raw = watch.get()] { raw->run(); });
  return watch;
}

void FailureWatch::run() {
  const Status status = pending_->wait();
  {
    const std::lock_guard lock(mutex_);
    if (status || is_leaving_) return;
    failure_ = status.error();
    changed_.notify_all();
  }
  on_failure_();
}

FailureWatch::~FailureWatch() {
  if (!group_) return;
  {
    const std::lock_guard lock(mutex_);
    is_leaving_ = true;
  }
  const std::array<std::byte, 1> goodbye{};
  const int before = (group_->rank() + group_->size() - 1) % group_->size();
  (void)group_->send(goodbye, before, kTag)->wait();  // who is gone needs none
  group_.reset();                                     // ends our own wait
  thread_.join();
}

std::optional<Error> FailureWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::optional<Error> FailureWatch::await_failure(std::chrono::milliseconds limit) const {
  if (!group_) return std::nullopt;
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, limit, [&] { return failure_.has_value(); });
  return failure_;
}

void FailureWatch::abort(std::string_view reason) {
  if (group_) group_->abort(reason);
}

}  // namespace yard::tensor
