#pragma once

#include <memory>

#include "gradwire/codec/codec.h"

/// One factory function per codec. The named file gives the source of its formula. Arguments must
/// be in the ranges of the catalogue (codec/catalogue.h), through which users create codecs.
namespace gradwire::codec {

std::unique_ptr<Codec> bf16_codec();                        ///< bf16.cpp
std::unique_ptr<Codec> fp16_codec();                        ///< fp16.cpp
std::unique_ptr<Codec> int8_codec();                        ///< int8.cpp
std::unique_ptr<Codec> int4_codec();                        ///< int4.cpp
std::unique_ptr<Codec> ternary_codec();                     ///< ternary.cpp
std::unique_ptr<Codec> two_bit_codec();                     ///< two_bit.cpp
std::unique_ptr<Codec> one_bit_codec();                     ///< one_bit.cpp
std::unique_ptr<Codec> qsgd_codec(int bits);                ///< qsgd.cpp; 2, 4 or 8
std::unique_ptr<Codec> top_k_codec(double fraction);        ///< top_k.cpp
std::unique_ptr<Codec> random_mask_codec(double fraction);  ///< random_mask.cpp
std::unique_ptr<Codec> rotation_codec(int bits);            ///< rotation.cpp; 1 to 4

}  // namespace gradwire::codec
