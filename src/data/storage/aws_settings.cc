#include "storage/aws_settings.h"

#include <fmt/format.h>

#include <array>

#include "base/file.h"

namespace yard::storage {
namespace {

constexpr uint64_t kFileBytesMax = 4 << 20;

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlanks = " \t\r";
  const size_t begin = text.find_first_not_of(kBlanks);
  if (begin == text.npos) return {};
  return text.substr(begin, text.find_last_not_of(kBlanks) - begin + 1);
}

std::string value_of(const Environment& env, const std::string& name) {
  const auto it = env.find(name);
  return it == env.end() ? std::string() : it->second;
}

std::string first_of(std::initializer_list<std::string> values) {
  for (const std::string& value : values)
    if (!value.empty()) return value;
  return {};
}

// A profile's settings out of both files. Keys are looked for in the credentials file first.
class ProfileFiles {
 public:
  static Result<ProfileFiles> load(const Environment& env) {
    ProfileFiles files;
    const std::string home = value_of(env, "HOME");
    const auto path = [&](const std::string& variable, const char* in_home) {
      const std::string given = value_of(env, variable);
      if (!given.empty() || home.empty()) return given;
      return home + in_home;
    };
    files.credentials_path_ = path("AWS_SHARED_CREDENTIALS_FILE", "/.aws/credentials");
    files.config_path_ = path("AWS_CONFIG_FILE", "/.aws/config");
    YARD_ASSIGN(files.credentials_, read(files.credentials_path_));
    YARD_ASSIGN(files.config_, read(files.config_path_));
    return files;
  }

  bool has(const std::string& profile) const {
    return credentials_.contains(profile) || config_.contains(config_section(profile));
  }

  std::string get(const std::string& profile, const std::string& key) const {
    return first_of({in(credentials_, profile, key), in(config_, config_section(profile), key)});
  }

  // Both halves from one file.
  Result<std::optional<Credentials>> keys(const std::string& profile, std::string& origin) const {
    const auto from = [&](const IniFile& file, const std::string& section,
                          const std::string& path) -> Result<std::optional<Credentials>> {
      Credentials found{in(file, section, "aws_access_key_id"),
                        in(file, section, "aws_secret_access_key"),
                        in(file, section, "aws_session_token")};
      if (found.access_key.empty() && found.secret_key.empty()) return std::optional<Credentials>();
      origin = fmt::format("profile '{}' of {}", profile, path);
      if (found.access_key.empty() || found.secret_key.empty())
        return Error{Code::kInvalidArgument,
                     origin + ": aws_access_key_id and aws_secret_access_key belong together"};
      return std::optional(std::move(found));
    };
    YARD_ASSIGN(auto found, from(credentials_, profile, credentials_path_));
    if (found) return found;
    return from(config_, config_section(profile), config_path_);
  }

 private:
  static std::string config_section(const std::string& profile) {
    return profile == "default" ? profile : "profile " + profile;
  }
  static std::string in(const IniFile& file, const std::string& section, const std::string& key) {
    const auto found = file.find(section);
    if (found == file.end()) return {};
    const auto value = found->second.find(key);
    return value == found->second.end() ? std::string() : value->second;
  }
  static Result<IniFile> read(const std::string& path) {
    if (path.empty()) return IniFile();
    auto text = read_file(path, kFileBytesMax);
    if (!text && text.error().code == Code::kNotFound) return IniFile();
    if (!text) return std::move(text).error();
    return parse_ini(*text, path);
  }

  std::string credentials_path_;
  std::string config_path_;
  IniFile credentials_;
  IniFile config_;
};

Result<std::optional<Credentials>> keys_of_environment(const Environment& env) {
  Credentials found{value_of(env, "AWS_ACCESS_KEY_ID"), value_of(env, "AWS_SECRET_ACCESS_KEY"),
                    value_of(env, "AWS_SESSION_TOKEN")};
  if (found.access_key.empty() && found.secret_key.empty()) return std::optional<Credentials>();
  if (found.access_key.empty() || found.secret_key.empty())
    return Error{Code::kInvalidArgument,
                 "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY belong together; only one is set"};
  return std::optional(std::move(found));
}

Status find_credentials(const Environment& env, const ProfileFiles& files,
                        const std::string& profile, bool is_chosen, AwsSettings& settings) {
  if (!is_chosen) {
    YARD_ASSIGN(settings.credentials, keys_of_environment(env));
    settings.credentials_origin = "environment variables";
    if (settings.credentials) return Ok{};
  }
  YARD_ASSIGN(settings.credentials, files.keys(profile, settings.credentials_origin));
  if (settings.credentials) return Ok{};
  for (const char* key : {"role_arn", "sso_session", "sso_start_url", "credential_process"})
    if (!files.get(profile, key).empty())
      return Error{Code::kInvalidArgument,
                   fmt::format("profile '{}' gets its keys by {}, which is not supported: put keys "
                               "into the environment (aws configure export-credentials)",
                               profile, key)};
  return Ok{};
}

}  // namespace

Result<IniFile> parse_ini(std::string_view text, std::string_view name) {
  IniFile file;
  std::string section;
  bool in_section = false;
  int line_number = 0;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++line_number;
    const std::string_view content = trimmed(line);
    if (content.empty() || content.starts_with('#') || content.starts_with(';')) continue;
    const bool is_indented = line.starts_with(' ') || line.starts_with('\t');
    const auto bad = [&](std::string_view why) {
      return Error{Code::kInvalidArgument, fmt::format("{}: line {}: {}", name, line_number, why)};
    };
    if (content.starts_with('[')) {
      const size_t close = content.find(']');
      if (close == content.npos) return bad("a section needs its ']'");
      // "[profile  x]" is the profile x, however it is spaced.
      const std::string_view title = trimmed(content.substr(1, close - 1));
      section = title.starts_with("profile ") ? "profile " + std::string(trimmed(title.substr(8)))
                                              : std::string(title);
      in_section = true;
      file[section];
      continue;
    }
    if (is_indented) continue;  // of a nested setting
    const size_t equals = content.find('=');
    if (equals == content.npos) return bad("neither [section] nor name = value");
    if (!in_section) return bad("a setting outside of any [section]");
    file[section][std::string(trimmed(content.substr(0, equals)))] =
        trimmed(content.substr(equals + 1));
  }
  return file;
}

Result<AwsSettings> load_aws_settings(const Environment& env, std::string_view chosen_profile) {
  YARD_ASSIGN(const ProfileFiles files, ProfileFiles::load(env));
  const std::string asked = first_of({std::string(chosen_profile), value_of(env, "AWS_PROFILE")});
  const std::string profile = asked.empty() ? "default" : asked;
  AwsSettings settings;
  YARD_TRY(find_credentials(env, files, profile, !chosen_profile.empty(), settings));
  if (!asked.empty() && !settings.credentials && !files.has(profile))
    return Error{Code::kNotFound, fmt::format("profile '{}': not in ~/.aws/config or "
                                              "~/.aws/credentials",
                                              profile)};
  settings.region = first_of({value_of(env, "AWS_REGION"), value_of(env, "AWS_DEFAULT_REGION"),
                              files.get(profile, "region")});
  settings.endpoint_url =
      first_of({value_of(env, "AWS_ENDPOINT_URL_S3"), value_of(env, "AWS_ENDPOINT_URL"),
                files.get(profile, "endpoint_url")});
  settings.ca_bundle = first_of({value_of(env, "AWS_CA_BUNDLE"), files.get(profile, "ca_bundle")});
  return settings;
}

}  // namespace yard::storage
