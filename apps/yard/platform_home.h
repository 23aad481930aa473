// What `yard serve` leaves in $YARD_HOME for the other commands, and where.
//
//   users.json    who may call (api/users.h)      serve.json     where it listens
//   audit.log     who changed what                sagemaker.yaml the SDKs' defaults
//   s3/           the objects, a folder per bucket
//   logs/         the log groups that clients made (api/own_logs.h)
//   queues.db, metrics.db, yard.db  messages, time series, jobs
#pragma once

#include <string>

#include "base/json.h"
#include "base/result.h"

namespace yard::app {

struct PlatformHome {
  std::string dir;  // absolute

  std::string users() const { return dir + "/users.json"; }
  std::string audit_log() const { return dir + "/audit.log"; }
  std::string store() const { return dir + "/s3"; }
  std::string serve_json() const { return dir + "/serve.json"; }
  std::string sdk_config() const { return dir + "/sagemaker.yaml"; }
  std::string queues() const { return dir + "/queues.db"; }
  std::string metrics() const { return dir + "/metrics.db"; }
  std::string own_logs() const { return dir + "/logs"; }
  std::string config() const { return dir + "/yard.yaml"; }
};

PlatformHome platform_home(const std::string& yard_home);

// serve.json.
struct ServedAt {
  std::string url;
  std::string region;
  std::string account_id;
  std::string store_url;       // empty: the same
  std::string ca_bundle_path;  // empty: plain HTTP
};
Json to_json(const ServedAt& served);
Result<ServedAt> served_at_from_json(const Json& json, const std::string& what);

}  // namespace yard::app
