// Which of the APIs on the one port a request is for, and in which form it speaks. Pure.
#pragma once

#include <string>
#include <string_view>

#include "net/http_message.h"

namespace yard::api {

enum class WireForm {
  kS3,     // the gateway's
  kJson,   // X-Amz-Target names the operation
  kQuery,  // Action=... in a form names it
  kRest,   // a path of a REST API that is none of S3's
};

struct WireRoute {
  WireForm form = WireForm::kS3;
  // kJson: the part of X-Amz-Target before the last '.'; else the service that the credential scope
  // names, empty where there is none.
  std::string service;
  std::string operation;  // kJson: the part behind it
};

// The service that the request is signed for: of the Authorization header, or of X-Amz-Credential
// in the query. Empty: unsigned, or not by Signature Version 4.
std::string scope_service(const Headers& headers, std::string_view raw_query);

// By X-Amz-Target, else by the credential's scope, else by the path: an unsigned form with POST to
// "/" is a Query, everything else S3's.
WireRoute route_of(std::string_view method, std::string_view raw_path, std::string_view raw_query,
                   const Headers& headers);

}  // namespace yard::api
