#include "prep/embedded_blocks_internal.h"

namespace yard::prep {
namespace {

constexpr std::string_view kExifMark("Exif\0\0", 6);
constexpr std::string_view kXmpMark("http://ns.adobe.com/xap/1.0/\0", 29);
constexpr std::string_view kIccMark("ICC_PROFILE\0", 12);
constexpr std::string_view kPhotoshopMark("Photoshop 3.0\0", 14);
constexpr std::string_view kPngMark("\x89PNG\r\n\x1a\n", 8);

// The IPTC resource among Photoshop's: "8BIM", number, name, length, content, all padded to even.
std::string_view iptc_of(std::string_view resources) {
  for (size_t at = 0; at + 12 <= resources.size();) {
    if (resources.substr(at, 4) != "8BIM") break;
    const uint32_t number = read_be(resources, at + 4, 2);
    const size_t name_bytes = (1 + size_t(read_be(resources, at + 6, 1)) + 1) & ~size_t{1};
    const size_t length_at = at + 6 + name_bytes;
    const size_t size = read_be(resources, length_at, 4);
    if (number == 0x0404) return slice(resources, length_at + 4, size);
    at = length_at + 4 + ((size + 1) & ~size_t{1});
  }
  return {};
}

void take_jpeg_segment(uint32_t marker, std::string_view content, EmbeddedBlocks& blocks) {
  const auto after = [&](std::string_view mark) { return content.substr(mark.size()); };
  if (marker == 0xE1 && content.starts_with(kExifMark) && blocks.exif.empty())
    blocks.exif = after(kExifMark);
  else if (marker == 0xE1 && content.starts_with(kXmpMark) && blocks.xmp.empty())
    blocks.xmp = after(kXmpMark);
  else if (marker == 0xE2 && content.starts_with(kIccMark) && blocks.icc.empty())
    blocks.icc = slice(content, kIccMark.size() + 2, content.size());  // number and count
  else if (marker == 0xED && content.starts_with(kPhotoshopMark) && blocks.iptc.empty())
    blocks.iptc = iptc_of(after(kPhotoshopMark));
}

EmbeddedBlocks jpeg_blocks(std::string_view file) {
  EmbeddedBlocks blocks;
  for (size_t at = 2; at + 4 <= file.size() && uint8_t(file[at]) == 0xFF;) {
    const uint32_t marker = uint8_t(file[at + 1]);
    if (marker == 0xFF) {
      ++at;  // fill byte
      continue;
    }
    if (marker == 0xDA || marker == 0xD9) break;  // pixels, end
    const size_t length = read_be(file, at + 2, 2);
    if (length < 2) break;
    take_jpeg_segment(marker, slice(file, at + 4, length - 2), blocks);
    at += 2 + length;
  }
  return blocks;
}

// keyword, NUL, compression flag and method, language, NUL, translation, NUL, text. Compressed ones
// are left out.
void take_international_text(std::string_view content, EmbeddedBlocks& blocks) {
  const size_t keyword_end = content.find('\0');
  if (keyword_end == content.npos || read_be(content, keyword_end + 1, 1) != 0) return;
  const size_t language_end = content.find('\0', keyword_end + 3);
  if (language_end == content.npos) return;
  const size_t translation_end = content.find('\0', language_end + 1);
  if (translation_end == content.npos) return;
  const std::string_view keyword = content.substr(0, keyword_end);
  const std::string_view text = content.substr(translation_end + 1);
  if (keyword == "XML:com.adobe.xmp")
    blocks.xmp = text;
  else
    blocks.texts.emplace_back(keyword, text);
}

EmbeddedBlocks png_blocks(std::string_view file) {
  EmbeddedBlocks blocks;
  for (size_t at = kPngMark.size(); at + 12 <= file.size();) {
    const size_t size = read_be(file, at, 4);
    const std::string_view type = file.substr(at + 4, 4);
    const std::string_view content = slice(file, at + 8, size);
    const size_t keyword_end = content.find('\0');
    if (type == "eXIf") blocks.exif = content;
    if (type == "iCCP" && keyword_end != content.npos)
      blocks.icc_name = content.substr(0, keyword_end);
    if (type == "tEXt" && keyword_end != content.npos)
      blocks.texts.emplace_back(content.substr(0, keyword_end), content.substr(keyword_end + 1));
    if (type == "iTXt") take_international_text(content, blocks);
    at += 12 + size;
  }
  return blocks;
}

EmbeddedBlocks webp_blocks(std::string_view file) {
  EmbeddedBlocks blocks;
  for (size_t at = 12; at + 8 <= file.size();) {
    const std::string_view type = file.substr(at, 4);
    const size_t size = read_le(file, at + 4, 4);
    const std::string_view content = slice(file, at + 8, size);
    if (type == "EXIF")
      blocks.exif = content.starts_with(kExifMark) ? content.substr(kExifMark.size()) : content;
    if (type == "XMP ") blocks.xmp = content;
    if (type == "ICCP") blocks.icc = content;
    at += 8 + ((size + 1) & ~size_t{1});
  }
  return blocks;
}

}  // namespace

uint32_t read_be(std::string_view bytes, size_t offset, int byte_count) {
  uint32_t value = 0;
  for (int i = 0; i < byte_count; ++i)
    value = value << 8 | (offset + i < bytes.size() ? uint8_t(bytes[offset + i]) : 0U);
  return value;
}

uint32_t read_le(std::string_view bytes, size_t offset, int byte_count) {
  uint32_t value = 0;
  for (int i = byte_count - 1; i >= 0; --i)
    value = value << 8 | (offset + i < bytes.size() ? uint8_t(bytes[offset + i]) : 0U);
  return value;
}

std::string_view slice(std::string_view bytes, size_t offset, size_t size) {
  return offset < bytes.size() ? bytes.substr(offset, size) : std::string_view();
}

EmbeddedBlocks find_blocks(std::string_view file) {
  if (file.starts_with("\xFF\xD8")) return jpeg_blocks(file);
  if (file.starts_with(kPngMark)) return png_blocks(file);
  if (file.starts_with("RIFF") && slice(file, 8, 4) == "WEBP") return webp_blocks(file);
  return {};
}

}  // namespace yard::prep
