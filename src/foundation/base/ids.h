// Identifiers that people can read aloud and that do not collide.
#pragma once

#include <string>

#include "base/clock.h"

namespace yard {

// "<prefix>-20261130-051627-k3f9": UTC time and four random letters or digits; valid as a file
// name and as a SageMaker job name (at most 63 characters; prefix is cut to fit).
std::string make_job_name(const std::string& prefix, Clock::Wall time);
// `length` random characters of [a-z0-9], from the kernel's generator.
std::string random_name(size_t length);
// "xxxxxxxx-xxxx-4xxx-yxxx-xxxxxxxxxxxx" (RFC 9562, version 4), from the same.
std::string random_uuid();

}  // namespace yard
