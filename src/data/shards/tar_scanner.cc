#include "shards/tar_scanner.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>

#include "shards/tar_input_internal.h"

namespace yard::shards {
namespace {

// Names and attributes; a longer one is damage or an attack.
constexpr uint64_t kExtensionBytesMax = kTarWindowBytes;
// No file is larger: content cannot run over the end of 64-bit offsets.
constexpr uint64_t kMemberBytesMax = uint64_t{1} << 62;

// Types that have no content whatever their size field says (tarfile and GNU tar agree).
bool has_no_content(char type) {
  return type >= '1' && type <= '6';
}
bool is_regular(const TarHeader& header) {
  if (header.type == '\0') return !header.name.ends_with('/');
  return header.type == '0' || header.type == '7';
}

Status check_name(const std::string& name) {
  const auto bad = [&](std::string_view why) {
    return Error{Code::kCorrupt, fmt::format("member '{}': {}", name, why)};
  };
  if (name.empty()) return bad("has no name");
  if (name.find('\0') != name.npos) return bad("has a zero byte in its name");
  if (name.starts_with('/')) return bad("an absolute name");
  for (size_t begin = 0; begin < name.size();) {
    const size_t end = std::min(name.find('/', begin), name.size());
    if (std::string_view(name).substr(begin, end - begin) == "..") return bad("'..' in its name");
    begin = end + 1;
  }
  return Ok{};
}

}  // namespace

TarScanner::TarScanner(storage::ObjectStore& store, storage::ObjectInfo shard,
                       std::unique_ptr<TarInput> input)
    : store_(&store), shard_(std::move(shard)), input_(std::move(input)) {}
TarScanner::TarScanner(TarScanner&&) noexcept = default;
TarScanner::~TarScanner() = default;

Result<TarScanner> TarScanner::open(storage::ObjectStore& store, std::string_view key) {
  YARD_ASSIGN(storage::ObjectInfo shard, store.head(key));
  YARD_ASSIGN(auto input, TarInput::open(store, shard));
  return TarScanner(store, std::move(shard), std::move(input));
}

TarCompression TarScanner::compression() const {
  return input_->compression();
}

Error TarScanner::fail(Code code, std::string_view message) const {
  return {code,
          fmt::format("{}/{}: offset {}: {}", store_->url(), shard_.key, header_offset_, message)};
}

Error TarScanner::fail_member(Code code, std::string_view member, std::string_view message) {
  Error error = fail(code, message);
  damage_ = TarDamage{std::string(member), start_offset_, offset_ - start_offset_, error.message};
  return error;
}

Error TarScanner::fail_header(std::string_view message) {
  return fail_member(Code::kCorrupt, "", message);
}

Error TarScanner::not_a_tar() const {
  return {Code::kInvalidArgument,
          fmt::format("{}/{}: not a tar archive", store_->url(), shard_.key)};
}

Result<std::span<const std::byte>> TarScanner::window(uint64_t offset, uint64_t size_bytes) {
  auto bytes = input_->window(offset, size_bytes);
  if (bytes || !input_->is_damaged()) return bytes;
  damage_ = TarDamage{"", start_offset_, 0, bytes.error().message};
  is_ended_ = true;  // nothing can be unpacked behind that
  return bytes;
}

Result<std::optional<TarHeader>> TarScanner::read_header() {
  header_offset_ = offset_;
  YARD_ASSIGN(const auto block, window(offset_, kTarBlockBytes));
  if (block.size() < kTarBlockBytes) {
    if (offset_ == 0) return not_a_tar();
    is_ended_ = true;
    return fail_header("truncated: the archive ends without its end mark");
  }
  auto header = parse_tar_header(block);
  if (!header && offset_ == 0 && !has_tar_magic(block)) return not_a_tar();
  if (!header) return fail_header(header.error().message);
  offset_ += kTarBlockBytes;
  return header;
}

Result<std::string> TarScanner::read_text(uint64_t size_bytes) {
  if (size_bytes > kExtensionBytesMax)
    return fail_header(fmt::format("an extended header of {} bytes", size_bytes));
  YARD_ASSIGN(const auto bytes, window(offset_, size_bytes));
  if (bytes.size() < size_bytes) return fail_header("truncated inside an extended header");
  offset_ += padded_to_block(size_bytes);
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

Result<bool> TarScanner::extend(const TarHeader& header, Extension& extension) {
  switch (header.type) {
    case 'x':
    case 'g': {
      YARD_ASSIGN(const std::string content, read_text(header.size_bytes));
      YARD_TRY(extend_by_pax(content, header.type == 'g', extension));
      return true;
    }
    case 'L': {
      YARD_ASSIGN(const std::string content, read_text(header.size_bytes));
      extension.name = content.substr(0, content.find('\0'));
      return true;
    }
    case 'K':  // the long name of a link's target
      YARD_TRY(read_text(header.size_bytes));
      return true;
    default:
      return false;
  }
}

Status TarScanner::extend_by_pax(const std::string& content, bool is_global, Extension& extension) {
  auto records = parse_pax(content);
  if (!records) return fail_header(records.error().message);
  for (const auto& [key, value] : *records) {
    if (key.starts_with("GNU.sparse.")) extension.is_sparse = true;
    if (key != "path" && key != "size") continue;
    if (is_global)
      return fail(Code::kInvalidArgument, fmt::format("a global pax header sets '{}'", key));
    if (key == "path") extension.name = value;
    if (key == "size") {
      uint64_t size_bytes = 0;
      const auto [end, failed] =
          std::from_chars(value.data(), value.data() + value.size(), size_bytes);
      if (failed != std::errc() || end != value.data() + value.size())
        return fail_header("a pax header's size is no number");
      extension.size_bytes = size_bytes;
    }
  }
  return Ok{};
}

// Zeros up to the end: anything else would be a second archive that nobody reads.
Status TarScanner::check_end() {
  is_ended_ = true;
  for (;;) {
    YARD_ASSIGN(const auto rest, window(offset_, kTarWindowBytes));
    if (rest.empty()) return Ok{};
    if (!std::ranges::all_of(rest, [](std::byte b) { return b == std::byte{0}; })) {
      Error error =
          fail_header("bytes follow the end of the archive; were archives joined with cat?");
      damage_->is_behind_end = true;
      damage_->size_bytes = input_->size_bytes().value_or(offset_ + rest.size()) - start_offset_;
      return error;
    }
    offset_ += rest.size();
  }
}

Status TarScanner::check_last_member() {
  if (!is_member_unread_) return Ok{};
  return read_content([](std::span<const std::byte>) -> Status { return Ok{}; });
}

Status TarScanner::enclose(const TarHeader& header) {
  const uint64_t content = offset_;
  const auto size = input_->size_bytes();
  const uint64_t room = size ? *size - std::min(content, *size) : kMemberBytesMax;
  if (header.size_bytes > room || header.size_bytes > kMemberBytesMax) {
    if (size) offset_ = *size;
    is_ended_ = true;
    return fail_member(
        Code::kCorrupt, header.name,
        fmt::format("truncated: member '{}' of {} bytes runs past the end of the shard",
                    header.name, header.size_bytes));
  }
  offset_ += padded_to_block(header.size_bytes);
  return Ok{};
}

Result<std::optional<TarMember>> TarScanner::next() {
  if (is_ended_) return std::optional<TarMember>();
  if (!input_->size_bytes()) YARD_TRY(check_last_member());
  Extension extension;
  start_offset_ = offset_;
  while (true) {
    YARD_ASSIGN(const auto found, read_header());
    if (!found) {
      YARD_TRY(check_end());
      return std::optional<TarMember>();
    }
    TarHeader header = *found;
    YARD_ASSIGN(const bool is_extension, extend(header, extension));
    if (is_extension) continue;
    header.name = extension.name.value_or(header.name);
    header.size_bytes = extension.size_bytes.value_or(header.size_bytes);
    const bool is_sparse = header.type == 'S' || extension.is_sparse;
    extension = {};
    if (header.type == '1' || header.type == '2') ++link_count_;
    const uint64_t content = offset_;
    if (!has_no_content(header.type)) YARD_TRY(enclose(header));
    if (is_sparse || header.type == 'M')
      return fail_member(
          Code::kInvalidArgument, header.name,
          fmt::format("member '{}' is {}, which a shard cannot have{}", header.name,
                      is_sparse ? "sparse" : "a part of a multi-volume archive",
                      is_sparse ? "; write the archive without tar's --sparse" : ""));
    if (!is_regular(header)) {
      start_offset_ = offset_;
      continue;
    }
    if (auto named = check_name(header.name); !named)
      return fail_member(Code::kCorrupt, header.name, named.error().message);
    member_ = {std::move(header.name), content, header.size_bytes};
    is_member_unread_ = true;
    return std::optional(member_);
  }
}

Status TarScanner::read_content(const Sink& sink) {
  YARD_CHECK(is_member_unread_);
  is_member_unread_ = false;
  for (uint64_t done = 0; done < member_.size_bytes;) {
    YARD_ASSIGN(const auto piece, window(member_.offset + done,
                                         std::min(kTarWindowBytes, member_.size_bytes - done)));
    if (piece.empty()) {
      is_ended_ = true;
      return fail_member(
          Code::kCorrupt, member_.name,
          fmt::format("truncated: member '{}' of {} bytes runs past the end of the shard",
                      member_.name, member_.size_bytes));
    }
    YARD_TRY(sink(piece));
    done += piece.size();
  }
  return Ok{};
}

Result<uint64_t> TarScanner::next_sound_header(uint64_t offset) {
  for (;; offset += kTarBlockBytes) {
    YARD_ASSIGN(const auto block, window(offset, kTarBlockBytes));
    if (block.size() < kTarBlockBytes) {
      is_ended_ = true;
      return offset + block.size();
    }
    if (!has_tar_magic(block)) continue;
    const auto header = parse_tar_header(block);
    if (header && *header) return offset;
  }
}

Result<std::optional<TarDamage>> TarScanner::skip_damage() {
  std::optional<TarDamage> damage = std::exchange(damage_, std::nullopt);
  if (!damage || is_ended_ || !damage->member.empty()) return damage;
  // Blocks of zeros are passed over too: the end mark has no checksum that would tell it from them.
  auto found = next_sound_header(header_offset_ + kTarBlockBytes);
  // What cannot be unpacked any further is this same damage.
  if (!found && !std::exchange(damage_, std::nullopt)) return std::move(found).error();
  offset_ = found ? *found : header_offset_;
  damage->size_bytes = offset_ - damage->offset;
  return damage;
}

}  // namespace yard::shards
