"""Our models beside diffusers' and transformers' own: same folder, same input, same output.

The reference builds a small model with random weights and saves it. Ours loads the folder, runs it
forward and backward and saves it again (models_tool, all models in one process); the reference
opens what ours saved. Configurations are partly chosen to show each feature, partly drawn.
"""

import dataclasses
import json
import os
import pathlib
import random
import shutil
import subprocess

import pytest
import torch
from diffusers import AutoencoderKL, PixArtTransformer2DModel, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPConfig, CLIPModel, CLIPTextConfig, CLIPTextModel, CLIPTextModelWithProjection

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
FORWARD_ERROR_MAX = 1e-5
GRADIENT_ERROR_MAX = 1e-4
DRAWN = 8  # configurations of each class, beside the chosen ones


def forward(folder, inputs, tmp_path):
    save_file({k: v.contiguous() for k, v in inputs.items()}, tmp_path / "in.safetensors")
    run = subprocess.run(
        [BIN / "yard-train", "--forward", folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors"],
        capture_output=True, text=True, timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return load_file(tmp_path / "out.safetensors")


def assert_close(ours, reference, error_max=FORWARD_ERROR_MAX, scale=0.0):
    assert ours.shape == reference.shape
    error = (ours - reference).abs().max() / max(reference.abs().max().item(), scale)
    assert error <= error_max, f"relative error {error:.2e}"


def randomise(model, seed):
    """Every parameter away from its start: norms at 1 and biases at 0 would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.05)
    return model.eval()


@dataclasses.dataclass
class Case:
    cls: type
    config: dict
    height: int = 16
    width: int = 24
    extra: tuple = ()  # inputs beside those that the configuration wants

    def build(self, seed):
        torch.manual_seed(seed)
        if issubclass(self.cls, CLIPTextModel | CLIPTextModelWithProjection):
            return randomise(self.cls(CLIPTextConfig(**self.config)), seed)
        if self.cls is CLIPModel:
            return randomise(CLIPModel(CLIPConfig(**self.config)), seed)
        return randomise(self.cls(**self.config), seed)


# Of each class: the inputs, by the names that ours takes, and the reference's outputs for them.

def unet_inputs(case, config):
    batch, length = 2, 7
    inputs = {
        "sample": torch.randn(batch, config.in_channels, case.height, case.width),
        "timestep": torch.tensor([3, 977]),
        "encoder_hidden_states": torch.randn(batch, length, config.encoder_hid_dim or context_width(config)),
    }
    if config.class_embed_type == "timestep":
        inputs["class_labels"] = torch.tensor([20, 700])
    elif config.class_embed_type == "identity":
        inputs["class_labels"] = torch.randn(batch, config.time_embedding_dim or 4 * config.block_out_channels[0])
    elif config.class_embed_type is not None:
        inputs["class_labels"] = torch.randn(batch, config.projection_class_embeddings_input_dim)
    elif config.num_class_embeds is not None:
        inputs["class_labels"] = torch.tensor([0, config.num_class_embeds - 1])
    if config.addition_embed_type == "text_time":
        inputs["time_ids"] = torch.tensor([[512, 768, 0, 16, 512, 512], [256, 256, 3, 0, 256, 256]])
        width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        inputs["text_embeds"] = torch.randn(batch, width)
    if "timestep_cond" in case.extra:
        inputs["timestep_cond"] = torch.randn(batch, config.time_cond_proj_dim)
    if "encoder_attention_mask" in case.extra:
        inputs["encoder_attention_mask"] = (torch.arange(length) < torch.tensor([[4], [7]])).long()
    return inputs


def context_width(config):
    width = config.cross_attention_dim
    return width if isinstance(width, int) else width[-1]


def unet_outputs(model, inputs):
    inputs = dict(inputs)
    added = {name: inputs.pop(name) for name in ("time_ids", "text_embeds") if name in inputs}
    return {"sample": model(**inputs, added_cond_kwargs=added or None).sample}


def autoencoder_inputs(case, config):
    return {"sample": torch.rand(2, config.in_channels, case.height, case.width) * 2 - 1,
            **({"use_tiling": torch.tensor([1])} if "use_tiling" in case.extra else {})}


def autoencoder_outputs(model, inputs):
    model.use_tiling = "use_tiling" in inputs
    latents = model.encode(inputs["sample"]).latent_dist
    return {"latent_mean": latents.mean, "latent_logvar": latents.logvar, "sample": model.decode(latents.mean).sample}


def clip_inputs(case, config):
    length = min(11, config.max_position_embeddings)
    end = config.eos_token_id if config.eos_token_id != 2 else config.vocab_size - 1
    ids = torch.randint(3, config.vocab_size - 2, (3, length))
    ids[0, length // 2:] = end
    ids[1, -1] = end
    ids[2, 1] = end
    mask = (torch.arange(length) < torch.tensor([[length], [length - 1], [3]])).long()
    return {"input_ids": ids, **({"attention_mask": mask} if "attention_mask" in case.extra else {})}


def clip_outputs(model, inputs):
    out = model(**inputs, output_hidden_states=True)
    named = {f"hidden_states.{i}": state for i, state in enumerate(out.hidden_states)}
    for name in ("last_hidden_state", "pooler_output", "text_embeds"):
        if getattr(out, name, None) is not None:
            named[name] = getattr(out, name)
    return named


def both_towers_inputs(case, config):
    side = config.vision_config.image_size
    return clip_inputs(case, config.text_config) | {"pixel_values": torch.randn(3, 3, side, side)}


def both_towers_outputs(model, inputs):
    out = model(**inputs)
    return {"text_embeds": out.text_embeds, "image_embeds": out.image_embeds}


def pixart_inputs(case, config):
    batch, length = 2, 5
    width = config.caption_channels or config.cross_attention_dim
    inputs = {
        "hidden_states": torch.randn(batch, config.in_channels, case.height, case.width),
        "encoder_hidden_states": torch.randn(batch, length, width),
        "timestep": torch.tensor([11, 850]),
    }
    if config.use_additional_conditions or (config.use_additional_conditions is None and config.sample_size == 128):
        inputs["resolution"] = torch.tensor([[128.0, 192.0], [96.0, 64.0]])
        inputs["aspect_ratio"] = torch.tensor([[0.66], [1.5]])
    if "encoder_attention_mask" in case.extra:
        inputs["encoder_attention_mask"] = (torch.arange(length) < torch.tensor([[2], [5]])).long()
    return inputs


def pixart_outputs(model, inputs):
    inputs = dict(inputs)
    added = {name: inputs.pop(name, None) for name in ("resolution", "aspect_ratio")}
    return {"sample": model(**inputs, added_cond_kwargs=added).sample}


INPUTS = {UNet2DConditionModel: (unet_inputs, unet_outputs), AutoencoderKL: (autoencoder_inputs, autoencoder_outputs),
          CLIPTextModel: (clip_inputs, clip_outputs), CLIPTextModelWithProjection: (clip_inputs, clip_outputs),
          CLIPModel: (both_towers_inputs, both_towers_outputs),
          PixArtTransformer2DModel: (pixart_inputs, pixart_outputs)}


def unet_config(down, channels=(16, 32), **changes):
    """`down`: D and C for each block, plain and attending; the way up mirrors it."""
    names = {"D": "DownBlock2D", "C": "CrossAttnDownBlock2D"}
    return dict(
        sample_size=16, block_out_channels=channels[:len(down)], norm_num_groups=4, layers_per_block=1,
        down_block_types=tuple(names[d] for d in down),
        up_block_types=tuple(names[d].replace("Down", "Up") for d in reversed(down)),
        cross_attention_dim=24, attention_head_dim=4) | changes


UNET_CASES = {
    "plain": Case(UNet2DConditionModel, unet_config("DC")),
    "stable diffusion 1": Case(UNet2DConditionModel, unet_config(
        "CCCD", (8, 16, 16, 16), layers_per_block=2, attention_head_dim=2)),
    "stable diffusion 2": Case(UNet2DConditionModel, unet_config(
        "CCD", (16, 32, 32), in_channels=3, out_channels=5, layers_per_block=2, norm_eps=1e-6, flip_sin_to_cos=False,
        freq_shift=1, attention_head_dim=(2, 4, 8), use_linear_projection=True, upcast_attention=True)),
    "stable diffusion xl": Case(UNet2DConditionModel, unet_config(
        "DCC", (16, 32, 32), transformer_layers_per_block=(1, 2, 3), attention_head_dim=(2, 4, 8),
        use_linear_projection=True, addition_embed_type="text_time", addition_time_embed_dim=8,
        projection_class_embeddings_input_dim=20 + 48)),
    "uneven depths on both ways": Case(UNet2DConditionModel, unet_config(
        "DCC", (16, 32, 32), layers_per_block=2, transformer_layers_per_block=[[1, 1], [2, 0], [1, 2]],
        reverse_transformer_layers_per_block=[[1, 2, 0], [2, 1, 1], 1])),
    "uneven layers, context widths as list": Case(UNet2DConditionModel, unet_config(
        "DCC", (8, 16, 16), layers_per_block=(1, 2, 3), cross_attention_dim=(7, 12, 12))),
    "classes by lookup, nothing in the middle": Case(UNet2DConditionModel, unet_config(
        "DC", num_class_embeds=5, mid_block_type=None)),
    "classes by timestep, plain middle": Case(UNet2DConditionModel, unet_config(
        "CC", class_embed_type="timestep", mid_block_type="UNetMidBlock2D", mid_block_scale_factor=2.0)),
    "classes by projection, beside the time": Case(UNet2DConditionModel, unet_config(
        "DC", class_embed_type="projection", projection_class_embeddings_input_dim=10, class_embeddings_concat=True)),
    "classes as embeddings, scale and shift": Case(UNet2DConditionModel, unet_config(
        "DC", class_embed_type="identity", resnet_time_scale_shift="scale_shift", time_embedding_dim=40)),
    "classes by simple projection, text projected": Case(UNet2DConditionModel, unet_config(
        "DC", class_embed_type="simple_projection", projection_class_embeddings_input_dim=6, encoder_hid_dim=15,
        encoder_hid_dim_type="text_proj")),
    "only cross attention, masked context": Case(UNet2DConditionModel, unet_config(
        "DCC", (16, 32, 32), only_cross_attention=(False, True, False), mid_block_scale_factor=1.5),
        extra=("encoder_attention_mask",)),
    "conditioned on the guidance, wide kernels": Case(UNet2DConditionModel, unet_config(
        "DC", time_cond_proj_dim=6, conv_in_kernel=5, conv_out_kernel=1, center_input_sample=True),
        extra=("timestep_cond",)),
    "sides that do not divide": Case(UNet2DConditionModel, unet_config("DCC", (16, 32, 32)), height=13, width=22),
}


def drawn_unet(seed):
    rng = random.Random(f"unet {seed}")
    blocks = rng.randint(1, 3)
    down = "".join(rng.choice("CCD") for _ in range(blocks))
    layers = [rng.randint(1, 2) for _ in range(blocks)]
    config = unet_config(
        down, tuple(8 * rng.randint(1, 4) for _ in range(blocks)), in_channels=rng.randint(1, 9),
        out_channels=rng.randint(1, 8), layers_per_block=layers, norm_num_groups=rng.choice([2, 4, 8]),
        norm_eps=rng.choice([1e-5, 1e-6]), cross_attention_dim=rng.randint(5, 40),
        attention_head_dim=[rng.choice([1, 2, 4, 8]) for _ in range(blocks)],
        transformer_layers_per_block=[rng.randint(1, 2) for _ in range(blocks)],
        use_linear_projection=rng.random() < 0.5, flip_sin_to_cos=rng.random() < 0.5, freq_shift=rng.randint(0, 1),
        downsample_padding=rng.randint(0, 1), only_cross_attention=[rng.random() < 0.3 for _ in range(blocks)],
        mid_block_type=rng.choice(["UNetMidBlock2DCrossAttn", "UNetMidBlock2D", None]),
        resnet_time_scale_shift=rng.choice(["default", "scale_shift"]),
        num_class_embeds=rng.choice([None, 10]), upcast_attention=rng.random() < 0.5,
        center_input_sample=rng.random() < 0.3)
    side = 2 ** (blocks - 1)
    return Case(UNet2DConditionModel, config, height=side * rng.randint(2, 4), width=side * rng.randint(2, 4),
                extra=rng.choice([(), ("encoder_attention_mask",)]))


def autoencoder_config(channels, **changes):
    count = len(channels)
    return dict(block_out_channels=channels, down_block_types=("DownEncoderBlock2D",) * count,
                up_block_types=("UpDecoderBlock2D",) * count, norm_num_groups=4) | changes


AUTOENCODER_CASES = {
    "with attention": Case(AutoencoderKL, autoencoder_config((16, 32), layers_per_block=2, latent_channels=3)),
    "three levels, no attention": Case(AutoencoderKL, autoencoder_config(
        (8, 16, 24), layers_per_block=1, mid_block_add_attention=False)),
    "stable diffusion 3": Case(AutoencoderKL, autoencoder_config(
        (8, 16), latent_channels=16, use_quant_conv=False, use_post_quant_conv=False, shift_factor=0.0609,
        scaling_factor=1.5305)),
    "with means": Case(AutoencoderKL, autoencoder_config(
        (8, 8), latents_mean=[0.1, -0.2, 0.3, 0.4], latents_std=[1.0, 2.0, 0.5, 4.0])),
    "tiles": Case(AutoencoderKL, autoencoder_config((8, 16), sample_size=16), height=40, width=26,
                  extra=("use_tiling",)),
    "tiles, one level, half used": Case(AutoencoderKL, autoencoder_config(
        (8,), sample_size=12, use_quant_conv=False), height=20, width=10, extra=("use_tiling",)),
    "tiles of three levels": Case(AutoencoderKL, autoencoder_config((4, 8, 8), sample_size=32), height=32, width=72,
                                  extra=("use_tiling",)),
}


def drawn_autoencoder(seed):
    rng = random.Random(f"autoencoder {seed}")
    blocks = rng.randint(1, 3)
    config = autoencoder_config(
        tuple(8 * rng.randint(1, 3) for _ in range(blocks)), in_channels=rng.choice([1, 3, 4]),
        out_channels=rng.choice([1, 3]), layers_per_block=rng.randint(1, 2), latent_channels=rng.randint(1, 8),
        norm_num_groups=rng.choice([2, 4, 8]), mid_block_add_attention=rng.random() < 0.5,
        use_quant_conv=rng.random() < 0.5, use_post_quant_conv=rng.random() < 0.5, sample_size=rng.choice([16, 32]))
    side = 2 ** (blocks - 1)
    return Case(AutoencoderKL, config, height=side * rng.randint(4, 9), width=side * rng.randint(4, 9),
                extra=rng.choice([(), ("use_tiling",)]))


def clip_config(**changes):
    vocab = changes.get("vocab_size", 99)
    return dict(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=3, num_attention_heads=4,
                max_position_embeddings=20, eos_token_id=vocab - 1, bos_token_id=vocab - 2,
                pad_token_id=vocab - 1) | changes


CLIP_CASES = {
    "quick_gelu": Case(CLIPTextModel, clip_config()),
    "gelu": Case(CLIPTextModel, clip_config(hidden_act="gelu", hidden_size=48, num_attention_heads=6, pad_token_id=0)),
    "end of text in old files": Case(CLIPTextModel, clip_config(eos_token_id=2)),
    "masked": Case(CLIPTextModel, clip_config(), extra=("attention_mask",)),
    "projected": Case(CLIPTextModelWithProjection, clip_config(projection_dim=24, hidden_act="gelu")),
    "projected, end of text in old files": Case(CLIPTextModelWithProjection, clip_config(
        projection_dim=40, eos_token_id=2, num_hidden_layers=1)),
}


def drawn_clip(seed):
    rng = random.Random(f"clip {seed}")
    heads = rng.choice([1, 2, 4])
    config = clip_config(
        vocab_size=rng.randint(30, 200), hidden_size=heads * 2 * rng.randint(3, 10),
        intermediate_size=rng.randint(8, 100), num_hidden_layers=rng.randint(1, 4), num_attention_heads=heads,
        max_position_embeddings=rng.randint(5, 30), hidden_act=rng.choice(["gelu", "quick_gelu"]),
        layer_norm_eps=rng.choice([1e-5, 1e-6]), projection_dim=rng.randint(4, 40))
    return Case(rng.choice([CLIPTextModel, CLIPTextModelWithProjection]), config,
                extra=rng.choice([(), ("attention_mask",)]))


def drawn_both_towers(seed):
    rng = random.Random(f"both towers {seed}")
    heads, patch = rng.choice([1, 2, 4]), rng.choice([2, 4, 7])
    config = dict(
        text_config=drawn_clip(seed).config | {"projection_dim": 512}, projection_dim=rng.randint(4, 40),
        vision_config=dict(
            hidden_size=heads * 2 * rng.randint(3, 10), intermediate_size=rng.randint(8, 100),
            num_hidden_layers=rng.randint(1, 3), num_attention_heads=heads, patch_size=patch,
            image_size=patch * rng.randint(1, 4) + rng.choice([0, 1]), hidden_act=rng.choice(["gelu", "quick_gelu"]),
            layer_norm_eps=rng.choice([1e-5, 1e-6])))
    return Case(CLIPModel, config, extra=rng.choice([(), ("attention_mask",)]))


def pixart_config(heads, head_dim, **changes):
    return dict(num_attention_heads=heads, attention_head_dim=head_dim, num_layers=2, sample_size=16, caption_channels=20,
                cross_attention_dim=heads * head_dim) | changes


PIXART_CASES = {
    "plain": Case(PixArtTransformer2DModel, pixart_config(4, 8)),
    "told the size": Case(PixArtTransformer2DModel, pixart_config(3, 8, use_additional_conditions=True)),
    "pixart alpha 1024": Case(PixArtTransformer2DModel, pixart_config(3, 4, sample_size=128, num_layers=1)),
    "no caption projection, masked": Case(PixArtTransformer2DModel, pixart_config(
        2, 16, caption_channels=None, cross_attention_dim=13, attention_bias=False), extra=("encoder_attention_mask",)),
    "affine norms, exact gelu": Case(PixArtTransformer2DModel, pixart_config(
        4, 8, norm_elementwise_affine=True, norm_eps=1e-5, activation_fn="gelu", out_channels=None)),
    "geglu, large patches": Case(PixArtTransformer2DModel, pixart_config(
        4, 8, activation_fn="geglu", patch_size=4, interpolation_scale=2, sample_size=32)),
}


def drawn_pixart(seed):
    rng = random.Random(f"pixart {seed}")
    patch = rng.choice([1, 2, 4])
    config = pixart_config(
        3 * rng.randint(1, 2), 4 * rng.randint(1, 4), in_channels=rng.randint(1, 8), out_channels=rng.choice([None, 4, 8]),
        num_layers=rng.randint(1, 3), patch_size=patch, sample_size=patch * rng.randint(2, 12),
        interpolation_scale=rng.choice([None, 1, 2]), use_additional_conditions=rng.random() < 0.5,
        caption_channels=rng.randint(3, 40), attention_bias=rng.random() < 0.5,
        activation_fn=rng.choice(["gelu-approximate", "gelu", "geglu"]), norm_elementwise_affine=rng.random() < 0.5,
        norm_eps=rng.choice([1e-5, 1e-6]))
    return Case(PixArtTransformer2DModel, config, height=patch * rng.randint(1, 6), width=patch * rng.randint(1, 6),
                extra=rng.choice([(), ("encoder_attention_mask",)]))


CASES = {}
for word, chosen, draw in (("unet", UNET_CASES, drawn_unet), ("autoencoder", AUTOENCODER_CASES, drawn_autoencoder),
                           ("clip", CLIP_CASES, drawn_clip), ("both towers", {}, drawn_both_towers),
                           ("pixart", PIXART_CASES, drawn_pixart)):
    CASES |= {f"{word}: {name}": case for name, case in chosen.items()}
    CASES |= {f"{word}: drawn {i}": draw(i) for i in range(DRAWN)}


@dataclasses.dataclass
class Outcome:
    inputs: dict
    outputs: dict
    gradients: dict
    input_gradients: dict
    ours: dict
    saved: pathlib.Path


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """Every case, built by the reference and run by both."""
    root = tmp_path_factory.mktemp("models")
    torch.set_num_threads(1)
    jobs, found = [], {}
    for i, (name, case) in enumerate(CASES.items()):
        model = case.build(i)
        model.save_pretrained(root / f"{i}")
        make_inputs, run = INPUTS[case.cls]
        inputs = make_inputs(case, model.config)
        leaves = {k: v.clone().requires_grad_() if v.is_floating_point() else v for k, v in inputs.items()}
        outputs = run(model, leaves)
        weights = {k: torch.randn(v.shape) for k, v in outputs.items()}
        sum((outputs[k] * w).sum() for k, w in weights.items()).backward()
        save_file(inputs | {f"loss.{k}": w for k, w in weights.items()}, root / f"{i}.in")
        jobs.append({"model": f"{root}/{i}", "in": f"{root}/{i}.in", "out": f"{root}/{i}.out",
                     "saved": f"{root}/{i}.saved"})
        found[name] = Outcome(
            inputs, {k: v.detach() for k, v in outputs.items()},
            {k: p.grad for k, p in model.named_parameters() if p.grad is not None},
            {k: v.grad for k, v in leaves.items() if v.grad is not None}, {}, root / f"{i}.saved")
    (root / "jobs.json").write_text(json.dumps(jobs))
    run = subprocess.run([BIN / "models_tool", root / "jobs.json"], capture_output=True, text=True, timeout=600,
                         env={**os.environ, "OMP_NUM_THREADS": "1"})
    assert run.returncode == 0, run.stderr
    for job, outcome in zip(jobs, found.values()):
        outcome.ours = load_file(job["out"])
    return found


def part(tensors, prefix):
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


@pytest.mark.parametrize("name", CASES)
def test_outputs_are_those_of_the_reference(outcomes, name):
    ours = part(outcomes[name].ours, "output.")
    assert ours.keys() == outcomes[name].outputs.keys()
    for key, value in outcomes[name].outputs.items():
        assert_close(ours[key], value)


@pytest.mark.parametrize("name", CASES)
def test_gradients_are_those_of_the_reference(outcomes, name):
    outcome = outcomes[name]
    ours = part(outcome.ours, "gradient.")
    if CASES[name].cls is CLIPTextModel:
        ours = part(ours, "text_model.")
    assert ours.keys() == outcome.gradients.keys()
    # Some have gradients that are nothing but rounding, 1e-7 of the others: the bias of a key, or of
    # a convolution before a norm. They are not measured by themselves.
    scale = 1e-2 * max(g.abs().max().item() for g in outcome.gradients.values())
    for key, value in outcome.gradients.items():
        assert_close(ours[key], value, GRADIENT_ERROR_MAX, scale)
    inputs = part(outcome.ours, "input_gradient.")
    assert inputs.keys() == outcome.input_gradients.keys()
    for key, value in outcome.input_gradients.items():
        assert_close(inputs[key], value, GRADIENT_ERROR_MAX)


PASSING = ("architectures", "dtype", "torch_dtype", "transformers_version", "model_type")


def public(config):
    """What the reference would write, of its parts too, without what names files, versions and precision."""
    if hasattr(config, "to_dict"):
        config = config.to_dict()
    if not isinstance(config, dict):
        return json.loads(json.dumps(config))
    return {str(k): public(v) for k, v in config.items() if not str(k).startswith("_") and k not in PASSING}


@pytest.mark.parametrize("name", CASES)
def test_what_ours_saves_the_reference_opens(outcomes, name):
    case, outcome = CASES[name], outcomes[name]
    model = load_strictly(case.cls, outcome.saved)
    seed = list(CASES).index(name)
    reference = case.build(seed)
    assert public(model.config) == public(reference.config)
    assert all(torch.equal(p, q) for p, q in zip(model.parameters(), reference.parameters(), strict=True))
    with torch.no_grad():
        outputs = INPUTS[case.cls][1](model, outcome.inputs)
    for key, value in outputs.items():
        assert_close(value, outcome.outputs[key], 1e-6)


FORWARDS = ["unet: stable diffusion xl", "autoencoder: tiles", "clip: quick_gelu", "clip: projected",
            "pixart: told the size"]


@pytest.mark.parametrize("name", FORWARDS)
def test_the_command_runs_one_forward_pass(outcomes, name, tmp_path):
    ours = forward(outcomes[name].saved, outcomes[name].inputs, tmp_path)
    assert ours.keys() == outcomes[name].outputs.keys()
    for key, value in outcomes[name].outputs.items():
        assert_close(ours[key], value)


def test_weights_in_several_files_are_read(outcomes, tmp_path):
    name = "unet: plain"
    model = CASES[name].build(list(CASES).index(name))
    model.save_pretrained(tmp_path / "unet", max_shard_size="60KB")
    assert len(list((tmp_path / "unet").glob("*.safetensors"))) > 1
    ours = forward(tmp_path / "unet", outcomes[name].inputs, tmp_path)
    assert_close(ours["sample"], outcomes[name].outputs["sample"])


def test_pixart_by_its_old_name_opens(outcomes, tmp_path):
    folder = shutil.copytree(outcomes["pixart: plain"].saved, tmp_path / "old")
    config = json.loads((folder / "config.json").read_text())
    config |= {"_class_name": "Transformer2DModel", "norm_type": "ada_norm_single", "num_vector_embeds": None,
               "only_cross_attention": False, "double_self_attention": False, "use_linear_projection": False}
    (folder / "config.json").write_text(json.dumps(config))
    ours = forward(folder, outcomes["pixart: plain"].inputs, tmp_path)
    assert_close(ours["sample"], outcomes["pixart: plain"].outputs["sample"])


@pytest.fixture(scope="module")
def our_folders(tmp_path_factory):
    """Models that ours made and saved: unet, vae, text_encoder."""
    root = tmp_path_factory.mktemp("ours")
    subprocess.run(
        [BIN / "yard_models_test", "--gtest_also_run_disabled_tests",
         "--gtest_filter=*WritesFoldersForTheReferencePackages"],
        check=True, capture_output=True, timeout=120, env={**os.environ, "TEST_TMPDIR": str(root)},
    )
    return root


def load_strictly(cls, folder):
    model, info = cls.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    return model.eval()


def away_from_the_start(folder, tmp_path):
    """A copy of the folder whose zero weights are not, so that every layer shows in the output."""
    copy = shutil.copytree(folder, tmp_path / folder.name)
    weights = copy / "diffusion_pytorch_model.safetensors"
    torch.manual_seed(3)
    tensors = {name: value if value.any() else torch.randn_like(value) * 0.05
               for name, value in load_file(weights).items()}
    save_file(tensors, weights)
    return copy


def test_a_unet_saved_by_ours_opens_in_diffusers(our_folders, tmp_path):
    folder = away_from_the_start(our_folders / "unet", tmp_path)
    model = load_strictly(UNet2DConditionModel, folder)
    inputs = {"sample": torch.randn(2, 3, 8, 8), "timestep": torch.tensor(500),
              "encoder_hidden_states": torch.randn(2, 5, 12)}
    with torch.no_grad():
        reference = model(**inputs).sample
    assert_close(forward(folder, inputs, tmp_path)["sample"], reference)


def test_an_autoencoder_saved_by_ours_opens_in_diffusers(our_folders, tmp_path):
    folder = away_from_the_start(our_folders / "vae", tmp_path)
    model = load_strictly(AutoencoderKL, folder)
    sample = torch.rand(2, 3, 16, 16) * 2 - 1
    with torch.no_grad():
        latents = model.encode(sample).latent_dist
        decoded = model.decode(latents.mean).sample
    ours = forward(folder, {"sample": sample}, tmp_path)
    assert_close(ours["latent_mean"], latents.mean)
    assert_close(ours["latent_logvar"], latents.logvar)
    assert_close(ours["sample"], decoded)


def test_a_text_encoder_saved_by_ours_opens_in_transformers(our_folders, tmp_path):
    model = load_strictly(CLIPTextModel, our_folders / "text_encoder")
    ids = torch.tensor([[38, 5, 6, 39, 39], [38, 1, 2, 3, 39]])
    with torch.no_grad():
        reference = model(ids)
    ours = forward(our_folders / "text_encoder", {"input_ids": ids}, tmp_path)
    assert_close(ours["last_hidden_state"], reference.last_hidden_state)
    assert_close(ours["pooler_output"], reference.pooler_output)


def test_initial_weights_are_spread_as_the_references(our_folders):
    """Standard deviations of whole tensors; the small ones, where chance rules, are left out.

    The UNet's own exception: the last layer of each branch starts at zero.
    """
    for cls, name in ((UNet2DConditionModel, "unet"), (CLIPTextModel, "text_encoder")):
        ours = load_strictly(cls, our_folders / name)
        torch.manual_seed(4)
        fresh = cls(ours.config) if cls is CLIPTextModel else cls.from_config(ours.config)
        reference = dict(fresh.named_parameters())
        for key, value in ours.named_parameters():
            layer = key.rpartition(".")[0]
            if cls is UNet2DConditionModel and (layer.endswith(("conv2", "proj_out")) or layer == "conv_out"):
                assert not value.any(), key
            elif value.numel() >= 256 or reference[key].std() == 0:
                assert torch.allclose(value.std(), reference[key].std(), rtol=0.2), key
                assert abs(value.mean() - reference[key].mean()) <= 0.3 * value.std(), key


def test_an_autoencoder_starts_as_an_orthogonal_map(our_folders):
    for key, value in load_strictly(AutoencoderKL, our_folders / "vae").named_parameters():
        if key.endswith(("bias", "conv2.weight", "to_out.0.weight")):
            assert not value.any(), key
        elif value.dim() == 4:
            rows = value.flatten(1)
            rows = rows if rows.shape[0] <= rows.shape[1] else rows.T
            assert torch.allclose(rows @ rows.T, torch.eye(len(rows)), atol=1e-5), key


def test_missing_tensor_is_named(tmp_path):
    model = UNet2DConditionModel(**UNET_CASES["plain"].config)
    model.save_pretrained(tmp_path / "unet")
    weights = tmp_path / "unet/diffusion_pytorch_model.safetensors"
    tensors = load_file(weights)
    del tensors["mid_block.resnets.1.conv2.weight"]
    save_file(tensors, weights)
    run = subprocess.run([BIN / "yard-train", "--forward", tmp_path / "unet", weights, tmp_path / "out"],
                         capture_output=True, text=True, timeout=60)
    assert run.returncode == 2
    assert "mid_block.resnets.1.conv2.weight" in run.stderr


def test_unsupported_config_value_is_named(tmp_path):
    model = UNet2DConditionModel(**UNET_CASES["plain"].config)
    model.save_pretrained(tmp_path / "unet")
    config = json.loads((tmp_path / "unet/config.json").read_text())
    config["class_embed_type"] = "by taste"
    (tmp_path / "unet/config.json").write_text(json.dumps(config))
    run = subprocess.run(
        [BIN / "yard-train", "--forward", tmp_path / "unet", tmp_path / "unet/diffusion_pytorch_model.safetensors",
         tmp_path / "out"],
        capture_output=True, text=True, timeout=60,
    )
    assert run.returncode == 2
    assert "class_embed_type" in run.stderr
