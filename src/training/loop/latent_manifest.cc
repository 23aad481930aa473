#include <fmt/format.h>

#include "base/file.h"
#include "loop/latent_manifest_internal.h"

namespace yard::loop {

Json LatentManifest::to_json() const {
  return {{"version", 1},
          {"resolution", resolution},
          {"shards", shard_count},
          {"text", text},
          {"values", half ? "f16" : "f32"},
          {"autoencoder", hashes.autoencoder},
          {"text_encoders", text ? hashes.text : std::vector<std::string>()}};
}

Result<LatentManifest> read_latent_manifest(const std::string& folder) {
  const std::string path = folder + "/latents.json";
  YARD_ASSIGN(const std::string text, read_file(path, uint64_t{1} << 20));
  YARD_ASSIGN(const Json json, parse_json(text, path));
  LatentManifest m;
  YARD_ASSIGN(const auto version, json_field<int64_t>(json, "version", path));
  if (version != 1)
    return Error{Code::kInvalidArgument, fmt::format("{}: of version {}, not 1", path, version)};
  YARD_ASSIGN(m.resolution, json_field<int64_t>(json, "resolution", path));
  YARD_ASSIGN(m.shard_count, json_field<int64_t>(json, "shards", path));
  YARD_ASSIGN(m.text, json_field<bool>(json, "text", path));
  YARD_ASSIGN(const auto values, json_field<std::string>(json, "values", path));
  m.half = values == "f16";
  YARD_ASSIGN(m.hashes.autoencoder, json_field<std::string>(json, "autoencoder", path));
  YARD_ASSIGN(m.hashes.text, json_field<std::vector<std::string>>(json, "text_encoders", path));
  return m;
}

Status compare_encoders(const LatentManifest& manifest, const EncoderHashes& now, bool wants_text,
                        const std::string& folder) {
  const auto other = [&](const std::string& part, const std::string& theirs,
                         const std::string& ours) {
    return Error{Code::kInvalidArgument, fmt::format("{}: made by the {} {}, this run's is {}",
                                                     folder, part, theirs, ours)};
  };
  if (manifest.hashes.autoencoder != now.autoencoder)
    return other("autoencoder", manifest.hashes.autoencoder, now.autoencoder);
  if (!wants_text || !manifest.text) return Ok{};
  if (manifest.hashes.text.size() != now.text.size())
    return Error{Code::kInvalidArgument,
                 fmt::format("{}: made by {} text encoders, this run has {}", folder,
                             manifest.hashes.text.size(), now.text.size())};
  for (size_t i = 0; i < now.text.size(); ++i)
    if (manifest.hashes.text[i] != now.text[i])
      return other(text_encoder_name(i), manifest.hashes.text[i], now.text[i]);
  return Ok{};
}

std::string latent_shard_prefix(int64_t index) {
  return fmt::format("latents-{:06}", index);
}

std::string latent_shard(int64_t index) {
  return latent_shard_prefix(index) + "-000000.tar";
}

}  // namespace yard::loop
