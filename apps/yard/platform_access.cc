#include "platform_access.h"

#include "base/file.h"
#include "endpoint.h"

namespace yard::app {
namespace {

Result<ServedAt> parse_served_at(const std::string& text, const std::string& what) {
  YARD_ASSIGN(const Json json, parse_json(text, what));
  return served_at_from_json(json, what);
}

std::string env_or(const Context& context, const char* name, const std::string& otherwise) {
  const auto found = context.env.find(name);
  return found == context.env.end() || found->second.empty() ? otherwise : found->second;
}

Result<PlatformAccess> platform_of_environment(const Context& context) {
  PlatformAccess access;
  access.api.url = env_or(context, "AWS_ENDPOINT_URL", "");
  access.store_url = env_or(context, "AWS_ENDPOINT_URL_S3", "");
  access.api.region =
      env_or(context, "AWS_REGION", env_or(context, "AWS_DEFAULT_REGION", access.api.region));
  access.api.credentials = {env_or(context, "AWS_ACCESS_KEY_ID", ""),
                            env_or(context, "AWS_SECRET_ACCESS_KEY", ""),
                            env_or(context, "AWS_SESSION_TOKEN", "")};
  access.api.ca_path = env_or(context, "AWS_CA_BUNDLE", "");
  if (!access.api.credentials.access_key.empty()) return access;
  return Error{Code::kInvalidArgument,
               "AWS_ENDPOINT_URL is set and AWS_ACCESS_KEY_ID is not: whose key signs?"};
}

Result<PlatformAccess> platform_of_home(const Context& context, const std::string& user_name) {
  const PlatformHome home = platform_home(context.yard_home);
  auto served = find_platform(home, context);
  if (!served && served.error().code == Code::kNotFound)
    return Error{Code::kNotFound,
                 "no platform: start one with 'yard serve', or set AWS_ENDPOINT_URL and its keys"};
  if (!served) return std::move(served).error();
  const std::string fallback(served->store_url.empty() ? api::kFirstUser : api::kStoreUser);
  YARD_ASSIGN(const api::User user, find_user(home, user_name.empty() ? fallback : user_name));
  return PlatformAccess{{served->url, served->region, user.credentials, served->ca_bundle_path},
                        served->store_url};
}

}  // namespace

Result<ServedAt> find_platform(const PlatformHome& home, const Context& context) {
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

Result<api::User> find_user(const PlatformHome& home, const std::string& name) {
  YARD_ASSIGN(const std::vector<api::User> users, api::Users::load(home.users()));
  for (const api::User& user : users)
    if (user.name == name) return user;
  return Error{Code::kNotFound, "no user '" + name + "'; 'yard users list' names them"};
}

Result<PlatformAccess> find_platform_access(const Context& context, const std::string& user) {
  const bool is_told = !env_or(context, "AWS_ENDPOINT_URL", "").empty();
  return is_told && user.empty() ? platform_of_environment(context)
                                 : platform_of_home(context, user);
}

storage::Opener store_of(const PlatformAccess& access, const StopToken& stop) {
  storage::S3Options options;
  options.endpoint = access.store_url.empty() ? access.api.url : access.store_url;
  options.region = access.api.region;
  options.credentials = access.api.credentials;
  options.any_key = true;
  options.http.ca_path = access.api.ca_path;
  options.stop = stop;
  return storage::Opener(std::move(options));
}

}  // namespace yard::app
