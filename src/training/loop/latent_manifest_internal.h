// latents.json: what a folder of latents is.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "loop/weights_hash.h"

namespace yard::loop {

inline constexpr const char* kLatentMember = "latent.npy";
inline constexpr const char* kContextMember = "context.npy";
inline constexpr const char* kPooledMember = "pooled.npy";
inline constexpr const char* kMaskMember = "mask.npy";
inline constexpr const char* kSizesMember = "sizes.npy";
inline constexpr const char* kCaptionMember = "txt";

struct LatentManifest {
  int64_t resolution = 0;
  int64_t shard_count = 0;
  bool text = false;
  bool half = false;
  EncoderHashes hashes;

  Json to_json() const;
};

// kNotFound: `folder` has none.
Result<LatentManifest> read_latent_manifest(const std::string& folder);
// kInvalidArgument names what differs, with both values. `wants_text`: text encoders count too.
Status compare_encoders(const LatentManifest& manifest, const EncoderHashes& now, bool wants_text,
                        const std::string& folder);
// The shard of latents for the `index`-th shard of pictures, and what ShardWriter calls its prefix.
std::string latent_shard(int64_t index);
std::string latent_shard_prefix(int64_t index);

}  // namespace yard::loop
