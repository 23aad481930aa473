// How the commands of `yard` reach `yard serve`, or AWS: where it is, and with whose key.
#pragma once

#include <string>

#include "api/users.h"
#include "aws/aws_client.h"
#include "base/result.h"
#include "commands.h"
#include "platform_home.h"
#include "storage/location.h"

namespace yard::app {

// Where `yard serve` of this YARD_HOME listens; waits a moment for one that is just starting.
// kNotFound: none has run yet; kUnavailable: none runs now.
Result<ServedAt> find_platform(const PlatformHome& home, const Context& context);
// kNotFound.
Result<api::User> find_user(const PlatformHome& home, const std::string& name);

struct PlatformAccess {
  aws::AwsEndpoint api;
  std::string store_url;  // of S3; empty: the same
};

// What the environment says (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ..., as `yard env` sets them),
// else the `yard serve` of our $YARD_HOME with the key of its first user; with `user`, the latter
// with that one's. kNotFound: neither; kUnavailable: nobody answers there.
Result<PlatformAccess> find_platform_access(const Context& context, const std::string& user = "");
// Its objects.
storage::Opener store_of(const PlatformAccess& access, const StopToken& stop);

}  // namespace yard::app
