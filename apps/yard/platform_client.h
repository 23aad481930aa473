// How the commands of `yard` speak to `yard serve`: as any AWS client does, with a user's key.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "api/users.h"
#include "base/json.h"
#include "base/result.h"
#include "commands.h"
#include "net/http_client.h"
#include "net/sigv4.h"
#include "platform_home.h"

namespace yard::app {

// Where `yard serve` of this YARD_HOME listens; waits a moment for one that is just starting.
// kNotFound: none has run yet; kUnavailable: none runs now.
Result<ServedAt> find_platform(const PlatformHome& home, const Context& context);
// kNotFound.
Result<api::User> find_user(const PlatformHome& home, const std::string& name);

// For one thread at a time.
class PlatformClient {
 public:
  // The platform of this YARD_HOME with the key of its first user, or of `user`. Where YARD_HOME
  // has none: the one that AWS_ENDPOINT_URL names, with the key of the environment.
  static Result<PlatformClient> open(const Context& context, const std::string& user = "");

  // "Trainyard.DescribeFleet", "SageMaker.StopTrainingJob". The codes say what AWS's error did:
  // kNotFound for what was not found, kInvalidArgument for a request that is refused,
  // kUnavailable for what may be repeated.
  Result<Json> call(std::string_view target, const Json& input);

 private:
  PlatformClient(ServedAt served, Credentials credentials);

  ServedAt served_;
  Credentials credentials_;
  std::unique_ptr<HttpClient> http_;
};

}  // namespace yard::app
