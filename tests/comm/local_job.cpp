#include "tests/comm/local_job.h"

#include <stdexcept>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

namespace gradwire::test {

std::uint16_t free_port() {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool ok = ::bind(fd, generic, size) == 0 && ::getsockname(fd, generic, &size) == 0;
  ::close(fd);
  if (!ok) throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

LocalJob::LocalJob(int ranks, const CommunicatorOptions& options, bool encrypted)
    : communicators_(static_cast<std::size_t>(ranks)) {
  const std::uint16_t port = free_port();
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (Rank r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      Job job;
      job.rank = job.local_rank = r;
      job.world_size = job.local_world_size = ranks;
      job.master_port = port;
      job.secret = "a secret of the tests";
      job.encryption = encrypted;
      job.shared_memory = !encrypted;
      try {
        communicators_[static_cast<std::size_t>(r)] = Communicator::connect(job, options);
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) throw std::runtime_error(error);
  }
}

std::vector<std::string> LocalJob::run(const std::function<void(Rank, Communicator&)>& body) {
  std::vector<std::string> errors(communicators_.size());
  std::vector<std::thread> threads;
  for (Rank r = 0; r < ranks(); ++r) {
    if (!communicators_[static_cast<std::size_t>(r)]) continue;
    threads.emplace_back([&, r] {
      try {
        body(r, on(r));
      } catch (const std::exception& e) {
        errors[static_cast<std::size_t>(r)] = e.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace gradwire::test
