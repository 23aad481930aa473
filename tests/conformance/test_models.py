"""Our models beside diffusers' and transformers' own: same folder, same input, same output.

The reference builds a small model with random weights and saves it; ours loads the folder and runs
one forward pass (yard-train --forward).
"""

import json
import os
import pathlib
import shutil
import subprocess

import pytest
import torch
from diffusers import AutoencoderKL, UNet2DConditionModel
from safetensors.torch import load_file, save_file
from transformers import CLIPTextConfig, CLIPTextModel

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("YARD_BIN_DIR", ROOT / "build/release/bin"))
RELATIVE_ERROR_MAX = 1e-5


def forward(folder, inputs, tmp_path):
    save_file({k: v.contiguous() for k, v in inputs.items()}, tmp_path / "in.safetensors")
    run = subprocess.run(
        [BIN / "yard-train", "--forward", folder, tmp_path / "in.safetensors", tmp_path / "out.safetensors"],
        capture_output=True, text=True, timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return load_file(tmp_path / "out.safetensors")


def assert_close(ours, reference):
    assert ours.shape == reference.shape
    error = (ours - reference).abs().max() / reference.abs().max()
    assert error <= RELATIVE_ERROR_MAX, f"relative error {error:.2e}"


def randomise(model, seed):
    """Every parameter away from its start: norms at 1 and biases at 0 would hide mistakes."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in model.parameters():
            p.add_(torch.randn(p.shape, generator=generator) * 0.05)
    return model.eval()


UNETS = {
    "plain": dict(
        sample_size=16, block_out_channels=(32, 64), norm_num_groups=8, layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=24, attention_head_dim=4,
    ),
    "linear projection, depth 2, heads per block": dict(
        sample_size=16, in_channels=3, out_channels=5, block_out_channels=(16, 32, 32), norm_num_groups=4,
        layers_per_block=2, norm_eps=1e-6, flip_sin_to_cos=False, freq_shift=1,
        down_block_types=("CrossAttnDownBlock2D", "CrossAttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "CrossAttnUpBlock2D", "CrossAttnUpBlock2D"),
        cross_attention_dim=40, attention_head_dim=(2, 4, 8), transformer_layers_per_block=(1, 2, 2),
        use_linear_projection=True,
    ),
    "the bench's shape": dict(
        sample_size=32, block_out_channels=(32, 64, 128), norm_num_groups=32, layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=64, attention_head_dim=8,
    ),
}


@pytest.mark.parametrize("name", UNETS)
def test_unet_forward_equals_diffusers(name, tmp_path):
    torch.manual_seed(1)
    model = randomise(UNet2DConditionModel(**UNETS[name]), 1)
    model.save_pretrained(tmp_path / "unet")
    inputs = {
        "sample": torch.randn(2, model.config.in_channels, 16, 24),
        "timestep": torch.tensor([3, 977]),
        "encoder_hidden_states": torch.randn(2, 7, model.config.cross_attention_dim),
    }
    with torch.no_grad():
        reference = model(inputs["sample"], inputs["timestep"], inputs["encoder_hidden_states"]).sample
    assert_close(forward(tmp_path / "unet", inputs, tmp_path)["sample"], reference)


AUTOENCODERS = {
    "with attention": dict(block_out_channels=(16, 32), layers_per_block=2, norm_num_groups=8, latent_channels=3),
    "three levels, no attention": dict(
        block_out_channels=(8, 16, 24), layers_per_block=1, norm_num_groups=4, latent_channels=4,
        mid_block_add_attention=False,
    ),
}


@pytest.mark.parametrize("name", AUTOENCODERS)
def test_autoencoder_forward_equals_diffusers(name, tmp_path):
    config = AUTOENCODERS[name]
    count = len(config["block_out_channels"])
    torch.manual_seed(2)
    model = randomise(
        AutoencoderKL(
            down_block_types=("DownEncoderBlock2D",) * count, up_block_types=("UpDecoderBlock2D",) * count, **config
        ), 2,
    )
    model.save_pretrained(tmp_path / "vae")
    sample = torch.rand(2, 3, 32, 48) * 2 - 1
    with torch.no_grad():
        latents = model.encode(sample).latent_dist
        decoded = model.decode(latents.mean).sample
    ours = forward(tmp_path / "vae", {"sample": sample}, tmp_path)
    assert_close(ours["latent_mean"], latents.mean)
    assert_close(ours["latent_logvar"], latents.logvar)
    assert_close(ours["sample"], decoded)


TEXT_ENCODERS = {
    "quick_gelu": dict(vocab_size=99, hidden_size=32, intermediate_size=64, num_hidden_layers=3,
                       num_attention_heads=4, max_position_embeddings=20, eos_token_id=98, bos_token_id=97,
                       pad_token_id=98),
    "gelu": dict(vocab_size=50, hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=6,
                 max_position_embeddings=12, hidden_act="gelu", eos_token_id=49, bos_token_id=48, pad_token_id=0),
}


@pytest.mark.parametrize("name", TEXT_ENCODERS)
def test_text_encoder_forward_equals_transformers(name, tmp_path):
    config = CLIPTextConfig(**TEXT_ENCODERS[name])
    torch.manual_seed(3)
    model = randomise(CLIPTextModel(config), 3)
    model.save_pretrained(tmp_path / "text_encoder")
    ids = torch.randint(1, config.vocab_size - 2, (3, 11))
    ids[0, 5:] = config.eos_token_id
    ids[1, 10] = config.eos_token_id
    ids[2, 1] = config.eos_token_id
    with torch.no_grad():
        reference = model(ids)
    ours = forward(tmp_path / "text_encoder", {"input_ids": ids}, tmp_path)
    assert_close(ours["last_hidden_state"], reference.last_hidden_state)
    assert_close(ours["pooler_output"], reference.pooler_output)


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
    model = UNet2DConditionModel(**UNETS["plain"])
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
    model = UNet2DConditionModel(**UNETS["plain"])
    model.save_pretrained(tmp_path / "unet")
    config = json.loads((tmp_path / "unet/config.json").read_text())
    config["class_embed_type"] = "timestep"
    (tmp_path / "unet/config.json").write_text(json.dumps(config))
    run = subprocess.run(
        [BIN / "yard-train", "--forward", tmp_path / "unet", tmp_path / "unet/diffusion_pytorch_model.safetensors",
         tmp_path / "out"],
        capture_output=True, text=True, timeout=60,
    )
    assert run.returncode == 2
    assert "class_embed_type" in run.stderr
