#include <algorithm>

#include "models/pixart_transformer_2d.h"

namespace yard::models {
namespace {

constexpr int64_t kDepthMax = 256;  // against configs that would build for hours
constexpr int64_t kPatchMax = 64;

Activation read_activation(ConfigReader& reader) {
  const std::string name =
      reader.choice("activation_fn", "gelu-approximate", {"gelu-approximate", "gelu", "geglu"});
  if (name == "geglu") return Activation::kGeglu;
  return name == "gelu" ? Activation::kGelu : Activation::kGeluTanh;
}

void read_fixed_keys(ConfigReader& reader) {
  reader.fixed("dropout", 0);
  reader.fixed("norm_type", "ada_norm_single");
  reader.fixed("attention_type", "default");
  for (const char* key : {"norm_num_groups", "num_embeds_ada_norm"}) reader.ignored(key);
  // Files from before PixArt had a class of its own.
  reader.fixed("num_vector_embeds", nullptr);
  for (const char* key : {"only_cross_attention", "double_self_attention", "use_linear_projection"})
    reader.fixed(key, false);
}

void check(ConfigReader& reader, const PixArtConfig& c) {
  if (c.num_layers > kDepthMax)
    reader.fail("'num_layers' must be at most " + std::to_string(kDepthMax));
  if (c.patch_size > kPatchMax || c.patch_size > c.sample_size)
    reader.fail("'patch_size' must be at most 'sample_size' and " + std::to_string(kPatchMax));
  if (c.width() > ConfigReader::kSizeMax || c.width() % 4 != 0)
    reader.fail("'num_attention_heads' times 'attention_head_dim' must be a multiple of 4 and " +
                std::string("at most ") + std::to_string(ConfigReader::kSizeMax));
  if (c.use_additional_conditions && c.width() % 3 != 0)
    reader.fail("'num_attention_heads' times 'attention_head_dim' must be a multiple of 3 with " +
                std::string("'use_additional_conditions'"));
  if (c.caption_channels > 0 && c.cross_attention_dim != c.width())
    reader.fail("'cross_attention_dim' must be 'num_attention_heads' times 'attention_head_dim' " +
                std::string("with 'caption_channels': captions are projected to that"));
  if (c.interpolation_scale <= 0) reader.fail("'interpolation_scale' must be above 0");
}

}  // namespace

Result<PixArtConfig> PixArtConfig::parse(const Json& config, const std::string& what) {
  ConfigReader reader(config, what);
  PixArtConfig c;
  c.num_attention_heads = reader.size("num_attention_heads", 16);
  c.attention_head_dim = reader.size("attention_head_dim", 72);
  c.in_channels = reader.size("in_channels", 4);
  const bool as_in = config.is_object() && config.contains("out_channels");
  c.out_channels = reader.size_or_null("out_channels", as_in ? c.in_channels : 8);
  c.num_layers = reader.size("num_layers", 28);
  c.cross_attention_dim = reader.size("cross_attention_dim", 1152);
  c.attention_bias = reader.boolean("attention_bias", true);
  c.sample_size = reader.size("sample_size", 128);
  c.patch_size = reader.size("patch_size", 2);
  c.activation = read_activation(reader);
  c.norm_elementwise_affine = reader.boolean("norm_elementwise_affine", false);
  c.norm_eps = reader.number("norm_eps", 1e-6);
  const int64_t scale = std::max<int64_t>(c.sample_size / 64, 1);
  c.interpolation_scale =
      reader.number_or_null("interpolation_scale").value_or(static_cast<double>(scale));
  c.use_additional_conditions = c.sample_size == 128;
  if (reader.has("use_additional_conditions"))
    c.use_additional_conditions = reader.boolean("use_additional_conditions", false);
  reader.ignored("use_additional_conditions");
  c.caption_channels = reader.size_or_null("caption_channels", 0);
  c.upcast_attention = reader.boolean("upcast_attention", false);
  read_fixed_keys(reader);
  check(reader, c);
  YARD_TRY(reader.finish());
  return c;
}

}  // namespace yard::models
