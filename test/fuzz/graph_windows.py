"""ONNX operators on images: convolutions, pooling, resizing, sampling."""

from __future__ import annotations

import numpy as np

from fuzz.generator import NoFit
from fuzz.graph_draw import node
from fuzz.graph_growth import Growth, name_of

FLOATING = ("float32", "float32", "float64", "float16", "bfloat16")
AUTO = ("SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET")


def image(g: Growth, op: str, channels: int | None = None, low: int = 1, high: int = 3) -> str:
    """`[N, C, ...]` with one to three spatial dimensions."""
    rank = g.choose.choice([r for r in (1, 2, 2, 2, 2, 3) if low <= r <= high])
    sizes = [g.choose.randint(1, 9 if rank < 3 else 5) for _ in range(rank)]
    shape = (g.choose.choice((1, 1, 2, 3)), channels or g.choose.choice((1, 2, 3, 4)), *sizes)
    return g.any_shape(shape, g.dtype(op, among=FLOATING))


def window(g: Growth, rank: int, dilated: bool = True, shape: tuple[int, ...] | None = None) -> dict:
    """Strides, dilations and padding by numbers or by name, each left out at times."""
    attrs: dict = {"strides": g.optional([g.choose.choice((1, 1, 2, 3)) for _ in range(rank)])}
    if dilated:
        attrs["dilations"] = g.optional([g.choose.choice((1, 1, 2)) for _ in range(rank)])
    if g.maybe(0.3):
        attrs["auto_pad"] = g.choose.choice(AUTO)
        if attrs["auto_pad"] != "NOTSET":
            if g.maybe(0.8):
                attrs.pop("dilations", None)
            return attrs
    most = 1 if shape is None else min(shape) - 1
    attrs["pads"] = g.optional([g.choose.randint(0, min(2, most)) for _ in range(2 * rank)])
    return attrs


