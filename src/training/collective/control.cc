#include "collective/control_internal.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <exception>
#include <utility>

namespace yard::collective {
namespace {

constexpr int kRanksMax = 4096;

// The connection of a process closes a moment before its pidfd says so; either is fine.
Error died(const std::string& rank, std::string_view how) {
  return {Code::kUnavailable, fmt::format("{} died: {}", rank, how)};
}

void raise(const UniqueFd& event) {
  const uint64_t one = 1;
  const ssize_t written = ::write(event.get(), &one, sizeof one);
  YARD_CHECK(written == sizeof one);
}

}  // namespace

Control::Control(int rank, std::map<int, UniqueFd> sockets, Failure& failure,
                 std::chrono::milliseconds answer_timeout)
    : rank_(rank),
      failure_(failure),
      answer_timeout_(answer_timeout),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YARD_CHECK(wake_.valid());
  for (auto& [peer_rank, fd] : sockets) {
    Peer peer;
    peer.rank = peer_rank;
    peer.fd = std::move(fd);
    peers_.push_back(std::move(peer));
  }
  failure_.add_listener([this](const Error& error) {
    send_to_all(FrameWriter(FrameType::kAbort).error(error).bytes());
  });
  thread_ = std::thread([this] {
    try {
      run();
    } catch (const std::exception& e) {
      failure_.report({Code::kInternal, fmt::format("watching the peers: {}", e.what())});
    }
  });
}

Control::~Control() {
  stop();
}

void Control::watch(int rank, UniqueFd pidfd, std::function<bool()> may_end) {
  std::lock_guard lock(mutex_);
  new_processes_.push_back({rank, std::move(pidfd), std::move(may_end)});
  raise(wake_);
}

void Control::watch_doors(KeptDoors doors, std::shared_ptr<TlsTunnels> tunnels) {
  if (doors.empty()) return;
  std::lock_guard lock(mutex_);
  tunnels_ = std::move(tunnels);
  new_doors_ = std::move(doors);
  raise(wake_);
}

Status Control::all_ready(const Patience& patience) {
  if (rank_ != 0) send_to_all(FrameWriter(FrameType::kReady).bytes());
  std::unique_lock lock(mutex_);
  while (true) {
    if (failure_.failed()) return failure_.status();
    if (patience.stop.stopped()) return Error{Code::kCancelled, "stop was asked"};
    if (go_ || (rank_ == 0 && ready_count_ == peers_.size())) break;
    if (std::chrono::steady_clock::now() >= patience.deadline)
      return Error{Code::kDeadlineExceeded, "the ranks could not connect to each other in time"};
    // The stop token cannot notify us.
    changed_.wait_for(lock, std::chrono::milliseconds(20));
  }
  lock.unlock();
  if (rank_ == 0) send_to_all(FrameWriter(FrameType::kGo).bytes());
  return Ok{};
}

void Control::stop() {
  {
    std::lock_guard lock(mutex_);
    if (stopped_) return;
    stopped_ = true;
    raise(wake_);
  }
  thread_.join();
  if (!failure_.failed()) send_to_all(FrameWriter(FrameType::kGoodbye).bytes());
}

