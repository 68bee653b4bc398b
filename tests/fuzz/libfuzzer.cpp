// Additional functions for libFuzzer: its mutations are followed by the target's repair().

#include <algorithm>
#include <string>

#include "tests/fuzz/target.h"

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int seed) {
  const std::size_t mutated = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) return mutated;
  std::string input(reinterpret_cast<const char*>(data), mutated);
  gradwire::fuzz::repair(input);
  input.resize(std::min(input.size(), max_size));
  std::copy(input.begin(), input.end(), data);
  return input.size();
}