@node(4)
def convolution(g: Growth) -> None:
    groups = g.choose.choice((1, 1, 1, 2, 3))
    channels = groups * g.choose.choice((1, 2))
    x = image(g, "Conv", channels)
    rank = g.arrays[x].ndim - 2
    kernel = tuple(g.choose.choice((1, 2, 3)) for _ in range(rank))
    count = groups * g.choose.choice((1, 2, 3))
    kind = name_of(g.arrays[x])
    w = g.fresh((count, channels // groups, *kernel), kind, "normal")
    bias = g.fresh((count,), kind, "normal") if g.maybe() else None
    attrs = window(g, rank, shape=(3,) * rank)
    group = groups if groups > 1 else g.optional(1)
    g.emit("Conv", [x, w, bias], group=group, kernel_shape=g.optional(list(kernel)), **attrs)


@node(2)
def transposed_convolution(g: Growth) -> None:
    groups = g.choose.choice((1, 1, 2))
    channels = groups * g.choose.choice((1, 2))
    x = image(g, "ConvTranspose", channels)
    rank = g.arrays[x].ndim - 2
    kernel = tuple(g.choose.choice((1, 2, 3)) for _ in range(rank))
    per_group = g.choose.choice((1, 2))
    kind = name_of(g.arrays[x])
    w = g.fresh((channels, per_group, *kernel), kind, "normal")
    bias = g.fresh((groups * per_group,), kind, "normal") if g.maybe() else None
    attrs = window(g, rank, shape=kernel)
    strides = attrs["strides"] or [1] * rank
    if g.maybe(0.4):
        attrs["output_padding"] = [g.choose.randint(0, max(0, s - 1)) for s in strides]
    if g.maybe(0.3):
        attrs["output_shape"] = [n * s for n, s in zip(g.arrays[x].shape[2:], strides)]
        attrs["pads"] = None
    group = groups if groups > 1 else g.optional(1)
    g.emit("ConvTranspose", [x, w, bias], group=group, kernel_shape=g.optional(list(kernel)), **attrs)


@node(4)
def pooling(g: Growth) -> None:
    op = g.choose.choice(("MaxPool", "MaxPool", "AveragePool", "AveragePool", "LpPool"))
    x = image(g, op)
    rank = g.arrays[x].ndim - 2
    kernel = [g.choose.choice((1, 2, 3)) for _ in range(rank)]
    dilated = g.opset >= {"MaxPool": 10, "AveragePool": 19, "LpPool": 18}[op]
    attrs = window(g, rank, dilated, tuple(kernel))
    strides = attrs["strides"] or [1] * rank
    if attrs.get("auto_pad", "").startswith("SAME") and any(map(int.__gt__, strides, kernel)):
        raise NoFit("ONNX's formula gives padding below 0, which every runtime takes in its own way")
    if g.opset >= {"MaxPool": 10, "AveragePool": 10, "LpPool": 18}[op] and "pads" in attrs:
        attrs["ceil_mode"] = g.optional(g.choose.randint(0, 1))
    if op == "AveragePool":
        attrs["count_include_pad"] = g.optional(g.choose.randint(0, 1))
    if op == "LpPool":
        attrs["p"] = g.optional(g.choose.choice((1, 2, 3)))
    outputs = 1
    if op == "MaxPool" and g.maybe(0.2) and g.opset >= 8:
        outputs, attrs["storage_order"] = 2, g.optional(g.choose.randint(0, 1))
    g.emit(op, [x], outputs, kernel_shape=kernel, **attrs)


@node(0.7)
def global_pooling(g: Growth) -> None:
    op = g.choose.choice(("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"))
    p = g.optional(g.choose.choice((1, 2, 3))) if op == "GlobalLpPool" else None
    g.emit(op, [image(g, op)], p=p)


@node(3)
def resize(g: Growth) -> None:
    if g.opset < 10:
        upsample(g)
        return
    x = image(g, "Resize", low=1, high=2)
    shape = g.arrays[x].shape
    mode = g.choose.choice(("nearest", "linear", "cubic") if len(shape) == 4 else ("nearest", "linear"))
    scales = [1.0, 1.0, *(g.choose.choice((0.5, 1.0, 1.5, 2.0, 0.7, 2.6, 3.0)) for _ in shape[2:])]
    if any(int(np.floor(np.float32(n) * np.float32(s))) == 0 for n, s in zip(shape, scales)):
        raise NoFit("nothing is left")
    if g.opset == 10:
        mode = "nearest" if mode == "cubic" else mode
        g.emit(
            "Resize",
            [x, g.known(np.array(scales, np.float32))],
            mode=g.optional(mode) if mode == "nearest" else mode,
        )
        return
    frames = ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]
    frames += ["tf_half_pixel_for_nn"] if g.opset < 13 else []
    frames += ["half_pixel_symmetric"] if g.opset >= 19 else []
    frames += ["tf_crop_and_resize"] if g.maybe(0.3) else []
    frame = g.optional(g.choose.choice(frames), 0.8)
    attrs: dict = {"mode": mode, "coordinate_transformation_mode": frame}
    if mode == "nearest":
        rounding = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")
        attrs["nearest_mode"] = g.optional(g.choose.choice(rounding))
    if mode == "cubic":
        attrs["cubic_coeff_a"] = g.optional(g.choose.choice((-0.5, -0.75)))
        attrs["exclude_outside"] = g.optional(g.choose.randint(0, 1))
    if g.opset >= 18 and mode != "nearest":
        attrs["antialias"] = g.optional(g.choose.randint(0, 1), 0.3)
    region = None
    if frame == "tf_crop_and_resize":
        low = [0.0, 0.0, *(g.choose.choice((0.0, 0.2, -0.1)) for _ in shape[2:])]
        high = [1.0, 1.0, *(g.choose.choice((1.0, 0.8, 1.2)) for _ in shape[2:])]
        region = g.known(np.array([*low, *high], np.float32))
        attrs["extrapolation_value"] = g.optional(g.choose.choice((0.0, 10.0)))
    if g.maybe(0.4):
        sizes = [int(np.floor(n * s)) for n, s in zip(shape, scales)]
        if g.opset >= 18 and g.maybe(0.3):
            axes = list(range(2, len(shape)))
            if g.maybe(0.4):
                attrs["keep_aspect_ratio_policy"] = g.choose.choice(("stretch", "not_larger", "not_smaller"))
            given = [x, region and None, None, g.ints(*sizes[2:])]
            g.emit("Resize", given, axes=[a - len(shape) if g.maybe(0.3) else a for a in axes], **attrs)
            return
        empty = None if g.opset >= 13 else g.known(np.zeros(0, np.float32))
        roi = region or (g.known(np.zeros(0, np.float32)) if g.opset < 13 else None)
        g.emit("Resize", [x, roi, empty, g.ints(*sizes)], **attrs)
        return
    roi = region or (g.known(np.zeros(0, np.float32)) if g.opset < 13 else None)
    g.emit("Resize", [x, roi, g.known(np.array(scales, np.float32))], **attrs)


def upsample(g: Growth) -> None:
    x = image(g, "Upsample", low=2, high=2)
    scales = [1.0, 1.0, *(g.choose.choice((1.0, 2.0, 3.0)) for _ in g.arrays[x].shape[2:])]
    mode = g.choose.choice(("nearest", "linear"))
    if g.opset < 9:
        g.emit("Upsample", [x], mode=mode, scales=scales)
    else:
        g.emit("Upsample", [x, g.known(np.array(scales, np.float32))], mode=mode)


@node(1)
def grid_sample(g: Growth) -> None:
    x = image(g, "GridSample", low=2, high=3 if g.opset >= 20 else 2)
    rank = g.arrays[x].ndim - 2
    names = ("linear", "nearest", "cubic") if g.opset >= 20 else ("bilinear", "nearest", "bicubic")
    mode = g.choose.choice(names[: 3 if rank == 2 else 2])
    sizes = [g.choose.randint(1, 4) for _ in range(rank)]
    grid = g.fresh((g.arrays[x].shape[0], *sizes, rank), g.dtype("GridSample", 1, ("float32",)), "normal")
    attrs = {
        "mode": g.optional(mode) if mode == names[0] else mode,
        "padding_mode": g.optional(g.choose.choice(("zeros", "border", "reflection"))),
        "align_corners": g.optional(g.choose.randint(0, 1)),
    }
    g.emit("GridSample", [x, grid], **attrs)


@node(0.5)
def roi_align(g: Growth) -> None:
    x = image(g, "RoiAlign", low=2, high=2)
    count = g.choose.randint(1, 3)
    boxes = np.sort(np.random.default_rng(g.seed).random((count, 2, 2)) * 6, axis=1).reshape(count, 4)
    rows = g.fresh((count,), "int64", f"index:{g.arrays[x].shape[0]}")
    attrs = {
        "output_height": g.optional(g.choose.randint(1, 3)),
        "output_width": g.optional(g.choose.randint(1, 3)),
        "sampling_ratio": g.choose.randint(1, 2),
        "spatial_scale": g.optional(g.choose.choice((0.5, 1.0))),
        "mode": g.optional("avg"),
    }
    if g.opset >= 16:
        frames = ("half_pixel", "output_half_pixel")
        attrs["coordinate_transformation_mode"] = g.optional(g.choose.choice(frames))
    g.emit("RoiAlign", [x, g.known(boxes.astype(g.arrays[x].dtype)), rows], **attrs)


@node(0.5)
def column_to_image(g: Growth) -> None:
    kernel, size = (
        (g.choose.randint(1, 2), g.choose.randint(1, 3)),
        (g.choose.randint(3, 5), g.choose.randint(3, 6)),
    )
    count = (size[0] - kernel[0] + 1) * (size[1] - kernel[1] + 1)
    x = g.fresh((1, 2 * kernel[0] * kernel[1], count), g.dtype("Col2Im", among=FLOATING), "normal")
    g.emit("Col2Im", [x, g.ints(*size), g.ints(*kernel)])


@node(0.3)
def affine_grid(g: Growth) -> None:
    rank = g.choose.choice((2, 3))
    theta = g.fresh((2, rank, rank + 1), g.dtype("AffineGrid", among=("float32", "float64")), "normal")
    sizes = [2, 3, *(g.choose.randint(1, 4) for _ in range(rank))]
    g.emit("AffineGrid", [theta, g.ints(*sizes)], align_corners=g.optional(g.choose.randint(0, 1)))
