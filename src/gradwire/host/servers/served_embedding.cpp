#include "gradwire/host/servers/served_embedding.h"

#include <algorithm>
#include <cstdlib>
#include <deque>
#include <exception>
#include <optional>
#include <utility>

#include "gradwire/base/refuse.h"
#include "gradwire/comm/communicator.h"
#include "gradwire/host/servers/connect_servers.h"
#include "gradwire/servers/row_client.h"
#include "gradwire/servers/row_server.h"
#include "gradwire/servers/server_thread.h"
#include "gradwire/torch/init.h"
#include "gradwire/torch/tensor_span.h"

namespace gradwire {
namespace {

constexpr ArgumentName kRowsArgument{"ServedEmbedding", "rows", 0};
constexpr std::int64_t kGatheredRows = 1 << 18;  ///< At a time.

std::span<const std::int64_t> elements_of(const torch::Tensor& ids) {
  return {ids.data_ptr<std::int64_t>(), static_cast<std::size_t>(ids.numel())};
}

torch::Tensor contiguous_ids(const torch::Tensor& ids) {
  if (!ids.defined() || !ids.is_cpu() || ids.scalar_type() != torch::kInt64) {
    refuse("ServedEmbedding: ids must be a tensor of int64 on the CPU");
  }
  return ids.contiguous();
}

/// The rows of all elements of a batch.
torch::Tensor rows_of_batch(const torch::Tensor& rows, const servers::DistinctIds& distinct,
                            const torch::Tensor& ids) {
  const auto places = torch::tensor(distinct.positions, torch::kInt64);
  std::vector<std::int64_t> sizes = ids.sizes().vec();
  sizes.push_back(rows.size(1));
  return rows.index_select(0, places).view(sizes);
}

servers::RowLayout layout_of(const servers::Placement& placement,
                             const ServedEmbeddingOptions& options) {
  return {.placement = placement,
          .rows = {.rows = options.rows,
                   .width = options.width,
                   .seed = options.seed,
                   .optimizer = options.optimizer,
                   .learning_rate = options.learning_rate},
          .staleness = options.staleness};
}

/// Those of torch::optim::Adagrad.
void torch_square_roots(std::span<float> numbers) {
  const auto count = static_cast<std::int64_t>(numbers.size());
  torch::from_blob(numbers.data(), {count}, torch::kFloat32).sqrt_();
}

template <class T>
std::vector<T> vector_of(const torch::Tensor& tensor) {
  const torch::Tensor flat = tensor.contiguous();
  return {flat.data_ptr<T>(), flat.data_ptr<T>() + flat.numel()};
}

}  // namespace

class ServedEmbedding::Impl {
 public:
  Impl(const ProcessGroup& group, const ServedEmbeddingOptions& options,
       const std::function<void()>& after_serving)
      : group_(group) {
    if (!group) refuse("ServedEmbedding: no process group; pass gradwire::init()");
    servers::check(layout_of({}, options).rows);
    initialize_vector_math();
    const ServersPlace place = connect_servers(group, options.servers);
    pairs_ = place.pairs;
    const servers::RowLayout layout = layout_of(place.placement, options);
    if (place.server >= 0) serve(place, layout, after_serving);
    try {
      client_.emplace(pairs_, layout);
    } catch (const std::exception& e) {
      pairs_->abort(e.what());  // A server beside this worker would wait for it.
      throw;
    }
  }

  ~Impl() {
    try {
      if (std::uncaught_exceptions() == 0) {
        leave();
      } else if (!left_) {
        pairs_->abort("its worker has failed");  // A server beside this worker would wait for it.
      }
    } catch (const std::exception& e) {
      pairs_->abort(e.what());
    }
  }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  void prefetch(const torch::Tensor& given) {
    LookedUp batch{.ids = contiguous_ids(given)};
    batch.distinct = distinct(batch.ids);
    batch.rows = torch::empty({static_cast<std::int64_t>(batch.distinct->ids.size()), width()});
    batch.arrival = client_->look_up(batch.distinct, lend(batch.rows, kRowsArgument));
    ahead_.push_back(std::move(batch));
  }

  torch::Tensor look_up(const torch::Tensor& given) {
    if (used_) refuse("ServedEmbedding: call step() after the backward of each batch");
    if (ahead_.empty()) prefetch(given);
    if (!ahead_.front().ids.equal(given)) {
      refuse("ServedEmbedding: these ids are not those that were prefetched next");
    }
    used_ = std::move(ahead_.front());
    ahead_.pop_front();
    used_->arrival.wait();
    used_->rows.set_requires_grad(true);
    return rows_of_batch(used_->rows, *used_->distinct, used_->ids);
  }

  void step() {
    if (!used_) refuse("ServedEmbedding: step() without a batch");
    const LookedUp batch = *std::exchange(used_, std::nullopt);
    torch::Tensor gradient = batch.rows.grad();
    if (!gradient.defined()) {  // The others wait for this worker's part of the step.
      client_->update(std::make_shared<servers::DistinctIds>(distinct_of_none()), {}, rate_);
      return;
    }
    gradient = gradient.contiguous();
    client_->update(batch.distinct, lend(gradient, kRowsArgument), rate_);
  }

