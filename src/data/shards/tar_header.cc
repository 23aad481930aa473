#include "shards/tar_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>

namespace yard::shards {
namespace {

// Where a field lies in the block.
struct Field {
  size_t offset;
  size_t size;
};
constexpr Field kName{0, 100}, kMode{100, 8}, kUid{108, 8}, kGid{116, 8}, kSize{124, 12},
    kTime{136, 12}, kChecksum{148, 8}, kType{156, 1}, kMagic{257, 6}, kVersion{263, 2},
    kPrefix{345, 155};
// A time near zero makes GNU tar warn of an implausibly old one.
constexpr uint64_t kMemberTimeSeconds = 946'684'800;  // 2000-01-01
constexpr uint64_t kUstarSizeMax = (uint64_t{1} << 33) - 1;

std::string_view bytes_of(std::span<const std::byte> block, Field field) {
  return {reinterpret_cast<const char*>(block.data()) + field.offset, field.size};
}

std::string_view text_of(std::span<const std::byte> block, Field field) {
  const std::string_view bytes = bytes_of(block, field);
  return bytes.substr(0, bytes.find('\0'));
}

Error bad_number(std::string_view field) {
  return {Code::kCorrupt, fmt::format("the header's {} is no number", field)};
}

// Octal text, or GNU's base-256 when the first bit is set.
Result<uint64_t> number_of(std::span<const std::byte> block, Field field, std::string_view name) {
  std::string_view bytes = bytes_of(block, field);
  const auto first = static_cast<unsigned char>(bytes[0]);
  uint64_t value = 0;
  if (first >= 0x80) {
    if (first != 0x80) return bad_number(name);  // negative, or over 2^64
    for (const char c : bytes.substr(1)) {
      if (value >> 56 != 0) return bad_number(name);
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return value;
  }
  while (!bytes.empty() && bytes.front() == ' ') bytes.remove_prefix(1);
  bytes = bytes.substr(0, bytes.find_first_of(std::string_view("\0 ", 2)));
  for (const char c : bytes) {
    if (c < '0' || c > '7') return bad_number(name);
    value = value << 3 | uint64_t(c - '0');
  }
  return value;
}

// The sum over the block with blanks in the checksum's own place. Old writers summed signed bytes.
struct Sums {
  uint64_t plain = 0;
  int64_t with_sign = 0;
};
Sums sums_of(std::span<const std::byte> block) {
  uint64_t plain = 0, high_count = 0;
  for (size_t i = 0; i < kTarBlockBytes; ++i) {
    plain += uint8_t(block[i]);
    high_count += uint64_t{uint8_t(block[i])} >> 7;
  }
  int64_t blanks = 0;
  for (const char c : bytes_of(block, kChecksum)) {
    const auto byte = static_cast<uint8_t>(c);
    plain += uint64_t{' '} - byte;
    blanks += byte >> 7;
  }
  return {plain, int64_t(plain) - 256 * (int64_t(high_count) - blanks)};
}

void set_text(TarBlock& block, Field field, std::string_view text) {
  YARD_CHECK(text.size() <= field.size);
  if (!text.empty()) std::memcpy(block.data() + field.offset, text.data(), text.size());
}

void set_octal(TarBlock& block, Field field, uint64_t value) {
  for (size_t i = field.size - 1; i-- > 0; value >>= 3)
    block[field.offset + i] = std::byte('0' + (value & 7));
}

TarBlock ustar_block(std::string_view prefix, std::string_view name, uint64_t size_bytes,
                     char type) {
  TarBlock block = {};
  set_text(block, kName, name);
  set_text(block, kPrefix, prefix);
  set_octal(block, kMode, 0644);
  set_octal(block, kUid, 0);
  set_octal(block, kGid, 0);
  set_octal(block, kSize, size_bytes);
  set_octal(block, kTime, kMemberTimeSeconds);
  block[kType.offset] = std::byte(type);
  set_text(block, kMagic, "ustar");
  set_text(block, kVersion, "00");
  // Six digits, a NUL and a blank.
  set_octal(block, {kChecksum.offset, kChecksum.size - 1}, sums_of(block).plain);
  block[kChecksum.offset + 7] = std::byte{' '};
  return block;
}

struct UstarName {
  std::string_view prefix;
  std::string_view name;
};
// nullopt when the name does not fit the two fields or is not plain ASCII.
std::optional<UstarName> ustar_name(std::string_view name) {
  const auto is_plain = [](char c) { return c >= ' ' && c < 0x7f; };
  if (!std::ranges::all_of(name, is_plain)) return std::nullopt;
  if (name.size() <= kName.size) return UstarName{{}, name};
  const size_t slash = name.find('/', name.size() - kName.size - 1);
  if (slash == name.npos || slash == 0 || slash > kPrefix.size) return std::nullopt;
  return UstarName{name.substr(0, slash), name.substr(slash + 1)};
}

// The length counts its own digits.
std::string pax_record(std::string_view key, std::string_view value) {
  const size_t rest = key.size() + value.size() + 3;
  size_t length = rest + 1;
  while (std::to_string(length).size() + rest != length)
    length = std::to_string(length).size() + rest;
  return fmt::format("{} {}={}\n", length, key, value);
}

std::string pax_records(std::string_view name, uint64_t size_bytes) {
  return pax_record("path", name) +
         (size_bytes > kUstarSizeMax ? pax_record("size", std::to_string(size_bytes)) : "");
}

void append(std::vector<std::byte>& out, std::span<const std::byte> bytes) {
  out.insert(out.end(), bytes.begin(), bytes.end());
}

}  // namespace

bool has_tar_magic(std::span<const std::byte> block) {
  return bytes_of(block, kMagic).starts_with("ustar");
}

Result<std::optional<TarHeader>> parse_tar_header(std::span<const std::byte> block) {
  YARD_CHECK(block.size() == kTarBlockBytes);
  if (std::ranges::all_of(block, [](std::byte b) { return b == std::byte{0}; }))
    return std::optional<TarHeader>();
  YARD_ASSIGN(const uint64_t checksum, number_of(block, kChecksum, "checksum"));
  const Sums sums = sums_of(block);
  if (checksum != sums.plain && int64_t(checksum) != sums.with_sign)
    return Error{Code::kCorrupt, "the header's checksum is wrong"};
  TarHeader header;
  header.name = text_of(block, kName);
  header.type = char(block[kType.offset]);
  YARD_ASSIGN(header.size_bytes, number_of(block, kSize, "size"));
  // GNU's own format has other things in the place of the prefix.
  const std::string_view prefix = text_of(block, kPrefix);
  if (bytes_of(block, kMagic) == std::string_view("ustar\0", 6) && !prefix.empty())
    header.name = fmt::format("{}/{}", prefix, header.name);
  return std::optional(std::move(header));
}

Result<std::vector<PaxRecord>> parse_pax(std::string_view content) {
  const Error malformed{Code::kCorrupt, "a pax header is malformed"};
  std::vector<PaxRecord> records;
  while (!content.empty()) {
    size_t length = 0;
    const auto [end, failed] =
        std::from_chars(content.data(), content.data() + content.size(), length);
    const size_t digits = size_t(end - content.data());
    if (failed != std::errc() || length > content.size() || length < digits + 3 || *end != ' ' ||
        content[length - 1] != '\n')
      return malformed;
    const std::string_view record = content.substr(digits + 1, length - digits - 2);
    const size_t equals = record.find('=');
    if (equals == record.npos) return malformed;
    records.push_back({record.substr(0, equals), record.substr(equals + 1)});
    content.remove_prefix(length);
  }
  return records;
}

std::vector<std::byte> tar_member_header(std::string_view name, uint64_t size_bytes) {
  std::vector<std::byte> out;
  const auto fitting = ustar_name(name);
  if (fitting && size_bytes <= kUstarSizeMax) {
    append(out, ustar_block(fitting->prefix, fitting->name, size_bytes, '0'));
    return out;
  }
  const std::string records = pax_records(name, size_bytes);
  append(out, ustar_block("", "PaxHeaders/member", records.size(), 'x'));
  append(out, std::as_bytes(std::span(records)));
  out.resize(padded_to_block(out.size()));
  append(out, ustar_block("", "member", std::min(size_bytes, kUstarSizeMax), '0'));
  return out;
}

uint64_t tar_header_bytes(std::string_view name, uint64_t size_bytes) {
  if (size_bytes <= kUstarSizeMax && ustar_name(name)) return kTarBlockBytes;
  return 2 * kTarBlockBytes + padded_to_block(pax_records(name, size_bytes).size());
}

}  // namespace yard::shards
