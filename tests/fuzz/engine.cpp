#include <algorithm>
#include <array>
#include <memory>
#include <utility>

#include "gradwire/engine/executor.h"
#include "gradwire/engine/simulated_job.h"
#include "gradwire/schedule/catalogue.h"
#include "tests/fuzz/frames.h"
#include "tests/fuzz/target.h"

/// Rank 0 of two, while rank 1 sends arbitrary bytes. An input is a byte with the number of rails,
/// followed by events: a byte for the kind, a two-byte number, and, for frames, that many bytes.
namespace gradwire::fuzz {
namespace {

enum class Happens : std::uint8_t { frames_on_0, frames_on_1, post, time, rail_breaks, goodbye };
constexpr int kKinds = 6;

constexpr Duration kTimeout = std::chrono::seconds(2);

class Ending final : public engine::Completion {
 public:
  void succeeded() override { ++successes; }
  void failed(const Error&) override { ++failures; }
  int successes = 0;
  int failures = 0;
};

/// An operation that an input can select.
struct Call {
  schedule::CollectiveSpec spec;
  const char* algorithm;
  DataType type;
  std::size_t count;
  int tag;
};

constexpr std::array<Call, 8> kCalls{{
    {{schedule::Collective::all_reduce}, "ring", DataType::float32, 4, -1},
    {{schedule::Collective::all_reduce}, "direct", DataType::int32, 64, -1},
    {{schedule::Collective::all_reduce}, "recursive_doubling", DataType::uint8, 33, -1},
    {{schedule::Collective::broadcast, 1}, "", DataType::float32, 100, -1},
    {{schedule::Collective::barrier}, "", DataType::uint8, 0, -1},
    {{schedule::Collective::point_to_point, 1, 0}, "", DataType::float32, 50, 3},
    {{schedule::Collective::point_to_point, 0, 1}, "", DataType::float32, 50, 4},
    {{schedule::Collective::point_to_point, 1, 0}, "", DataType::uint8, 5, 5},
}};

/// Its memory has exactly the required size.
class Operation {
 public:
  Operation(const Call& call, Rank self)
      : call_(call),
        memory_(call.count * size_of(call.type), std::byte{1}),
        ending_(std::make_shared<Ending>()) {
    request_.program = program_of(call, self);
    request_.fingerprint = {.collective = call.spec.collective,
                            .type = call.type,
                            .root = call.spec.root,
                            .count = call.count};
    request_.fingerprint.op = ReduceOp::max;
    request_.fingerprint.set_algorithm(request_.program->schedule.name);
    request_.input = memory_.data();
    request_.output = memory_.data();
    request_.timeout = kTimeout;
    request_.tag = call.tag;
    request_.completion = ending_;
  }

  engine::OperationRequest take() { return std::move(request_); }
  const Ending& ending() const { return *ending_; }

 private:
  /// Compiled once, because an input takes microseconds.
  static std::shared_ptr<const engine::CompiledProgram> program_of(const Call& call, Rank self) {
    static std::array<std::array<std::shared_ptr<const engine::CompiledProgram>, kCalls.size()>, 2>
        known;
    const auto index = static_cast<std::size_t>(&call - kCalls.data());
    auto& program = known[static_cast<std::size_t>(self)][index];
    if (program) return program;
    const std::string_view algorithm =
        *call.algorithm != '\0' ? std::string_view(call.algorithm)
                                : schedule::algorithm_names(call.spec.collective).front();
    program =
        engine::CompiledProgram::compile(value_or_throw(schedule::make_schedule(
                                             call.spec, algorithm, topology::Topology::uniform(2))),
                                         self);
    return program;
  }

  const Call& call_;
  std::vector<std::byte> memory_;
  std::shared_ptr<Ending> ending_;
  engine::OperationRequest request_;
};

/// Small limits, so that short inputs reach them.
engine::ExecutorOptions options() {
  return {.limits = {.segment_bytes = 64, .eager_bytes = 48, .eager_credit = 512},
          .receive_buffer_bytes = 512};
}

/// Delivers the input's bytes, and accepts all writes.
class Script final : public net::Transport {
 public:
  explicit Script(int rails) : rails_(static_cast<std::size_t>(rails)) {}

  int rails(Rank) const override { return static_cast<int>(rails_.size()); }

  Result<std::size_t> write(net::StreamId to, std::span<const ConstBytes> pieces) override {
    RailEnd& rail = at(to);
    if (rail.broken) return failure(ErrorKind::disconnected, "rank 1 has gone");
    std::size_t bytes = 0;
    for (const ConstBytes piece : pieces) {
      rail.written += string_of(piece);
      bytes += piece.size();
    }
    return bytes;
  }

