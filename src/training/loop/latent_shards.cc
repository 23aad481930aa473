#include "loop/latent_shards.h"

#include <ATen/ops/cat.h>
#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <span>

#include <c10/core/GradMode.h>

#include "base/file.h"
#include "loop/latent_cache.h"
#include "loop/latent_manifest_internal.h"
#include "loop/npy.h"
#include "shards/shard_writer.h"
#include "storage/directory_store.h"
#include "tensor/guard_torch.h"
#include "tensor/host_tensor.h"

namespace yard::loop {
namespace {

constexpr int64_t kBlockSize = 16;  // samples encoded by one call

// A row of each defined tensor as a member's bytes.
class SampleMembers {
 public:
  void add(const char* extension, std::string bytes) {
    extensions_.push_back(extension);
    contents_.push_back(std::move(bytes));
  }
  std::vector<shards::NewMember> list() const {
    std::vector<shards::NewMember> out;
    for (size_t i = 0; i < contents_.size(); ++i)
      out.push_back({extensions_[i], std::as_bytes(std::span(contents_[i]))});
    return out;
  }

 private:
  std::vector<const char*> extensions_;
  std::vector<std::string> contents_;
};

struct EncodedBlock {
  at::Tensor latents;
  DenoiserCondition condition;
  std::vector<std::string> keys, captions;
};

// "shards/a.tar/0001" is 0001.
std::string key_in_shard(const std::string& key) {
  const size_t tar = key.rfind(".tar/");
  return tar == std::string::npos ? key : key.substr(tar + 5);
}

class LatentWriter {
 public:
  LatentWriter(const Networks& networks, const CaptionTokenizer* tokenizer, Samples& samples,
               const LatentOptions& options)
      : networks_(networks), tokenizer_(tokenizer), samples_(samples), options_(options) {}

  // The number of samples.
  Result<int64_t> write(storage::ObjectStore& store, int64_t index, const StopToken& stop) {
    const std::string& source = samples_.shards()[static_cast<size_t>(index)];
    YARD_ASSIGN(const auto loader, samples_.of_shard(source, options_.resolution));
    std::vector<PictureSide> sides;
    if (networks_.denoiser()->wants().sizes) {
      YARD_ASSIGN(sides, samples_.picture_sides(source));
    }
    YARD_ASSIGN(auto writer, shards::ShardWriter::create(
                                 store, {.prefix = latent_shard_prefix(index),
                                         .size_bytes_max = std::numeric_limits<int64_t>::max()}));
    const int64_t count = loader->sample_count();
    for (int64_t begin = 0; begin < count; begin += kBlockSize) {
      if (stop.stopped()) return Error{Code::kCancelled, "encoding samples was stopped"};
      YARD_ASSIGN(const EncodedBlock block,
                  encode(*loader, std::min(kBlockSize, count - begin), sides, stop));
      YARD_TRY(put(block, writer));
    }
    YARD_TRY(writer.finish());
    return count;
  }

 private:
  Result<EncodedBlock> encode(loader::Loader& loader, int64_t count,
                              const std::vector<PictureSide>& sides, const StopToken& stop) {
    EncodedBlock block;
    std::vector<at::Tensor> pictures;
    std::vector<float> sizes;
    for (int64_t i = 0; i < count; ++i) {
      YARD_ASSIGN(loader::Batch one, loader.next(stop));
      pictures.push_back(pictures_of(one));
      block.keys.push_back(key_in_shard(one.keys.front()));
      block.captions.push_back(one.captions.front());
      if (!sides.empty()) {
        const auto row =
            size_condition(sides[one.sample_ids.front()], options_.resolution, options_.resolution);
        sizes.insert(sizes.end(), row.begin(), row.end());
      }
      loader.recycle(std::move(one.images));
    }
    c10::NoGradGuard no_grad;
    block.latents = encode_latents(*networks_.autoencoder(), at::cat(pictures), 1, options_.bf16);
    if (options_.text)
      block.condition = networks_.encode_captions(tokenizer_->ids(block.captions), options_.bf16);
    if (!sizes.empty())
      block.condition.sizes = tensor::copy_of(std::span<const float>(sizes), {count, 6});
    return block;
  }

