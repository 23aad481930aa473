// What is known about one picture: measured from its pixels, read out of the file and its sidecars.
//
// Pure; any thread. docs/prep.md lists every field.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "images/picture_reader.h"
#include "prep/text_fields.h"

namespace yard::prep {

// Measured. `picture` are its upright pixels over white, of a JPEG perhaps at 1/2, 1/4 or 1/8.
struct Measures {
  images::Format format = images::Format::kPng;
  images::Size size;
  int orientation = 1;  // EXIF's, already applied to `size`
  std::string sha256;   // of the file, hexadecimal
  uint64_t phash = 0;
  double sharpness = 0;  // variance of the Laplacian of the grey picture, shorter side 192 to 383
  double entropy = 0;    // of the grey levels, bits
  std::array<double, 3> mean_colour{};  // 0 to 255
  double alpha_coverage = 1;            // mean opacity, 1 where there is no alpha channel
};

struct MeasureOptions {
  int64_t pixel_count_max = int64_t{1} << 26;
  // Of Measured::picture, for who wants to encode it anew; 0: as small as the measures allow.
  int shorter_side_min = 0;
};

struct Measured {
  Measures measures;
  images::Picture picture;
};
// Decodes the whole file, so that damage anywhere is found. kCorrupt: damaged or truncated;
// kInvalidArgument: no JPEG, PNG or WebP, or empty; kExhausted: more pixels than allowed, told by
// the header alone.
Result<Measured> measure(std::span<const std::byte> encoded, const MeasureOptions& options);

// What lies beside a picture: "7.txt", "7.json", "7.xmp".
struct Sidecar {
  std::string name;  // its key
  std::string content;
};
// Its texts, and of a JSON object every member that holds a string, number or boolean, under its
// own name; "text" and "description" are captions, "license" is licence, "author" creator.
// kInvalidArgument, naming it: a .json that is no JSON object.
struct SidecarFields {
  std::vector<TextField> texts;
  Json values = Json::object();  // numbers and booleans
  bool is_repaired = false;      // see CleanText
};
Result<SidecarFields> read_sidecar(const Sidecar& sidecar);

// All of it as one flat JSON object, as it is kept in a sample's json member, with the origin of
// every field in "provenance".
class Description {
 public:
  // The first value of a name counts; "" is none.
  void add(std::string_view name, const Json& value, std::string_view origin);
  // Replaces what is there.
  void set(std::string_view name, const Json& value, std::string_view origin);
  void add(const TextField& field) { add(field.name, field.value, field.origin); }
  void add(const Measures& measures);

  std::string text(std::string_view name) const;  // "" where there is none
  const Json& fields() const { return fields_; }
  Json to_json() const;

 private:
  Json fields_ = Json::object();
  Json provenance_ = Json::object();
};

}  // namespace yard::prep
