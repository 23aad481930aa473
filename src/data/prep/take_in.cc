#include <fmt/format.h>

#include <algorithm>

#include "images/picture_size.h"
#include "prep/object_events.h"
#include "prep/work_internal.h"
#include "shards/sample_name.h"

namespace yard::prep {
namespace {

constexpr uint64_t kSidecarBytesMax = uint64_t{1} << 20;
constexpr int64_t kStoreRetrySeconds = 5;
constexpr int kWholeSide = 65'535;  // no JPEG is decoded smaller than it is

bool is_passing(Code code) {
  return code == Code::kUnavailable || code == Code::kDeadlineExceeded || code == Code::kCancelled;
}

// What an Error of the store means for the object.
void end_by_store(const Error& error, const Source& source, Work& work) {
  if (error.code == Code::kNotFound) return work.end(Fate::kDrop, "gone");
  if (is_passing(error.code)) {
    work.end(Fate::kRetry, error.message);
    work.retry_s = kStoreRetrySeconds;
    return;
  }
  // A pinned read of an object that was replaced since: that version has an event of its own.
  const auto now = source.store.head(work.object.key);
  if (!now && now.error().code == Code::kNotFound) return work.end(Fate::kDrop, "gone");
  std::string etag = now ? now->etag : work.object.etag;
  std::erase(etag, '"');
  if (etag != work.object.etag) return work.end(Fate::kDrop, "replaced");
  work.end(Fate::kReject, error.message);
}

// Whether its bytes are at hand.
bool fetch(const Source& source, const PrepSpec& spec, uint64_t size_bytes, Work& work) {
  Result<storage::ObjectInfo> info = storage::ObjectInfo{
      .key = work.object.key, .size_bytes = size_bytes, .etag = work.object.etag};
  if (size_bytes == 0) info = source.store.head(work.object.key);  // a message need not tell it
  if (!info) {
    end_by_store(info.error(), source, work);
    return false;
  }
  std::string etag = info->etag;
  std::erase(etag, '"');
  if (etag != work.object.etag)
    work.end(Fate::kDrop, "replaced");
  else if (info->size_bytes == 0)
    work.end(Fate::kReject, "the file is empty");
  else if (info->size_bytes > spec.pictures.bytes_max)
    work.end(Fate::kDrop, fmt::format("too_many_bytes: {}", info->size_bytes));
  if (!work.is_open()) return false;
  work.picture.resize(info->size_bytes);
  if (const Status got = source.store.get_object(*info, work.picture); !got)
    end_by_store(got.error(), source, work);
  return work.is_open();
}

void end_by_measure(const Error& error, Work& work) {
  switch (error.code) {
    case Code::kExhausted:
      return work.end(Fate::kDrop, "too_many_pixels: " + error.message);
    case Code::kCorrupt:
      return work.end(Fate::kReject, "damaged picture: " + error.message);
    default:
      return work.end(Fate::kReject, "no picture: " + error.message);
  }
}

std::string extension_of(images::Format format) {
  if (format == images::Format::kJpeg) return "jpg";
  return format == images::Format::kPng ? "png" : "webp";
}

Status encode_anew(const PrepSpec& spec, const images::Picture& picture, Work& work) {
  const EncodeRules& rules = spec.encode;
  const int shorter = std::min(picture.width, picture.height);
  const bool is_smaller = rules.side_max > 0 && shorter > rules.side_max;
  images::Picture resized;
  if (is_smaller) {
    const auto [width, height] =
        images::size_with_shorter_side(picture.width, picture.height, int(rules.side_max));
    resized = images::resize(picture, int(width), int(height));
  }
  const images::Picture& out = is_smaller ? resized : picture;
  const bool as_jpeg =
      rules.format == EncodeFormat::kJpeg ||
      (rules.format == EncodeFormat::kKeep && work.measures.format != images::Format::kPng);
  auto encoded = as_jpeg ? images::encode_jpeg(out, rules.quality) : images::encode_png(out);
  if (!encoded) return encoded.error();
  work.picture = *std::move(encoded);
  work.extension = as_jpeg ? "jpg" : "png";
  work.description.set("packed_width", out.width, "encode");
  work.description.set("packed_height", out.height, "encode");
  return Ok{};
}

bool wants_encoding(const PrepSpec& spec, images::Size size, images::Format format) {
  const EncodeRules& rules = spec.encode;
  if (rules.side_max > 0 && std::min(size.width, size.height) > rules.side_max) return true;
  if (rules.format == EncodeFormat::kJpeg) return format != images::Format::kJpeg;
  return rules.format == EncodeFormat::kPng && format != images::Format::kPng;
}

void describe(const PrepSpec& spec, Work& work) {
  MeasureOptions options;
  options.pixel_count_max = spec.pictures.pixels_max;
  if (spec.encode.side_max > 0)
    options.shorter_side_min = int(spec.encode.side_max);
  else if (spec.encode.format != EncodeFormat::kKeep)
    options.shorter_side_min = kWholeSide;
  auto measured = measure(work.picture, options);
  if (!measured) return end_by_measure(measured.error(), work);
  work.measures = measured->measures;
  work.extension = extension_of(work.measures.format);
  work.description.add(work.measures);
  for (const TextField& field : read_embedded(work.picture)) work.description.add(field);
  if (!wants_encoding(spec, work.measures.size, work.measures.format)) return;
  if (const Status encoded = encode_anew(spec, measured->picture, work); !encoded)
    work.end(Fate::kReject, "cannot be encoded: " + encoded.error().message);
}

// Sidecars count before what is in the picture, and among themselves as the spec lists them.
void read_sidecars(const Source& source, const PrepSpec& spec, Work& work) {
  for (const std::string& extension : spec.sidecars) {
    Sidecar sidecar{work.stem + "." + extension, {}};
    auto content = storage::get_all(source.store, sidecar.name, kSidecarBytesMax);
    if (!content && content.error().code == Code::kNotFound) continue;
    if (!content && is_passing(content.error().code)) {
      work.end(Fate::kRetry, content.error().message);
      return;
    }
    if (!content) return work.end(Fate::kReject, content.error().message);
    sidecar.content = *std::move(content);
    const auto fields = read_sidecar(sidecar);
    if (!fields) return work.end(Fate::kReject, "bad sidecar: " + fields.error().message);
    for (const TextField& field : fields->texts) work.description.add(field);
    for (const auto& [name, value] : fields->values.items())
      work.description.add(name, value, "sidecar:" + sidecar.name);
    if (fields->is_repaired)
      work.description.set("caption_repaired", true, "sidecar:" + sidecar.name);
  }
}

void add_origin(const Source& source, const PrepSpec& spec, std::string_view extension,
                Work& work) {
  work.description.set("source", source.store.url() + "/" + work.object.key, "event");
  work.description.set("source_etag", work.object.etag, "event");
  const bool is_expected = extension == extension_of(work.measures.format) ||
                           (extension == "jpeg" && work.extension == "jpg");
  if (!is_expected) work.description.set("source_extension", std::string(extension), "event");
  work.description.add("licence", spec.licence, "spec");
  work.description.add("contributor", spec.contributor, "spec");
  work.description.add("contributor", work.description.text("creator"), "creator");
}

// Whether the message is about a picture of the source.
bool read_message(const queue::ReceivedMessage& message, const Source& source, Work& work,
                  std::string& extension, uint64_t& size_bytes) {
  const auto event = parse_object_event(message.body);
  if (!event) work.end(Fate::kReject, event.error().message);
  if (!event) return false;
  if (!*event) work.fate = Fate::kIgnore;
  if (!*event) return false;
  work.object = {(*event)->key, (*event)->etag};
  if ((*event)->bucket != source.bucket || !work.object.key.starts_with(source.prefix)) {
    work.end(Fate::kReject, fmt::format("'{}' of bucket '{}' is outside the source",
                                        work.object.key, (*event)->bucket));
    return false;
  }
  auto name = picture_name(work.object.key);
  if (!name || !images::is_picture_extension(name->extension)) {
    work.fate = Fate::kIgnore;
    return false;
  }
  work.stem = std::move(name->stem);
  extension = std::move(name->extension);
  size_bytes = (*event)->size_bytes;
  return true;
}

bool is_allowed_licence(const PictureRules& rules, std::string_view licence) {
  if (rules.licences.empty()) return true;
  return std::ranges::any_of(rules.licences, [&](std::string_view allowed) {
    return shards::to_lower(allowed) == shards::to_lower(licence);
  });
}

std::string_view word_of(images::Format format) {
  if (format == images::Format::kJpeg) return "jpeg";
  return format == images::Format::kPng ? "png" : "webp";
}

// The name of the broken rule, "" when all are kept.
std::string broken_rule(const PictureRules& rules, const Measures& m) {
  const int shorter = std::min(m.size.width, m.size.height);
  const int longer = std::max(m.size.width, m.size.height);
  const double aspect = double(m.size.width) / m.size.height;
  const std::string size = fmt::format(": {} x {}", m.size.width, m.size.height);
  if (std::ranges::find(rules.formats, word_of(m.format)) == rules.formats.end())
    return fmt::format("format: {}", word_of(m.format));
  if (shorter < rules.side_min) return "too_small" + size;
  if (longer > rules.side_max) return "too_large" + size;
  if (aspect < rules.aspect_min || aspect > rules.aspect_max) return "aspect" + size;
  if (m.sharpness < rules.sharpness_min) return fmt::format("blurred: {:.1f}", m.sharpness);
  if (m.entropy < rules.entropy_min) return fmt::format("flat: {:.2f} bits", m.entropy);
  if (m.alpha_coverage < rules.alpha_coverage_min)
    return fmt::format("transparent: {:.2f}", m.alpha_coverage);
  return "";
}

// Soon at first, for most captions come right behind their picture; four times at most, for every
// delivery counts against the queue's limit.
int64_t caption_retry_s(int64_t waited_ms, int64_t wait_ms) {
  constexpr int64_t kShareOfWait = 24;
  const int64_t pause_ms = std::max(2 * waited_ms, wait_ms / kShareOfWait);
  return std::min(pause_ms, wait_ms - waited_ms) / 1000 + 1;
}

}  // namespace

Work take_in(const queue::ReceivedMessage& message, const Source& source, const PrepSpec& spec,
             int64_t now_ms) {
  Work work;
  work.receipt = message.receipt;
  work.message = message.body;
  std::string extension;
  uint64_t size_bytes = 0;
  if (!read_message(message, source, work, extension, size_bytes)) return work;
  if (!fetch(source, spec, size_bytes, work)) return work;
  read_sidecars(source, spec, work);
  if (work.is_open()) describe(spec, work);
  if (!work.is_open()) return work;
  add_origin(source, spec, extension, work);
  // Steps may add a caption, so that without one it is waited for only where there are none.
  const int64_t waited_ms = now_ms - message.sent_ms;
  if (spec.steps.empty() && spec.pictures.caption_required &&
      work.description.text("caption").empty() && waited_ms < spec.pictures.caption_wait.count()) {
    work.end(Fate::kRetry, "no caption yet");
    work.retry_s = caption_retry_s(waited_ms, spec.pictures.caption_wait.count());
  }
  return work;
}

void judge(const PrepSpec& spec, Work& work) {
  if (!work.is_open()) return;
  const PictureRules& rules = spec.pictures;
  if (std::string broken = broken_rule(rules, work.measures); !broken.empty())
    return work.end(Fate::kDrop, std::move(broken));
  const std::string licence = work.description.text("licence");
  if (!is_allowed_licence(rules, licence))
    return work.end(Fate::kDrop, "licence: " + (licence.empty() ? "none" : licence));
  if (rules.caption_required && work.description.text("caption").empty())
    return work.end(Fate::kDrop, "no_caption");
}

}  // namespace yard::prep
