// What one thread can do with JPEG files, per CPU-second:
//   decode_limit PICTURES_DIR [SIZE [ROUNDS]]
// bare libjpeg-turbo calls into one reused buffer, at full scale and at the scale that SIZE allows;
// and our PictureReader's decode + resize + square cut to SIZE px, normalised floats, both ways.
// Files are in memory. Rounds are taken in turn, the best of each counts.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <string>
#include <vector>

#include "bare_decoder.h"
#include "base/file.h"
#include "images/picture_reader.h"

namespace {

using namespace yard;

double cpu_seconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
}

Status render(images::PictureReader& reader, const std::string& encoded, int size, bool dct_scaling,
              std::vector<float>& pixels) {
  YARD_ASSIGN(const images::PictureInfo info, reader.open(std::as_bytes(std::span(encoded))));
  return reader.render(images::covering_view(info.size, {size, size}), {.dct_scaling = dct_scaling},
                       std::as_writable_bytes(std::span(pixels)));
}

Result<std::vector<std::string>> read_all(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jpg") continue;
    YARD_ASSIGN(files.emplace_back(), read_file(entry.path()));
  }
  if (files.empty()) return Error{Code::kNotFound, dir + ": no .jpg files"};
  return files;
}

struct Rates {
  double bare = 0;
  double ours = 0;
};

Result<Rates> measure(const std::vector<std::string>& files, int size, bool dct_scaling,
                      int rounds) {
  bench::BareDecoder bare;
  images::PictureReader reader;
  std::vector<float> pixels(size_t(size) * size_t(size) * 3);
  Rates best;
  for (int round = 0; round < rounds; ++round) {
    double begin = cpu_seconds();
    for (const std::string& file : files) bare.decode(file, dct_scaling ? unsigned(size) : ~0U);
    best.bare = std::max(best.bare, double(files.size()) / (cpu_seconds() - begin));
    begin = cpu_seconds();
    for (const std::string& file : files) YARD_TRY(render(reader, file, size, dct_scaling, pixels));
    best.ours = std::max(best.ours, double(files.size()) / (cpu_seconds() - begin));
  }
  return best;
}

Status run(const std::string& dir, int size, int rounds) {
  YARD_ASSIGN(const std::vector<std::string> files, read_all(dir));
  for (const bool dct_scaling : {false, true}) {
    YARD_ASSIGN(const Rates rates, measure(files, size, dct_scaling, rounds));
    fmt::print("{}: bare {:.1f} ours {:.1f} share {:.3f}\n", dct_scaling ? "scaled" : "full",
               rates.bare, rates.ours, rates.ours / rates.bare);
  }
  return Ok{};
}

}  // namespace

int main(int argc, char** argv) {
  const auto number = [&](int i, int fallback) { return argc > i ? std::atoi(argv[i]) : fallback; };
  if (argc < 2) {
    fmt::print(stderr, "usage: decode_limit PICTURES_DIR [SIZE [ROUNDS]]\n");
    return 2;
  }
  const Status done = run(argv[1], number(2, 256), number(3, 5));
  if (done) return 0;
  fmt::print(stderr, "decode_limit: {}\n", done.error().message);
  return 1;
}
