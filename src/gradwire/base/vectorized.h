#pragma once

// For functions whose plain loops the compiler vectorizes. Each is compiled for the baseline
// processor, for AVX2 with F16C and for AVX-512; the loader picks the version by the processor's
// features. (`arch=haswell` would test for the model name, which AMD's never match.) Functions
// called in its loops must be GRADWIRE_INLINE, so that they are compiled for the same processor.
// Layers in which all versions must compute the same bits are compiled with -ffp-contract=off.
#if defined(__x86_64__) && defined(__linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)  // Its runtime is not initialized when the loader picks.
#define GRADWIRE_VECTORIZED \
  __attribute__((target_clones("default", "arch=x86-64-v3", "arch=x86-64-v4")))
#else
#define GRADWIRE_VECTORIZED
#endif
#define GRADWIRE_INLINE inline __attribute__((always_inline))
