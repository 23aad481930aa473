#include "models/unet_config.h"

#include <algorithm>
#include <span>

#include "base/nearest_name.h"
#include "models/unet_blocks.h"

namespace yard::models {
namespace {

// Beyond any known model; against configs that would build for hours.
constexpr size_t kBlockCountMax = 8;
constexpr int64_t kDepthMax = 64;
constexpr int64_t kKernelMax = 63;

// The keys whose other values we do not have, at the value that diffusers writes by default.
void read_fixed_keys(ConfigReader& reader) {
  for (const char* key : {"time_embedding_act_fn", "timestep_post_act",
                          "mid_block_only_cross_attention", "cross_attention_norm"}) {
    reader.fixed(key, nullptr);
  }
  for (const char* key : {"dual_cross_attention", "resnet_skip_time_act"}) reader.fixed(key, false);
  reader.choice("act_fn", "silu", {"silu", "swish"});
  reader.fixed("dropout", 0);
  reader.fixed("resnet_out_scale_factor", 1);
  reader.fixed("time_embedding_type", "positional");
  reader.fixed("attention_type", "default");
  reader.ignored("addition_embed_type_num_heads");
}

std::vector<std::string_view> names_of(std::span<const UNetBlockType> types) {
  std::vector<std::string_view> names;
  for (const UNetBlockType& type : types) names.push_back(type.name);
  return names;
}

void check_block_types(ConfigReader& reader, std::string_view key,
                       const std::vector<std::string>& types, std::span<const UNetBlockType> known,
                       size_t count) {
  const std::string name = "'" + std::string(key) + "'";
  if (types.size() != count) {
    reader.fail(name + " must have as many entries as 'block_out_channels'");
  }
  for (const std::string& type : types) {
    if (find_block_type(known, type) == nullptr) {
      reader.fail(name + ": '" + type + "' is not supported" + suggestion(type, names_of(known)));
    }
  }
}

void read_block_types(ConfigReader& reader, size_t count, UNetConfig& c) {
  const std::string cross_down = "CrossAttnDownBlock2D", cross_up = "CrossAttnUpBlock2D";
  c.down_block_types =
      reader.texts("down_block_types", {cross_down, cross_down, cross_down, "DownBlock2D"});
  c.up_block_types = reader.texts("up_block_types", {"UpBlock2D", cross_up, cross_up, cross_up});
  c.mid_block_type = reader.text_or_null("mid_block_type", "UNetMidBlock2DCrossAttn");
  check_block_types(reader, "down_block_types", c.down_block_types, down_block_types(), count);
  check_block_types(reader, "up_block_types", c.up_block_types, up_block_types(), count);
  if (!c.mid_block_type.empty())
    check_block_types(reader, "mid_block_type", std::vector(count, c.mid_block_type),
                      mid_block_types(), count);
}

bool is_depth(const Json& value) {
  return value.is_number_integer() && value >= 0 && value <= kDepthMax;
}

// One block's entry: a number meant for each of its layers, or one for each.
std::vector<int64_t> depths_of(ConfigReader& reader, std::string_view key, const Json& entry,
                               int64_t layers) {
  if (is_depth(entry))
    return std::vector<int64_t>(static_cast<size_t>(layers), entry.get<int64_t>());
  if (entry.is_array() && static_cast<int64_t>(entry.size()) == layers &&
      std::ranges::all_of(entry, is_depth))
    return entry.get<std::vector<int64_t>>();
  reader.fail("'" + std::string(key) + "' must be whole numbers from 0 to " +
              std::to_string(kDepthMax) + ", one for all blocks, or for each block one or a list " +
              "with one for each of its layers (here " + std::to_string(layers) + ")");
  return std::vector<int64_t>(static_cast<size_t>(layers), 1);
}

void read_depths(ConfigReader& reader, UNetConfig& c) {
  const size_t count = c.block_out_channels.size();
  const std::string key = "transformer_layers_per_block", back = "reverse_" + key;
  Json down = reader.raw(key), up = reader.raw(back);
  if (down.is_null()) down = 1;
  if (!down.is_array()) down = std::vector<Json>(count, down);
  if (down.size() != count || (!up.is_null() && (!up.is_array() || up.size() != count)))
    return reader.fail("'" + key + "' and '" + back + "' must have as many entries as blocks");
  // A block's layers differ in number on the way up: a list says nothing there.
  if (up.is_null() && std::ranges::any_of(down, [](const Json& e) { return e.is_array(); }))
    return reader.fail("'" + back + "' must be given with lists in '" + key + "'");
  if (up.is_null()) up = std::vector<Json>(down.rbegin(), down.rend());
  for (size_t i = 0; i < count; ++i) {
    const int64_t layers = c.layers_per_block[i], layers_up = c.layers_per_block[count - 1 - i] + 1;
    c.down_depths.push_back(depths_of(reader, key, down[i], layers));
    c.up_depths.push_back(depths_of(reader, back, up[i], layers_up));
  }
  c.mid_depth = c.down_depths.back().front();
}

struct Attends {
  Attends(const UNetConfig& c, size_t block)
      : down(find_block_type(down_block_types(), c.down_block_types[block])->attends),
        mid(block + 1 == c.block_out_channels.size() && !c.mid_block_type.empty() &&
            find_block_type(mid_block_types(), c.mid_block_type)->attends),
        up(find_block_type(up_block_types(), c.up_block_types[c.up_block_types.size() - 1 - block])
               ->attends) {}
  bool any() const { return down || mid || up; }
  const bool down, mid, up;
};

// What does not depend on one key alone.
void check_blocks(ConfigReader& reader, const UNetConfig& c) {
  for (size_t i = 0; i < c.block_out_channels.size(); ++i) {
    const int64_t channels = c.block_out_channels[i];
    if (channels % c.norm.groups != 0) {
      reader.fail("'block_out_channels': " + std::to_string(channels) +
                  " is not a multiple of 'norm_num_groups', " + std::to_string(c.norm.groups));
    }
    if (Attends(c, i).any() && channels % c.head_counts[i] != 0) {
      reader.fail("'attention_head_dim': " + std::to_string(channels) +
                  " channels do not divide into " + std::to_string(c.head_counts[i]) + " heads");
    }
  }
  if (c.block_out_channels[0] % 2 != 0) {
    reader.fail(
        "'block_out_channels': the first must be even, for the timestep's sines and cosines");
  }
}

// One context is read by all: entries of blocks that do not attend say nothing.
void read_context_widths(ConfigReader& reader, UNetConfig& c) {
  const auto widths = reader.sizes("cross_attention_dim", c.block_out_channels.size(), 1280);
  c.cross_attention_dim = widths[0];
  bool found = false;
  for (size_t i = 0; i < widths.size() && !reader.failed(); ++i) {
    if (!Attends(c, i).any()) continue;
    if (found && widths[i] != c.cross_attention_dim)
      reader.fail("'cross_attention_dim' must be equal for all blocks that attend");
    c.cross_attention_dim = widths[i];
    found = true;
  }
}

void read_blocks(ConfigReader& reader, size_t given_block_count, UNetConfig& c) {
  c.block_out_channels = {320, 640, 1280, 1280};
  if (reader.has("block_out_channels")) {
    c.block_out_channels = reader.sizes("block_out_channels", given_block_count, 320);
  }
  const size_t count = c.block_out_channels.size();
  if (count < 1 || count > kBlockCountMax) {
    return reader.fail("'block_out_channels' must name 1 to " + std::to_string(kBlockCountMax) +
                       " blocks");
  }
  read_block_types(reader, count, c);
  c.layers_per_block = reader.sizes("layers_per_block", count, 2);
  if (std::ranges::max(c.layers_per_block) > kDepthMax)
    return reader.fail("'layers_per_block' must be at most " + std::to_string(kDepthMax));
  // diffusers calls the number of heads "attention_head_dim" unless num_attention_heads is given.
  c.head_counts = reader.sizes("attention_head_dim", count, 8);
  if (reader.has("num_attention_heads")) {
    c.head_counts = reader.sizes("num_attention_heads", count, 8);
  }
  c.only_cross_attention = reader.booleans("only_cross_attention", count, false);
  read_depths(reader, c);
  read_context_widths(reader, c);
}

void read_class_embedding(ConfigReader& reader, UNetConfig& c) {
  const std::string key = "class_embed_type";
  c.num_class_embeds = reader.size_or_null("num_class_embeds", 0);
  c.class_embeddings_concat = reader.boolean("class_embeddings_concat", false);
  if (!reader.has(key)) {
    reader.ignored(key);
    c.class_embedding = c.num_class_embeds > 0 ? ClassEmbedding::kLookup : ClassEmbedding::kNone;
  } else {
    const std::string type =
        reader.choice(key, "", {"timestep", "identity", "projection", "simple_projection"});
    c.class_embedding = type == "timestep"     ? ClassEmbedding::kTimestep
                        : type == "identity"   ? ClassEmbedding::kIdentity
                        : type == "projection" ? ClassEmbedding::kProjection
                                               : ClassEmbedding::kSimpleProjection;
  }
  if (c.class_embeddings_concat && c.class_embedding == ClassEmbedding::kNone)
    reader.fail("'class_embeddings_concat' needs a class embedding");
}

void read_embeddings(ConfigReader& reader, UNetConfig& c) {
  c.time_embedding_dim =
      reader.size_or_null("time_embedding_dim", 4 * c.block_out_channels.front());
  c.time_cond_proj_dim = reader.size_or_null("time_cond_proj_dim", 0);
  read_class_embedding(reader, c);
  c.projection_class_embeddings_input_dim =
      reader.size_or_null("projection_class_embeddings_input_dim", 0);
  const int64_t addition_width = reader.size_or_null("addition_time_embed_dim", 0);
  const bool adds = reader.has("addition_embed_type");
  if (adds)
    reader.choice("addition_embed_type", "", {"text_time"});
  else
    reader.ignored("addition_embed_type");
  if (adds && (addition_width < 2 || addition_width % 2 != 0))
    reader.fail("'addition_time_embed_dim' must be even with 'addition_embed_type'");
  if (adds) c.addition_time_embed_dim = addition_width;
  const bool projects = adds || c.class_embedding == ClassEmbedding::kProjection ||
                        c.class_embedding == ClassEmbedding::kSimpleProjection;
  if (projects && c.projection_class_embeddings_input_dim == 0)
    reader.fail("'projection_class_embeddings_input_dim' is missing, see 'class_embed_type' and " +
                std::string("'addition_embed_type'"));
}

void read_context_projection(ConfigReader& reader, UNetConfig& c) {
  c.encoder_hid_dim = reader.size_or_null("encoder_hid_dim", 0);
  if (reader.has("encoder_hid_dim_type")) {
    reader.choice("encoder_hid_dim_type", "", {"text_proj"});
    if (c.encoder_hid_dim == 0)
      reader.fail("'encoder_hid_dim' is missing, see 'encoder_hid_dim_type'");
  }
  reader.ignored("encoder_hid_dim_type");
}

int64_t read_kernel(ConfigReader& reader, std::string_view key) {
  const int64_t kernel = reader.size(key, 3);
  if (kernel % 2 == 0 || kernel > kKernelMax)
    reader.fail("'" + std::string(key) + "' must be odd and at most " + std::to_string(kKernelMax));
  return kernel;
}

}  // namespace

Result<UNetConfig> UNetConfig::parse(const Json& config, const std::string& what) {
  ConfigReader reader(config, what);
  UNetConfig c;
  c.sample_size = reader.side_or_null("sample_size", 64);
  c.in_channels = reader.size("in_channels", 4);
  c.out_channels = reader.size("out_channels", 4);
  c.center_input_sample = reader.boolean("center_input_sample", false);
  c.conv_in_kernel = read_kernel(reader, "conv_in_kernel");
  c.conv_out_kernel = read_kernel(reader, "conv_out_kernel");
  c.flip_sin_to_cos = reader.boolean("flip_sin_to_cos", true);
  c.freq_shift = reader.number("freq_shift", 0);
  c.downsample_padding = reader.integer("downsample_padding", 1);
  c.mid_block_scale_factor = reader.number("mid_block_scale_factor", 1);
  c.norm = {reader.size("norm_num_groups", 32), reader.number("norm_eps", 1e-5)};
  c.use_linear_projection = reader.boolean("use_linear_projection", false);
  c.upcast_attention = reader.boolean("upcast_attention", false);
  c.time_scale_shift = reader.choice("resnet_time_scale_shift", "default",
                                     {"default", "scale_shift"}) == "scale_shift";
  read_fixed_keys(reader);
  const Json channels = config.is_object() ? config.value("block_out_channels", Json()) : Json();
  read_blocks(reader, channels.is_array() ? channels.size() : 1, c);
  reader.ignored("block_out_channels");
  reader.ignored("num_attention_heads");
  if (c.downsample_padding != 0 && c.downsample_padding != 1)
    reader.fail("'downsample_padding' must be 0 or 1");
  if (c.mid_block_scale_factor == 0) reader.fail("'mid_block_scale_factor' must not be 0");
  if (!reader.failed()) check_blocks(reader, c);
  if (!reader.failed()) read_embeddings(reader, c);
  if (!reader.failed()) read_context_projection(reader, c);
  YARD_TRY(reader.finish());
  return c;
}

}  // namespace yard::models
