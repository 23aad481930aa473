#include "base/open_files.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdint>

namespace yard {
namespace {

// More helps nobody here, and some programs go through all numbers up to their limit.
constexpr rlim_t kWanted = 65'536;

}  // namespace

size_t open_files_max() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  return size_t(std::min<rlim_t>(limit.rlim_cur, SIZE_MAX));
}

size_t raise_open_files_max() {
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return open_files_max();
  const rlim_t wanted = std::min(limit.rlim_max, kWanted);
  if (limit.rlim_cur < wanted) {
    limit.rlim_cur = wanted;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  return open_files_max();
}

}  // namespace yard
