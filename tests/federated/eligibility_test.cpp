#include "gradwire/federated/remote/eligibility.h"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "gradwire/federated/remote/client_costs.h"
#include "tests/support/error_of.h"
#include "tests/support/host.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::federated {
namespace {

using gradwire::test::kClock;
using gradwire::test::TemporaryFolder;
using testing::HasSubstr;
using testing::IsEmpty;

/// A folder like /sys/class/power_supply.
struct Supplies {
  void set(const std::string& name, const std::map<std::string, std::string>& files) const {
    std::filesystem::create_directories(folder / name);
    for (const auto& [file, text] : files) std::ofstream(folder / name / file) << text << "\n";
  }
  std::string why() const { return why_unplugged(folder.path()); }
  TemporaryFolder folder;
};

struct ManualClock final : Clock {
  Time now() const override { return time; }
  Time time{};
};

TEST(FederatedEligibility, ASupplyThatIsOnlineIsPluggedIn) {
  const Supplies machine;
  EXPECT_THAT(machine.why(), IsEmpty()) << "a machine without supplies";
  machine.set("BAT0", {{"type", "Battery"}, {"status", "Discharging"}});
  EXPECT_THAT(machine.why(), HasSubstr("the battery BAT0 is discharging"));
  machine.set("AC", {{"type", "Mains"}, {"online", "0"}});
  EXPECT_THAT(machine.why(), HasSubstr("is online"));
  machine.set("usb", {{"type", "USB_PD"}, {"online", "1"}});
  EXPECT_THAT(machine.why(), IsEmpty());
  machine.set("usb", {{"type", "USB"}, {"online", "0"}});
  EXPECT_THAT(machine.why(), HasSubstr("is online"));
  machine.set("AC", {{"type", "Mains"}, {"online", "1"}});
  EXPECT_THAT(machine.why(), IsEmpty());
}

TEST(FederatedEligibility, TheBatteryOfAMouseDoesNotMatter) {
  const Supplies machine;
  machine.set("mouse", {{"type", "Battery"}, {"scope", "Device"}, {"status", "Discharging"}});
  EXPECT_THAT(machine.why(), IsEmpty());
  machine.set("BAT0", {{"type", "Battery"}, {"status", "Full"}});
  EXPECT_THAT(machine.why(), IsEmpty());
  EXPECT_THAT(why_unplugged(machine.folder / "none"), IsEmpty());
}

TEST(FederatedEligibility, TheUsersCommandDecides) {
  const TemporaryFolder folder;
  const std::string command = "test -e " + (folder / "idle").string();
  Eligibility eligibility(kClock, {.command = command});
  EXPECT_THAT(eligibility.check(), HasSubstr("exits with status 1"));
  folder.write("idle", "");
  EXPECT_THAT(eligibility.check(), HasSubstr("exits with status 1")) << "not asked again yet";
  EXPECT_THAT(eligibility.check_now(), IsEmpty());
  EXPECT_THAT(Eligibility(kClock, {.command = "kill -9 $$"}).check(), HasSubstr("signal 9"));
  EXPECT_THAT(Eligibility(kClock, {.command = "/no/such/program 2> /dev/null"}).check(),
              HasSubstr("status 127"));
}

TEST(FederatedEligibility, ALaterCheckDoesNotWaitForTheCommand) {
  const TemporaryFolder folder;
  const std::string gate = (folder / "gate").string();
  ASSERT_EQ(::mkfifo(gate.c_str(), 0600), 0);
  const std::string again = (folder / "again").string();
  // The second time it waits for the other end of the pipe, and then refuses.
  Eligibility eligibility(
      kClock,
      {.command = fmt::format("test ! -e {0} && touch {0} || (read x < {1}; exit 3)", again, gate),
       .interval = Duration{}});
  EXPECT_THAT(eligibility.check(), IsEmpty());
  EXPECT_THAT(eligibility.check(), IsEmpty()) << "it runs";
  EXPECT_THAT(eligibility.check(), IsEmpty()) << "it still runs";
  std::ofstream(gate) << "go\n";
  std::string reason;
  for (const auto until = gradwire::net::Deadline::after(kClock, std::chrono::seconds(20));
       reason.empty() && !until.passed();)
    reason = eligibility.check();
  EXPECT_THAT(reason, HasSubstr("exits with status 3"));
}

TEST(FederatedEligibility, ACommandThatHangsIsEnded) {
  Eligibility eligibility(kClock,
                          {.command = "sleep 1000", .command_time = std::chrono::milliseconds(20)});
  EXPECT_THAT(eligibility.check(), HasSubstr("sleep 1000 did not end"));
}

TEST(FederatedEligibility, UnpluggingIsSeenWithinTheInterval) {
  const Supplies machine;
  machine.set("AC", {{"type", "Mains"}, {"online", "1"}});
  ManualClock clock;
  Eligibility eligibility(clock, {.plugged = true, .power_supplies = machine.folder.path()});
  EXPECT_THAT(eligibility.check(), IsEmpty());
  machine.set("AC", {{"type", "Mains"}, {"online", "0"}});
  clock.time += std::chrono::seconds(9);
  EXPECT_THAT(eligibility.check(), IsEmpty());
  clock.time += std::chrono::seconds(1);
  EXPECT_THAT(eligibility.check(), HasSubstr("is online"));
}

/// The costs of a client on some day.
struct Costs {
  explicit Costs(const CostLimits& given) : limits(given) {}
  ClientCosts open() {
    return {folder / "state", limits, [this] { return time; }};
  }
  TemporaryFolder folder;
  CostLimits limits;
  Duration time = std::chrono::hours(24) * 20'000 + std::chrono::hours(6);
};

constexpr Offer kOffer{
    .seconds = 60, .memory_bytes = 5000, .steps = 10, .down_bytes = 1000, .up_bytes = 300};

TEST(FederatedCosts, WorkBeyondALimitIsDeclinedBeforehand) {
  Costs none({});
  EXPECT_FALSE(none.open().check(kOffer));
  Costs memory({.memory_bytes = 4999});
  EXPECT_THAT(memory.open().check(kOffer)->reason, HasSubstr("memory"));
  Costs down({.round = {.down_bytes = 999}});
  EXPECT_THAT(down.open().check(kOffer)->reason,
              HasSubstr("1000 bytes down, and the limit of a round is 999"));
  Costs up({.round = {.up_bytes = 299}});
  EXPECT_THAT(up.open().check(kOffer)->reason, HasSubstr("300 bytes up"));
  EXPECT_EQ(up.open().check(kOffer)->seconds, 3600);
  Costs enough({.round = {.up_bytes = 300, .down_bytes = 1000}, .memory_bytes = 5000});
  EXPECT_FALSE(enough.open().check(kOffer));
}

TEST(FederatedCosts, ADaysLimitHoldsAcrossRestartsUntilMidnight) {
  Costs day({.day = {.down_bytes = 2500}});
  for (int round = 0; round < 2; ++round) {
    ClientCosts costs = day.open();
    EXPECT_FALSE(costs.check(kOffer));
    ASSERT_TRUE(costs.add({.down_bytes = 1000}));
  }
  const auto declined = day.open().check(kOffer);
  ASSERT_TRUE(declined);
  EXPECT_THAT(declined->reason, HasSubstr("after 2000 today"));
  EXPECT_EQ(declined->seconds, 18 * 3600);
  day.time += std::chrono::hours(18);
  EXPECT_FALSE(day.open().check(kOffer));
}

TEST(FederatedCosts, ComputeFollowsFromTheLastRoundsTimeOfAStep) {
  Costs limited({.round = {.compute_seconds = 15}, .day = {.compute_seconds = 40}});
  ClientCosts costs = limited.open();
  EXPECT_FALSE(costs.check(kOffer)) << "no time is known";
  EXPECT_EQ(costs.compute_seconds_left(), 15);
  ASSERT_TRUE(costs.begin(1));
  ASSERT_TRUE(costs.add_compute(12, 10));
  EXPECT_EQ(costs.compute_seconds_left(), 3);
  ASSERT_TRUE(costs.begin(2));
  ASSERT_TRUE(costs.add_compute(12, 10));
  EXPECT_FALSE(limited.open().check(kOffer)) << "12 of the 16 that are left";
  ASSERT_TRUE(costs.begin(3));
  ASSERT_TRUE(costs.add_compute(14, 10));
  EXPECT_EQ(costs.compute_seconds_left(), 1);
  EXPECT_THAT(limited.open().check(kOffer)->reason, HasSubstr("14 seconds of compute after 38"));
}

TEST(FederatedCosts, ARoundIsNotBegunTwiceAlsoAfterARestart) {
  Costs costs({});
  ASSERT_TRUE(costs.open().begin(7));
  const Status again = costs.open().begin(7);
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().kind, ErrorKind::refused);
  EXPECT_THAT(again.error().message, HasSubstr("takes part in no round twice"));
  EXPECT_FALSE(costs.open().begin(6));
  EXPECT_TRUE(costs.open().begin(8));
}

TEST(FederatedCosts, AFileThatCannotBeWrittenIsSaid) {
  Costs costs({});
  ClientCosts open = costs.open();
  std::filesystem::create_directory(costs.folder / "state");
  const Status begun = open.begin(1);
  ASSERT_FALSE(begun);
  EXPECT_EQ(begun.error().kind, ErrorKind::system);
  EXPECT_THAT(begun.error().message, HasSubstr("free some space"));
  costs.folder.write("other", "{\"version\": 1, \"what\": 2}");
  EXPECT_THAT(gradwire::test::error_of(
                  [&] { ClientCosts(costs.folder / "other", {}, [] { return Duration{}; }); }),
              HasSubstr("seconds_per_step"));
}

}  // namespace
}  // namespace gradwire::federated
