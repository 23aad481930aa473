#include "gateway/credentials.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "base/file.h"
#include "base/ids.h"
#include "base/json.h"

namespace yard::gateway {
namespace {

constexpr size_t kFileBytesMax = 64 << 10;

std::string upper_case(std::string text) {
  std::ranges::transform(text, text.begin(),
                         [](char c) { return c >= 'a' && c <= 'z' ? char(c - 32) : c; });
  return text;
}

// 40 letters and digits out of the kernel's generator: over 200 bits.
Credentials make_credentials() {
  return {"YARD" + upper_case(random_name(16)), random_name(40), ""};
}

Status write_all(int fd, const std::string& path, const std::string& text) {
  if (::write(fd, text.data(), text.size()) != ssize_t(text.size()) || ::fsync(fd) != 0)
    return errno_error(path, errno);
  return Ok{};
}

}  // namespace

std::string credentials_path(const std::string& root) {
  return root + "/.yard/credentials.json";
}

Result<Credentials> load_credentials(const std::string& root) {
  const std::string path = credentials_path(root);
  struct stat info = {};
  if (::stat(path.c_str(), &info) != 0) return errno_error(path, errno);
  if ((info.st_mode & 077) != 0)
    return Error{Code::kInvalidArgument,
                 path + ": others than its owner may read or write it; run: chmod 600 " + path};
  YARD_ASSIGN(const std::string text, read_file(path, kFileBytesMax));
  YARD_ASSIGN(const Json json, parse_json(text, path));
  Credentials credentials;
  YARD_ASSIGN(credentials.access_key, json_field<std::string>(json, "access_key_id", path));
  YARD_ASSIGN(credentials.secret_key, json_field<std::string>(json, "secret_access_key", path));
  if (credentials.access_key.empty() || credentials.secret_key.empty())
    return Error{Code::kInvalidArgument, path + ": a key is empty"};
  return credentials;
}

Result<Credentials> load_or_make_credentials(const std::string& root) {
  auto existing = load_credentials(root);
  if (existing || existing.error().code != Code::kNotFound) return existing;
  const std::string path = credentials_path(root);
  const std::string temporary = path + ".tmp-" + random_name(8);
  const Credentials made = make_credentials();
  const Json json = {{"access_key_id", made.access_key}, {"secret_access_key", made.secret_key}};
  {
    const UniqueFd file(
        ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file.valid()) return errno_error(temporary, errno);
    if (auto written = write_all(file.get(), temporary, json.dump(2) + "\n"); !written) {
      ::unlink(temporary.c_str());
      return std::move(written).error();
    }
  }
  // A link, for it never replaces what another made at the same moment.
  const bool is_ours = ::link(temporary.c_str(), path.c_str()) == 0;
  const int why = errno;
  ::unlink(temporary.c_str());
  if (!is_ours && why != EEXIST) return errno_error(path, why);
  return load_credentials(root);
}

}  // namespace yard::gateway
