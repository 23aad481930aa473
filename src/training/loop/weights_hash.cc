#include "loop/weights_hash.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>

#include "net/checksums.h"
#include "tensor/host_tensor.h"

namespace yard::loop {

std::string weights_hash(const std::vector<models::NamedTensor>& parameters) {
  std::vector<models::NamedTensor> sorted = parameters;
  std::ranges::sort(sorted, {}, &models::NamedTensor::name);
  Checksum checksum(ChecksumAlgorithm::kSha256);
  for (const models::NamedTensor& p : sorted) {
    const std::string head =
        fmt::format("{} [{}]\n", p.name, fmt::join(p.tensor.sizes().vec(), ","));
    checksum.update(std::as_bytes(std::span(head)));
    checksum.update(tensor::bytes_of(p.tensor.detach().to(at::kCPU, at::kFloat).contiguous()));
  }
  return checksum.hex();
}

EncoderHashes hashes_of(const Networks& networks, HashText text) {
  EncoderHashes hashes;
  if (networks.autoencoder() != nullptr)
    hashes.autoencoder = weights_hash(networks.autoencoder()->parameters());
  if (text == HashText::kNo) return hashes;
  for (const TextEncoder& encoder : networks.text_encoders())
    hashes.text.push_back(weights_hash(encoder.model->parameters()));
  return hashes;
}

}  // namespace yard::loop
