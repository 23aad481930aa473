// How each wire form tells that a request was not accepted: they have names of their own for it.
#pragma once

#include "api/aws_error.h"
#include "net/sigv4.h"

namespace yard::api {

AwsError json_auth_error(const AuthError& refused);
AwsError query_auth_error(const AuthError& refused);

}  // namespace yard::api
