// Keys, ranges, targets, forms with their policies, and the metadata that is read back: nothing
// crashes, no range leaves its object, and what was read is written and read alike. Documents:
// s3_xml_fuzz.cc.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "gateway/conditions.h"
#include "gateway/form.h"
#include "gateway/key_path.h"
#include "gateway/object_meta.h"
#include "gateway/post_policy.h"
#include "gateway/router.h"
#include "net/encoding.h"

using namespace yard;
using namespace yard::gateway;

namespace {

void check_key(std::string_view key) {
  if (key.empty() || key.size() > kKeyBytesMax) return;
  const std::string path = odd_path(key);
  std::string found;
  for (std::string_view rest = path; !rest.empty();) {
    const auto name = parse_odd_name(rest.substr(0, rest.find('/')));
    YARD_CHECK(name.has_value());
    found += name->text;
    if (name->kind == OddName::Kind::kFolder) found += '/';
    rest.remove_prefix(std::min(rest.size(), rest.substr(0, rest.find('/')).size() + 1));
  }
  YARD_CHECK(found == key);
}

void check_range(std::string_view header) {
  constexpr uint64_t kSize = 1000;
  if (const auto range = parse_range(header, kSize); range && *range)
    YARD_CHECK((*range)->length > 0 && (*range)->offset + (*range)->length <= kSize);
  if (const auto range = parse_copy_range(header, kSize))
    YARD_CHECK(range->length > 0 && range->offset + range->length <= kSize);
}

using Form = std::vector<std::pair<std::string, std::string>>;

// What of a form is read, the body coming in pieces; nothing when it is refused.
std::optional<Form> read_form(std::string_view body, size_t piece_bytes) {
  FormReader reader("B", [&](std::span<std::byte> into) -> S3Result<size_t> {
    const size_t count = std::min({into.size(), piece_bytes, body.size()});
    std::memcpy(into.data(), body.data(), count);
    body.remove_prefix(count);
    return count;
  });
  Form form;
  for (;;) {
    const auto field = reader.next();
    if (!field) return std::nullopt;
    if (!*field) return form;
    auto text = reader.read_text(1 << 20);
    if (!text) return std::nullopt;
    YARD_CHECK(!(*field)->name.empty() && text->find("\r\n--B") == text->npos);
    form.emplace_back((*field)->name + "|" + (*field)->filename, *std::move(text));
  }
}

void check_form(std::string_view text) {
  YARD_CHECK(read_form(text, 1) == read_form(text, SIZE_MAX));
  (void)form_boundary(text);
  FormFields fields;
  fields.add("policy", base64_encode(bytes_of(text)));
  if (const auto bounds = check_policy(fields, "b", Clock::Wall()))
    YARD_CHECK(text.find("expiration") != text.npos);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  check_key(text);
  check_range(text);
  check_form(text);
  if (const auto stamped = decode_meta(text)) {
    const auto again = decode_meta(encode_meta(*stamped));
    YARD_CHECK(again.has_value() && again->meta == stamped->meta);
  }
  const size_t line = text.find('\n');
  const std::string_view target = text.substr(0, line);
  const size_t mark = target.find('?');
  (void)route({.method = "GET",
               .host = line == text.npos ? "" : text.substr(line + 1),
               .raw_path = target.substr(0, mark),
               .raw_query = mark == target.npos ? "" : target.substr(mark + 1)},
              "s3.local");
  return 0;
}
