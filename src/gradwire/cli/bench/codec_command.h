#pragma once

namespace gradwire {

/// `gradwire bench codec`: how fast codecs are, and what they lose. argv[0] is "codec"; the result
/// is the exit status.
int bench_codec_command(int argc, char** argv);

}  // namespace gradwire
