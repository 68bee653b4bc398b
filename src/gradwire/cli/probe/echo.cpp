#include "gradwire/cli/probe/echo.h"

#include <algorithm>
#include <utility>

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/net/deadline.h"

namespace gradwire::cli {
namespace {

constexpr std::size_t kLargest = 64 * 1024;
constexpr Duration kPatience = std::chrono::milliseconds(50);
constexpr int kTries = 3;

/// Stop early after this many lost datagrams: the path is clearly bad.
constexpr std::size_t kEnoughLost = 20;

/// Maximum questions and bytes in flight: too few to overflow a buffer, even of a socket to which
/// several hosts send.
constexpr std::size_t kMaxInFlight = 8;
constexpr std::size_t kMaxBytesInFlight = 32 * 1024;

constexpr Duration kLongest = std::chrono::seconds(1);

constexpr Duration kLateAnswerTimeout = std::chrono::milliseconds(200);

}  // namespace

EchoToken echo_token(std::string_view text) {
  EchoToken token = {};
  const ConstBytes bytes = std::as_bytes(std::span(text));
  std::copy_n(bytes.begin(), std::min(bytes.size(), token.size()), token.begin());
  return token;
}

EchoServer::EchoServer(std::vector<net::Socket> sockets, EchoToken token)
    : sockets_(std::move(sockets)),
      token_(token),
      stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)),
      thread_([this] { run(); }) {
  for (const net::Socket& socket : sockets_) addresses_.push_back(net::local_address(socket));
}

EchoServer::~EchoServer() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.descriptor(), &one, sizeof one);
  thread_.join();
}

void EchoServer::run() {
  std::vector<pollfd> items{{stop_.descriptor(), POLLIN, 0}};
  for (const net::Socket& socket : sockets_) items.push_back({socket.descriptor(), POLLIN, 0});
  for (;;) {
    ::poll(items.data(), items.size(), -1);
    if (items.front().revents != 0) return;
    for (const net::Socket& socket : sockets_) answer_all(socket);
  }
}

void EchoServer::answer_all(const net::Socket& socket) {
  std::vector<std::byte> buffer(kLargest);
  while (const auto datagram = net::receive_datagram(socket, buffer)) {
    if (datagram->size < kBytes || !std::equal(token_.begin(), token_.end(), buffer.begin())) {
      continue;
    }
    store_little_endian(buffer.data() + 20, static_cast<std::uint32_t>(datagram->size));
    (void)net::send_datagram(socket, datagram->from, ConstBytes(buffer).first(kBytes));
  }
}

Result<EchoClient> EchoClient::create(const Clock& clock, const net::SocketAddress& from,
                                      const std::string& interface, const net::SocketAddress& to,
                                      EchoToken token) {
  GRADWIRE_ASSIGN_OR_RETURN(auto socket, net::bind_datagrams(from.with_port(0)));
  if (!interface.empty()) {
    GRADWIRE_RETURN_IF_ERROR(net::bind_to_interface(socket, interface));
  }
  return EchoClient(clock, std::move(socket), to, token);
}

EchoClient::EchoClient(const Clock& clock, net::Socket socket, const net::SocketAddress& to,
                       EchoToken token)
    : clock_(&clock), socket_(std::move(socket)), to_(to), token_(token) {}

Result<net::DatagramSent> EchoClient::ask(std::size_t packet) {
  const std::size_t payload = packet - std::min(packet, net::datagram_overhead(to_));
  std::vector<std::byte> question(std::max(payload, EchoServer::kBytes));
  std::ranges::copy(token_, question.begin());
  store_little_endian(question.data() + 16, ++number_);
  const auto sent = net::send_datagram(socket_, to_, question);
  if (sent && *sent == net::DatagramSent::sent) missing_.insert(number_);
  return sent;
}

Result<bool> EchoClient::passes(std::size_t packet, int tries, Duration patience) {
  const std::uint32_t first = number_ + 1;
  for (int i = 0; i < tries; ++i) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto sent, ask(packet));
    if (sent == net::DatagramSent::too_big) return false;
    if (wait_for_answer(first, patience)) return true;
  }
  return false;
}

bool EchoClient::take_answers(std::uint32_t first) {
  std::array<std::byte, EchoServer::kBytes> answer;
  bool fits = false;
  while (const auto datagram = net::receive_datagram(socket_, answer)) {
    if (datagram->size != EchoServer::kBytes || !(datagram->from == to_)) continue;
    const auto number = load_little_endian<std::uint32_t>(answer.data() + 16);
    missing_.erase(number);
    fits = fits || number >= first;
  }
  return fits;
}

bool EchoClient::wait_for_answer(std::uint32_t first, Duration patience) {
  const net::Deadline deadline = net::Deadline::after(*clock_, patience);
  do {
    if (take_answers(first)) return true;
  } while (net::wait_for(socket_, POLLIN, deadline));
  return false;
}

Result<std::size_t> EchoClient::largest_packet(std::size_t mtu) {
  std::size_t good = net::datagram_overhead(to_) + EchoServer::kBytes;
  GRADWIRE_ASSIGN_OR_RETURN(const auto any, passes(good, kTries, kPatience));
  if (!any) return std::size_t{0};
  std::size_t bad = std::min(mtu, kLargest) + 1;
  for (std::size_t next = bad - 1; bad - good > 1; next = good + (bad - good) / 2) {
    GRADWIRE_ASSIGN_OR_RETURN(const auto passed, passes(next, kTries, kPatience));
    (passed ? good : bad) = next;
  }
  return good;
}

Result<LossSample> EchoClient::loss(std::size_t packet, int questions) {
  struct Asked {
    std::uint32_t number;
    net::Deadline given_up;
  };
  const net::Deadline deadline = net::Deadline::after(*clock_, kLongest);
  const std::size_t max_in_flight =
      std::clamp<std::size_t>(kMaxBytesInFlight / packet, 1, kMaxInFlight);
  missing_.clear();
  std::vector<Asked> in_flight;
  LossSample sample;
  while (sample.asked < questions && !deadline.passed()) {
    std::erase_if(in_flight, [&](const Asked& one) {
      return !missing_.contains(one.number) || one.given_up.passed();
    });
    if (missing_.size() - in_flight.size() >= kEnoughLost) break;
    if (in_flight.size() == max_in_flight) {
      net::wait_for(socket_, POLLIN, in_flight.front().given_up);
    } else {
      GRADWIRE_ASSIGN_OR_RETURN(const auto sent, ask(packet));
      if (sent == net::DatagramSent::too_big) break;  // The path MTU has decreased.
      in_flight.push_back({number_, net::Deadline::after(*clock_, kPatience)});
      ++sample.asked;
    }
    take_answers(number_);
  }
  const net::Deadline late = net::Deadline::after(*clock_, kLateAnswerTimeout);
  while (!missing_.empty() && net::wait_for(socket_, POLLIN, late)) take_answers(number_);
  sample.lost = static_cast<int>(missing_.size());
  return sample;
}

}  // namespace gradwire::cli
