#include "loop/npy.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cstring>
#include <optional>
#include <vector>

#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr std::string_view kMagic("\x93NUMPY\x01\x00", 8);
constexpr size_t kPrefixBytes = 10;  // and two for the header's length
constexpr size_t kAlignment = 64;
constexpr size_t kDimensionsMax = 8;
constexpr int64_t kSideMax = int64_t{1} << 32;

std::string header_of(const at::Tensor& tensor) {
  const std::string_view dtype = tensor.scalar_type() == at::kHalf ? "<f2" : "<f4";
  std::string header =
      fmt::format("{{'descr': '{}', 'fortran_order': False, 'shape': ({}{}), }}", dtype,
                  fmt::join(tensor.sizes().vec(), ", "), tensor.dim() == 1 ? "," : "");
  const size_t unpadded = kPrefixBytes + header.size() + 1;
  header.append((kAlignment - unpadded % kAlignment) % kAlignment, ' ');
  return header + "\n";
}

// What stands behind `key` in the header's dictionary.
std::string_view after(std::string_view header, std::string_view key) {
  const size_t at = header.find(key);
  return at == std::string_view::npos ? std::string_view() : header.substr(at + key.size());
}

std::optional<std::vector<int64_t>> read_shape(std::string_view text) {
  if (!text.starts_with('(')) return std::nullopt;
  text.remove_prefix(1);
  std::vector<int64_t> shape;
  while (!text.starts_with(')')) {
    int64_t side = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), side);
    if (error != std::errc() || side < 0 || side > kSideMax || shape.size() == kDimensionsMax)
      return std::nullopt;
    shape.push_back(side);
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    while (text.starts_with(',') || text.starts_with(' ')) text.remove_prefix(1);
    if (text.empty()) return std::nullopt;
  }
  return shape;
}

// Bytes of an array of that shape; nullopt: more than there can be.
std::optional<uint64_t> bytes_of_shape(const std::vector<int64_t>& shape, uint64_t value_bytes,
                                       uint64_t bytes_max) {
  uint64_t bytes = value_bytes;
  for (const int64_t side : shape) {
    if (side > 0 && bytes > bytes_max / static_cast<uint64_t>(side)) return std::nullopt;
    bytes *= static_cast<uint64_t>(side);
  }
  return bytes;
}

}  // namespace

std::string npy_bytes(const at::Tensor& tensor) {
  const std::string header = header_of(tensor);
  std::string out(kMagic);
  out.push_back(static_cast<char>(header.size() & 0xff));
  out.push_back(static_cast<char>(header.size() >> 8));
  out += header;
  const std::span<const std::byte> values = tensor::bytes_of(tensor);
  out.append(reinterpret_cast<const char*>(values.data()), values.size());
  return out;
}

Result<at::Tensor> tensor_of_npy(std::span<const std::byte> bytes, std::string_view what) {
  const auto corrupt = [&](std::string_view why) {
    return Error{Code::kCorrupt, fmt::format("{}: {}", what, why)};
  };
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (!text.starts_with(kMagic) || text.size() < kPrefixBytes)
    return corrupt("not a NumPy array of format 1.0");
  const size_t header_bytes =
      static_cast<unsigned char>(text[8]) + (size_t{static_cast<unsigned char>(text[9])} << 8);
  if (text.size() - kPrefixBytes < header_bytes) return corrupt("its header is cut off");
  const std::string_view header = text.substr(kPrefixBytes, header_bytes);
  const std::string_view dtype = after(header, "'descr': ");
  const bool half = dtype.starts_with("'<f2'");
  if (!half && !dtype.starts_with("'<f4'")) return corrupt("its values are neither f32 nor f16");
  if (!after(header, "'fortran_order': ").starts_with("False"))
    return corrupt("its columns come first");
  const auto shape = read_shape(after(header, "'shape': "));
  if (!shape) return corrupt("its shape cannot be read");
  const std::span<const std::byte> values = bytes.subspan(kPrefixBytes + header_bytes);
  const auto wanted = bytes_of_shape(*shape, half ? 2 : 4, values.size());
  if (!wanted || *wanted != values.size()) return corrupt("its bytes are not those of its shape");
  at::Tensor out = at::empty(*shape, half ? at::kHalf : at::kFloat);
  if (!values.empty()) std::memcpy(tensor::bytes_of(out).data(), values.data(), values.size());
  return out.to(at::kFloat);
}

}  // namespace yard::loop
