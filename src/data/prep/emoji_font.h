// EmojiFont: colour pictures of emoji out of a bitmap colour font (CBDT or sbix tables).
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "images/picture.h"

namespace yard::prep {

// Not thread-safe: one per thread; they may share `content`, which is kept alive.
class EmojiFont {
 public:
  // `path` is for messages. kInvalidArgument: not a font, or one whose colours are not bitmaps.
  static Result<EmojiFont> open(std::shared_ptr<const std::string> content,
                                const std::string& path);

  EmojiFont(EmojiFont&&) noexcept;
  EmojiFont& operator=(EmojiFont&&) noexcept;
  ~EmojiFont();

  // The one glyph that a character or sequence is drawn as (ligatures of joined people, skin tones,
  // flags, keycaps); nullopt when the font has none or would draw it in pieces.
  std::optional<uint32_t> find_glyph(std::u32string_view codepoints);

  // The glyph over white, in the middle of the smallest square that holds it; nullopt for a glyph
  // without a colour bitmap.
  std::optional<images::Picture> draw(uint32_t glyph);

 private:
  struct Impl;
  explicit EmojiFont(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace yard::prep