  Result<std::size_t> read(net::StreamId from, std::span<const Bytes> pieces) override {
    RailEnd& rail = at(from);
    if (rail.broken && rail.coming.empty()) {
      return failure(ErrorKind::disconnected, "rank 1 has gone");
    }
    std::size_t bytes = 0;
    for (const Bytes piece : pieces) {
      const std::string_view part = rail.coming.substr(0, piece.size());
      std::ranges::copy(bytes_of(part), piece.begin());
      rail.coming.remove_prefix(part.size());
      bytes += part.size();
    }
    return bytes;
  }

  std::size_t delivered(net::StreamId to) override { return at(to).written.size() / 2; }
  void close(net::StreamId stream) override { at(stream).broken = true; }
  std::string describe(net::StreamId) const override { return "rank 1"; }

  void comes(int rail, std::string_view bytes) { at({1, rail}).coming = bytes; }
  void breaks(int rail) { at({1, rail}).broken = true; }

  /// Checks that the written bytes are whole, correctly numbered frames.
  void check_written() const {
    for (const RailEnd& rail : rails_) {
      std::string_view left = rail.written;
      for (std::uint64_t number = 0; !left.empty(); ++number) {
        fuzz::expect(left.size() >= net::kFrameHeaderBytes, "headers are written whole");
        const auto header = net::decode(bytes_of(left).first<net::kFrameHeaderBytes>());
        fuzz::expect(header && header->number == number, "frames are valid, and numbered in order");
        fuzz::expect(left.size() >= net::kFrameHeaderBytes + header->length,
                     "payloads are written whole");
        left.remove_prefix(net::kFrameHeaderBytes + header->length);
      }
    }
  }

 private:
  struct RailEnd {
    std::string_view coming;
    std::string written;
    bool broken = false;
  };
  RailEnd& at(net::StreamId stream) { return rails_[static_cast<std::size_t>(stream.rail)]; }

  std::vector<RailEnd> rails_;
};

/// One run of the rank.
class Life {
 public:
  explicit Life(int rails) : script_(rails), executor_(0, 2, options(), script_, now_) {}

  void live(Reader& input) {
    while (!input.empty()) {
      const auto what = static_cast<Happens>(input.byte() % kKinds);
      happen(what, input.number16(), input);
    }
  }

  void happen(Happens what, std::size_t number, Reader& input) {
    const int rail = static_cast<int>(what) % script_.rails(1);
    switch (what) {
      case Happens::frames_on_0:
      case Happens::frames_on_1:
        script_.comes(rail, input.take(number));
        return executor_.on_readable({1, rail}, now_);
      case Happens::post:
        if (goodbye_sent_) return;
        operations_.push_back(std::make_unique<Operation>(kCalls[number % kCalls.size()], 0));
        return executor_.post(operations_.back()->take(), now_);
      case Happens::time:
        return pass(std::chrono::milliseconds(number % 1024));
      case Happens::rail_breaks:
        script_.breaks(static_cast<int>(number) % script_.rails(1));
        return executor_.on_readable({1, static_cast<int>(number) % script_.rails(1)}, now_);
      case Happens::goodbye:
        if (executor_.is_needed() || std::exchange(goodbye_sent_, true)) return;
        return executor_.send_goodbye({ErrorKind::aborted, "the end"});
    }
  }

  /// Whatever arrived: every operation ends exactly once as time passes, and the written bytes are
  /// valid frames.
  void check() {
    pass(std::chrono::seconds(20));
    for (const auto& operation : operations_) {
      expect(operation->ending().successes + operation->ending().failures == 1,
             "every operation ends, and once");
    }
    expect(executor_.in_flight() == 0, "nothing is left under way");
    script_.check_written();
  }

  bool all_succeeded() const {
    return std::ranges::all_of(operations_,
                               [](const auto& o) { return o->ending().successes == 1; });
  }
  std::string error() const {
    return executor_.error() ? executor_.error()->message : std::string();
  }

 private:
  void pass(Duration time) {
    const Time until = now_ + time;
    for (int timers = 0; executor_.next_timer() <= until; ++timers) {
      expect(timers < 10'000, "timers do not fire for ever");
      now_ = std::max(now_, executor_.next_timer());
      executor_.on_timer(now_);
    }
    now_ = until;
  }

  Time now_{std::chrono::seconds(1)};
  Script script_;
  std::vector<std::unique_ptr<Operation>> operations_;
  engine::Executor executor_;
  bool goodbye_sent_ = false;
};

/// Records received frames.
class Recorder final : public net::Transport {
 public:
  Recorder(net::Transport& inner, std::string& record) : inner_(inner), record_(record) {}

