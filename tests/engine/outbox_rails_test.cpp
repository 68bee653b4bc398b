#include <gtest/gtest.h>

#include "gradwire/base/random.h"
#include "gradwire/engine/links/outbox.h"
#include "tests/support/sim_collective.h"

namespace gradwire::test {
namespace {

/// Two rails that hold 64 KiB each and deliver it when told to.
class TwoRails final : public net::Transport {
 public:
  int rails(Rank) const override { return kRails; }
  Result<std::size_t> write(net::StreamId stream, std::span<const ConstBytes> pieces) override {
    Rail& rail = rails_[static_cast<std::size_t>(stream.rail)];
    std::size_t offered = 0;
    for (const ConstBytes& piece : pieces) offered += piece.size();
    rail.first.assign(pieces.front().begin(), pieces.front().begin() + net::kFrameHeaderBytes);
    const std::size_t taken = std::min(offered, kRoom - (rail.written - rail.delivered));
    rail.written += taken;
    rail.full = taken < offered;
    return taken;
  }
  Result<std::size_t> read(net::StreamId, std::span<const Bytes>) override { return 0; }
  std::size_t delivered(net::StreamId stream) override {
    return rails_[static_cast<std::size_t>(stream.rail)].delivered;
  }
  Duration round_trip(net::StreamId) const override { return std::chrono::microseconds(3); }
  void close(net::StreamId) override {}
  std::string describe(net::StreamId) const override { return "rank 1"; }

  /// Type of the first frame of the last write.
  net::FrameType first_type(int rail) const {
    const std::vector<std::byte>& bytes = rails_[static_cast<std::size_t>(rail)].first;
    return net::decode(ConstBytes(bytes).first<net::kFrameHeaderBytes>()).value().type;
  }
  /// Delivers everything that a rail has taken.
  void deliver_all(int rail, engine::Outbox& outbox) {
    Rail& r = rails_[static_cast<std::size_t>(rail)];
    r.delivered = r.written;
    if (std::exchange(r.full, false)) outbox.writable(rail);
  }
  bool any_full() const { return std::ranges::any_of(rails_, &Rail::full); }
  /// Delivers a random part of what is under way on each rail.
  void deliver(Random& random, engine::Outbox& outbox) {
    for (int i = 0; i < kRails; ++i) {
      Rail& rail = rails_[static_cast<std::size_t>(i)];
      rail.delivered += random.below(rail.written - rail.delivered + 1);
      if (std::exchange(rail.full, false)) outbox.writable(i);
    }
  }

 private:
  static constexpr int kRails = 2;
  static constexpr std::size_t kRoom = 64 * 1024;
  struct Rail {
    std::size_t written = 0;
    std::size_t delivered = 0;
    bool full = false;
    std::vector<std::byte> first;  ///< Header of the first frame of the last write.
  };
  std::array<Rail, kRails> rails_;
};

/// A broadcast from rank 0 to rank 1, which both have posted.
class Message {
 public:
  explicit Message(std::size_t count)
      : case_{.collective = schedule::Collective::broadcast,
              .algorithm = "ring",
              .ranks = 2,
              .count = count,
              .in_place = false},
        input_(case_.input_count() * sizeof(float)),
        flight_({}, -1, make_request(case_, 0, input_, output_, nullptr)) {
    flight_.peer_states.front().announced = true;
    flight_.operation.bind_scratch(nullptr);  // It needs none.
  }

  void queue(engine::Outbox& outbox) {
    std::vector<schedule::OpIndex> sends;
    flight_.operation.start(sends);
    for (const schedule::OpIndex op : flight_.operation.program().exchanges.front().sends) {
      outbox.queue_message(flight_, op, {});
    }
  }
  engine::InFlightOperation& flight() { return flight_; }
  std::size_t bytes() const { return input_.size(); }

 private:
  Case case_;
  Memory input_;
  Memory output_;
  engine::InFlightOperation flight_;
};

class SentBytes final : public engine::Outbox::Observer {
 public:
  void sent(engine::InFlightOperation&, schedule::OpIndex, std::size_t begin,
            std::size_t end) override {
    count += end - begin;
  }
  std::size_t count = 0;
};

/// Flushes as the executor does.
void flush(engine::Outbox& outbox, Time now, SentBytes& sent) {
  outbox.measure(now);
  for (std::size_t before = outbox.total_bytes() + 1; before != outbox.total_bytes();) {
    before = outbox.total_bytes();
    for (const int rail : {0, 1}) ASSERT_TRUE(outbox.flush(rail, 1 << 20, sent));
  }
}

TEST(OutboxRails, ARailWithSpaceTakesTheRestWhateverItsMeasuredRate) {
  TwoRails rails;
  engine::Outbox outbox(1, {}, rails);
  Random random(3);
  Time now{};
  for (int round = 0; round < 1000; ++round) {
    Message message(4097 + random.below(100'000));
    message.queue(outbox);
    SentBytes sent;
    for (flush(outbox, now, sent); sent.count < message.bytes(); flush(outbox, now, sent)) {
      ASSERT_TRUE(rails.any_full()) << "nothing wakes the sender, in round " << round;
      now += std::chrono::microseconds(random.below(30'000));
      rails.deliver(random, outbox);
    }
    outbox.forget(message.flight());
  }
}

/// The retransmitted announcement may arrive over the other rail behind the data on this one.
TEST(OutboxRails, ARecoveredRailRepeatsTheAnnouncement) {
  TwoRails rails;
  engine::Outbox outbox(1, {}, rails);
  SentBytes sent;
  Message message(1'000'000);
  outbox.announce(message.flight(), 0);
  message.queue(outbox);
  ASSERT_TRUE(outbox.flush(1, 1 << 20, sent));
  EXPECT_EQ(rails.first_type(1), net::FrameType::announce);

  ASSERT_TRUE(outbox.stop(1));
  ASSERT_TRUE(outbox.resend(1, 0));
  rails.deliver_all(1, outbox);
  outbox.probe(1, Time{});
  ASSERT_TRUE(outbox.flush(1, 1 << 20, sent));
  EXPECT_EQ(rails.first_type(1), net::FrameType::ping) << "a failed rail carries no data";

  rails.deliver_all(1, outbox);
  outbox.resume(1, Time{});
  outbox.reannounce(message.flight(), 1);
  ASSERT_TRUE(outbox.flush(1, 1 << 20, sent));
  EXPECT_EQ(rails.first_type(1), net::FrameType::announce);
}

}  // namespace
}  // namespace gradwire::test
