#include "gradwire/train/data_parallel/gradient_reducer.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>

#include "gradwire/gradient/trace_averager.h"
#include "gradwire/train/data_parallel/graph_walk.h"
#include "gradwire/train/data_parallel/group_averager.h"

namespace gradwire {
namespace {

constexpr const char* kDataParallel = "DataParallel";

std::string not_finite(const std::string& parameter) {
  return fmt::format(
      "the gradient of '{}' is NaN or infinite on at least one rank. Try a lower learning rate, or "
      "look for a division by zero or a logarithm of zero",
      parameter);
}

/// All live reducers: several may wrap modules that share a parameter.
struct Reducers {
  std::mutex mutex;
  std::vector<const GradientReducer*> all;
};

Reducers& reducers() {
  static Reducers those;
  return those;
}

}  // namespace

GradientReducer::GradientReducer(ProcessGroup group, std::vector<NamedTensor> parameters,
                                 ReducerOptions options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(std::move(options)),
      layout_(lay_out_buckets(parameters_, options_.buckets, options_.averager.codec != "none",
                              options_.codec_min_elements, name())),
      usage_(torch::zeros({static_cast<std::int64_t>(parameters_.size())}, torch::kFloat32)),
      global_usage_(parameters_.empty() ? usage_ : usage_.to(parameters_[0].tensor.device())),
      timings_(layout_.buckets.size()) {
  const bool average = std::ranges::all_of(parameters_, [this](const auto& parameter) {
    return can_average(*group_, parameter.tensor.device().type());
  });
  scale_ = average ? 1.0 : 1.0 / group_->getSize();
  make_bucket_averager();
  add_hooks();
  reset();
  const std::lock_guard lock(reducers().mutex);
  reducers().all.push_back(this);
}

GradientReducer::~GradientReducer() {
  {
    const std::lock_guard lock(reducers().mutex);
    std::erase(reducers().all, this);
  }
  for (std::size_t i = 0; i < accumulators_.size(); ++i) accumulators_[i]->del_post_hook(hooks_[i]);
}

ArgumentName GradientReducer::name() const {
  return {kDataParallel, "gradients", group_->getRank()};
}

void GradientReducer::make_bucket_averager() {
  auto shapes = layout_.shapes;
  std::vector<torch::Tensor> flats;
  for (const auto& bucket : layout_.buckets) flats.push_back(bucket.numbers());
  if (options_.find_unused) {
    shapes.push_back({.count = parameters_.size(), .skip_compression = true});
    flats.push_back(global_usage_);
  }
  averager_ = trace_averager(
      averager_for(kDataParallel, group_, flats, std::move(shapes), options_.averager),
      options_.trace);
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

void GradientReducer::prepare(const std::vector<torch::Tensor>& outputs, bool synchronize) {
  settle_all();
  const std::lock_guard lock(mutex_);
  require_complete();
  awaited_ = synchronize ? Awaited::averages : Awaited::sums;
  if (!synchronize || parameters_.empty() || !options_.find_unused) return;
  for (const auto& root : graph_roots(outputs)) roots_.emplace_back(root);
  // No hook would run in this rank's backward, so it would never launch its buckets.
  if (unused().size() == parameters_.size()) {
    start();
    end_of_backward();
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
                  "threw, do not use this DataParallel any further",
                  missing.empty() ? "" : "; it gave none to: ", fmt::join(missing, ", ")));
}

void GradientReducer::fail(ErrorKind kind, const std::string& message) const {
  const auto text = fmt::format("rank {}: {}: {}", group_->getRank(), kDataParallel, message);
  abort_group(*group_, text);
  throw Exception(kind, text);
}

void GradientReducer::on_gradient(std::size_t parameter) {
  const std::lock_guard lock(mutex_);
  const torch::NoGradGuard no_grad;
  if (awaited_ == Awaited::nothing && !awaited_by_another(parameter)) refuse_gradient(parameter);
  touched_[parameter] = true;
  if (awaited_ != Awaited::averages) return;
  if (!started_) start();
  mark_ready(parameter);
  if (missing_ > 0) return;
  torch::autograd::Engine::get_default_engine().queue_callback([this] {
    const std::lock_guard callback_lock(mutex_);
    end_of_backward();
  });
}

/// Returns true if the backward belongs to another reducer that has this parameter too.
bool GradientReducer::awaited_by_another(std::size_t parameter) const {
  const std::lock_guard lock(reducers().mutex);
  return std::ranges::any_of(reducers().all, [&](const GradientReducer* other) {
    return other->awaited_ != Awaited::nothing &&
           std::ranges::find(other->accumulators_, accumulators_[parameter]) !=
               other->accumulators_.end();
  });
}

/// The gradient would be local to this rank, added to a mean, and the replicas would diverge.
void GradientReducer::refuse_gradient(std::size_t parameter) const {
  fail(ErrorKind::invalid_argument,
       fmt::format("backward produced a gradient of '{}' without a preceding forward, so it would "
                   "not be averaged. Call this DataParallel, not the wrapped module, before each "
                   "backward; add the losses of one or several forwards and call backward once; to "
                   "keep gradients local to this rank, run forward inside no_sync()",
                   parameters_[parameter].name));
}

void GradientReducer::start() {
  started_ = true;
  if (!options_.find_unused) return;
  for (const auto parameter : unused()) mark_ready(parameter);
}

std::vector<std::size_t> GradientReducer::unused() const {
  std::vector<GraphNode> roots;
  for (const auto& root : roots_) {
    if (auto alive = root.lock()) roots.push_back(std::move(alive));
  }
  const auto reachable = walk_graph(roots);
  std::vector<std::size_t> found;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (!reachable.contains(accumulators_[i].get())) found.push_back(i);
  }
  return found;
}

void GradientReducer::mark_ready(std::size_t parameter) {
  if (ready_[parameter]) {
    fail(ErrorKind::invalid_argument,
         fmt::format(
             "parameter '{}' got a second gradient in one backward pass, after the first had "
             "been sent. Call forward before each backward, and return everything that backward "
             "starts from as the result of forward",
             parameters_[parameter].name));
  }
  ready_[parameter] = true;
  fill(parameter);
  --missing_;
  --bucket_states_[layout_.places[parameter].bucket].missing;
  if (options_.overlap != Overlap::none) launch_full_buckets();
}

void GradientReducer::fill(std::size_t parameter) {
  const auto [bucket_index, position] = layout_.places[parameter];
  auto& bucket = layout_.buckets[bucket_index];
  auto& gradient = parameters_[parameter].tensor.mutable_grad();
  if (gradient.defined() && gradient.layout() != torch::kStrided) {
    fail(ErrorKind::unsupported,
         fmt::format("the gradient of '{}' is sparse; construct its layer with sparse = false",
                     parameters_[parameter].name));
  }
  if (options_.check_finite && !layout_.shapes[bucket_index].skip_compression)
    require_finite_locally(parameter);
  // A gradient that no rank adds to must stay unchanged: move it out of the bucket.
  if (!touched_[parameter] && bucket.holds(gradient, position)) gradient = gradient.clone();
  bucket.put(gradient, position, scale_);
  if (touched_[parameter]) gradient = bucket.view(position);
}

void GradientReducer::launch_full_buckets() {
  while (next_bucket_ < bucket_states_.size() && bucket_states_[next_bucket_].missing == 0) {
    launch(next_bucket_++);
    if (next_bucket_ == bucket_states_.size() && options_.find_unused) launch_usage();
  }
}

void GradientReducer::launch(std::size_t bucket) {
  const auto& numbers = layout_.buckets[bucket].numbers();
  timings_[bucket] = {.bytes = layout_.buckets[bucket].bytes(), .launched = options_.clock->now()};
  try {
    averager_->start(bucket, lent_bucket(*group_, numbers, name()), static_cast<int>(bucket));
  } catch (const std::exception& error) {
    abort_group(*group_, error.what());
    throw;
  }
  stats_.bytes += layout_.buckets[bucket].bytes();
  ++stats_.operations;
}

void GradientReducer::launch_usage() {
  auto* used = usage_.data_ptr<float>();
  for (std::size_t i = 0; i < parameters_.size(); ++i) used[i] = touched_[i] ? 1 : 0;
  global_usage_.copy_(usage_);
  averager_->start(usage_index(), lent_bucket(*group_, global_usage_, name()),
                   static_cast<int>(usage_index()));
  ++stats_.operations;
}

void GradientReducer::end_of_backward() {
  const torch::NoGradGuard no_grad;
  launch_full_buckets();
  backward_ended_ = true;
  if (options_.overlap == Overlap::full) return;
  for (std::size_t bucket = 0; bucket < bucket_states_.size(); ++bucket) settle_one(bucket);
}

bool GradientReducer::arrived(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  return !backward_ended_ || bucket_states_[bucket].settled || averager_->done(bucket);
}

void GradientReducer::settle(std::size_t bucket) {
  const std::lock_guard lock(mutex_);
  const torch::NoGradGuard no_grad;
  settle_one(bucket);
}

void GradientReducer::settle_all() {
  for (std::size_t bucket = 0; bucket < bucket_states_.size(); ++bucket) settle(bucket);
}

void GradientReducer::settle_one(std::size_t bucket) {
  if (!backward_ended_ || bucket_states_[bucket].settled) return;
  wait_for(bucket);
  bucket_states_[bucket].settled = true;
  assign_gradients(bucket);
  if (options_.check_finite) require_finite(bucket);
  if (++settled_ < bucket_states_.size()) return;
  averager_->end_step();
  ++stats_.synchronized;
  reset();
}

void GradientReducer::wait_for(std::size_t bucket) {
  auto& timing = timings_[bucket];
  timing.needed = options_.clock->now();
  averager_->wait(bucket);
  if (options_.find_unused && !usage_known_) {
    averager_->wait(usage_index());
    usage_.copy_(global_usage_);
  }
  usage_known_ = true;
  timing.ready = options_.clock->now();
  stats_.exposed += timing.ready - timing.needed;
}

void GradientReducer::assign_gradients(std::size_t bucket) {
  const auto* users = options_.find_unused ? usage_.data_ptr<float>() : nullptr;
  const auto& members = layout_.members[bucket];
  for (std::size_t position = 0; position < members.size(); ++position) {
    if (users != nullptr && users[members[position]] == 0) continue;
    parameters_[members[position]].tensor.mutable_grad() = layout_.buckets[bucket].view(position);
  }
}

/// Checks before the codec encodes: a block holds values of several parameters, and one that is not
/// finite corrupts all of them. Only this rank detects it, so it tells the others.
void GradientReducer::require_finite_locally(std::size_t parameter) const {
  const auto& [name, tensor] = parameters_[parameter];
  const auto& gradient = tensor.grad();
  if (!touched_[parameter] || !gradient.defined()) return;
  if (gradient.isfinite().all().item<bool>()) return;
  fail(ErrorKind::invalid_argument, not_finite(name));
}

void GradientReducer::require_finite(std::size_t bucket) const {
  if (layout_.buckets[bucket].flat().isfinite().all().item<bool>()) return;
  for (const auto member : layout_.members[bucket]) {
    const auto& gradient = parameters_[member].tensor.grad();
    if (!gradient.defined() || gradient.isfinite().all().item<bool>()) continue;
    // The mean is the same on every rank: each throws by itself, without communication.
    throw Exception(ErrorKind::invalid_argument,
                    fmt::format("rank {}: {}: {}", group_->getRank(), kDataParallel,
                                not_finite(parameters_[member].name)));
  }
}

void GradientReducer::reset() {
  awaited_ = Awaited::nothing;
  started_ = false;
  backward_ended_ = false;
  next_bucket_ = 0;
  settled_ = 0;
  usage_known_ = false;
  missing_ = parameters_.size();
  bucket_states_.assign(layout_.buckets.size(), {});
  for (const auto& place : layout_.places) ++bucket_states_[place.bucket].missing;
  ready_.assign(parameters_.size(), false);
  touched_.assign(parameters_.size(), false);
  roots_.clear();
}

}  // namespace gradwire
