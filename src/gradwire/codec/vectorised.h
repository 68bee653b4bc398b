#pragma once

// For functions whose plain loops the compiler vectorises: each exists once for the baseline
// processor, once for AVX2 and once for AVX-512, chosen when the program is loaded. What such a
// function calls in its loops must be GRADWIRE_INLINE, to be compiled for the same processor. The
// layer is compiled with -ffp-contract=off: all versions compute the same bits.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)  // It is not there yet when the program is loaded.
#define GRADWIRE_VECTORISED \
  __attribute__((target_clones("default", "arch=haswell", "arch=x86-64-v4")))
#else
#define GRADWIRE_VECTORISED
#endif
#define GRADWIRE_INLINE inline __attribute__((always_inline))
