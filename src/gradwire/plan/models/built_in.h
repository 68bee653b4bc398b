#pragma once

#include <string>

#include "gradwire/plan/model.h"

/// How the built-in models are made; their names are in models/catalogue.cpp.
namespace gradwire {

/// ResNet (He et al., CVPR 2016, table 1) as torchvision has it: the layers of gradient/profiles.h.
/// `blocks` of the third stage: 6 of ResNet-50, 23 of ResNet-101.
ModelShape resnet_model(const std::string& name, int blocks);

/// VGG with 16 layers (Simonyan and Zisserman, ICLR 2015, table 1, D), without batch normalisation.
ModelShape vgg16_model();

/// What differs between transformers (Vaswani et al., NeurIPS 2017).
struct TransformerSpec {
  std::string name = "transformer";
  int layers = 12;
  int width = 768;
  int heads = 12;
  int tokens = 1024;
  int vocabulary = 50257;
  int feed_forward = 0;  ///< Width of its middle; 0: four times the width.
  int key_heads = 0;     ///< Of keys and values; 0: as many as heads.
  /// Learned positions; 0: rotary ones, without parameters.
  int positions = 1024;
  /// Llama's: no biases, RMS norms, a product of two projections in the feed-forward network, an
  /// output layer of its own (Touvron et al., arXiv:2307.09288). Otherwise biases, layer norms,
  /// dropout, and the output layer uses the embedding's weight.
  bool llama = false;
  /// BERT's: kinds of segments are embedded and the embedding is normalised; a pooler in place of
  /// an output layer (Devlin et al., NAACL 2019).
  bool bert = false;
  /// ViT's: patches of 16 x 16 of images of 224 x 224, 1000 classes (Dosovitskiy et al., ICLR
  /// 2021). Tokens, positions and vocabulary follow.
  bool image = false;
};

/// Two layers a block, attention and feed-forward. Attention is fused (Dao et al., NeurIPS 2022):
/// its scores are computed, not kept. What is kept: Korthikanti et al., "Reducing Activation
/// Recomputation in Large Transformer Models", arXiv:2205.05198, section 4.1: 34 s b h bytes of 16
/// bits a block.
ModelShape transformer_model(const TransformerSpec& spec);

}  // namespace gradwire
