#include "gradwire/net/host_network.h"

#include <array>
#include <thread>

#include <poll.h>
#include <sys/socket.h>

namespace gradwire::net {
namespace {

class KernelThread final : public NetworkThread {
 public:
  explicit KernelThread(std::function<void()> run) : thread_(std::move(run)) {}
  ~KernelThread() override { thread_.join(); }

 private:
  std::thread thread_;
};

/// If the peer's buffer is full, it has enough to read.
void send_byte(const Socket& socket) {
  constexpr std::array<std::byte, 1> kByte = {};
  (void)send_some(socket, kByte);
}

}  // namespace

Result<Socket> KernelNetwork::listen_on(const SocketAddress& address) const {
  return gradwire::net::listen_on(address);
}

Result<Socket> KernelNetwork::start_connect(const SocketAddress& to, const SocketAddress& source,
                                            const std::string& interface) const {
  return gradwire::net::start_connect(to, source, interface);
}

Result<std::pair<Socket, Socket>> KernelNetwork::make_pair() const {
  std::array<int, 2> ends;
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends.data()) != 0) {
    return system_failure("cannot make a socket");
  }
  return std::pair(Socket(ends[0]), Socket(ends[1]));
}

void KernelNetwork::pause(Duration duration) const {
  ::poll(nullptr, 0, milliseconds_of(duration));
}

std::unique_ptr<NetworkThread> KernelNetwork::start_thread(std::function<void()> run) const {
  return std::make_unique<KernelThread>(std::move(run));
}

Result<std::unique_ptr<LoopThread>> LoopThread::start(
    const HostNetwork& network, const std::string& what,
    std::function<void(const Socket& stop)> loop) {
  auto ends = network.make_pair();
  if (!ends) return failure(ends.error().kind, what + ": " + ends.error().message);
  std::unique_ptr<LoopThread> made(new LoopThread(std::move(ends->first), std::move(ends->second)));
  made->thread_ =
      network.start_thread([stop = &made->theirs_, loop = std::move(loop)] { loop(*stop); });
  return made;
}

LoopThread::~LoopThread() {
  send_byte(ours_);
  thread_.reset();
}

void LoopThread::notify(const Socket& stop) {
  send_byte(stop);
}

bool LoopThread::wait_until(Deadline deadline, const std::function<bool()>& condition) {
  while (!condition()) {
    if (!wait_for(ours_, POLLIN, deadline)) return condition();
    std::array<std::byte, 256> bytes;
    while (receive_some(ours_, bytes).bytes > 0) {
    }
  }
  return true;
}

}  // namespace gradwire::net
