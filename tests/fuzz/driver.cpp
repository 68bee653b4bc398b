// Replaces libFuzzer if clang is not available: runs a target's seeds and then mutations of them,
// deterministically for a seed. Inputs that reach new code are kept and mutated in turn. A corpus
// file has such inputs of earlier runs, which run first.
//
// A child process runs the inputs; each is in shared memory before it runs. So if the child dies
// for any reason, the parent has the input: it prints it, and writes it to a file for --replay.

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gradwire/base/clock.h"
#include "gradwire/base/random.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/coverage.h"
#include "tests/fuzz/mutate.h"
#include "tests/fuzz/target.h"
#include "tests/support/seeds.h"

/// Lengths claimed by a peer must not be trusted: no input needs an allocation beyond this.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() {
  return "max_allocation_size_mb=16:allocator_may_return_null=0:detect_leaks=1";
}
extern "C" const char* __ubsan_default_options();
extern "C" const char* __ubsan_default_options() {
  return "print_stacktrace=1";
}

namespace gradwire::fuzz {
namespace {

constexpr std::size_t kMaxKept = 4096;
constexpr std::size_t kMaxShown = 1024;  // Maximum bytes of an input that are printed in
                                         // hexadecimal.

struct Options {
  std::uint64_t seed = 1;
  std::string corpus;        ///< A file of inputs that run first; it need not exist.
  std::string write_corpus;  ///< Written at the end: the shortest that reach all code.
  std::optional<std::uint64_t> executions;
  double seconds = 10;
  int max_seconds = 10;  ///< Maximum processor time for one input.
  std::string replay;
  std::string write_seeds;
};

/// Shared by child and parent.
struct Shared {
  std::uint64_t executions = 0;
  std::uint64_t kept = 0;
  std::size_t size = 0;
  std::uint8_t input[kMaxInput];
};

Shared& make_shared_memory() {
  void* memory =
      ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return *static_cast<Shared*>(memory);
}

/// Limits processor time, which does not depend on the machine's load.
void limit_time(int seconds) {
  itimerval limit = {};
  limit.it_value.tv_sec = seconds;
  ::setitimer(ITIMER_PROF, &limit, nullptr);
}

void run(const std::string& input) {
  // Exactly the input's size, so that sanitizers detect reads beyond it.
  const std::vector<char> exact(input.begin(), input.end());
  test({exact.data(), exact.size()});
}

class Session {
 public:
  Session(const Options& options, Shared& shared)
      : options_(options), shared_(shared), random_(options.seed), kept_(seeds()) {
    for (std::string& input : read_corpus(options.corpus)) kept_.push_back(std::move(input));
  }

  void run_all() {
    const Time begin = clock_.now();
    const auto goes_on = [&] {
      if (options_.executions) return shared_.executions < *options_.executions;
      if (shared_.executions % 64 != 0) return true;
      return std::chrono::duration<double>(clock_.now() - begin).count() < options_.seconds;
    };
    const std::vector<std::string> first = kept_;
    for (const std::string& seed : first) execute(seed);
    shared_.kept = kept_.size();
    while (goes_on()) {
      std::string input = mutate(kept_[random_.below(kept_.size())], kept_, random_);
      if (!random_.one_in(8)) repair(input);
      if (input.size() > kMaxInput) input.resize(kMaxInput);
      if (execute(input) && kept_.size() < kMaxKept) kept_.push_back(std::move(input));
      shared_.kept = kept_.size();
    }
    if (!options_.write_corpus.empty())
      gradwire::fuzz::write_corpus(options_.write_corpus, smallest_corpus());
  }

 private:
  /// Returns the shortest inputs that reach, besides the seeds, all code that was reached.
  std::vector<std::string> smallest_corpus() {
    std::vector<std::string> inputs = kept_;
    std::ranges::stable_sort(inputs, {}, &std::string::size);
    forget_coverage();
    for (const std::string& seed : seeds()) execute(seed);
    std::erase_if(inputs, [&](const std::string& input) { return !execute(input); });
    return inputs;
  }

  bool execute(const std::string& input) {
    expect(input.size() <= kMaxInput, "seeds are no longer than inputs");
    shared_.size = input.size();
    std::memcpy(shared_.input, input.data(), input.size());
    ++shared_.executions;
    limit_time(options_.max_seconds);
    begin_input();
    run(input);
    return reached_anything_new();
  }

