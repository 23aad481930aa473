#include <fmt/format.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/file.h"
#include "collective/rendezvous.h"
#include "collective/tls_tunnels_internal.h"

namespace yard::collective {

Result<std::string> read_tls_key(const std::string& path) {
  struct stat facts {};
  if (::stat(path.c_str(), &facts) != 0) return errno_error(path, errno);
  if ((facts.st_mode & 077) != 0)
    return Error{Code::kInvalidArgument,
                 path + ": others than its owner may use this key: chmod 600 " + path};
  YARD_ASSIGN(std::string key, read_file(path, TlsTunnels::kKeyBytesMax * 2));
  constexpr std::string_view kSpace = " \t\r\n";
  key.erase(0, key.find_first_not_of(kSpace));
  if (const auto end = key.find_last_not_of(kSpace); end != std::string::npos) key.resize(end + 1);
  if (key.size() < TlsTunnels::kKeyBytesMin || key.size() > TlsTunnels::kKeyBytesMax)
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: the key between hosts has {} bytes, not {} to {}", path,
                             key.size(), TlsTunnels::kKeyBytesMin, TlsTunnels::kKeyBytesMax)};
  return key;
}

}  // namespace yard::collective
