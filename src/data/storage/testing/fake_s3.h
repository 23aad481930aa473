// FakeS3: an S3 server in this process that keeps its objects in memory, checks what a client signs
// and sums, and fails on command. Speaks what our client needs, path style.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "net/http_server.h"
#include "net/sigv4.h"
#include "net/uri.h"
#include "storage/s3_store.h"

namespace yard::storage::testing {

// One request, as a fault sees it.
struct S3Call {
  int number = 0;  // 0-based, over all requests
  std::string method;
  std::string key;
  std::string query;  // raw
  std::string range;  // the header
  const Headers* headers = nullptr;
};

struct S3Fault {
  int status = 0;  // not 0: the answer, with `body` and `headers`
  std::string body;
  std::vector<std::pair<std::string, std::string>> headers;
  std::optional<uint64_t> reset_after_bytes;  // of the body; then the connection breaks
  bool flip_a_byte = false;                   // of the body, the checksum stays
  bool lose_answer = false;                   // do it, then break the connection
  std::function<void()> before;               // may block
};

// Thread-safe. One bucket, "bucket", of region us-east-1.
class FakeS3 {
 public:
  using Fate = std::function<S3Fault(const S3Call&)>;

  explicit FakeS3(Fate fate = nullptr, const Clock& clock = Clock::real());
  ~FakeS3();

  const Credentials& credentials() const { return credentials_; }
  std::string url() const { return server_->url(); }
  // Points to this server, with its keys and quick retries.
  S3Options options() const;
  S3Store store(const S3Options& options, Clock& clock = Clock::real()) const;
  S3Store store() const { return store(options()); }

  void put(const std::string& key, std::string content);
  std::string content(const std::string& key) const;  // empty when there is none
  int call_count() const;
  std::vector<std::string> calls() const;  // "GET key?query"
  size_t open_upload_count() const;
  // From now on it says that parts may come with trailers, as our gateway does. Before any request.
  void take_trailers() { takes_trailers_ = true; }

 private:
  struct Object {
    std::string content;
    std::string etag;
    Headers headers;  // metadata and checksum
    std::chrono::system_clock::time_point modified;
  };
  struct Parts {
    std::string key;
    std::map<int, Object> parts;
  };
  struct Answer {
    int status = 200;
    Headers headers;
    std::string body;
  };

  void handle(Request& request, ResponseWriter& response);
  Answer answer(Request& request, const S3Call& call, const std::string& body);
  Answer get(const S3Call& call, bool is_head);
  Answer put_object(const S3Call& call, const std::string& body);
  Answer copy(const S3Call& call, const std::vector<QueryPair>& query);
  Answer list(const std::vector<QueryPair>& query);
  Answer remove_many(const std::string& body);
  Answer multipart(const S3Call& call, const std::vector<QueryPair>& query,
                   const std::string& body);
  Answer put_trailed_part(const S3Call& call, const std::vector<QueryPair>& query,
                          const std::string& body);
  Answer complete(const S3Call& call, const std::string& id, const std::string& body);
  static Answer error(int status, std::string_view code);

  const Fate fate_;
  const Credentials credentials_{"AKFAKE", "secret/of+fake", ""};
  SignatureVerifier verifier_;
  mutable std::mutex mutex_;
  std::map<std::string, Object> objects_;
  std::map<std::string, Parts> uploads_;
  std::vector<std::string> calls_;
  int upload_count_ = 0;
  std::atomic<bool> takes_trailers_ = false;
  std::unique_ptr<HttpServer> server_;
};

}  // namespace yard::storage::testing
