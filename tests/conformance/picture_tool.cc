// PictureReader for test_photos.py: a JSON request a line, an answer a line. The pixels go into the
// request's file "out", as they lie in memory.
#include <iostream>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "images/picture_reader.h"

namespace yard::images {
namespace {

View view_of(const Json& in, Size picture) {
  const Size output = {in.at("width"), in.at("height")};
  const std::string kind = in.value("view", "covering");
  const uint64_t seed = in.value("seed", uint64_t{0});
  if (kind == "stretched") return stretched_view(picture, output);
  if (kind == "random") return random_view(picture, output, 0.5, seed);
  if (kind == "random_resized") return random_resized_view(picture, output, {}, seed);
  YARD_CHECK(kind == "covering");
  return covering_view(picture, output, in.value("x", 0.5), in.value("y", 0.5),
                       in.value("flip", false));
}

RenderOptions options_of(const Json& in) {
  RenderOptions options;
  if (in.value("filter", "bilinear") == "bicubic") options.filter = Filter::kBicubic;
  if (in.value("layout", "planar") == "interleaved") options.layout = Layout::kInterleaved;
  const std::string type = in.value("type", "uint8");
  options.type = type == "float32"    ? PixelType::kFloat32
                 : type == "bfloat16" ? PixelType::kBfloat16
                                      : PixelType::kUint8;
  options.mean = in.value("mean", options.mean);
  options.std = in.value("std", options.std);
  options.dct_scaling = in.value("dct_scaling", false);
  return options;
}

Json json_of(const View& view) {
  return {{"part", {view.part_x, view.part_y, view.part_width, view.part_height}},
          {"scaled", {view.scaled_width, view.scaled_height}},
          {"window", {view.left, view.top, view.width, view.height}},
          {"flip", view.flip}};
}

Result<Json> render(PictureReader& reader, const Json& in) {
  YARD_ASSIGN(const std::string encoded, read_file(in.at("path")));
  YARD_ASSIGN(const PictureInfo info, reader.open(std::as_bytes(std::span(encoded))));
  const View view = view_of(in, info.size);
  const RenderOptions options = options_of(in);
  std::vector<std::byte> pixels(size_t(view.width) * size_t(view.height) * 3 *
                                size_bytes(options.type));
  YARD_TRY(reader.render(view, options, pixels));
  YARD_TRY(write_file_atomic(in.at("out"),
                             {reinterpret_cast<const char*>(pixels.data()), pixels.size()}));
  return Json{{"format", to_string(info.format)},
              {"size", {info.size.width, info.size.height}},
              {"orientation", info.orientation},
              {"view", json_of(view)}};
}

}  // namespace
}  // namespace yard::images

int main() {
  yard::images::PictureReader reader;
  for (std::string line; std::getline(std::cin, line);) {
    const auto in = yard::parse_json(line, "request");
    YARD_CHECK(in.has_value());
    const auto answer = yard::images::render(reader, *in);
    if (answer)
      std::cout << answer->dump() << "\n";
    else
      std::cout << yard::Json{{"code", yard::to_string(answer.error().code)},
                              {"message", answer.error().message}}
                       .dump()
                << "\n";
  }
  return 0;
}