  torch::Tensor read(const torch::Tensor& given) {
    const torch::NoGradGuard no_grad;
    const torch::Tensor ids = contiguous_ids(given);
    const auto found = distinct(ids);
    const torch::Tensor rows =
        torch::empty({static_cast<std::int64_t>(found->ids.size()), width()});
    client_->read(*found, {rows.data_ptr<float>(), static_cast<std::size_t>(rows.numel())});
    return rows_of_batch(rows, *found, ids);
  }

  torch::Tensor gather() {
    std::vector<torch::Tensor> parts;
    for (std::int64_t begin = 0; begin < rows(); begin += kGatheredRows) {
      parts.push_back(
          read(torch::arange(begin, std::min(begin + kGatheredRows, rows()), torch::kInt64)));
    }
    return torch::cat(parts);
  }

  ServedRows made() {
    const servers::MadeRows all = client_->made();
    return {.ids = torch::tensor(all.ids, torch::kInt64),
            .values = torch::tensor(all.values).view({-1, width()}),
            .states = torch::tensor(all.states).view({-1, width()})};
  }

  void load(const ServedRows& rows) {
    if (group_->getRank() == 0) {
      client_->put({vector_of<std::int64_t>(rows.ids), vector_of<float>(rows.values),
                    vector_of<float>(rows.states)});
    }
    sum_over_ranks(*group_, {1});
  }

  servers::RowReport report() { return client_->report(); }
  std::size_t payload_bytes_sent() const { return pairs_->payload_bytes_sent(); }
  std::int64_t free_permits() const { return client_->layout().staleness + 1 - client_->open(); }
  void set_rate(double rate) { rate_ = rate; }

  void leave() {
    if (std::exchange(left_, true)) return;
    for (const LookedUp& batch : ahead_) batch.arrival.wait();
    client_->leave();
    thread_.reset();
  }
  void abort(const std::string& why) {
    left_ = true;
    pairs_->abort(why);
  }

 private:
  /// A batch from its look-up to its gradients.
  struct LookedUp {
    torch::Tensor ids;  ///< The caller's.
    std::shared_ptr<const servers::DistinctIds> distinct;
    torch::Tensor rows;  ///< By distinct id. A leaf.
    Work arrival;
  };

  std::int64_t rows() const { return client_->layout().rows.rows; }
  std::int64_t width() const { return client_->layout().rows.width; }

  std::shared_ptr<servers::DistinctIds> distinct(const torch::Tensor& ids) const {
    return std::make_shared<servers::DistinctIds>(
        servers::distinct(elements_of(ids), client_->layout()));
  }
  servers::DistinctIds distinct_of_none() const { return servers::distinct({}, client_->layout()); }

  /// A server rank has nothing else to do: its program ends here.
  void serve(const ServersPlace& place, const servers::RowLayout& layout,
             const std::function<void()>& after_serving) {
    server_ =
        std::make_unique<servers::RowServer>(pairs_, place.server, layout, torch_square_roots);
    if (place.works()) {
      thread_.emplace(*pairs_, [this] { server_->run(); });
      return;
    }
    server_->run();
    leave_as_server(*pairs_, group_);
    if (after_serving) after_serving();
    std::exit(0);
  }

  ProcessGroup group_;
  std::shared_ptr<Communicator> pairs_;
  std::unique_ptr<servers::RowServer> server_;  ///< Beside this worker; may be null.
  std::optional<servers::ServerThread> thread_;
  std::optional<servers::RowClient> client_;
  std::deque<LookedUp> ahead_;    ///< Prefetched.
  std::optional<LookedUp> used_;  ///< From operator() to step().
  double rate_ = 1;
  bool left_ = false;
};

ServedEmbedding::ServedEmbedding(const ProcessGroup& group, const ServedEmbeddingOptions& options,
                                 const std::function<void()>& after_serving)
    : impl_(std::make_unique<Impl>(group, options, after_serving)) {}
ServedEmbedding::~ServedEmbedding() = default;

void ServedEmbedding::prefetch(const torch::Tensor& ids) {
  impl_->prefetch(ids);
}

torch::Tensor ServedEmbedding::operator()(const torch::Tensor& ids) {
  return torch::GradMode::is_enabled() ? impl_->look_up(ids) : impl_->read(ids);
}

void ServedEmbedding::step() {
  impl_->step();
}

void ServedEmbedding::set_rate(double rate) {
  impl_->set_rate(rate);
}

torch::Tensor ServedEmbedding::read(const torch::Tensor& ids) {
  return impl_->read(ids);
}

void ServedEmbedding::synchronize() {
  impl_->read(torch::empty({0}, torch::kInt64));
}

torch::Tensor ServedEmbedding::gather() {
  return impl_->gather();
}

ServedRows ServedEmbedding::made() {
  return impl_->made();
}

void ServedEmbedding::load(const ServedRows& rows) {
  impl_->load(rows);
}

ServedEmbeddingReport ServedEmbedding::report() {
  const servers::RowReport report = impl_->report();
  return {.made = report.made,
          .bytes = report.bytes,
          .steps = report.steps,
          .max_permits = report.max_permits,
          .mean_staleness = report.staleness.mean(),
          .max_staleness = report.staleness.max()};
}

std::size_t ServedEmbedding::payload_bytes_sent() const {
  return impl_->payload_bytes_sent();
}

std::int64_t ServedEmbedding::free_permits() const {
  return impl_->free_permits();
}

void ServedEmbedding::leave() {
  impl_->leave();
}

void ServedEmbedding::abort(const std::string& why) {
  impl_->abort(why);
}

}  // namespace gradwire
