#include "storage/keys.h"

#include <fmt/format.h>

#include <algorithm>

namespace yard::storage {
namespace {

// Bytes of the UTF-8 sequence that `lead` begins, 0 when it cannot begin one (RFC 3629).
size_t sequence_length(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead >= 0xC2 && lead < 0xE0) return 2;
  if (lead >= 0xE0 && lead < 0xF0) return 3;
  if (lead >= 0xF0 && lead < 0xF5) return 4;
  return 0;
}

bool is_sequence(std::string_view bytes) {
  const auto at = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (size_t i = 1; i < bytes.size(); ++i)
    if ((at(i) & 0xC0) != 0x80) return false;
  if (bytes.size() < 3) return true;
  // Overlong forms, surrogates, and values past U+10FFFF.
  if (at(0) == 0xE0) return at(1) >= 0xA0;
  if (at(0) == 0xED) return at(1) < 0xA0;
  if (at(0) == 0xF0) return at(1) >= 0x90;
  if (at(0) == 0xF4) return at(1) < 0x90;
  return true;
}

Error bad_key(std::string_view key, std::string_view why) {
  return {Code::kInvalidArgument, fmt::format("key '{}': {}", key.substr(0, 200), why)};
}

}  // namespace

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const size_t length = sequence_length(static_cast<unsigned char>(text.front()));
    if (length == 0 || length > text.size() || !is_sequence(text.substr(0, length))) return false;
    text.remove_prefix(length);
  }
  return true;
}

Status check_key(std::string_view key) {
  if (key.empty()) return bad_key(key, "empty");
  if (key.size() > kKeyBytesMax) return bad_key(key, "longer than 1024 bytes");
  if (key.find('\0') != key.npos || !is_utf8(key)) return bad_key(key, "not UTF-8 text");
  for (std::string_view rest = key;;) {
    const size_t slash = rest.find('/');
    const std::string_view part = rest.substr(0, slash);
    if (part.empty()) return bad_key(key, "a part between slashes is empty");
    if (part == "." || part == "..") return bad_key(key, "'.' and '..' are not allowed in it");
    if (slash == rest.npos) return Ok{};
    rest.remove_prefix(slash + 1);
  }
}

Status check_list_request(const ListRequest& request) {
  if (request.object_count_max >= 1 && request.object_count_max <= 1000) return Ok{};
  return Error{Code::kInvalidArgument,
               fmt::format("object_count_max {} is not in 1..1000", request.object_count_max)};
}

bool PageBuilder::may_hold(std::string_view folder) const {
  if (done_) return false;
  const std::string_view prefix = request_.prefix;
  const size_t shared = std::min(prefix.size(), folder.size());
  if (folder.substr(0, shared) != prefix.substr(0, shared)) return false;
  // All keys under the folder start with it: when it sorts before start_after and is no prefix of
  // it, so do they.
  const std::string_view after = request_.start_after;
  if (folder < after && !after.starts_with(folder)) return false;
  if (const auto common = common_prefix(folder))
    return *common != last_entry_ && *common != std::string_view(request_.start_after);
  return true;
}

std::optional<std::string_view> PageBuilder::common_prefix(std::string_view key) const {
  if (request_.delimiter.empty() || key.size() < request_.prefix.size()) return std::nullopt;
  const size_t at = key.find(request_.delimiter, request_.prefix.size());
  if (at == key.npos) return std::nullopt;
  return key.substr(0, at + request_.delimiter.size());
}

bool PageBuilder::room() {
  if (page_.objects.size() + page_.common_prefixes.size() < request_.object_count_max) return true;
  page_.next_start_after = last_entry_;
  done_ = true;
  return false;
}

bool PageBuilder::may_want(std::string_view key) const {
  const std::string_view after = request_.start_after;
  if (done_ || !key.starts_with(request_.prefix) || key <= after) return false;
  const auto common = common_prefix(key);
  return !common || (*common != last_entry_ && *common != after);
}

bool PageBuilder::wants(std::string_view key) {
  if (!may_want(key) || !room()) return false;
  const auto common = common_prefix(key);
  if (!common) return true;
  last_entry_ = *common;
  page_.common_prefixes.push_back(last_entry_);
  return false;
}

void PageBuilder::add(ObjectInfo info) {
  last_entry_ = info.key;
  page_.objects.push_back(std::move(info));
}

ListPage PageBuilder::take() {
  return std::move(page_);
}

}  // namespace yard::storage
