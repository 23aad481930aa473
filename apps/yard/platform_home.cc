#include "platform_home.h"

#include <filesystem>

namespace yard::app {

PlatformHome platform_home(const std::string& yard_home) {
  return {std::filesystem::absolute(yard_home).lexically_normal().string()};
}

Json to_json(const ServedAt& served) {
  return {{"url", served.url},
          {"region", served.region},
          {"account_id", served.account_id},
          {"store_url", served.store_url},
          {"ca_bundle_path", served.ca_bundle_path}};
}

Result<ServedAt> served_at_from_json(const Json& json, const std::string& what) {
  ServedAt served;
  YARD_ASSIGN(served.url, json_field<std::string>(json, "url", what));
  YARD_ASSIGN(served.region, json_field<std::string>(json, "region", what));
  YARD_ASSIGN(served.account_id, json_field<std::string>(json, "account_id", what));
  YARD_ASSIGN(served.store_url, json_field<std::string>(json, "store_url", what));
  YARD_ASSIGN(served.ca_bundle_path, json_field<std::string>(json, "ca_bundle_path", what));
  return served;
}

}  // namespace yard::app
