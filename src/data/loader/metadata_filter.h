// MetadataFilter: which samples are wanted, by what their JSON member says:
//
//   width >= 512 and aspect < 2 and (license == "cc0" or not watermark) and tags.main != null
//
// A name is a field, a.b one of an object in it; what is not there is null. Literals are numbers,
// "strings", true, false, null. Comparisons are of two numbers or of two strings; == and != of
// anything; all others, and those with null, are false. A value by itself counts as true unless it
// is null, false, 0, "" or empty. `not` binds closest, then `and`, then `or`.
#pragma once

#include <memory>
#include <string_view>

#include "base/result.h"

namespace yard::loader {

// Immutable, thread-safe.
class MetadataFilter {
 public:
  // kInvalidArgument, with the place in the text and what was expected there.
  static Result<MetadataFilter> parse(std::string_view text);
  MetadataFilter(MetadataFilter&&) noexcept;
  MetadataFilter& operator=(MetadataFilter&&) noexcept;
  ~MetadataFilter();

  // kCorrupt: not a JSON object.
  Result<bool> matches(std::string_view json) const;

  struct Node;

 private:
  explicit MetadataFilter(std::unique_ptr<Node> root);
  std::unique_ptr<Node> root_;
};

}  // namespace yard::loader
