#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/schedule/verify/verifier.h"
#include "tests/schedule/printing.h"

/// Details of the verifier, on schedules written for the purpose.
namespace gradwire::schedule {
namespace {

using testing::HasSubstr;

Schedule schedule_of(CollectiveSpec spec, std::uint32_t chunks, std::vector<Program> programs) {
  const int ranks = static_cast<int>(programs.size());
  return {.spec = spec,
          .ranks = ranks,
          .chunks = chunks,
          .program = [programs](Rank rank) { return programs[static_cast<std::size_t>(rank)]; },
          .name = "test"};
}

Slice input(std::uint32_t first, std::uint32_t count = 1) {
  return {Buffer::input, first, count};
}

Slice output(std::uint32_t first, std::uint32_t count = 1) {
  return {Buffer::output, first, count};
}

/// Two ranks that send each other everything and add the received data to their own.
std::vector<Program> exchange(bool receive_into_scratch) {
  std::vector<Program> programs;
  for (Rank rank : {0, 1}) {
    ProgramBuilder builder;
    const Rank peer = 1 - rank;
    const OperandOrder order = rank == 0 ? OperandOrder::local_first : OperandOrder::incoming_first;
    const OpIndex sent = builder.send(peer, input(0));
    if (receive_into_scratch) {
      const Slice theirs = builder.scratch(0);
      const OpIndex mine = builder.copy(output(0), input(0));
      const OpIndex came = builder.recv(peer, theirs);
      builder.postscale(builder.reduce(output(0), theirs, order, {mine, came, sent}));
    } else {
      builder.postscale(builder.recv_reduce(peer, output(0), input(0), order));
    }
    programs.push_back(std::move(builder).build());
  }
  return programs;
}

TEST(Faults, SeparateBuffersMayBeRightAndInPlaceARace) {
  EXPECT_FALSE(find_fault(schedule_of({Collective::all_reduce}, 1, exchange(true))));
  // Reduces into the output while the same memory is being sent as the input.
  const auto violation = find_fault(schedule_of({Collective::all_reduce}, 1, exchange(false)));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->fault, Fault::race);
  EXPECT_EQ(violation->message,
            "test all_reduce of 2 ranks: rank 0, op 1 (recv_reduce input[0] + rank 1 -> output[0], "
            "finish): it and op 0 (send input[0] -> rank 1) access output[0] and output[0] without "
            "being ordered, if output and input are the same memory");
}

TEST(Faults, WaitingForOnesOwnSendMakesAReceiveWait) {
  std::vector<Program> programs = exchange(false);
  for (Program& program : programs) {
    program.dependencies = {0};
    program.ops[1].after = {0, 1};
  }
  const auto violation = find_fault(schedule_of({Collective::all_reduce}, 1, programs));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->fault, Fault::receive_waits);
  EXPECT_THAT(violation->message, HasSubstr("rank 0, op 1"));
  EXPECT_THAT(violation->message, HasSubstr("receive into scratch instead"));
}

/// Rank 0 sends chunks 0 and 1 of an all_gather to rank 1, which sends them back into the slice
/// that begins with chunk `back`.
Schedule there_and_back(std::uint32_t back) {
  ProgramBuilder zero;
  zero.send(1, output(0, 2));
  ProgramBuilder one;
  const OpIndex came = one.recv(0, output(0, 2));
  one.send(2, output(0, 2), {came});
  one.recv(2, output(back, 2));
  ProgramBuilder two;
  const OpIndex arrived = two.recv(1, output(0, 2));
  two.send(1, output(0, 2), {arrived});
  return schedule_of({Collective::all_gather}, 3,
                     {std::move(zero).build(), std::move(one).build(), std::move(two).build()});
}

TEST(Faults, OrderByteByByteDoesNotCoverShiftedSlices) {
  // The same slice: byte n comes back after byte n was sent. (It then reads undefined data.)
  EXPECT_EQ(find_fault(there_and_back(0)).value().fault, Fault::undefined_read);
  // Shifted by one chunk: byte n is written where a later byte has not been sent yet.
  const Violation shifted = find_fault(there_and_back(1)).value();
  EXPECT_EQ(shifted.fault, Fault::race);
  EXPECT_THAT(shifted.message, HasSubstr("output[1..3) and output[0..2)"));
}

