#include "gradwire/servers/order_log.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gradwire/base/bytes.h"
#include "gradwire/base/crc32c.h"
#include "gradwire/base/error.h"
#include "gradwire/base/random.h"
#include "gradwire/servers/worker_steps.h"
#include "tests/support/error_of.h"

namespace gradwire::servers::test {
namespace {

using gradwire::test::error_of;
using testing::AllOf;
using testing::HasSubstr;
using testing::StartsWith;
using RecordKind = OrderRecord::Kind;

/// One server, two workers that take a step each of one batch.
OrderLog small_log() {
  return {.configuration = R"({"seed": 3})",
          .placement = {.workers = 2, .servers = 1, .beside_workers = true},
          .threads = 4,
          .servers = {{{.kind = RecordKind::deal, .worker = 1, .count = 8, .clock = 0, .base = 16},
                       {.kind = RecordKind::deal, .worker = 0, .count = 8, .clock = 1, .base = 0},
                       {.worker = 1, .count = 1, .random = 5, .checksum = 0xFEDCBA98},
                       {.worker = 0, .count = 1, .random = 6, .factor = 0.1},
                       {.kind = RecordKind::values, .checksum = 7, .base = 2}}}};
}

/// Makes the checksum fit.
std::string sealed(std::string file) {
  file.resize(file.size() - 4);
  std::byte checksum[4];
  store_little_endian(checksum, crc32c(std::as_bytes(std::span(file))));
  for (const std::byte byte : checksum) file.push_back(static_cast<char>(byte));
  return file;
}

std::string error_of_file(const std::string& file) {
  return error_of([&] { decode_order(file, "order.bin"); });
}

TEST(OrderLog, ComesBackFromItsFile) {
  const OrderLog log = small_log();
  const OrderLog read = decode_order(encode_order(log), "order.bin");
  EXPECT_EQ(read.configuration, log.configuration);
  EXPECT_EQ(read.placement.workers, 2);
  EXPECT_EQ(read.placement.servers, 1);
  EXPECT_TRUE(read.placement.beside_workers);
  EXPECT_EQ(read.threads, 4);
  EXPECT_EQ(read.servers, log.servers);
}

/// All machines write the same bytes.
TEST(OrderLog, HasSixLittleEndianWordsForEachRecord) {
  const std::string file = encode_order(small_log());
  const std::string record = file.substr(file.size() - 4 - 3 * 48, 48);
  EXPECT_THAT(record, StartsWith(std::string("\1\0\0\0\0\0\0\0\3\0\0\0\1\0\0\0\5\0\0\0\x98\xBA\xDC"
                                             "\xFE",
                                             24)));
  EXPECT_EQ(record.substr(40), std::string("\0\0\0\0\0\0\xF0\x3F", 8));
}

TEST(OrderLog, RefusesOtherFiles) {
  const std::string file = encode_order(small_log());
  EXPECT_THAT(error_of_file(""), HasSubstr("order.bin: it is not the order of a run"));
  EXPECT_THAT(error_of_file("{\"seed\": 1}"), HasSubstr("which servers.log names"));
  std::string newer = file;
  newer[16] = 9;
  EXPECT_THAT(error_of_file(newer), AllOf(HasSubstr("version 9"), HasSubstr("reads version 1")));
  EXPECT_THAT(error_of_file(sealed(file + "12345678")), HasSubstr("8 bytes too many"));
  std::string workers = file;
  workers.replace(workers.find("\"workers\":2"), 11, "\"workers\":0");
  EXPECT_THAT(error_of_file(sealed(workers)), HasSubstr("workers"));
  std::string kind = file;
  kind[file.size() - 4 - 48 + 8] = 6;
  EXPECT_THAT(error_of_file(sealed(kind)), HasSubstr("no record of kind 6"));
}

TEST(OrderLog, NoticesEveryCutAndEveryChangedByte) {
  const std::string file = encode_order(small_log());
  for (std::size_t i = 0; i < file.size(); ++i) {
    EXPECT_THAT(error_of_file(file.substr(0, i)), StartsWith("order.bin: ")) << i;
    std::string changed = file;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_THAT(error_of_file(changed), StartsWith("order.bin: ")) << i;
  }
}

/// Whatever the bytes, memory is bounded by the file.
TEST(OrderLog, RefusesOrReadsRandomDamageWithAChecksumThatFits) {
  const std::string file = encode_order(small_log());
  Random random(1);
  for (int round = 0; round < 20'000; ++round) {
    std::string damaged = file;
    for (auto changes = random.between(1, 4); changes > 0; --changes) {
      damaged[20 + random.below(file.size() - 24)] = static_cast<char>(random.below(256));
    }
    if (random.one_in(4)) damaged.resize(20 + random.below(damaged.size() - 20));
    const std::string sealed_file = sealed(damaged);
    try {
      const OrderLog log = decode_order(sealed_file, "order.bin");
      EXPECT_EQ(decode_order(encode_order(log), "again").servers, log.servers);
      steps_of(log);
    } catch (const Exception& e) {
      EXPECT_EQ(e.kind(), ErrorKind::invalid_argument) << e.what();
    }
  }
}

TEST(OrderLog, TravelsInPages) {
  std::vector<OrderRecord> records(45'000);
  for (std::size_t i = 0; i < records.size(); ++i) records[i].clock = static_cast<std::int64_t>(i);
  std::vector<OrderRecord> got;
  int pages = 0;
  for (; got.size() < records.size(); ++pages) {
    const auto page = page_of(records, static_cast<std::int64_t>(got.size()));
    EXPECT_EQ(page.front(), 45'000);
    append_records(got, std::span(page).subspan(1));
  }
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(got, records);
  EXPECT_THAT(error_of([&] { page_of(records, -1); }), HasSubstr("no record -1 of 45000"));
  EXPECT_THAT(error_of([&] { page_of(records, 45'001); }), HasSubstr("no record 45001"));
  const std::vector<std::int64_t> words(5);
  EXPECT_THAT(error_of([&] { append_records(got, words); }), HasSubstr("are damaged"));
}

TEST(WorkerSteps, AreMadeOfWhatServersRecorded) {
  const OrderLog log = small_log();
  const WorkerSteps steps = steps_of(log);
  EXPECT_EQ(steps.units, 1u);
  ASSERT_EQ(steps.by_worker[0].size(), 1u);
  const WorkerStep& step = steps.by_worker[0][0];
  EXPECT_EQ(step.random, 6u);
  EXPECT_EQ(step.staleness, 1);
  EXPECT_EQ(step.factor, 0.1);
  ASSERT_EQ(step.batches.size(), 1u);
  EXPECT_EQ(step.batches[0].epoch, 1);
  EXPECT_EQ(step.parts[0].gradient, &log.servers[0][3]);
}

TEST(WorkerSteps, RefuseRecordsThatAreNotOfOneRun) {
  const auto error_with = [](const std::function<void(std::vector<OrderRecord>&)>& change) {
    OrderLog log = small_log();
    change(log.servers[0]);
    return error_of([&] { steps_of(log); });
  };
  using Records = std::vector<OrderRecord>;
  EXPECT_THAT(error_with([](Records& all) { all.clear(); }), HasSubstr("no values of server 0"));
  EXPECT_THAT(error_with([](Records& all) { all[2].worker = 2; }), HasSubstr("of worker 2"));
  EXPECT_THAT(error_with([](Records& all) { all[2].unit = 1; }), HasSubstr("unit 1, of 2 and 1"));
  EXPECT_THAT(error_with([](Records& all) { all[2].base = 1; }),
              HasSubstr("a record of version 1 of unit 0, which has version 0"));
  EXPECT_THAT(error_with([](Records& all) { all[0].count = 0; }), HasSubstr("dealt 0 samples"));
  EXPECT_THAT(error_with([](Records& all) { all.erase(all.begin()); }),
              HasSubstr("has not dealt the samples of step 0 of worker 1"));
}

}  // namespace
}  // namespace gradwire::servers::test
