#pragma once

namespace gradwire {

/// `gradwire bench codec`: measures speed and error of codecs. argv[0] is "codec"; returns the exit
/// status.
int bench_codec_command(int argc, char** argv);

}  // namespace gradwire
