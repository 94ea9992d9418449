"""LoRA adapters as peft computes them, and training with frozen weights, on the models of model_cases.

tests/fixtures/adapters/<case> is an adapter's directory as peft writes it (without one where weights are only frozen), and

reference.safetensors, of the tokens in batches.safetensors (model_cases):
    logits, loss64                of the model with its adapter
    grad64.<name>                 F32  of what trains, by its name in the files
    train.losses, .grad_norms, .lrs, .losses_bf16, final.<name>   as in model_cases
    merged.<name>                 F32  base weights that merge_and_unload changes
reference.json: the settings; "base" is the directory of the base model under tests/fixtures/models, "freeze" the patterns
of frozen weights, "base_dtype" the format of the linear layers' weights, which bitsandbytes quantised; bf16_updates_off
and bf16_updates_spread as in model_cases.
"""

import copy
import fnmatch
import json
import re
import shutil

import numpy
import bitsandbytes
import peft
import safetensors.torch
import torch
from compressed_tensors.compressors import ModelCompressor
from compressed_tensors.quantization import (QuantizationArgs, QuantizationConfig, QuantizationScheme,
                                             apply_quantization_config)
from compressed_tensors.quantization.utils import is_module_quantized
from transformers import AutoModelForCausalLM, BitsAndBytesConfig, CompressedTensorsConfig

import quantised_cases
from model_cases import (STEPS, TRAINING, all_double, bf16_updates, choose_clip_norm, gradients_in_halves, loss_of,
                         lr_at, make_batches, save_tensors, seed_of, spread)

# base, settings of LoraConfig (None: no adapter), patterns of frozen weights
CASES = {
    "llama_lora": ("llama_bias", dict(r=3, lora_alpha=7, target_modules=["q_proj", "v_proj", "down_proj"]), []),
    "gpt2_lora": ("gpt2_gelu", dict(r=4, lora_alpha=6, target_modules=["c_attn", "mlp.c_proj"],
                                         fan_in_fan_out=True), []),
    "qwen2_lora": ("qwen2_tied", dict(r=2, lora_alpha=8, target_modules="all-linear"), []),
    "llama_nf4": ("llama_rope_linear", dict(r=3, lora_alpha=7, target_modules=["q_proj", "v_proj", "down_proj"]), []),
    "qwen3_nf4": ("../quantised/qwen3_nf4", dict(r=2, lora_alpha=8, target_modules="all-linear"), []),
    "qwen3_w4a16": ("../quantised/qwen3_w4a16", dict(r=2, lora_alpha=8, target_modules="all-linear"), []),
    "qwen3_mixed": ("../quantised/qwen3_mixed", dict(r=2, lora_alpha=8, target_modules="all-linear"), []),
    "llama_frozen": ("llama_bias", None, ["model.layers.0.*", "*embed*", "*.1.mlp.*_proj.weight"]),
}


# Of the linear layers' weights, by case.
FORMATS = {"llama_nf4": "nf4", "qwen3_nf4": "stored", "qwen3_w4a16": "integers", "qwen3_mixed": "integers"}
# Bases as bitsandbytes and compressed-tensors store them, under tests/fixtures: of these models.
STORED = {"quantised/qwen3_nf4": "qwen3", "quantised/qwen3_w4a16": "qwen3", "quantised/qwen3_mixed": "qwen3"}
# Layers that compressed-tensors leaves plain in quantised/qwen3_mixed: a head, by expression, by name.
IGNORED = ["lm_head", r"re:.*layers\.(?:\d*[02468])\.mlp\.(?!down)\w+_proj$", "model.layers.1.self_attn.k_proj"]


def names():
    return CASES.keys()


def name_in_files(name):
    """peft calls an adapter "default" in the model and leaves that out in files."""
    return name.replace(".default.weight", ".weight")


def trained(model):
    return {name_in_files(name): p for name, p in model.named_parameters() if p.requires_grad}


def quantised_layers(model):
    return [module for module in model.modules() if isinstance(module, bitsandbytes.nn.Linear4bit)]


def unpacked(model):
    """The same model with the numbers that its quantised weights stand for."""
    twin = copy.deepcopy(model)
    for module in list(twin.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, bitsandbytes.nn.Linear4bit) and not hasattr(child, "base_layer"):
                weight = bitsandbytes.functional.dequantize_4bit(child.weight.data, child.weight.quant_state)
                plain = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=child.bias is not None)
                plain.weight.data, plain.weight.requires_grad = weight, False
                if child.bias is not None:
                    plain.bias.data, plain.bias.requires_grad = child.bias.data.clone(), False
                setattr(module, name, plain)
    return twin


