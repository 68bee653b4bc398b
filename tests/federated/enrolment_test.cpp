#include "gradwire/federated/remote/enrolment.h"

#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <sys/stat.h>

#include "tests/support/error_of.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::federated {
namespace {

using gradwire::test::content_of;
using gradwire::test::error_of;
using gradwire::test::TemporaryFolder;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr auto kCreated = Enrolment::Missing::created;

std::vector<std::string> names(const Enrolment& enrolment) {
  std::vector<std::string> all;
  for (const EnrolledClient& one : enrolment.clients()) all.push_back(one.name);
  return all;
}

TEST(FederatedEnrolment, AClientHasASecretOfItsOwnWhichTheServerDoesNotKeep) {
  const TemporaryFolder folder;
  Enrolment server(folder / "key", kCreated);
  const ClientIdentity one = server.enrol("phone-1", "head:29500");
  const ClientIdentity two = server.enrol("phone-2", "");
  EXPECT_NE(one.secret, two.secret);
  EXPECT_NE(one.id, two.id);
  EXPECT_EQ(one.secret.size(), 64u);
  const std::string list = content_of(folder / "key.clients");
  EXPECT_THAT(list, Not(HasSubstr(one.secret)));
  EXPECT_THAT(list, Not(HasSubstr(to_hex(one.signing_key))));
  EXPECT_EQ(Enrolment(folder / "key", kCreated).secret_of(one.id), one.secret);
  EXPECT_NE(Enrolment(folder / "other", kCreated).secret_of(one.id), one.secret);
  for (const char* name : {"key", "key.clients", "key.authority"}) {
    struct stat info {};
    ASSERT_EQ(::stat((folder / name).c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u) << name;
  }
}

TEST(FederatedEnrolment, TheServerHasThePublicHalfOfTheSigningKey) {
  const TemporaryFolder folder;
  Enrolment server(folder / "key", kCreated);
  const ClientIdentity client = server.enrol("phone-1", "");
  const auto at = [](const SigningKey& key) {
    return reinterpret_cast<const unsigned char*>(key.data());
  };
  EVP_PKEY* secret =
      EVP_PKEY_new_raw_private_key(EVP_PKEY_ED25519, nullptr, at(client.signing_key), 32);
  SigningKey open;
  std::size_t size = open.size();
  ASSERT_EQ(
      EVP_PKEY_get_raw_public_key(secret, reinterpret_cast<unsigned char*>(open.data()), &size), 1);
  EVP_PKEY_free(secret);
  EXPECT_EQ(server.find(client.id)->certificate.key, open);
}

TEST(FederatedEnrolment, TheAuthoritySignsKeysAndTheServerDoesNotNeedItsKey) {
  const TemporaryFolder folder;
  Enrolment command(folder / "key", kCreated);
  const ClientIdentity one = command.enrol("phone-1", ""), two = command.enrol("phone-2", "");
  EXPECT_EQ(one.authority, two.authority);
  const Certificate certificate = command.find(one.id)->certificate;
  EXPECT_TRUE(is_valid(certificate, one.id, two.authority));
  EXPECT_FALSE(is_valid(certificate, two.id, two.authority)) << "it names its client";
  EXPECT_FALSE(is_valid({two.signing_key, certificate.signature}, one.id, two.authority));
  std::string packed;
  append(packed, certificate);
  std::string_view rest = packed;
  EXPECT_EQ(take_certificate(rest), certificate);
  EXPECT_FALSE(take_certificate(rest));
  const std::string away = folder / "elsewhere";
  std::filesystem::rename(folder / "key.authority", away);
  Enrolment server(folder / "key", Enrolment::Missing::refused);
  EXPECT_EQ(server.find(one.id)->certificate, certificate);
  EXPECT_THAT(error_of([&] { server.enrol("phone-3", ""); }), HasSubstr("bring it back"));
  std::filesystem::rename(away, folder / "key.authority");
  EXPECT_EQ(server.enrol("phone-3", "").authority, one.authority);
}

TEST(FederatedEnrolment, TheClientsFileIsPrivate) {
  const TemporaryFolder folder;
  Enrolment server(folder / "key", kCreated);
  const ClientIdentity client = server.enrol("phone-1", "head:29500");
  const auto read = read_identity(folder.write("id", to_json(client), 0600));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(to_json(*read), to_json(client));
  EXPECT_EQ(read->server, "head:29500");
  const auto open = read_identity(folder.write("open", to_json(client), 0644));
  ASSERT_FALSE(open);
  EXPECT_EQ(open.error().kind, ErrorKind::refused);
  EXPECT_THAT(open.error().message, HasSubstr("chmod 600"));
  EXPECT_THAT(read_identity(folder / "none").error().message, HasSubstr("gradwire federate enrol"));
  const auto cut = read_identity(folder.write("cut", to_json(client).substr(0, 50), 0600));
  EXPECT_EQ(cut.error().kind, ErrorKind::invalid_argument);
}

TEST(FederatedEnrolment, RevokedClientsAreUnknownAtOnceAlsoToARunningServer) {
  const TemporaryFolder folder;
  Enrolment server(folder / "key", kCreated);
  const auto credentials = server.credentials();
  Enrolment command(folder / "key", kCreated);
  const ClientIdentity one = command.enrol("phone-1", "");
  const bootstrap::Claims claims{.from = one.id, .world_size = bootstrap::kNoWorld};
  ASSERT_TRUE(credentials(claims));
  EXPECT_EQ(credentials(claims)->secret, one.secret);
  EXPECT_FALSE(credentials({.from = one.id + 1, .world_size = bootstrap::kNoWorld}));
  EXPECT_FALSE(credentials({.from = one.id, .world_size = 4})) << "it is no rank";
  command.revoke("phone-1");
  EXPECT_FALSE(credentials(claims));
  EXPECT_THAT(error_of([&] { command.revoke("phone-1"); }), HasSubstr("no client is enrolled"));
  const ClientIdentity again = command.enrol("phone-1", "");
  EXPECT_NE(again.id, one.id) << "numbers are not used twice";
  EXPECT_NE(again.secret, one.secret);
}

TEST(FederatedEnrolment, AnIncompleteLastLineIsDropped) {
  const TemporaryFolder folder;
  { Enrolment(folder / "key", kCreated).enrol("phone-1", ""); }
  const std::string whole = content_of(folder / "key.clients");
  for (std::size_t cut = 1; cut < whole.size(); cut += 7) {
    folder.write("key.clients", whole + whole.substr(0, cut), 0600);
    Enrolment server(folder / "key", kCreated);
    EXPECT_THAT(names(server), ElementsAre("phone-1"));
    server.enrol("phone-2", "");
    EXPECT_THAT(names(Enrolment(folder / "key", kCreated)), ElementsAre("phone-1", "phone-2"));
  }
  folder.write("key.clients", "{\"id\": 1}\n" + whole, 0600);
  EXPECT_THAT(error_of([&] { Enrolment(folder / "key", kCreated); }), HasSubstr("key.clients:1: "));
}

TEST(FederatedEnrolment, WhatOthersCanReadIsRefused) {
  const TemporaryFolder folder;
  EXPECT_THAT(error_of([&] { Enrolment(folder / "key", Enrolment::Missing::refused); }),
              HasSubstr("enrol"));
  { Enrolment(folder / "key", kCreated).enrol("phone-1", ""); }
  ASSERT_EQ(::chmod((folder / "key.clients").c_str(), 0666), 0);
  EXPECT_THAT(error_of([&] { Enrolment(folder / "key", kCreated); }), HasSubstr("has mode 666"));
  ASSERT_EQ(::chmod((folder / "key").c_str(), 0640), 0);
  EXPECT_THAT(error_of([&] { Enrolment(folder / "key", kCreated); }), HasSubstr("has mode 640"));
}

TEST(FederatedEnrolment, NamesAreCheckedAndUnique) {
  const TemporaryFolder folder;
  Enrolment server(folder / "key", kCreated);
  for (const std::string& name : {std::string(), std::string("a b"), std::string("a\n"),
                                  std::string("../a/b"), std::string(65, 'a')})
    EXPECT_THAT(error_of([&] { server.enrol(name, ""); }), HasSubstr("a client's name has"))
        << name;
  server.enrol("phone", "");
  EXPECT_THAT(error_of([&] { server.enrol("phone", ""); }), HasSubstr("is enrolled already"));
}

TEST(FederatedEnrolment, SeveralProcessesEnrolAtOnce) {
  const TemporaryFolder folder;
  { const Enrolment make_key(folder / "key", kCreated); }
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&folder, thread] {
      Enrolment own(folder / "key", kCreated);
      for (int i = 0; i < 20; ++i) own.enrol(fmt::format("phone-{}-{}", thread, i), "");
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto all = Enrolment(folder / "key", kCreated).clients();
  ASSERT_EQ(all.size(), 80u);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(all[i].id, static_cast<ClientId>(i));
}

}  // namespace
}  // namespace gradwire::federated
