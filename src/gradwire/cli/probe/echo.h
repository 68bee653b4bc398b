#pragma once

#include <array>
#include <atomic>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "gradwire/base/bytes.h"
#include "gradwire/net/datagram.h"

namespace gradwire {

/// What a datagram must begin with to be answered: strangers get no answer.
using EchoToken = std::array<std::byte, 16>;

/// Of a text of 16 characters: random_hex(8) is one that nobody guesses.
EchoToken echo_token(std::string_view text);

/// Answers datagrams, on a thread of its own: with what they begin with and their size, never with
/// more than came.
class Echo {
 public:
  static constexpr std::size_t kBytes = 16 + 8;  ///< Of an answer, and the least of a question.

  Echo(std::vector<Socket> sockets, EchoToken token);
  ~Echo();
  Echo(const Echo&) = delete;
  Echo& operator=(const Echo&) = delete;

  /// Where it answers, in the order of the sockets.
  const std::vector<SocketAddress>& addresses() const { return addresses_; }

 private:
  void run();
  void answer_all(const Socket& socket);

  std::vector<Socket> sockets_;
  EchoToken token_;
  std::vector<SocketAddress> addresses_;
  Socket stop_;
  std::thread thread_;
};

/// Questions to an Echo, and how many of them have had no answer.
struct LossSample {
  int asked = 0;
  int lost = 0;

  double part() const { return asked == 0 ? 0 : static_cast<double>(lost) / asked; }
};

/// As many questions as show a loss of 1 % each way for certain: some forty of these are then lost.
inline constexpr int kLossQuestions = 2000;

/// Asks one Echo.
class EchoClient {
 public:
  /// `from`: the local address to send from; `interface`: to leave by that alone, unless empty.
  static Result<EchoClient> create(const SocketAddress& from, const std::string& interface,
                                   const SocketAddress& to, EchoToken token);

  /// Whether a packet of so many bytes, IP header and all, is answered within `patience`; sends it
  /// up to `tries` times. Errors: those of send_datagram.
  Result<bool> passes(std::size_t packet, int tries, Duration patience);

  /// The largest packet, up to `mtu` bytes, that is answered; 0 if none is.
  Result<std::size_t> largest_packet(std::size_t mtu);

  /// How many packets of this size are never answered, of so many questions; of fewer where a
  /// second does not suffice, or it is clear sooner that many get lost. Asks a few at a time, so
  /// that neither a long way nor losses make the sample small. Late answers count, as hosts may be
  /// busy.
  Result<LossSample> loss(std::size_t packet, int questions = kLossQuestions);

 private:
  EchoClient(Socket socket, const SocketAddress& to, EchoToken token);
  /// Errors: those of send_datagram.
  Result<DatagramSent> ask(std::size_t packet);
  /// Takes the answers that are there; whether one is to question number `first` or a later one.
  bool take_answers(std::uint32_t first);
  /// Until one comes to question number `first` or a later one.
  bool wait_for_answer(std::uint32_t first, Duration patience);

  Socket socket_;
  SocketAddress to_;
  EchoToken token_;
  std::uint32_t number_ = 0;         ///< Of the last question.
  std::set<std::uint32_t> missing_;  ///< Questions that have no answer yet.
};

}  // namespace gradwire
