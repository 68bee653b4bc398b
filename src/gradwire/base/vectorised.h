#pragma once

// For functions whose plain loops the compiler vectorises: each exists once for the baseline
// processor, once for AVX2 with F16C and once for AVX-512, chosen when the program is loaded, by
// what the processor can do. (`arch=haswell` would ask for its name, and AMD's never match.) What
// such a function calls in its loops must be GRADWIRE_INLINE, to be compiled for the same
// processor. Layers in which all versions must compute the same bits are compiled with
// -ffp-contract=off.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)  // It is not there yet when the program is loaded.
#define GRADWIRE_VECTORISED \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define GRADWIRE_VECTORISED
#endif
#define GRADWIRE_INLINE inline __attribute__((always_inline))
