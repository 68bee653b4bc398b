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

namespace gradwire::cli {

/// Prefix of every datagram; an EchoServer ignores datagrams without its token.
using EchoToken = std::array<std::byte, 16>;

/// Converts a text of 16 characters. Use random_hex(8): it cannot be guessed.
EchoToken echo_token(std::string_view text);

/// Answers datagrams on its own thread: with their prefix and size, never with more bytes than
/// received.
class EchoServer {
 public:
  /// Size of an answer, and minimum size of a question, in bytes.
  static constexpr std::size_t kBytes = 16 + 8;

  EchoServer(std::vector<net::Socket> sockets, EchoToken token);
  ~EchoServer();
  EchoServer(const EchoServer&) = delete;
  EchoServer& operator=(const EchoServer&) = delete;

  /// Addresses at which it answers, in the order of the sockets.
  const std::vector<net::SocketAddress>& addresses() const { return addresses_; }

 private:
  void run();
  void answer_all(const net::Socket& socket);

  std::vector<net::Socket> sockets_;
  EchoToken token_;
  std::vector<net::SocketAddress> addresses_;
  net::Socket stop_;
  std::thread thread_;
};

/// Questions to an EchoServer, and the number without an answer.
struct LossSample {
  int asked = 0;
  int lost = 0;

  double part() const { return asked == 0 ? 0 : static_cast<double>(lost) / asked; }
};

/// Enough questions to detect a loss of 1 % in each direction: about forty of these are then lost.
inline constexpr int kLossQuestions = 2000;

/// Sends questions to one EchoServer.
class EchoClient {
 public:
  /// `from`: local address; `interface`: interface to bind to, unless empty.
  static Result<EchoClient> create(const Clock& clock, const net::SocketAddress& from,
                                   const std::string& interface, const net::SocketAddress& to,
                                   EchoToken token);

  /// Returns true if a packet of `packet` bytes, including IP headers, is answered within
  /// `patience`; sends it up to `tries` times. Fails with the errors of send_datagram().
  Result<bool> passes(std::size_t packet, int tries, Duration patience);

  /// Returns the size of the largest packet, up to `mtu` bytes, that is answered; 0 if none is.
  Result<std::size_t> largest_packet(std::size_t mtu);

  /// Measures how many of `questions` packets of this size are never answered. Sends fewer if a
  /// second does not suffice, or once many are lost. Keeps several questions in flight, so that
  /// long latency or loss does not make the sample small. Late answers count as answers, since
  /// hosts may be busy.
  Result<LossSample> loss(std::size_t packet, int questions = kLossQuestions);

 private:
  EchoClient(const Clock& clock, net::Socket socket, const net::SocketAddress& to, EchoToken token);
  /// Fails with the errors of send_datagram().
  Result<net::DatagramSent> ask(std::size_t packet);
  /// Reads available answers; returns true if one is to question `first` or later.
  bool take_answers(std::uint32_t first);
  /// Waits for an answer to question `first` or later; returns false after `patience`.
  bool wait_for_answer(std::uint32_t first, Duration patience);

  const Clock* clock_;
  net::Socket socket_;
  net::SocketAddress to_;
  EchoToken token_;
  std::uint32_t number_ = 0;         ///< Number of the last question.
  std::set<std::uint32_t> missing_;  ///< Unanswered questions.
};

}  // namespace gradwire::cli
