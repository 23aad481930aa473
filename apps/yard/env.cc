// yard env: what a shell needs so that AWS clients in it talk to `yard serve`.
#include <fmt/format.h>

#include "api/users.h"
#include "base/file.h"
#include "commands.h"
#include "endpoint.h"
#include "platform_home.h"

namespace yard::app {
namespace {

Result<ServedAt> parse_served_at(const std::string& text, const std::string& what) {
  YARD_ASSIGN(const Json json, parse_json(text, what));
  return served_at_from_json(json, what);
}

Result<ServedAt> wait_for_platform(const PlatformHome& home, const Context& context) {
  const std::string path = home.serve_json();
  const auto url_of = [&path](const std::string& text) {
    const auto served = parse_served_at(text, path);
    return served ? served->url : "";
  };
  auto text = wait_for_server(path, url_of, "'yard serve' starts the platform", context.stop);
  if (!text && text.error().code == Code::kNotFound)
    return std::move(text).error().while_("'yard serve' has not run with this YARD_HOME yet");
  if (!text) return std::move(text).error();
  return parse_served_at(*text, path);
}

Result<api::User> user_of(const PlatformHome& home, const std::string& name) {
  YARD_ASSIGN(const std::vector<api::User> users, api::Users::load(home.users()));
  for (const api::User& user : users)
    if (user.name == name) return user;
  return Error{Code::kNotFound, "no user '" + name + "'; 'yard users list' names them"};
}

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
  YARD_ASSIGN(const ServedAt served, wait_for_platform(home, context));
  // Who uses a store of somebody else signs with that one's key.
  const bool own_store = served.store_url.empty();
  const std::string fallback(own_store ? api::kFirstUser : api::kStoreUser);
  YARD_ASSIGN(const api::User user, user_of(home, user_name.empty() ? fallback : user_name));
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
