#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>

#include "net/channel_internal.h"
#include "net/curl_loop_internal.h"

namespace yard::net_internal {
namespace {

constexpr int kEventsPerWait = 64;
// A wait without timer ends with an event; this only bounds what a lost one could cost.
constexpr int kWaitMsMax = 10'000;

CURLM* make_multi() {
  // Thread-safe by the language's rules for statics; curl's own guard is newer than our oldest
  // curl.
  static const CURLcode global = curl_global_init(CURL_GLOBAL_DEFAULT);
  YARD_CHECK(global == CURLE_OK);
  CURLM* multi = curl_multi_init();
  YARD_CHECK(multi != nullptr);
  return multi;
}

}  // namespace

CurlLoop::CurlLoop(const HttpClientOptions& options, size_t connections_per_host_max,
                   size_t connections_idle_max)
    : options_(options),
      multi_(make_multi()),
      epoll_(::epoll_create1(EPOLL_CLOEXEC)),
      wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  YARD_CHECK(epoll_.valid() && wakeup_.valid());
  epoll_event event{.events = EPOLLIN, .data = {.fd = wakeup_.get()}};
  YARD_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wakeup_.get(), &event) == 0);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETFUNCTION, &CurlLoop::on_socket);
  curl_multi_setopt(multi_, CURLMOPT_SOCKETDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_TIMERFUNCTION, &CurlLoop::on_timer);
  curl_multi_setopt(multi_, CURLMOPT_TIMERDATA, this);
  curl_multi_setopt(multi_, CURLMOPT_MAX_HOST_CONNECTIONS,
                    static_cast<long>(connections_per_host_max));
  curl_multi_setopt(multi_, CURLMOPT_MAXCONNECTS, static_cast<long>(connections_idle_max));
  thread_ = std::thread([this] { run(); });
}

CurlLoop::~CurlLoop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  post(Action::kResume, nullptr);
  thread_.join();
  for (CURL* easy : free_handles_) curl_easy_cleanup(easy);
  curl_multi_cleanup(multi_);
}

void CurlLoop::post(Action action, TransferPointer transfer) {
  {
    const std::lock_guard lock(mutex_);
    commands_.push_back({action, std::move(transfer)});
  }
  const uint64_t one = 1;
  // Fails only when the counter is full, and then the thread is awake anyway.
  [[maybe_unused]] const ssize_t written = ::write(wakeup_.get(), &one, sizeof one);
}

void CurlLoop::start(TransferPointer transfer) {
  ++active_count_;
  post(Action::kStart, std::move(transfer));
}

void CurlLoop::cancel(TransferPointer transfer) {
  post(Action::kCancel, std::move(transfer));
}
void CurlLoop::resume(TransferPointer transfer) {
  post(Action::kResume, std::move(transfer));
}

int CurlLoop::on_socket(CURL*, curl_socket_t socket, int what, void* self, void*) {
  auto& loop = *static_cast<CurlLoop*>(self);
  epoll_event event{.events = 0, .data = {.fd = socket}};
  if (what & CURL_POLL_IN) event.events |= EPOLLIN;
  if (what & CURL_POLL_OUT) event.events |= EPOLLOUT;
  if (what == CURL_POLL_REMOVE)
    ::epoll_ctl(loop.epoll_.get(), EPOLL_CTL_DEL, socket, nullptr);
  else if (::epoll_ctl(loop.epoll_.get(), EPOLL_CTL_MOD, socket, &event) != 0)
    ::epoll_ctl(loop.epoll_.get(), EPOLL_CTL_ADD, socket, &event);
  return 0;
}

int CurlLoop::on_timer(CURLM*, long timeout_ms, void* self) {
  auto& timer = static_cast<CurlLoop*>(self)->timer_;
  timer.reset();
  if (timeout_ms >= 0)
    timer = std::chrono::steady_clock::now() + std::chrono::milliseconds(timeout_ms);
  return 0;
}

int CurlLoop::wait_ms() const {
  if (!timer_) return kWaitMsMax;
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(*timer_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, kWaitMsMax));
}

void CurlLoop::run() {
  const SigpipeBlock block;
  std::array<epoll_event, kEventsPerWait> events{};
  for (;;) {
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsPerWait, wait_ms());
    for (int i = 0; i < count; ++i) on_event(events[i].data.fd, events[i].events);
    run_commands();
    int running_count = 0;
    if (timer_ && *timer_ <= std::chrono::steady_clock::now()) {
      timer_.reset();
      curl_multi_socket_action(multi_, CURL_SOCKET_TIMEOUT, 0, &running_count);
    }
    collect_finished();
    const std::lock_guard lock(mutex_);
    if (stopping_ && commands_.empty()) break;
  }
  while (!running_.empty()) end_cancelled(TransferPointer(running_.begin()->second));
}

