// What AWS's tools are told by environment variables and the shared files ~/.aws/config and
// ~/.aws/credentials, as far as object storage needs it.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "net/sigv4.h"

namespace yard::storage {

using Environment = std::map<std::string, std::string>;

// The sections of an AWS configuration file: "[default]", "[profile name]"; values keep their text.
// Nested settings ("s3 =" followed by indented lines) are left out. kInvalidArgument, with the
// line, for what is neither section, setting, comment nor blank. Pure.
using IniFile = std::map<std::string, std::map<std::string, std::string>>;
Result<IniFile> parse_ini(std::string_view text, std::string_view name);

struct AwsSettings {
  std::string region;                      // empty: none is set
  std::string endpoint_url;                // AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, endpoint_url
  std::string ca_bundle;                   // PEM file
  std::optional<Credentials> credentials;  // those that are written down
  std::string credentials_origin;          // "environment variables", "profile 'x' of /.../config"
};

// `profile`: chosen by the user for this command; it then comes before the environment's keys.
// Empty: AWS_PROFILE, else "default". Variables that are read: AWS_ACCESS_KEY_ID,
// AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, AWS_PROFILE, AWS_REGION, AWS_DEFAULT_REGION,
// AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_CA_BUNDLE, AWS_CONFIG_FILE,
// AWS_SHARED_CREDENTIALS_FILE, HOME.
//
// Missing files are none. kNotFound: a profile that was asked for and is in no file;
// kInvalidArgument: half a key pair, a malformed file, a profile that gets its keys in a way that
// is not spoken here (role_arn, sso, credential_process).
Result<AwsSettings> load_aws_settings(const Environment& env, std::string_view profile = {});

}  // namespace yard::storage
