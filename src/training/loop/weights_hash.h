// Which weights a model has, as a name that others can compare.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "loop/networks.h"

namespace yard::loop {

// SHA-256, in hex, over names, shapes and values of the parameters, by name.
std::string weights_hash(const std::vector<models::NamedTensor>& parameters);

// Of the parts that samples go through before the denoiser sees them.
struct EncoderHashes {
  std::string autoencoder;
  std::vector<std::string> text;  // of each text encoder
};
// Without `text` the text encoders are left out: ones that are trained change, and may be shared
// out.
enum class HashText : uint8_t { kNo, kYes };
EncoderHashes hashes_of(const Networks& networks, HashText text);

}  // namespace yard::loop
