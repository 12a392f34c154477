"""Writers for the two file kinds, from their published layouts.

safetensors   u64 header length | JSON header, padded with spaces | data; offsets count from the data's start
GGUF v3       "GGUF" u32 3 | u64 tensors | u64 keys | key-values | tensor table | padding to 32 | data, each at a
              multiple of 32; dimensions are written fastest first
"""
import json
import struct

import numpy

ALIGNMENT = 32
SCALARS = {"uint16": (2, "<H"), "uint32": (4, "<I"), "int32": (5, "<i"), "float32": (6, "<f"), "bool": (7, "<?")}
STRING, ARRAY = 8, 9
GGML_TYPES = {"F32": 0, "BF16": 30}


class Blocks:
    """A matrix of `shape` in blocks of a ggml type, as bytes of each row."""

    def __init__(self, shape, rows, ggml_type):
        self.shape, self.rows, self.ggml_type = shape, rows, ggml_type


def encode(array, dtype):
    """Little-endian bytes; for BF16 the values must be representable already."""
    if isinstance(array, Blocks):
        return array.rows.tobytes()
    if dtype == "F32":
        return numpy.ascontiguousarray(array, "<f4").tobytes()
    bits = numpy.ascontiguousarray(array, "<f4").view("<u4")
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype("<u2").tobytes()


# ---- safetensors -----------------------------------------------------------------------------------------------------
def write_safetensors(path, tensors, dtype):
    header, blobs, offset = {"__metadata__": {"format": "pt"}}, [], 0
    for name, array in tensors.items():
        blob = encode(array, dtype)
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [offset, offset + len(blob)]}
        blobs.append(blob)
        offset += len(blob)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"".join(blobs))
    return offset


def write_safetensors_folder(folder, tensors, dtype, shards):
    if shards == 1:
        write_safetensors(folder / "model.safetensors", tensors, dtype)
        return
    names, weight_map, total = list(tensors), {}, 0
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = names[len(names) * shard // shards:len(names) * (shard + 1) // shards]
        total += write_safetensors(folder / file, {name: tensors[name] for name in part}, dtype)
        weight_map.update({name: file for name in part})
    index = {"metadata": {"total_size": total}, "weight_map": dict(sorted(weight_map.items()))}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=1) + "\n")


# ---- GGUF ------------------------------------------------------------------------------------------------------------
def gguf_string(text):
    data = text.encode("utf-8")
    return struct.pack("<Q", len(data)) + data


def gguf_value(kind, value):
    if kind == "string":
        return struct.pack("<I", STRING) + gguf_string(value)
    if kind.endswith("[]"):
        element = kind[:-2]
        if element == "string":
            body, code = b"".join(map(gguf_string, value)), STRING
        else:
            code, layout = SCALARS[element]
            body = b"".join(struct.pack(layout, v) for v in value)
        return struct.pack("<IIQ", ARRAY, code, len(value)) + body
    code, layout = SCALARS[kind]
    return struct.pack("<I", code) + struct.pack(layout, value)


def write_gguf(path, metadata, tensors):
    """metadata: [(key, type, value)]; tensors: name -> (array, "F32" or "BF16"), or (Blocks, None)."""
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata))
    head += b"".join(gguf_string(key) + gguf_value(kind, value) for key, kind, value in metadata)
    data = b""
    for name, (array, dtype) in tensors.items():
        shape = array.shape[::-1]
        kind = array.ggml_type if isinstance(array, Blocks) else GGML_TYPES[dtype]
        head += gguf_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, len(data))
        blob = encode(array, dtype)
        data += blob + bytes(-len(blob) % ALIGNMENT)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)


def write_gguf_folder(folder, metadata, tensors, splits):
    """Split files: the first has all the metadata, each has its part of the tensors."""
    if splits == 1:
        write_gguf(folder / "model.gguf", metadata, tensors)
        return
    names = list(tensors)
    for split in range(splits):
        part = names[len(names) * split // splits:len(names) * (split + 1) // splits]
        keys = [("split.no", "uint16", split), ("split.count", "uint16", splits),
                ("split.tensors.count", "int32", len(names))]
        write_gguf(folder / f"model-{split + 1:05}-of-{splits:05}.gguf", (metadata if split == 0 else []) + keys,
                   {name: tensors[name] for name in part})