/// A broadcast of two chunks that arrive at rank 1 as one message and are sent on as two.
Schedule split_at_one(bool wait) {
  ProgramBuilder zero;
  zero.send(1, output(0, 2));
  ProgramBuilder one;
  const OpIndex came = one.recv(0, output(0, 2));
  ProgramBuilder two;
  for (std::uint32_t chunk : {0u, 1u}) {
    if (wait) {
      one.send(2, output(chunk), {came});
    } else {
      one.send(2, output(chunk));
    }
    two.recv(1, output(chunk));
  }
  return schedule_of({Collective::broadcast}, 2,
                     {std::move(zero).build(), std::move(one).build(), std::move(two).build()});
}

TEST(Faults, WaitingForAllOfAnOpCoversEverySlice) {
  EXPECT_FALSE(find_fault(split_at_one(true)));
  EXPECT_EQ(find_fault(split_at_one(false)).value().fault, Fault::race);
}

TEST(Faults, OrderedOpsMayStillBeWrongInPlace) {
  // Rank 0 receives into its output and adds its input, which in place is overwritten by then.
  ProgramBuilder zero;
  const Slice held = zero.scratch(0);
  const OpIndex came = zero.recv(1, held);
  const OpIndex copied = zero.copy(output(0), held, {came});
  const OpIndex sum = zero.reduce(output(0), input(0), OperandOrder::incoming_first, {copied});
  zero.postscale(sum);
  zero.send(1, output(0), {sum});
  ProgramBuilder one;
  one.send(0, input(0));
  one.recv(0, output(0));
  const Violation violation =
      find_fault(schedule_of({Collective::all_reduce}, 1,
                             {std::move(zero).build(), std::move(one).build()}))
          .value();
  EXPECT_EQ(violation.fault, Fault::wrong_result);
  EXPECT_THAT(violation.message, HasSubstr("(output and input are the same memory)"));
  EXPECT_THAT(violation.message, HasSubstr("it contains rank 1 twice"));
}

TEST(Faults, StreamsKeepTheirOrder) {
  // Each message may be sent alone, but the second to rank 1 must be sent before the first can be.
  ProgramBuilder zero;
  ProgramBuilder one;
  const Slice kept = zero.scratch(0);
  const OpIndex back = zero.recv(1, kept);
  zero.send(1, kept, {back});
  zero.send(1, input(0));
  one.recv(0, output(0));
  const Slice first = one.scratch(0);
  const OpIndex came = one.recv(0, first);
  one.send(0, first, {came});
  const auto violation = find_fault(schedule_of({Collective::point_to_point, 0, 1}, 1,
                                                {std::move(zero).build(), std::move(one).build()}));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->fault, Fault::deadlock);
  EXPECT_THAT(violation->message, HasSubstr("waits for"));
}

TEST(Faults, LengthsMustAgreeForEverySize) {
  // Chunks 0 and 1 have the same length only if the elements divide evenly.
  ProgramBuilder zero;
  zero.send(1, output(0));
  zero.send(1, output(1));
  ProgramBuilder one;
  one.recv(0, output(1));
  one.recv(0, output(0));
  const auto violation = find_fault(
      schedule_of({Collective::broadcast}, 2, {std::move(zero).build(), std::move(one).build()}));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->fault, Fault::unmatched);
  EXPECT_THAT(violation->message, HasSubstr("differs in length"));
}

TEST(Faults, PartsOfAnAllToAllHaveNoCommonLength) {
  // Two ranks. Data from 0 for 1 must be stored where 1 keeps data from 0: nothing else has its
  // size.
  const auto made = [](std::uint32_t from, std::uint32_t to) {
    ProgramBuilder zero;
    zero.copy(output(0), input(0));
    zero.send(1, input(from));
    zero.recv(1, output(1));
    ProgramBuilder one;
    one.copy(output(1), input(1));
    one.send(0, input(0));
    one.recv(0, output(to));
    return schedule_of({Collective::all_to_all}, 2,
                       {std::move(zero).build(), std::move(one).build()});
  };
  EXPECT_FALSE(find_fault(made(1, 0)));
  EXPECT_EQ(find_fault(made(0, 0)).value().fault, Fault::unmatched);
  EXPECT_EQ(find_fault(made(1, 1)).value().fault, Fault::unmatched);
}

TEST(Faults, AllToAllHasNoScratch) {
  ProgramBuilder builder;
  builder.copy(builder.scratch(0), input(0));
  const auto violation =
      find_fault(schedule_of({Collective::all_to_all}, 1, {std::move(builder).build()}));
  ASSERT_TRUE(violation);
  EXPECT_EQ(violation->fault, Fault::malformed);
  EXPECT_THAT(violation->message, HasSubstr("all_to_all has no scratch"));
}

