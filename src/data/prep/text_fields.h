// Texts about a picture (caption, creator, licence, ...), each with where it was found.
//
// Pure functions; any thread. Nothing here fails: what is damaged is left out, and said so in the
// log by those who can name the object. Output is always UTF-8 without control characters.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace yard::prep {

struct TextField {
  std::string name;    // "caption", "title", "creator", "contributor", "copyright", "licence", ...
  std::string value;   // clean_text()
  std::string origin;  // "exif", "iptc", "xmp", "icc", "png", "sidecar:cats/7.txt", ...
  bool operator==(const TextField&) const = default;
};

struct CleanText {
  std::string text;
  bool is_repaired = false;  // bytes that were not UTF-8, or NUL, were in it
};
// Bytes that are not UTF-8 become U+FFFD, NUL and other control characters go, white space of any
// kind and length becomes one space, none at the ends. Longer than `bytes_max` is cut between
// characters.
inline constexpr size_t kTextBytesMax = size_t{64} << 10;
CleanText clean_text(std::string_view bytes, size_t bytes_max = kTextBytesMax);

// EXIF (title, creator, copyright, camera_make, camera_model, software, taken_at), IPTC (title,
// caption, creator, credit, copyright, keywords), XMP (the same and licence), the name of the ICC
// profile (icc_profile), and PNG's text chunks, of a JPEG, PNG or WebP file. XMP first, then IPTC,
// EXIF, PNG: the first field of a name is the one that counts.
std::vector<TextField> read_embedded(std::span<const std::byte> encoded);

// Of an XMP document by itself.
std::vector<TextField> read_xmp(std::string_view xml, std::string_view origin);

}  // namespace yard::prep
