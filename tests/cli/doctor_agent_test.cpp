#include <gtest/gtest.h>

#include "gradwire/cli/doctor/pipe_store.h"
#include "gradwire/cli/doctor/reach.h"
#include "tests/support/host.h"

/// Parts of the doctor's process on a host.
namespace gradwire::cli {
namespace {

/// Host 0's findings about another host, on which the doctor is number `local_rank` of those that
/// share the job's port.
Reachability reach_of_one_that_shares_a_port(int local_rank) {
  const net::SocketAddress any = *net::SocketAddress::of("127.0.0.1", 0);
  const std::uint16_t port = net::local_address(*net::listen_on(any)).port();
  const std::vector<bootstrap::RailEndpoint> rails{{any, "lo"}};
  const bootstrap::Job here{
      .rank = 0, .world_size = 2, .port = port, .interface = {}, .secret = "secret"};
  bootstrap::Job there = here;
  there.rank = 1;
  there.local_rank = local_rank;
  HostInfo info{.host = "b"};
  const ReachabilityServer server(test::kNetwork, there, rails, MasterPort::in_use, info);
  const auto reach =
      reach_all(test::kNetwork, here, rails, {std::nullopt, info}, std::chrono::seconds(3));
  if (reach.size() != 1) throw Exception(ErrorKind::invalid_argument, "not one way");
  return reach.front();
}

TEST(ReachTest, DatagramsWithoutAnEchoServerAreNotTried) {
  const Reachability first = reach_of_one_that_shares_a_port(0);
  EXPECT_EQ(first.outcome, Reachability::Outcome::reached) << first.error;
  EXPECT_TRUE(first.has_echo);
  EXPECT_GT(first.largest_packet, 1000);
  EXPECT_GT(first.datagrams, 0);
  const Reachability second = reach_of_one_that_shares_a_port(1);  // The first has not connected.
  EXPECT_EQ(second.outcome, Reachability::Outcome::reached) << second.error;
  EXPECT_FALSE(second.has_echo);
}

TEST(PipeStoreTest, LinesRoundTrip) {
  const auto set = parse_request(line_of(StoreRequest{.key = "k/1", .value = "two\nlines \"\xff"}));
  ASSERT_TRUE(set && set->value);
  EXPECT_EQ(set->key, "k/1");
  EXPECT_EQ(*set->value, "two\nlines \"\xef\xbf\xbd");  // Invalid UTF-8 is replaced.
  const auto get = parse_request(
      line_of(StoreRequest{.key = "k", .value = {}, .patience = std::chrono::seconds(2)}));
  ASSERT_TRUE(get && !get->value);
  EXPECT_EQ(get->patience, std::chrono::seconds(2));
  EXPECT_FALSE(parse_request("Welcome to this host!"));
  EXPECT_FALSE(parse_request("{\"get\": 1}"));
  EXPECT_EQ(*parse_answer(line_of(Result<std::string>("value"))), "value");
  const auto failed =
      parse_answer(line_of(Result<std::string>(failure(ErrorKind::timeout, "late"))));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().kind, ErrorKind::timeout);
  EXPECT_EQ(failed.error().message, "late");
}

}  // namespace
}  // namespace gradwire::cli
