#include "gradwire/train/gradient_reducer.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "gradwire/base/error.h"
#include "gradwire/train/graph_walk.h"

namespace gradwire {
namespace {

/// One number for each pair of element type and device, in order of appearance.
std::vector<ParameterSize> sizes_of(const std::vector<NamedTensor>& parameters) {
  std::map<std::string, int> kinds;
  std::vector<ParameterSize> sizes;
  for (const auto& [name, tensor] : parameters) {
    const auto key =
        fmt::format("{} {}", torch::toString(tensor.scalar_type()), tensor.device().str());
    const auto kind = kinds.emplace(key, static_cast<int>(kinds.size())).first->second;
    sizes.push_back({tensor.nbytes(), kind});
  }
  return sizes;
}

}  // namespace

GradientReducer::GradientReducer(ProcessGroup group, std::vector<NamedTensor> parameters,
                                 ReducerOptions options)
    : group_(std::move(group)), parameters_(std::move(parameters)), options_(std::move(options)) {
  average_ = std::ranges::all_of(parameters_, [this](const auto& parameter) {
    return can_average(*group_, parameter.tensor.device().type());
  });
  lay_out(options_.buckets);
  add_hooks();
  touched_.assign(parameters_.size(), false);
  reset();
}

GradientReducer::~GradientReducer() {
  for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

void GradientReducer::lay_out(const BucketLimits& limits) {
  places_.resize(parameters_.size());
  for (const auto& members : plan_buckets(sizes_of(parameters_), limits)) {
    std::vector<torch::Tensor> tensors;
    for (const auto index : members) {
      places_[index] = {buckets_.size(), tensors.size()};
      tensors.push_back(parameters_[index].tensor);
    }
    buckets_.emplace_back(tensors);
  }
}

void GradientReducer::add_hooks() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    auto accumulator = torch::autograd::impl::grad_accumulator(parameters_[i].tensor);
    auto hook = [this, i](const auto& outputs, const auto&) {
      on_gradient(i);
      return outputs;
    };
    hooks_.push_back(accumulator->add_post_hook(
        std::make_unique<torch::autograd::utils::LambdaPostHook>(std::move(hook))));
    accumulators_.push_back(std::move(accumulator));
  }
}

void GradientReducer::prepare(const std::vector<torch::Tensor>& outputs, bool synchronise) {
  const std::lock_guard lock(mutex_);
  require_complete();
  expecting_ = synchronise && !parameters_.empty();
  if (!expecting_ || !options_.find_unused) return;
  walk_graph(outputs, reachable_);
  // Nothing of this rank's backward would then ever tell the others that it has nothing to add.
  const bool no_backward = std::ranges::none_of(
      accumulators_, [this](const auto& node) { return reachable_.contains(node.get()); });
  if (no_backward) {
    start();
    finish();
  }
}

void GradientReducer::require_complete() const {
  if (!started_) return;
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!ready_[i]) missing.push_back(parameters_[i].name);
  }
  fail(
      ErrorKind::invalid_argument,
      fmt::format("the last backward ended before its gradients were averaged{}{}. If forward does "
                  "not use every parameter each time, set find_unused_parameters; if backward "
                  "threw, do not go on with this DataParallel",
                  missing.empty() ? "" : "; it gave none to: ", fmt::join(missing, ", ")));
}

void GradientReducer::fail(ErrorKind kind, const std::string& message) const {
  const auto text = fmt::format("rank {}: DataParallel: {}", group_->getRank(), message);
  abort_group(*group_, text);
  throw Exception(kind, text);
}

void GradientReducer::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  const torch::NoGradGuard no_grad;
  touched_[parameter] = true;
  if (!expecting_) return;
  if (!started_) start();
  mark_ready(parameter);
  if (next_bucket_ == buckets_.size()) {
    torch::autograd::Engine::get_default_engine().queue_callback([this] {
      const std::lock_guard callback_lock(mutex_);
      finish();
    });
  }
}

