#include "gradwire/cli/doctor/endpoint.h"

#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gradwire/base/random_hex.h"
#include "gradwire/cli/doctor/look.h"
#include "gradwire/net/datagram.h"

namespace gradwire {

Endpoint::Endpoint(const Job& job, const std::vector<RailPlace>& rails, std::uint16_t port,
                   HostFacts& facts)
    : stop_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  for (const RailPlace& rail : rails) open(rail, port, facts);
  facts.token = random_hex(8);
  echo_ = std::make_unique<Echo>(std::move(datagram_sockets_), echo_token(facts.token));
  const auto admit = [me = job.rank](const Claims& claims) {
    return claims.to == me ? Verdict::accepted : Verdict::impossible;
  };
  gate_ = std::make_unique<Gate>(
      std::move(doors_),
      Gate::Options{.shared = {.secret = job.secret, .purpose = kDoctorPurpose},
                    .world_size = job.world_size},
      admit, [](const Admitted&) {});
  thread_ = std::thread([this] { run(); });
}

Endpoint::~Endpoint() {
  const std::uint64_t one = 1;
  [[maybe_unused]] const ssize_t written = ::write(stop_.descriptor(), &one, sizeof one);
  thread_.join();
}

void Endpoint::open(const RailPlace& rail, std::uint16_t port, HostFacts& facts) {
  RailFacts found{.interface = rail.interface,
                  .address = rail.address.host(),
                  .mtu = interface_mtu(rail.interface).value_or(0),
                  .megabits = negotiated_megabits(rail.interface),
                  .loopback = rail.address.is_loopback()};
  auto listener = listen_on(rail.address.with_port(port));
  if (listener) {
    found.endpoint = local_address(*listener).to_string();
    doors_.push_back(std::make_unique<ListeningDoor>(std::move(*listener)));
  } else {
    facts.problems.push_back(listener.error().message);
  }
  auto datagrams = bind_datagrams(rail.address.with_port(port));
  if (datagrams) {
    found.echo = local_address(*datagrams).to_string();
    datagram_sockets_.push_back(std::move(*datagrams));
  } else {
    facts.problems.push_back(datagrams.error().message);
  }
  facts.rails.push_back(std::move(found));
}

void Endpoint::run() {
  PollSet set;
  for (;;) {
    set.clear();
    const std::size_t stop = set.add(stop_, POLLIN);
    set.wait(gate_->watch(set, Deadline::after(std::chrono::hours(1))));
    if (set.happened(stop) != 0 || !gate_->advance(set)) return;
  }
}

}  // namespace gradwire
