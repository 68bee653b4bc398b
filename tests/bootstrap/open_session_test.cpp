#include "gradwire/bootstrap/store/open_session.h"

#include <functional>
#include <memory>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/net/host_network.h"
#include "tests/bootstrap/warnings.h"

namespace gradwire::bootstrap {
namespace {

using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

struct PausedClock final : Clock {
  Time now() const override { return at; }
  Time at{seconds(1000)};
};

/// A network without hosts, on which only pauses take time.
class NoNetwork final : public net::HostNetwork {
 public:
  const Clock& clock() const override { return clock_; }
  Result<net::Socket> listen_on(const net::SocketAddress&) const override { return none(); }
  Result<net::Socket> start_connect(const net::SocketAddress&, const net::SocketAddress&,
                                    const std::string&) const override {
    return none();
  }
  Result<std::pair<net::Socket, net::Socket>> make_pair() const override {
    return failure(ErrorKind::system, "no network");
  }
  void pause(Duration duration) const override { clock_.at += duration; }
  std::unique_ptr<net::NetworkThread> start_thread(std::function<void()>) const override {
    return nullptr;
  }

 private:
  static Result<net::Socket> none() { return failure(ErrorKind::system, "no network"); }
  mutable PausedClock clock_;
};

struct AttemptsTest : ::testing::Test {
  Duration waited() const { return network.clock().now() - start; }
  /// Attempts that fail with `error` until `limit` has passed. Returns the error that ended them.
  std::string fail_until(Duration limit, const Error& error) {
    const net::Deadline deadline = net::Deadline::after(network.clock(), seconds(60));
    Attempts attempts(network, job, deadline);
    while (waited() < limit) {
      if (const Status status = attempts.after(error); !status) return status.error().message;
    }
    return "";
  }

  const NoNetwork network;
  const Time start = network.clock().now();
  const Job job{.rank = 3, .world_size = 4, .master_address = "a", .master_port = 4711};
};

TEST_F(AttemptsTest, OfAServerThatDoesNotAnswerWarnOnceAfterSeconds) {
  const Warnings warnings;
  const Error silent{ErrorKind::timeout, "10.0.0.1:4711 does not answer"};
  EXPECT_EQ(fail_until(seconds(7), silent), "");
  EXPECT_EQ(warnings.text(), "");
  EXPECT_EQ(fail_until(seconds(50), silent), "");
  const std::string said = warnings.text();
  EXPECT_THAT(said, AllOf(HasSubstr("rank 3 is still trying to reach rank 0 at a:4711"),
                          HasSubstr("10.0.0.1:4711 does not answer"), HasSubstr("doctor")));
  EXPECT_EQ(said.find("still trying"), said.rfind("still trying"));
}

TEST_F(AttemptsTest, OfANameThatDoesNotExistEndAfterAGrace) {
  const Warnings warnings;
  const Error unknown{ErrorKind::invalid_argument, "cannot find the address of host \"a\""};
  EXPECT_EQ(fail_until(seconds(50), unknown), unknown.message);
  EXPECT_GE(waited(), seconds(9));  // In some clusters a name appears when its host is up.
  EXPECT_LE(waited(), seconds(11));
}

TEST_F(AttemptsTest, EndAtOnceForAnErrorThatCannotPass) {
  EXPECT_EQ(fail_until(seconds(50), {ErrorKind::mismatch, "wrong secret"}), "wrong secret");
  EXPECT_EQ(waited(), Duration::zero());
}

}  // namespace
}  // namespace gradwire::bootstrap
