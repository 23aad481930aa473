#include "prep/cldr_names.h"

#include <fmt/format.h>

#include <filesystem>
#include <map>
#include <pugixml.hpp>

#include "base/file.h"
#include "text/unicode.h"

namespace yard::prep {
namespace {

constexpr uint64_t kFileBytesMax = 64 << 20;

std::vector<std::string> split_keywords(std::string_view text) {
  constexpr std::string_view kSeparator = " | ";
  std::vector<std::string> keywords;
  while (!text.empty()) {
    const std::string_view keyword = text.substr(0, text.find(kSeparator));
    if (!keyword.empty()) keywords.emplace_back(keyword);
    text.remove_prefix(std::min(text.size(), keyword.size() + kSeparator.size()));
  }
  return keywords;
}

// Collects names in order of appearance; a character's name and keywords are two elements.
class NameCollector {
 public:
  void add(const pugi::xml_node& annotation) {
    const std::u32string codepoints = text::from_utf8(annotation.attribute("cp").value());
    if (codepoints.empty()) return;
    const auto [entry, added] = index_.emplace(codepoints, names_.size());
    if (added) names_.push_back({codepoints, {}, {}});
    EmojiName& name = names_[entry->second];
    if (std::string_view(annotation.attribute("type").value()) == "tts") {
      name.name = annotation.text().get();
    } else {
      name.keywords = split_keywords(annotation.text().get());
    }
  }

  // Without those that have keywords but no name.
  std::vector<EmojiName> take() {
    std::erase_if(names_, [](const EmojiName& name) { return name.name.empty(); });
    return std::move(names_);
  }

 private:
  std::vector<EmojiName> names_;
  std::map<std::u32string, size_t> index_;
};

Status read_annotations(const std::string& path, NameCollector& collector) {
  YARD_ASSIGN(const std::string content, read_file(path, kFileBytesMax));
  pugi::xml_document document;
  const pugi::xml_parse_result parsed = document.load_buffer(content.data(), content.size());
  if (!parsed) {
    return Error{Code::kCorrupt, fmt::format("{}: not XML, at byte {}: {}", path, parsed.offset,
                                             parsed.description())};
  }
  const pugi::xml_node annotations = document.child("ldml").child("annotations");
  if (!annotations)
    return Error{Code::kCorrupt, fmt::format("{}: no CLDR annotations in it", path)};
  for (const pugi::xml_node& annotation : annotations.children("annotation"))
    collector.add(annotation);
  return Ok{};
}

}  // namespace

std::string EmojiName::file_stem() const {
  std::string stem;
  for (const char32_t c : codepoints)
    stem += fmt::format("{}{:x}", stem.empty() ? "u" : "-", uint32_t(c));
  return stem;
}

Result<std::vector<EmojiName>> read_cldr_names(const std::string& dir) {
  const std::string nested = dir + "/common";
  const bool is_nested = std::filesystem::exists(nested + "/annotations/en.xml");
  const std::string& root = is_nested ? nested : dir;
  NameCollector collector;
  for (const char* folder : {"/annotations", "/annotationsDerived"})
    YARD_TRY(read_annotations(root + folder + "/en.xml", collector));
  std::vector<EmojiName> names = collector.take();
  if (names.empty()) return Error{Code::kCorrupt, fmt::format("{}: no names in it", root)};
  return names;
}

}  // namespace yard::prep
