// CurlLoop: an event thread that runs transfers with libcurl's multi interface and epoll.
// TransferState: one transfer, shared by its loop and its Transfer.
#pragma once

#include <curl/curl.h>

#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "net/http_client.h"

namespace yard::net_internal {

class CurlLoop;

// The result's side is guarded by its mutex; all else belongs to the loop's thread.
class TransferState {
 public:
  TransferState(HttpRequest request, HttpClient::Completion completion, CurlLoop& loop);
  ~TransferState();

  // kInvalidArgument for what cannot be sent. Before the transfer starts.
  Status prepare(CURL* easy, const HttpClientOptions& options);
  Result<HttpResponse> outcome(CURLcode code);
  void finish(Result<HttpResponse> result);

  const HttpRequest& request() const { return request_; }
  CURL* easy() const { return easy_; }
  CURL* take_easy();

  // From any thread.
  CurlLoop& loop() const { return loop_; }
  bool has_completion() const { return completion_ != nullptr; }
  bool done() const;
  Result<HttpResponse> wait();
  void wait_done();
  // From now on neither the request's buffers nor its callbacks are used on the loop's thread.
  void abandon();

 private:
  static size_t on_header(char* text, size_t size, size_t count, void* self);
  static size_t on_body(char* text, size_t size, size_t count, void* self);
  static size_t on_read(char* into, size_t size, size_t count, void* self);
  static int on_seek(void* self, curl_off_t offset, int origin);

  Status set_body(const HttpClientOptions& options);
  Status set_headers();
  bool append_header(const std::string& line);
  bool header_line(std::string_view line);
  bool head_is_whole();
  size_t take_body(std::span<const std::byte> bytes);
  size_t keep_body(std::span<const std::byte> bytes, bool is_error_page);
  bool is_success() const { return head_.status >= 200 && head_.status < 300; }
  bool fail(Code code, std::string what);
  Error named(Error error) const;

  const HttpRequest request_;
  const HttpClient::Completion completion_;
  CurlLoop& loop_;
  std::atomic<bool> abandoned_ = false;

  CURL* easy_ = nullptr;
  curl_slist* header_list_ = nullptr;
  std::array<char, CURL_ERROR_SIZE> curl_words_{};
  uint64_t sent_bytes_ = 0;
  ResponseHead head_;
  bool head_done_ = false;
  HttpResponse response_;
  std::optional<Error> failure_;  // what our own callbacks found

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Result<HttpResponse>> result_;
  bool done_ = false;
};

using TransferPointer = std::shared_ptr<TransferState>;

// The URL without query and credentials.
std::string url_for_people(std::string_view url);

// Thread-safe but for what says otherwise.
class CurlLoop {
 public:
  CurlLoop(const HttpClientOptions& options, size_t connections_per_host_max,
           size_t connections_idle_max);
  ~CurlLoop();

  void start(TransferPointer transfer);
  void cancel(TransferPointer transfer);
  void resume(TransferPointer transfer);
  bool is_own_thread() const { return std::this_thread::get_id() == thread_.get_id(); }
  size_t active_count() const { return active_count_.load(); }

 private:
  enum class Action { kStart, kCancel, kResume };
  struct Command {
    Action action;
    TransferPointer transfer;
  };

  static int on_socket(CURL* easy, curl_socket_t socket, int what, void* self, void* socket_data);
  static int on_timer(CURLM* multi, long timeout_ms, void* self);

  void post(Action action, TransferPointer transfer);
  void run();
  int wait_ms() const;
  void on_event(int fd, uint32_t events);
  void run_commands();
  void begin(const TransferPointer& transfer);
  void end(const TransferPointer& transfer, Result<HttpResponse> result);
  void end_cancelled(const TransferPointer& transfer);
  void unpause(const TransferPointer& transfer);
  void collect_finished();
  void watch_stop(const TransferPointer& transfer);
  void unwatch_stop(const TransferPointer& transfer);
  void on_stop(int fd);

  const HttpClientOptions options_;
  CURLM* const multi_;
  UniqueFd epoll_;
  UniqueFd wakeup_;
  std::atomic<size_t> active_count_ = 0;

  std::mutex mutex_;
  std::vector<Command> commands_;
  bool stopping_ = false;

  // The thread's own.
  std::unordered_map<CURL*, TransferPointer> running_;
  std::map<int, std::vector<TransferPointer>> by_stop_fd_;
  std::vector<CURL*> free_handles_;
  std::optional<std::chrono::steady_clock::time_point> timer_;
  std::thread thread_;
};

}  // namespace yard::net_internal
