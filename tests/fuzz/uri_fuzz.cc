// What is encoded is decoded to the same bytes; what was read and written is read alike.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "net/uri.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace yard;
  const std::string_view text(reinterpret_cast<const char*>(data), size);

  YARD_CHECK(*percent_decode(percent_encode(text)) == text);
  YARD_CHECK(*percent_decode(percent_encode_path(text)) == text);
  if (const auto decoded = percent_decode(text))
    YARD_CHECK(*percent_decode(percent_encode(*decoded)) == *decoded);

  if (const auto target = split_target(text)) {
    YARD_CHECK(target->raw_path == "*" || target->raw_path.starts_with('/'));
    if (const auto query = parse_query(target->raw_query))
      for (const auto& [name, value] : *query) YARD_CHECK(name.size() + value.size() <= size);
  }
  if (const auto query = parse_query(text))
    YARD_CHECK(*parse_query(format_query(*query)) == *query);

  const std::string normal = normalize_path(text);
  YARD_CHECK(normal.starts_with('/') && normalize_path(normal) == normal);
  YARD_CHECK(normal.find("//") == std::string::npos && normal.find("/./") == std::string::npos &&
             normal.find("/../") == std::string::npos && !normal.ends_with("/.."));
  return 0;
}
