// S3Client: one signed request to an S3 service, sent until it has an answer that is final.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "net/http_client.h"
#include "net/sigv4.h"
#include "net/uri.h"
#include "storage/buffer_pool.h"
#include "storage/s3_credentials.h"
#include "storage/s3_store.h"
#include "storage/s3_xml_internal.h"
#include "storage/speed_meter.h"
#include "storage/work_queue.h"

namespace yard::storage {

// The machine's time, put right by what a server said of it. Thread-safe.
class CorrectedClock final : public Clock {
 public:
  explicit CorrectedClock(Clock& clock) : clock_(clock) {}
  Monotonic now() const override { return clock_.now(); }
  Wall wall_now() const override { return clock_.wall_now() + offset(); }
  bool sleep_for(std::chrono::nanoseconds duration, const StopToken& stop) override {
    return clock_.sleep_for(duration, stop);
  }
  void correct(Wall server_time) {
    offset_us_ =
        std::chrono::duration_cast<std::chrono::microseconds>(server_time - clock_.wall_now())
            .count();
  }

 private:
  Wall::duration offset() const {
    return std::chrono::duration_cast<Wall::duration>(std::chrono::microseconds(offset_us_));
  }
  Clock& clock_;
  std::atomic<int64_t> offset_us_ = 0;
};

struct S3Request {
  std::string method = "GET";
  std::string bucket;
  std::string key;
  std::vector<QueryPair> query;
  Headers headers;
  std::optional<std::span<const std::byte>> body;
  // Instead of a body, where S3Client::signs_bodies() does not hold; see HttpRequest::body_reader.
  // Its error is final.
  RangeReader body_reader = nullptr;
  uint64_t body_reader_bytes = 0;
  bool has_trailer = false;                  // what it gives is a TrailedBody's
  std::optional<std::span<std::byte>> into;  // see HttpRequest::into
  // Instead: gets the body of a 2xx response, which must be of that size, from position 0 at each
  // attempt. Its error is final.
  const RangeSink* sink = nullptr;
  uint64_t sink_bytes = 0;
  size_t answer_bytes_max = 16 << 20;
  // Judges the head of a 2xx response; what it refuses is final and not tried again.
  std::function<Status(const ResponseHead&)> check_head;
  // Judges a whole 2xx response, its bytes given; kUnavailable and kCorrupt are tried again.
  std::function<Status(const HttpResponse&, std::span<const std::byte> content)> check_body;
  bool may_hedge = false;   // with `into` or `sink`
  bool is_commit = false;   // may take long
  bool is_cleanup = false;  // sent also after a stop was asked, for a short time
};

class S3Client {
 public:
  static Result<std::unique_ptr<S3Client>> open(S3Options options, Clock& clock);
  ~S3Client();

  // A response of any status is a value, once it is final: error_of() makes an Error of it. Errors
  // name the object. Blocks.
  Result<HttpResponse> send(const S3Request& request);
  // send(), and 2xx only.
  Result<HttpResponse> expect(const S3Request& request);
  Error error_of(const S3Request& request, const HttpResponse& response) const;

  Status check_credentials();

  // Whether a request's signature covers its body, which is read as a whole for that.
  bool signs_bodies() const;
  const S3Options& options() const { return options_; }
  const std::string& endpoint_url() const { return endpoint_url_; }
  StoreSpeed speed() const;
  WorkQueue& part_queue() { return part_queue_; }
  ByteBudget& upload_memory() { return upload_memory_; }
  BufferPool& upload_buffers() { return upload_buffers_; }
  Clock::Wall wall_now() const { return clock_.wall_now(); }

 private:
  // One attempt's end: what came, or what check_head() or the sink refused.
  struct Attempt {
    Result<HttpResponse> result;
    std::optional<Error> refusal;
  };
  enum class Next { kDone, kRetry, kFixClock, kRenewCredentials };
  struct Race;
  using RefusalPointer = std::shared_ptr<std::optional<Error>>;

  S3Client(S3Options options, S3Endpoint endpoint, Clock& clock);
  std::chrono::milliseconds patience(std::chrono::milliseconds timeout) const;
  HttpRequest make(const S3Request& request, const Credentials* credentials,
                   std::string_view payload, const RefusalPointer& refusal) const;
  static Result<HttpResponse> checked(const S3Request& request, Result<HttpResponse> result);
  Attempt try_once(const S3Request& request, const Credentials* credentials,
                   std::string_view payload);
  Attempt try_hedged(const S3Request& request, const Credentials* credentials,
                     std::string_view payload);
  Next judge(const S3Request& request, Attempt& attempt) const;
  Next judge_status(const HttpResponse& response) const;
  int attempts_max(const S3Request& request) const;
  bool wait_before_retry(const S3Request& request, const Attempt& attempt, int retry);
  void tell_of_retry(const S3Request& request, const Attempt& attempt);
  Error unanswered(Error error) const;
  std::string payload_of(const S3Request& request) const;
  void note(const HttpResponse& response);

  const S3Options options_;
  const S3Endpoint endpoint_;
  const std::string endpoint_url_;
  CorrectedClock clock_;
  HttpClient http_;
  std::shared_ptr<CredentialsProvider> credentials_;  // null: anonymous
  Signer signer_;
  RetryBudget retry_budget_;
  const bool is_local_;                     // the server is on this machine
  std::atomic<bool> has_answered_ = false;  // whatever it said
  std::mutex told_mutex_;
  std::optional<Clock::Monotonic> told_at_;  // of retries
  HedgeBudget hedge_budget_;
  SpeedMeter meter_;
  ByteBudget upload_memory_;
  BufferPool upload_buffers_;
  WorkQueue part_queue_;  // last: its threads use the others
};

// "s3://bucket/key".
std::string s3_name(std::string_view bucket, std::string_view key);

}  // namespace yard::storage
