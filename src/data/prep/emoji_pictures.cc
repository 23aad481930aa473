#include "prep/emoji_pictures.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <filesystem>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "images/picture.h"
#include "prep/cldr_names.h"
#include "prep/emoji_font.h"
#include "text/unicode.h"

namespace yard::prep {
namespace {

constexpr uint64_t kFontBytesMax = 256 << 20;

// Not write_file_atomic(): that flushes each of ten thousand files to the disk, and a picture set
// that was cut short is made again anyway.
Status write_file(const std::string& path, std::span<const std::byte> content) {
  const UniqueFd fd(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
  if (!fd.valid()) return errno_error(path, errno);
  while (!content.empty()) {
    const ssize_t written = ::write(fd.get(), content.data(), content.size());
    if (written < 0 && errno != EINTR) return errno_error(path, errno);
    if (written > 0) content = content.subspan(size_t(written));
  }
  return Ok{};
}

Status write_text(const std::string& path, std::string_view content) {
  return write_file(path, std::as_bytes(std::span(content)));
}

Json keywords_of(const EmojiName& name) {
  Json codepoints = Json::array();
  for (const char32_t c : name.codepoints)
    codepoints.push_back(fmt::format("U+{:04X}", uint32_t(c)));
  return {{"emoji", text::to_utf8(name.codepoints)},
          {"codepoints", std::move(codepoints)},
          {"keywords", name.keywords}};
}

// Fonts draw a lone '#' or '7' as the beginning of a keycap; they are text, not emoji.
bool is_ascii_character(const EmojiName& name) {
  return name.codepoints.size() == 1 && name.codepoints[0] < 0x80;
}

// Cuts `names` after the `limit`-th that the font draws.
void cut_to_limit(int64_t limit, EmojiFont& font, std::vector<EmojiName>& names) {
  int64_t drawn = 0;
  for (size_t i = 0; i < names.size(); ++i) {
    const std::optional<uint32_t> glyph = font.find_glyph(names[i].codepoints);
    if (glyph && font.draw(*glyph)) ++drawn;
    if (drawn == limit) return names.resize(i + 1);
  }
}

// Draws and writes a list of emoji on several threads. The first error ends all.
class Writer {
 public:
  Writer(const EmojiOptions& options, const StopToken& stop, const std::vector<EmojiName>& names)
      : options_(options), stop_(stop), names_(names) {}

  Status run(std::vector<EmojiFont>& fonts) {
    std::vector<std::thread> threads;
    for (EmojiFont& font : fonts) threads.emplace_back([this, &font] { run_thread(font); });
    for (std::thread& thread : threads) thread.join();
    if (error_) return std::move(*error_);
    return Ok{};
  }

  EmojiStats stats() const {
    return {int64_t(names_.size()), written_count_, not_in_font_count_, not_colour_count_};
  }

 private:
  void run_thread(EmojiFont& font) {
    try {
      for (size_t i = next_++; i < names_.size() && !failed_; i = next_++) {
        Status status = stop_.stopped() ? Status(Error{Code::kCancelled, "stopped on request"})
                                        : write_one(names_[i], font);
        if (!status) fail(std::move(status).error());
      }
    } catch (const std::exception& exception) {
      fail(Error{Code::kInternal, exception.what()});
    }
  }

  void fail(Error error) {
    std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(error);
    failed_ = true;
  }

  Status write_one(const EmojiName& name, EmojiFont& font) {
    const std::optional<uint32_t> glyph = font.find_glyph(name.codepoints);
    if (!glyph) {
      ++not_in_font_count_;
      return Ok{};
    }
    const std::optional<images::Picture> picture = font.draw(*glyph);
    if (!picture) {
      ++not_colour_count_;
      return Ok{};
    }
    const std::string stem = options_.out_dir + "/" + name.file_stem();
    YARD_ASSIGN(const std::vector<std::byte> png,
                images::encode_png(images::resize(*picture, options_.size, options_.size)));
    YARD_TRY(write_file(stem + ".png", png));
    YARD_TRY(write_text(stem + ".txt", name.name));
    if (options_.keywords) YARD_TRY(write_text(stem + ".json", keywords_of(name).dump() + "\n"));
    ++written_count_;
    return Ok{};
  }

  const EmojiOptions& options_;
  const StopToken& stop_;
  const std::vector<EmojiName>& names_;
  std::atomic<size_t> next_ = 0;
  std::atomic<int64_t> written_count_ = 0;
  std::atomic<int64_t> not_in_font_count_ = 0;
  std::atomic<int64_t> not_colour_count_ = 0;
  std::atomic<bool> failed_ = false;
  std::mutex mutex_;
  std::optional<Error> error_;
};

Result<std::string> first_existing(std::span<const char* const> candidates, std::string_view what,
                                   std::string_view package, std::string_view option) {
  std::error_code unreadable;
  for (const char* candidate : candidates) {
    if (std::filesystem::exists(candidate, unreadable)) return std::string(candidate);
  }
  return Error{Code::kNotFound,
               fmt::format("no {} in {}: install the package {} or name one with {}", what,
                           fmt::join(candidates, ", "), package, option)};
}

}  // namespace

Result<EmojiStats> write_emoji_pictures(const EmojiOptions& options, const StopToken& stop) {
  if (options.size < 8 || options.size > 1024) {
    return Error{Code::kInvalidArgument,
                 fmt::format("picture size {}: 8 to 1024 pixels", options.size)};
  }
  YARD_CHECK(options.thread_count >= 1 && options.limit >= 0);
  YARD_ASSIGN(std::vector<EmojiName> names, read_cldr_names(options.cldr_dir));
  std::erase_if(names, is_ascii_character);
  YARD_ASSIGN(std::string font_bytes, read_file(options.font, kFontBytesMax));
  const auto content = std::make_shared<const std::string>(std::move(font_bytes));
  std::vector<EmojiFont> fonts;
  for (int i = 0; i < options.thread_count; ++i) {
    YARD_ASSIGN(EmojiFont font, EmojiFont::open(content, options.font));
    fonts.push_back(std::move(font));
  }
  if (options.limit > 0) cut_to_limit(options.limit, fonts[0], names);
  YARD_TRY(make_directories(options.out_dir));
  Writer writer(options, stop, names);
  YARD_TRY(writer.run(fonts));
  const EmojiStats stats = writer.stats();
  if (stats.written_count == 0) {
    return Error{Code::kCorrupt,
                 fmt::format("{}: none of {} emoji could be drawn", options.font, names.size())};
  }
  return stats;
}

Result<std::string> find_emoji_font() {
  constexpr const char* kCandidates[] = {"/usr/share/fonts/truetype/noto/NotoColorEmoji.ttf",
                                         "/usr/share/fonts/noto/NotoColorEmoji.ttf",
                                         "/usr/share/fonts/google-noto-emoji/NotoColorEmoji.ttf"};
  return first_existing(kCandidates, "colour emoji font", "fonts-noto-color-emoji", "--font");
}

Result<std::string> find_cldr_dir() {
  constexpr const char* kCandidates[] = {"/usr/share/unicode/cldr", "/usr/share/cldr"};
  return first_existing(kCandidates, "CLDR data", "unicode-cldr-core", "--cldr");
}

}  // namespace yard::prep
