#include "gradwire/gradient/coded_averager.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/gradient/averager_state.h"
#include "gradwire/gradient/coded_averager_piece.h"
#include "gradwire/gradient/error_feedback.h"

namespace gradwire {
namespace {

class CodedAverager final : public CodecAverager {
 public:
  CodedAverager(std::shared_ptr<Communicator> communicator, std::vector<BucketShape> shapes,
                const CodecSpec& spec, const AveragerOptions& options);
  ~CodedAverager() override { stop(); }

  void end_step() override;
  std::vector<State> state() override;
  void load_state(const std::vector<SavedState>& saved) override;
  std::string describe() const override;

 protected:
  bool is_ready() const override { return codecs_.has_value(); }
  std::size_t pieces_of(std::size_t bucket) const override { return pieces_[bucket].size(); }
  void begin_coded(std::size_t bucket) override;
  void apply_residuals(std::size_t bucket, std::span<float> gradients) override {
    feedback_.apply_residuals(bucket, gradients, communicator().size());
  }

 private:
  /// A piece, and its position within its bucket and among all buckets.
  struct Slot {
    CodedPiece piece;
    std::size_t owned_before = 0;  ///< Elements of the bucket's earlier pieces that this rank owns.
    int lane = 0;
  };

  void cut(const BucketShape& shape, bool feedback);
  void begin_step();
  void encode(std::size_t bucket, Slot& slot);
  void reduce(std::size_t bucket, Slot& slot);
  void decode(std::size_t bucket, Slot& slot);
  void store_mean(std::size_t bucket, Slot& slot);
  std::span<float> residual(std::size_t bucket);
  std::span<float> mean_residual(std::size_t bucket, const Slot& slot);
  LentSpan layout() { return {layout_.data(), layout_.size(), DataType::int64, nullptr}; }

  CodecSpec spec_;
  std::optional<CodecPair> codecs_;        ///< Of this step; if empty, gradients are sent
                                           ///< uncompressed.
  std::vector<std::vector<Slot>> pieces_;  ///< Per bucket.
  int lanes_ = 0;
  ErrorFeedback feedback_;
  std::array<std::int64_t, 3> layout_{};
  std::vector<float> scratch_;  ///< Used by the worker only.
};

CodedAverager::CodedAverager(std::shared_ptr<Communicator> communicator,
                             std::vector<BucketShape> shapes, const CodecSpec& spec,
                             const AveragerOptions& options)
    : CodecAverager(std::move(communicator), std::move(shapes), options), spec_(spec) {
  const bool feedback = value_or_throw(make_codec(spec))->wants_feedback();
  layout_ = {this->communicator().size(), this->communicator().rank(), 0};
  for (const BucketShape& shape : buckets()) cut(shape, feedback);
  reserve_lanes(static_cast<std::size_t>(lanes_));
  begin_step();
}

void CodedAverager::cut(const BucketShape& shape, bool feedback) {
  std::vector<Slot>& slots = pieces_.emplace_back();
  std::vector<CodedRange> owned;
  if (!shape.skip_compression) {
    const Rank self = communicator().rank();
    std::size_t before = 0;
    const auto cut = options().reduce_scatter_only ? cut_shards_into_pieces : cut_into_pieces;
    for (CodedPieceLayout& layout :
         cut(shape.count, options().piece_elements, communicator().size())) {
      slots.push_back({CodedPiece(std::move(layout), self), before, lanes_++});
      if (!options().reduce_scatter_only) owned.push_back(slots.back().piece.own());
      before += slots.back().piece.own().count();
      Random hash(static_cast<std::uint64_t>(layout_[2]) ^ slots.back().piece.layout().all.end);
      layout_[2] = static_cast<std::int64_t>(hash.next());
    }
  }
  feedback_.add_bucket(shape, feedback && !slots.empty(), owned);
}

/// Selects the codec of this step.
void CodedAverager::begin_step() {
  if (codecs_ && step() > options().warmup_steps) return;  // The codec no longer changes.
  std::shared_ptr<const Codec> codec = codec_of_step(spec_, step(), options().warmup_steps);
  codecs_.reset();
  if (codec) codecs_.emplace(std::move(codec), communicator().size());
}

void CodedAverager::end_step() {
  CodecAverager::end_step();
  begin_step();
}

void CodedAverager::begin_coded(std::size_t bucket) {
  for (Slot& slot : pieces_[bucket]) {
    const auto lane = static_cast<std::uint64_t>(slot.lane);
    const auto step_now = static_cast<std::uint64_t>(step());
    slot.piece.begin(*codecs_, Random(Random(options().seed + step_now).next() + lane).next());
    add_task(bucket, kFirst, [this, bucket, &slot] { encode(bucket, slot); });
  }
}

void CodedAverager::encode(std::size_t bucket, Slot& slot) {
  slot.piece.encode(coded(bucket).data, residual(bucket));
  const Work work = slot.piece.exchange(communicator(), operation(bucket, slot.lane));
  add_task_after(work, bucket, kSecond, [this, bucket, &slot] {
    options().reduce_scatter_only ? store_mean(bucket, slot) : reduce(bucket, slot);
  });
}

void CodedAverager::reduce(std::size_t bucket, Slot& slot) {
  value_or_throw(slot.piece.reduce(mean_residual(bucket, slot), scratch_));
  const Work work = slot.piece.gather(communicator(), operation(bucket, slot.lane));
  add_task_after(work, bucket, kThird, [this, bucket, &slot] { decode(bucket, slot); });
}

void CodedAverager::decode(std::size_t bucket, Slot& slot) {
  value_or_throw(slot.piece.decode(coded(bucket).data));
  piece_done(bucket);
}

void CodedAverager::store_mean(std::size_t bucket, Slot& slot) {
  value_or_throw(slot.piece.store_mean(coded(bucket).data));
  piece_done(bucket);
}

std::span<float> CodedAverager::residual(std::size_t bucket) {
  return codecs_->sent->wants_feedback() ? feedback_.sent(bucket) : std::span<float>();
}

std::span<float> CodedAverager::mean_residual(std::size_t bucket, const Slot& slot) {
  if (!codecs_->mean->wants_feedback()) return {};
  const std::span<float> all = feedback_.mean(bucket);
  return all.empty() ? all : all.subspan(slot.owned_before, slot.piece.own().count());
}

std::vector<Averager::State> CodedAverager::state() {
  std::vector<State> all = feedback_.state();
  all.push_back({"codec.step", {&step(), 1, DataType::int64, nullptr}});
  all.push_back({"codec.layout", layout()});
  return all;
}

void CodedAverager::load_state(const std::vector<SavedState>& saved) {
  std::vector<State> live = state();
  live.pop_back();  // The layout is not restored.
  const char* dropped = options().reduce_scatter_only ? "" : ".mean";
  load_averager_state(live, without_other_layouts(saved, layout(), dropped));
  codecs_.reset();
  begin_step();
}

std::string CodedAverager::describe() const {
  const std::string warming =
      step() < options().warmup_steps
          ? fmt::format(", after {} more steps of warm-up", options().warmup_steps - step())
          : "";
  return fmt::format("{}: {}{}", spec_.text(), spec_.entry->summary, warming);
}

}  // namespace

std::unique_ptr<CodecAverager> coded_averager(std::shared_ptr<Communicator> communicator,
                                              std::vector<BucketShape> buckets,
                                              const CodecSpec& spec,
                                              const AveragerOptions& options) {
  return std::make_unique<CodedAverager>(std::move(communicator), std::move(buckets), spec,
                                         options);
}

}  // namespace gradwire
