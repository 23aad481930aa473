// The English names of emoji, from Unicode's Common Locale Data Repository (CLDR).
//
// File format: UTS #35 part 2, "Annotations". Pure apart from reading the files; thread-safe.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace yard::prep {

struct EmojiName {
  std::u32string codepoints;          // without U+FE0F, as CLDR writes them
  std::string name;                   // "red apple"
  std::vector<std::string> keywords;  // "apple", "fruit", "red"

  // "u1f34e", "u1f468-200d-1f33e": a file name, the same on every machine.
  std::string file_stem() const;
};

// Every annotated character and sequence of annotations/en.xml and annotationsDerived/en.xml, in
// the files' order, each once. Many are not emoji: punctuation, arrows, currency.
// `dir` holds these two folders itself or in common/. kNotFound, kCorrupt.
Result<std::vector<EmojiName>> read_cldr_names(const std::string& dir);

}  // namespace yard::prep
