"""gradwire.checkpoint: any damage is an error that names the file. The checkpoints are written
here, following only docs/checkpoints.md."""

import json
import os
import pathlib
import struct
import tempfile
import unittest

import torch

from gradwire import checkpoint

RANKS = 3
WEIGHTS = torch.arange(300, dtype=torch.float32).reshape(30, 10)
MOMENTS = WEIGHTS.flatten() / 7


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return f"{crc ^ 0xffffffff:08x}"


def shard(tensors):
    """Returns a safetensors file, and the offsets of its tensors. tensors: {name: list}."""
    header, data = {}, b""
    for name, tensor in tensors.items():
        raw = struct.pack(f"<{len(tensor)}f", *tensor.tolist())
        header[name] = {"dtype": "F32", "shape": [len(tensor)],
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    begin = 8 + len(text)
    offsets = {name: begin + entry["data_offsets"][0] for name, entry in header.items()}
    return struct.pack("<Q", len(text)) + text + data, offsets


def sealed(manifest):
    """Returns the manifest's text, with its checksum."""
    manifest = {key: value for key, value in manifest.items() if key != "checksum"}
    content = json.dumps(manifest, sort_keys=True, separators=(",", ":")).encode()
    return json.dumps({**manifest, "checksum": crc32c(content)})


def write(folder, step, sequence, scale=1.0, weight="weight"):
    """Writes a checkpoint of three ranks: a weight and its mean gradient."""
    path = folder / f"step-{step:06}"
    path.mkdir(parents=True)
    tensors = {weight: (scale * WEIGHTS, []),
               f"optimizer.exp_avg.{weight}": (scale * MOMENTS, [])}
    files = []
    for rank in range(RANKS):
        mine = {f"{name}@{100 * rank}": tensor.flatten()[100 * rank:100 * (rank + 1)]
                for name, (tensor, _) in tensors.items()}
        content, offsets = shard(mine)
        name = f"rank-{rank}-of-{RANKS}.safetensors"
        (path / name).write_bytes(content)
        files.append({"name": name, "bytes": len(content), "crc32c": crc32c(content)})
        for tensor, (_, pieces) in tensors.items():
            pieces.append([rank, 100 * rank, 100, offsets[f"{tensor}@{100 * rank}"]])
    (path / "manifest.json").write_text(sealed({
        "format": "gradwire checkpoint", "version": 1, "gradwire": "0", "step": step,
        "sequence": sequence, "ranks": RANKS, "model": {"name": "mlp"}, "run": {}, "files": files,
        "tensors": [{"name": name, "type": "F32", "shape": list(tensor.shape), "pieces": pieces}
                    for name, (tensor, pieces) in tensors.items()],
        "rank_tensors": [[] for _ in files]}))
    return path


def flip(file, at):
    content = bytearray(file.read_bytes())
    content[at] ^= 0x40
    file.write_bytes(content)


class Case(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.out = pathlib.Path(folder.name)
        self.older = write(self.out / "checkpoints", 60, 4, scale=0.5)
        self.newest = write(self.out / "checkpoints", 63, 5)
        self.manifest = self.newest / "manifest.json"

    def refused(self, *words, path=None, manifest=False):
        """Checks that loading raises ValueError with these words; also for the manifest alone."""
        functions = [checkpoint.load_state_dict, checkpoint.load_optimizer_states]
        for function in functions + manifest * [checkpoint.find, checkpoint.load_manifest]:
            if function is checkpoint.find and path is not None:
                continue
            with self.subTest(function.__name__), self.assertRaises(ValueError) as raised:
                function(path or self.out)
            for word in words:
                self.assertIn(word, str(raised.exception))


class Whole(Case):
    def test_is_loaded(self):
        for path, scale in ((self.out, 1), (str(self.out / "checkpoints"), 1), (self.older, 0.5)):
            state = checkpoint.load_state_dict(path)
            self.assertEqual(list(state), ["weight"])
            self.assertTrue(torch.equal(state["weight"], scale * WEIGHTS))
            states = checkpoint.load_optimizer_states(path)
            self.assertTrue(torch.equal(states["weight"]["exp_avg"], scale * MOMENTS))
        manifest = checkpoint.load_manifest(self.out)
        self.assertEqual((manifest["step"], manifest["model"]), (63, {"name": "mlp"}))
        self.assertEqual(manifest["checksum"], json.loads(self.manifest.read_text())["checksum"])
        self.assertEqual(checkpoint.find(self.out), self.newest)

    def test_is_missed_by_name(self):
        (self.out / "empty").mkdir()
        for path in (self.out / "nowhere", self.out / "empty"):
            with self.assertRaisesRegex(FileNotFoundError, str(path)):
                checkpoint.load_state_dict(path)


    def test_of_layers_whose_names_mean_something_else(self):
        for name in ("optimizer.weight", "optimizer.step.weight", "step", "__metadata__.x"):
            path = write(self.out / name, 1, 1, weight=name)
            with self.subTest(name):
                self.assertEqual(list(checkpoint.load_state_dict(path)), [name])
                states = checkpoint.load_optimizer_states(path)
                self.assertEqual({key: list(value) for key, value in states.items()},
                                 {name: ["exp_avg"]})

    def test_states_are_found_in_wrapped_models(self):
        class Wrapper(torch.nn.Module):
            def __init__(self, name, inner):
                super().__init__()
                self.add_module(name, inner)

        model = torch.nn.Linear(10, 30, bias=False)
        optimizer = torch.optim.Adam(model.parameters())
        for names in (["module"], ["_orig_mod"], ["module", "_orig_mod"], ["_orig_mod", "module"],
                      ["_fsdp_wrapped_module", "_checkpoint_wrapped_module"]):
            wrapped = model
            for name in reversed(names):
                wrapped = Wrapper(name, wrapped)
            found = checkpoint.load_optimizer_state_dict(self.out, wrapped, optimizer)
            self.assertTrue(torch.equal(found["state"][0]["exp_avg"], MOMENTS), names)

    def test_states_of_another_model_are_an_error(self):
        model = torch.nn.Sequential(torch.nn.Linear(10, 30, bias=False))
        optimizer = torch.optim.Adam(model.parameters())
        with self.assertRaisesRegex(ValueError, "states of weight, but .* parameters 0.weight"):
            checkpoint.load_optimizer_state_dict(self.out, model, optimizer)


class DamagedFiles(Case):
    def test_one_bit(self):
        for rank, at in ((1, -3), (0, 20), (2, 0)):
            file = self.newest / f"rank-{rank}-of-3.safetensors"
            flip(file, at)
            self.refused(str(file), "CRC-32C", "use another checkpoint")
            flip(file, at)
        checkpoint.load_state_dict(self.out)

    def test_size(self):
        file = self.newest / "rank-1-of-3.safetensors"
        content = file.read_bytes()
        for other in (content[:-1], content[:5], b"", content + b"x"):
            file.write_bytes(other)
            self.refused(str(file), f"{len(other)} bytes where {len(content)}")
        file.unlink()
        self.refused(str(file), "No such file")
        os.mkfifo(file)
        self.refused(str(file), "not a file")

    def test_of_another_job(self):
        other = write(self.out / "other", 63, 5, scale=2.0)
        file = self.newest / "rank-2-of-3.safetensors"
        own = file.read_bytes()
        file.write_bytes((other / file.name).read_bytes())
        self.refused(str(file), "CRC-32C")
        file.write_bytes(own)
        self.manifest.write_bytes((other / "manifest.json").read_bytes())
        self.refused(str(self.newest / "rank-0-of-3.safetensors"), "CRC-32C")


class DamagedManifests(Case):
    def test_are_not_passed_over(self):
        text = self.manifest.read_text()
        for damaged in (text.replace("63", "64"), text[:len(text) // 2], text[:-1], "", "[]", "{",
                        "null", "[" * 100000, "\0" * 50,
                        json.dumps({"format": "gradwire checkpoint"})):
            self.manifest.write_text(damaged)
            self.refused(str(self.manifest), str(self.older), "remove", manifest=True)
            self.refused(str(self.manifest), path=self.newest, manifest=True)
        self.manifest.unlink()
        self.refused(str(self.manifest), "cannot be opened", manifest=True)

    def test_with_a_valid_checksum_are_checked(self):
        """A checksum is no proof of who wrote the manifest."""
        whole = json.loads(self.manifest.read_text())

        def file(change):
            return {"files": [{**whole["files"][0], **change}, *whole["files"][1:]]}

        for change, word in ((file({"name": "../step-000060/rank-0-of-3.safetensors"}), "files[0]"),
                             (file({"name": "/etc/passwd"}), "files[0]"),
                             (file({"crc32c": "z"}), "crc32c"), (file({"bytes": -1}), "bytes"),
                             ({"step": "63"}, "step"), ({"run": 3}, "run"),
                             ({"model": json.loads("[" * 900 + "]" * 900)}, "nested"),
                             ({"rank_tensors": []}, "rank_tensors"), ({"version": 3}, "version 3")):
            self.manifest.write_text(sealed({**whole, **change}))
            self.refused(str(self.manifest), word, manifest=True)


if __name__ == "__main__":
    unittest.main(verbosity=2)