/// A scatter to one other rank through two slots, which mirror chunks `first` and `second`.
Schedule through_two_slots(std::uint32_t first, std::uint32_t second) {
  ProgramBuilder zero;
  zero.send(1, input(1, 2));
  zero.copy(output(0), input(0));
  ProgramBuilder one;
  const Slice slot = one.scratch(first);
  one.scratch(second);
  const OpIndex came = one.recv(0, {Buffer::scratch, slot.first, 2});
  one.copy(output(0), slot, {came});
  one.send(2, {Buffer::scratch, slot.first + 1, 1}, {came});
  ProgramBuilder two;
  two.recv(1, output(0));
  return schedule_of({Collective::scatter}, 3,
                     {std::move(zero).build(), std::move(one).build(), std::move(two).build()});
}

TEST(Faults, OnlySlotsOfConsecutiveChunksMakeASlice) {
  EXPECT_FALSE(find_fault(through_two_slots(1, 2)));
  const Violation violation = find_fault(through_two_slots(1, 0)).value();
  EXPECT_EQ(violation.fault, Fault::malformed);
  EXPECT_THAT(violation.message, HasSubstr("does not mirror consecutive chunks"));
}

TEST(Faults, OnlyTheRootHasAnOutputToReduceTo) {
  ProgramBuilder zero;
  zero.postscale(zero.recv_reduce(1, output(0), input(0), OperandOrder::local_first));
  ProgramBuilder one;
  const OpIndex kept = one.copy(output(0), input(0));
  one.send(0, output(0), {kept});
  const Violation violation =
      find_fault(schedule_of({Collective::reduce, 0}, 1,
                             {std::move(zero).build(), std::move(one).build()}))
          .value();
  EXPECT_EQ(violation.fault, Fault::malformed);
  EXPECT_THAT(violation.message, HasSubstr("reaches beyond its 0 chunks"));
}

TEST(Faults, InPlaceReduceAtTheRootMayBeARace) {
  // The root sends its input while it adds to it; both are the same memory if the caller wants.
  ProgramBuilder zero;
  zero.send(1, input(0));
  zero.postscale(zero.recv_reduce(1, output(0), input(0), OperandOrder::local_first));
  ProgramBuilder one;
  one.send(0, input(0));
  one.recv(0, one.scratch(0));
  const Violation violation =
      find_fault(schedule_of({Collective::reduce, 0}, 1,
                             {std::move(zero).build(), std::move(one).build()}))
          .value();
  EXPECT_EQ(violation.fault, Fault::race);
  EXPECT_THAT(violation.message, HasSubstr("if output and input are the same memory"));
}

TEST(Faults, ResultsAreShown) {
  std::vector<Program> programs = exchange(true);
  programs[1].ops.back().order = OperandOrder::local_first;
  const Violation violation =
      find_fault(schedule_of({Collective::all_reduce}, 1, programs)).value();
  EXPECT_EQ(violation.fault, Fault::wrong_result);
  EXPECT_EQ(violation.message,
            "test all_reduce of 2 ranks: rank 1 ends with output[0] = finish (r1[0] + r0[0]): "
            "rank 0 computes a different value");
}

TEST(Faults, SpecsMustMakeSense) {
  const std::vector<Program> programs = exchange(true);
  Schedule schedule = schedule_of({Collective::all_reduce}, 1, programs);
  for (int ranks : {0, -1, kMaxRanks + 1}) {
    schedule.ranks = ranks;
    EXPECT_EQ(find_fault(schedule).value().fault, Fault::malformed);
  }
  schedule = schedule_of({Collective::all_reduce}, 0, programs);
  EXPECT_EQ(find_fault(schedule).value().fault, Fault::malformed);
  schedule = schedule_of({Collective::broadcast, 2}, 1, programs);
  EXPECT_EQ(find_fault(schedule).value().fault, Fault::malformed);
  schedule = schedule_of({Collective::all_reduce}, 1, programs);
  schedule.program = nullptr;
  EXPECT_EQ(find_fault(schedule).value().fault, Fault::malformed);
}

TEST(Verify, IsAStatus) {
  EXPECT_TRUE(verify(schedule_of({Collective::all_reduce}, 1, exchange(true))));
  const Status wrong = verify(schedule_of({Collective::all_reduce}, 1, exchange(false)));
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().kind, ErrorKind::invalid_argument);
  EXPECT_THAT(wrong.error().message, HasSubstr("rank 0, op 1"));
}

}  // namespace
}  // namespace gradwire::schedule