void Control::send_to_all(const std::string& bytes) {
  std::lock_guard lock(socket_mutex_);
  // A few hundred bytes into an otherwise idle connection: they fit, or nobody reads them.
  for (const Peer& peer : peers_)
    if (peer.fd.valid())
      ::send(peer.fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void Control::run() {
  std::vector<pollfd> polled;
  while (true) {
    {
      std::lock_guard lock(mutex_);
      if (stopped_) return;
      for (Process& process : new_processes_) processes_.push_back(std::move(process));
      new_processes_.clear();
      if (!new_doors_.empty()) door_keeper_.take(std::exchange(new_doors_, {}), tunnels_);
    }
    polled.clear();
    polled.push_back({.fd = wake_.get(), .events = POLLIN, .revents = 0});
    for (const Peer& peer : peers_)
      polled.push_back({.fd = peer.fd.get(), .events = POLLIN, .revents = 0});
    for (const Process& process : processes_)
      polled.push_back({.fd = process.pidfd.get(), .events = POLLIN, .revents = 0});
    door_keeper_.append_to(polled);
    if (::poll(polled.data(), polled.size(), -1) < 0) continue;  // EINTR
    if (polled[0].revents != 0) {
      uint64_t count = 0;
      [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &count, sizeof count);
    }
    for (size_t i = 0; i < peers_.size(); ++i)
      if (polled[1 + i].revents != 0) look_at(peers_[i]);
    for (size_t i = 0; i < processes_.size(); ++i)
      if (polled[1 + peers_.size() + i].revents != 0) look_at(processes_[i]);
    door_keeper_.look();
  }
}

void Control::look_at(Peer& peer) {
  while (peer.fd.valid()) {
    auto frame = peer.reader.read(peer.fd.get());
    if (frame && !*frame) return;
    if (frame) {
      handle(peer, **frame);
      continue;
    }
    {
      std::lock_guard lock(socket_mutex_);
      peer.fd.reset();
    }
    if (!peer.said_goodbye)
      failure_.report(died(failure_.name_of(peer.rank), frame.error().message));
    std::lock_guard lock(mutex_);
    changed_.notify_all();
  }
}

void Control::handle(Peer& peer, const Frame& frame) {
  switch (frame.type) {
    case FrameType::kAbort: {
      FrameFields fields(frame.payload);
      failure_.report(fields.error());
      break;
    }
    case FrameType::kGoodbye:
      peer.said_goodbye = true;
      break;
    case FrameType::kReady: {
      std::lock_guard lock(mutex_);
      ++ready_count_;
      break;
    }
    case FrameType::kGo: {
      std::lock_guard lock(mutex_);
      go_ = true;
      break;
    }
    case FrameType::kStalled:
      handle_stalled(peer, frame);
      break;
    default:
      failure_.report({Code::kCorrupt, fmt::format("{} sent a message that has no place here",
                                                   failure_.name_of(peer.rank))});
  }
  std::lock_guard lock(mutex_);
  changed_.notify_all();
}

void Control::tell_stalled(int waited) {
  {
    std::lock_guard lock(mutex_);
    if (told_stalled_) return;
    told_stalled_ = true;
    if (rank_ == 0) waited_by_[0] = waited;
  }
  send_to_all(FrameWriter(FrameType::kStalled)
                  .u32(static_cast<uint32_t>(rank_))
                  .u32(static_cast<uint32_t>(waited))
                  .bytes());
}

// Rank 0 passes it on to all, the sender too: that shows the sender that rank 0 is awake.
void Control::handle_stalled(const Peer& peer, const Frame& frame) {
  FrameFields fields(frame.payload);
  const auto from = static_cast<int>(fields.u32());
  const auto waited = static_cast<int>(fields.u32());
  if (!fields.complete() || (rank_ == 0 && from != peer.rank) || from < 0 || from >= kRanksMax)
    return;
  {
    std::lock_guard lock(mutex_);
    waited_by_[from] = waited;
  }
  if (rank_ == 0)
    send_to_all(FrameWriter(FrameType::kStalled)
                    .u32(static_cast<uint32_t>(from))
                    .u32(static_cast<uint32_t>(waited))
                    .bytes());
  const int ours = failure_.waited_rank();
  if (ours >= 0) tell_stalled(ours);
}

int Control::find_culprit(int waited) {
  tell_stalled(waited);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, answer_timeout_, [&] { return failure_.failed() || stopped_; });
  if (rank_ != 0 && !waited_by_.contains(rank_)) return 0;
  int culprit = waited;
  for (size_t i = 0; i < waited_by_.size() && waited_by_.contains(culprit); ++i)
    culprit = waited_by_[culprit];
  return culprit == rank_ ? waited : culprit;
}

void Control::look_at(Process& process) {
  process.pidfd.reset();
  if (!process.may_end())
    failure_.report(died(failure_.name_of(process.rank), "its process ended"));
}

}  // namespace yard::collective
