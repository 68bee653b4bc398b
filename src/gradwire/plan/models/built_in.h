#pragma once

#include <string>

#include "gradwire/plan/model.h"

/// Builders of the built-in models; models/catalogue.cpp has their names.
namespace gradwire::plan {

/// ResNet (He et al., CVPR 2016, table 1) as in torchvision, with the layers of
/// workload/profiles.h. `blocks`: of the third stage, 6 in ResNet-50, 23 in ResNet-101.
ModelShape resnet_model(const std::string& name, int blocks);

/// VGG with 16 layers (Simonyan and Zisserman, ICLR 2015, table 1, D), without batch normalization.
ModelShape vgg16_model();

/// Hyperparameters of a transformer (Vaswani et al., NeurIPS 2017).
struct TransformerSpec {
  std::string name = "transformer";
  int layers = 12;
  int width = 768;
  int heads = 12;
  int tokens = 1024;
  int vocabulary = 50257;
  int feed_forward = 0;  ///< Hidden width; 0: four times `width`.
  int key_heads = 0;     ///< Heads of keys and values; 0: as `heads`.
  /// Learned positions; 0: rotary positions, without parameters.
  int positions = 1024;
  /// Llama: no biases, RMS norms, a product of two projections in the feed-forward network, a
  /// separate output layer (Touvron et al., arXiv:2307.09288). Otherwise biases, layer norms,
  /// dropout, and an output layer that shares the embedding's weight.
  bool llama = false;
  /// BERT: segment embeddings, a normalized embedding, and a pooler in place of an output layer
  /// (Devlin et al., NAACL 2019).
  bool bert = false;
  /// ViT: patches of 16 x 16 of images of 224 x 224, 1000 classes (Dosovitskiy et al., ICLR 2021).
  /// Tokens, positions and vocabulary follow from that.
  bool image = false;
};

/// Builds two layers per block, attention and feed-forward. Attention is fused (Dao et al., NeurIPS
/// 2022): scores are computed but not kept. Kept activations are those of Korthikanti et al.,
/// "Reducing Activation Recomputation in Large Transformer Models", arXiv:2205.05198, section 4.1:
/// 34 s b h bytes of 16 bits per block.
ModelShape transformer_model(const TransformerSpec& spec);

}  // namespace gradwire::plan
