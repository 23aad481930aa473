// TempFile: a file without its final name; removed unless it gets one, or was there before.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "base/file.h"
#include "gateway/s3_error.h"

namespace yard::gateway {

// Not thread-safe. `folder_fd` is not owned and outlives it.
class TempFile {
 public:
  // Open for reading and writing, under a random name in the folder.
  static S3Result<TempFile> make(int folder_fd);
  // A file that is there already, and stays under its name unless it gets another.
  static S3Result<TempFile> open_kept(int folder_fd, std::string name);
  TempFile(TempFile&& other) noexcept;
  TempFile& operator=(TempFile&&) = delete;
  ~TempFile();

  int fd() const { return file_.get(); }
  // Asks the file system for the room at once, so that a full disk is known before gigabytes came.
  S3Status reserve(uint64_t size_bytes);
  // At the end of what was written.
  S3Status write(std::span<const std::byte> bytes);
  // Appends that part of another file; by the file system where it can share or copy blocks.
  S3Status append(int from_fd, uint64_t offset, uint64_t length);
  // Where write() and append() go on; both else begin at 0.
  S3Status seek(uint64_t offset);
  S3Status truncate(uint64_t size_bytes);
  // Waits until the disk has what sync() would wait for, with a call after every `step_bytes`.
  S3Status write_out(uint64_t step_bytes, const std::function<void()>& progress);
  S3Status sync();

  // Gives it its name, in the place of what has it; or not, leaving errno.
  enum class Existing { kReplaced, kKept };
  bool rename_to(int to_folder_fd, const std::string& name, Existing existing);

 private:
  enum class Fate { kRemoved, kKept };
  TempFile(int folder_fd, UniqueFd file, std::string name, Fate fate)
      : folder_fd_(folder_fd), file_(std::move(file)), name_(std::move(name)), fate_(fate) {}

  int folder_fd_;
  UniqueFd file_;
  std::string name_;  // empty: it has its final one
  Fate fate_;
};

// Some network file systems cannot sync a directory and say EINVAL; what was renamed stands.
S3Status sync_folder(int fd);

}  // namespace yard::gateway
