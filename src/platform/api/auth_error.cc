#include "api/auth_error.h"

namespace yard::api {
namespace {

struct Name {
  std::string_view s3;  // as AuthError has it
  const char* json;
  int json_status;
  const char* query;
};

constexpr Name kNames[] = {
    {"MissingAuthenticationToken", "MissingAuthenticationTokenException", 403,
     "MissingAuthenticationToken"},
    {"InvalidAccessKeyId", "UnrecognizedClientException", 403, "InvalidClientTokenId"},
    {"InvalidToken", "UnrecognizedClientException", 403, "InvalidClientTokenId"},
    {"SignatureDoesNotMatch", "InvalidSignatureException", 403, "SignatureDoesNotMatch"},
    {"RequestTimeTooSkewed", "InvalidSignatureException", 403, "RequestTimeTooSkewed"},
    {"AuthorizationHeaderMalformed", "IncompleteSignatureException", 400, "IncompleteSignature"},
    {"AuthorizationQueryParametersError", "IncompleteSignatureException", 400,
     "IncompleteSignature"},
    {"InvalidRequest", "IncompleteSignatureException", 400, "IncompleteSignature"},
    {"InvalidArgument", "IncompleteSignatureException", 400, "IncompleteSignature"},
};

const Name* name_of(const AuthError& refused) {
  for (const Name& name : kNames)
    if (name.s3 == refused.code) return &name;
  return nullptr;
}

std::string message_of(const AuthError& refused) {
  if (refused.code == "InvalidAccessKeyId")
    return "The security token included in the request is invalid.";
  return refused.message;
}

}  // namespace

AwsError json_auth_error(const AuthError& refused) {
  const Name* name = name_of(refused);
  if (name == nullptr) return AwsError("AccessDeniedException", message_of(refused), 403);
  return AwsError(name->json, message_of(refused), name->json_status);
}

AwsError query_auth_error(const AuthError& refused) {
  const Name* name = name_of(refused);
  if (name == nullptr) return AwsError("AccessDenied", message_of(refused), 403);
  return AwsError(name->query, message_of(refused), 403);
}

}  // namespace yard::api
