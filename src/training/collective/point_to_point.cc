#include "collective/point_to_point_internal.h"

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <exception>
#include <utility>

#include "collective/point_to_point_connections_internal.h"

namespace yard::collective {
namespace {

using SteadyClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kStep{1000};
constexpr std::chrono::milliseconds kClosingStep{20};
constexpr std::chrono::seconds kLinger{2};

}  // namespace

PointToPoint::PointToPoint(Place place, Failure& failure,
                           std::chrono::milliseconds operation_timeout)
    : place_(std::move(place)),
      failure_(failure),
      operation_timeout_(operation_timeout),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YARD_CHECK(wake_.valid());
}

PointToPoint::~PointToPoint() {
  close();
}

void PointToPoint::finish(Message& message, Status status) {
  std::lock_guard lock(mutex_);
  if (message.done.load(std::memory_order_relaxed)) return;
  message.status = std::move(status);
  message.done.store(true, std::memory_order_release);
  finished_.notify_all();
}

std::shared_ptr<Message> PointToPoint::send(std::span<const std::byte> bytes, int to,
                                            Channel channel, uint64_t tag) {
  auto message = std::make_shared<Message>();
  message->call = {.size_bytes = bytes.size(), .root = to, .kind = CallKind::kSend};
  message->out = bytes;
  message->channel = channel;
  message->tag = tag;
  return issue(std::move(message));
}

std::shared_ptr<Message> PointToPoint::receive(std::span<std::byte> bytes, int from,
                                               Channel channel, uint64_t tag, int* source) {
  auto message = std::make_shared<Message>();
  message->call = {.size_bytes = bytes.size(), .root = from, .kind = CallKind::kReceive};
  message->in = bytes;
  message->channel = channel;
  message->tag = tag;
  message->source = source;
  return issue(std::move(message));
}

std::shared_ptr<Message> PointToPoint::issue(std::shared_ptr<Message> message) {
  message->issued = SteadyClock::now();
  message->call.rank = place_.rank;
  std::unique_lock lock(mutex_);
  message->call.sequence = message->call.kind == CallKind::kSend ? ++send_count_ : ++receive_count_;
  if (message->peer() == place_.rank || closed_) {
    message->status =
        closed_ ? Error{Code::kCancelled, "the group was closed"}
                : Error{Code::kInvalidArgument,
                        fmt::format("{}: a rank cannot talk to itself", describe(message->call))};
    message->done.store(true, std::memory_order_release);
    return message;
  }
  issued_.push_back(message);
  if (!thread_.joinable()) thread_ = std::thread([this] { run(); });
  const uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  return message;
}

Status PointToPoint::wait(Message& message) {
  std::unique_lock lock(mutex_);
  const auto deadline = SteadyClock::now() + operation_timeout_;
  const auto done = [&] { return message.done.load(std::memory_order_acquire); };
  if (finished_.wait_until(lock, deadline, done)) return message.status;
  lock.unlock();
  const int waited = message.peer() == kAnyRank ? -1 : failure_.culprit_of(message.peer());
  (void)failure_.report_after(
      {},
      {Code::kDeadlineExceeded,
       fmt::format("{}: waited {} ms for {}", describe(message.call), operation_timeout_.count(),
                   waited < 0 ? "any rank" : failure_.name_of(waited))});
  lock.lock();
  finished_.wait(lock, done);  // the thread ends it, now that the group has failed
  return message.status;
}

void PointToPoint::close() {
  std::unique_lock lock(mutex_);
  if (!std::exchange(closed_, true)) {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(wake_.get(), &one, sizeof one);
  }
  lock.unlock();
  if (thread_.joinable()) thread_.join();
}

void PointToPoint::run() {
  Connections connections(place_, failure_,
                          [this](Message& message, Status status) { finish(message, status); });
  std::deque<std::shared_ptr<Message>> taken;
  bool closing = false;
  auto closing_until = SteadyClock::time_point::max();
  try {
    while (SteadyClock::now() < closing_until) {
      {
        std::lock_guard lock(mutex_);
        uint64_t count = 0;
        [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
        taken.swap(issued_);
        if (closed_ && !std::exchange(closing, true)) closing_until = SteadyClock::now() + kLinger;
      }
      for (const auto& message : taken)
        failure_.failed() ? finish(*message, failure_.status()) : connections.begin(message);
      taken.clear();
      if (failure_.failed()) connections.finish_all(failure_.status());
      if (closing && (failure_.failed() || !connections.sending())) break;
      connections.step(wake_.get(), closing ? kClosingStep : kStep);
    }
    connections.linger(closing_until);
  } catch (const std::exception& e) {
    failure_.report({Code::kInternal, fmt::format("moving messages: {}", e.what())});
  }
  const Status end = failure_.failed() ? failure_.status()
                                       : Status(Error{Code::kCancelled, "the group was closed"});
  for (const auto& message : taken) finish(*message, end);
  connections.finish_all(end);
}

}  // namespace yard::collective
