#include "mount/disk_cache.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/crc32c.h"
#include "base/log.h"
#include "mount/key_share.h"
#include "telemetry/metric_names.h"

namespace yard::mount {
namespace {

constexpr uint64_t kBlockBytes = 64 << 10;
constexpr uint64_t kHeadBytes = 4096;
constexpr uint32_t kMark = 0x594D4331;  // "YMC1"
constexpr size_t kOpenEntriesMax = 64;
constexpr uint64_t kPieceBytes = 1 << 20;

struct Sum {
  uint32_t crc = 0;
  uint32_t check = 0;
  bool is_there() const { return check == (crc ^ kMark) && check != 0; }
};
static_assert(sizeof(Sum) == 8);

uint64_t block_count(uint64_t size_bytes) {
  return (size_bytes + kBlockBytes - 1) / kBlockBytes;
}

bool read_all(int fd, std::span<std::byte> out, uint64_t offset) {
  while (!out.empty()) {
    const ssize_t got = ::pread(fd, out.data(), out.size(), static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    out = out.subspan(static_cast<size_t>(got));
    offset += static_cast<uint64_t>(got);
  }
  return true;
}

bool write_all(int fd, std::span<const std::byte> bytes, uint64_t offset) {
  while (!bytes.empty()) {
    const ssize_t put = ::pwrite(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(put));
    offset += static_cast<uint64_t>(put);
  }
  return true;
}

std::string name_of(std::string_view store_url, const ObjectVersion& version) {
  return fmt::format("{:016x}{:016x}", key_hash(fmt::format("{}\n{}", store_url, version.key)),
                     key_hash(version.etag));
}

}  // namespace

struct DiskCache::Entry {
  std::string name;
  ObjectVersion version;
  UniqueFd data;
  UniqueFd sums_file;
  std::mutex mutex;
  std::vector<Sum> sums;
  uint64_t there_count = 0;
  std::optional<struct timespec> verified;  // the data file's time of change when all was verified