  Status put(const EncodedBlock& block, shards::ShardWriter& writer) const {
    for (size_t i = 0; i < block.keys.size(); ++i) {
      SampleMembers members;
      const auto add = [&](const char* extension, const at::Tensor& rows, bool exact) {
        if (!rows.defined()) return;
        const at::Tensor row = rows[static_cast<int64_t>(i)];
        members.add(
            extension,
            npy_bytes(row.to(options_.half && !exact ? at::kHalf : at::kFloat).contiguous()));
      };
      add(kLatentMember, block.latents, false);
      add(kContextMember, block.condition.context, false);
      add(kPooledMember, block.condition.pooled, false);
      add(kMaskMember, block.condition.mask, true);
      add(kSizesMember, block.condition.sizes, true);
      members.add(kCaptionMember, block.captions[i]);
      YARD_TRY(writer.add(block.keys[i], members.list()));
    }
    return Ok{};
  }

  const Networks& networks_;
  const CaptionTokenizer* tokenizer_;
  Samples& samples_;
  const LatentOptions& options_;
};

// The folder's manifest is this one from now on, or was before.
Status take_manifest(const LatentManifest& wanted, const std::string& folder) {
  const auto found = read_latent_manifest(folder);
  if (!found && found.error().code == Code::kNotFound)
    return write_file_atomic(folder + "/latents.json", wanted.to_json().dump(2) + "\n");
  if (!found) return found.error();
  YARD_TRY(compare_encoders(*found, wanted.hashes, wanted.text, folder));
  if (found->to_json() == wanted.to_json()) return Ok{};
  return Error{Code::kInvalidArgument,
               fmt::format("{}: holds latents made otherwise: {}, wanted are {}", folder,
                           found->to_json().dump(), wanted.to_json().dump())};
}

bool is_present(const std::string& folder, int64_t index) {
  const std::string path = folder + "/" + latent_shard(index);
  return std::filesystem::exists(path) && std::filesystem::exists(path + ".idx");
}

}  // namespace

Result<LatentReport> write_latents(const Networks& networks, const CaptionTokenizer* tokenizer,
                                   Samples& samples, const std::string& folder,
                                   const LatentOptions& options, const StopToken& stop,
                                   const std::function<void(const LatentReport&)>& shard_done) {
  if (networks.autoencoder() == nullptr || networks.denoiser() == nullptr)
    return Error{Code::kInvalidArgument, "latents are made for an autoencoder and a denoiser"};
  if (options.text && (tokenizer == nullptr || networks.text_encoders().empty()))
    return Error{Code::kInvalidArgument, "there is no text encoder for the captions"};
  if (options.resolution < 1 || options.resolution % networks.factors().autoencoder != 0)
    return Error{Code::kInvalidArgument,
                 fmt::format("a resolution of {} is not a multiple of the autoencoder's {}",
                             options.resolution, networks.factors().autoencoder)};
  YARD_TRY(make_directories(folder));
  const auto shard_count = static_cast<int64_t>(samples.shards().size());
  YARD_TRY(
      take_manifest({.resolution = options.resolution,
                     .shard_count = shard_count,
                     .text = options.text,
                     .half = options.half,
                     .hashes = hashes_of(networks, options.text ? HashText::kYes : HashText::kNo)},
                    folder));
  YARD_ASSIGN(const auto store, storage::DirectoryStore::open(folder));
  LatentReport report;
  for (int64_t i = options.place.rank; i < shard_count; i += options.place.size) {
    if (is_present(folder, i)) {
      ++report.present_count;
      continue;
    }
    YARD_ASSIGN(const int64_t count, tensor::guard_torch("encoding samples", [&] {
                  return LatentWriter(networks, tokenizer, samples, options).write(*store, i, stop);
                }));
    ++report.written_count;
    report.sample_count += count;
    if (shard_done) shard_done(report);
  }
  return report;
}

}  // namespace yard::loop
