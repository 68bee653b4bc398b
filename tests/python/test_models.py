"""gradwire.models: modules compute what the trained models of the program compute."""

import json
import os
import pathlib
import struct
import subprocess
import tempfile
import unittest

import torch
from safetensors.torch import save_file

from gradwire import checkpoint, models

PROGRAM = os.environ["GRADWIRE_PROGRAM"]
IMAGES, TESTED = 256, 200
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


def idx(array):
    """Returns the IDX file of a tensor of bytes."""
    header = struct.pack(f">HBB{array.dim()}I", 0, 8, array.dim(), *array.shape)
    return header + array.numpy().tobytes()


def write_images(folder):
    """Writes a data set of noisy rows: class k has row 2k bright. Returns the test split."""
    torch.manual_seed(1)
    for split, count in ("train", IMAGES), ("t10k", TESTED):
        labels = torch.randint(10, (count,), dtype=torch.uint8)
        images = torch.randint(200, (count, 28, 28), dtype=torch.uint8)
        images[torch.arange(count), 2 * labels.long()] += 55
        (folder / f"{split}-images-idx3-ubyte").write_bytes(idx(images))
        (folder / f"{split}-labels-idx1-ubyte").write_bytes(idx(labels))
    return images, labels.long()


class TrainedModels(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.output = self.folder / "out"

    def train(self, path, **settings):
        """Runs `gradwire train`, and returns its summary."""
        (self.folder / "config.json").write_text(json.dumps(
            {"batch_size": 32, "epochs": 1, "checkpoint_every": 1, **settings}))
        subprocess.run(
            [PROGRAM, "train", self.folder / "config.json", "--data", path, "--output", self.output,
             "--json", self.folder / "summary.json"], check=True, stdout=subprocess.DEVNULL)
        return json.loads((self.folder / "summary.json").read_text())

    def loaded(self):
        """Returns the model of the file, and asserts that the checkpoint holds the same."""
        model = models.load_model(self.output / "model.safetensors")
        resumable = models.load_model(self.output).state_dict()
        for name, tensor in model.state_dict().items():
            self.assertTrue(torch.equal(tensor, resumable[name]), name)
        return model

    def test_classifies_images(self):
        images, labels = write_images(self.folder)
        for model in ({}, {"name": "convnet", "channels": 4, "hidden": 32, "dropout": 0.25},
                      {"name": "mlp", "hidden": 32, "dropout": 0.5},
                      {"name": "resnet", "channels": 4, "blocks": 2, "groups": 2}):
            with self.subTest(model=model):
                summary = self.train(self.folder, model=model)
                with torch.no_grad():
                    output = self.loaded()(models.normalize(images))
                loss = torch.nn.functional.nll_loss(output, labels).item()
                self.assertAlmostEqual(loss, summary["test_loss"], delta=1e-4)
                accuracy = (output.argmax(1) == labels).double().mean().item()
                self.assertAlmostEqual(accuracy, summary["test_accuracy"], delta=1.5 / TESTED)

    def test_continues_texts(self):
        (self.folder / "text").write_text(120 * ALPHABET)
        tied = {"name": "gpt", "width": 16, "heads": 2, "layers": 1, "vocabulary": 300,
                "dropout": 0.1, "tie_word_embeddings": True}
        for model in ({"width": 16, "layers": 1}, {"name": "gpt", "width": 16}, tied):
            with self.subTest(model=model):
                self.train(self.folder / "text", model=model, data={"name": "text", "context": 16},
                           optimizer={"name": "adam", "learning_rate": 0.01})
                text = self.generate("the", 40)
                # One forward predicts all positions that see all before them.
                window = torch.tensor([list(text[:16].encode())])
                expected = self.loaded()(window)[0, :256].argmax(0)
                self.assertEqual(bytes(expected[2:15].tolist()), text[3:16].encode())

    def generate(self, prompt, length):
        """Returns the prompt and the text that the program continues it with, without chance."""
        written = subprocess.run(
            [PROGRAM, "generate", self.output / "model.safetensors", "--prompt", prompt, "--length",
             str(length), "--temperature", "0", "--json", "-"], check=True, capture_output=True)
        return prompt + json.loads(written.stdout)["text"]


class Errors(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = pathlib.Path(folder.name) / "model.safetensors"

    def refused(self, words):
        return self.assertRaisesRegex(ValueError, f"(?s){words}")

    def test_files_that_are_missing_or_damaged(self):
        with self.assertRaises(FileNotFoundError):
            models.load_model(self.file)
        with self.assertRaises(FileNotFoundError):
            models.load_model(self.file.parent)
        self.file.write_bytes(b"not safetensors")
        with self.refused("model.safetensors cannot be read"):
            models.load_model(self.file)

    def test_files_of_other_programs(self):
        save_file({"weight": torch.ones(3)}, self.file)
        with self.refused("model.safetensors does not describe a model"):
            models.load_model(self.file)
        save_file({"weight": torch.ones(3)}, self.file, {"model": '"resnet"'})
        with self.refused("model.safetensors does not describe a model"):
            models.load_model(self.file)
        save_file({"weight": torch.ones(3)}, self.file, {"model": '{"name": "mlp"}'})
        with self.refused("model.safetensors does not hold its model.*hidden.weight"):
            models.load_model(self.file)

    def test_descriptions_that_no_model_has(self):
        with self.refused('no model "vgg" for images; there are convnet, mlp, resnet'):
            models.make_model({"name": "vgg"})
        with self.refused('no model "mlp" for texts; there are transformer, gpt'):
            models.make_model({"name": "mlp"}, context=8)
        with self.refused('"mlp" has no channels; it has hidden, dropout'):
            models.make_model({"name": "mlp", "channels": 3})


if __name__ == "__main__":
    unittest.main()