  uint64_t block_bytes(uint64_t block) const {
    return std::min(kBlockBytes, version.size_bytes - block * kBlockBytes);
  }
  bool is_right(uint64_t block, std::span<const std::byte> bytes) const {
    return sums[block].is_there() && crc32c(bytes) == sums[block].crc;
  }
};

Result<std::unique_ptr<DiskCache>> DiskCache::open(DiskCacheOptions options, std::string store_url,
                                                   CounterRegistry& counters) {
  YARD_TRY(make_directories(options.folder));
  std::unique_ptr<DiskCache> cache(
      new DiskCache(std::move(options), std::move(store_url), counters));
  YARD_TRY(cache->load());
  return cache;
}

DiskCache::DiskCache(DiskCacheOptions options, std::string store_url, CounterRegistry& counters)
    : options_(std::move(options)),
      store_url_(std::move(store_url)),
      read_bytes_(counters.counter(metric::kMountCacheReadBytes)),
      bad_blocks_(counters.counter(metric::kMountCacheBadBlocks)) {}

DiskCache::~DiskCache() = default;

Status DiskCache::load() {
  const std::string lock_path = options_.folder + "/lock";
  lock_ = UniqueFd(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock_.valid()) return errno_error(lock_path, errno);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0)
    return Error{Code::kUnavailable, options_.folder + ": another mount uses this cache folder"};
  struct Found {
    std::string name;
    uint64_t size_bytes;
    struct timespec used;
  };
  std::vector<Found> found;
  std::error_code error;
  for (const auto& item : std::filesystem::directory_iterator(options_.folder, error)) {
    struct stat info = {};
    if (item.path().extension() != ".data" || ::stat(item.path().c_str(), &info) != 0) continue;
    found.push_back(
        {item.path().stem(), static_cast<uint64_t>(info.st_blocks) * 512, info.st_mtim});
  }
  if (error) return errno_error(options_.folder, error.value());
  std::ranges::sort(found, [](const Found& a, const Found& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  for (const Found& each : found) note_use(each.name, each.size_bytes);
  return Ok{};
}

uint64_t DiskCache::size_bytes() const {
  const std::lock_guard lock(mutex_);
  return size_bytes_;
}

void DiskCache::note_use(const std::string& name, uint64_t more_bytes) {
  const std::lock_guard lock(mutex_);
  const auto [kept, is_new] = kept_.try_emplace(name);
  if (is_new) {
    recent_.push_front(name);
    kept->second.recent = recent_.begin();
  } else {
    recent_.splice(recent_.begin(), recent_, kept->second.recent);
  }
  kept->second.size_bytes += more_bytes;
  size_bytes_ += more_bytes;
  evict();
}

// Least recently used first; a reader that has the file open reads on.
void DiskCache::evict() {
  while (size_bytes_ > options_.size_bytes_max && recent_.size() > 1) {
    const std::string name = recent_.back();
    recent_.pop_back();
    const auto kept = kept_.find(name);
    size_bytes_ -= kept->second.size_bytes;
    kept_.erase(kept);
    std::erase_if(open_, [&](const EntryPointer& entry) { return entry->name == name; });
    for (const char* const suffix : {".sums", ".data"})
      ::unlink((options_.folder + "/" + name + suffix).c_str());
  }
}

void DiskCache::disable(const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (is_disabled_) return;
  is_disabled_ = true;
  log_warning("{}: {}; nothing more is kept on disk", options_.folder, why);
}

// ---- entries

std::string DiskCache::head_of(const ObjectVersion& version) const {
  std::string head = fmt::format("yard mount cache 1\n{}\n{}\n{}\n{}\n", store_url_, version.etag,
                                 version.size_bytes, version.key);
  head.resize(kHeadBytes, '\0');
  return head;
}

DiskCache::EntryPointer DiskCache::entry_of(const ObjectVersion& version, bool make) {
  if (version.size_bytes == 0) return nullptr;
  const std::string name = name_of(store_url_, version);
  const std::lock_guard lock(mutex_);
  if (is_disabled_ && make) return nullptr;
  const auto known = std::ranges::find(open_, name, [](const auto& each) { return each->name; });
  if (known != open_.end()) {
    if (!((*known)->version == version)) return nullptr;  // two versions of one hash
    open_.splice(open_.begin(), open_, known);
    return open_.front();
  }
  if (!make && !kept_.contains(name)) return nullptr;
  EntryPointer entry = open_entry(name, version, make);
  if (!entry) return nullptr;
  open_.push_front(entry);
  if (open_.size() > kOpenEntriesMax) open_.pop_back();
  return entry;
}

DiskCache::EntryPointer DiskCache::open_entry(const std::string& name, const ObjectVersion& version,
                                              bool make) {
  const std::string path = options_.folder + "/" + name;
  const int flags = O_RDWR | O_CLOEXEC | (make ? O_CREAT : 0);
  auto entry = std::make_shared<Entry>();
  entry->name = name;
  entry->version = version;
  entry->sums_file = UniqueFd(::open((path + ".sums").c_str(), flags, 0600));
  entry->data = UniqueFd(::open((path + ".data").c_str(), flags, 0600));
  if (!entry->sums_file.valid() || !entry->data.valid()) return nullptr;
  entry->sums.resize(block_count(version.size_bytes));
  const std::string expected = head_of(version);
  std::string head(kHeadBytes, '\0');
  const bool is_known =
      expected.size() == kHeadBytes &&
      read_all(entry->sums_file.get(), std::as_writable_bytes(std::span(head)), 0);
  if (!is_known || head != expected) {
    if (!make || expected.size() != kHeadBytes) return nullptr;
    // New, of another object, or cut off: everything begins again.
    if (::ftruncate(entry->sums_file.get(), 0) != 0 || ::ftruncate(entry->data.get(), 0) != 0 ||
        ::ftruncate(entry->data.get(), static_cast<off_t>(version.size_bytes)) != 0 ||
        !write_all(entry->sums_file.get(), std::as_bytes(std::span(expected)), 0))
      return nullptr;
    const uint64_t sums_end = kHeadBytes + entry->sums.size() * sizeof(Sum);
    if (::ftruncate(entry->sums_file.get(), static_cast<off_t>(sums_end)) != 0) return nullptr;
    return entry;
  }
  if (!read_all(entry->sums_file.get(), std::as_writable_bytes(std::span(entry->sums)), kHeadBytes))
    return nullptr;
  entry->there_count = static_cast<uint64_t>(
      std::ranges::count_if(entry->sums, [](const Sum& sum) { return sum.is_there(); }));
  return entry;
}

// ---- blocks

bool DiskCache::read(const ObjectVersion& version, uint64_t offset, std::span<std::byte> out) {
  const EntryPointer entry = entry_of(version, false);
  if (!entry || out.empty()) return false;
  const std::lock_guard lock(entry->mutex);
  if (!read_blocks(*entry, offset, out)) return false;
  read_bytes_.add(static_cast<double>(out.size()));
  note_use(entry->name, 0);
  return true;
}

bool DiskCache::read_blocks(Entry& entry, uint64_t offset, std::span<std::byte> out) {
  const uint64_t first = offset / kBlockBytes;
  const uint64_t last = (offset + out.size() - 1) / kBlockBytes;
  for (uint64_t block = first; block <= last; ++block)
    if (!entry.sums[block].is_there()) return false;
  std::vector<std::byte> bytes(kBlockBytes);
  for (uint64_t block = first; block <= last; ++block) {
    const std::span content(bytes.data(), entry.block_bytes(block));
    const uint64_t begin = block * kBlockBytes;
    if (!read_all(entry.data.get(), content, begin) || !entry.is_right(block, content)) {
      forget_block(entry, block);
      return false;
    }
    const uint64_t from = std::max(offset, begin);
    const uint64_t to = std::min(offset + out.size(), begin + content.size());
    std::memcpy(out.data() + (from - offset), content.data() + (from - begin), to - from);
  }
  return true;
}

void DiskCache::forget_block(Entry& entry, uint64_t block) {
  bad_blocks_.add(1);
  log_warning("{}: block {} of {} is damaged on disk; it is fetched again", options_.folder, block,
              entry.version.key);
  entry.sums[block] = {};
  --entry.there_count;
  entry.verified.reset();
  const Sum none;
  if (!write_all(entry.sums_file.get(), std::as_bytes(std::span(&none, 1)),
                 kHeadBytes + block * sizeof(Sum)))
    disable("cannot be written");
}

void DiskCache::write(const ObjectVersion& version, uint64_t offset,
                      std::span<const std::byte> bytes) {
  const uint64_t end = offset + bytes.size();
  const uint64_t first = (offset + kBlockBytes - 1) / kBlockBytes;
  const uint64_t past = end == version.size_bytes ? block_count(end) : end / kBlockBytes;
  // It would push everything else out, and in the end itself.
  if (first >= past || version.size_bytes > options_.size_bytes_max / 2) return;
  const EntryPointer entry = entry_of(version, true);
  if (!entry) return disable("cannot be written");
  uint64_t more_bytes = 0;
  {
    const std::lock_guard lock(entry->mutex);
    for (uint64_t block = first; block < past; ++block) {
      if (entry->sums[block].is_there()) continue;
      const uint64_t begin = block * kBlockBytes;
      const auto content = bytes.subspan(begin - offset, entry->block_bytes(block));
      const uint32_t crc = crc32c(content);
      const Sum sum{crc, crc ^ kMark};
      if (!sum.is_there()) continue;  // the one checksum that reads as "not there"
      if (!write_all(entry->data.get(), content, begin) ||
          !write_all(entry->sums_file.get(), std::as_bytes(std::span(&sum, 1)),
                     kHeadBytes + block * sizeof(Sum)))
        return disable(std::strerror(errno));
      entry->sums[block] = sum;
      ++entry->there_count;
      more_bytes += content.size();
    }
  }
  note_use(entry->name, more_bytes);
}

std::optional<UniqueFd> DiskCache::whole_file(const ObjectVersion& version) {
  const EntryPointer entry = entry_of(version, false);
  if (!entry) return std::nullopt;
  {
    const std::lock_guard lock(entry->mutex);
    struct stat info = {};
    if (entry->there_count != entry->sums.size() || ::fstat(entry->data.get(), &info) != 0 ||
        static_cast<uint64_t>(info.st_size) != version.size_bytes)
      return std::nullopt;
    const bool is_verified = entry->verified && entry->verified->tv_sec == info.st_ctim.tv_sec &&
                             entry->verified->tv_nsec == info.st_ctim.tv_nsec;
    std::vector<std::byte> piece(is_verified ? 0 : kPieceBytes);
    for (uint64_t at = 0; !is_verified && at < version.size_bytes; at += kPieceBytes) {
      const uint64_t size_bytes = std::min(kPieceBytes, version.size_bytes - at);
      if (!read_blocks(*entry, at, std::span(piece.data(), size_bytes))) return std::nullopt;
    }
    entry->verified = info.st_ctim;
  }
  note_use(entry->name, 0);
  const std::string path = options_.folder + "/" + entry->name + ".data";
  UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat opened = {}, own = {};
  if (!file.valid() || ::fstat(file.get(), &opened) != 0 || ::fstat(entry->data.get(), &own) != 0 ||
      opened.st_ino != own.st_ino)
    return std::nullopt;
  return file;
}

}  // namespace yard::mount
