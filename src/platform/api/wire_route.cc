#include "api/wire_route.h"

#include <algorithm>

#include "net/uri.h"

namespace yard::api {
namespace {

// "AKID/20261130/us-east-1/sagemaker/aws4_request"
std::string service_of_credential(std::string_view credential) {
  const size_t end = credential.rfind('/');
  if (end == credential.npos || end == 0) return "";
  const size_t begin = credential.rfind('/', end - 1);
  if (begin == credential.npos || std::ranges::count(credential, '/') < 4) return "";
  return std::string(credential.substr(begin + 1, end - begin - 1));
}

bool is_form(const Headers& headers) {
  return headers.value_or("content-type", "").starts_with("application/x-www-form-urlencoded");
}

}  // namespace

std::string scope_service(const Headers& headers, std::string_view raw_query) {
  const std::string_view authorization = headers.value_or("authorization", "");
  constexpr std::string_view kField = "Credential=";
  if (const size_t at = authorization.find(kField); at != authorization.npos) {
    const std::string_view rest = authorization.substr(at + kField.size());
    return service_of_credential(rest.substr(0, rest.find_first_of(", ")));
  }
  const auto query = parse_query(raw_query);
  if (!query) return "";
  const auto found = std::ranges::find(*query, "X-Amz-Credential", &QueryPair::name);
  return found == query->end() ? "" : service_of_credential(found->value);
}

WireRoute route_of(std::string_view method, std::string_view raw_path, std::string_view raw_query,
                   const Headers& headers) {
  if (const auto target = headers.find("x-amz-target")) {
    const size_t dot = target->rfind('.');
    if (dot == target->npos) return {WireForm::kJson, "", std::string(*target)};
    return {WireForm::kJson, std::string(target->substr(0, dot)),
            std::string(target->substr(dot + 1))};
  }
  std::string service = scope_service(headers, raw_query);
  if (service == "s3" || service == "s3express") return {WireForm::kS3, std::move(service), ""};
  const bool at_root = raw_path == "/";
  if (service.empty()) {
    const bool is_query = method == "POST" && at_root && is_form(headers);
    return {is_query ? WireForm::kQuery : WireForm::kS3, "", ""};
  }
  // SQS sends its forms to the path of a queue.
  const bool is_query = is_form(headers) || raw_query.find("Action=") != raw_query.npos;
  return {is_query || at_root ? WireForm::kQuery : WireForm::kRest, std::move(service), ""};
}

}  // namespace yard::api
