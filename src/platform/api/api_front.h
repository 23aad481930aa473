// ApiFront: everything behind the one port. Finds out who asks whom for what, and answers in the
// form that was spoken: JSON 1.0 and 1.1, Query (XML), and S3's by the gateway.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "api/audit_log.h"
#include "api/service.h"
#include "api/users.h"
#include "base/clock.h"
#include "gateway/gateway.h"
#include "net/http_server.h"

namespace yard::api {

struct ApiOptions {
  std::string account_id = "123456789012";
  Users* users = nullptr;             // outlives the front
  AuditLog* audit = nullptr;          // likewise; null: none is kept
  gateway::Gateway* store = nullptr;  // likewise; null: S3 is elsewhere
  std::vector<std::shared_ptr<Service>> services;
  // Larger bodies than any operation's: RequestEntityTooLarge. S3 has its own limits.
  size_t body_bytes_max = 4 << 20;
  // Of one key, beyond S3's: ThrottlingException. 0: no limit.
  double requests_per_second = 20'000;
  // Asked before each request to the store: true answers it with 503. For FaultInjection.
  std::function<bool()> store_is_broken;
};

// Thread-safe. Signatures, rates, shapes and roles are checked here, in this order; a Service is
// only called with what has passed.
class ApiFront {
 public:
  // `clock` outlives it.
  explicit ApiFront(ApiOptions options, const Clock& clock = Clock::real());
  ~ApiFront();

  void handle(Request& request, ResponseWriter& response);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Whether `user` may do this to the objects that the gateway serves, told to the audit log where it
// changes them: what yard serve gives the gateway as GatewayOptions::authorize.
bool authorize_store(Users& users, AuditLog* audit, const gateway::StoreAccess& access);

}  // namespace yard::api
