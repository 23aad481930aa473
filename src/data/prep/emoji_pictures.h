// A captioned picture data set that every Debian machine can make: colour emoji with their names.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "base/stop_token.h"

namespace yard::prep {

struct EmojiOptions {
  std::string out_dir;    // made if needed; files of other names in it are left alone
  std::string font;       // a file; see find_emoji_font()
  std::string cldr_dir;   // see read_cldr_names() and find_cldr_dir()
  int size = 128;         // side of the pictures, pixels, 8..1024
  int64_t limit = 0;      // pictures at most, in CLDR's order; 0: all
  bool keywords = false;  // also NAME.json: {"emoji", "codepoints", "keywords"}
  int thread_count = 1;
};

struct EmojiStats {
  int64_t name_count = 0;         // characters and sequences of CLDR looked at; no ASCII
  int64_t written_count = 0;      // pictures
  int64_t not_in_font_count = 0;  // no glyph, or several
  int64_t not_colour_count = 0;   // a glyph without a colour bitmap
};

// Writes NAME.png and NAME.txt (the CLDR name) for every emoji that the font has. The same files
// for any thread_count. kNotFound: font, CLDR; kInvalidArgument: font of another kind, size;
// kCorrupt: CLDR files, or nothing could be drawn; kExhausted: disk full; kCancelled.
Result<EmojiStats> write_emoji_pictures(const EmojiOptions& options, const StopToken& stop);

// The usual places. kNotFound names the Debian package that brings the file.
Result<std::string> find_emoji_font();
Result<std::string> find_cldr_dir();

}  // namespace yard::prep
