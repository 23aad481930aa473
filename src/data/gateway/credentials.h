// The key pair that clients of a served folder sign with, made at its first start.
#pragma once

#include <string>

#include "base/result.h"
#include "net/sigv4.h"

namespace yard::gateway {

// ROOT/.yard/credentials.json, mode 0600: {"access_key_id": ..., "secret_access_key": ...}.
std::string credentials_path(const std::string& root);

// kNotFound: none yet; kInvalidArgument: others may read the file, or it is not of that form.
Result<Credentials> load_credentials(const std::string& root);
// Those there are, or new ones. Two that start at once get the same.
Result<Credentials> load_or_make_credentials(const std::string& root);

}  // namespace yard::gateway