void GradientReducer::start() {
  started_ = true;
  if (!options_.find_unused) return;
  for (const auto parameter : unused()) mark_ready(parameter);
}

std::vector<std::size_t> GradientReducer::unused() const {
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!reachable_.contains(accumulators_[i].get())) found.push_back(i);
  }
  return found;
}

void GradientReducer::mark_ready(std::size_t parameter) {
  if (ready_[parameter]) {
    fail(ErrorKind::invalid_argument,
         fmt::format(
             "parameter '{}' got a second gradient in one backward pass, after the first had "
             "been sent. Call forward before each backward, and pass everything that backward "
             "starts from through forward's result",
             parameters_[parameter].name));
  }
  ready_[parameter] = true;
  fill(parameter);
  --flights_[places_[parameter].bucket].missing;
  launch_full_buckets();
}

void GradientReducer::fill(std::size_t parameter) {
  const auto [bucket_index, position] = places_[parameter];
  auto& bucket = buckets_[bucket_index];
  auto& gradient = parameters_[parameter].tensor.mutable_grad();
  if (gradient.defined() && gradient.layout() != torch::kStrided) {
    fail(ErrorKind::unsupported,
         fmt::format("the gradient of '{}' is sparse; build its layer with sparse = false",
                     parameters_[parameter].name));
  }
  // A gradient that nobody on any rank adds to must stay as it is: out of the bucket with it.
  if (!touched_[parameter] && bucket.holds(gradient, position)) gradient = gradient.clone();
  bucket.put(gradient, position, average_ ? 1.0 : 1.0 / group_->getSize());
  if (touched_[parameter]) gradient = bucket.view(position);
}

void GradientReducer::launch_full_buckets() {
  while (next_bucket_ < buckets_.size() && flights_[next_bucket_].missing == 0) {
    launch(next_bucket_++);
    if (next_bucket_ == buckets_.size() && options_.find_unused) launch_usage();
  }
}

void GradientReducer::launch(std::size_t bucket) {
  c10d::AllreduceOptions options;
  options.reduceOp = average_ ? c10d::ReduceOp::AVG : c10d::ReduceOp::SUM;
  std::vector<torch::Tensor> tensors{buckets_[bucket].flat()};
  try {
    flights_[bucket].work = group_->allreduce(tensors, options);
  } catch (const std::exception& error) {
    abort_group(*group_, error.what());
    throw;
  }
  stats_.bytes += buckets_[bucket].bytes();
  ++stats_.operations;
}

void GradientReducer::launch_usage() {
  usage_ = torch::zeros({static_cast<std::int64_t>(parameters_.size())}, torch::kInt32);
  auto* used = usage_.data_ptr<std::int32_t>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) used[i] = touched_[i] ? 1 : 0;
  std::vector<torch::Tensor> tensors{usage_};
  usage_work_ = group_->allreduce(tensors);
  ++stats_.operations;
}

void GradientReducer::finish() {
  const torch::NoGradGuard no_grad;
  wait_for_all();
  adopt_averages();
  ++stats_.synchronised;
  touched_.assign(parameters_.size(), false);
  reset();
}

void GradientReducer::wait_for_all() {
  const auto begin = options_.clock->now();
  for (auto& flight : flights_) flight.work->wait();
  if (usage_work_) usage_work_->wait();
  stats_.exposed += options_.clock->now() - begin;
}

void GradientReducer::adopt_averages() {
  const auto* users = usage_.defined() ? usage_.data_ptr<std::int32_t>() : nullptr;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (users != nullptr && users[i] == 0) continue;
    const auto [bucket, position] = places_[i];
    parameters_[i].tensor.mutable_grad() = buckets_[bucket].view(position);
  }
}

void GradientReducer::reset() {
  expecting_ = false;
  started_ = false;
  next_bucket_ = 0;
  flights_.assign(buckets_.size(), {});
  for (const auto& place : places_) ++flights_[place.bucket].missing;
  ready_.assign(parameters_.size(), false);
  reachable_.clear();
  usage_work_ = nullptr;
  usage_.reset();
}

}  // namespace gradwire
