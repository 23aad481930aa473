#include "gateway/object_meta.h"

#include <fmt/format.h>

#include <charconv>

#include "net/uri.h"

namespace yard::gateway {
namespace {

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T number{};
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (failed != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return number;
}

// Runs of equal sizes, as nearly all uploads have them: "8388608x99,1234".
std::string encode_sizes(const std::vector<uint64_t>& sizes) {
  std::string text;
  for (size_t i = 0; i < sizes.size();) {
    size_t end = i;
    while (end < sizes.size() && sizes[end] == sizes[i]) ++end;
    text += fmt::format("{}{}", text.empty() ? "" : ",", sizes[i]);
    if (end - i > 1) text += fmt::format("x{}", end - i);
    i = end;
  }
  return text;
}

bool decode_sizes(std::string_view text, std::vector<uint64_t>& sizes) {
  constexpr size_t kPartCountMax = 10'000;
  while (!text.empty()) {
    const std::string_view run = text.substr(0, text.find(','));
    text.remove_prefix(std::min(text.size(), run.size() + 1));
    const size_t times_at = run.find('x');
    const auto size = parse_number<uint64_t>(run.substr(0, times_at));
    const auto times = times_at == run.npos ? std::optional<uint64_t>(1)
                                            : parse_number<uint64_t>(run.substr(times_at + 1));
    if (!size || !times || *times > kPartCountMax - sizes.size()) return false;
    sizes.insert(sizes.end(), *times, *size);
  }
  return true;
}

bool decode_checksum(std::string_view name, std::string value, ObjectMeta& meta) {
  const auto algorithm = parse_checksum_algorithm(name);
  if (!algorithm) return false;
  const auto type =
      value.find('-') == value.npos ? ChecksumType::kFullObject : ChecksumType::kComposite;
  meta.checksum = ObjectChecksum{*algorithm, type, std::move(value)};
  return true;
}

template <typename T>
bool set_number(std::string_view text, T& into) {
  const auto number = parse_number<T>(text);
  into = number.value_or(T{});
  return number.has_value();
}

bool decode_pair(QueryPair pair, StampedMeta& stamped) {
  const std::string_view name = pair.name;
  ObjectMeta& meta = stamped.meta;
  if (name == "inode") return set_number(pair.value, stamped.stamp.inode);
  if (name == "size") return set_number(pair.value, stamped.stamp.size_bytes);
  if (name == "mtime_ns") return set_number(pair.value, stamped.stamp.mtime_ns);
  if (name == "parts") return decode_sizes(pair.value, meta.part_sizes_bytes);
  if (name.starts_with("c.")) return decode_checksum(name.substr(2), std::move(pair.value), meta);
  if (name == "etag")
    meta.etag = std::move(pair.value);
  else if (name == "upload")
    meta.upload_id = std::move(pair.value);
  else if (name.starts_with("h."))
    meta.headers.emplace_back(name.substr(2), std::move(pair.value));
  else if (name.starts_with("m."))
    meta.user.emplace_back(name.substr(2), std::move(pair.value));
  else
    return false;
  return true;
}

}  // namespace

std::string_view to_string(ChecksumType type) {
  return type == ChecksumType::kFullObject ? "FULL_OBJECT" : "COMPOSITE";
}

std::string encode_meta(const StampedMeta& stamped) {
  const auto& [meta, stamp] = stamped;
  std::vector<QueryPair> pairs = {{"inode", std::to_string(stamp.inode)},
                                  {"size", std::to_string(stamp.size_bytes)},
                                  {"mtime_ns", std::to_string(stamp.mtime_ns)},
                                  {"etag", meta.etag}};
  for (const auto& [name, value] : meta.headers) pairs.push_back({"h." + name, value});
  for (const auto& [name, value] : meta.user) pairs.push_back({"m." + name, value});
  if (const auto& checksum = meta.checksum)
    pairs.push_back({fmt::format("c.{}", to_string(checksum->algorithm)), checksum->base64});
  if (!meta.part_sizes_bytes.empty())
    pairs.push_back({"parts", encode_sizes(meta.part_sizes_bytes)});
  if (!meta.upload_id.empty()) pairs.push_back({"upload", meta.upload_id});
  return format_query(pairs);
}

std::optional<StampedMeta> decode_meta(std::string_view text) {
  auto pairs = parse_query(text);
  if (!pairs) return std::nullopt;
  StampedMeta stamped;
  for (QueryPair& pair : *pairs)
    if (!decode_pair(std::move(pair), stamped)) return std::nullopt;
  if (stamped.meta.etag.empty()) return std::nullopt;
  return stamped;
}

std::string etag_of(const FileStamp& stamp) {
  const std::string identity =
      fmt::format("{:x} {:x} {:x}", stamp.inode, stamp.size_bytes, stamp.mtime_ns);
  return sha256_hex(identity).substr(0, 32) + "-0";
}

}  // namespace yard::gateway
