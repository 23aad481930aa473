// How fast bare libjpeg-turbo calls decode the JPEGs of a folder on THREADS threads, by the clock:
//   decode_rate PICTURES_DIR SIZE THREADS SECONDS
// prints "full R" and "scaled R", pictures per second; scaled as far as SIZE allows. Files are in
// memory.
#include <fmt/format.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "../pictures/bare_decoder.h"
#include "base/file.h"

namespace {

using namespace yard;

constexpr size_t kFilesMax = 2000;

Result<std::vector<std::string>> read_all(const std::string& dir) {
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(dir)) {
    if (entry.path().extension() != ".jpg" || files.size() == kFilesMax) continue;
    YARD_ASSIGN(files.emplace_back(), read_file(entry.path()));
  }
  if (files.empty()) return Error{Code::kNotFound, dir + ": no .jpg files"};
  return files;
}

double rate(const std::vector<std::string>& files, unsigned shorter_side_min, int thread_count,
            double seconds) {
  std::atomic<size_t> count = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  std::vector<std::thread> threads;
  for (int i = 0; i < thread_count; ++i)
    threads.emplace_back([&] {
      bench::BareDecoder decoder;
      while (elapsed() < seconds) decoder.decode(files[count++ % files.size()], shorter_side_min);
    });
  for (std::thread& thread : threads) thread.join();
  return double(count) / elapsed();
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: decode_rate PICTURES_DIR SIZE THREADS SECONDS\n");
    return 2;
  }
  const auto files = read_all(argv[1]);
  if (!files) {
    fmt::print(stderr, "decode_rate: {}\n", files.error().message);
    return 1;
  }
  const auto size = unsigned(std::atoi(argv[2]));
  const int threads = std::atoi(argv[3]);
  const double seconds = std::atof(argv[4]);
  fmt::print("full {:.1f}\nscaled {:.1f}\n", rate(*files, ~0U, threads, seconds),
             rate(*files, size, threads, seconds));
}
