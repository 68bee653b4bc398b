#pragma once

#include <map>
#include <vector>

#include "gradwire/base/random.h"
#include "gradwire/net/transport.h"

namespace gradwire::test {

/// Forwards all calls, and counts those that moved bytes.
class CountingTransport : public net::Transport {
 public:
  explicit CountingTransport(net::Transport& inner) : inner_(inner) {}

  int rails(Rank peer) const override { return inner_.rails(peer); }
  Result<std::size_t> write(net::StreamId to, std::span<const ConstBytes> pieces) override {
    Result<std::size_t> taken = inner_.write(to, pieces);
    if (taken && *taken > 0) {
      ++writes;
      if (*taken % gso_burst_bytes(to) != 0) ++unaligned_writes;
    }
    return taken;
  }
  Result<std::size_t> read(net::StreamId from, std::span<const Bytes> pieces) override {
    Result<std::size_t> taken = inner_.read(from, pieces);
    if (taken && *taken > 0) ++reads;
    return taken;
  }
  std::size_t gso_burst_bytes(net::StreamId to) const override {
    return inner_.gso_burst_bytes(to);
  }
  std::size_t delivered(net::StreamId to) override { return inner_.delivered(to); }
  void expect(net::StreamId from, std::size_t, double share) override { shares[from.peer] = share; }
  void close(net::StreamId stream) override { inner_.close(stream); }
  std::string describe(net::StreamId stream) const override { return inner_.describe(stream); }

  int writes = 0;
  int unaligned_writes = 0;  ///< Writes that end within a GSO burst.
  int reads = 0;
  std::map<Rank, double> shares;  ///< Shares of peers, as last set.

 protected:
  net::Transport& inner_;
};

/// Exposes received bytes in place, as shared memory does, in pieces of random size, without
/// checksums.
class InPlaceTransport final : public CountingTransport {
 public:
  InPlaceTransport(net::Transport& inner, std::size_t peers, std::uint64_t seed)
      : CountingTransport(inner), random_(seed), held_(peers) {}

  bool reads_in_place(net::StreamId) const override { return true; }
  bool needs_checksums(net::StreamId) const override { return false; }

  Result<ConstBytes> peek(net::StreamId from) override {
    std::vector<std::byte>& held = held_[static_cast<std::size_t>(from.peer)];
    if (held.empty()) {
      held.resize(1 + random_.below(600));
      const Bytes room(held);
      const Result<std::size_t> size = inner_.read(from, std::span(&room, 1));
      held.resize(size ? *size : 0);
      if (!size) return tl::unexpected(size.error());
    }
    if (held.empty()) return ConstBytes();
    return ConstBytes(held).first(1 + random_.below(held.size()));
  }

  void consume(net::StreamId from, std::size_t bytes) override {
    std::vector<std::byte>& held = held_[static_cast<std::size_t>(from.peer)];
    held.erase(held.begin(), held.begin() + static_cast<std::ptrdiff_t>(bytes));
  }

 private:
  Random random_;
  std::vector<std::vector<std::byte>> held_;
};

}  // namespace gradwire::test
