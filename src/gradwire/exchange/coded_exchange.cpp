#include "gradwire/exchange/coded_exchange.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "gradwire/base/random.h"
#include "gradwire/exchange/coded_piece.h"
#include "gradwire/exchange/error_feedback.h"
#include "gradwire/exchange/exchange_state.h"

namespace gradwire::exchange {
namespace {

/// Factor of the fraction from one part of the warm-up to the next.
constexpr double kDecay = 0.25;

class CodedExchange final : public CompressedExchange {
 public:
  CodedExchange(std::unique_ptr<Exchange> plain, std::shared_ptr<Communicator> communicator,
                std::vector<UnitShape> shapes, const codec::CodecSpec& spec,
                const ExchangeOptions& options);
  ~CodedExchange() override { stop(); }

  void end_pass() override;
  std::vector<State> state() override;
  std::string describe() const override;

 protected:
  void restore(const std::vector<SavedState>& saved) override;
  bool is_ready() const override { return codecs_.has_value(); }
  std::size_t pieces_of(std::size_t unit) const override { return pieces_[unit].size(); }
  void begin_coded(std::size_t unit) override;
  void apply_residuals(std::size_t unit, std::span<float> gradients) override {
    feedback_.apply_residuals(unit, gradients, communicator().size());
  }

 private:
  /// A piece, and its position within its unit and among all units.
  struct Slot {
    CodedPiece piece;
    std::size_t owned_before = 0;  ///< Elements of the unit's earlier pieces that this rank owns.
    int lane = 0;
  };

  void cut(const UnitShape& shape, bool feedback);
  void begin_step();
  void encode(std::size_t unit, Slot& slot);
  void reduce(std::size_t unit, Slot& slot);
  void decode(std::size_t unit, Slot& slot);
  void store_mean(std::size_t unit, Slot& slot);
  std::span<float> residual(std::size_t unit);
  std::span<float> mean_residual(std::size_t unit, const Slot& slot);
  LentSpan layout() { return {layout_.data(), layout_.size(), DataType::int64, nullptr}; }