def load(folder, quantize_base):
    """bitsandbytes on the CPU computes in fp32, and in bf16 where the inputs are."""
    settings = {}
    if quantize_base == "nf4":
        settings = {"device_map": {"": "cpu"},
                    "quantization_config": BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_type="nf4",
                                                              bnb_4bit_use_double_quant=True)}
    if quantize_base == "integers":
        settings = {"quantization_config": CompressedTensorsConfig(dequantize=True)}
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                                 **settings).eval()
    for layer in quantised_layers(model):
        layer.support_avx512bf16_for_cpu = False
        layer.compute_dtype, layer.compute_type_is_set = None, True
    return model


def make_model(root, base, settings, frozen, seed, quantize_base=None):
    model = load(root / "models" / base, quantize_base)
    for name, parameter in model.named_parameters():
        parameter.requires_grad = parameter.is_floating_point() and not any(fnmatch.fnmatchcase(name, pattern) for pattern in frozen)
    if settings is None:
        return model
    model = peft.get_peft_model(model, peft.LoraConfig(task_type="CAUSAL_LM", **settings)).eval()
    rng = numpy.random.default_rng(seed)
    with torch.no_grad():
        for parameter in trained(model).values():
            parameter.copy_(torch.from_numpy(0.2 * rng.standard_normal(parameter.shape, dtype=numpy.float32)))
    return model


def gradients(model, ids, labels):
    model.zero_grad()
    loss, logits = loss_of(model, ids, labels)
    loss.backward()
    return loss.item(), logits.detach(), {name: p.grad.clone() for name, p in trained(model).items()}


