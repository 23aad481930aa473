// TextPattern: a pattern of the AWS shapes, matched against whole texts.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/result.h"

namespace yard::api {

// Cheap to copy. Thread-safe: compiled at its first use, by one thread.
//
// Bytes, not characters, are matched: those of other scripts (\p{L}) are all that are not ASCII.
class TextPattern {
 public:
  explicit TextPattern(std::string source);

  // As AWS writes it.
  const std::string& source() const;
  // kInvalidArgument for a pattern that cannot be read; then matches() says yes to everything.
  Status check() const;
  // Contract: the text is no longer than a limit on lengths has let pass; the engine's stack grows
  // with it. Beyond kTextBytesMax everything matches.
  bool matches(std::string_view text) const;

  static constexpr size_t kTextBytesMax = 4096;

 private:
  struct Compiled;
  std::shared_ptr<Compiled> compiled_;
};

}  // namespace yard::api
