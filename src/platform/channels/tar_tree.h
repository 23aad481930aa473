// Folders to tar and back: what a job uploads and the source that it is started with.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace yard::channels {

using ByteSink = std::function<Status(std::span<const std::byte> bytes)>;

// The files, links and empty folders below all of `folders` as one tar, in byte order of their
// names; of a name that several have, the first one's. A folder that does not exist is empty.
// Sockets, pipes and devices are left out. kCorrupt: a file became shorter meanwhile.
Status write_tar(const std::vector<std::string>& folders, const ByteSink& sink);
// Whether write_tar() would give any member.
bool has_files(const std::vector<std::string>& folders);

// gzip by several threads: each MiB becomes a member of its own, so that any gzip reads it. Not
// thread-safe.
class ParallelGzip {
 public:
  ParallelGzip(int thread_count, ByteSink sink);
  ~ParallelGzip();
  Status write(std::span<const std::byte> bytes);
  Status finish();  // call once, last

 private:
  struct Impl;
  const std::unique_ptr<Impl> impl_;
};

struct UnpackLimits {
  uint64_t size_bytes_max = uint64_t{64} << 30;  // of all contents
  uint64_t member_count_max = 1'000'000;
};
// Unpacks the tar, compressed by gzip or not, below `folder`, with the modes of its files.
// kCorrupt: damaged; kInvalidArgument: a member, or the target of a link, lies outside of `folder`,
// a member lies behind a link, or is a device; kExhausted: a limit. What was unpacked before stays.
Status unpack_tar(const std::string& archive_path, const std::string& folder,
                  const UnpackLimits& limits = {});

// "a/b" of "./a//b"; kInvalidArgument for a name that leaves its folder or is empty. Pure.
Result<std::string> inner_path(std::string_view name);

}  // namespace yard::channels
