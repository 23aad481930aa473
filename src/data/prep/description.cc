#include "prep/description.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "net/checksums.h"
#include "prep/phash.h"
#include "shards/sample_name.h"

namespace yard::prep {
namespace {

constexpr int kMeasureSide = 192;  // shorter side that measures are taken at, where there is more

double variance_of_laplacian(const GreyPicture& grey) {
  if (grey.width < 3 || grey.height < 3) return 0;
  double sum = 0;
  double sum_of_squares = 0;
  for (int y = 1; y + 1 < grey.height; ++y) {
    const uint8_t* row = &grey.levels[size_t(y) * grey.width];
    int64_t row_sum = 0;
    int64_t row_squares = 0;
    for (int x = 1; x + 1 < grey.width; ++x) {
      const int value =
          row[x - 1] + row[x + 1] + row[x - grey.width] + row[x + grey.width] - 4 * row[x];
      row_sum += value;
      row_squares += int64_t(value) * value;
    }
    sum += double(row_sum);
    sum_of_squares += double(row_squares);
  }
  const double count = double(grey.width - 2) * (grey.height - 2);
  return sum_of_squares / count - (sum / count) * (sum / count);
}

double entropy_of(const GreyPicture& grey) {
  // Neighbours are often alike: four tables, so that no count waits for the one before.
  std::array<std::array<uint32_t, 256>, 4> counts{};
  const size_t size = grey.levels.size();
  const uint8_t* levels = grey.levels.data();
  size_t i = 0;
  for (; i + 4 <= size; i += 4)
    for (size_t table = 0; table < 4; ++table) ++counts[table][levels[i + table]];
  for (; i < size; ++i) ++counts[0][levels[i]];
  double entropy = 0;
  for (size_t level = 0; level < 256; ++level) {
    const uint64_t count =
        uint64_t{counts[0][level]} + counts[1][level] + counts[2][level] + counts[3][level];
    const double share = double(count) / double(size);
    if (count > 0) entropy -= share * std::log2(share);
  }
  return entropy;
}

std::array<double, 3> mean_of(const images::Picture& picture) {
  std::array<uint64_t, 3> sums{};
  for (size_t i = 0; i < picture.pixels.size(); i += 3)
    for (size_t c = 0; c < 3; ++c) sums[c] += picture.pixels[i + c];
  const double count = double(picture.pixels.size()) / 3;
  return {double(sums[0]) / count, double(sums[1]) / count, double(sums[2]) / count};
}

// Whether the file may have transparent pixels, by its header.
bool may_have_alpha(std::string_view file, images::Format format) {
  if (format == images::Format::kPng)
    return file.size() > 25 && ((uint8_t(file[25]) & 4U) != 0 ||
                                file.substr(0, file.find("IDAT")).find("tRNS") != file.npos);
  if (format != images::Format::kWebp || file.size() < 25) return false;
  if (file.substr(12, 4) == "VP8X") return (uint8_t(file[20]) & 0x10U) != 0;
  if (file.substr(12, 4) == "VP8L") return (uint8_t(file[24]) & 0x10U) != 0;
  return false;
}

// A pixel over white is brighter than over black by what it lets through.
double coverage(const images::Picture& over_white, const images::Picture& over_black) {
  uint64_t let_through = 0;
  for (size_t i = 0; i < over_white.pixels.size(); i += 3)
    let_through += uint64_t(std::max(0, over_white.pixels[i + 1] - over_black.pixels[i + 1]));
  return 1 - double(let_through) / (255.0 * double(over_white.pixels.size()) / 3);
}

double rounded(double value) {
  return std::round(value * 1e4) / 1e4;
}

std::string_view field_of_key(std::string_view key) {
  if (key == "text" || key == "description") return "caption";
  if (key == "license") return "licence";
  if (key == "author" || key == "artist") return "creator";
  return key;
}

void take_json_member(std::string_view key, const Json& value, const std::string& origin,
                      SidecarFields& fields) {
  const std::string name(field_of_key(key));
  if (value.is_number() || value.is_boolean()) fields.values[name] = value;
  if (!value.is_string()) return;
  CleanText clean = clean_text(value.get_ref<const std::string&>());
  if (name == "caption") fields.is_repaired |= clean.is_repaired;
  if (!clean.text.empty()) fields.texts.push_back({name, std::move(clean.text), origin});
}

}  // namespace

Result<Measured> measure(std::span<const std::byte> encoded, const MeasureOptions& options) {
  if (encoded.empty()) return Error{Code::kInvalidArgument, "the file is empty"};
  images::PictureReader reader({.pixel_count_max = options.pixel_count_max});
  YARD_ASSIGN(const images::PictureInfo info, reader.open(encoded));
  images::DecodeOptions decode;
  decode.pixel_count_max = options.pixel_count_max;
  decode.shorter_side_min = std::max(kMeasureSide, options.shorter_side_min);
  YARD_ASSIGN(images::Picture picture, images::decode(encoded, decode));
  Measures measures;
  measures.format = info.format;
  measures.size = info.size;
  measures.orientation = info.orientation;
  const std::string_view file(reinterpret_cast<const char*>(encoded.data()), encoded.size());
  measures.sha256 = sha256_hex(file);
  const GreyPicture grey = to_grey(picture);
  measures.phash = phash(grey);
  measures.entropy = entropy_of(grey);
  measures.mean_colour = mean_of(picture);
  measures.sharpness = variance_of_laplacian(
      reduce(grey, std::max(1, std::min(grey.width, grey.height) / kMeasureSide)));
  if (may_have_alpha(file, info.format)) {
    decode.background = {0, 0, 0};
    YARD_ASSIGN(const images::Picture over_black, images::decode(encoded, decode));
    measures.alpha_coverage = coverage(picture, over_black);
  }
  return Measured{std::move(measures), std::move(picture)};
}

Result<SidecarFields> read_sidecar(const Sidecar& sidecar) {
  SidecarFields fields;
  const std::string origin = "sidecar:" + clean_text(sidecar.name).text;
  const std::string name = shards::to_lower(sidecar.name);
  if (name.ends_with(".xmp")) {
    fields.texts = read_xmp(sidecar.content, origin);
  } else if (name.ends_with(".json")) {
    YARD_ASSIGN(const Json json, parse_json(sidecar.content, sidecar.name));
    if (!json.is_object()) return Error{Code::kInvalidArgument, sidecar.name + ": no JSON object"};
    for (const auto& [key, value] : json.items())
      take_json_member(clean_text(key).text, value, origin, fields);
  } else {
    CleanText clean = clean_text(sidecar.content);
    fields.is_repaired = clean.is_repaired;
    if (!clean.text.empty()) fields.texts.push_back({"caption", std::move(clean.text), origin});
  }
  return fields;
}

void Description::add(std::string_view name, const Json& value, std::string_view origin) {
  if (!fields_.contains(std::string(name))) set(name, value, origin);
}

void Description::set(std::string_view name, const Json& value, std::string_view origin) {
  if (name.empty() || (value.is_string() && value.get_ref<const std::string&>().empty())) return;
  fields_[std::string(name)] = value;
  provenance_[std::string(name)] = std::string(origin);
}

void Description::add(const Measures& m) {
  set("format", std::string(images::to_string(m.format)), "file");
  set("width", m.size.width, "file");
  set("height", m.size.height, "file");
  set("aspect", rounded(double(m.size.width) / m.size.height), "file");
  set("orientation", m.orientation, "file");
  set("sha256", m.sha256, "file");
  set("phash", phash_text(m.phash), "pixels");
  set("sharpness", rounded(m.sharpness), "pixels");
  set("entropy", rounded(m.entropy), "pixels");
  set("mean_colour",
      {rounded(m.mean_colour[0]), rounded(m.mean_colour[1]), rounded(m.mean_colour[2])}, "pixels");
  set("alpha_coverage", rounded(m.alpha_coverage), "pixels");
}

std::string Description::text(std::string_view name) const {
  const auto found = fields_.find(std::string(name));
  return found != fields_.end() && found->is_string() ? found->get<std::string>() : "";
}

Json Description::to_json() const {
  Json json = fields_;
  json["provenance"] = provenance_;
  return json;
}

}  // namespace yard::prep
