// S3Store: a bucket of an S3 service as an object store.
//
//   YARD_ASSIGN(auto service, S3Service::open({.endpoint = "http://127.0.0.1:9000",
//                                              .environment = env}));
//   S3Store store(service, "bucket");
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/stop_token.h"
#include "net/checksums.h"
#include "net/http_client.h"
#include "net/sigv4.h"
#include "storage/aws_settings.h"
#include "storage/object_store.h"
#include "storage/retry.h"
#include "storage/s3_address.h"

namespace yard::storage {

// A second request for a range that is slow to come; the first answer wins, the other is ended.
struct HedgeOptions {
  bool enabled = true;
  // Sent when a request took longer than this, and than `slowness` times what latency and rate so
  // far let expect for its size.
  std::chrono::milliseconds delay_min{250};
  double slowness = 4;
  // Of 100 requests so many may be doubled, so that a server that is slow altogether is spared.
  double percent_max = 5;
};

// What ends the messages about a server on this machine, for who can start one; empty: nothing.
struct S3LocalAdvice {
  std::string unreachable;   // nobody listens there
  std::string refused_keys;  // the server does not know the key, or another secret of it
};

enum class S3BodySigning {
  kAuto,  // over plain HTTP to another machine; elsewhere TLS or the kernel protects the bytes
  kAlways,
  kNever,
};

struct S3Options {
  // Empty: what `environment` and its files say, else AWS.
  std::string endpoint;
  std::string region;  // likewise, else us-east-1
  S3AddressStyle style = S3AddressStyle::kAuto;

  // Used as they are; none: those of `environment`, see aws_settings.h and s3_credentials.h.
  std::optional<Credentials> credentials;
  std::string profile;
  Environment environment;
  bool anonymous = false;  // nothing is signed

  // Accept all keys that S3 does ("a//b", "../x", "a/"), not only those of object_store.h.
  bool any_key = false;

  S3BodySigning body_signing = S3BodySigning::kAuto;
  // A CRC, so that those of parts can be joined. That of S3's own clients by default.
  ChecksumAlgorithm upload_checksum = ChecksumAlgorithm::kCrc64Nvme;
  // Of uploads: the smallest part, the parts under way at once, and the bytes that all uploads hold
  // beyond one part each.
  uint64_t part_bytes = 8 << 20;
  int part_count_at_once = 16;
  uint64_t upload_memory_bytes = 256 << 20;

  RetryOptions retry;
  // Instead of retry.attempts_max, where fewer, for a server on this machine that has not answered
  // yet: one that was not started does not come by waiting.
  int local_attempts_max = 8;
  S3LocalAdvice local_advice;
  HedgeOptions hedge;
  std::chrono::milliseconds connect_timeout{5'000};
  // A transfer that does not move for so long is given up and tried again.
  std::chrono::seconds stall_timeout{15};
  std::chrono::seconds stall_timeout_of_commit{300};  // S3 may take minutes to join parts
  HttpClientOptions http{.thread_count = 2};
  StopToken stop;  // ends every call with kCancelled
};

class S3Client;
struct S3Request;

// One S3 endpoint: its connections, credentials and what was measured. Thread-safe; shared by the
// stores of its buckets.
class S3Service {
 public:
  // Reads the files that the options name; does not connect. `clock` outlives the service.
  // kInvalidArgument, kNotFound: as load_aws_settings; an endpoint that is none.
  static Result<std::shared_ptr<S3Service>> open(S3Options options, Clock& clock = Clock::real());
  ~S3Service();

  // Whether there are any; kNotFound says where was looked. Whether the server takes them is
  // another matter.
  Status check_credentials();
  Result<std::vector<std::string>> list_buckets();
  // Ok also when it is ours already.
  Status create_bucket(std::string_view bucket);

  const std::string& endpoint_url() const;
  S3Client& client() { return *client_; }

 private:
  explicit S3Service(std::unique_ptr<S3Client> client);
  const std::unique_ptr<S3Client> client_;
};

// Thread-safe. Uploads may outlive the store, not the other way round: they keep the service.
//
// Codes besides those of object_store.h: kInvalidArgument for a refused signature or permission,
// and for a bucket of another region (the message names it); kNotFound for a missing bucket. What
// the network or the server breaks is tried again (RetryOptions); error pages, short bodies and
// bodies with another checksum than the server names are never given out as content.
//
// Limits of S3: keys of 1..1024 bytes, objects to 5 TiB, 10,000 parts. Content that is smaller than
// two parts is put in one request, so it costs no request to start and to end an upload.
// `if_absent` needs a server that knows If-None-Match; rclone's does not and overwrites.
class S3Store final : public ObjectStore {
 public:
  S3Store(std::shared_ptr<S3Service> service, std::string bucket);

  Status get_range(std::string_view key, std::string_view etag, uint64_t offset,
                   std::span<std::byte> out) override;
  Status get_range_to(std::string_view key, std::string_view etag, uint64_t offset,
                      uint64_t size_bytes, const RangeSink& sink) override;
  Status get_object(const ObjectInfo& info, std::span<std::byte> out) override;
  Result<ObjectInfo> head(std::string_view key) override;
  Result<ListPage> list(const ListRequest& request) override;
  Result<ObjectInfo> put(std::string_view key, std::span<const std::byte> content,
                         const PutOptions& options) override;
  Result<std::unique_ptr<Upload>> upload(std::string_view key,
                                         const PutOptions& options = {}) override;
  Result<ObjectInfo> copy(std::string_view source, std::string_view key,
                          const PutOptions& options) override;
  // The same from another bucket of this service.
  Result<ObjectInfo> copy_from(const S3Store& source_store, std::string_view source,
                               std::string_view key, const PutOptions& options);
  Status remove(std::string_view key) override;
  Status remove_all(std::span<const std::string> keys) override;
  std::string url() const override { return "s3://" + bucket_; }
  StoreSpeed speed() const override;

  const std::string& bucket() const { return bucket_; }
  bool same_service(const S3Store& other) const { return service_ == other.service_; }

 private:
  Status read_range(std::string_view key, std::string_view etag, uint64_t offset,
                    uint64_t size_bytes, S3Request request);
  Status check_own_key(std::string_view key) const;
  Result<ObjectInfo> copy_parts(const std::string& source_bucket, const ObjectInfo& source,
                                std::string_view key, const PutOptions& options);
  Status remove_batch(std::span<const std::string> keys);

  const std::shared_ptr<S3Service> service_;
  S3Client& client_;
  const std::string bucket_;
};

}  // namespace yard::storage