  int rails(Rank peer) const override { return inner_.rails(peer); }
  Result<std::size_t> write(net::StreamId to, std::span<const ConstBytes> pieces) override {
    return inner_.write(to, pieces);
  }
  Result<std::size_t> read(net::StreamId from, std::span<const Bytes> pieces) override {
    const Result<std::size_t> size = inner_.read(from, pieces);
    std::string& held = held_[static_cast<std::size_t>(from.rail)];
    std::size_t left = size.value_or(0);
    for (const Bytes piece : pieces) {
      held += string_of(piece.first(std::min(left, piece.size())));
      left -= std::min(left, piece.size());
    }
    while (held.size() >= net::kFrameHeaderBytes) {
      const auto header = net::decode(bytes_of(held).first<net::kFrameHeaderBytes>());
      const std::size_t frame = net::kFrameHeaderBytes + header->length;
      if (held.size() < frame) break;
      record_ += static_cast<char>(from.rail);
      record_ += {static_cast<char>(frame % 256), static_cast<char>(frame / 256)};
      record_ += held.substr(0, frame);
      held.erase(0, frame);
    }
    return size;
  }
  std::size_t delivered(net::StreamId to) override { return inner_.delivered(to); }
  void close(net::StreamId stream) override { inner_.close(stream); }
  std::string describe(net::StreamId stream) const override { return inner_.describe(stream); }

 private:
  net::Transport& inner_;
  std::string& record_;
  std::array<std::string, 2> held_;
};

/// Returns what rank 1 really sends when both call these operations.
std::string recorded(int rails, const std::vector<std::size_t>& calls) {
  std::string input(1, static_cast<char>(rails - 1));
  std::string frames;
  const auto wrap = [&](Rank rank, net::Transport& inner) -> std::unique_ptr<net::Transport> {
    static std::string nobody_reads_this;
    return std::make_unique<Recorder>(inner, rank == 0 ? frames : nobody_reads_this);
  };
  const std::vector<net::SimHost> hosts(
      2, {.rails = std::vector<net::SimPort>(static_cast<std::size_t>(rails))});
  engine::SimulatedJob job(hosts, {0, 1}, {}, options(), wrap);
  std::vector<std::unique_ptr<Operation>> operations;
  for (const std::size_t call : calls) {
    input += {static_cast<char>(Happens::post), static_cast<char>(call), '\0'};
    for (const Rank rank : {0, 1}) {
      operations.push_back(std::make_unique<Operation>(kCalls[call], rank));
      job.executor(rank).post(operations.back()->take(), job.now());
    }
  }
  job.run(Time(std::chrono::seconds(1)), [&] {
    return std::ranges::all_of(operations,
                               [](const auto& o) { return o->ending().successes == 1; });
  });
  return input + frames;
}

/// Checks that the same input leads to the same result.
std::string checked(std::string input) {
  Reader reader(input);
  Life life(1 + reader.byte() % 2);
  life.live(reader);
  life.check();
  expect(life.all_succeeded(), "what was recorded succeeds: " + life.error());
  return input;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> all;
  for (const int rails : {1, 2}) {
    for (std::size_t call = 0; call < kCalls.size(); ++call) {
      all.push_back(checked(recorded(rails, {call})));
    }
    all.push_back(checked(recorded(rails, {0, 2, 4})));
    all.push_back(checked(recorded(rails, {7, 5, 3, 6})));
  }
  return all;
}

void repair(std::string& input) {
  std::array<std::uint64_t, 2> numbers{};
  for (std::size_t at = 1; at + 3 <= input.size();) {
    Reader head(std::string_view(input).substr(at, 3));
    const auto what = static_cast<Happens>(head.byte() % kKinds);
    const std::size_t number = head.number16();
    at += 3;
    if (what > Happens::frames_on_1) continue;
    const std::size_t size = std::min(number, input.size() - at);
    std::uint64_t& next = numbers[input[0] % 2 == 0 ? 0 : static_cast<std::size_t>(what)];
    next = seal_frames(std::span(input).subspan(at, size), next);
    at += size;
  }
}

/// Whatever a peer sends, every operation ends exactly once, and this rank's frames stay valid.
void test(std::string_view input) {
  Reader reader(input);
  Life life(1 + reader.byte() % 2);
  life.live(reader);
  life.check();
}

}  // namespace gradwire::fuzz
