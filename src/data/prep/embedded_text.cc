#include <fmt/format.h>

#include <array>
#include <pugixml.hpp>

#include "prep/embedded_blocks_internal.h"
#include "prep/text_fields.h"
#include "text/unicode.h"

namespace yard::prep {
namespace {

constexpr size_t kFieldCountMax = 256;  // of one file

void add_field(std::string_view name, std::string_view value, std::string_view origin,
               std::vector<TextField>& fields) {
  std::string clean = clean_text(value).text;
  if (!clean.empty() && fields.size() < kFieldCountMax)
    fields.push_back({std::string(name), std::move(clean), std::string(origin)});
}

// Tags of the TIFF directories 0 and EXIF (EXIF 2.32, CIPA DC-008).
std::string_view exif_name(uint32_t tag) {
  switch (tag) {
    case 0x010E:
      return "title";
    case 0x010F:
      return "camera_make";
    case 0x0110:
      return "camera_model";
    case 0x0131:
      return "software";
    case 0x013B:
      return "creator";
    case 0x8298:
      return "copyright";
    case 0x9003:
      return "taken_at";
    default:
      return {};
  }
}

class ExifReader {
 public:
  ExifReader(std::string_view tiff, std::vector<TextField>& fields)
      : tiff_(tiff), is_little_(tiff.starts_with("II")), fields_(fields) {}

  void read() {
    if (!is_little_ && !tiff_.starts_with("MM")) return;
    if (number(2, 2) != 42) return;
    if (const uint32_t exif = read_directory(number(4, 4)); exif != 0) read_directory(exif);
  }

 private:
  static constexpr uint32_t kExifDirectory = 0x8769;
  static constexpr uint32_t kAscii = 2;

  uint32_t number(size_t offset, int byte_count) const {
    return is_little_ ? read_le(tiff_, offset, byte_count) : read_be(tiff_, offset, byte_count);
  }

  // Where the EXIF directory is; 0: it names none.
  uint32_t read_directory(uint32_t offset) {
    uint32_t exif = 0;
    const uint32_t count = number(offset, 2);
    for (uint32_t i = 0; i < count; ++i) {
      const size_t entry = size_t(offset) + 2 + 12 * size_t(i);
      if (entry + 12 > tiff_.size()) break;
      const uint32_t tag = number(entry, 2);
      if (tag == kExifDirectory) exif = number(entry + 8, 4);
      const std::string_view name = exif_name(tag);
      if (name.empty() || number(entry + 2, 2) != kAscii) continue;
      const uint32_t size = number(entry + 4, 4);
      std::string_view value = slice(tiff_, size <= 4 ? entry + 8 : number(entry + 8, 4), size);
      // Copyright holds the photographer's and the editor's, with NUL between.
      add_field(name, value.substr(0, value.find('\0')), "exif", fields_);
    }
    return exif;
  }

