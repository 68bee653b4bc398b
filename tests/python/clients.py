"""Third-party training loops over gradwire: Hugging Face's accelerate and Trainer, Lightning.

    clients.py accelerate|transformers|lightning

Each is used as documented, in two processes started by torchrun, after
init_process_group("gradwire"). `make clients` installs them into a separate virtual environment and
runs all three."""

import faulthandler
import importlib.metadata
import os
import subprocess
import sys
import tempfile
import unittest

import torch
import torch.distributed as dist

SAMPLES, FEATURES = 24, 6
LIMIT = 240  # Seconds.


class Numbers(torch.utils.data.Dataset):
    """Samples of a linear function, which a linear model can learn."""

    def __init__(self):
        generator = torch.Generator().manual_seed(3)
        self.inputs = torch.randn(SAMPLES, FEATURES, generator=generator)
        self.targets = self.inputs.sum(1, keepdim=True)

    def __len__(self):
        return SAMPLES

    def __getitem__(self, i):
        return {"x": self.inputs[i], "labels": self.targets[i]}


class Model(torch.nn.Module):
    """A dictionary with the loss, as Trainer requires."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(dist.get_rank())  # DDP broadcasts rank 0's parameters.
        self.linear = torch.nn.Linear(FEATURES, 1)

    def forward(self, x, labels):
        outputs = self.linear(x)
        return {"loss": torch.nn.functional.mse_loss(outputs, labels), "logits": outputs}


class Client(unittest.TestCase):
    def setUp(self):
        import gradwire

        self.backend = gradwire.backend_of()
        self.before = self.backend.bytes_sent
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def check(self, model, losses):
        """Checks that the loss decreased and that all ranks have the same model, over gradwire."""
        self.assertLess(losses[-1], losses[0] / 2)
        mine = torch.cat([p.detach().reshape(-1) for p in model.parameters()])
        all_of_them = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
        sent = self.backend.bytes_sent - self.before
        dist.all_gather(all_of_them, mine)
        for each in all_of_them:
            self.assertTrue(torch.equal(each, mine))
        self.assertGreater(sent, mine.nbytes)


class Accelerate(Client):
    def test_a_loop(self):
        from accelerate import Accelerator

        accelerator = Accelerator(cpu=True)
        self.assertEqual(accelerator.num_processes, dist.get_world_size())
        model = Model()
        loader = torch.utils.data.DataLoader(Numbers(), batch_size=4)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        self.assertEqual(len(loader), SAMPLES // 4 // dist.get_world_size())
        losses = []
        for _ in range(10):
            for batch in loader:
                optimizer.zero_grad()
                loss = model(**batch)["loss"]
                accelerator.backward(loss)
                optimizer.step()
            losses.append(accelerator.reduce(loss.detach(), "mean").item())
        self.check(model, losses)
        seen = [accelerator.gather_for_metrics(batch["labels"]) for batch in loader]
        self.assertEqual(torch.cat(seen).sort(0).values.tolist(),
                         Numbers().targets.sort(0).values.tolist())
        folder = [self.folder]
        dist.broadcast_object_list(folder)
        accelerator.save_state(folder[0])
        accelerator.wait_for_everyone()  # Rank 0 writes.
        parameters = [p.detach().clone() for p in model.parameters()]
        for p in model.parameters():
            p.data.zero_()
        accelerator.load_state(folder[0])
        self.assertTrue(all(map(torch.equal, model.parameters(), parameters)))
        accelerator.wait_for_everyone()


class Transformers(Client):
    def trained(self, folder, epochs, resume=False):
        from transformers import Trainer, TrainingArguments

        arguments = TrainingArguments(
            output_dir=folder, use_cpu=True, num_train_epochs=epochs, report_to=[],
            per_device_train_batch_size=4, learning_rate=0.1, lr_scheduler_type="constant",
            logging_steps=1, save_strategy="epoch", disable_tqdm=True)
        self.assertEqual(arguments.world_size, dist.get_world_size())
        trainer = Trainer(model=Model(), args=arguments, train_dataset=Numbers(),
                          eval_dataset=Numbers())
        trainer.train(resume_from_checkpoint=resume or None)
        return trainer

    def test_trainer(self):
        folder = [self.folder]
        dist.broadcast_object_list(folder)
        trainer = self.trained(folder[0], epochs=10)
        losses = [each["loss"] for each in trainer.state.log_history if "loss" in each]
        if dist.get_rank() == 0:
            self.assertEqual(len(losses), trainer.state.global_step)
        held = [losses]
        dist.broadcast_object_list(held)
        self.check(trainer.model, held[0])
        self.assertLess(trainer.evaluate()["eval_loss"], held[0][0] / 2)
        dist.barrier()
        again = self.trained(folder[0], epochs=11, resume=True)
        self.assertEqual(again.state.global_step, trainer.state.global_step * 11 // 10)
        dist.barrier()


class Lightning(Client):
    def test_trainer(self):
        import lightning
        from lightning.pytorch.strategies import DDPStrategy

        class Module(lightning.LightningModule):
            def __init__(self):
                super().__init__()
                self.model, self.losses = Model(), []

            def training_step(self, batch):
                loss = self.model(**batch)["loss"]
                self.log("loss", loss, sync_dist=True, on_epoch=True, on_step=False)
                return loss

            def on_train_epoch_end(self):
                self.losses.append(self.trainer.callback_metrics["loss"].item())

            def configure_optimizers(self):
                return torch.optim.SGD(self.parameters(), lr=0.1)

        size = dist.get_world_size()
        trainer = lightning.Trainer(
            accelerator="cpu", devices=size, max_epochs=10, logger=False,
            strategy=DDPStrategy(process_group_backend="gradwire"), enable_checkpointing=False,
            enable_progress_bar=False, enable_model_summary=False)
        module = Module()
        trainer.fit(module, torch.utils.data.DataLoader(Numbers(), batch_size=4))
        self.assertEqual(trainer.world_size, size)
        self.assertEqual(trainer.global_step, 10 * SAMPLES // 4 // size)
        self.check(module, module.losses)


PROGRAMS = {"accelerate": Accelerate, "transformers": Transformers, "lightning": Lightning}


def be_a_rank(case):
    import gradwire  # noqa: F401: registers the backend

    faulthandler.dump_traceback_later(LIMIT, exit=True)
    dist.init_process_group("gradwire")
    result = unittest.TextTestRunner(verbosity=2).run(
        unittest.defaultTestLoader.loadTestsFromTestCase(case))
    dist.destroy_process_group()
    return 0 if result.wasSuccessful() and result.testsRun > 0 else 1


def main(package):
    try:
        print(package, importlib.metadata.version(package), flush=True)
    except importlib.metadata.PackageNotFoundError:
        return f"{package} is not installed for {sys.executable}: `make clients` does that"
    return subprocess.call(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2",
         os.path.abspath(__file__), package], env=dict(os.environ, OMP_NUM_THREADS="1"))


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in PROGRAMS:
        sys.exit(f"usage: clients.py {'|'.join(PROGRAMS)}")
    sys.exit(be_a_rank(PROGRAMS[sys.argv[1]]) if "RANK" in os.environ else main(sys.argv[1]))
