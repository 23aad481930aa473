// Where the metadata lie in a picture file: pieces of its bytes, nothing copied or decoded.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

namespace yard::prep {

struct EmbeddedBlocks {
  std::string_view exif;      // a TIFF file
  std::string_view iptc;      // IIM records
  std::string_view xmp;       // XML
  std::string_view icc;       // a profile, or as much of it as the first segment holds
  std::string_view icc_name;  // where the file tells it outside the profile
  std::vector<std::pair<std::string_view, std::string_view>> texts;  // PNG's, by keyword
};
EmbeddedBlocks find_blocks(std::string_view file);

// Big-endian and little-endian numbers at an offset; 0 past the end.
uint32_t read_be(std::string_view bytes, size_t offset, int byte_count);
uint32_t read_le(std::string_view bytes, size_t offset, int byte_count);
// No more than there is.
std::string_view slice(std::string_view bytes, size_t offset, size_t size);

}  // namespace yard::prep
