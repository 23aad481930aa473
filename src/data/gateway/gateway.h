// Gateway: a folder served as S3. Each of its sub-folders is a bucket, each file an object.
//
//   YARD_ASSIGN(auto gateway, Gateway::open({.root = "/srv/data", .credentials = credentials}));
//   HttpServer::start({.port = 9000}, gateway->handler());
//
// What it promises, and where it differs from S3: docs/SEMANTICS.md.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.h"
#include "base/result.h"
#include "gateway/notifications.h"
#include "net/http_server.h"
#include "net/sigv4.h"

namespace yard::gateway {

// What somebody whose signature is right wants to do.
struct StoreAccess {
  std::string_view access_key;
  std::string_view method;
  std::string_view raw_path;
  std::string_view peer_address;
  std::string_view request_id;
  bool changes = false;  // objects, buckets or their settings
};

struct GatewayOptions {
  std::string root;         // an existing folder
  Credentials credentials;  // of the first user; see credentials.h
  // The credentials of further users; may be empty. Thread-safe.
  SignatureVerifier::Lookup lookup;
  // Says no with AccessDenied; empty: every user may do everything. Thread-safe.
  std::function<bool(const StoreAccess&)> authorize;
  // Hosts BUCKET.domain name a bucket (virtual-host style); empty: only paths do.
  std::string domain;
  // What GetBucketLocation says. Requests may be signed for any region.
  std::string region = "us-east-1";
  // Requests that expect another owner's account (x-amz-expected-bucket-owner) are refused; empty:
  // any account is taken for ours.
  std::string account_id;
  EventSink event_sink;  // may be empty
  // Bound of the memory that unfinished listings hold between their pages.
  size_t listing_bytes_max = size_t{128} << 20;
};

// Thread-safe. One gateway serves a folder at a time.
class Gateway {
 public:
  // kNotFound, kInvalidArgument: no such folder; kUnavailable: another gateway serves it.
  // `clock` outlives it.
  static Result<std::unique_ptr<Gateway>> open(GatewayOptions options,
                                               const Clock& clock = Clock::real());
  ~Gateway();

  void handle(Request& request, ResponseWriter& response);
  // For HttpServer; the gateway outlives it.
  HttpHandler handler() {
    return [this](Request& request, ResponseWriter& response) { handle(request, response); };
  }

  struct Services;

 private:
  explicit Gateway(std::unique_ptr<Services> services);
  std::unique_ptr<Services> services_;
};

}  // namespace yard::gateway
