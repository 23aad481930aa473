// Staging: the parts of a multipart upload at their places in the object to be, so that completing
// the upload moves no bytes.
//
// Clients send parts of one size, but for the last. These lie in one file of the upload's folder,
// "staged-SIZE"; SIZE is that of the first part that came, if only a last part may be smaller. A
// place that a part of the upload has is not written again: a part that comes twice, or at the same
// time as another of its number, or does not fit, is a file of its own.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "gateway/s3_error.h"
#include "gateway/temp_file.h"

namespace yard::gateway {

inline constexpr uint64_t kPartBytesMin = 5 << 20;  // but for the last one
inline constexpr uint64_t kObjectBytesMax = uint64_t{5} << 40;

// The names of files in an upload's folder.
std::string part_name(uint32_t number);
std::string staged_name(uint64_t part_bytes);
std::optional<uint32_t> part_number_of_name(std::string_view name);
// SIZE of the staged file among them; nothing where there is none.
std::optional<uint64_t> staged_part_bytes(const std::vector<std::string>& names);

// What requests do with uploads at this moment, by their ids. Thread-safe; outlives what it gives.
class Staging {
 public:
  class Place;
  class Ending;

  // A place for the part `number` of `size_bytes`; nothing where it has to be a file of its own.
  S3Result<std::optional<Place>> take(const std::string& id, int folder_fd, uint32_t number,
                                      uint64_t size_bytes);
  // The upload is no more.
  void forget(const std::string& id);

 private:
  struct State {
    bool is_ending = false;
    std::set<uint32_t> taken;            // numbers of parts whose places are being written
    std::optional<uint64_t> part_bytes;  // of the staged file, once it was looked for
  };
  std::mutex mutex_;
  std::map<std::string, State> states_;
};

// The place of one part, its owner's alone while it lives. Not thread-safe.
class Staging::Place {
 public:
  Place(Place&& other) noexcept;
  Place& operator=(Place&&) = delete;
  ~Place();

  int fd() const { return file_.get(); }
  uint64_t offset() const { return offset_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_full() const { return written_bytes_ == size_bytes_; }
  // Asks the file system for the room at once.
  S3Status reserve();
  // In order; IncompleteBody beyond its end.
  S3Status write(std::span<const std::byte> bytes);

 private:
  friend class Staging;
  Place(Staging& staging, std::string id, uint32_t number, UniqueFd file, uint64_t offset,
        uint64_t size_bytes)
      : staging_(&staging),
        id_(std::move(id)),
        number_(number),
        file_(std::move(file)),
        offset_(offset),
        size_bytes_(size_bytes) {}

  Staging* staging_;
  std::string id_;
  uint32_t number_;
  UniqueFd file_;
  uint64_t offset_;
  uint64_t size_bytes_;
  uint64_t written_bytes_ = 0;
};

// Marks an upload as being completed or aborted for as long as it lives, unless another did: no
// place is given meanwhile.
class Staging::Ending {
 public:
  Ending(Staging& staging, std::string id);
  ~Ending();
  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;
  bool is_ours() const { return is_ours_; }
  // No place is being written.
  bool is_alone() const { return is_alone_; }

 private:
  Staging& staging_;
  const std::string id_;
  bool is_ours_ = false;
  bool is_alone_ = false;
};

// The bytes of a part while they come.
class PartFile {
 public:
  explicit PartFile(TempFile file) : file_(std::move(file)) {}
  explicit PartFile(Staging::Place place) : file_(std::move(place)) {}

  S3Status reserve(uint64_t size_bytes);
  S3Status write(std::span<const std::byte> bytes);
  TempFile* own() { return std::get_if<TempFile>(&file_); }
  Staging::Place* place() { return std::get_if<Staging::Place>(&file_); }

 private:
  std::variant<TempFile, Staging::Place> file_;
};

}  // namespace yard::gateway