  const std::string_view tiff_;
  const bool is_little_;
  std::vector<TextField>& fields_;
};

// Data sets of record 2 (IPTC-NAA Information Interchange Model 4.2).
std::string_view iptc_name(uint32_t data_set) {
  switch (data_set) {
    case 5:
      return "title";
    case 80:
      return "creator";
    case 110:
      return "credit";
    case 116:
      return "copyright";
    case 120:
      return "caption";
    default:
      return {};
  }
}

void read_iptc(std::string_view iim, std::vector<TextField>& fields) {
  std::string keywords;
  for (size_t at = 0; at + 5 <= iim.size() && uint8_t(iim[at]) == 0x1C;) {
    const uint32_t record = read_be(iim, at + 1, 1);
    const uint32_t data_set = read_be(iim, at + 2, 1);
    const uint32_t size = read_be(iim, at + 3, 2);
    if ((size & 0x8000U) != 0) break;  // longer than 32 KiB: none of ours
    const std::string_view value = slice(iim, at + 5, size);
    if (record == 2 && data_set == 25)
      keywords.append(keywords.empty() ? "" : ", ").append(value);
    else if (record == 2 && !iptc_name(data_set).empty())
      add_field(iptc_name(data_set), value, "iptc", fields);
    at += 5 + size;
  }
  add_field("keywords", keywords, "iptc", fields);
}

std::string_view local_name(std::string_view name) {
  const size_t colon = name.find(':');
  return colon == name.npos ? name : name.substr(colon + 1);
}

std::string_view xmp_name(std::string_view property) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kNames = {{
      {"title", "title"},
      {"description", "caption"},
      {"creator", "creator"},
      {"contributor", "contributor"},
      {"rights", "copyright"},
      {"license", "licence"},
      {"UsageTerms", "licence"},
      {"WebStatement", "licence_url"},
      {"Credit", "credit"},
      {"subject", "keywords"},
  }};
  for (const auto& [theirs, ours] : kNames)
    if (property == theirs) return ours;
  return {};
}

// A plain value, an rdf:resource, or the items of an rdf:Alt (the first), rdf:Seq or rdf:Bag.
std::string xmp_value(const pugi::xml_node& property) {
  if (const auto resource = property.attribute("rdf:resource")) return resource.value();
  const pugi::xml_node list = property.first_child();
  if (list.type() != pugi::node_element) return property.text().get();
  std::string value;
  for (const pugi::xml_node item : list.children()) {
    if (!value.empty()) value += ", ";
    value += item.text().get();
    if (local_name(list.name()) == "Alt") break;
  }
  return value;
}

void visit_descriptions(const pugi::xml_node& node, int depth, std::string_view origin,
                        std::vector<TextField>& fields) {
  if (depth > 4) return;
  for (const pugi::xml_node child : node.children()) {
    if (local_name(child.name()) != "Description") {
      visit_descriptions(child, depth + 1, origin, fields);
      continue;
    }
    for (const pugi::xml_attribute attribute : child.attributes())
      if (const auto name = xmp_name(local_name(attribute.name())); !name.empty())
        add_field(name, attribute.value(), origin, fields);
    for (const pugi::xml_node property : child.children())
      if (const auto name = xmp_name(local_name(property.name())); !name.empty())
        add_field(name, xmp_value(property), origin, fields);
  }
}

std::string utf16_be(std::string_view bytes) {
  std::string text;
  for (size_t at = 0; at + 2 <= bytes.size(); at += 2) {
    uint32_t unit = read_be(bytes, at, 2);
    if (unit >= 0xD800 && unit < 0xDC00 && at + 4 <= bytes.size()) {
      unit = 0x10000 + ((unit & 0x3FFU) << 10) + (read_be(bytes, at + 2, 2) & 0x3FFU);
      at += 2;
    }
    text::append_utf8(unit, text);
  }
  return text;
}

// The profile's description (ICC.1:2022, 9.2.41): type 'desc' of version 2, 'mluc' of version 4.
std::string icc_description(std::string_view profile) {
  const uint32_t tag_count = read_be(profile, 128, 4);
  for (uint32_t i = 0; i < std::min<uint32_t>(tag_count, 100); ++i) {
    const size_t entry = 132 + 12 * size_t(i);
    if (slice(profile, entry, 4) != "desc") continue;
    const std::string_view tag =
        slice(profile, read_be(profile, entry + 4, 4), read_be(profile, entry + 8, 4));
    if (tag.starts_with("desc")) {
      const std::string_view text = slice(tag, 12, read_be(tag, 8, 4));
      return std::string(text.substr(0, text.find('\0')));
    }
    if (tag.starts_with("mluc"))
      return utf16_be(slice(tag, read_be(tag, 24, 4), read_be(tag, 20, 4)));
  }
  return {};
}

std::string_view png_name(std::string_view keyword) {
  if (keyword == "Title") return "title";
  if (keyword == "Author") return "creator";
  if (keyword == "Description") return "caption";
  if (keyword == "Copyright") return "copyright";
  if (keyword == "License" || keyword == "Licence") return "licence";
  if (keyword == "Software") return "software";
  return {};
}

}  // namespace

std::vector<TextField> read_xmp(std::string_view xml, std::string_view origin) {
  std::vector<TextField> fields;
  pugi::xml_document document;
  if (document.load_buffer(xml.data(), xml.size())) visit_descriptions(document, 0, origin, fields);
  return fields;
}

std::vector<TextField> read_embedded(std::span<const std::byte> encoded) {
  const EmbeddedBlocks blocks =
      find_blocks(std::string_view(reinterpret_cast<const char*>(encoded.data()), encoded.size()));
  std::vector<TextField> fields;
  if (!blocks.xmp.empty()) fields = read_xmp(blocks.xmp, "xmp");
  read_iptc(blocks.iptc, fields);
  ExifReader(blocks.exif, fields).read();
  const std::string profile =
      blocks.icc.empty() ? std::string(blocks.icc_name) : icc_description(blocks.icc);
  add_field("icc_profile", profile, "icc", fields);
  for (const auto& [keyword, value] : blocks.texts)
    if (!png_name(keyword).empty()) add_field(png_name(keyword), value, "png", fields);
  return fields;
}

}  // namespace yard::prep