def train(model, batches, clip_norm, gradients_at=gradients):
    parameters = trained(model)
    groups = [{"params": [p for p in parameters.values() if p.dim() >= 2], "weight_decay": TRAINING["weight_decay"]},
              {"params": [p for p in parameters.values() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, betas=TRAINING["betas"], eps=TRAINING["eps"], foreach=False)
    losses, norms = [], []
    for step, (ids, labels) in enumerate(batches):
        loss, _, grads = gradients_at(model, ids, labels)
        for name, parameter in parameters.items():
            parameter.grad = grads[name].to(parameter.dtype)
        norm = torch.nn.utils.clip_grad_norm_(list(parameters.values()), clip_norm, foreach=False)
        for group in optimizer.param_groups:
            group["lr"] = lr_at(step)
        optimizer.step()
        losses.append(loss)
        norms.append(norm.item())
    return losses, norms


def train_bf16(model, batches, clip_norm, gradients_of=gradients):
    twin = copy.deepcopy(model).to(torch.bfloat16)

    def gradients_at(masters, ids, labels):
        twin.load_state_dict({name: p.detach() for name, p in masters.named_parameters() if p.requires_grad},
                             strict=False)
        return gradients_of(twin, ids, labels)

    return train(model, batches, clip_norm, gradients_at)[0]


def merged(model):
    before = {re.sub(r"^base_model\.model\.|\.base_layer", "", name): value.clone()
              for name, value in model.state_dict().items() if "lora_" not in name}
    after = copy.deepcopy(model).merge_and_unload().state_dict()
    return {f"merged.{name}": value for name, value in after.items() if not torch.equal(value, before[name])}


def reference_of(root, case):
    base, settings, frozen = CASES[case]
    model = make_model(root, base, settings, frozen, seed_of(case), FORMATS.get(case))
    ids, labels, batches = make_batches()
    tensors = {"logits": gradients(model, ids, labels)[1]}
    clip_norm = choose_clip_norm(lambda norm: train(copy.deepcopy(model), batches, norm)[1])
    if settings is not None and case not in FORMATS:
        tensors |= merged(model)
    exact = unpacked(model)
    with all_double():
        exact = exact.double()
        loss64, _, grads64 = gradients(exact, ids, labels)
        losses64, _ = train(exact, batches, clip_norm)
    tensors["loss64"] = torch.tensor([loss64], dtype=torch.float64)
    tensors |= {f"grad64.{name}": grad.float() for name, grad in grads64.items()}
    plain = copy.deepcopy(model)
    losses, norms = train(plain, batches, clip_norm)
    bf16, halves = copy.deepcopy(model), copy.deepcopy(model)
    losses_bf16 = train_bf16(bf16, batches, clip_norm)
    train_bf16(halves, batches, clip_norm, lambda *batch: gradients_in_halves(*batch, gradients))
    for name, values in {"losses": losses, "grad_norms": norms, "losses_bf16": losses_bf16,
                         "lrs": [lr_at(step) for step in range(STEPS)]}.items():
        tensors[f"train.{name}"] = torch.tensor(values, dtype=torch.float64)
    tensors |= {f"final.{name}": parameter.detach() for name, parameter in trained(plain).items()}
    clipped = sum(norm > clip_norm for norm in norms)
    about = {"case": case, "base": base, "freeze": frozen, "peft": peft.__version__,
             "torch": torch.__version__.split("+")[0], "training": TRAINING | {"clip_norm": clip_norm},
             "steps_clipped": clipped, "fp32_losses_from_fp64": spread(losses, losses64),
             "bf16_losses_from_fp64": spread(losses_bf16, losses64)}
    if FORMATS.get(case) in ("nf4", "stored"):
        about |= {"bitsandbytes": bitsandbytes.__version__}
    if FORMATS.get(case) == "nf4":
        about |= {"base_dtype": "nf4"}
    about |= bf16_updates(trained(model), trained(plain), [trained(bf16), trained(halves)])
    print(f"{case}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {clipped} steps clipped, losses from fp64: "
          f"{about['fp32_losses_from_fp64']:.1e}, bf16 {about['bf16_losses_from_fp64']:.1e}")
    return model, tensors, about


def save_integers(model, folder):
    """Its linear layers as compressed-tensors packs them: 4 bits, asymmetric, a scale a row."""
    model.save_pretrained(folder)
    tensors, scheme = model.state_dict(), None
    tensors.pop("lm_head.weight")
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            case = ("pack-quantized", *module.weight.shape, 4, "channel", None, False, torch.float32)
            stored, scheme = quantised_cases.integers_of(tensors.pop(f"{name}.weight").detach(), case)
            tensors |= {f"{name}.{part}": tensor for part, tensor in stored.items()}
    safetensors.torch.save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()},
                                folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = quantised_cases.config_of("pack-quantized", scheme)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")


def save_mixed(model, folder):
    """As compressed-tensors writes a model of which it leaves layers plain: it finds and packs them itself."""
    arguments = QuantizationArgs(num_bits=4, type="int", strategy="channel", symmetric=False)
    scheme = QuantizationScheme(targets=["re:.*self_attn", "re:.*mlp"], weights=arguments)
    config = QuantizationConfig(config_groups={"group_0": scheme}, format="pack-quantized", ignore=IGNORED)
    apply_quantization_config(model, config)
    for module in model.modules():
        if not is_module_quantized(module):
            continue
        rows, columns = module.weight.shape
        scale, zero = quantised_cases.scale_and_zero(module.weight.detach(), 4, columns, False, torch.float32)
        module.weight_scale.data.copy_(scale.reshape(rows, 1))
        module.weight_zero_point.data.copy_(zero.reshape(rows, 1))
    compressor = ModelCompressor.from_pretrained_model(model, "pack-quantized")
    compressor.compress_model(model)
    tensors = model.state_dict()
    tensors.pop("lm_head.weight")
    model.config.save_pretrained(folder)
    safetensors.torch.save_file({name: tensor.contiguous().clone() for name, tensor in tensors.items()},
                                folder / "model.safetensors", metadata={"format": "pt"})
    compressor.update_config(folder)
    # It writes the names that expressions match; as many models have them, the expressions stay here.
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["ignore"] = IGNORED
    (folder / "config.json").write_text(json.dumps(config, indent=2, sort_keys=True))


def write_stored(root, folder, base):
    shutil.rmtree(root / folder, ignore_errors=True)
    if "mixed" in folder:
        save_mixed(load(root / "models" / base, None), root / folder)
    elif "w4a16" in folder:
        save_integers(load(root / "models" / base, None), root / folder)
    else:
        load(root / "models" / base, "nf4").save_pretrained(root / folder)
    (root / folder / "generation_config.json").unlink(missing_ok=True)
    for path in (root / folder).iterdir():
        path.chmod(0o644)


def write(root, wanted):
    for folder, base in STORED.items():
        if not wanted or folder.split("/")[-1] in wanted:
            write_stored(root, folder, base)
    for case in CASES:
        if wanted and case not in wanted:
            continue
        folder = root / "adapters" / case
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        model, tensors, about = reference_of(root, case)
        if CASES[case][1] is not None:
            model.peft_config["default"].base_model_name_or_path = CASES[case][0]
            model.save_pretrained(folder)
            (folder / "README.md").unlink(missing_ok=True)
        save_tensors(tensors, folder / "reference.safetensors")
        (folder / "reference.json").write_text(json.dumps(about, indent=2) + "\n")
        for path in folder.iterdir():
            path.chmod(0o644)
