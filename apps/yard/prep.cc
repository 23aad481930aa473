// yard prep: making data sets and tokenizers, and looking at what they do to one input.
#include <fmt/format.h>

#include <iostream>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/units.h"
#include "commands.h"
#include "images/picture.h"
#include "prep/captions.h"
#include "prep/emoji_pictures.h"
#include "prep_commands.h"
#include "storage/object_store.h"
#include "text/bpe_trainer.h"
#include "text/clip_tokenizer.h"

namespace yard::app {
namespace {

Status run_emoji(prep::EmojiOptions options, const StopToken& stop) {
  const auto start = Clock::real().now();
  if (options.font.empty()) {
    YARD_ASSIGN(options.font, prep::find_emoji_font());
  }
  if (options.cldr_dir.empty()) {
    YARD_ASSIGN(options.cldr_dir, prep::find_cldr_dir());
  }
  YARD_ASSIGN(const prep::EmojiStats stats, prep::write_emoji_pictures(options, stop));
  fmt::print(
      "{} pictures of {} x {} pixels in {}, {}; of {} names {} are not in the font, {} have no "
      "colours\n",
      stats.written_count, options.size, options.size, options.out_dir,
      format_duration(Clock::real().now() - start), stats.name_count, stats.not_in_font_count,
      stats.not_colour_count);
  return Ok{};
}

void add_emoji(CLI::App& prep, Context& context) {
  auto options = std::make_shared<prep::EmojiOptions>();
  options->thread_count = int(std::max(1U, std::thread::hardware_concurrency()));
  CLI::App* command = prep.add_subcommand(
      "emoji", "write every colour emoji of a font as NAME.png with its name in NAME.txt");
  command->add_option("OUT_DIR", options->out_dir)->required();
  command->add_option("--size", options->size, "side of the pictures, pixels")
      ->capture_default_str();
  command->add_option("--limit", options->limit, "pictures at most; 0: all")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--font", options->font, "bitmap colour font (default: Noto Color Emoji)");
  command->add_option("--cldr", options->cldr_dir,
                      "folder of Unicode's CLDR (default: the system's)");
  command->add_flag("--keywords", options->keywords, "also write NAME.json");
  command->add_option("--threads", options->thread_count)->check(CLI::Range(1, 256));
  command->callback([options, &context] {
    context.action = [options, &context] { return run_emoji(*options, context.stop); };
  });
}

struct TokenizerOptions {
  std::string source;
  std::string out_dir;
  std::string caption_member = "txt";
  text::BpeOptions bpe;
};

Status run_tokenizer(const TokenizerOptions& options, const StopToken& stop) {
  const auto start = Clock::real().now();
  YARD_ASSIGN(const storage::Location source, storage::open_directory(options.source));
  YARD_ASSIGN(const std::vector<std::string> captions,
              prep::read_captions(*source.store, source.key, options.caption_member, stop));
  YARD_ASSIGN(const text::ClipVocabulary vocabulary, text::train_clip_bpe(captions, options.bpe));
  YARD_TRY(text::save_clip_vocabulary(vocabulary, options.out_dir));
  fmt::print("{} tokens, {} merges from {} captions in {}, {}\n", vocabulary.tokens.size(),
             vocabulary.merges.size(), captions.size(), options.out_dir,
             format_duration(Clock::real().now() - start));
  return Ok{};
}

void add_tokenizer(CLI::App& prep, Context& context) {
  auto options = std::make_shared<TokenizerOptions>();
  CLI::App* command = prep.add_subcommand(
      "tokenizer", "train a CLIP tokenizer on the captions of shards or of a folder of .txt files");
  command->add_option("SOURCE_DIR", options->source)->required();
  command->add_option("OUT_DIR", options->out_dir)->required();
  command
      ->add_option("--vocab-size", options->bpe.vocab_size,
                   "tokens; fewer when nothing is left to merge")
      ->check(CLI::Range(514, 1 << 20))
      ->capture_default_str();
  command->add_option("--captions", options->caption_member, "the captions' extension")
      ->capture_default_str();
  command->callback([options, &context] {
    context.action = [options, &context] { return run_tokenizer(*options, context.stop); };
  });
}

Status run_tokens(const std::string& dir, size_t length) {
  YARD_ASSIGN(const text::ClipTokenizer tokenizer, text::ClipTokenizer::open(dir));
  for (std::string caption; std::getline(std::cin, caption);)
    fmt::print("{}\n", Json(tokenizer.encode(caption, length)).dump());
  return Ok{};
}

void add_tokens(CLI::App& prep, Context& context) {
  struct Options {
    std::string dir;
    size_t length = text::kClipLength;
  };
  auto options = std::make_shared<Options>();
  CLI::App* command = prep.add_subcommand(
      "tokens", "read captions, one a line, and write their token ids, one JSON array a line");
  command->add_option("TOKENIZER_DIR", options->dir)->required();
  command->add_option("--length", options->length, "ids per caption")
      ->check(CLI::Range(2, 65536))
      ->capture_default_str();
  command->callback([options, &context] {
    context.action = [options] { return run_tokens(options->dir, options->length); };
  });
}

struct PictureOptions {
  std::string in;
  std::string out;
  images::Crop crop{.size = 0};  // 0: the whole picture
  int width = 0;                 // both 0: not resized
  int height = 0;
  bool stored_orientation = false;
};

images::Picture shown(const images::Picture& picture, const PictureOptions& options) {
  if (options.width > 0) return images::resize(picture, options.width, options.height);
  if (options.crop.size == 0) return picture;
  const size_t side = size_t(options.crop.size);
  std::vector<float> pixels(3 * side * side);
  images::crop_into(picture, options.crop, pixels);
  return images::from_floats(pixels, options.crop.size, options.crop.size);
}

Status run_picture(const PictureOptions& options) {
  YARD_ASSIGN(const std::string encoded, read_file(options.in));
  images::DecodeOptions decode_options;
  decode_options.apply_orientation = !options.stored_orientation;
  Result<images::Picture> picture =
      images::decode(std::as_bytes(std::span(encoded)), decode_options);
  if (!picture) return std::move(picture).error().while_(options.in);
  YARD_ASSIGN(const std::vector<std::byte> png, images::encode_png(shown(*picture, options)));
  return write_file_atomic(options.out,
                           std::string_view(reinterpret_cast<const char*>(png.data()), png.size()));
}

void add_picture(CLI::App& prep, Context& context) {
  auto options = std::make_shared<PictureOptions>();
  CLI::App* command =
      prep.add_subcommand("picture", "write one picture as a PNG file, as training would see it");
  command->add_option("IN", options->in, "a JPEG, PNG or WebP file")->required();
  command->add_option("OUT.png", options->out)->required();
  auto* size =
      command->add_option("--size", options->crop.size, "cut to a square of this side, pixels")
          ->check(CLI::Range(1, 8192));
  command->add_option("--x", options->crop.x, "where the square lies, 0..1")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(size);
  command->add_option("--y", options->crop.y, "where the square lies, 0..1")
      ->check(CLI::Range(0.0, 1.0))
      ->needs(size);
  command->add_flag("--flip", options->crop.flip, "mirrored left to right")->needs(size);
  auto* width = command->add_option("--width", options->width, "resize to this width instead")
                    ->check(CLI::Range(1, 65535))
                    ->excludes(size);
  auto* height = command->add_option("--height", options->height)->check(CLI::Range(1, 65535));
  width->needs(height);
  height->needs(width);
  command->add_flag("--stored-orientation", options->stored_orientation,
                    "do not turn upright by EXIF orientation");
  command->callback(
      [options, &context] { context.action = [options] { return run_picture(*options); }; });
}

}  // namespace

void add_prep_commands(CLI::App& app, Context& context) {
  CLI::App* prep =
      app.add_subcommand("prep", "raw pictures into shards; captioned pictures and tokenizers");
  prep->require_subcommand(1);
  add_emoji(*prep, context);
  add_tokenizer(*prep, context);
  add_tokens(*prep, context);
  add_picture(*prep, context);
  add_prep_pipeline_commands(*prep, context);
  add_prep_latents_command(*prep, context);
}

}  // namespace yard::app
