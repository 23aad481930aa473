// The caller of `yard serve`, or of AWS: where it is, and with whose key.
#pragma once

#include "aws/aws_client.h"
#include "base/result.h"
#include "commands.h"
#include "storage/location.h"

namespace yard::app {

struct PlatformAccess {
  aws::AwsEndpoint api;
  std::string store_url;  // of S3; empty: the same
};

// What the environment says (AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID, ..., as `yard env` sets them),
// else the `yard serve` of our $YARD_HOME with the key of its first user. kNotFound: neither;
// kUnavailable: nobody answers there.
Result<PlatformAccess> find_platform_access(const Context& context);
// Its objects.
storage::Opener store_of(const PlatformAccess& access, const StopToken& stop);

}  // namespace yard::app