  codec::CodecSpec spec_;
  std::optional<CodecPair> codecs_;        ///< Codecs of this step; if empty, gradients are sent
                                           ///< uncompressed.
  std::vector<std::vector<Slot>> pieces_;  ///< Per unit.
  int lanes_ = 0;
  ErrorFeedback feedback_;
  std::array<std::int64_t, 3> layout_{};
  std::vector<float> scratch_;  ///< Used by the worker only.
};

CodedExchange::CodedExchange(std::unique_ptr<Exchange> plain,
                             std::shared_ptr<Communicator> communicator,
                             std::vector<UnitShape> shapes, const codec::CodecSpec& spec,
                             const ExchangeOptions& options)
    : CompressedExchange(std::move(plain), std::move(communicator), std::move(shapes), options),
      spec_(spec) {
  const bool feedback = value_or_throw(codec::make_codec(spec))->wants_feedback();
  layout_ = {this->communicator().size(), this->communicator().rank(), 0};
  for (const UnitShape& shape : this->units()) cut(shape, feedback);
  reserve_lanes(static_cast<std::size_t>(lanes_));
  begin_step();
}

void CodedExchange::cut(const UnitShape& shape, bool feedback) {
  std::vector<Slot>& slots = pieces_.emplace_back();
  std::vector<CodedRange> owned;
  if (!shape.skip_compression) {
    const Rank self = communicator().rank();
    std::size_t before = 0;
    const auto cut = options().sharded ? cut_shards_into_pieces : cut_into_pieces;
    for (CodedPieceLayout& layout :
         cut(shape.count, options().piece_elements, communicator().size())) {
      slots.push_back({CodedPiece(std::move(layout), self), before, lanes_++});
      if (!options().sharded) owned.push_back(slots.back().piece.own());
      before += slots.back().piece.own().count();
      Random hash(static_cast<std::uint64_t>(layout_[2]) ^ slots.back().piece.layout().all.end);
      layout_[2] = static_cast<std::int64_t>(hash.next());
    }
  }
  feedback_.add_unit(shape, feedback && !slots.empty(), owned);
}

/// Selects the codec of this step.
void CodedExchange::begin_step() {
  if (codecs_ && step() > options().warmup_steps) return;  // The codec no longer changes.
  std::shared_ptr<const codec::Codec> codec = codec_of_step(spec_, step(), options().warmup_steps);
  codecs_.reset();
  if (codec) codecs_.emplace(std::move(codec), communicator().size());
}

void CodedExchange::end_pass() {
  CompressedExchange::end_pass();
  begin_step();
}

void CodedExchange::begin_coded(std::size_t unit) {
  for (Slot& slot : pieces_[unit]) {
    const auto lane = static_cast<std::uint64_t>(slot.lane);
    const auto step_now = static_cast<std::uint64_t>(step());
    slot.piece.begin(*codecs_, mixed_seed({options().seed, step_now, lane}));
    stages().add(unit, kFirst, [this, unit, &slot] { encode(unit, slot); });
  }
}

void CodedExchange::encode(std::size_t unit, Slot& slot) {
  slot.piece.encode(coded(unit).data, residual(unit));
  const Work work = slot.piece.exchange(communicator(), operation(unit, slot.lane));
  stages().add_after(work, unit, kSecond, [this, unit, &slot] {
    options().sharded ? store_mean(unit, slot) : reduce(unit, slot);
  });
}

void CodedExchange::reduce(std::size_t unit, Slot& slot) {
  value_or_throw(slot.piece.reduce(mean_residual(unit, slot), scratch_));
  const Work work = slot.piece.gather(communicator(), operation(unit, slot.lane));
  stages().add_after(work, unit, kThird, [this, unit, &slot] { decode(unit, slot); });
}

void CodedExchange::decode(std::size_t unit, Slot& slot) {
  value_or_throw(slot.piece.decode(coded(unit).data));
  stages().piece_done(unit);
}

void CodedExchange::store_mean(std::size_t unit, Slot& slot) {
  value_or_throw(slot.piece.store_mean(coded(unit).data));
  stages().piece_done(unit);
}

std::span<float> CodedExchange::residual(std::size_t unit) {
  return codecs_->sent->wants_feedback() ? feedback_.sent(unit) : std::span<float>();
}

std::span<float> CodedExchange::mean_residual(std::size_t unit, const Slot& slot) {
  if (!codecs_->mean->wants_feedback()) return {};
  const std::span<float> all = feedback_.mean(unit);
  return all.empty() ? all : all.subspan(slot.owned_before, slot.piece.own().count());
}

std::vector<Exchange::State> CodedExchange::state() {
  std::vector<State> all = feedback_.state();
  all.push_back({"codec.step", {&step(), 1, DataType::int64, nullptr}});
  all.push_back({"codec.layout", layout()});
  return all;
}

void CodedExchange::restore(const std::vector<SavedState>& saved) {
  std::vector<State> live = state();
  live.pop_back();  // The layout is not restored.
  const char* dropped = options().sharded ? "" : ".mean";
  load_exchange_state(live, without_other_layouts(saved, layout(), dropped));
  codecs_.reset();
  begin_step();
}

std::string CodedExchange::describe() const {
  const std::string warming =
      step() < options().warmup_steps
          ? fmt::format(", after {} more steps of warm-up", options().warmup_steps - step())
          : "";
  return fmt::format("{}: {}{}", spec_.text(), spec_.entry->summary, warming);
}

}  // namespace

std::unique_ptr<CompressedExchange> coded_exchange(std::unique_ptr<Exchange> plain,
                                                   std::shared_ptr<Communicator> communicator,
                                                   std::vector<UnitShape> units,
                                                   const codec::CodecSpec& spec,
                                                   const ExchangeOptions& options) {
  return std::make_unique<CodedExchange>(std::move(plain), std::move(communicator),
                                         std::move(units), spec, options);
}

std::unique_ptr<codec::Codec> codec_of_step(const codec::CodecSpec& spec, std::int64_t step,
                                            int warmup_steps) {
  if (step >= warmup_steps) return value_or_throw(codec::make_codec(spec));
  if (spec.entry->parameter.name != "FRACTION") return nullptr;
  std::int64_t parts = 0;  // Parts with a larger fraction than the codec's own.
  for (double f = kDecay; f > spec.parameter; f *= kDecay) ++parts;
  codec::CodecSpec now = spec;
  double fraction = kDecay;
  for (std::int64_t part = step * parts / warmup_steps; part > 0; --part) fraction *= kDecay;
  now.parameter = std::clamp(fraction, spec.parameter, spec.entry->parameter.high);
  return value_or_throw(codec::make_codec(now));
}

}  // namespace gradwire::exchange
