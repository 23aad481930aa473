// Presigned URLs of AWS Signature Version 2 (query: AWSAccessKeyId, Expires, Signature): what boto3
// and the AWS CLI make by default for us-east-1. Only URLs: requests signed by header have to be of
// version 4.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "net/sigv4.h"

namespace yard::gateway {

// What Version 2 signs with. Pure.
std::string hmac_sha1_base64(std::string_view key, std::string_view text);
bool equals_in_constant_time(std::string_view a, std::string_view b);

// What no Version 4 signature says anything of: any body, nobody's key.
VerifiedRequest unsigned_request();

bool is_presigned_v2(std::string_view raw_query);
std::string presigned_v2_key(std::string_view raw_query);  // the access key; empty: none

// The bucket that a virtual-host style request's path lacks is part of what is signed: "" or
// "/bucket". Refusals as those of SignatureVerifier. Pure.
std::variant<VerifiedRequest, AuthError> verify_presigned_v2(const SignableRequest& request,
                                                             std::string_view bucket_of_host,
                                                             const Credentials& credentials,
                                                             Clock::Wall now);

}  // namespace yard::gateway
