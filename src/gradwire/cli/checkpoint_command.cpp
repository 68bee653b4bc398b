#include <filesystem>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "gradwire/base/error.h"
#include "gradwire/base/units.h"
#include "gradwire/checkpoint/checkpoint_folder.h"
#include "gradwire/checkpoint/checkpoint_reader.h"
#include "gradwire/checkpoint/consolidate.h"
#include "gradwire/checkpoint/safetensors_header.h"
#include "gradwire/cli/command_line.h"
#include "gradwire/cli/commands.h"

namespace gradwire::cli {
namespace {

namespace fs = std::filesystem;

struct Options {
  std::string folder;
  std::string output = "model.safetensors";
  bool with_optimizer = false;
  bool verify = false;
};

int write_consolidated(const Options& options) {
  const checkpoint::CheckpointReader checkpoint(checkpoint::find_checkpoint(options.folder));
  const auto done = checkpoint::consolidate(checkpoint, options.output, options.with_optimizer);
  fmt::print("{}: {} tensors, {}, after {} steps\n", options.output, done.tensors,
             format_bytes(done.bytes), checkpoint.manifest().step);
  return 0;
}

/// Returns the folder of checkpoints, given one of them, itself, or a run's output folder.
fs::path folder_of(const fs::path& path) {
  if (fs::exists(path / checkpoint::kManifestName)) return path.parent_path();
  return fs::is_directory(path / "checkpoints") ? path / "checkpoints" : path;
}

int list(const Options& options) {
  const auto folder = folder_of(options.folder);
  const auto found = checkpoint::list_checkpoints(folder);
  if (found.empty())
    checkpoint::find_checkpoint(options.folder);  // Throws, naming what is there instead.
  fmt::print("{:>9} {:>6} {:>10}  checkpoint\n", "step", "ranks", "size");
  for (const auto& one : found) {
    if (one.damage.empty()) {
      fmt::print("{:>9} {:>6} {:>10}  {}\n", one.step, one.ranks, format_bytes(one.bytes),
                 one.path.string());
    } else {
      fmt::print("{:>9} {:>6} {:>10}  {}\n", "-", "-", "damaged", one.damage);
    }
  }
  checkpoint::find_checkpoint(
      folder);  // Throws if one is damaged, with the remedy, as for resuming.
  return 0;
}

void print_tensors(const checkpoint::Manifest& manifest) {
  for (const auto& tensor : manifest.tensors) {
    fmt::print("  {:<40} {:<5} [{}] in {}\n", tensor.name, tensor.type,
               fmt::join(tensor.shape, ", "),
               tensor.pieces.size() == 1 ? manifest.files[tensor.pieces[0].file].name
                                         : fmt::format("{} pieces", tensor.pieces.size()));
  }
}

int show(const Options& options) {
  const auto path = checkpoint::find_checkpoint(options.folder);
  const auto manifest = checkpoint::read_manifest(path);
  fmt::print("{}\nstep      {}\nranks     {}\nmodel     {}\nrun       {}\n", path.string(),
             manifest.step, manifest.ranks(), manifest.model, manifest.run);
  for (const auto& file : manifest.files) {
    fmt::print("file      {}, {}, CRC-32C {:08x}\n", file.name, format_bytes(file.bytes), file.crc);
  }
  fmt::print("tensors   {}\n", manifest.tensors.size());
  print_tensors(manifest);
  if (!options.verify) return 0;
  checkpoint::CheckpointReader(path).verify();
  fmt::print("verified  the checksums of all files match\n");
  return 0;
}

void declare_options(CLI::App& app, Options& options) {
  const char* folder =
      "a checkpoint; or a folder of checkpoints or a run's output folder, for the newest one";
  app.require_subcommand(1);
  auto* consolidated =
      app.add_subcommand("consolidate", "Merges a checkpoint into one safetensors file");
  consolidated->add_option("folder", options.folder, folder)->required();
  consolidated->add_option("-o,--output", options.output, "file to write")->capture_default_str();
  consolidated->add_flag("--with-optimizer", options.with_optimizer,
                         "also write the optimizer's states, as optimizer.STATE.PARAMETER");
  auto* listed = app.add_subcommand("list", "Lists the complete checkpoints, the newest last");
  listed->add_option("folder", options.folder, folder)->required();
  auto* shown = app.add_subcommand("show", "Shows the content of a checkpoint");
  shown->add_option("folder", options.folder, folder)->required();
  shown->add_flag("--verify", options.verify, "verify the checksums of all files");
}

}  // namespace

int checkpoint_command(int argc, char** argv) {
  CLI::App app("Lists and shows checkpoints of training runs, and merges one into a single file",
               "gradwire checkpoint");
  Options options;
  declare_options(app, options);
  if (const auto status = parse_command_line(app, argc, argv)) return *status;
  if (app.got_subcommand("consolidate")) return write_consolidated(options);
  return app.got_subcommand("list") ? list(options) : show(options);
}

}  // namespace gradwire::cli
