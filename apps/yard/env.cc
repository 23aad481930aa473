// yard env: what a shell needs so that AWS clients in it talk to `yard serve`.
#include <fmt/format.h>

#include "commands.h"
#include "endpoint.h"
#include "platform_access.h"

namespace yard::app {
namespace {

void export_variable(const char* name, const std::string& value) {
  fmt::print("export {}={}\n", name, shell_quoted(value));
}

void export_or_unset(const char* name, const std::string& value) {
  if (value.empty())
    fmt::print("unset {}\n", name);
  else
    export_variable(name, value);
}

Status run_env(const std::string& user_name, const Context& context) {
  const PlatformHome home = platform_home(context.yard_home);
  YARD_ASSIGN(const ServedAt served, find_platform(home, context));
  // Who uses a store of somebody else signs with that one's key.
  const bool own_store = served.store_url.empty();
  const std::string fallback(own_store ? api::kFirstUser : api::kStoreUser);
  YARD_ASSIGN(const api::User user, find_user(home, user_name.empty() ? fallback : user_name));
  export_variable("AWS_ENDPOINT_URL", served.url);
  export_or_unset("AWS_ENDPOINT_URL_S3", served.store_url);
  export_variable("AWS_ACCESS_KEY_ID", user.credentials.access_key);
  export_variable("AWS_SECRET_ACCESS_KEY", user.credentials.secret_key);
  export_variable("AWS_REGION", served.region);
  export_variable("AWS_DEFAULT_REGION", served.region);
  export_variable("AWS_EC2_METADATA_DISABLED", "true");
  export_or_unset("AWS_CA_BUNDLE", served.ca_bundle_path);
  export_variable("SAGEMAKER_USER_CONFIG_OVERRIDE", home.sdk_config());
  export_variable("SAGEMAKER_ADMIN_CONFIG_OVERRIDE", home.sdk_config());
  fmt::print("unset AWS_SESSION_TOKEN AWS_PROFILE\n");
  return Ok{};
}

}  // namespace

void add_env_command(CLI::App& app, Context& context) {
  auto user = std::make_shared<std::string>();
  CLI::App* command =
      app.add_subcommand("env", "print the exports that point AWS clients at 'yard serve'");
  command->add_option("--user", *user, "whose key (default: the first user's)");
  command->footer(
      "Example:\n  yard serve &\n  eval \"$(yard env)\"\n  aws sagemaker list-training-jobs");
  command->callback(
      [user, &context] { context.action = [user, &context] { return run_env(*user, context); }; });
}

}  // namespace yard::app