void CurlLoop::on_event(int fd, uint32_t events) {
  if (fd == wakeup_.get()) {
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t bytes = ::read(fd, &count, sizeof count);
    return;
  }
  if (by_stop_fd_.contains(fd)) return on_stop(fd);
  int mask = 0;
  if (events & EPOLLIN) mask |= CURL_CSELECT_IN;
  if (events & EPOLLOUT) mask |= CURL_CSELECT_OUT;
  if (events & (EPOLLERR | EPOLLHUP)) mask |= CURL_CSELECT_ERR;
  int running_count = 0;
  curl_multi_socket_action(multi_, fd, mask, &running_count);
}

void CurlLoop::run_commands() {
  std::vector<Command> commands;
  {
    const std::lock_guard lock(mutex_);
    commands.swap(commands_);
  }
  for (const Command& command : commands) {
    if (command.transfer == nullptr) continue;
    switch (command.action) {
      case Action::kStart:
        begin(command.transfer);
        break;
      case Action::kCancel:
        end_cancelled(command.transfer);
        break;
      case Action::kResume:
        unpause(command.transfer);
        break;
    }
  }
}

void CurlLoop::begin(const TransferPointer& transfer) {
  if (transfer->done()) return;  // cancelled before it started
  CURL* easy = nullptr;
  if (free_handles_.empty()) {
    easy = curl_easy_init();
  } else {
    easy = free_handles_.back();
    free_handles_.pop_back();
    curl_easy_reset(easy);
  }
  YARD_CHECK(easy != nullptr);
  running_.emplace(easy, transfer);
  if (auto prepared = transfer->prepare(easy, options_); !prepared)
    return end(transfer, std::move(prepared).error());
  watch_stop(transfer);
  if (transfer->request().stop.stopped()) return end_cancelled(transfer);
  if (const CURLMcode code = curl_multi_add_handle(multi_, easy); code != CURLM_OK)
    end(transfer, Error{Code::kInternal, curl_multi_strerror(code)});
}

void CurlLoop::end(const TransferPointer& transfer, Result<HttpResponse> result) {
  unwatch_stop(transfer);
  CURL* easy = transfer->take_easy();
  curl_multi_remove_handle(multi_, easy);
  free_handles_.push_back(easy);
  --active_count_;
  transfer->finish(std::move(result));
  running_.erase(easy);
}

void CurlLoop::end_cancelled(const TransferPointer& transfer) {
  if (transfer->done()) return;
  if (transfer->easy() == nullptr) {
    // Its start is still in the queue, behind us or dropped with the loop.
    --active_count_;
    return transfer->finish(Error{Code::kCancelled, "the transfer was cancelled"});
  }
  end(transfer,
      Error{Code::kCancelled, transfer->request().method + " " +
                                  url_for_people(transfer->request().url) + ": cancelled"});
}

void CurlLoop::unpause(const TransferPointer& transfer) {
  if (transfer->easy() == nullptr) return;
  // Gives the kept bytes to the sink at once; its refusal ends the transfer here, for curl would
  // go on without them.
  const CURLcode code = curl_easy_pause(transfer->easy(), CURLPAUSE_CONT);
  if (code != CURLE_OK) end(transfer, transfer->outcome(code));
}

void CurlLoop::collect_finished() {
  int left = 0;
  while (const CURLMsg* message = curl_multi_info_read(multi_, &left)) {
    if (message->msg != CURLMSG_DONE) continue;
    const auto found = running_.find(message->easy_handle);
    if (found == running_.end()) continue;
    const TransferPointer transfer = found->second;
    end(transfer, transfer->outcome(message->data.result));
  }
}

void CurlLoop::watch_stop(const TransferPointer& transfer) {
  const int fd = transfer->request().stop.fd();
  if (fd < 0) return;
  auto& waiting = by_stop_fd_[fd];
  waiting.push_back(transfer);
  if (waiting.size() > 1) return;
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  YARD_CHECK(::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0);
}

void CurlLoop::unwatch_stop(const TransferPointer& transfer) {
  const auto found = by_stop_fd_.find(transfer->request().stop.fd());
  if (found == by_stop_fd_.end()) return;
  std::erase(found->second, transfer);
  if (!found->second.empty()) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->first, nullptr);
  by_stop_fd_.erase(found);
}

void CurlLoop::on_stop(int fd) {
  const std::vector<TransferPointer> stopped = by_stop_fd_[fd];
  for (const TransferPointer& transfer : stopped) end_cancelled(transfer);
}

}  // namespace yard::net_internal
