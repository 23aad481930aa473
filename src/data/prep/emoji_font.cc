// The only file that knows FreeType and HarfBuzz.
#include "prep/emoji_font.h"

#include <fmt/format.h>
#include <ft2build.h>
#include FT_FREETYPE_H
#include <hb.h>

#include <algorithm>

namespace yard::prep {
namespace {

struct Destroy {
  void operator()(hb_blob_t* blob) const { hb_blob_destroy(blob); }
  void operator()(hb_face_t* face) const { hb_face_destroy(face); }
  void operator()(hb_font_t* font) const { hb_font_destroy(font); }
  void operator()(hb_buffer_t* buffer) const { hb_buffer_destroy(buffer); }
  void operator()(FT_Library library) const { FT_Done_FreeType(library); }
  void operator()(FT_Face face) const { FT_Done_Face(face); }
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

bool has_table(hb_face_t* face, hb_tag_t tag) {
  const Owned<hb_blob_t> table(hb_face_reference_table(face, tag));
  return hb_blob_get_length(table.get()) > 0;
}

Status check_is_bitmap_colour_font(hb_face_t* face, const std::string& path) {
  if (hb_face_get_glyph_count(face) == 0)
    return Error{Code::kInvalidArgument, fmt::format("{}: not a font", path)};
  if (has_table(face, HB_TAG('C', 'B', 'D', 'T')) || has_table(face, HB_TAG('s', 'b', 'i', 'x')))
    return Ok{};
  const char* kind = has_table(face, HB_TAG('C', 'O', 'L', 'R'))   ? "a COLR outline font"
                     : has_table(face, HB_TAG('S', 'V', 'G', ' ')) ? "an SVG font"
                                                                   : "a font without colours";
  return Error{Code::kInvalidArgument,
               fmt::format("{}: {}, but colour bitmaps are needed: install the package "
                           "fonts-noto-color-emoji and name its NotoColorEmoji.ttf with --font",
                           path, kind)};
}

FT_Int largest_strike(FT_Face face) {
  FT_Int largest = 0;
  for (FT_Int i = 1; i < face->num_fixed_sizes; ++i) {
    if (face->available_sizes[i].y_ppem > face->available_sizes[largest].y_ppem) largest = i;
  }
  return largest;
}

// BGRA with premultiplied alpha, over white, in the middle of a square.
images::Picture square_over_white(const FT_Bitmap& bitmap) {
  const int width = int(bitmap.width);
  const int height = int(bitmap.rows);
  const int side = std::max(width, height);
  images::Picture picture{side, side, {}};
  picture.pixels.assign(size_t(side) * size_t(side) * 3, 255);
  const size_t left = size_t(side - width) / 2;
  const size_t top = size_t(side - height) / 2;
  for (size_t y = 0; y < size_t(height); ++y) {
    const uint8_t* in = bitmap.buffer + ptrdiff_t(y) * bitmap.pitch;
    uint8_t* out = &picture.pixels[((top + y) * size_t(side) + left) * 3];
    for (int x = 0; x < width; ++x, in += 4, out += 3) {
      const int white = 255 - in[3];
      for (int c = 0; c < 3; ++c) out[c] = uint8_t(std::min(255, in[2 - c] + white));
    }
  }
  return picture;
}

}  // namespace

struct EmojiFont::Impl {
  std::shared_ptr<const std::string> content;  // first: what follows points into it
  Owned<hb_font_t> shaper;
  Owned<hb_buffer_t> buffer;
  Owned<std::remove_pointer_t<FT_Library>> library;
  Owned<std::remove_pointer_t<FT_Face>> face;

  std::optional<uint32_t> shape_to_one_glyph(std::u32string_view text) {
    hb_buffer_clear_contents(buffer.get());
    hb_buffer_set_flags(buffer.get(), HB_BUFFER_FLAG_REMOVE_DEFAULT_IGNORABLES);
    hb_buffer_add_codepoints(buffer.get(), reinterpret_cast<const uint32_t*>(text.data()),
                             int(text.size()), 0, int(text.size()));
    hb_buffer_guess_segment_properties(buffer.get());
    hb_shape(shaper.get(), buffer.get(), nullptr, 0);
    unsigned count = 0;
    const hb_glyph_info_t* glyphs = hb_buffer_get_glyph_infos(buffer.get(), &count);
    if (count != 1 || glyphs[0].codepoint == 0) return std::nullopt;
    return glyphs[0].codepoint;
  }
};

EmojiFont::EmojiFont(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
EmojiFont::EmojiFont(EmojiFont&&) noexcept = default;
EmojiFont& EmojiFont::operator=(EmojiFont&&) noexcept = default;
EmojiFont::~EmojiFont() = default;

Result<EmojiFont> EmojiFont::open(std::shared_ptr<const std::string> content,
                                  const std::string& path) {
  auto impl = std::make_unique<Impl>();
  impl->content = std::move(content);
  const Owned<hb_blob_t> blob(hb_blob_create(impl->content->data(), unsigned(impl->content->size()),
                                             HB_MEMORY_MODE_READONLY, nullptr, nullptr));
  const Owned<hb_face_t> hb_face(hb_face_create(blob.get(), 0));
  YARD_TRY(check_is_bitmap_colour_font(hb_face.get(), path));
  impl->shaper.reset(hb_font_create(hb_face.get()));
  impl->buffer.reset(hb_buffer_create());

  FT_Library library = nullptr;
  if (FT_Init_FreeType(&library) != 0) return Error{Code::kInternal, "FreeType does not start"};
  impl->library.reset(library);
  FT_Face face = nullptr;
  const auto* bytes = reinterpret_cast<const FT_Byte*>(impl->content->data());
  if (FT_New_Memory_Face(library, bytes, FT_Long(impl->content->size()), 0, &face) != 0)
    return Error{Code::kInvalidArgument, fmt::format("{}: a damaged font", path)};
  impl->face.reset(face);
  if (face->num_fixed_sizes == 0 || FT_Select_Size(face, largest_strike(face)) != 0)
    return Error{Code::kInvalidArgument, fmt::format("{}: no colour bitmaps in the font", path)};
  return EmojiFont(std::move(impl));
}

std::optional<uint32_t> EmojiFont::find_glyph(std::u32string_view codepoints) {
  if (auto glyph = impl_->shape_to_one_glyph(codepoints)) return glyph;
  // Some sequences are ligatures only with the selector of colour presentation after the first
  // character, which CLDR leaves out.
  constexpr char32_t kEmojiPresentation = 0xfe0f;
  std::u32string selected(codepoints);
  selected.insert(std::min<size_t>(1, selected.size()), 1, kEmojiPresentation);
  return impl_->shape_to_one_glyph(selected);
}

std::optional<images::Picture> EmojiFont::draw(uint32_t glyph) {
  FT_Face face = impl_->face.get();
  if (FT_Load_Glyph(face, glyph, FT_LOAD_COLOR) != 0) return std::nullopt;
  const FT_Bitmap& bitmap = face->glyph->bitmap;
  if (bitmap.pixel_mode != FT_PIXEL_MODE_BGRA || bitmap.width == 0 || bitmap.rows == 0)
    return std::nullopt;
  return square_over_white(bitmap);
}

}  // namespace yard::prep
