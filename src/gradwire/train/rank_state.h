#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "gradwire/train/data_parallel.h"
#include "gradwire/train/local_sgd.h"
#include "gradwire/train/loss_scaler.h"

namespace gradwire {

/// All that decides how a run goes on.
struct RunState {
  const torch::nn::Module& module;
  DataParallelCore& parallel;  ///< Optimisers, error feedback.
  LossScaler* scaler = nullptr;
  LocalSgd* local = nullptr;  ///< With it each rank has parameters of its own.
  std::string model;          ///< Its name, for readers.
};

/// Parameters and buffers.
std::vector<NamedTensor> model_tensors(const torch::nn::Module& module);

/// Copies of all that this rank needs beside the model to go on with the same bits: optimisers,
/// error feedback, local steps (with its own parameters), the loss scale, random numbers.
std::vector<NamedTensor> rank_tensors(const RunState& run);

/// Takes over what rank_tensors() of this rank gave. Throws Exception(invalid_argument) that names
/// the tensor that is missing or has another shape, and `path`, where it came from.
void load_rank_tensors(const RunState& run, const std::map<std::string, torch::Tensor>& saved,
                       const std::filesystem::path& path);

/// Gives `tensors` the values of those of the same name, behind `prefix`. Throws likewise.
void copy_into(const std::vector<NamedTensor>& tensors,
               const std::map<std::string, torch::Tensor>& saved, const std::string& prefix,
               const std::filesystem::path& path);

}  // namespace gradwire
