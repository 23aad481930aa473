#include "gateway/staging.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>

#include "gateway/folders.h"

namespace yard::gateway {
namespace {

constexpr const char* kName = "a part";  // for messages
constexpr std::string_view kStagedPrefix = "staged-";

// A part that has its place is an empty file with the name of a part.
bool has_place(int folder_fd, uint32_t number) {
  struct stat info = {};
  return ::fstatat(folder_fd, part_name(number).c_str(), &info, AT_SYMLINK_NOFOLLOW) == 0 &&
         info.st_size == 0;
}

template <typename Number>
std::optional<Number> parse_number(std::string_view text) {
  Number number = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

std::string part_name(uint32_t number) {
  return fmt::format("{:05}", number);
}

std::string staged_name(uint64_t part_bytes) {
  return fmt::format("{}{}", kStagedPrefix, part_bytes);
}

std::optional<uint32_t> part_number_of_name(std::string_view name) {
  return name.size() == 5 ? parse_number<uint32_t>(name) : std::nullopt;
}

std::optional<uint64_t> staged_part_bytes(const std::vector<std::string>& names) {
  for (const std::string_view name : names)
    if (name.starts_with(kStagedPrefix))
      if (const auto bytes = parse_number<uint64_t>(name.substr(kStagedPrefix.size())))
        return *bytes == 0 ? std::nullopt : bytes;
  return std::nullopt;
}

S3Result<std::optional<Staging::Place>> Staging::take(const std::string& id, int folder_fd,
                                                      uint32_t number, uint64_t size_bytes) {
  std::optional<Place> none;
  const std::scoped_lock lock(mutex_);
  const auto known = states_.find(id);
  State state = known == states_.end() ? State{} : known->second;
  if (size_bytes == 0 || state.is_ending || state.taken.contains(number) ||
      has_place(folder_fd, number))
    return none;
  if (!state.part_bytes) state.part_bytes = staged_part_bytes(names_in(folder_fd));
  const bool is_first = !state.part_bytes;
  if (is_first && size_bytes < kPartBytesMin) return none;
  const uint64_t part_bytes = state.part_bytes.value_or(size_bytes);
  const uint64_t offset = (number - 1) * part_bytes;
  if (size_bytes > part_bytes || offset + size_bytes > kObjectBytesMax) return none;
  UniqueFd file(::openat(folder_fd, staged_name(part_bytes).c_str(),
                         O_RDWR | O_NOFOLLOW | O_CLOEXEC | (is_first ? O_CREAT : 0), 0666));
  // Removed by who ended the upload.
  if (!file.valid() && errno == ENOENT) return none;
  if (!file.valid()) return s3_errno(kName, errno);
  state.part_bytes = part_bytes;
  state.taken.insert(number);
  states_[id] = std::move(state);
  return std::optional(Place(*this, id, number, std::move(file), offset, size_bytes));
}

void Staging::forget(const std::string& id) {
  const std::scoped_lock lock(mutex_);
  const auto known = states_.find(id);
  if (known == states_.end()) return;
  known->second.part_bytes.reset();
  if (!known->second.is_ending && known->second.taken.empty()) states_.erase(known);
}

Staging::Place::Place(Place&& other) noexcept
    : staging_(std::exchange(other.staging_, nullptr)),
      id_(std::move(other.id_)),
      number_(other.number_),
      file_(std::move(other.file_)),
      offset_(other.offset_),
      size_bytes_(other.size_bytes_),
      written_bytes_(other.written_bytes_) {}

Staging::Place::~Place() {
  if (staging_ == nullptr) return;
  const std::scoped_lock lock(staging_->mutex_);
  const auto known = staging_->states_.find(id_);
  known->second.taken.erase(number_);
  if (known->second.taken.empty() && !known->second.is_ending && !known->second.part_bytes)
    staging_->states_.erase(known);
}

S3Status Staging::Place::reserve() {
  if (::fallocate(fd(), FALLOC_FL_KEEP_SIZE, off_t(offset_), off_t(size_bytes_)) == 0) return Ok{};
  if (errno == ENOSPC || errno == EDQUOT) return s3_errno(kName, errno);
  return Ok{};  // a file system that cannot
}

S3Status Staging::Place::write(std::span<const std::byte> bytes) {
  if (bytes.size() > size_bytes_ - written_bytes_) return s3::kIncompleteBody;
  while (!bytes.empty()) {
    const ssize_t written =
        ::pwrite(fd(), bytes.data(), bytes.size(), off_t(offset_ + written_bytes_));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return s3_errno(kName, errno);
    written_bytes_ += uint64_t(written);
    bytes = bytes.subspan(size_t(written));
  }
  return Ok{};
}

Staging::Ending::Ending(Staging& staging, std::string id) : staging_(staging), id_(std::move(id)) {
  const std::scoped_lock lock(staging_.mutex_);
  State& state = staging_.states_[id_];
  is_ours_ = !std::exchange(state.is_ending, true);
  is_alone_ = state.taken.empty();
}

Staging::Ending::~Ending() {
  if (!is_ours_) return;
  const std::scoped_lock lock(staging_.mutex_);
  const auto known = staging_.states_.find(id_);
  known->second.is_ending = false;
  if (known->second.taken.empty() && !known->second.part_bytes) staging_.states_.erase(known);
}

S3Status PartFile::reserve(uint64_t size_bytes) {
  if (Staging::Place* place = this->place()) return place->reserve();
  return own()->reserve(size_bytes);
}

S3Status PartFile::write(std::span<const std::byte> bytes) {
  if (Staging::Place* place = this->place()) return place->write(bytes);
  return own()->write(bytes);
}

}  // namespace yard::gateway
