"""Trains a model, stops halfway, resumes, and generates text: examples/train.c in Python, with ctypes only.

    python3 train.py MODEL_DIR DATA RUN_DIR STEPS        (libballast.so.0.2 where the loader finds it)

Ctrl-C finishes the step and writes a checkpoint. ballast.h describes the structs and their fields."""
import ctypes
import sys
from ctypes import CFUNCTYPE, POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_void_p

OK, STOPPED = 0, 130
TEXT, TEXTS = c_char_p, POINTER(c_char_p)
ballast = ctypes.CDLL("libballast.so.0.2")
ballast.ballast_error_message.restype = ballast.ballast_error_hint.restype = c_char_p


def struct(name, *fields):
    """A struct of ballast.h that the library initialises: (type, "field field …")."""
    fields = [("version", c_int)] + [(field, kind) for kind, names in fields for field in names.split()]
    kind = type(name, (ctypes.Structure,), {"_fields_": fields})

    def make(**values):
        made = kind()
        getattr(ballast, f"ballast_{name}_init")(ctypes.byref(made))
        for field, value in values.items():
            setattr(made, field, value)
        return made

    return make


plan_options = struct(
    "plan_options", (c_int64, "batch sequence_length micro_batch_sequences threads seed"),
    (TEXT, "dtype document_attention loss"), (c_double, "dpo_beta"), (TEXT, "lora"), (TEXTS, "freeze"), (c_size_t, "freeze_count"), (c_int64, "micro_batches_per_wave"),
    (TEXT, "device"), (c_int64, "device_memory_bytes host_memory_bytes"), (TEXT, "disk_folder"), (c_int64, "disk_bytes"),
    (TEXT, "lanes partition collectives"), (c_int64, "round_micro_batches tensor_parallel pipeline_parallel virtual_stages"),
    (TEXT, "reduce_dtype layout optimizer optimizer_dtype master_weights plan_path cluster_path quantize_base sequence_parallel"),
    (c_double, "muon_momentum"), (TEXT, "dpo_loss"), (c_double, "dpo_label_smoothing"), (TEXT, "packing"))
train_options = struct(
    "train_options", (TEXTS, "data_paths"), (c_size_t, "data_path_count"), (TEXTS, "valid_paths"),
    (c_size_t, "valid_path_count"), (c_double, "valid_fraction"), (TEXT, "columns loss_on"),
    (c_int64, "chat_time_s steps"), (c_double, "epochs learning_rate"), (TEXT, "schedule"),
    (c_int64, "schedule_steps warmup_steps"),
    (c_double, "min_lr_fraction wsd_decay_fraction beta1 beta2 epsilon weight_decay clip_norm"),
    (c_int64, "save_every keep valid_every valid_batches sample_every sample_tokens"),
    (TEXT, "sample_prompt replan"))
generate_options = struct(
    "generate_options", (c_int64, "tokens"), (c_double, "temperature"), (c_int64, "top_k"),
    (c_double, "top_p repetition_penalty"), (c_int64, "ignore_end"), (TEXTS, "stops"), (c_size_t, "stop_count"),
    (c_int64, "chat"), (TEXT, "system"), (c_int64, "chat_time_s"))


class Step(ctypes.Structure):  # only its beginning: a callback's struct may grow at its end
    _fields_ = [("step", c_int64), ("steps", c_int64), ("epoch", c_double), ("epochs", c_double), ("loss", c_double)]


step_callback = CFUNCTYPE(c_int, POINTER(Step), c_void_p)
piece_callback = CFUNCTYPE(c_int, c_void_p, c_size_t, c_void_p)
train_events = struct("train_events", (step_callback, "step"), (c_void_p, "validated sampled saved payload"))


def call(name, *arguments, expected=OK):
    passed = [a if not isinstance(a, ctypes.Structure) else ctypes.byref(a) for a in arguments]
    status = getattr(ballast, name)(*passed)
    if status != expected:
        sys.exit(f"{ballast.ballast_error_message().decode()}\n{ballast.ballast_error_hint().decode()}")


def main(model, data, run, steps):
    stop_at = steps // 2

    @step_callback
    def on_step(step, _):
        try:
            print(f"step {step[0].step} of {step[0].steps}  loss {step[0].loss:.4f}", file=sys.stderr)
            return step[0].step == stop_at
        except KeyboardInterrupt:  # an exception may not leave a callback
            return 1

    @piece_callback
    def on_piece(text, size, _):
        sys.stdout.buffer.write(ctypes.string_at(text, size))
        return 0

    plan, events = plan_options(), train_events(step=on_step)
    options = train_options(data_paths=(c_char_p * 1)(data), data_path_count=1, steps=steps, learning_rate=3e-3,
                            valid_every=steps // 5, valid_batches=2)
    call("ballast_train", model, run, plan, options, events, expected=STOPPED)
    stop_at = -1
    call("ballast_resume", run, None, None, events)
    prompt = b"The model"
    sys.stdout.buffer.write(prompt)
    call("ballast_generate", run, plan_options(seed=3), generate_options(tokens=40, temperature=0.7), prompt, on_piece,
         None, None)
    sys.stdout.buffer.write(b"\n")


if len(sys.argv) != 5:
    sys.exit(__doc__)
main(*(argument.encode() for argument in sys.argv[1:4]), int(sys.argv[4]))