  const Options& options_;
  Shared& shared_;
  SteadyClock clock_;
  Random random_;
  std::vector<std::string> kept_;
};

std::string words_of(int status, const Options& options) {
  if (WIFEXITED(status)) return fmt::format("exit status {}", WEXITSTATUS(status));
  if (WTERMSIG(status) == SIGPROF) {
    return fmt::format("more than {} s of processor time", options.max_seconds);
  }
  return fmt::format("signal {} ({})", WTERMSIG(status), ::strsignal(WTERMSIG(status)));
}

void report(const std::string& name, const Options& options, const Shared& shared, int status) {
  const std::string input(reinterpret_cast<const char*>(shared.input), shared.size);
  const std::string file = fmt::format("{}-{}-{}.input", name, options.seed, shared.executions);
  std::ofstream(file, std::ios::binary) << input;
  const std::string shown = input.substr(0, kMaxShown);
  fmt::print(
      "{}: {} at execution {} with seed {}, by an input of {} bytes:\n{:02x}{}\n"
      "It is in {}; again: {} --replay {}\n",
      name, words_of(status, options), shared.executions, options.seed, input.size(),
      fmt::join(bytes_of(shown), ""), shown.size() < input.size() ? "..." : "", file, name, file);
}

int fuzz(const std::string& name, const Options& options) {
  Shared& shared = make_shared_memory();
  SteadyClock clock;
  const Time begin = clock.now();
  std::fflush(nullptr);
  const pid_t child = ::fork();
  if (child == 0) {
    Session(options, shared).run_all();
    std::exit(0);
  }
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) throw std::bad_alloc();
  const double seconds = std::chrono::duration<double>(clock.now() - begin).count();
  if (status != 0) report(name, options, shared, status);
  fmt::print("{}: seed {}, {} executions in {:.1f} s, {} inputs reach different code\n", name,
             options.seed, shared.executions, seconds, shared.kept);
  return status == 0 ? 0 : 1;
}

int replay(const Options& options) {
  std::ifstream file(options.replay, std::ios::binary);
  const std::string input{std::istreambuf_iterator<char>(file), {}};
  if (!file) {
    fmt::print(stderr, "cannot read {}\n", options.replay);
    return 2;
  }
  limit_time(options.max_seconds);
  run(input);
  fmt::print("{} bytes: nothing is wrong with them\n", input.size());
  return 0;
}

/// Writes the seeds and the corpus as files of a corpus folder of libFuzzer.
int write_seeds(const std::filesystem::path& folder, const std::string& corpus) {
  std::filesystem::create_directories(folder);
  std::vector<std::string> inputs = seeds();
  for (std::string& input : read_corpus(corpus)) inputs.push_back(std::move(input));
  int number = 0;
  for (const std::string& seed : inputs) {
    std::ofstream(folder / fmt::format("seed-{}", number++), std::ios::binary) << seed;
  }
  fmt::print("{} seeds are in {}\n", number, folder.string());
  return 0;
}

std::optional<Options> options_of(const std::vector<std::string>& arguments) {
  Options options;
  for (std::size_t i = 0; i < arguments.size(); i += 2) {
    if (i + 1 == arguments.size()) return std::nullopt;
    const std::string& name = arguments[i];
    const std::string& value = arguments[i + 1];
    if (name == "--seed") {
      options.seed = value == "today" ? test::today() : std::stoull(value);
    } else if (name == "--corpus") {
      options.corpus = value;
    } else if (name == "--write-corpus") {
      options.write_corpus = value;
    } else if (name == "--executions") {
      options.executions = std::stoull(value);
    } else if (name == "--seconds") {
      options.seconds = std::stod(value);
    } else if (name == "--most-seconds") {
      options.max_seconds = std::stoi(value);
    } else if (name == "--replay") {
      options.replay = value;
    } else if (name == "--write-seeds") {
      options.write_seeds = value;
    } else {
      return std::nullopt;
    }
  }
  return options;
}

int start(const std::string& name, const std::vector<std::string>& arguments) {
  const auto options = options_of(arguments);
  if (!options) {
    fmt::print(stderr,
               "usage: {} [--seed N | --seed today] [--executions N | --seconds S]\n"
               "          [--most-seconds S] [--corpus FILE] [--write-corpus FILE]\n"
               "       {} --replay FILE | --write-seeds FOLDER [--corpus FILE]\n",
               name, name);
    return 2;
  }
  if (!options->replay.empty()) return replay(*options);
  if (!options->write_seeds.empty()) return write_seeds(options->write_seeds, options->corpus);
  return fuzz(name, *options);
}

}  // namespace
}  // namespace gradwire::fuzz

int main(int argc, char** argv) {
  const std::string name = std::filesystem::path(argv[0]).filename().string();
  return gradwire::fuzz::start(name, {argv + 1, argv + argc});
}
